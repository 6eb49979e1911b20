"""The matrices of a scan, one for each rail: how far flows from row to column are below normal.
Flows from one rail to another have a matrix of their own.

Neighbours in the fabric are side by side, so that a slow node is a cross, a slow leaf a band and a
slow link a block. In a large fleet neighbours share a row, and the worst of them is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count, groupby, pairwise, product
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from anubis.core.fabric import Fabric, Numbers, Part, Shares, natural_key
from anubis.report.blocks import pods
from anubis.report.svg import (
    BOLD,
    LETTER,
    Element,
    add,
    apart,
    cut,
    number,
    picture,
    serialize,
    title,
)
from anubis.report.view import Mark, NetworkView
from anubis.text.wording import short_node_list

# up to which share below normal each colour reaches; the last is for flows where nothing arrived
STEPS = (0.05, 0.1, 0.2, 0.4, 0.7, 0.999)
WORDS = ("normal", *(f"up to {step:.0%}" for step in STEPS[1:-1]), "more", "nothing arrived")

ROWS = 160  # of one matrix, so that a cell can be seen
CELLS = 66_000  # of all matrices together, so that the page stays small
TITLES = 6_000  # cells with a title that names their nodes; each costs a line
APART = 40  # blamed nodes that do not share a row
NAMED = 40  # rows up to which all have their names beside them
SIDE = 360.0  # of a matrix
CELL = 34.0  # at most
SMALLEST = 3.5  # cells below normal are drawn no smaller than this
BORDERS = 48  # more lines than this would hide what is between them
LINE = 12.0  # of text
LETTERS = 20  # of a name
ACROSS = "across"  # in place of a rail: what went from one to another
SIGNS = 10.0  # where the signs above the columns stand

Shared = TypeVar("Shared")


@dataclass(frozen=True, kw_only=True)
class HeatRow:
    """A node, or neighbours that share a row and the column of the same number."""

    nodes: tuple[str, ...]
    leaves: tuple[str, ...]  # none where it is not known
    pod: tuple[str, ...]

    @cached_property
    def name(self) -> str:
        return short_node_list(self.nodes)


@dataclass(frozen=True, kw_only=True)
class Matrix:
    rail: str  # or ACROSS
    rows: tuple[HeatRow, ...]
    worst: Shares  # rows x rows; NaN where nothing was measured
    flows: Numbers  # rows x rows: how many were
    short: int  # flows that are below normal

    @property
    def name(self) -> str:
        return "Across rails" if self.rail == ACROSS else f"Rail {self.rail}"

    @property
    def measured(self) -> int:
        return int(self.flows.sum())

    @property
    def pairs(self) -> int:
        nodes = sum(len(row.nodes) for row in self.rows)
        return nodes * (nodes - 1)

    @property
    def shared(self) -> int:
        """Number of nodes in the fullest row."""
        return max((len(row.nodes) for row in self.rows), default=0)

    @property
    def levels(self) -> Numbers:
        """Level of the colour of each cell; -1: not measured."""
        levels = np.searchsorted(STEPS, self.worst, side="left")
        return np.where(np.isnan(self.worst), -1, levels)


def matrices(view: NetworkView) -> list[Matrix]:
    """Return a matrix for each rail with a measurement, and one for flows across rails."""
    flows: dict[str, list[tuple[str, str, float]]] = {}
    for (source, target), value in view.shortfall.items():
        rail = source.rail if source.rail == target.rail else ACROSS
        flows.setdefault(rail, []).append((source.node, target.node, value))
    pod = pods(view.fabric) if flows else {}
    max_rows = min(ROWS, int((CELLS / max(1, len(flows))) ** 0.5))
    built = []
    for rail in sorted(flows, key=lambda rail: (rail == ACROSS, natural_key(rail))):
        sources, targets, values = zip(*flows[rail], strict=True)
        leaves = _leaves(view, pod, rail, {*sources, *targets})
        rows = tuple(_rows(leaves, _set_apart(view, rail), max_rows))
        built.append(_matrix(rail, rows, sources, targets, np.array(values)))
    return built


def _matrix(
    rail: str,
    rows: tuple[HeatRow, ...],
    sources: Sequence[str],
    targets: Sequence[str],
    values: Shares,
) -> Matrix:
    place = {node: at for at, row in enumerate(rows) for node in row.nodes}
    source = np.array([place[node] for node in sources], dtype=np.int64)
    target = np.array([place[node] for node in targets], dtype=np.int64)
    finite = np.isfinite(values)
    cell = (source * len(rows) + target)[finite]
    worst = np.full(len(rows) ** 2, -np.inf)
    np.maximum.at(worst, cell, values[finite])
    worst[np.isneginf(worst)] = np.nan
    shape = (len(rows), len(rows))
    return Matrix(
        rail=rail,
        rows=rows,
        worst=worst.reshape(shape),
        flows=np.bincount(cell, minlength=len(worst)).reshape(shape),
        short=int(np.sum(values[finite] > STEPS[0])),
    )


# --- who shares a row with whom --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Leaf:
    switch: str  # "": not in the fabric
    pod: tuple[str, ...]
    nodes: list[str]


def _leaves(
    view: NetworkView, pod: Mapping[str, tuple[str, ...]], rail: str, measured: set[str]
) -> list[_Leaf]:
    """Return the leaves of a rail, those of a pod side by side, with their nodes by number."""
    wanted_nodes = {*view.nodes, *measured} if view.nodes else None
    shown_on = view.fabric.rails[0] if rail == ACROSS else rail  # the order of nodes
    on: dict[str, list[str]] = {}
    for nic in view.fabric.nics:
        if nic.rail == shown_on and nic.node and (wanted_nodes is None or nic.node in wanted_nodes):
            on.setdefault(nic.switch, []).append(nic.node)
    leaves = [
        _Leaf(switch=switch, pod=pod[switch], nodes=sorted(on[switch], key=natural_key))
        for switch in pod
        if switch in on
    ]
    strange = measured.difference(*on.values())
    if strange:
        leaves.append(_Leaf(switch="", pod=(), nodes=sorted(strange, key=natural_key)))
    return leaves


def _set_apart(view: NetworkView, rail: str) -> set[str]:
    """Return blamed nodes and leaves, which have a row of their own."""
    nodes, leaves = dict[str, None](), dict[str, None]()
    for part in sorted(view.marks, key=lambda part: view.marks[part].number):
        nodes.update(dict.fromkeys(_node_of(part, rail)))
        leaves.update(dict.fromkeys(_leaves_of(view.fabric, part)))
    return {*list(nodes)[:APART], *list(leaves)[:APART]}


def _node_of(part: Part, rail: str) -> tuple[str, ...]:
    is_in_rail = part.kind == "node" or (part.kind == "nic" and rail in (part.other, ACROSS))
    return (part.name,) if is_in_rail else ()


def _leaves_of(fabric: Fabric, part: Part) -> tuple[str, ...]:
    """Return the leaves whose blocks in a matrix show this part of the fabric."""
    if part.kind in ("node", "nic"):
        return ()
    return tuple(end for end in (part.name, part.other) if end in fabric.leaf_number)


def _rows(leaves: Sequence[_Leaf], alone: set[str], max_rows: int) -> Iterator[HeatRow]:
    for part in _sharing(leaves, alone, max_rows):
        for _, group in groupby(part, key=lambda item: item[0] if item[0] in alone else ""):
            together = list(group)
            yield HeatRow(
                nodes=tuple(node for node, _ in together),
                leaves=tuple(dict.fromkeys(leaf.switch for _, leaf in together if leaf.switch)),
                pod=part[0][1].pod,
            )


def _sharing(
    leaves: Sequence[_Leaf], alone: set[str], max_rows: int
) -> list[list[tuple[str, _Leaf]]]:
    """Give each node a row if there is room; else nodes of a leaf share one, else leaves of a
    pod."""
    if len(leaves) <= max_rows:
        return _divide([_rail_nics([leaf]) for leaf in leaves], max_rows)
    for neighbours in (
        lambda leaf: (leaf.pod, leaf.switch in alone and leaf.switch),
        lambda leaf: leaf.switch in alone and leaf.switch,
        lambda leaf: "all",
    ):
        parts = [list(group) for _, group in groupby(leaves, key=neighbours)]
        if len(parts) <= max_rows:
            break
    return [_rail_nics(part) for part in _divide(parts, max_rows)]


def _rail_nics(leaves: Sequence[_Leaf]) -> list[tuple[str, _Leaf]]:
    return [(node, leaf) for leaf in leaves for node in leaf.nodes]


def _divide(parts: Sequence[list[Shared]], max_rows: int) -> list[list[Shared]]:
    """Divide parts into at most so many rows; no row has nodes of two parts."""
    size = next(
        size for size in count(1) if sum(-(-len(part) // size) for part in parts) <= max_rows
    )
    return [part[at : at + size] for part in parts for at in range(0, len(part), size)]


# --- the drawing -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Band:
    """Rows, and the columns of the same numbers, that have something in common."""

    first: int
    last: int
    text: str
    mark: Mark | None = None

    @property
    def middle(self) -> float:
        return (self.first + self.last + 1) / 2

    @property
    def kind(self) -> str:
        return self.mark.kind if self.mark else ""

    @property
    def sign(self) -> str:
        return self.mark.sign if self.mark else ""

    @property
    def label(self) -> str:
        return f"{self.sign} {cut(self.text, LETTERS)}".lstrip()

    @property
    def width(self) -> float:
        return LETTER * len(self.label) * (BOLD if self.mark else 1)

    @property
    def description(self) -> str:
        return f"{self.text}: {self.mark.sentence}" if self.mark else self.text


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Positions of things in the picture."""

    left: float
    top: float
    cell: float
    side: float


