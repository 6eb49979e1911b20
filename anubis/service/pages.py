"""Pages for people, made from the snapshot that readers see."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from anubis.core.errors import AnubisError
from anubis.core.history.fleet_days import health_by_day, incident_categories, times_before
from anubis.core.history.status import Incident
from anubis.core.records import CampaignKind, Judgement
from anubis.operations.fleet import ClusterGlance, campaign_at_a_glance, parts_found, steps_planned
from anubis.operations.history import drift_of_node, recall
from anubis.report import campaign_page, diagnosis_pages, drift, keep, watch_rounds
from anubis.report import service_pages as written
from anubis.report.diagnosis_pages import shown_again
from anubis.report.fleet import NodeGlance, NodeQuery, campaign_line
from anubis.report.page import simulated_note
from anubis.report.service_pages import DAYS, ClusterOnPage, ClusterOverTime, health_page
from anubis.service.api import actions_of, find_diagnosis, find_look, find_node, requester_of
from anubis.service.fleet_cache import Snapshot
from anubis.service.requester import Requester
from anubis.service.service_state import House
from anubis.service.slow_pages import (
    Inquiry,
    diagnoses_overview,
    drift_overview,
    fabric_overview,
    looks_overview,
    risk_overview,
    tickets_overview,
)

HTML = "text/html; charset=utf-8"
OVERVIEWS: Mapping[str, Inquiry] = {
    "/drift": drift_overview,
    "/tickets": tickets_overview,
    "/risk": risk_overview,
    "/fabric": fabric_overview,
    "/looks": looks_overview,
    "/diagnoses": diagnoses_overview,
}
LOOKS_EVERY_S = 2.0  # whether a page changed, for a person who watches it
STREAMED_S = 600.0  # then the browser asks again
MOST_STREAMS = 50  # open pages that are kept up to date
LIFE_SHOWN = 500  # events of a node's page: years of a node's life


def router(house: House) -> APIRouter:
    pages = APIRouter(include_in_schema=False)
    streams = asyncio.Semaphore(MOST_STREAMS)

    @pages.get("/")
    def fleet(request: Request) -> Response:
        """Write the page once for all readers, in a thread: ten thousand tiles take a while."""
        snapshot = house.board.read()
        query = NodeQuery.read(request.query_params)
        if not query.is_default:
            return _page(fleet_page(snapshot, query))
        if "fleet" not in snapshot.pages:
            blamed = list(parts_blamed(snapshot, requester_of(request)))
            snapshot.pages["fleet"] = fleet_page(snapshot, query, blamed)
        return _page(snapshot.pages["fleet"])

    @pages.get("/over-time")
    def health() -> Response:
        snapshot = house.board.read()
        if "over-time" not in snapshot.pages:
            clusters = health_of_clusters(snapshot)
            snapshot.pages["over-time"] = health_page(clusters, snapshot.at, simulated_in(snapshot))
        return _page(snapshot.pages["over-time"])

    @pages.get("/drift/{cluster}/{node:path}")
    def own_drift(cluster: str, node: str, request: Request) -> Response:
        snapshot = house.board.read()
        find_node(snapshot, cluster, node)
        requester = requester_of(request)
        own = drift_of_node(cluster, node, requester)
        return _page(drift.drift_page([own], requester.clock(), simulated_in(snapshot, cluster)))

    @pages.get("/nodes/{cluster}/{node:path}")
    async def node(cluster: str, node: str) -> Response:
        snapshot = await house.read()
        glance = find_node(snapshot, cluster, node)
        part = snapshot.clusters[cluster]
        about = (made for made in snapshot.decisions if node in made.nodes)
        about_here = [made for made in about if made.cluster == cluster]
        kept = part.kept.lives.get(node)
        actions = await actions_of(house, cluster, node, LIFE_SHOWN)
        life = part.life(node, LIFE_SHOWN, actions)
        named = [
            (past, diagnosis_pages.DiagnosedJob(cluster=cluster, past=past).href)
            for past in reversed(part.diagnosed)
            if node in past.nodes
        ]
        return _page(
            written.node(
                *(glance, life, kept, about_here, snapshot.at, named),
                simulated=simulated_in(snapshot, cluster),
            )
        )

    @pages.get("/campaigns")
    async def campaigns() -> Response:
        snapshot = await house.read()
        return _page(written.campaigns(snapshot.campaigns, snapshot.at, simulated_in(snapshot)))

    @pages.get("/campaigns/{campaign}")
    def campaign(campaign: str, request: Request) -> Response:
        house.refuse_unknown(campaign)
        requester = requester_of(request)
        row = campaign_at_a_glance(campaign, requester)
        steps = steps_planned(campaign, requester) if row.finished_at is None else 0
        snapshot = house.board.read()
        glance = snapshot.clusters.get(row.cluster)
        verdicts: Mapping[Judgement, int] = glance.verdicts_of(campaign) if glance else {}
        return _page(
            written.campaign(
                *(row, steps, verdicts, requester.clock()),
                parts=parts_found(campaign, requester)
                if CampaignKind(row.kind).names_parts
                else {},
                simulated=simulated_in(snapshot, row.cluster),
            )
        )

    @pages.get("/campaigns/{campaign}/report")
    def report(campaign: str, request: Request) -> Response:
        house.refuse_unknown(campaign)
        return _page(campaign_page.render(recall(campaign, caller=requester_of(request))))

    @pages.get("/campaigns/{campaign}/stream")
    async def stream(campaign: str, request: Request) -> Response:
        await house.run_in_thread(house.refuse_unknown, campaign)
        if streams.locked():
            return Response(status_code=503, headers={"retry-after": "10"})
        messages = _messages(campaign, requester_of(request), streams)
        return StreamingResponse(messages, media_type="text/event-stream")

    @pages.get("/stream")
    async def changes() -> Response:
        if streams.locked():
            return Response(status_code=503, headers={"retry-after": "10"})
        return StreamingResponse(_changes(house, streams), media_type="text/event-stream")

    @pages.get("/decisions")
    async def decisions() -> Response:
        snapshot = await house.read()
        return _page(
            written.decisions_made(snapshot.decisions, snapshot.at, simulated_in(snapshot))
        )

    @pages.get("/looks/{cluster}/{job:path}")
    def look(cluster: str, job: str, request: Request) -> Response:
        """Return the page that anubis watch --html writes."""
        return _page(find_look(cluster, job, request).page)

    @pages.get("/diagnoses/{cluster}/{at}/{job:path}")
    def diagnosis(cluster: str, at: str, job: str, request: Request) -> Response:
        diagnosed, details = find_diagnosis(cluster, at, job, request)
        facts = json.loads(details.page)
        return _page(shown_again(facts, diagnosed.tested, rooms="/diagnoses"))

    for path, ask in OVERVIEWS.items():
        pages.get(path)(_overview_page(house, ask))

    @pages.get("/live.js")
    def live() -> Response:
        return Response(written.live_script(), media_type="text/javascript")

    return pages


def _overview_page(house: House, ask: Inquiry) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return _page((await house.overviews.read(ask)).page)

    return answer


def _page(text: str) -> Response:
    return Response(text, media_type=HTML)


def simulated_in(snapshot: Snapshot, *clusters: str) -> str:
    """Say which of these clusters are simulated, by default of all."""
    kinds = {name: part.is_simulated for name, part in snapshot.clusters.items()}
    return simulated_note({name: kinds[name] for name in clusters or kinds if name in kinds})


def fleet_page(
    snapshot: Snapshot, query: NodeQuery, blamed: Sequence[written.PartsBlamed] = ()
) -> str:
    clusters = clusters_on_page(snapshot)
    return written.fleet(clusters, snapshot.at, query, blamed, simulated=simulated_in(snapshot))


def parts_blamed(snapshot: Snapshot, requester: Requester) -> Iterator[written.PartsBlamed]:
    """Yield the parts between nodes that the newest scan of each cluster found defective. A history
    that does not answer just now has none: the page shows what is known."""
    scans = {
        row.cluster: row
        for row in reversed(snapshot.campaigns)
        if row.finished_at and CampaignKind(row.kind).names_parts
    }
    for cluster in snapshot.clusters:
        if (scan := scans.get(cluster)) and scan.judgement is Judgement.DEFECTIVE:
            with suppress(AnubisError):
                by_judgement = parts_found(scan.campaign, requester)
                if parts := by_judgement.get(Judgement.DEFECTIVE):
                    yield written.PartsBlamed(cluster=cluster, campaign=scan.campaign, parts=parts)


def health_of_clusters(snapshot: Snapshot) -> list[ClusterOverTime]:
    """Clusters with their verdicts by day and their incidents, as the snapshot has them."""
    return [cluster_over_time(name, part) for name, part in snapshot.clusters.items()]


def cluster_over_time(name: str, part: ClusterGlance) -> ClusterOverTime:
    incidents = part.happened.known_incidents
    by_node = defaultdict[str, list[Incident]](list)
    for incident in incidents:
        by_node[incident.node].append(incident)
    return ClusterOverTime(
        name=name,
        days=health_by_day(
            part.happened.validations, part.at, DAYS, {g.node: g.judgement for g in part.nodes}
        ),
        now=Counter(glance.judgement for glance in part.nodes),
        categories=incident_categories(incidents, part.at),
        before=times_before(by_node, part.happened.watches),
    )


def clusters_on_page(snapshot: Snapshot) -> list[ClusterOnPage]:
    pages = []
    for name, part in snapshot.clusters.items():
        kept, upkeep = part.kept, snapshot.upkeep.get(name)
        proposals = sum(map(keep.waits_for_a_person, kept.actions))
        has_keeper = bool(kept.lives)
        headline = keep.headline(name, kept.lives, kept.breakers, proposals)
        if kept.doubt:
            headline = f"{kept.doubt}; {headline}"
        if turn := kept.last_turn:
            headline = f"{headline}; {keep.describe_turn(turn.at, turn.by)}"
        pages.append(
            ClusterOnPage(
                name=name,
                nodes=part.nodes,
                lives=kept.lives,
                headline=headline if has_keeper else "",
                is_alarming=bool(kept.doubt)
                or any(breaker.is_open for breaker in kept.breakers.values()),
                actions=(*(upkeep.failed if upkeep else ()), *kept.actions),
                diagnosed=diagnosis_pages.sentence(part.diagnosed) if part.diagnosed else "",
                watched=next(watch_rounds.sentences(part.looks, snapshot.at)) if part.looks else "",
            )
        )
    return pages


async def _messages(
    campaign: str, requester: Requester, streams: asyncio.Semaphore
) -> AsyncIterator[str]:
    """Messages with a campaign's progress at each change, until it is over."""
    before, look = "", partial(campaign_at_a_glance, campaign, requester)
    async with streams:
        for _ in range(int(STREAMED_S / LOOKS_EVERY_S)):
            try:
                row = await to_thread.run_sync(look)
            except AnubisError:
                return
            line = campaign_line(row)
            yield f"data: {line}\n\n" if line != before else ": nothing new\n\n"
            before = line
            if row.finished_at is not None:
                return
            await asyncio.sleep(LOOKS_EVERY_S)


