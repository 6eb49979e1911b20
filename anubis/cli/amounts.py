"""Durations and budgets as people write them: 90m, 24h, 2d; 30m on each node, 8nh of all."""

from __future__ import annotations

import re

from anubis.core.choosing.selection import Budget
from anubis.core.errors import UsageError

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST_S = 3650 * SECONDS["d"]  # of a job: what is longer is a slip
AMOUNT = re.compile(r"(\d+(?:\.\d+)?)(nh|[smhd])")


def duration_s(text: str, option: str) -> float:
    number, unit = _read(text)
    seconds = number * SECONDS.get(unit, 0.0)
    if not 0 < seconds <= LONGEST_S:
        raise UsageError(f'{option} is "{text}", expected a time such as 90m, 24h or 2d')
    return seconds


def budget(text: str | None) -> Budget:
    if text is None:
        return Budget()
    number, unit = _read(text)
    if not number:
        unit = ""
    if unit == "nh":
        return Budget(node_seconds=number * 3600)
    if unit in SECONDS:
        return Budget(seconds=number * SECONDS[unit])
    raise UsageError(
        f'--budget is "{text}", expected node-hours such as 8nh, or a time on each node such as 30m'
    )


def _read(text: str) -> tuple[float, str]:
    found = AMOUNT.fullmatch(text.strip())
    return (float(found[1]), found[2]) if found else (0.0, "")
