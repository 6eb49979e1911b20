"""Pictures as text: elements with escaped words, places for labels that would overlap, and charts
of points, lines and stairs between two axes. None needs a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10
from xml.etree import ElementTree

import numpy as np

Element = ElementTree.Element
LETTER = 7.6  # how wide a letter of a label is at most, in units of a picture
BOLD = 1.12  # times as wide
LARGEST, HIGH = 1.5, 800.0  # pixels for such a unit, fewer where the picture is higher than that


def picture(width: float, height: float, kind: str, label: str, left: float = 0) -> Element:
    scale = min(LARGEST, max(1.0, HIGH / max(1.0, height)))
    return ElementTree.Element(
        "svg",
        {
            "class": kind,
            "viewBox": f"{number(left)} 0 {number(width)} {number(height)}",
            "style": f"max-width:{number(scale * width)}px",
            "role": "img",
            "aria-label": label,
        },
    )


def add(parent: Element, tag: str, text: str = "", **attributes: str | float) -> Element:
    """Add an element to its parent; `class_` is class, and `stroke_width` is stroke-width."""
    element = ElementTree.SubElement(
        parent,
        tag,
        {
            name.rstrip("_").replace("_", "-"): value if isinstance(value, str) else number(value)
            for name, value in attributes.items()
        },
    )
    element.text = text
    return element


def title(parent: Element, text: str) -> None:
    """Add the text that a browser shows when the pointer rests on an element."""
    add(parent, "title", text)


def serialize(element: Element) -> str:
    return ElementTree.tostring(element, encoding="unicode")


def number(value: float) -> str:
    return f"{round(float(value), 2):g}"


def cut(text: str, limit: int) -> str:
    """Shorten a name from the left: its end tells it from its neighbours."""
    return text if len(text) <= limit else f"…{text[1 - limit :]}"


def apart(centres: Sequence[float], sizes: Sequence[float], high: float) -> list[float]:
    """Return the nearest centres, from 0 to `high` and in this order, at which nothing overlaps:
    an isotonic regression by pooling of neighbours. That of scipy takes half a second to load."""
    size = np.asarray(sizes, dtype=np.float64)
    before = np.cumsum(size) - size / 2
    pools: list[tuple[float, int]] = []  # in ascending order: where it is, and how many it holds
    for place in np.asarray(centres, dtype=np.float64) - before:
        middle, count = float(place), 1
        while pools and pools[-1][0] >= middle:
            below, held = pools.pop()
            middle, count = (middle * count + below * held) / (count + held), count + held
        pools.append((middle, count))
    free = np.array([middle for middle, count in pools for _ in range(count)])
    moved: list[float] = (np.clip(free, 0, max(0.0, high - size.sum())) + before).tolist()
    return moved


LEFT, RIGHT, TOP, BOTTOM = 60.0, 22.0, 10.0, 44.0  # around the plot, for what is written there
TICKS = 5  # of an axis, or about as many

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Axis:
    title: str
    begin: float = 0.0
    end: float
    spelled: Callable[[float], str]
    logarithmic: bool = False
    marks: Sequence[float] = ()  # its ticks, where these are no round numbers

    def share(self, value: float) -> float:
        """Position of a value on the axis, as a share of its length; a value below the begin is put
        there."""
        if self.logarithmic:
            return log(max(value, self.begin) / self.begin) / log(self.end / self.begin)
        return max(0.0, value - self.begin) / (self.end - self.begin)

    @property
    def ticks(self) -> Sequence[float]:
        if self.marks:
            return self.marks
        if self.logarithmic:
            powers = range(floor(log10(self.begin)), ceil(log10(self.end)) + 1)
            rounded = [step * 10.0**power for power in powers for step in (1, 2, 5)]
            return [tick for tick in rounded if self.begin * 0.999 <= tick <= self.end * 1.001]
        step = round_up((self.end - self.begin) / TICKS)
        places = range(ceil(self.begin / step - 1e-9), floor(self.end / step + 1e-9) + 1)
        return [step * place for place in places]


@dataclass(frozen=True, kw_only=True)
class Chart:
    width: float
    height: float
    across: Axis
    up: Axis
    right: float = RIGHT

    def x(self, value: float) -> float:
        return LEFT + (self.width - LEFT - self.right) * self.across.share(value)

    def y(self, value: float) -> float:
        return self.height - BOTTOM - (self.height - TOP - BOTTOM) * self.up.share(value)

    def frame(self, label: str) -> Element:
        """Draw the picture with its axes; what is added to it later lies above them."""
        plot = picture(self.width, self.height, "chart", label)
        left, right = self.x(self.across.begin), self.x(self.across.end)
        bottom, top = self.y(self.up.begin), self.y(self.up.end)
        for tick in self.across.ticks:
            at = self.x(tick)
            add(plot, "line", class_="grid", x1=at, x2=at, y1=bottom, y2=top)
            add(plot, "text", self.across.spelled(tick), class_="tick", x=at, y=bottom + 13)
        for tick in self.up.ticks:
            at = self.y(tick)
            add(plot, "line", class_="grid", x1=left, x2=right, y1=at, y2=at)
            add(plot, "text", self.up.spelled(tick), class_="row", x=left - 6, y=at)
        add(plot, "text", self.across.title, x=(left + right) / 2, y=self.height - 8)
        turned = f"translate(9 {number((bottom + top) / 2)}) rotate(-90)"
        add(plot, "text", self.up.title, transform=turned)
        return plot

    def line(self, plot: Element, points: Points, kind: str) -> Element:
        places = " ".join(f"{number(self.x(x))},{number(self.y(y))}" for x, y in points)
        return add(plot, "polyline", class_=kind, points=places)

    def dot(self, plot: Element, point: tuple[float, float], kind: str = "") -> Element:
        x, y = point
        return add(plot, "circle", class_=f"dot {kind}".strip(), r=4.5, cx=self.x(x), cy=self.y(y))

    def stairs(self, plot: Element, outlines: Sequence[Points], kind: str) -> Element:
        """Draw outlines; each point is straight across or straight up from the one before."""
        return add(plot, "path", class_=kind, d="".join(map(self._steps, outlines)))

    def _steps(self, outline: Points) -> str:
        """Path of an outline, in relative steps of a tenth of a unit: a page has thousands of
        these."""
        places = [(round(10 * self.x(x)), round(10 * self.y(y))) for x, y in outline]
        (x, y), *corners = places
        strokes = [f"M{x / 10:g} {y / 10:g}"]
        for across, up in corners:
            strokes += [f"h{(across - x) / 10:g}"] * (across != x) + [f"v{(up - y) / 10:g}"] * (
                up != y
            )
            x, y = across, up
        return "".join(strokes)


def round_up(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def round_down(value: float) -> float:
    """Return the 1, 2 or 5 times a power of ten below a value."""
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (5, 2, 1, 0.5) if step * power <= value * (1 + 1e-9))


def whole_steps(value: float) -> float:
    """Return the end of an axis that has room for a value: a whole number of steps between
    ticks."""
    step = round_up(value / TICKS)
    return step * ceil(value / step - 1e-9)
