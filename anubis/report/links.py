"""The network between nodes, cluster by cluster: when it was last measured and what is suspected,
as JSON Lines and as a page. What was never measured is unknown, and never shown as good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anubis.core.network.recency import NICS, Recency
from anubis.core.records import Judgement
from anubis.report.gate import BadLink
from anubis.report.json import json_line
from anubis.report.network_page import network_section
from anubis.report.page import page
from anubis.report.view import GLYPH, NetworkView
from anubis.text.wording import moment, names

if TYPE_CHECKING:
    pass

LISTED = 100  # suspects and paths


@dataclass(frozen=True, kw_only=True)
class SuspectedPart:
    """A part that was blamed, doubted or suspected and that no later campaign has crossed."""

    subject: str
    judgement: Judgement
    code: str
    reason: str
    campaign: str
    """Empty: suspected between campaigns, by standing pings or a report."""
    at: float


@dataclass(frozen=True, kw_only=True)
class TogetherMeasured:
    """A program that needs several nodes: on how many it ran, and when it ran last."""

    benchmark: str
    nodes: int
    """Number of nodes on which it ran together with others."""
    newest: float | None
    """null: never."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BetweenNodes:
    cluster: str
    nodes: int
    campaign: str  # the newest that crossed a fabric; empty: none did
    at: float | None
    view: NetworkView | None
    tiers: Mapping[tuple[int, int], Recency]
    pairs: Mapping[int, Recency]  # by hops
    suspects: tuple[SuspectedPart, ...]
    paths: Mapping[tuple[str, ...], str]  # without a topology: nodes that do badly together, why
    together: tuple[TogetherMeasured, ...]

    @property
    def defective(self) -> int:
        surely = sum(suspect.judgement is Judgement.DEFECTIVE for suspect in self.suspects)
        return surely + len(self.paths)

    @property
    def doubted(self) -> int:
        return len(self.suspects) + len(self.paths) - self.defective

    @property
    def unmeasured(self) -> int:
        """Number of links that no campaign crossed, or that were crossed too seldom to be sure."""
        return sum(recency.every - recency.measured for recency in self.tiers.values())


@dataclass(frozen=True, kw_only=True)
class RecencyFields:
    every: int
    measured: int
    """Number that the newest campaigns across the fabric measured; links only if crossed almost
    surely."""
    below_normal: int
    """Number of pairs that were below normal when last measured; 0 for links."""
    oldest: float | None
    """null: none of it was measured."""
    newest: float | None


@dataclass(frozen=True, kw_only=True)
class LinksMeasured(RecencyFields):
    tiers: Sequence[int]
    """The two tiers that they join; 0 are the nodes."""


@dataclass(frozen=True, kw_only=True)
class PairsMeasured(RecencyFields):
    hops: int


@dataclass(frozen=True, kw_only=True)
class BetweenLine:
    cluster: str
    campaign: str
    """The newest that crossed the fabric; empty: none did."""
    measured_at: float | None
    """null: not measured, and so unknown."""
    links: Sequence[LinksMeasured]
    pairs: Sequence[PairsMeasured]
    """Ordered pairs of NICs."""
    suspects: Sequence[SuspectedPart]
    """Parts that were blamed, doubted or suspected, and that no later campaign crossed."""
    bad_links: Sequence[BadLink]
    """Nodes that do badly together, if no topology is known."""
    together: Sequence[TogetherMeasured]
    """Programs that need several nodes."""


def network_line(between: BetweenNodes) -> str:
    fields = BetweenLine(
        cluster=between.cluster,
        campaign=between.campaign,
        measured_at=between.at,
        links=[LinksMeasured(tiers=t, **_measured(r)) for t, r in between.tiers.items()],
        pairs=[PairsMeasured(hops=h, **_measured(r)) for h, r in between.pairs.items()],
        suspects=between.suspects,
        bad_links=[BadLink(nodes=nodes, reason=why) for nodes, why in between.paths.items()],
        together=between.together,
    )
    return json_line("fabric", fields)


def _measured(recency: Recency) -> dict[str, Any]:
    """Return what links and pairs have in common."""
    fields = dict(vars(recency))
    return {"below_normal": fields.pop("short"), **fields}


def fabric_page(clusters: Sequence[BetweenNodes], as_of: float, simulated: str = "") -> str:
    drawings = [
        network_section(between.view, anchor=f"network-{number}") if between.view else ""
        for number, between in enumerate(clusters, start=1)
    ]
    return page(
        "service_fabric",
        here="/fabric",
        as_of=as_of,
        simulated=simulated,
        clusters=list(zip(clusters, drawings, strict=True)),
        counts=list(counts(clusters)),
        to_do=to_do,
        tier_name=tier_name,
        span=span,
        glyph=GLYPH,
        listed=LISTED,
    )


def counts(clusters: Sequence[BetweenNodes]) -> Iterator[tuple[str, int, str]]:
    """Yield the parts of the first line: a class, a number and its words."""
    defective = sum(between.defective for between in clusters)
    doubted = sum(between.doubted for between in clusters)
    unmeasured = sum(between.unmeasured for between in clusters)
    measured = sum(r.measured for between in clusters for r in between.tiers.values())
    words = "defective part" if defective == 1 else "defective parts"
    yield "defective" if defective else "none", defective, words
    if doubted:
        yield "unknown", doubted, "suspected"
    never = [between for between in clusters if between.nodes and between.at is None]
    if never:
        yield "unknown", len(never), f"{'clusters' if never[1:] else 'cluster'} never measured"
    if measured or unmeasured:
        yield "unknown" if unmeasured else "none", unmeasured, "links never measured"
        is_good = not (defective or doubted)
        yield "healthy" if is_good else "none", measured, "measured"


def to_do(between: BetweenNodes) -> str:
    if not between.nodes:
        return "no node was tested yet: begin with anubis accept."
    if between.at is None:
        and_suspected = ", and a part of it is suspected" if between.doubted else ""
        return (
            f"the fabric was never measured{and_suspected}: anubis scan --topology FILE measures it"
            " and names the part behind what is slow."
        )
    age = f"measured last {moment(between.at)}"
    if between.defective or between.doubted:
        look_at = names([*(s.subject for s in between.suspects), *map(path_name, between.paths)], 2)
        return f"{age}. Look at {look_at}, then scan again: a clean scan clears it."
    if between.unmeasured:
        return f"{age}, nothing suspected; scan with more nodes to cross the rest."
    return f"{age}, all of it, and nothing suspected."


def path_name(nodes: Sequence[str]) -> str:
    return f"what is between {' and '.join(nodes)}"


def tier_name(tiers: tuple[int, int]) -> str:
    low, high = tiers
    if tiers == NICS:
        return "nodes to switches"
    return f"tier {low} to {high}" if low != high else f"within tier {low}"


def span(recency: Recency) -> str:
    """Return when the measured links were last measured."""
    if recency.oldest is None or recency.newest is None:
        return "never"
    oldest, newest = moment(recency.oldest), moment(recency.newest)
    return newest if oldest == newest else f"{newest}, some of it {oldest}"
