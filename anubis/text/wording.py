"""Write numbers, times and lists of names the same way in every report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from anubis.text import hostlist

WIDTH = 48  # characters that a list of names may take
LIKELY = 0.10  # kinds of faults below this share are the rest
KINDS_NAMED = 3  # a sentence with more is read twice


def figure(value: float | None) -> str:
    """A number with four significant digits: enough for a measurement, and a column can hold it."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if not -4 <= exponent < 6:
        return f"{value:.3e}"
    return f"{value:,.{max(0, 3 - exponent)}f}"


def share(value: float | None) -> str:
    """A similarity or alpha. Cut, not rounded: 0.99996 must not read as perfect."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{math.floor(value * 1000 + 1e-9) / 1000:.3f}"


def chance(p: float) -> str:
    if 0 < p < 0.0001:
        return f"{p:.0e}"
    return f"{p:.2g}"


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def time_span(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours >= 100:
        return f"{round(hours / 24):,} days"
    return f"{hours} h {rest:02d} min" if rest else f"{hours} h"


def names(listed: Sequence[str], limit: int = 8) -> str:
    """The first few names, then the number of others, so that a line stays a line."""
    if len(listed) <= limit:
        return ", ".join(listed)
    return f"{', '.join(listed[:limit])} and {len(listed) - limit:,} more"


def short_node_list(listed: Sequence[str]) -> str:
    """Nodes as a node list if it is short, else the first few by name."""
    short = hostlist.compress(listed)
    if len(short) <= WIDTH or len(listed) == 1:
        return short
    first = next((n for n in (2, 1) if len(", ".join(listed[:n])) <= WIDTH), 0)
    return names(listed, first) if first else f"{listed[0][:20]}... and {len(listed) - 1:,} more"


def quantity(number: int, singular: str, several: str = "") -> str:
    return f"{number:,} {singular if number == 1 else several or singular + 's'}"


def kinds(mix: Mapping[str, float]) -> str:
    """The likeliest kinds of faults of a mix, as `gpu 69%, network 11%, others 20%`; empty if none
    is likely."""
    likeliest = sorted(mix.items(), key=lambda item: -item[1])[:KINDS_NAMED]
    listed = [(kind, p) for kind, p in likeliest if p >= LIKELY]
    rest = 1 - sum(p for _, p in listed)
    parts = [f"{kind} {p:.0%}" for kind, p in listed]
    parts += [f"others {rest:.0%}"] if listed and rest >= 0.005 else []
    return ", ".join(parts)


def damage_note(damaged: int) -> str:
    """Words that precede an answer which leaves out damaged executions."""
    return f"{quantity(damaged, 'damaged execution')} left out"
