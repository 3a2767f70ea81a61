"""A profile as text, and in a notebook as the source with a column of heat."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helpers.show import highlight

if TYPE_CHECKING:
    from helpers.profile import Line, Profile, Traffic

TITLES = ("access", "requests", "cost", "ideal")
LONGEST = 40  # characters of a source line in the table
HEAT = "213, 94, 0"  # vermilion of Okabe and Ito (2008)
_TABLE = "background:#fff;color:#222;font-size:13px;white-space:nowrap"
_CODE = "text-align:left;white-space:pre;font-family:monospace"


def text(profile: Profile) -> str:
    """A table, the same on every machine: a row for each line and kind of access, then the sums."""
    rows = [("line", *TITLES, "source")]
    for line in profile.lines:
        for k, traffic in enumerate(line.traffic):
            code = line.text.partition("//")[0].strip() if not k else ""
            code = code if len(code) <= LONGEST else code[: LONGEST - 1] + "…"
            rows.append((_place(profile, line), *cells(traffic), code))
    rows += [("all", *cells(total), "") for total in profile.totals()]
    return "\n".join([_headline(profile), _aligned(rows), *_notes(profile)])


def page(profile: Profile) -> str:
    """HTML without scripts and classes, which JupyterLab would drop.

    A line's heat is its share of the launch's sectors and wavefronts: both take the time of the
    unit that serves memory.
    """
    everything = sum(map(_weight, profile.lines)) or 1
    by_number = {line.number: line for line in profile.lines if line.file == profile.file}
    rows = []
    for number, code in _source(profile, sorted(by_number)):
        rows += _rows(str(number), code, by_number.get(number), everything)
    for line in profile.lines:
        if line.file != profile.file:
            rows += _rows(_place(profile, line), html.escape(line.text), line, everything)
    head = "".join(f"<th>{title}</th>" for title in ("line", "heat", *TITLES))
    table = f'<tr>{head}<th style="{_CODE}">source</th></tr>{"".join(rows)}'
    return "".join(
        [
            f"<p>{html.escape(_headline(profile))}. Heat: share of all sectors and wavefronts.</p>",
            f'<table style="{_TABLE}">{table}</table>',
            *(f"<p>{html.escape(note)}</p>" for note in _notes(profile)),
        ]
    )


def cells(t: Traffic) -> tuple[str, str, str, str]:
    """access, requests, cost, ideal cost."""
    kind, cost, ideal = "sector", t.sectors, t.ideal_sectors
    if t.space == "shared":
        kind, cost, ideal = "wavefront", t.wavefronts, t.ideal_wavefronts
    plural = "" if cost == 1 else "s"
    return f"{t.space} {t.operation}", f"{t.requests:,}", f"{cost:,} {kind}{plural}", f"{ideal:,}"


def _headline(profile: Profile) -> str:
    return f"{profile.file}, {profile.kernel}, grid {profile.grid}, block {profile.block}"


def _notes(profile: Profile) -> list[str]:
    return [f"Not counted as on hardware: {reason}" for reason in profile.unresolved]


def _place(profile: Profile, line: Line) -> str:
    return str(line.number) if line.file == profile.file else f"{line.file}:{line.number}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Words to the left, numbers to the right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    words = (1, len(widths) - 1)
    return "\n".join(
        "  ".join(
            cell.ljust(w) if k in words else cell.rjust(w)
            for k, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _source(profile: Profile, executed: Sequence[int]) -> list[tuple[int, str]]:
    """(number, highlighted text) from the first executed line to the last."""
    if not executed:
        return []
    first, last = executed[0], executed[-1]
    code = "\n".join(profile.source_line(n) for n in range(first, last + 1))
    return list(enumerate(highlight(code), first))


def _weight(line: Line) -> int:
    return sum(t.sectors + t.wavefronts for t in line.traffic)


def _rows(place: str, code: str, line: Line | None, everything: int) -> list[str]:
    """A row for each kind of access on a line; one without counts where there is none."""
    place = html.escape(place)
    if line is None or not line.traffic:
        return [f'<tr><td>{place}</td><td colspan="5"></td><td style="{_CODE}">{code}</td></tr>']
    rows = []
    share = _weight(line) / everything
    for k, traffic in enumerate(line.traffic):
        heat = f'<td style="background:rgba({HEAT}, {0.6 * share:.2f})">{share:.0%}</td>'
        first = f"<td>{place}</td>{heat}" if not k else '<td colspan="2"></td>'
        counts = "".join(f"<td>{html.escape(c)}</td>" for c in cells(traffic))
        last = f'<td style="{_CODE}">{code}</td>' if not k else "<td></td>"
        rows.append(f"<tr>{first}{counts}{last}</tr>")
    return rows
