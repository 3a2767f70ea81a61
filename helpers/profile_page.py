"""A profile in a notebook: the source with a column of heat and the counts of each line."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helpers.show import highlight

if TYPE_CHECKING:
    from helpers.profile import Line, Profile, Traffic

HEAT = "213, 94, 0"  # vermilion of Okabe and Ito (2008)
_TABLE = "background: #FFFFFF; color: #222222; font-size: 13px; line-height: 1.4"
_NUMBER = "text-align: right; padding: 0 8px; white-space: nowrap"
_CODE = "text-align: left; padding: 0 8px; white-space: pre; font-family: monospace"
_TITLES = "line heat access requests sectors ideal wavefronts ideal source".split()


def page(profile: Profile) -> str:
    """HTML without scripts and classes, which JupyterLab would drop.

    A line's heat is its share of the launch's sectors and wavefronts: both take the time of the
    unit that serves memory.
    """
    everything = sum(map(_weight, profile.lines)) or 1
    by_number = {line.number: line for line in profile.lines if line.file == profile.file}
    rows = []
    for number, text in _source(profile, sorted(by_number)):
        rows += _rows(number, text, by_number.get(number), everything)
    for line in profile.lines:
        if line.file != profile.file:
            rows += _rows(f"{line.file}:{line.number}", html.escape(line.text), line, everything)
    head = "".join(f'<th style="{_CODE if t == "source" else _NUMBER}">{t}</th>' for t in _TITLES)
    title = f"{profile.file}, {profile.kernel}, grid {profile.grid}, block {profile.block}"
    notes = [f"<p>Not counted as on hardware: {html.escape(n)}</p>" for n in profile.unresolved]
    return (
        f"<p>{html.escape(title)}</p>"
        f'<table style="{_TABLE}"><tr>{head}</tr>{"".join(rows)}</table>'
        + "".join(notes)
    )


def _source(profile: Profile, executed: Sequence[int]) -> list[tuple[int, str]]:
    """(number, highlighted text) from the first executed line to the last."""
    if not executed:
        return []
    first, last = executed[0], executed[-1]
    text = "\n".join(profile.source_line(n) for n in range(first, last + 1))
    return list(enumerate(highlight(text), first))


def _weight(line: Line) -> int:
    return sum(t.sectors + t.wavefronts for t in line.traffic)


def _rows(number: int | str, text: str, line: Line | None, everything: int) -> list[str]:
    """A row for each kind of access on a line; one without counts where there is none."""
    rows = []
    for k, traffic in enumerate((line.traffic if line else ()) or (None,)):
        cells = [_cell(str(number) if not k else "", _NUMBER)]
        share = _weight(line) / everything if line and not k else 0.0
        heat = f"{_NUMBER}; background: rgba({HEAT}, {0.6 * share:.2f})"
        cells.append(_cell(f"{share:.0%}" if share >= 0.005 else "", heat))
        cells += [_cell(c, _NUMBER) for c in _counts(traffic)]
        cells.append(f'<td style="{_CODE}">{text if not k else ""}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return rows


def _counts(t: Traffic | None) -> tuple[str, ...]:
    if t is None:
        return ("",) * 6
    what = f"{t.operation}, {t.space}"
    if t.space == "shared":
        waves = f"{t.wavefronts:,}", f"{t.ideal_wavefronts:,}"
        return what, f"{t.requests:,}", "", "", *waves
    return what, f"{t.requests:,}", f"{t.sectors:,}", f"{t.ideal_sectors:,}", "", ""


def _cell(text: str, style: str) -> str:
    return f'<td style="{style}">{html.escape(text)}</td>'
