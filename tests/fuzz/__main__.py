"""`python -m tests.fuzz programs FIRST LAST [BATCH]`: a campaign; `seeds N ...`: these alone."""

from __future__ import annotations

import sys

from . import campaign

if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "seeds":
        campaign.try_programs([int(s) for s in rest])
        print("done")
    elif kind == "programs":
        campaign.main(rest)