def drawing(view: NetworkView, matrix: Matrix, max_titles: int = TITLES) -> str:
    """Draw the matrix as an SVG; up to `max_titles` cells name their nodes."""
    named = len(matrix.rows) <= NAMED
    nodes, leaves = _nodes(view, matrix, named), _leaf_bands(view, matrix)
    beside = leaves if named else leaves + nodes
    margin = 22.0
    if named:  # signs stand above the names of the columns
        margin = 26.0 if any(band.mark for band in beside) else 16.0
        margin += max((band.width for band in nodes), default=0)
    cell = min(CELL, SIDE / max(1, len(matrix.rows)))
    frame = _Frame(left=margin, top=margin, cell=cell, side=cell * len(matrix.rows))
    width = margin + frame.side + 14 + max((band.width for band in beside), default=0)
    canvas = picture(width, max(margin + frame.side, LINE * 4) + 4, "heat", _label(matrix))
    _draw_cells(canvas, matrix, frame, max_titles)
    _draw_borders(canvas, "leaf", [row.leaves for row in matrix.rows], frame)
    _draw_borders(canvas, "pod", [row.pod for row in matrix.rows], frame)
    _draw_box(canvas, "border pod", frame.left, frame.top, frame.side, frame.side)
    for band in leaves + nodes:
        _draw_mark(canvas, band, frame)
    if named:
        _draw_names(canvas, nodes, frame)
    _draw_labels(canvas, beside, frame)
    _draw_signs(canvas, beside, frame)
    return serialize(canvas)


