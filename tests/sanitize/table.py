"""The table of what helpers.sanitize finds in the corpus, beside NVIDIA's compute-sanitizer.

    python -m tests.sanitize.table        # writes README.md anew

The left side is found when the table is made, the right one is the record of an H200, h200.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from helpers.sanitize import Report, sanitize
from tests.sanitize.cases import FAULTY, RIGHT, Case

FOLDER = Path(__file__).resolve().parent
README, RECORD = FOLDER / "README.md", FOLDER / "h200.json"

#: Why one of the two finds something and the other does not, by kernel or by file.
WHY = {
    "races_global.cu": "racecheck looks at shared memory only",
    "lanes_store_to_one_global_word": "racecheck looks at shared memory only",
    "count_read_too_early": "racecheck does not report a read that races with an atomic operation",
    "return_before_a_barrier": "legal since Volta; helpers.sanitize warns",
    "matmul_tiled_early_return": "initcheck looks at global memory only; the return is legal",
    "past_As_into_Bs": "memcheck takes a block's shared memory as a whole",
    "before_Bs_into_As": "memcheck takes a block's shared memory as a whole",
    "shared_partly_written": "initcheck looks at global memory only",
    "local_partly_written": "initcheck looks at global memory only",
    "flag_without_fence": "racecheck looks at shared memory only",
    "read_outside_of_the_lock": "racecheck looks at shared memory only",
    "swapped_by_both": "racecheck looks at shared memory only",
    "early_exit_leaves_a_hole": "initcheck looks at global memory only; the return is legal",
    "clears_while_counting": "racecheck does not report a write that races with an atomic one",
    "halo": "memcheck says nothing of the 4 bytes behind a block's shared memory",
    "two_slots": "two named barriers (bar.arrive, bar.sync) lie between the two accesses",
    "turns": "an atomic counter and fences order the two accesses",
    "producer_and_consumer": "two named barriers (bar.arrive, bar.sync) lie between the two lines",
}

INTRODUCTION = """\
# What two sanitizers find in the same kernels

This folder has {faulty} small kernels with one planted fault each, and {right} right ones that look
suspicious (`cases.py`, `kernels/`). `test_corpus.py` holds `helpers.sanitize` to finding each fault
with its lines, whatever the order of the warps, and nothing in the right ones.

The tables show that beside NVIDIA's compute-sanitizer. Numbers are lines of the `.cu` file, the one
earlier in the program first. This page is made by `python -m tests.sanitize.table`.
"""
RECORDED = """\
compute-sanitizer {compute_sanitizer} ran on an {card} (driver {driver}, {date}), each kernel by
itself under racecheck, memcheck, synccheck and initcheck; `python -m
tests.sanitize.compute_sanitizer FILE` records it.
"""
NOT_RECORDED = """\
Not recorded yet: `python -m tests.sanitize.compute_sanitizer tests/sanitize/h200.json` on an H200.
"""


def record() -> dict | None:
    """What compute-sanitizer found, or None where nobody has recorded it."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else None


def sanitized(case: Case, order: str | int = "forward") -> Report:
    """What helpers.sanitize reports of a case."""
    return sanitize(
        (case.path, case.kernel), *case.values(),
        grid=case.grid, block=case.block, shared=case.shared, order=order,
    )  # fmt: skip


def findings(case: Case, order: str | int = "forward") -> list[tuple[str, tuple[int, ...]]]:
    """Kind and different lines of each of its findings."""
    return [(f.kind, tuple(dict.fromkeys(f.lines))) for f in sanitized(case, order).findings]


def theirs(recorded: dict, case: Case) -> list[str]:
    """What each of NVIDIA's tools found, a text for each tool that found anything."""
    texts = []
    for tool, result in recorded["cases"][case.kernel].items():
        found = [_text(f["kind"], f["lines"]) for f in result["findings"]]
        if result["ended"] == "timeout":
            found.append("does not end")
        if found:
            texts.append(f"{tool}: {'; '.join(found)}")
    return texts


def why(case: Case) -> str:
    return WHY.get(case.kernel, WHY.get(case.file, ""))


def differs(recorded: dict, case: Case) -> bool:
    """Whether one finds something wrong and the other does not."""
    return case.kernel in recorded["cases"] and bool(theirs(recorded, case)) == case.right


def page() -> str:
    """The text of README.md."""
    recorded = record()
    head = INTRODUCTION.format(faulty=len(FAULTY), right=len(RIGHT))
    about = RECORDED.format(**recorded) if recorded else NOT_RECORDED
    parts = [head, about]
    for title, cases in (("Faulty kernels", FAULTY), ("Right kernels", RIGHT)):
        rows = [_row(recorded, case) for case in cases]
        parts.append("\n".join([
            f"## {title}\n", "| kernel | file | helpers.sanitize | compute-sanitizer | why |",
            "|---|---|---|---|---|", *rows, "",
        ]))  # fmt: skip
    return "\n".join(parts)


def _row(recorded: dict | None, case: Case) -> str:
    ours = "; ".join(_text(*f) for f in findings(case)) or "–"
    other = "not recorded"
    if recorded and case.kernel in recorded["cases"]:
        other = "<br>".join(theirs(recorded, case)) or "–"
    reason = why(case) if recorded and differs(recorded, case) else ""
    return f"| `{case.kernel}` | {case.file} | {ours} | {other} | {reason} |"


def _text(kind: str, lines) -> str:
    return " ".join([kind, ", ".join(map(str, lines))]).strip()


if __name__ == "__main__":
    README.write_text(page(), encoding="utf-8")
    sys.exit()
