"""A sweep over sizes as a picture: FLOP/s of each kernel against n.

    speeds(sweep())                                  # what was just measured
    speeds(h200().content, recorded=True)            # another card's, called recorded
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers import plots
from helpers.errors import WrongValue
from helpers.plots import Picture

_COLOURS = (plots.BLUE, plots.VERMILION, plots.GREEN, plots.ORANGE, plots.SKY, plots.INK)
_MARKS = "osD^vPX*<>ph"


def speeds(
    found: Mapping[str, Any],
    kernels: Sequence[str] | None = None,
    *,
    mode: str = "queued",
    recorded: bool = False,
) -> Picture:
    """TFLOP/s of square products against n, with the interval of the median as a bar.

    found: what helpers.benchmark.sweep returns, or the content of a record. kernels: names, all by
    default. Raises ValueError where there is no square size in it.
    """
    rows = [r for r in found["times"] if r["M"] == r["N"] == r["K"] and r["mode"] == mode]
    names = list(kernels or dict.fromkeys(row["kernel"] for row in rows))
    rows = [row for row in rows if row["kernel"] in names]
    if not rows:
        raise WrongValue(f"there is no time of a square product ({mode}) of {', '.join(names)}")
    figure = plots._figure(10, 6.6)
    axes = figure.subplots()
    for k, name in enumerate(names):
        mine = sorted((row for row in rows if row["kernel"] == name), key=lambda row: row["M"])
        sizes, rates = [row["M"] for row in mine], [row["tflops"] for row in mine]
        low, high = zip(*(_spread(row) for row in mine), strict=True) if mine else ((), ())
        colour = _COLOURS[k % len(_COLOURS)]
        style = {"marker": _MARKS[k % len(_MARKS)], "color": colour, "linewidth": 2,
                 "markersize": 9, "markeredgecolor": plots.INK, "capsize": 4}  # fmt: skip
        axes.errorbar(sizes, rates, yerr=(low, high), label=name, **style)
    ticks = sorted({row["M"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.set_xlabel("n of the n × n matrices", fontsize=15)
    axes.set_ylabel("TFLOP/s", fontsize=15)
    title = _title(found, recorded)
    axes.set_title(title, fontsize=16)
    axes.tick_params(labelsize=13)
    axes.grid(True, color=plots.LINE, linewidth=0.4)
    figure.legend(fontsize=13, loc="outside lower center", ncols=4, frameon=False)
    told = "; ".join(f"{row['kernel']} at {row['M']}: {row['tflops']:.2f} TFLOP/s" for row in rows)
    return Picture(figure, f"Speed against size. {title}. {told}.")


def _title(found: Mapping[str, Any], recorded: bool) -> str:
    how = "Recorded on" if recorded else "Measured on"
    cpu = "" if found.get("backend", "gpu") == "gpu" else " (CPU time, not GPU time)"
    return f"{how} {found['card']}, {found['date']}{cpu}"


def _spread(row: Mapping[str, Any]) -> tuple[float, float]:
    """How far the rate may lie below and above, from the ends of the interval of the time."""
    rate, median = row["tflops"], row["median_ms"]
    low, high = row.get("low_ms", median), row.get("high_ms", median)
    return max(0.0, rate - rate * median / high), max(0.0, rate * median / low - rate)
