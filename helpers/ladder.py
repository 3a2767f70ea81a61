"""The ladder of the lessons: each kernel's share of cuBLAS, as bars that grow lesson by lesson.

    ladder()              # all steps at N = 4096, as recorded on the H200; on a GPU also there
    ladder(upto=6)        # the steps of lessons 1 to 6
    print(ladder())       # the same as numbers
    ladder().share("tiled")

A step is what a lesson adds to make the product faster. Kernels that show something else (bank
conflicts, uncoalesced loads) are none, but can be asked for by name.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.errors import WrongType, WrongValue
from helpers.kernels import KERNELS
from helpers.plots import BLUE, INK, LINE, ORANGE, PAPER, SKY, Picture
from helpers.recorded import Record, h200
from helpers.timing import backend

CUBLAS = "cublas"
FIRST_STEPS = ("naive", "tiled")  # of lessons 1 to 5; from lesson 6 on every kernel is a step
_FROM = 6


@dataclass(frozen=True)
class Rung:
    """One kernel: TFLOP/s, and percent of what cuBLAS reaches on the same card, as recorded and as
    just measured (None where it was not)."""

    kernel: str
    lesson: int
    tflops: float
    share: float
    live_tflops: float | None = None
    live_share: float | None = None


@dataclass(frozen=True)
class Ladder(Picture):
    """The picture; `print` it for the numbers. rungs: in the order of the lessons; card, date: of
    the record; live_card: what was measured on now, "" if nothing was."""

    n: int = 0
    rungs: tuple[Rung, ...] = ()
    card: str = ""
    date: str = ""
    live_card: str = ""

    def share(self, kernel: str) -> float:
        """Percent of cuBLAS's rate on record. Raises WrongValue for a kernel that is no rung."""
        for rung in self.rungs:
            if rung.kernel == kernel:
                return rung.share
        raise WrongValue(f"{kernel!r} is no rung of this ladder: there are "
                         f"{', '.join(rung.kernel for rung in self.rungs)}")  # fmt: skip

    def __str__(self) -> str:
        return _table(self)


def steps(upto: int | None = None) -> list[str]:
    """Names of the kernels that are steps, up to and with a lesson's. Raises WrongValue for a
    number that is no lesson's, WrongType for what is no integer."""
    if upto is not None:
        _check_integer("upto", upto)
    last = max(kernel.lesson for kernel in KERNELS.values())
    if upto is not None and not 1 <= upto <= last:
        raise WrongValue(f"upto={upto}: there is no lesson {upto}; the last one is {last}")
    return [
        name for name, kernel in KERNELS.items()
        if (name in FIRST_STEPS or kernel.lesson >= _FROM) and (not upto or kernel.lesson <= upto)
    ]  # fmt: skip


def ladder(
    n: int = 4096,
    kernels: Sequence[str] | None = None,
    live: Mapping[str, Any] | bool | None = None,
    *,
    upto: int | None = None,
    record: Record | None = None,
) -> Ladder:
    """Bars of the kernels' shares of cuBLAS for n x n matrices.

    kernels: names of KERNELS; by default `steps(upto)`, of which those that are not on record are
    left out. live: what `helpers.benchmark.sweep` has measured, with cuBLAS; None: measured now
    where there is a GPU; False: not. upto: the last lesson. record: another one than the H200's.

    Raises WrongValue for an n that is not on record, or a kernel asked for that is not; WrongType
    for kernels that are no list, an n or upto that is no integer, and other records and sweeps.
    """
    found = h200() if record is None else record
    if not isinstance(found, Record):
        raise WrongType(f"record={record!r}: give a helpers.recorded.Record")
    _check_integer("n", n)
    n = int(n)
    _check_size(found, n)
    if kernels is not None and (isinstance(kernels, str) or not isinstance(kernels, Iterable)):
        raise WrongType(f"kernels={kernels!r} is no list: write [{kernels!r}]")
    asked = list(kernels) if kernels is not None else steps(upto)
    for name in asked:
        if not isinstance(name, str) or name not in KERNELS:
            raise WrongValue(f"there is no kernel {name!r}: write {', '.join(KERNELS)}")
        if kernels is not None and not _has(found, name, n):
            raise WrongValue(f"no time of kernel {name!r} at n={n} on record ({found})")
    asked = [name for name in asked if _has(found, name, n)]
    if not asked and kernels is not None:
        raise WrongValue(f"kernels={kernels!r} names none: write some of {', '.join(KERNELS)}")
    if not asked:
        raise WrongValue(f"upto={upto}: no kernel of these lessons is on record ({found})")
    if live is None and _on_gpu():
        live = _measured(asked, n)
    now = _rates(live, n) if live else {}
    rates = {name: found.gflops(name, n) / 1000 for name in [*asked, CUBLAS]}
    rungs = tuple(
        Rung(name, KERNELS[name].lesson, rates[name], 100 * rates[name] / rates[CUBLAS],
             now.get(name), _share(now, name))
        for name in asked
    )  # fmt: skip
    measured = any(rung.live_share is not None for rung in rungs)
    live_card = f"{live['card']}, {live['date']}" if measured else ""
    plain = Ladder(Figure(), "", n=n, rungs=rungs, card=found.card, date=found.date,
                   live_card=live_card)  # fmt: skip
    return replace(plain, figure=_draw(plain), alt=_words(plain))


def _check_integer(name: str, value: object) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise WrongType(f"{name}={value!r} is a {type(value).__name__}: give an integer")


