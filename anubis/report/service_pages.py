"""The pages of the service: the fleet, a node, campaigns and decisions. They need no script."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from urllib.parse import quote

from anubis.core.diagnose.cures import PastDiagnosis
from anubis.core.keep.actions import LifeAction
from anubis.core.keep.life import Life
from anubis.core.records import Judgement
from anubis.core.select.decision import Decision
from anubis.report import decision as decisions
from anubis.report import keep
from anubis.report.fleet import CampaignGlance, NodeGlance, judgement_reason, progress
from anubis.report.history import Happening
from anubis.report.life_line import life_line
from anubis.report.node_list import CHOICES, NodeQuery, list_nodes, node_row, tested_at
from anubis.report.page import page
from anubis.report.view import GLYPH
from anubis.text.wording import moment

LISTED = 50  # actions of a cluster
SHOWN = (Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN)
TEMPLATES = files("anubis.report") / "templates"


@dataclass(frozen=True, kw_only=True)
class ClusterOnPage:
    name: str
    nodes: Sequence[NodeGlance]
    lives: Mapping[str, Life]
    headline: str  # of the keeper; empty: no keeper
    is_alarming: bool
    actions: Sequence[LifeAction]
    diagnosed: str = ""  # nodes that diagnoses of jobs suspected; empty: none
    watched: str = ""  # what the last looks at its jobs came to; empty: none was taken

    @property
    def places(self) -> list[tuple[str, list[NodeGlance]]]:
        """Group nodes by rack, or else by sku, in the order of the nodes."""
        by_place = defaultdict[str, list[NodeGlance]](list)
        for node in self.nodes:
            by_place[node.attributes.rack or node.attributes.sku].append(node)
        return list(by_place.items())


def fleet(
    clusters: Sequence[ClusterOnPage],
    as_of: float,
    query: NodeQuery = NodeQuery(),  # noqa: B008
) -> str:
    """Render the fleet: a page of the list of nodes and, unless some were sought, all of them as
    tiles."""
    rows = (node_row(node, c.lives.get(node.node)) for c in clusters for node in c.nodes)
    judged = [node.judgement for cluster in clusters for node in cluster.nodes]
    counts = [(judgement, judged.count(judgement)) for judgement in SHOWN]
    return page(
        "service_fleet",
        here="/",
        as_of=as_of,
        title=" · ".join(f"{number:,} {judgement.value}" for judgement, number in counts),
        counts=counts,
        clusters=clusters,
        nodes=list_nodes(rows, query),
        choices=CHOICES,
        is_whole=query.is_default,
        tested_at=tested_at,
        tiles=tiles,
        listed=LISTED,
        glyph=GLYPH,
        href=href,
        sentence=keep.sentence,
    )


def tiles(nodes: Iterable[NodeGlance]) -> str:
    """Draw a tile for each node. Only those that are not healthy are links, and none stops the
    tabulator: the list above has them all."""
    return "".join(map(_tile, nodes))


def _tile(node: NodeGlance) -> str:
    kind = f"t {node.judgement.value}{' held' if node.hold else ''}"
    name = escape(node.node)
    if node.judgement is Judgement.HEALTHY:
        return f'<i class="{kind}" data-node="{name}"></i>'
    about = f"{name}: {node.judgement.value}"
    return (
        f'<a class="{kind}" data-node="{name}" href="{href(node)}" tabindex="-1" title="{about}" '
        f'aria-label="{about}"></a>'
    )


def href(node: NodeGlance) -> str:
    return path_of(node.cluster, node.node)


def path_of(cluster: str, node: str) -> str:
    return f"/nodes/{quote(cluster, safe='')}/{quote(node, safe='')}"


def node(
    glance: NodeGlance,
    life: Sequence[Happening],
    kept: Life | None,
    made: Iterable[Decision],
    as_of: float,
    diagnosed: Sequence[tuple[PastDiagnosis, str]] = (),
) -> str:
    """Render the page of a node. `diagnosed`: diagnoses of jobs that suspect it, and the link to
    each."""
    hold, last, attributes = glance.hold, glance.last, glance.attributes
    facts = (
        ("state", kept.state.value if kept else ""),
        ("why", keep.state_reason(kept) if kept else ""),
        ("ticket", kept.ticket if kept else ""),
        ("held by", f"{hold.holder} since {moment(hold.since)}" if hold else ""),
        ("last verdict", f"{last.outcome} {moment(last.at)}" if last else ""),
        ("sku", attributes.sku),
        ("rack", attributes.rack),
        ("cage", attributes.cage),
    )
    return page(
        "service_node",
        here="",
        as_of=as_of,
        node=glance,
        facts=facts,
        line=life_line(life, as_of),
        drift=f"/drift/{quote(glance.cluster, safe='')}/{quote(glance.node, safe='')}",
        life=life,
        decisions=list(made),
        diagnosed=diagnosed,
        paragraph=decisions.paragraph,
        sentence=decisions.sentence,
        test_rows=decisions.test_rows,
        columns=decisions.TEST_COLUMNS,
        why=judgement_reason,
    )


def campaigns(rows: Sequence[CampaignGlance], as_of: float) -> str:
    return page(
        "service_campaigns",
        here="/campaigns",
        as_of=as_of,
        campaigns=rows,
        running=sum(row.finished_at is None for row in rows),
        judged=[(j, sum(row.judgement is j for row in rows)) for j in SHOWN],
        glyph=GLYPH,
        progress=progress,
    )


def campaign(
    row: CampaignGlance, steps: int, verdicts: Mapping[Judgement, int], as_of: float
) -> str:
    """Render the page of a campaign. `steps`: about how many executions its plan has; 0: it is
    over, or unknown. `verdicts`: number of nodes by what it found; empty if that is not known."""
    return page(
        "service_campaign",
        here="",
        as_of=as_of,
        row=row,
        steps=steps,
        found=[(j, verdicts[j]) for j in SHOWN if verdicts.get(j)],
        progress=progress,
    )


def decisions_made(made: Sequence[Decision], as_of: float) -> str:
    return page(
        "service_decisions",
        here="/decisions",
        as_of=as_of,
        decisions=made,
        testing=sum(bool(decision.tests) for decision in made),
        event_of=decisions.event_of,
        paragraph=decisions.paragraph,
        sentence=decisions.sentence,
        test_rows=decisions.test_rows,
        columns=decisions.TEST_COLUMNS,
    )


def live_script() -> str:
    return (TEMPLATES / "live.js").read_text(encoding="utf-8")


def report_script_digest() -> str:
    """Return the digest by which a browser allows the one script in the page of a campaign."""
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8").removesuffix("\n")
    digest = hashlib.sha256(f"\n{script}".encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
