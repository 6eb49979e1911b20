"""The pages of the service: the fleet, now and over time, a node with its life drawn along time,
campaigns and decisions. They need no script."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from urllib.parse import quote

from anubis.core.amounts import DAY_H, DAY_S, HOUR_S
from anubis.core.diagnose.cures import PastDiagnosis
from anubis.core.history.fleet_days import FleetDay, IncidentCategory, TimeBefore
from anubis.core.keep.commands import LifeAction
from anubis.core.keep.life import Life
from anubis.core.records import Judgement
from anubis.core.select.decision import Decision
from anubis.report import decision as decisions
from anubis.report import keep
from anubis.report.fleet import (
    CHOICES,
    CampaignGlance,
    NodeGlance,
    NodeQuery,
    judgement_reason,
    list_nodes,
    node_row,
    progress,
    tested_at,
)
from anubis.report.history import Happening
from anubis.report.page import page
from anubis.report.svg import Axis, Chart, Element, add, picture, serialize, title
from anubis.report.view import GLYPH, PARTS_NAMED
from anubis.text.wording import moment, names, quantity

LANES = ("event", "repair", "action", "incident", "validation")  # from the bottom
CALLED = ("events", "repairs", "keeper", "incidents", "tests")
# between two ticks: round numbers of hours, days and weeks
STEPS_S = (HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S, 14 * DAY_S, 30 * DAY_S, 90 * DAY_S, 365 * DAY_S)
MOST_TICKS = 8  # more dates overlap on a screen of 420 pixels
SHORTEST_S = HOUR_S  # that is drawn: a life of a minute is no line
THICK, THIN = 12.0, 3.0  # pixels: how high a bar is, and how wide it is at least


def life_line(life: Sequence[Happening], now: float) -> str:
    """Draw the life of a node; empty if there is nothing to draw. What is not over goes on until
    now."""
    drawn = [happening for happening in life if happening.kind in LANES and happening.at <= now]
    if not drawn:
        return ""
    begin = min(min(happening.at for happening in drawn), now - SHORTEST_S)
    chart = _chart(begin, now)
    tests = sum(happening.kind == "validation" for happening in drawn)
    canvas = chart.frame(f"{len(drawn)} events since {moment(begin)}, {tests} tests")
    for lane, name in enumerate(CALLED):  # letters of a narrow screen are too wide for the margin
        add(canvas, "text", name, class_="again", x=0.0, y=chart.y(lane) - THICK)
    for happening in drawn:
        _draw(happening, chart, canvas, now)
    return serialize(canvas)


def _chart(begin: float, end: float) -> Chart:
    step = next((step for step in STEPS_S if (end - begin) / step <= MOST_TICKS), STEPS_S[-1])
    first = begin - begin % step + step
    ticks = [first + step * place for place in range(int((end - first) // step) + 1)]
    form = "%Y-%m-%d" if step >= DAY_S else "%m-%d %H:%M"
    return Chart(
        width=960,
        height=220,
        right=44,  # half of a date
        across=Axis(
            title="UTC",
            begin=begin,
            end=end,
            spelled=lambda at: datetime.fromtimestamp(at, UTC).strftime(form),
            marks=ticks or [end],
        ),
        up=Axis(
            title="",
            begin=-0.6,
            end=len(LANES) - 0.4,
            spelled=lambda lane: CALLED[int(lane)],
            marks=range(len(LANES)),
        ),
    )


def _draw(happening: Happening, chart: Chart, canvas: Element, now: float) -> None:
    lane = LANES.index(happening.kind)
    if happening.kind == "validation":
        mark = chart.dot(canvas, (happening.at, lane), f"lane {happening.judgement}")
    else:
        mark = _bar(happening, lane, chart, canvas, now)
    title(mark, f"{moment(happening.at)}: {happening.summary}")


def _bar(happening: Happening, lane: int, chart: Chart, canvas: Element, now: float) -> Element:
    left = chart.x(happening.at)
    right = chart.x(now if happening.end is None else min(now, happening.end))
    return add(
        canvas,
        "rect",
        class_=f"lane {happening.kind}",
        x=left,
        y=chart.y(lane) - THICK / 2,
        width=max(THIN, right - left),
        height=THICK,
    )


LISTED = 50  # actions of a cluster
LEAST = 0.1  # hours that are written
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


@dataclass(frozen=True, kw_only=True)
class PartsBlamed:
    """Parts between nodes that the newest scan of a cluster found defective."""

    cluster: str
    campaign: str
    parts: Sequence[str]


def fleet(
    clusters: Sequence[ClusterOnPage],
    as_of: float,
    query: NodeQuery = NodeQuery(),  # noqa: B008
    blamed: Sequence[PartsBlamed] = (),
    *,
    simulated: str = "",
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
        simulated=simulated,
        title=" · ".join(f"{number:,} {judgement.value}" for judgement, number in counts),
        counts=counts,
        clusters=clusters,
        blamed=blamed,
        names=names,
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
    *,
    simulated: str = "",
) -> str:
    """Render the page of a node. `diagnosed`: diagnoses of jobs that suspect it, and the link to
    each."""
    hold, attributes = glance.hold, glance.attributes
    row = node_row(glance, kept)
    reason = judgement_reason(glance)
    facts = (
        ("state", kept.state.value if kept else ""),
        ("why", keep.state_reason(kept) if kept and row.why == reason else ""),
        ("ticket", kept.ticket if kept else ""),
        ("held by", f"{hold.holder} since {moment(hold.since)}" if hold else ""),
        ("last test", f"{row.last} {tested_at(row)}".rstrip()),
        ("sku", attributes.sku),
        ("rack", attributes.rack),
        ("cage", attributes.cage),
    )
    return page(
        "service_node",
        here="",
        as_of=as_of,
        simulated=simulated,
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
        why=row.why,
        since=reason if reason not in row.why else "",
    )


def campaigns(rows: Sequence[CampaignGlance], as_of: float, simulated: str = "") -> str:
    return page(
        "service_campaigns",
        here="/campaigns",
        as_of=as_of,
        simulated=simulated,
        campaigns=rows,
        running=sum(row.finished_at is None for row in rows),
        judged=[(j, sum(row.judgement is j for row in rows)) for j in SHOWN],
        glyph=GLYPH,
        progress=progress,
    )


def campaign(
    row: CampaignGlance,
    steps: int,
    verdicts: Mapping[Judgement, int],
    as_of: float,
    *,
    parts: Mapping[Judgement, Sequence[str]] | None = None,
    simulated: str = "",
) -> str:
    """Render the page of a campaign. `steps`: about how many executions its plan has; 0: it is
    over, or unknown. `verdicts`: number of nodes by what it found; empty if that is not known.
    `parts`: those between nodes that are defective or in doubt."""
    counts = [(judgement, verdicts[judgement]) for judgement in SHOWN if verdicts.get(judgement)]
    parts = parts or {}
    blamed = [(j, parts[j]) for j in (Judgement.DEFECTIVE, Judgement.UNKNOWN) if parts.get(j)]
    return page(
        "service_campaign",
        here="",
        as_of=as_of,
        simulated=simulated,
        row=row,
        steps=steps,
        found=counts,
        blamed=blamed,
        parts_named=PARTS_NAMED,
        of_the_whole=row.judgement if row.judgement not in dict([*counts, *blamed]) else None,
        progress=progress,
    )


def decisions_made(made: Sequence[Decision], as_of: float, simulated: str = "") -> str:
    return page(
        "service_decisions",
        here="/decisions",
        as_of=as_of,
        simulated=simulated,
        decisions=made,
        testing=sum(bool(decision.tests) and not decision.refused for decision in made),
        event_of=decisions.event_of,
        paragraph=decisions.paragraph,
        sentence=decisions.sentence,
        test_rows=decisions.test_rows,
        columns=decisions.TEST_COLUMNS,
    )


def refusal_page(phrase: str, sentence: str, as_of: float) -> str:
    """Return the page of what cannot be shown, with the way to the others."""
    sentence = sentence[:1].upper() + sentence[1:]
    return page(
        "service_refusal", here="", as_of=as_of, simulated="", phrase=phrase, sentence=sentence
    )


def live_script() -> str:
    return (TEMPLATES / "live.js").read_text(encoding="utf-8")


def report_script_digest() -> str:
    """Return the digest by which a browser allows the one script in the page of a campaign."""
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8").removesuffix("\n")
    digest = hashlib.sha256(f"\n{script}".encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


DAYS = 30  # a month
WIDE, HIGH, BELOW = 960.0, 190.0, 22.0  # of the picture, and of the dates below it
GAP = 0.16  # of a day


@dataclass(frozen=True, kw_only=True)
class ClusterOverTime:
    name: str
    now: Mapping[Judgement, int]  # nodes, as the page of the fleet has them
    days: Sequence[FleetDay]
    categories: Sequence[IncidentCategory]
    before: Sequence[TimeBefore]

    @property
    def was_tested(self) -> bool:
        return any(map(tests, self.days))

    @property
    def nodes(self) -> int:
        return sum(self.now.values())

    @property
    def incidents(self) -> int:
        return sum(row.incidents for row in self.categories)

    @property
    def lost_h(self) -> float:
        """Node-hours that the incidents took."""
        return sum(row.lost_h for row in self.categories)


def health_page(clusters: Sequence[ClusterOverTime], as_of: float, simulated: str = "") -> str:
    return page(
        "service_over_time",
        here="/over-time",
        as_of=as_of,
        simulated=simulated,
        clusters=clusters,
        healthy=_count(clusters, Judgement.HEALTHY),
        others=[
            (kind, _count(clusters, kind)) for kind in (Judgement.DEFECTIVE, Judgement.UNKNOWN)
        ],
        nodes=sum(cluster.nodes for cluster in clusters),
        incidents=sum(cluster.incidents for cluster in clusters),
        lost_h=sum(cluster.lost_h for cluster in clusters),
        drawing=days_picture,
        tenths=tenths,
        date=date,
        hours=hours,
        course=course,
        shown=DAYS,
    )


def _count(clusters: Sequence[ClusterOverTime], judgement: Judgement) -> int:
    return sum(cluster.now.get(judgement, 0) for cluster in clusters)


def course(cluster: ClusterOverTime) -> str:
    """Return what the fleet came to, in a sentence or two."""
    tested = [day for day in cluster.days if tests(day)]
    if not tested:
        return f"No node was tested in the last {len(cluster.days)} days."
    first, last = tested[0], tested[-1]
    healthy = cluster.now.get(Judgement.HEALTHY, 0)
    now = f"{healthy:,} of {quantity(cluster.nodes, 'node')} healthy now"
    before = f", {first.healthy:,} of {tests(first):,} tested nodes on {date(first.begin)}"
    cost = ""
    if cluster.incidents:
        took = f"took {tenths(cluster.lost_h)} node-hours"
        cost = f" {quantity(cluster.incidents, 'incident')} {took}."
    return f"{now}{before if first is not last else ''}.{cost}"


def tests(day: FleetDay) -> int:
    """Number of nodes that tests had shown anything of."""
    return day.healthy + day.defective + day.unknown


def days_picture(days: Sequence[FleetDay]) -> str:
    """Draw a column for each day: the nodes that are not healthy at its foot, so that one of a
    thousand is seen as well as one of ten."""
    largest = max(map(tests, days), default=0) or 1
    label = f"nodes by their test results on each of the last {len(days)} days"
    canvas = picture(WIDE, HIGH + BELOW, "chart days", label)
    step = WIDE / max(1, len(days))
    for place, day in enumerate(days):
        counts = {"defective": day.defective, "unknown": day.unknown, "healthy": day.healthy}
        column = add(canvas, "g")
        words = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
        title(column, f"{date(day.begin)}: {words}")
        foot = HIGH
        for kind, number in counts.items():
            height = max(3.0, (HIGH - 6) * number / largest) if number else 0.0
            foot -= height
            add(
                column,
                "rect",
                class_=kind,
                x=(place + GAP / 2) * step,
                y=max(0.0, foot),
                width=(1 - GAP) * step,
                height=height,
            )
    for place in (0, len(days) // 2, len(days) - 1) if days else ():
        middle = min(max((place + 0.5) * step, 40), WIDE - 40)
        add(canvas, "text", date(days[place].begin), x=middle, y=HIGH + BELOW / 2)
    return serialize(canvas)


def date(at: float) -> str:
    return moment(at).partition(" ")[0]


def tenths(amount: float) -> str:
    """Write an amount with a tenth if it is small, so that rounded parts add up to what is said of
    the whole."""
    if 0 < amount < LEAST:
        return f"under {LEAST}"
    return f"{amount:,.1f}" if amount < 10 else f"{amount:,.0f}"


def hours(amount: float | None) -> str:
    if amount is None:
        return "-"
    return f"{tenths(amount)} h" if amount < 2 * DAY_H else f"{amount / DAY_H:,.1f} days"
