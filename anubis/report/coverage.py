"""The share of a fabric's links that pairs crossed, tier by tier: for the terminal, JSON and
pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anubis.core.network.coverage import ASSURED, Coverage
from anubis.text.wording import quantity

if TYPE_CHECKING:
    from anubis.report.documents import TierCrossed

REASONS = {
    "seldom": "crossed too seldom to be sure",
    "left out": "by no pair that was taken",
    "across rails": "only pairs across rails could",
    "out of reach": "on no path between these nodes",
}


def missing(uncrossed: Mapping[str, int]) -> str:
    """Return `12 links not crossed: 8 on no path between these nodes, 4 crossed too seldom to be
    sure`."""
    if not uncrossed:
        return ""
    reasons = ", ".join(
        f"{uncrossed[why]:,} {reason}" for why, reason in REASONS.items() if why in uncrossed
    )
    return f"{quantity(sum(uncrossed.values()), 'link')} not crossed: {reasons}"


def sentence(coverage: Coverage) -> str:
    """State in one line, for each pair of tiers, how many links were crossed."""
    tiers = [
        f"{sure:,} of {every:,} {_name_tiers(tiers)}"
        for tiers, (sure, every) in coverage.counts_by_tier().items()
    ]
    return f"{', '.join(tiers)} (surely, or with a chance of {ASSURED:.0%})"


def _name_tiers(tiers: tuple[int, int]) -> str:
    low, high = tiers
    return f"links from tier {low} to {high}" if low != high else f"links within tier {low}"


def tier_rows(coverage: Coverage) -> list[TierCrossed]:
    return [
        {"from": low, "to": high, "crossed": sure, "links": every}
        for (low, high), (sure, every) in coverage.counts_by_tier().items()
    ]