async def _changes(house: House, streams: asyncio.Semaphore) -> AsyncIterator[str]:
    """Messages with the snapshot's time at each change of what pages show."""
    before = ""
    async with streams:
        for _ in range(int(STREAMED_S / LOOKS_EVERY_S)):
            snapshot = await house.read()
            now = await house.run_in_thread(_digest_of, snapshot)
            yield f'data: {{"as_of":{snapshot.at}}}\n\n' if now != before else ": nothing new\n\n"
            before = now
            await asyncio.sleep(LOOKS_EVERY_S)


def _digest_of(snapshot: Snapshot) -> str:
    """Digest of what pages show, without the progress of campaigns: their own pages follow that."""
    if "digest" not in snapshot.pages:
        facts = [*map(_shown_of_node, snapshot.nodes)]
        facts += [(row.campaign, row.finished_at) for row in snapshot.campaigns]
        facts += [(made.at, made.nodes) for made in snapshot.decisions]
        for part in snapshot.clusters.values():
            facts += [(life.node, life.state) for life in part.kept.lives.values()]
            facts += [(action.id, action.changed_at) for action in part.kept.actions]
            facts += [(scope, b.is_open) for scope, b in part.kept.breakers.items()]
            facts.append((part.cluster, part.kept.last_turn))
            facts += [(look.job, look.at) for look in part.looks]
            facts += [(past.job, past.at) for past in part.diagnosed]
        snapshot.pages["digest"] = hashlib.sha256(repr(facts).encode()).hexdigest()
    return snapshot.pages["digest"]


def _shown_of_node(node: NodeGlance) -> tuple[object, ...]:
    holder = node.hold.holder if node.hold else ""
    last = node.last.at if node.last else None
    return node.cluster, node.node, node.judgement, node.why, holder, last


def script_digests() -> tuple[str, ...]:
    return (written.report_script_digest(),)
