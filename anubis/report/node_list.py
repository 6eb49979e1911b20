"""The list of nodes on the page of the fleet: what a reader asked to see of it, and in which order.

The service answers with the rows, so that the page needs no script, and ten thousand nodes no more
of a browser than fifty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from anubis.core.errors import HostlistError
from anubis.core.fabric import natural_key
from anubis.core.keep.life import Life
from anubis.core.records import WORST_FIRST, Judgement
from anubis.report.fleet import NodeGlance, judgement_reason
from anubis.text import hostlist
from anubis.text.wording import moment, names, quantity

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
