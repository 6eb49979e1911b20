"""The share of a fabric's links that pairs crossed, tier by tier: for the terminal, JSON and
pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anubis.core.fabric import Link, link_name
from anubis.core.network.coverage import ASSURED, Coverage, Why
from anubis.core.network.pairing import Purpose
from anubis.core.network.redundancy import gap_name
from anubis.text.wording import quantity

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


@dataclass(frozen=True, kw_only=True)
class TierCrossed:
    from_: int
    to: int
    crossed: int
    links: int


@dataclass(frozen=True, kw_only=True)
class CoverageLine:
    pairs: Mapping[Purpose, int]
    """Number of pairs for each purpose."""
    rounds: Mapping[Purpose, int]
    nics: int
    switches: int
    links: int
    """Crossed surely, or with a chance of 95 %."""
    tiers: Sequence[TierCrossed]
    untested_switches: Sequence[str]
    untested_links: Sequence[str]
    across_rails_only: Sequence[str]
    """Links that only pairs across rails could cross: `--cover`."""
    out_of_reach: Sequence[str]
    """Links that no path between these nodes uses."""
    seldom_crossed_links: Sequence[str]
    missing_uplinks: Sequence[str]


def untested_parts(
    coverage: Coverage, why_untested: Mapping[Why, Sequence[Link]]
) -> dict[str, list[str]]:
    """Return the names of what the pairs do not cross surely, by the reason."""
    fabric = coverage.fabric
    return {
        "switches": [fabric.name(switch) for switch in coverage.untested_switches],
        **{why: [link_name(fabric, link) for link in some] for why, some in why_untested.items()},
        "seldom": [link_name(fabric, link) for link in coverage.unsure_links],
        "missing": [gap_name(fabric, gap) for gap in coverage.missing_uplinks],
    }


def coverage_fields(coverage: Coverage, why_untested: Mapping[Why, Sequence[Link]]) -> CoverageLine:
    fabric, untested = coverage.fabric, untested_parts(coverage, why_untested)
    untested_links = [link_name(fabric, link) for link in coverage.untested_links]
    return CoverageLine(
        pairs=coverage.pairs,
        rounds=coverage.rounds,
        nics=len(coverage.nics),
        switches=len(fabric.switches) - len(untested["switches"]),
        links=len(fabric.links) - len(untested_links) - len(coverage.unsure_links),
        tiers=tier_rows(coverage),
        untested_switches=untested["switches"],
        untested_links=untested_links,
        across_rails_only=untested.get("across rails", []),
        out_of_reach=untested.get("out of reach", []),
        seldom_crossed_links=untested["seldom"],
        missing_uplinks=untested["missing"],
    )


def tier_rows(coverage: Coverage) -> list[TierCrossed]:
    return [
        TierCrossed(from_=low, to=high, crossed=sure, links=every)
        for (low, high), (sure, every) in coverage.counts_by_tier().items()
    ]
