"""Pictures of one memory access of a warp: banks of shared memory, sectors of global memory.

    bank_picture(addresses, mask, size, operation)  # shared: 32 banks, a row for each wavefront
    sector_picture(addresses, mask, size)           # global: lanes, 32-byte sectors, lines of 128
    local_picture(offsets, mask, size)              # local: the same, as it lies interleaved

`addresses` are those of the 32 lanes in bytes, `mask` has a bit for each active lane, `size` is
what a lane accesses, in bytes. What is drawn comes from `helpers.simt.rules`; `bank_table`,
`sector_table` and `local_table` give it as data. `Profile.picture` draws accesses of a launch.

Colours are as in `helpers.plots`; hatching and words repeat what they say.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.errors import WrongValue
from helpers.plots import INK, LINE, ORANGE, PAPER, SKY, VERMILION, Picture
from helpers.simt import rules
from helpers.simt.rules import BANKS, LANES, SECTOR, WORD

UNIT = 0.345  # inches: the side of a bank's or a lane's square
LEFT, RIGHT = 5.6, 0.4  # units for the words beside the squares
WIDTH = 1040  # CSS pixels
GREY, PALE = "#767676", "#FDEBE0"
WHOLE = (1 << LANES) - 1  # the mask of all lanes


# --- what is drawn ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wavefront:
    """One pass through shared memory. `words`: by bank, the word and the lanes that it serves;
    `group`: the lanes that are served together; `first`: whether it is the group's first."""

    group: tuple[int, ...]
    first: bool
    words: dict[int, tuple[int, tuple[int, ...]]]

    @property
    def lanes(self) -> list[int]:
        return sorted({lane for _, lanes in self.words.values() for lane in lanes})


