"""Units of time, and times and budgets as people write them: 90m, 24h, 2d; 8nh."""

from __future__ import annotations

import re

HOUR_S = 3600.0  # every unit of time is declared here, once
DAY_H = 24.0  # clocks are in UTC: no day is longer
DAY_S = DAY_H * HOUR_S  # as above
SECONDS = {"s": 1.0, "m": 60.0, "h": HOUR_S, "d": DAY_S}
NODE_HOURS = "nh"
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(nh|[smhd])")


def read_amount(text: str) -> tuple[float, str]:
    """The number and the unit; 0 and "" if the text is neither a time nor a budget."""
    match = AMOUNT.fullmatch(text.strip())
    return (float(match[1]), match[2]) if match else (0.0, "")


def seconds_of(text: str) -> float:
    """The seconds of a time; 0 if the text is no time."""
    number, unit = read_amount(text)
    return number * SECONDS.get(unit, 0.0)
