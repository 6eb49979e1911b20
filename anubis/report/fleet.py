"""Nodes and campaigns at a glance, as tables and as JSON Lines; and the list of nodes on the page
of the fleet: what a reader asked to see of it, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from anubis.core.errors import HostlistError
from anubis.core.fabric import natural_key
from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.status import Validation
from anubis.core.keep.life import Life
from anubis.core.records import WORST_FIRST, Judgement
from anubis.report.json import json_line
from anubis.report.screen_tables import add_row, table
from anubis.report.view import GLYPH
from anubis.store.holds import Hold
from anubis.text import hostlist
from anubis.text.wording import moment, names, quantity

if TYPE_CHECKING:
    from rich.console import Console


PASSES_NAMED = 4  # fit into a cell of the table; the rest is counted


@dataclass(frozen=True, kw_only=True)
class NodeGlance:
    """The known facts of a node, without a further test."""

    node: str
    cluster: str
    judgement: Judgement  # as a gate has it that runs nothing
    why: str = ""  # it is out of service, owes an answer, or a clock is in doubt
    hold: Hold | None = None
    last: Validation | None = None
    passed: Mapping[str, float] = field(default_factory=dict)  # benchmarks, and when
    attributes: NodeAttributes


@dataclass(frozen=True, kw_only=True)
class CampaignGlance:
    """A campaign and its progress."""

    campaign: str
    cluster: str
    kind: str
    suite: str
    nodes: int
    created_at: float
    """Seconds since 1970."""
    finished_at: float | None
    """null: it is not over."""
    judgement: Judgement | None
    """The judgement of the whole; null: it is not over."""
    executions: Mapping[str, int]
    """How many ended how: measured, failed, timed-out, ..."""


@dataclass(frozen=True, kw_only=True)
class StandingLine:
    node: str
    cluster: str
    judgement: Judgement
    """The answer of a gate that runs no tests."""
    why: str
    """It is out of service, owes an answer, or its passes do not count, as a clock is or was wrong;
    empty: none of these."""
    holder: str | None
    """The campaign that holds it now."""
    held_since: float | None
    last_verdict: Judgement | None
    last_code: str | None
    last_campaign: str | None
    last_at: float | None
    """Seconds since 1970."""
    passed: Mapping[str, float]
    """When it last passed each benchmark, of the passes that count."""
    sku: str
    rack: str
    cage: str


def node_fields(glance: NodeGlance) -> StandingLine:
    last, hold, attributes = glance.last, glance.hold, glance.attributes
    return StandingLine(
        node=glance.node,
        cluster=glance.cluster,
        judgement=glance.judgement,
        why=glance.why,
        holder=hold.holder if hold else None,
        held_since=hold.since if hold else None,
        last_verdict=last.judgement if last else None,
        last_code=last.code if last else None,
        last_campaign=last.campaign if last else None,
        last_at=last.at if last else None,
        passed=glance.passed,
        sku=attributes.sku,
        rack=attributes.rack,
        cage=attributes.cage,
    )


def node_line(glance: NodeGlance) -> str:
    return json_line("standing", node_fields(glance))


def campaign_line(glance: CampaignGlance) -> str:
    return json_line("campaign-status", glance)


def judgement_reason(glance: NodeGlance) -> str:
    """Return the reason beside the judgement of a node."""
    if glance.why:
        return glance.why
    if glance.judgement is Judgement.HEALTHY:
        return f"passed {names(sorted(glance.passed), PASSES_NAMED)}"
    if glance.last is None:
        return "never tested"
    return "no pass that counts since its last incident, repair, defect or upgrade"


def show_nodes(glances: Sequence[NodeGlance], console: Console) -> None:
    """Print the counts, and a row for each node; first those that are not healthy."""
    clusters = {glance.cluster for glance in glances}
    names = [glance.node for glance in glances]
    rows = table("node", "", "last verdict (UTC)", "held by", "why", gap=2, names=names)
    for glance in sorted(glances, key=lambda glance: glance.judgement is Judgement.HEALTHY):
        name = glance.node if len(clusters) == 1 else f"{glance.cluster}: {glance.node}"
        head = f"{GLYPH[glance.judgement]} {glance.judgement}"
        held = glance.hold.holder if glance.hold else ""
        add_row(rows, name, head, _last(glance.last), held, judgement_reason(glance))
    console.print(_counts(glances), markup=False)
    console.print()
    console.print(rows)


def _last(last: Validation | None) -> str:
    return f"{last.judgement} {_show_time(last.at)}" if last else "-"


def _counts(glances: Sequence[NodeGlance]) -> str:
    judged = [glance.judgement for glance in glances]
    counts = [f"{judged.count(judgement):,} {judgement}" for judgement in Judgement]
    return f"{quantity(len(glances), 'node')}: {', '.join(counts[:3])}"


WIDE = 80  # columns: there is room for the whole name of a campaign, to be copied


def show_campaigns(glances: Sequence[CampaignGlance], console: Console) -> None:
    is_one = len({glance.cluster for glance in glances}) == 1
    headings = ("campaign", *(() if is_one else ("cluster",)), "suite", "", "when (UTC)")
    rows = table(*headings, figures=("nodes", "runs"), gap=2)
    rows.columns[0].no_wrap = is_one and console.width >= WIDE
    for glance in glances:
        cluster = () if is_one else (glance.cluster,)
        numbers = (f"{glance.nodes:,}", f"{sum(glance.executions.values()):,}")
        words = (glance.campaign, *cluster, glance.suite, progress(glance))
        add_row(rows, *words, _show_time(glance.created_at), *numbers)
    console.print(rows)


def progress(glance: CampaignGlance) -> str:
    if glance.finished_at is None:
        return "not over"
    return f"{GLYPH[glance.judgement]} {glance.judgement}" if glance.judgement else "over"


def _show_time(at: float) -> str:
    return moment(at).removesuffix(" UTC")


PAGE = 50  # rows
NOT_HEALTHY = "not-healthy"
CHOICES = (NOT_HEALTHY, "all", "healthy", "defective", "unknown")
PROGRAMS_NAMED = 2  # fit into a cell; more are counted
LONGEST = 1_000  # letters of a search


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """A node in the list. `state`: its state for the keeper; empty: no keeper has it."""

    glance: NodeGlance
    state: str = ""
    why: str
    last: str

    @property
    def text(self) -> str:
        """All that a search looks at."""
        glance = self.glance
        place = (glance.cluster, glance.node, glance.attributes.rack, glance.attributes.sku)
        return " ".join((*place, glance.judgement.value, self.state, self.why, self.last)).lower()


def node_row(glance: NodeGlance, life: Life | None) -> NodeRow:
    """Row of a node: why it is not healthy with the figures of its defect, if its keeper has
    them, and what its last test came to."""
    defect = life.defect if life and glance.judgement is Judgement.DEFECTIVE else None
    return NodeRow(
        glance=glance,
        state=life.state.value if life else "",
        why=f"{defect.reason} ({defect.code})" if defect else judgement_reason(glance),
        last=_describe_last_test(glance),
    )


def _describe_last_test(glance: NodeGlance) -> str:
    """Describe the last test: a pass of other programs than the one that failed is said to be
    no more than that."""
    last = glance.last
    if last is None:
        return "never tested"
    of = last.benchmarks
    programs = quantity(len(of), "program") if len(of) > PROGRAMS_NAMED else names(of) or "programs"
    if last.judgement is not Judgement.HEALTHY:
        return f"{programs} ran: {last.code or last.judgement.value}"
    only = "only " if glance.judgement is Judgement.DEFECTIVE else ""
    return f"passed {only}{programs}"


ORDERS: Mapping[str, Callable[[NodeRow], tuple[object, ...]]] = {
    "verdict": lambda row: (WORST_FIRST.index(row.glance.judgement),),
    "node": lambda row: (),
    "state": lambda row: (row.state,),
    "tested": lambda row: (row.glance.last.at if row.glance.last else 0.0,),  # longest ago first
}


@dataclass(frozen=True, kw_only=True)
class NodeQuery:
    """What a reader wants to see of the list. Unknown words of an address mean the default."""

    words: str = ""
    show: str = ""  # empty: those that are not healthy, or all if there are none
    sort: str = "verdict"
    page: int = 1

    @classmethod
    def read(cls, parameters: Mapping[str, str]) -> NodeQuery:
        show, sort = parameters.get("show", ""), parameters.get("sort", "")
        number = parameters.get("page", "1")
        return cls(
            words=parameters.get("q", "").strip()[:LONGEST],
            show=show if show in CHOICES else "",
            sort=sort if sort in ORDERS else "verdict",
            page=max(1, int(number)) if number.isdecimal() and len(number) < PAGE else 1,
        )

    @property
    def is_default(self) -> bool:
        return self == NodeQuery()

    def href(self, **changes: object) -> str:
        """Address of the same list with these changes; on its first page unless one is named."""
        changed = replace(self, **{"page": 1, **changes})  # type: ignore[arg-type] # of any field
        values = {
            "q": changed.words,
            "show": changed.show,
            "sort": changed.sort,
            "page": changed.page,
        }
        default = {"q": "", "show": "", "sort": "verdict", "page": 1}
        return "/?" + urlencode(
            {key: value for key, value in values.items() if value != default[key]}
        )


@dataclass(frozen=True, kw_only=True)
class ListedNodes:
    """A page of the list."""

    query: NodeQuery
    rows: Sequence[NodeRow]
    found: int
    others: int  # that fit, and are not of the kind that is shown
    counts: Mapping[str, int]  # nodes by each choice

    @property
    def first(self) -> int:
        return (self.query.page - 1) * PAGE

    @property
    def pages(self) -> int:
        return max(1, -(-self.found // PAGE))


def list_nodes(rows: Iterable[NodeRow], query: NodeQuery) -> ListedNodes:
    """The page of the list that was asked for; the last one if there are fewer."""
    rows = list(rows)
    judged = [row.glance.judgement.value for row in rows]
    counts = {choice: judged.count(choice) for choice in CHOICES}
    counts |= {"all": len(rows), NOT_HEALTHY: len(rows) - counts["healthy"]}
    show = query.show or (NOT_HEALTHY if counts[NOT_HEALTHY] else "all")
    fits = _matcher(query.words)
    fitting = [row for row in rows if fits(row)]
    matches = [row for row in fitting if _is_shown(row, show)]
    order = ORDERS[query.sort]
    matches.sort(key=lambda row: (*order(row), row.glance.cluster, natural_key(row.glance.node)))
    pages = max(1, -(-len(matches) // PAGE))
    query = replace(query, show=show, page=min(query.page, pages))
    first = (query.page - 1) * PAGE
    return ListedNodes(
        query=query,
        rows=matches[first : first + PAGE],
        found=len(matches),
        others=len(fitting) - len(matches),
        counts=counts,
    )


def _is_shown(row: NodeRow, show: str) -> bool:
    judgement = row.glance.judgement
    if show == NOT_HEALTHY:
        return judgement is not Judgement.HEALTHY
    return show == "all" or judgement.value == show


def _matcher(words: str) -> Callable[[NodeRow], bool]:
    """A row fits if it has all of the words, or if they are a node list with its node."""
    if "[" in words or "," in words:
        try:
            nodes = set(hostlist.expand(words))
        except HostlistError:
            nodes = set()
        if nodes:
            return lambda row: row.glance.node in nodes
    sought = words.lower().split()
    return lambda row: not sought or all(word in row.text for word in sought)


def tested_at(row: NodeRow) -> str:
    return moment(row.glance.last.at) if row.glance.last else ""