def _label(matrix: Matrix) -> str:
    return f"{matrix.name}: {matrix.short:,} of {matrix.measured:,} flows are below normal"


def _nodes(view: NetworkView, matrix: Matrix, named: bool) -> list[_Band]:
    """Return the rows that have a name beside them: all if they are few, else the blamed ones."""
    bands = []
    for at, row in enumerate(matrix.rows):
        mark = _mark_of(view, row, matrix.rail)
        if mark or named:
            bands.append(_Band(first=at, last=at, text=row.name, mark=mark))
    return bands


def _mark_of(view: NetworkView, row: HeatRow, rail: str) -> Mark | None:
    rails = view.fabric.rails if rail == ACROSS else (rail,)
    rail_nics = product(row.nodes, rails)
    return next(filter(None, (view.mark_of_nic(*rail_nic) for rail_nic in rail_nics)), None)


def _leaf_bands(view: NetworkView, matrix: Matrix) -> list[_Band]:
    marks: dict[str, Mark] = {}
    for part, mark in view.marks.items():
        for leaf in _leaves_of(view.fabric, part):
            marks.setdefault(leaf, mark)
    bands = []
    numbered = enumerate(matrix.rows)
    for leaves, group in groupby(numbered, key=lambda item: item[1].leaves):
        rows = [at for at, _ in group]
        blamed = [marks[leaf] for leaf in leaves if leaf in marks]
        name = short_node_list([view.fabric.name(leaf) for leaf in leaves] or ["not in the fabric"])
        bands.append(_Band(first=rows[0], last=rows[-1], text=name, mark=next(iter(blamed), None)))
    return bands


