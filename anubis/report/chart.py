"""Points and lines between two axes, as a picture without a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10

from anubis.report.svg import Element, add, number, picture

LEFT, RIGHT, TOP, BOTTOM = 60.0, 14.0, 10.0, 44.0  # around the plot, for what is written there
TICKS = 5  # of an axis, or about as many


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From 0 on; with a `begin` above that, a logarithmic one from there on."""

    title: str
    begin: float = 0.0
    end: float
    spelled: Callable[[float], str]

    def share(self, value: float) -> float:
        """How far along the axis a value lies; below its begin, at the begin."""
        if not self.begin:
            return value / self.end
        return log(max(value, self.begin) / self.begin) / log(self.end / self.begin)

    @property
    def ticks(self) -> list[float]:
        if self.begin:
            powers = range(floor(log10(self.begin)), ceil(log10(self.end)) + 1)
            rounded = [step * 10.0**power for power in powers for step in (1, 2, 5)]
            return [tick for tick in rounded if self.begin * 0.999 <= tick <= self.end * 1.001]
        step = round_up(self.end / TICKS)
        return [step * place for place in range(floor(self.end / step + 1e-9) + 1)]


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
        """The picture with its axes; what is drawn into it lies above them."""
        plot = picture(self.width, self.height, "chart", label)
        left, right = self.x(self.across.begin), self.x(self.across.end)
        bottom, top = self.y(self.up.begin), self.y(self.up.end)
        for tick in self.across.ticks:
            at = self.x(tick)
            add(plot, "line", class_="grid", x1=at, x2=at, y1=bottom, y2=top)
            add(plot, "text", self.across.spelled(tick), x=at, y=bottom + 13)
        for tick in self.up.ticks:
            at = self.y(tick)
            add(plot, "line", class_="grid", x1=left, x2=right, y1=at, y2=at)
            add(plot, "text", self.up.spelled(tick), class_="row", x=left - 6, y=at)
        add(plot, "text", self.across.title, x=(left + right) / 2, y=self.height - 8)
        turned = f"translate(9 {number((bottom + top) / 2)}) rotate(-90)"
        add(plot, "text", self.up.title, transform=turned)
        return plot

    def line(self, plot: Element, points: Sequence[tuple[float, float]], kind: str) -> Element:
        places = " ".join(f"{number(self.x(x))},{number(self.y(y))}" for x, y in points)
        return add(plot, "polyline", class_=kind, points=places)


def round_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def round_down(value: float) -> float:
    """The same, from below."""
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (5, 2, 1, 0.5) if step * power <= value * (1 + 1e-9))


def whole_steps(value: float) -> float:
    """The end of an axis that holds a value: so many whole steps between ticks."""
    step = round_up(value / TICKS)
    return step * ceil(value / step - 1e-9)
