"""A sweep over sizes as a picture: FLOP/s of each kernel against n.

    speeds(sweep())               # what was just measured
    speeds(h200())                # another card's, called recorded
    print(rates(h200()))          # the same in numbers, with shares of cuBLAS
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers import plots
from helpers.errors import WrongType, WrongValue
from helpers.plots import Picture
from helpers.recorded import Record

_COLOURS = (plots.BLUE, plots.VERMILION, plots.GREEN, plots.ORANGE, plots.SKY, plots.INK)
_MARKS = "osD^vPX*<>ph"


def speeds(
    found: Mapping[str, Any] | Record,
    kernels: Sequence[str] | None = None,
    *,
    mode: str = "queued",
    recorded: bool = False,
) -> Picture:
    """TFLOP/s (or GFLOP/s) of square products against n; the interval of the median is a bar.

    found: what helpers.benchmark.sweep returns, or a Record, which is called recorded. kernels:
    names, all by default. Raises ValueError where there is no square size in it.
    """
    found, recorded = _content(found, recorded)
    names, rows = _squares(found, kernels, mode)
    unit, scale = ("TFLOP/s", 1) if max(row["tflops"] for row in rows) >= 1 else ("GFLOP/s", 1000)
    figure = plots.blank_figure(10, 5.8)
    axes = figure.subplots()
    for k, name in enumerate(names):
        mine = sorted((row for row in rows if row["kernel"] == name), key=lambda row: row["M"])
        sizes, rates = [row["M"] for row in mine], [scale * row["tflops"] for row in mine]
        low, high = zip(*(_spread(row, scale) for row in mine), strict=True)
        colour = _COLOURS[k % len(_COLOURS)]
        style = {"marker": _MARKS[k % len(_MARKS)], "color": colour, "linewidth": 2,
                 "linestyle": "-" if k < len(_COLOURS) else "--", "markersize": 9,
                 "markeredgecolor": plots.INK}  # fmt: skip
        axes.plot(sizes, rates, label=name, **style)
        axes.errorbar(sizes, rates, yerr=(low, high), fmt="none", ecolor=colour, capsize=4)
    ticks = sorted({row["M"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    plots._plain_logarithm(axes.yaxis)
    axes.set_xlabel("n of the n × n matrices", fontsize=15)
    axes.set_ylabel(unit, fontsize=15)
    title = _title(found, recorded)
    axes.set_title(title, fontsize=16)
    axes.tick_params(labelsize=13)
    axes.grid(True, color=plots.LINE, linewidth=0.4)
    figure.legend(fontsize=13, loc="outside lower center", ncols=4, frameon=False)
    told = "; ".join(f"{row['kernel']} at {row['M']}: {scale * row['tflops']:.2f} {unit}"
                     for row in rows)  # fmt: skip
    return Picture(figure, f"Speed against size. {title}. {told}.", colours=48)


def rates(
    found: Mapping[str, Any] | Record,
    kernels: Sequence[str] | None = None,
    *,
    mode: str = "queued",
    recorded: bool = False,
) -> str:
    """The same as a table: TFLOP/s, and in brackets the share of what cuBLAS reaches there."""
    found, recorded = _content(found, recorded)
    names, rows = _squares(found, kernels, mode)
    sizes = sorted({row["M"] for row in rows})
    by_key = {(row["kernel"], row["M"]): row["tflops"] for row in rows}
    lines = [f"{_title(found, recorded)}: TFLOP/s (share of cuBLAS)",
             (f"{'n':19}" + "".join(f"{n:>7,}{'':7}" for n in sizes)).rstrip()]  # fmt: skip
    for name in names:
        cells = []
        for n in sizes:
            rate = by_key.get((name, n))
            share = share_of_cublas(found, name, n, mode=mode)
            percent = f" ({share}%)" if isinstance(share, int) else ""
            cells.append(f"{'-' if rate is None else f'{rate:.2f}':>7}{percent:7}")
        lines.append((f"{name:19}" + "".join(cells)).rstrip())
    if not any(row["kernel"] == "cublas" for row in found["times"]):
        lines.append("cuBLAS was not measured.")
    return "\n".join(lines)


def share_of_cublas(
    found: Mapping[str, Any] | Record, kernel: str, n: int, *, mode: str = "queued"
) -> int | str:
    """Percent of cuBLAS's rate that a kernel reaches at n x n; "not measured" if one of them was
    not."""
    found, _ = _content(found, False)
    at = {row["kernel"]: row["tflops"] for row in found["times"]
          if row["M"] == row["N"] == row["K"] == n and row["mode"] == mode}  # fmt: skip
    if kernel not in at or "cublas" not in at:
        return "not measured"
    return round(100 * at[kernel] / at["cublas"])


def _content(found: Mapping[str, Any] | Record, recorded: bool) -> tuple[Mapping[str, Any], bool]:
    """The times, and whether they are recorded ones, as those of a Record always are."""
    return (found.content, True) if isinstance(found, Record) else (found, recorded)


def _squares(
    found: Mapping[str, Any], kernels: Sequence[str] | None, mode: str
) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Names of kernels that were measured, and the rows of their square products.

    A name that was not measured is left out: cuBLAS is not everywhere. ValueError if none is left.
    """
    if isinstance(kernels, str):
        raise WrongType(f"kernels={kernels!r} is no list: write [{kernels!r}]")
    rows = [r for r in found["times"] if r["M"] == r["N"] == r["K"] and r["mode"] == mode]
    measured = list(dict.fromkeys(row["kernel"] for row in rows))
    names = [name for name in kernels or measured if name in measured]
    if not names:
        wanted = ", ".join(kernels or ()) or "any kernel"
        raise WrongValue(f"there is no time of a square product ({mode}) of {wanted}: there are "
                         f"those of {', '.join(measured) or 'none'}")  # fmt: skip
    return names, [row for row in rows if row["kernel"] in names]


def _title(found: Mapping[str, Any], recorded: bool) -> str:
    how = "Recorded on" if recorded else "Measured on"
    cpu = "" if found.get("backend", "gpu") == "gpu" else " (CPU time, not GPU time)"
    return f"{how} {found['card']}, {found['date']}{cpu}"


def _spread(row: Mapping[str, Any], scale: float) -> tuple[float, float]:
    """How far the rate may lie below and above, from the ends of the interval of the time."""
    rate, median = scale * row["tflops"], row["median_ms"]
    low, high = row.get("low_ms", median), row.get("high_ms", median)
    return max(0.0, rate - rate * median / high), max(0.0, rate * median / low - rate)