def _draw_cells(canvas: Element, matrix: Matrix, frame: _Frame, max_titles: int) -> None:
    levels, speaking = matrix.levels, _choose_titles(matrix, max_titles)
    where = f"translate({number(frame.left)} {number(frame.top)}) scale({frame.cell:.6g})"
    cells, size = add(canvas, "g", class_="cells", transform=where), len(matrix.rows)
    cells.set("stroke-width", number(max(0.0, SMALLEST / frame.cell - 1)))
    add(cells, "rect", class_="unmeasured", x=0, y=0, width=size, height=size)
    alone = [at for at, row in enumerate(matrix.rows) if len(row.nodes) == 1]
    add(cells, "path", class_="self", d="".join(f"M{at} {at}h1v1h-1z" for at in alone))
    for level in range(len(WORDS)):
        runs = "".join(_runs((levels == level) & ~speaking))
        if runs:
            add(cells, "path", class_=f"s{level}", d=runs)
    for row, column in np.argwhere(speaking).tolist():
        kind = f"s{levels[row, column]}"
        element = add(cells, "rect", class_=kind, x=column, y=row, width=1, height=1)
        title(element, _cell_title(matrix, row, column))
    if frame.cell >= 2 * LINE:
        _draw_shares(canvas, matrix, frame)


def _choose_titles(matrix: Matrix, max_titles: int) -> npt.NDArray[np.bool_]:
    """Mark cells whose title names their nodes: all, or those below normal, or none."""
    levels = matrix.levels
    choices = (levels >= 0, levels > 0)
    nothing = np.zeros_like(levels, dtype=bool)
    return next((cells for cells in choices if cells.sum() <= max_titles), nothing)


def _cell_title(matrix: Matrix, row: int, column: int) -> str:
    worst, flows = float(matrix.worst[row, column]), int(matrix.flows[row, column])
    short = f"{worst:.0%} below normal" if worst > STEPS[0] else WORDS[0]
    of = f", the worst of {flows:,} flows" if flows > 1 else ""
    source, target = (matrix.rows[at].name for at in (row, column))
    return f"{source} → {target}: {WORDS[-1] if worst > STEPS[-1] else short}{of}"


def _runs(cells: npt.NDArray[np.bool_]) -> Iterator[str]:
    """Yield cells of one colour as pieces of a path; cells side by side are one piece."""
    ends = np.diff(cells.astype(np.int8), axis=1, prepend=0, append=0)
    for (row, begin), (_, end) in zip(np.argwhere(ends == 1), np.argwhere(ends == -1), strict=True):
        yield f"M{begin} {row}h{end - begin}v1h{begin - end}z"


def _draw_shares(canvas: Element, matrix: Matrix, frame: _Frame) -> None:
    """Write shares into cells that have room: a phone has no pointer to rest on a cell."""
    for row, column in np.argwhere(matrix.levels > 0).tolist():
        share = f"{matrix.worst[row, column]:.0%}".removesuffix("%")
        x, y = frame.left + (column + 0.5) * frame.cell, frame.top + (row + 0.5) * frame.cell
        add(canvas, "text", share, class_=f"on s{matrix.levels[row, column]}", x=x, y=y)


def _draw_borders(canvas: Element, kind: str, of: Sequence[tuple[str, ...]], frame: _Frame) -> None:
    ends = [at for at, (before, after) in enumerate(pairwise(of), start=1) if before != after]
    if len(ends) > BORDERS:
        return
    path = ""
    for at in ends:
        x, y = frame.left + at * frame.cell, frame.top + at * frame.cell
        path += f"M{number(frame.left)} {number(y)}h{number(frame.side)}"
        path += f"M{number(x)} {number(frame.top)}v{number(frame.side)}"
    add(canvas, "path", class_=f"border {kind}", d=path)


