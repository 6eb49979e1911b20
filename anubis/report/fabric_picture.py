"""A fabric as a picture: nodes at the left, then the switches tier by tier to the right.

Blamed parts stand out under the numbers of their sentences. If there are many switches, those of a
pod share a box, and each blamed switch keeps one of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean

from anubis.core.fabric import Fabric, Link, Nic, Part, main_rails, natural_key
from anubis.core.network.crossing import link_part
from anubis.core.records import Judgement
from anubis.report.blocks import nics_on, pods
from anubis.report.svg import LETTER, Element, add, apart, cut, number, picture, serialize, title
from anubis.report.view import GLYPH, Mark, NetworkView
from anubis.text import hostlist
from anubis.text.wording import quantity, short_node_list

BOXES = 48  # of one tier
NAMED = 40  # nodes up to which each has its name
DOTS = 1_500  # NICs up to which each has a dot
CHIPS = 12  # names of nodes beside one box
ROW = 20  # dots side by side
# pixels: the size of a dot for a node, and the distance of two
DOT, PITCH = 7.0, 9.0
HOSTS = PITCH * ROW  # how wide the nodes of a leaf may be
BOX, GAP = 146.0, 84.0  # how wide a box is, and the room for wires between tiers
LINE = 17.0  # pixels: a line of text
LETTERS = 19  # of a name in a box
EDGE = 3.0  # pixels, around the picture
UNMEASURED = "nothing arrived over this NIC"
TROUBLED = (Judgement.DEFECTIVE, Judgement.UNKNOWN)  # their sign stands before the node's name


@dataclass(frozen=True, kw_only=True)
class _Box:
    """A switch, or several that share a box."""

    switches: tuple[str, ...]
    column: int
    beside: tuple[_Strip, ...] = ()  # what stands at its left, line by line
    caption: str = ""  # above it
    note: str = ""  # a second line
    y: float = 0.0  # of its middle

    @property
    def left(self) -> float:
        return EDGE + HOSTS + 8 + self.column * (BOX + GAP)

    @property
    def height(self) -> float:
        """Height of the box, including the distance to the next one."""
        own = 1.7 * LINE if self.note else LINE
        return max(own, sum(strip.height for strip in self.beside)) + 6 + self.head

    @property
    def head(self) -> float:
        return LINE if self.caption else 0.0


@dataclass(frozen=True, kw_only=True)
class _Chip:
    """A node by its name, or a NIC as a dot."""

    text: str
    about: str
    kind: str = ""

    @property
    def width(self) -> float:
        return LETTER * len(self.text) + 10 if self.text else PITCH


@dataclass(frozen=True, kw_only=True)
class _Strip:
    chips: tuple[_Chip, ...]

    @property
    def height(self) -> float:
        return LINE if self.chips[0].text else PITCH

    @property
    def width(self) -> float:
        return sum(chip.width for chip in self.chips)


def drawing(view: NetworkView) -> str:
    """Draw the fabric as an SVG."""
    plan = _Plan(view)
    columns = _place_boxes(view.fabric, [plan.boxes(tier) for tier in plan.tiers])
    boxes = [box for column in columns for box in column]
    left = EDGE + HOSTS - max((strip.width for box in boxes for strip in box.beside), default=0.0)
    width = max((box.left + BOX for box in boxes), default=left) - left
    height = max((box.y + box.height / 2 for box in boxes), default=0.0) + EDGE
    label = f"The fabric: {quantity(len(view.fabric.switches), 'switch', 'switches')}"
    canvas = picture(width + 2 * EDGE, height, "fabric", label, left - EDGE)
    _draw_wires(canvas, plan, boxes)
    for box in boxes:
        if box.caption:
            y = box.y - (box.height - box.head) / 2 - box.head / 2
            add(canvas, "text", box.caption, class_="caption", x=box.left + BOX / 2, y=y)
        _draw_strips(canvas, box)
        _draw_box(canvas, plan, box)
    return serialize(canvas)


class _Plan:
    """The content of each box, and the words beside it."""

    def __init__(self, view: NetworkView) -> None:
        self.view, self.fabric, self.marks = view, view.fabric, view.marks
        self.chosen = set(view.nodes or view.fabric.nodes)
        self.pod = pods(view.fabric)
        worst_last = reversed(view.inspection.findings)  # what comes first is worst
        self.odd = {
            finding.switches: finding.sentence for finding in worst_last if finding.switches
        }

    @cached_property
    def tiers(self) -> tuple[int, ...]:
        """Tiers from the leaves upwards; switches that no leaf reaches are drawn beside the
        leaves."""
        return tuple(range(1, max([1, *self.fabric.tier.values()]) + 1))

    def boxes(self, tier: int) -> list[_Box]:
        switches = [switch for switch in self.pod if max(1, self.fabric.tier[switch]) == tier]
        if tier == 1 and self._few:
            switches = self._sort_by_rail(switches)
        boxes = [
            _Box(switches=group, column=tier - 1, note=", ".join(self._counts(group, tier)))
            for group in self._group_switches(switches)
        ]
        if tier > 1:
            return boxes
        captions = self._captions(boxes)
        return [
            replace(box, beside=self._strips(box.switches), caption=caption)
            for box, caption in zip(boxes, captions, strict=True)
        ]

    def _sort_by_rail(self, leaves: Sequence[str]) -> list[str]:
        """Sort leaves by pod, and those of a pod by rail."""
        place = {pod: at for at, pod in enumerate(dict.fromkeys(self.pod[leaf] for leaf in leaves))}
        rails = {leaf: [natural_key(rail) for rail in self._rails(leaf)] for leaf in leaves}
        return sorted(leaves, key=lambda leaf: (place[self.pod[leaf]], rails[leaf]))

    def _counts(self, switches: Sequence[str], tier: int) -> Iterator[str]:
        if len(switches) > 1:
            yield quantity(len(switches), "switch", "switches")
        nodes = {nic.node for nic in nics_on(self.fabric, switches)}
        if tier > 1 and nodes:
            yield quantity(len(nodes), "node")

    def _captions(self, boxes: Sequence[_Box]) -> list[str]:
        """Name the rail at the first box of each rail, unless all leaves are on the same."""
        rails = [self._rails(box.switches[0]) for box in boxes]
        if not self._few or len(set(rails)) < 2:
            return [""] * len(boxes)
        begun = [after if after != before else () for before, after in pairwise([(), *rails])]
        return [f"rail {', '.join(names)}" if names else "" for names in begun]

    def mark_of_nic(self, nic: Nic) -> Mark | None:
        return self.view.mark_of_nic(nic.node, nic.rail)

    def marks_of(self, box: _Box) -> list[Mark]:
        """List the marks of its switches; above the leaves also of its NICs, which are not drawn
        there."""
        marks = [self.marks.get(Part("switch", switch)) for switch in box.switches]
        if box.column:
            marks += map(self.mark_of_nic, nics_on(self.fabric, box.switches))
        return list(dict.fromkeys(mark for mark in marks if mark))

    def mark_of_link(self, link: Link) -> Mark | None:
        lower = link.a if self.fabric.upper(link) == link.b else link.b
        uplinks = self.marks.get(Part("uplinks", lower)) if self.fabric.is_uplink(link) else None
        return self.marks.get(link_part(link)) or uplinks

    # --- switches in boxes -----------------------------------------------------------------

    def _group_switches(self, switches: Sequence[str]) -> list[tuple[str, ...]]:
        """Return a box for each switch, or, if there are many, one for each blamed switch and one
        for each pod or rail."""
        if self._few:
            return [(switch,) for switch in switches]
        alone = {switch: (switch,) for switch in switches if switch in self._blamed_switches}
        alone = dict(list(alone.items())[:BOXES])
        keys: tuple[Callable[[str], object], ...] = (
            lambda switch: (self.pod[switch], self._rails(switch)),
            lambda switch: self.pod[switch],
            self._rails,
            lambda switch: "all",
        )
        groups: dict[object, list[str]] = {}
        for key in keys:
            groups = {}
            for switch in switches:
                groups.setdefault(alone.get(switch, key(switch)), []).append(switch)
            if len(groups) <= BOXES + len(alone):
                break
        return [tuple(group) for group in groups.values()]

    @cached_property
    def _few(self) -> bool:
        """True if no tier has too many switches: many wires to a few boxes would show nothing."""
        return max(Counter(self.fabric.tier.values()).values(), default=0) <= BOXES

    def _rails(self, switch: str) -> tuple[str, ...]:
        return main_rails(nics_on(self.fabric, (switch,)))

    @cached_property
    def _blamed_switches(self) -> set[str]:
        """The switches that are blamed, or that are an end of a blamed part."""
        switches = {end for part in self.marks for end in (part.name, part.other)} & set(self.pod)
        return switches | {nic.switch for nic in self.fabric.nics if self.mark_of_nic(nic)}

    # --- nodes beside boxes ----------------------------------------------------------------

    def _strips(self, switches: Sequence[str]) -> tuple[_Strip, ...]:
        nics = sorted(nics_on(self.fabric, switches), key=lambda nic: natural_key(nic.node))
        named = [nic for nic in nics if self.mark_of_nic(nic) or (self._shows_names and nic.node)]
        have_chips = set(named)
        chips = list(dict.fromkeys(self._chip(nic) for nic in named))
        more = len(chips) - CHIPS
        if more > 0:
            chips[CHIPS:] = [_Chip(text=f"and {more:,} more", about="", kind="count")]
        unnamed = [nic for nic in nics if nic not in have_chips]
        if len(self.fabric.nics) <= DOTS and len(switches) == 1:
            chips += [
                _Chip(text="", about=self._describe_nic(nic), kind=self._kind(nic))
                for nic in unnamed
            ]
        elif unnamed:
            chips.append(_count_chip(unnamed))
        return tuple(_fill_lines(chips))

    @cached_property
    def _shows_names(self) -> bool:
        return len(self.fabric.nodes) <= NAMED

    def _chip(self, nic: Nic) -> _Chip:
        name = cut(nic.node, LETTERS + 4)
        if mark := self.mark_of_nic(nic):
            return _Chip(text=f"{mark.sign} {name}", about=mark.sentence, kind=mark.kind)
        judgement = self.view.verdicts.get(nic.node)
        sign = f"{GLYPH[judgement]} " if judgement in TROUBLED else ""
        return _Chip(text=sign + name, about=self._describe_nic(nic), kind=self._kind(nic))

    def _kind(self, nic: Nic) -> str:
        """Name of the judgement whose colour the page uses for a NIC."""
        if judgement := self.view.judgement_of(nic):
            return judgement.value
        return "" if nic.node in self.chosen else "other"

    def _describe_nic(self, nic: Nic) -> str:
        if not nic.node:
            return "a NIC of an unknown node"
        judgement = self.view.verdicts.get(nic.node)
        if judgement is None:
            return nic.node
        unmeasured = "" if self.view.judgement_of(nic) else f", but {UNMEASURED}"
        return f"{nic.node}: {judgement.value}{unmeasured}"


def _count_chip(nics: Sequence[Nic]) -> _Chip:
    nodes = list(dict.fromkeys(nic.node for nic in nics if nic.node))
    unknown = sum(not nic.node for nic in nics)
    counts = [quantity(len(nodes), "node")] if nodes else []
    if unknown:
        counts.append(quantity(unknown, "NIC"))
    about = short_node_list(nodes) if nodes else "node unknown"
    return _Chip(text=" + ".join(counts), about=about, kind="count")


def _fill_lines(chips: Sequence[_Chip]) -> Iterator[_Strip]:
    line: list[_Chip] = []
    for chip in chips:
        full = sum(placed.width for placed in line) + chip.width > HOSTS
        if line and (full or bool(chip.text) != bool(line[0].text)):
            yield _Strip(chips=tuple(line))
            line = []
        line.append(chip)
    if line:
        yield _Strip(chips=tuple(line))


# --- where a box stands ----------------------------------------------------------------------


def _place_boxes(fabric: Fabric, columns: Sequence[Sequence[_Box]]) -> list[list[_Box]]:
    """Place leaves one below the other; above them each switch in the middle of what it is linked
    to."""
    high = max(sum(box.height for box in column) for column in columns)
    at: dict[str, float] = {}
    placed_columns = []
    for column in columns:
        spare = (high - sum(box.height for box in column)) / max(1, len(column))
        ordered = sorted(column, key=lambda box: _middle(fabric, box, at))
        sizes = [box.height + (min(spare, LINE) if box.column else spare) for box in ordered]
        places = apart([_middle(fabric, box, at) for box in ordered], sizes, high)
        placed = [
            replace(box, y=EDGE + y + box.head / 2) for box, y in zip(ordered, places, strict=True)
        ]
        at.update({switch: box.y for box in placed for switch in box.switches})
        placed_columns.append(placed)
    return placed_columns


def _middle(fabric: Fabric, box: _Box, at: dict[str, float]) -> float:
    """Mean height of the boxes that are linked to this one and already placed."""
    ends = [
        link.a if link.b == end else link.b for end in box.switches for link in fabric.links_of[end]
    ]
    return fmean([at[end] for end in ends if end in at] or [0.0])


# --- the drawing -----------------------------------------------------------------------------


def _draw_strips(canvas: Element, box: _Box) -> None:
    """Draw the nodes right beside the box, the fullest line as long as there is room."""
    top = box.y - sum(strip.height for strip in box.beside) / 2
    for strip in box.beside:
        x, y = EDGE + HOSTS - strip.width, top + strip.height / 2
        for chip in strip.chips:
            _draw_chip(canvas, chip, x, y)
            x += chip.width
        top += strip.height


def _draw_chip(canvas: Element, chip: _Chip, x: float, y: float) -> None:
    if not chip.text:
        at = {"x": number(x + 1), "y": number(y - DOT / 2), "width": number(DOT)}
        element = add(canvas, "rect", class_=f"dot {chip.kind}", height=DOT, rx=1.5, **at)
    else:
        element = add(canvas, "g", class_=f"chip {chip.kind}")
        if chip.kind != "count":
            add(element, "rect", x=x + 1, y=y - 7, width=chip.width - 3, height=14, rx=3)
        add(element, "text", chip.text, x=x + chip.width / 2 - 0.5, y=y)
    title(element, chip.about)


def _draw_box(canvas: Element, plan: _Plan, box: _Box) -> None:
    marks = plan.marks_of(box)
    odd = [plan.odd[switch,] for switch in box.switches if (switch,) in plan.odd]
    kind = marks[0].kind if marks else "odd" if odd else ""
    listed = [plan.fabric.name(switch) for switch in box.switches]
    high = 28.0 if box.note else 16.0
    element = add(canvas, "g", class_=f"switch {kind}")
    add(element, "rect", x=box.left, y=box.y - high / 2, width=BOX, height=high, rx=3)
    sign = f"{marks[0].sign} " if marks else "! " if odd else ""
    middle = box.left + BOX / 2
    add(element, "text", sign + _short(listed), x=middle, y=box.y - (6 if box.note else 0))
    if box.note:
        add(element, "text", box.note, class_="count", x=middle, y=box.y + 7)
    title(
        element,
        "\n".join(
            dict.fromkeys([short_node_list(listed), *(mark.sentence for mark in marks), *odd])
        ),
    )


def _short(listed: Sequence[str]) -> str:
    if len(listed) == 1:
        return cut(listed[0], LETTERS)
    text = hostlist.compress(listed)
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"


@dataclass(frozen=True, kw_only=True)
class _Wire:
    """All cables between two boxes."""

    lower: _Box
    upper: _Box
    links: tuple[Link, ...]

    @property
    def cables(self) -> int:
        return sum(len(link.cables) for link in self.links)


def _wires(boxes: Sequence[_Box], fabric: Fabric) -> list[_Wire]:
    box_of = {switch: box for box in boxes for switch in box.switches}
    between: dict[tuple[str, str], list[Link]] = {}
    for link in fabric.links:
        ends = sorted((box_of[link.a], box_of[link.b]), key=lambda box: (box.column, box.y))
        if ends[0] is not ends[1]:
            between.setdefault((ends[0].switches[0], ends[1].switches[0]), []).append(link)
    return [
        _Wire(lower=box_of[lower], upper=box_of[upper], links=tuple(links))
        for (lower, upper), links in between.items()
    ]


def _draw_wires(canvas: Element, plan: _Plan, boxes: Sequence[_Box]) -> None:
    """Draw wires; those with a mark or a remark lie above the others."""
    remarked = []
    for wire in _wires(boxes, plan.fabric):
        marks = [mark for link in wire.links if (mark := plan.mark_of_link(link))]
        odd = [sentence for link in wire.links if (sentence := plan.odd.get((link.a, link.b)))]
        remarked.append((wire, marks, odd))
    for wire, marks, odd in sorted(remarked, key=lambda entry: (bool(entry[1]), bool(entry[2]))):
        kind = marks[0].kind if marks else "odd" if odd else ""
        width = 0.7 + 0.35 * math.log2(wire.cables)
        path = add(canvas, "path", class_=f"wire {kind}", d=_way(wire), stroke_width=width)
        ends = (
            short_node_list([plan.fabric.name(end) for end in box.switches])
            for box in (wire.lower, wire.upper)
        )
        about = f"{' - '.join(ends)}: {quantity(wire.cables, 'cable')}"
        title(path, "\n".join([about, *dict.fromkeys([*(mark.sentence for mark in marks), *odd])]))
    for mark in dict.fromkeys(marks[0] for _, marks, _ in remarked if marks):
        points = [_point(wire, 0.3) for wire, marks, _ in remarked if mark in marks]
        x, y = (fmean(values) for values in zip(*points, strict=True))
        add(canvas, "text", mark.sign, class_=f"sign {mark.kind}", x=x, y=y)


def _ends(wire: _Wire) -> tuple[float, float, float, float]:
    """Return the four x of a wire's curve; a wire within one tier runs beside the boxes."""
    begin = wire.lower.left + BOX
    if wire.lower.column == wire.upper.column:
        return begin, begin + GAP / 2, begin + GAP / 2, begin
    end = wire.upper.left
    return begin, (begin + end) / 2, (begin + end) / 2, end


def _way(wire: _Wire) -> str:
    a, b, c, d = map(number, _ends(wire))
    low, up = number(wire.lower.y), number(wire.upper.y)
    return f"M{a} {low}C{b} {low} {c} {up} {d} {up}"


def _point(wire: _Wire, t: float) -> tuple[float, float]:
    """Return the point of the curve after the share t of it."""
    a, b, c, d = _ends(wire)
    s = 1 - t
    x = s**3 * a + 3 * s * s * t * b + 3 * s * t * t * c + t**3 * d
    y = (s**3 + 3 * s * s * t) * wire.lower.y + (3 * s * t * t + t**3) * wire.upper.y
    return x, y