def _check_size(record: Record, n: int) -> None:
    known = [size for size in record.sizes if _has(record, CUBLAS, size)]
    if n not in known:
        raise WrongValue(f"n={n}: cuBLAS's time is not on record ({record}): there are those at "
                         f"n = {', '.join(map(str, known))}")  # fmt: skip


def _has(record: Record, kernel: str, n: int) -> bool:
    try:
        record.ms(kernel, n)
    except KeyError:
        return False
    return True


def _on_gpu() -> bool:
    try:
        return backend() == "gpu"
    except RuntimeError:  # no context in this thread: nothing is measured
        return False


def _measured(names: Sequence[str], n: int) -> Mapping[str, Any]:
    """A sweep on this machine's GPU."""
    from helpers.benchmark import sweep  # needs a device, which the record does not

    return sweep([*names, CUBLAS], [n], ["queued"])


def _rates(live: Mapping[str, Any] | bool, n: int) -> dict[str, float]:
    """TFLOP/s of what was measured at n x n, queued."""
    if live is True:
        raise WrongType("live=True: give what helpers.benchmark.sweep returns, or leave it out")
    try:
        live["card"], live["date"]
        return {row["kernel"]: row["tflops"] for row in live["times"]
                if row["M"] == row["N"] == row["K"] == n and row["mode"] == "queued"}  # fmt: skip
    except (KeyError, TypeError) as error:
        raise WrongType(f"live: {error!r}: this is not what helpers.benchmark.sweep returns"
                        ) from None  # fmt: skip


def _share(rates: Mapping[str, float], name: str) -> float | None:
    """Percent of cuBLAS; None if one of the two was not measured."""
    return 100 * rates[name] / rates[CUBLAS] if name in rates and CUBLAS in rates else None


# --- drawing ------------------------------------------------------------------------------------


def _draw(found: Ladder) -> Figure:
    rungs = found.rungs
    figure = Figure((10, 0.62 * len(rungs) * (1.5 if found.live_card else 1) + 1.9),
                    facecolor=PAPER, layout="constrained")  # fmt: skip
    axes = figure.subplots()
    high = 0.38 if found.live_card else 0.66
    for row, rung in enumerate(rungs):
        y = row - high / 2 - 0.01 if found.live_card else row
        last = rung.lesson == rungs[-1].lesson
        _bar(axes, y, high, rung.share, rung.tflops, BLUE if last else SKY, None)
        if rung.live_share is not None:
            _bar(axes, row + high / 2 + 0.01, high, rung.live_share, rung.live_tflops, ORANGE, "//")
    axes.axvline(100, color=INK, linewidth=2, linestyle="--")
    axes.text(100, -0.62, "cuBLAS", ha="center", va="bottom", fontsize=15, color=INK)
    axes.set_yticks(range(len(rungs)), [f"{rung.lesson} · {rung.kernel}" for rung in rungs],
                    fontsize=15)  # fmt: skip
    axes.set_ylim(len(rungs) - 0.45, -0.6)
    longest = max(max(rung.share, rung.live_share or 0) for rung in rungs)
    axes.set_xlim(0, max(106, 1.04 * longest))
    axes.set_xlabel(f"% of cuBLAS at N = {found.n:,}", fontsize=15)
    axes.tick_params(labelsize=15, length=0)
    axes.xaxis.grid(True, color=LINE, linewidth=0.4)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    title = f"recorded on {found.card}, {found.date}"
    if found.live_card:
        title += f"; hatched: measured now on {found.live_card.rpartition(',')[0]}"
    axes.set_title(title, fontsize=15, color=INK, pad=26, loc="left")
    return figure


def _bar(
    axes: Axes, y: float, high: float, share: float, rate: float, colour: str, hatch: str | None
) -> None:
    axes.barh(y, share, height=high, color=colour, edgecolor=INK, linewidth=0.8, hatch=hatch)
    inside = share > 60
    text = axes.text(share + (-1 if inside else 1), y, f"{share:.0f}% · {rate:.1f} TFLOP/s",
                     ha="right" if inside else "left", va="center", fontsize=14, zorder=5,
                     color=PAPER if inside and colour == BLUE else INK)  # fmt: skip
    text.set_bbox({"facecolor": colour if inside else PAPER, "pad": 0.8, "linewidth": 0})


# --- words --------------------------------------------------------------------------------------


def _table(found: Ladder) -> str:
    lines = [f"Share of cuBLAS at N = {found.n:,}, recorded on {found.card}, {found.date}"]
    if found.live_card:
        lines[0] += f"; and on {found.live_card}"
    for rung in found.rungs:
        now = "" if rung.live_share is None else (
            f"   {rung.live_share:4.0f}% {rung.live_tflops:6.1f} TFLOP/s"
        )  # fmt: skip
        lines.append(f"{rung.lesson} · {rung.kernel:18}{rung.share:4.0f}% "
                     f"{rung.tflops:6.1f} TFLOP/s{now}")  # fmt: skip
    return "\n".join(lines)


def _words(found: Ladder) -> str:
    """The picture in words."""
    told = "; ".join(
        f"{rung.kernel} (lesson {rung.lesson}) {rung.share:.0f}%"
        + ("" if rung.live_share is None else f", now {rung.live_share:.0f}%")
        for rung in found.rungs
    )
    now = f" Measured now: {found.live_card}." if found.live_card else ""
    return (f"Bars of the kernels' shares of cuBLAS's speed at N = {found.n:,}, recorded on "
            f"{found.card}, {found.date}: {told}.{now}")  # fmt: skip