def _draw_names(canvas: Element, nodes: Sequence[_Band], frame: _Frame) -> None:
    """Write names at the left of the rows and above the columns."""
    for band in nodes:
        x, y = frame.left - 9, frame.top + band.middle * frame.cell
        row = add(canvas, "text", band.label, class_=f"row {band.kind}", x=x, y=y)
        turned = f"translate({number(y)} {number(x)}) rotate(-90)"  # left and top are one
        column = add(canvas, "text", band.label, class_=f"column {band.kind}", transform=turned)
        title(row, band.description)
        title(column, band.description)


def _draw_labels(canvas: Element, bands: Sequence[_Band], frame: _Frame) -> None:
    """Write labels at the right of the rows: all blamed ones, and as many others as there is room
    for."""
    blamed = _first(bands, lambda band: LINE, frame.side)
    middles = [band.middle * frame.cell for band in blamed]
    taken = apart(middles, [LINE] * len(blamed), frame.side)
    places = list(zip(blamed, taken, strict=True))
    for band in bands:
        y = band.middle * frame.cell
        if not band.mark and all(abs(y - place_taken) >= LINE for place_taken in taken):
            taken.append(y)
            places.append((band, y))
    right = frame.left + frame.side
    for band, place in places:
        y = frame.top + place
        label = add(canvas, "text", band.label, class_=f"leaf {band.kind}", x=right + 11, y=y)
        title(label, band.description)
        if band.mark:
            way = f"M{number(right + 1)} {number(frame.top + band.middle * frame.cell)}"
            way += f"L{number(right + 9)} {number(y)}"
            add(canvas, "path", class_=f"leader {band.kind}", d=way)


def _draw_signs(canvas: Element, bands: Sequence[_Band], frame: _Frame) -> None:
    """Write signs above the columns of blamed parts."""
    width = {band.sign: LETTER * len(band.sign) + 3 for band in bands}
    blamed = _first(bands, lambda band: width[band.sign], frame.side)
    middles = [band.middle * frame.cell for band in blamed]
    places = apart(middles, [width[band.sign] for band in blamed], frame.side)
    for band, place in zip(blamed, places, strict=True):
        x = frame.left + place
        title(add(canvas, "text", band.sign, class_=band.kind, x=x, y=SIGNS), band.description)


def _first(bands: Sequence[_Band], size: Callable[[_Band], float], room: float) -> list[_Band]:
    """Choose as many blamed bands as there is room for, by number, and return them from the top
    down."""
    blamed = sorted((band.mark.number, at) for at, band in enumerate(bands) if band.mark)
    filled = accumulate(size(bands[at]) for _, at in blamed)
    kept = [bands[at] for (_, at), end in zip(blamed, filled, strict=True) if end <= room]
    return sorted(kept, key=lambda band: band.middle)


def _draw_mark(canvas: Element, band: _Band, frame: _Frame) -> None:
    """Frame the rows and columns of a blamed part, and draw a bar at the begin of each."""
    if not band.mark:
        return
    begin, length = band.first * frame.cell, (band.last - band.first + 1) * frame.cell
    x, y, thick = frame.left + begin, frame.top + begin, max(length, 3)
    mark = f"mark {band.kind}{' thin' if length < 2 * SMALLEST else ''}"
    bar = f"bar {band.kind}"
    _draw_box(canvas, mark, frame.left, y, frame.side, length)
    _draw_box(canvas, mark, x, frame.top, length, frame.side)
    _draw_box(canvas, bar, frame.left - 5, y + (length - thick) / 2, 4, thick)
    _draw_box(canvas, bar, x + (length - thick) / 2, frame.top - 5, thick, 4)


def _draw_box(canvas: Element, kind: str, x: float, y: float, width: float, height: float) -> None:
    add(canvas, "rect", class_=kind, x=x, y=y, width=width, height=height)