def bank_table(
    addresses: Sequence[int], mask: int, size: int, operation: str
) -> list[Wavefront]:
    """The wavefronts of an access to shared memory, in order.

    operation: "load", "store", "atomic" or "matrix" (ldmatrix, each lane's address a row of 16
    bytes). Which of a bank's words comes first is not known of the hardware: here it is the lowest,
    and of an atomic operation the lowest lane's.
    """
    if operation == "atomic":
        return _one_by_one(addresses, mask, size)
    table = []
    for group in rules.lane_groups(addresses, mask, size, operation == "load"):
        readers = defaultdict(list)
        for lane in group:
            for k in range(max(1, size // WORD)):
                readers[addresses[lane] // WORD + k].append(lane)
        for number, words in enumerate(rules.wavefronts_of(group, addresses, size)):
            found = {word % BANKS: (word, tuple(readers[word])) for word in sorted(words)}
            table.append(Wavefront(tuple(group), not number, dict(sorted(found.items()))))
    return table


def _one_by_one(addresses: Sequence[int], mask: int, size: int) -> list[Wavefront]:
    """The wavefronts of an atomic operation: in each a bank serves one lane."""
    group, count = tuple(rules.active(mask)), max(1, size // WORD)
    by_bank = defaultdict(list)
    for lane in group:
        by_bank[addresses[lane] // WORD % BANKS].append(lane)
    table = []
    for number in range(max(map(len, by_bank.values()))):
        found = {}
        for lane in (lanes[number] for lanes in by_bank.values() if number < len(lanes)):
            for word in range(addresses[lane] // WORD, addresses[lane] // WORD + count):
                found[word % BANKS] = word, (lane,)
        table.append(Wavefront(group, not number, dict(sorted(found.items()))))
    return table


@dataclass(frozen=True)
class Sector:
    """A 32-byte piece of memory that an access touches.

    number: its address / 32; lanes: by the byte within it, those that access this byte.
    """

    number: int
    lanes: dict[int, tuple[int, ...]]

    @property
    def line(self) -> int:
        """The 128-byte line it is in: its address / 128."""
        return self.number * SECTOR // rules.LINE


Pieces = dict[int, list[tuple[int, int]]]  # by active lane: address and bytes of each piece


def sector_table(addresses: Sequence[int], mask: int, size: int) -> list[Sector]:
    """The sectors that an access to global memory touches, from the lowest."""
    return _sectors(_pieces(addresses, mask, size))


def local_table(offsets: Sequence[int], mask: int, size: int) -> list[Sector]:
    """The same for local memory; offsets are within each lane's own."""
    return _sectors(_interleaved(offsets, mask, size))


def _pieces(addresses: Sequence[int], mask: int, size: int) -> Pieces:
    return {lane: [(addresses[lane], size)] for lane in rules.active(mask)}


def _interleaved(offsets: Sequence[int], mask: int, size: int) -> Pieces:
    """Word k of the 32 lanes lies in 128 consecutive bytes."""
    pieces: Pieces = {}
    for lane in rules.active(mask):
        words = range(offsets[lane] // WORD, offsets[lane] // WORD + max(1, size // WORD))
        inside = offsets[lane] % WORD
        pieces[lane] = [(k * rules.LINE + lane * WORD + inside, min(size, WORD)) for k in words]
    return pieces


def _sectors(pieces: Pieces) -> list[Sector]:
    touched: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for lane, places in pieces.items():
        for address, nbytes in places:
            for byte in range(address, address + nbytes):
                touched[byte // SECTOR][byte % SECTOR].append(lane)
    return [
        Sector(number, {byte: tuple(lanes) for byte, lanes in sorted(touched[number].items())})
        for number in sorted(touched)
    ]


# --- shared memory ------------------------------------------------------------------------------


OPERATIONS = {
    "load": "Load",
    "store": "Store",
    "atomic": "Atomic operation",
    "matrix": "Load of matrix rows",
}


def bank_picture(
    addresses: Sequence[int], mask: int, size: int, operation: str, title: str = ""
) -> Picture:
    """The wavefronts of one access to shared memory: a row for each, a column for each bank.

    operation: as for `bank_table`.
    """
    _check(addresses, mask)
    table = bank_table(addresses, mask, size, operation)
    count, ideal = len(table), sum(wavefront.first for wavefront in table)
    height = 1.15 if len(table) <= 8 else 0.8 if len(table) <= 16 else 0.66
    several = {len(lanes) > 1 for w in table for _, lanes in w.words.values()}
    key = [(SKY, None, "a word of one lane")] * (False in several)
    key += [(ORANGE, "..", "a word of several lanes: served once")] * (True in several)
    key += [(PALE, "//", "an extra wavefront")] * (count > ideal)
    key += [(None, None, _inactive(mask))] * (mask != WHOLE)
    numbers = f"{_number(count, 'wavefront')}, ideal {ideal}"
    sheet = _Sheet(title, numbers + _conflict(table), height * len(table) + 2.2, key)
    axes = sheet.axes
    _say(axes, 0.1, 0.2, "banks", ha="left", fontsize=15)
    _say(axes, -0.2, 1.0, "wavefront", ha="right", fontsize=15)
    for bank in range(BANKS):
        _say(axes, bank + 0.5, 1.1, str(bank), fontsize=12.5)
    top = 1.6
    for number, wavefront in enumerate(table):
        if wavefront.first:
            members = [w for w in table if w.group == wavefront.group]
            _group(axes, top, height * len(members), wavefront.group)
        late = {} if wavefront.first else {"color": VERMILION, "weight": "bold"}
        _say(axes, -0.3, top + height / 2, str(number), ha="right",
             fontsize=min(15, 20 * height), **late)  # fmt: skip
        _wavefront(axes, top, height, wavefront)
        top += height
    alt = " ".join(filter(None, [
        _sentence(title), f"{OPERATIONS[operation]} of {size} bytes a lane in shared memory, "
        f"{_lanes_in_words(mask)}: {numbers}{_conflict(table)}.", _served(table),
    ]))  # fmt: skip
    return Picture(sheet.figure, alt, WIDTH, colours=32)


def _conflict(table: list[Wavefront]) -> str:
    """What the conflicts are, in words: the most wavefronts that a group of lanes takes."""
    groups = defaultdict(list)
    for wavefront in table:
        groups[wavefront.group].append(wavefront)
    worst = max(groups.values(), key=len)
    if len(worst) == 1:
        return ": no bank conflict"
    banks = list(worst[-1].words)
    words = {wavefront.words[banks[0]][0] for wavefront in worst}
    what = f"{len(words)} words" if len(words) > 1 else f"{len(worst)} lanes one after the other"
    where = f"bank {banks[0]}" if len(banks) == 1 else f"each of {len(banks)} banks"
    return f": {len(worst)}-way conflict, {what} in {where}"


def _group(axes: Axes, top: float, height: float, group: tuple[int, ...]) -> None:
    """The lanes that are served together, beside their rows."""
    axes.plot([-1.5, -1.7, -1.7, -1.5], [top + 0.08, top + 0.08, top + height - 0.08,
              top + height - 0.08], color=INK, lw=1.2)  # fmt: skip
    words = _ranges(group)
    if len(words) > 6:
        words = f"{group[0]}…{group[-1]}"
    _say(axes, -1.9, top + height / 2, f"lanes {words}" if len(group) > 1 else f"lane {words}",
         ha="right", fontsize=14 if len(words) < 6 else 13)  # fmt: skip
    axes.plot([0, BANKS], [top, top], color=INK, lw=2, zorder=6)
    axes.plot([0, BANKS], [top + height] * 2, color=INK, lw=2, zorder=6)


def _wavefront(axes: Axes, top: float, height: float, wavefront: Wavefront) -> None:
    if not wavefront.first:
        _box(axes, 0, top, BANKS, height, PALE, hatch="//", edge="#F6CDB5", lw=0, zorder=0)
    axes.vlines(range(BANKS + 1), top, top + height, color=LINE, lw=0.6, zorder=0.5)
    axes.hlines([top, top + height], 0, BANKS, color=LINE, lw=0.6, zorder=0.5)
    for first, count, lanes in _runs(wavefront):
        several = len(lanes) > 1
        style = {"facecolor": ORANGE if several else SKY, "hatch": ".." if several else None}
        for k in range(count):
            _box(axes, first + k, top, 1, height, lw=0.4, edge=INK if several else LINE, **style)
        _box(axes, first, top, count, height, edge=INK, lw=1.2, zorder=4)
        if several and _beside(axes, first, count, top + height / 2, wavefront, lanes):
            continue
        _fit(axes, first, top, count, height, lanes, PAPER if several else None)


def _beside(
    axes: Axes, first: int, count: int, y: float, wavefront: Wavefront, lanes: tuple[int, ...]
) -> bool:
    """Writes the lanes that share words beside them, if the banks on both sides are idle."""
    after = first + count
    if first - 1 in wavefront.words or after in wavefront.words:
        return False
    text = f"lanes {_ranges(lanes)}" if len(_ranges(lanes)) < 20 else f"{len(lanes)} lanes"
    room = math.ceil(_units(text, 14) + 0.4)
    style = {"fontsize": 14, "bbox": {"facecolor": PAPER, "pad": 0.6, "lw": 0}}
    if after + room <= BANKS and not any(b in wavefront.words for b in range(after, after + room)):
        _say(axes, after + 0.2, y, text, ha="left", **style)
    elif first >= room and not any(b in wavefront.words for b in range(first - room, first)):
        _say(axes, first - 0.2, y, text, ha="right", **style)
    else:
        return False
    return True


def _runs(wavefront: Wavefront) -> list[tuple[int, int, tuple[int, ...]]]:
    """Neighbouring words of the same lanes: first bank, banks, lanes."""
    runs: list[tuple[int, int, tuple[int, ...]]] = []
    before = None
    for bank, (word, lanes) in wavefront.words.items():
        if runs and before == word - 1 and runs[-1][2] == lanes and bank:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, lanes)
        else:
            runs.append((bank, 1, lanes))
        before = word
    return runs


def _served(table: list[Wavefront]) -> str:
    """The wavefronts in words; of many the first two and the last."""
    words = [
        f"Wavefront {n} serves {_plural(w.lanes, 'lane')} from {_plural(list(w.words), 'bank')}."
        for n, w in enumerate(table)
    ]
    return " ".join(words if len(words) <= 4 else [*words[:2], "…", words[-1]])


# --- global and local memory --------------------------------------------------------------------


def sector_picture(addresses: Sequence[int], mask: int, size: int, title: str = "") -> Picture:
    """One access to global memory: the lanes, the sectors that they touch, and their lines."""
    _check(addresses, mask)
    ideal = rules.ideal_sectors(addresses, mask, size)
    return _sector_picture(_pieces(addresses, mask, size), mask, size, ideal, title, "global")


def local_picture(offsets: Sequence[int], mask: int, size: int, title: str = "") -> Picture:
    """One access to local memory, where word k of the 32 lanes lies in one line."""
    _check(offsets, mask)
    ideal = -(-len(rules.active(mask)) * size // SECTOR)
    return _sector_picture(_interleaved(offsets, mask, size), mask, size, ideal, title, "local")


LANE_ROW, SECTOR_ROW, SECTOR_HEIGHT = 0.2, 5.2, 1.3  # units from the top


def _sector_picture(
    pieces: Pieces, mask: int, size: int, ideal: int, title: str, space: str
) -> Picture:
    table = _sectors(pieces)
    moved, used = len(table) * SECTOR, sum(len(sector.lanes) for sector in table)
    share = f"{100 * used / moved:.3g} % of the bytes used"
    lines = list(dict.fromkeys(sector.line for sector in table))
    key = [(VERMILION, None, "bytes that lanes access")]
    key += [(SKY, "////", "the rest of a sector: wasted")] * (used < moved)
    key += [(PAPER, "xxx", "inactive lane")] * (mask != WHOLE)
    within = f"in {_number(len(lines), 'line')}" if len(lines) > 1 else "in one line"
    numbers = f"{_number(len(table), 'sector')} {within}, ideal {ideal}, {share}"
    narrow = len(lines) > 6
    sheet = _Sheet(title, numbers, SECTOR_ROW + SECTOR_HEIGHT + (3.4 if narrow else 1.8), key)
    axes = sheet.axes
    places = _places(table)
    _lane_row(axes, mask)
    for lane, parts in pieces.items():
        for address, nbytes in parts:
            left, width = places[address // SECTOR]
            at = left + width * (address % SECTOR + nbytes / 2) / SECTOR
            axes.plot([lane + 0.5, at], [LANE_ROW + 1, SECTOR_ROW], color=INK, lw=1.1, alpha=0.7)
    for sector in table:
        _sector(axes, sector, *places[sector.number])
    _say(axes, -0.3, LANE_ROW + 0.5, "lanes", ha="right", fontsize=15)
    _say(axes, -0.3, SECTOR_ROW + SECTOR_HEIGHT / 2, "32-byte\nsectors", ha="right", fontsize=15)
    _lines(axes, table, places, narrow)
    alt = " ".join(filter(None, [
        _sentence(title), f"Access of {size} bytes a lane to {space} memory, "
        f"{_lanes_in_words(mask)}: {numbers}.",
        _touched(table),
    ]))  # fmt: skip
    return Picture(sheet.figure, alt, WIDTH, colours=32)


def _places(table: list[Sector]) -> dict[int, tuple[float, float]]:
    """Left edge and width of each sector: side by side, with a gap between lines."""
    lines = len({sector.line for sector in table})
    gap = min(0.6, 0.2 * LANES / max(lines, len(table)))
    width = min(7.9, (LANES - gap * (lines - 1)) / len(table))
    left = (LANES - gap * (lines - 1) - width * len(table)) / 2
    places, before = {}, table[0].line
    for sector in table:
        left += gap * (sector.line != before)
        before = sector.line
        places[sector.number] = left, width
        left += width
    return places


def _lane_row(axes: Axes, mask: int) -> None:
    for lane in range(LANES):
        on = mask >> lane & 1
        _box(axes, lane, LANE_ROW, 1, 1, "#F2F2F2" if on else PAPER, hatch=None if on else "xxx",
             edge=INK if on else LINE, lw=1)  # fmt: skip
        style = {} if on else {"color": GREY, "bbox": {"facecolor": PAPER, "pad": 1, "lw": 0}}
        _say(axes, lane + 0.5, LANE_ROW + 0.5, str(lane), fontsize=13, **style)


def _sector(axes: Axes, sector: Sector, left: float, width: float) -> None:
    """A sector's bytes, those accessed by the same lanes as one piece."""
    step = width / SECTOR
    byte = 0
    while byte < SECTOR:
        lanes = sector.lanes.get(byte)
        end = byte + 1
        while end < SECTOR and sector.lanes.get(end) == lanes:
            end += 1
        at = left + step * byte, SECTOR_ROW, step * (end - byte), SECTOR_HEIGHT
        if lanes is None:
            _box(axes, *at, SKY, hatch="////", edge=PAPER, lw=0)
        else:
            _box(axes, *at, VERMILION, edge=INK, lw=0.5 * (at[2] > 0.3))
            if at[2] > 0.7:
                _fit(axes, *at, lanes, VERMILION)
        byte = end
    _box(axes, left, SECTOR_ROW, width, SECTOR_HEIGHT, edge=INK, lw=min(1.6, width), zorder=5)


def _lines(axes: Axes, table: list[Sector], places: dict, narrow: bool) -> None:
    """A bracket below the sectors of each line, with its place relative to the first."""
    numbers = list(dict.fromkeys(sector.line for sector in table))
    top = SECTOR_ROW + SECTOR_HEIGHT
    for number in numbers:
        inside = [places[s.number] for s in table if s.line == number]
        left, right = inside[0][0], sum(inside[-1])
        edge = 0.04 + 0.06 * (not narrow)
        axes.plot([left + edge, left + edge, right - edge, right - edge],
                  [top + 0.15, top + 0.35, top + 0.35, top + 0.15], color=INK, lw=1.4)  # fmt: skip
        if len(numbers) > LANES and number not in (numbers[0], numbers[-1]):
            continue  # no room
        away = f"+{(number - numbers[0]) * rules.LINE:,}" if number != numbers[0] else "0"
        if narrow:
            _say(axes, (left + right) / 2, top + 0.5, away, rotation=90, va="top",
                 fontsize=13)  # fmt: skip
        else:
            _say(axes, (left + right) / 2, top + 0.85, away, fontsize=15)
    _say(axes, -0.3, top + 0.75, "128-byte lines,\nfrom byte", ha="right", fontsize=13)


def _touched(table: list[Sector]) -> str:
    """The sectors in words; of many the first two and the last."""
    words = []
    for n, sector in enumerate(table):
        lanes = sorted({lane for found in sector.lanes.values() for lane in found})
        words.append(
            f"Sector {n}: {len(sector.lanes)} of {SECTOR} bytes, {_plural(lanes, 'lane')}."
        )
    return " ".join(words if len(words) <= 5 else [*words[:2], "…", words[-1]])


# --- drawing ------------------------------------------------------------------------------------


class _Sheet:
    """A figure whose axes are in units from the top left square; words above, a key below."""

    def __init__(self, title: str, numbers: str, height: float, key: list):
        above = 1.7 + 1.3 * bool(title) + 1.1 * title.count("\n")
        self.figure = Figure(
            figsize=(UNIT * (LEFT + LANES + RIGHT), UNIT * (above + height + 1.3)), facecolor=PAPER
        )
        self.axes = axes = self.figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(-LEFT, LANES + RIGHT)
        axes.set_ylim(height + 1.3, -above)
        axes.axis("off")
        left = 0.3 - LEFT
        if title:
            most = int(1.15 * (LEFT + LANES) / _units("m", 17))  # characters of a line
            title = "\n".join(
                line if len(line) <= most else line[: most - 1] + "…" for line in title.split("\n")
            )
            _say(axes, left, 0.3 - above, title, ha="left", va="top", fontsize=17, linespacing=1.3)
        _say(axes, left, -0.9, numbers, ha="left", fontsize=20, weight="bold")
        at = 0.0
        for color, hatch, words in key:
            if color is not None:
                _box(axes, at, height + 0.1, 0.9, 0.9, color, hatch=hatch, edge=INK, lw=0.8)
                at += 1.2
            _say(axes, at, height + 0.55, words, ha="left", fontsize=15)
            at += 1.2 + _units(words, 15)


def _units(text: str, fontsize: float) -> float:
    """About how wide a text is."""
    return 0.6 * fontsize * len(text) / 72 / UNIT


def _say(axes: Axes, x: float, y: float, text: str, **style) -> None:
    style = {"ha": "center", "va": "center", "fontsize": 14, "color": INK, "zorder": 7} | style
    axes.text(x, y, text.replace("$", r"\$"), **style)


def _box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    facecolor: str = "none",
    *,
    edge: str = LINE,
    **style,
) -> None:
    axes.add_patch(
        Rectangle((x, y), width, height, facecolor=facecolor, edgecolor=edge, **style)
    )


def _fit(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    lanes: tuple[int, ...],
    behind: str | None,
) -> None:
    """The lanes as large as they fit into a box, on one line or two."""

    def size(text: str) -> float:
        rows = text.split("\n")
        wide = 0.9 * width / _units(max(rows, key=len), 1)
        return min(15, wide, 0.9 * height * UNIT * 72 / (1.25 * len(rows)))

    text = max(_labels(lanes), key=size)
    style = {"bbox": {"facecolor": behind, "pad": 0.6, "lw": 0}} if behind else {}
    _say(axes, x + width / 2, y + height / 2, text, fontsize=size(text), linespacing=1.0, **style)


def _labels(lanes: tuple[int, ...]) -> list[str]:
    """Ways to write some lanes: "5", "0–31", "0,16", and on two lines."""
    text = _ranges(lanes).replace(" ", "")
    if len(text) > 6:
        return [f"{len(lanes)}\nlanes", f"{len(lanes)} lanes"]
    found = [text]
    for mark in "–,":
        if text.count(mark) == 1:
            found.append(text.replace(mark, mark.replace(",", "") + "\n"))
    return found


# --- words --------------------------------------------------------------------------------------


def _ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 5 as "0–2, 5"; 0, 2, 4, 6 as "0, 2, …, 6"."""
    numbers = sorted(numbers)
    steps = {b - a for a, b in pairwise(numbers)}
    if len(numbers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}, {numbers[1]}, …, {numbers[-1]}"
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    pieces = []
    for run in runs:
        pieces += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(pieces)


def _plural(numbers: list[int], noun: str) -> str:
    return f"{noun}{'s' * (len(numbers) > 1)} {_ranges(numbers)}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _sentence(title: str) -> str:
    lines = [" ".join(line.split()).rstrip(".;") for line in title.splitlines()]
    return "; ".join(lines) + "." * bool(title)


def _lanes_in_words(mask: int) -> str:
    active = rules.active(mask)
    return "all lanes" if len(active) == LANES else f"only {_plural(active, 'lane')}"


def _inactive(mask: int) -> str:
    idle = rules.active(~mask)
    words = f"inactive: {_plural(idle, 'lane')}"
    return words if len(words) < 36 else f"inactive: {_number(len(idle), 'lane')}"


def _check(addresses: Sequence[int], mask: int) -> None:
    if len(addresses) != LANES:
        raise WrongValue(f"{len(addresses)} addresses given, not one for each of 32 lanes")
    if not mask or mask >> LANES:
        raise WrongValue(f"mask={mask:#x} is not of 32 lanes with one or more of them active")
