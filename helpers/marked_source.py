"""Lines of a kernel's source as HTML, with those marked that something is said of."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable

COLOURS = {"error": "213, 94, 0", "warning": "230, 159, 0", "note": "86, 180, 233"}


def marked(lines: Iterable[int], text_of: Callable[[int], str], severity: str) -> str:
    """A table of the lines and their neighbours; empty where there are none."""
    wanted = set(lines)
    if not wanted:
        return ""
    near = sorted({n + k for n in wanted for k in (-1, 0, 1) if n + k > 0})
    rows, before = [], near[0]
    for n in near:
        if n > before + 1:
            rows.append("<tr><td></td><td>⋮</td></tr>")
        before = n
        mark = f"background: rgba({COLOURS[severity]}, 0.35);" if n in wanted else ""
        text = html.escape(text_of(n)) or " "
        rows.append(
            f'<tr style="{mark}"><td style="text-align: right; padding: 1px 8px">{n}</td>'
            f'<td style="text-align: left; white-space: pre; font-family: monospace">{text}'
            "</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"
