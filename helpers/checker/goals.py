"""Goals that a right kernel may be asked to reach: counts of one launch with `traffic.SHAPE`, and
what it needs of a multiprocessor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .diagnosis import Diagnosis
from .needs import CARD, FILLED, Needs
from .traffic import SHAPE, Traffic
from .trial import size

WORST = 2  # lines that are named when there are too many sectors or wavefronts


@dataclass(frozen=True)
class Goals:
    """What is asked for; None asks for nothing. no_conflicts: shared memory used, and no bank
    conflicts; fewer_sectors_than: of global memory; fewer_wavefronts_than: of shared memory;
    fewer_barriers_than: times that a warp waits; shared_bytes_at_most: that a block has;
    no_local_memory: what ptxas keeps there, for the H200; warps_at_1024: that each multiprocessor
    of an H200 has at a time, on average, none of them without a block, with M = N = 1024."""

    no_conflicts: bool = False
    fewer_sectors_than: int | None = None
    fewer_wavefronts_than: int | None = None
    fewer_barriers_than: int | None = None
    shared_bytes_at_most: int | None = None
    no_local_memory: bool = False
    warps_at_1024: int | None = None

    def __bool__(self) -> bool:
        return self != Goals()

    def missed(self, traffic: Traffic, needs: Needs) -> Diagnosis | None:
        """The first goal that is not reached."""
        if self.no_local_memory and (found := _local(traffic, needs)):
            return found
        if self.no_conflicts and (found := _conflicts(traffic)):
            return found
        if self.warps_at_1024 is not None and (found := self._not_filled(needs)):
            return found
        for name, count, limit, told, lines in self._counted(traffic, needs.shared_bytes):
            if count >= limit:
                return Diagnosis(name, (f"The product is right, but with {size(SHAPE)} it takes "
                                        f"{told}.",), lines())  # fmt: skip
        return None

    def reached(self, traffic: Traffic, needs: Needs) -> tuple[str, ...]:
        """What is said of a kernel that has reached all."""
        told = ["no bank conflict"] * self.no_conflicts
        told += [text for _, _, _, text, _ in self._counted(traffic, needs.shared_bytes)]
        sentences = [f"With {size(SHAPE)}: {', '.join(told)}."] if told else []
        if self.no_local_memory:
            sentences.append("Nothing of it lies in local memory.")
        if self.warps_at_1024 is not None:
            sentences.append(f"{_filling(needs)} (goal: at least {self.warps_at_1024}).")
        return tuple(sentences)

    def _not_filled(self, needs: Needs) -> Diagnosis | None:
        """That a multiprocessor gets no block, or too few warps."""
        if needs.blocks < CARD.multiprocessors:
            return Diagnosis("card not filled", (
                f"The product is right, but with M=N={FILLED:,} it has {needs.blocks:,} "
                f"block{'s' * (needs.blocks != 1)}, and an {CARD.name} has {CARD.multiprocessors} "
                "multiprocessors.",))  # fmt: skip
        if needs.warps < self.warps_at_1024:
            return Diagnosis("card not filled", (
                f"The product is right, but {_lower(_filling(needs))} (goal: at least "
                f"{self.warps_at_1024}).",))  # fmt: skip
        return None

    def _counted(
        self, traffic: Traffic, shared_bytes: int
    ) -> list[tuple[str, int, int, str, Callable[[], tuple[int, ...]]]]:
        """(diagnosis, count, limit that it must stay below, both in words, lines) of each goal."""
        sectors, wavefronts = traffic.total("global").units, traffic.total("shared").units
        found = []
        for name, count, limit, unit, lines in (
            ("too many sectors", sectors, self.fewer_sectors_than, "sectors of global memory",
             lambda: _worst(traffic, "global")),
            ("too many wavefronts", wavefronts, self.fewer_wavefronts_than,
             "wavefronts of shared memory", lambda: _worst(traffic, "shared")),
            ("too many barriers", traffic.barriers, self.fewer_barriers_than,
             "waits of a warp at a barrier", tuple),
        ):  # fmt: skip
            if limit is not None:
                told = f"{count:,} {unit} (goal: fewer than {limit:,})"
                found.append((name, count, limit, told, lines))
        most = self.shared_bytes_at_most
        if most is not None:
            told = f"{shared_bytes:,} bytes of shared memory a block (goal: at most {most:,})"
            found.append(("too much shared memory", shared_bytes, most + 1, told, tuple))
        return found


def _filling(needs: Needs) -> str:
    return (f"With M=N={FILLED:,} each multiprocessor of an {CARD.name} has {needs.warps:.1f} "
            f"warps at a time on average, from {needs.blocks:,} blocks of {needs.warps_of_block}")


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _local(traffic: Traffic, needs: Needs) -> Diagnosis | None:
    """That an array, or registers for which there is no room, lie in local memory."""
    if not needs.local_bytes:
        return None
    sectors = traffic.total("local").units
    counted = f": with {size(SHAPE)} that takes {sectors:,} sectors" * bool(sectors)
    return Diagnosis("local memory", (
        f"The product is right, but {needs.local_bytes:,} bytes of each thread lie in local memory"
        f"{counted}.",), _worst(traffic, "local"))  # fmt: skip


def _conflicts(traffic: Traffic) -> Diagnosis | None:
    """That there are shared accesses, without bank conflicts."""
    total = traffic.total("shared")
    if not total.requests:
        return Diagnosis("bank conflicts", ("The product is right, but nothing goes through shared "
                                            "memory.",))  # fmt: skip
    if not total.extra:
        return None
    lines = tuple(use.line for use in traffic.uses("shared") if use.extra)
    return Diagnosis("bank conflicts", (
        f"The product is right, but with {size(SHAPE)} its {total.requests:,} shared accesses take "
        f"{total.units:,} wavefronts, {total.extra:,} too many.",), lines)  # fmt: skip


def _worst(traffic: Traffic, space: str) -> tuple[int, ...]:
    """The lines that ask for most."""
    uses = sorted(traffic.uses(space), key=lambda use: -use.units)
    return tuple(dict.fromkeys(use.line for use in uses))[:WORST]
