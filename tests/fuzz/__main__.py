"""`python -m tests.fuzz KIND FIRST LAST [BATCH]`: a campaign over seeds; `KIND seeds N ...`: these
alone. KIND: programs (the kind meant by `seeds N ...` alone), malformed, changed or hostile."""

from __future__ import annotations

import sys

from . import campaign


def try_seeds(kind: str, seeds: list[int]) -> None:
    """Runs seeds in this process and ends with the line "done"."""
    if kind == "programs":
        campaign.try_programs(seeds)
    elif kind == "malformed":
        from . import malformed

        malformed.try_mutants(seeds, malformed.corpus())
    elif kind == "changed":
        from . import changed

        changed.try_changed(seeds)
    else:
        from . import hostile

        hostile.try_cases(seeds)
    print("done", flush=True)


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "seeds":
        kind, rest = "programs", ["seeds", *rest]
    if kind not in campaign.BATCHES:
        sys.exit(__doc__)
    if rest[:1] == ["seeds"]:
        try_seeds(kind, [int(s) for s in rest[1:]])
    else:
        campaign.run_batches(kind, *(int(a) for a in rest))
