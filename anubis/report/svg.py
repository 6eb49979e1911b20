"""Pictures as text: elements with escaped words, and places for labels that would overlap."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Return the nearest centres, from 0 to `high` and in this order, at which nothing overlaps."""
    from scipy.optimize import isotonic_regression

    if not centres:
        return []
    size = np.asarray(sizes, dtype=np.float64)
    before = np.cumsum(size) - size / 2
    free = isotonic_regression(np.asarray(centres, dtype=np.float64) - before).x
    moved: list[float] = (np.clip(free, 0, max(0.0, high - size.sum())) + before).tolist()
    return moved
