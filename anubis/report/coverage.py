"""How much of a fabric pairs crossed, tier by tier: for the terminal, JSON and pages."""

from __future__ import annotations

from anubis.core.network.coverage import ASSURED, Coverage


def sentence(coverage: Coverage) -> str:
    """One line: between which tiers, of how many links how many."""
    tiers = [
        f"{sure:,} of {every:,} {_between(tiers)}"
        for tiers, (sure, every) in coverage.by_tier().items()
    ]
    return f"{', '.join(tiers)} (surely, or with a chance of {ASSURED:.0%})"


def _between(tiers: tuple[int, int]) -> str:
    low, high = tiers
    return f"links from tier {low} to {high}" if low != high else f"links within tier {low}"


def record(coverage: Coverage) -> list[dict[str, int]]:
    return [
        {"from": low, "to": high, "crossed": sure, "links": every}
        for (low, high), (sure, every) in coverage.by_tier().items()
    ]
