"""Routes for programs, under /v1: the documents that `--json` prints, in lists."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from anubis.core.history.events import KEPT
from anubis.core.keep.commands import LifeAction
from anubis.core.records import Judgement
from anubis.operations.diagnose_due import kept_diagnosis
from anubis.operations.fleet import campaign_at_a_glance
from anubis.operations.history import recall
from anubis.operations.import_ import report_incidents
from anubis.operations.kernel_lines import LineReport, take_lines
from anubis.operations.requests import GateRequest, Terms
from anubis.operations.tell import Telling
from anubis.operations.watch_rounds import last_look
from anubis.report import decision as decisions
from anubis.report import history as history_words
from anubis.report import jsonl
from anubis.report.diagnosis_pages import DiagnosedJob, diagnosed_line
from anubis.report.documents import ReceiptLine
from anubis.report.fleet import NodeGlance, campaign_line
from anubis.report.imports import incidents_line, kernel_lines_line
from anubis.report.json import json_line
from anubis.report.schemas import request_schema, schemas
from anubis.service.fleet_cache import Snapshot
from anubis.service.gate import Gang, GateQuestion
from anubis.service.problems import MEDIA_TYPE, SCHEMA, Refused
from anubis.service.requester import Requester
from anubis.service.requests import (
    EventEnvelope,
    GateBody,
    check_name,
    read_document,
    read_event,
    read_request,
    text_of,
)
from anubis.service.service_state import House
from anubis.service.slow_pages import (
    Inquiry,
    diagnoses_overview,
    fabric_overview,
    looks_overview,
    risk_overview,
    tickets_overview,
)
from anubis.store.diagnoses import DiagnosisDetails
from anubis.store.looks import LookDetails

JSON = "application/json"
LONGEST_NAME = 300  # characters; a host's name has 253 at most
PathName = Annotated[str, Path(max_length=LONGEST_NAME)]
ClusterQuery = Annotated[
    str | None, Query(max_length=100, description="By its name. Default: all of them.")
]
LimitQuery = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
OffsetQuery = Annotated[int, Query(ge=0, le=10_000_000, description="Pass over so many first.")]
SCHEMAS = schemas()
PATHS = {"risks": "/risk", "fabrics": "/fabric"}  # of lists that are not called as their path
MEANINGS = {
    200: "The answer",
    201: "Kept: it was not known before",
    202: "The answer as of now; the tests that are missing were started",
}
REFUSALS = (400, 401, 403, 408, 413, 421, 422, 429, 431, 500, 503)  # possible on every route


def router(house: House) -> APIRouter:
    """Make every route of /v1, bound to the state that it reads."""
    api = APIRouter(prefix="/v1")

    def get(path: str, handler: Any, summary: str, *kinds: str, listed: bool = True) -> None:
        bound = partial(handler, house)
        bad = (404,) if "{" in path else ()
        api.add_api_route(
            path,
            _name_handler(bound, handler),
            methods=["GET"],
            summary=summary,
            response_class=Response,
            responses=_answers(kinds, listed=listed, bad=bad),
        )

    def post(path: str, handler: Any, summary: str, kind: str, schema: Any, *more: int) -> None:
        content = {"requestBody": {"required": True, "content": {JSON: {"schema": schema}}}}
        api.add_api_route(
            path,
            _name_handler(partial(handler, house), handler),
            methods=["POST"],
            summary=summary,
            response_class=Response,
            responses=_answers((kind,), listed=False, good=(200, *more), bad=(415,)),
            openapi_extra=content,
        )

    def overview(name: str, summary: str, inquiry: Inquiry, kind: str, limit: int = 200) -> None:
        handler = _list_overview(f"list_{name}", inquiry, kind, limit)
        get(PATHS.get(name, f"/{name}"), handler, summary, kind)

    get("/nodes", list_nodes, "Each node without any further test.", "standing")
    get("/nodes/{cluster}/{node}", show_node, "One of them.", "standing", listed=False)
    get(
        "/nodes/{cluster}/{node}/happenings",
        show_life,
        "What happened to a node, the latest at the end.",
        *("incident", "repair", "validation", "event", "action"),
    )
    get("/campaigns", list_campaigns, "The latest, the newest first.", "campaign-status")
    get(
        "/campaigns/{campaign}",
        show_campaign,
        "How far a campaign has come.",
        "campaign-status",
        listed=False,
    )
    get(
        "/campaigns/{campaign}/report",
        show_report,
        "A campaign that is over, as anubis report --json prints it.",
        *("verdict", "part", "kind", "crossed", "planted", "reckoning", "summary"),
    )
    get("/decisions", list_decisions, "Which tests events were worth, and why.", "decision")
    overview(
        "tickets",
        "Nodes that are out, the longest first, and those whose repair was proven lately.",
        *(tickets_overview, "ticket"),
    )
    overview(
        "risks",
        "The nodes most likely to have an incident soon, and what carries that.",
        *(risk_overview, "node-risk", 100),
    )
    overview(
        "fabrics",
        "Of each cluster, when links and pairs were measured last, and what is suspected.",
        *(fabric_overview, "fabric", 100),
    )
    overview("looks", "The last look at each job that is watched.", looks_overview, "watch")
    get(
        "/looks/{cluster}/{job:path}",
        show_look,
        "What it saw, as anubis watch --json prints it.",
        *("suspicion", "anomaly", "look"),
    )
    overview(
        "diagnoses",
        "What was wrong with jobs that ended or make no progress, the newest first.",
        *(diagnoses_overview, "diagnosed"),
    )
    get(
        "/diagnoses/{cluster}/{at}/{job:path}",
        show_diagnosis,
        "One of them, as anubis diagnose --json prints it, and what tests of its suspects came to.",
        *("fact", "diagnosis", "diagnosed"),
    )
    overview("spares", "Proven nodes that are kept ready, by sku.", tickets_overview, "spares")
    post(
        "/gate",
        answer_gate,
        "Whether nodes are good for a job, at once from the history.",
        "gate",
        request_schema(GateBody),
        202,
    )
    if house.settings.pods:
        api.add_api_route(
            "/pod-gate",
            _name_handler(partial(review_pod, house), review_pod),
            methods=["POST"],
            include_in_schema=False,  # only Kubernetes asks, and has a schema of its own
        )
    post("/events", take_event, "What happened to nodes.", "receipt", _event_schema(), 201)
    lines = request_schema(LineReport)
    post("/lines", take_log_lines, "Lines of the kernel log of a node.", "kernel-lines", lines)
    records = {"description": "Records, as in a file that anubis history import incidents reads."}
    post("/incidents", take_incidents, "Incidents of nodes, by a mapping.", "incidents", records)
    alerts = {"type": "object", "description": "What Alertmanager's webhook sends."}
    post("/alerts", take_alerts, "Alerts as incidents.", "incidents", alerts)
    return api


def _event_schema() -> dict[str, Any]:
    """Schema of an event of any kind, in its envelope."""
    envelope = request_schema(EventEnvelope)
    kinds = []
    for kind, record in KEPT.items():
        own = request_schema(record)
        properties = {**envelope["properties"], **own["properties"], "event": {"const": kind}}
        needed = ["event", *own.get("required", ())]
        kinds.append({**own, "properties": properties, "required": needed})
    return {"oneOf": kinds}


def _name_handler(bound: Any, handler: Any) -> Any:
    """Give a bound handler the name and the parameters from which FastAPI makes a route."""
    import inspect

    parameters = list(inspect.signature(handler, eval_str=True).parameters.values())[1:]
    bound.__name__ = handler.__name__
    bound.__signature__ = inspect.Signature(parameters)
    return bound


def _answers(
    kinds: Iterable[str], *, listed: bool, good: Iterable[int] = (200,), bad: Iterable[int] = ()
) -> dict[int | str, dict[str, Any]]:
    """Descriptions of every status that a route may return, with the document of each."""
    documents = [{k: v for k, v in SCHEMAS[kind].items() if k != "$schema"} for kind in kinds]
    document = documents[0] if len(documents) == 1 else {"oneOf": documents}
    schema = (
        {
            "type": "object",
            "properties": {
                "as_of": {"type": "number", "description": "Seconds since 1970."},
                "total": {"type": "integer", "description": "Beyond limit and offset."},
                "items": {"type": "array", "items": document},
            },
            "required": ["as_of", "total", "items"],
        }
        if listed
        else document
    )
    problem = {MEDIA_TYPE: {"schema": SCHEMA}}
    answered = {JSON: {"schema": schema}}
    return {
        **{status: {"description": MEANINGS[status], "content": answered} for status in good},
        **{
            status: {"description": HTTPStatus(status).phrase, "content": problem}
            for status in sorted({*REFUSALS, *bad})
        },
    }


def document(line: str, status: int = 200) -> Response:
    return Response(line, status, media_type=JSON)


def documents(lines: Iterable[str], at: float, total: int) -> Response:
    items = ",".join(lines)
    return Response(f'{{"as_of":{at},"total":{total},"items":[{items}]}}', media_type=JSON)


# --- reading ----------------------------------------------------------------------------------


async def list_nodes(
    house: House,
    cluster: ClusterQuery = None,
    judgement: Annotated[Judgement | None, Query(description="Only these.")] = None,
    limit: LimitQuery = 1000,
    offset: OffsetQuery = 0,
) -> Response:
    await house.refuse_unknown_cluster(cluster)
    snapshot = await house.read()
    chosen = [
        glance
        for glance in snapshot.nodes
        if cluster in (None, glance.cluster) and judgement in (None, glance.judgement)
    ]
    lines = map(snapshot.line_of, chosen[offset : offset + limit])
    return documents(lines, snapshot.at, len(chosen))


async def show_node(house: House, cluster: PathName, node: PathName) -> Response:
    snapshot = await house.read()
    return document(snapshot.line_of(find_node(snapshot, cluster, node)))


def find_node(snapshot: Snapshot, cluster: str, node: str) -> NodeGlance:
    glance = snapshot.node(cluster, node)
    if glance is None:
        raise Refused(404, f'the history knows no node "{node}" of cluster "{cluster}"')
    return glance


async def show_life(
    house: House, cluster: PathName, node: PathName, limit: LimitQuery = 200
) -> Response:
    snapshot = await house.read()
    find_node(snapshot, cluster, node)
    actions = await actions_of(house, cluster, node, limit)
    life = snapshot.clusters[cluster].life(node, limit, actions)
    return documents(map(history_words.line, life), snapshot.at, len(life))


async def actions_of(house: House, cluster: str, node: str, limit: int) -> list[LifeAction]:
    """Actions of the keeper on a node; the shared snapshot has only those that are open."""
    part = house.history.cluster(cluster)
    return await house.run_in_thread(part.keeping.actions_about, (node,), limit)


async def list_campaigns(
    house: House, cluster: ClusterQuery = None, limit: LimitQuery = 50, offset: OffsetQuery = 0
) -> Response:
    await house.refuse_unknown_cluster(cluster)
    snapshot = await house.read()
    chosen = [row for row in snapshot.campaigns if cluster in (None, row.cluster)]
    lines = map(campaign_line, chosen[offset : offset + limit])
    return documents(lines, snapshot.at, len(chosen))


def show_campaign(house: House, campaign: PathName, request: Request) -> Response:
    house.refuse_unknown(campaign)
    return document(campaign_line(campaign_at_a_glance(campaign, requester_of(request))))


def show_report(house: House, campaign: PathName, request: Request) -> Response:
    house.refuse_unknown(campaign)
    view = recall(campaign, caller=requester_of(request))
    lines = list(jsonl.lines(view))
    return documents(lines, view.campaign.finished_at or 0.0, len(lines))


async def list_decisions(
    house: House, cluster: ClusterQuery = None, limit: LimitQuery = 20, offset: OffsetQuery = 0
) -> Response:
    await house.refuse_unknown_cluster(cluster)
    snapshot = await house.read()
    chosen = [made for made in snapshot.decisions if cluster in (None, made.cluster)]
    lines = map(decisions.line, chosen[offset : offset + limit])
    return documents(lines, snapshot.at, len(chosen))


def show_look(house: House, cluster: PathName, job: PathName, request: Request) -> Response:
    requester = requester_of(request)
    lines = find_look(cluster, job, request).lines.splitlines()
    return documents(lines, requester.clock(), len(lines))


def find_look(cluster: str, job: str, request: Request) -> LookDetails:
    details = last_look(cluster, job, requester_of(request))
    if details is None:
        raise Refused(404, f'no look at a job "{job}" of cluster "{cluster}" saw anything')
    return details


def show_diagnosis(
    house: House, cluster: PathName, at: PathName, job: PathName, request: Request
) -> Response:
    diagnosed, details = find_diagnosis(cluster, at, job, request)
    lines = [*details.lines.splitlines(), diagnosed_line(diagnosed)]
    return documents(lines, requester_of(request).clock(), len(lines))


def find_diagnosis(
    cluster: str, at: str, job: str, request: Request
) -> tuple[DiagnosedJob, DiagnosisDetails]:
    try:
        kept = kept_diagnosis(cluster, job, float(at), requester_of(request))
    except ValueError:
        kept = None
    if kept is None:
        raise Refused(404, f'no diagnosis of a job "{job}" of cluster "{cluster}" at {at} is kept')
    return kept


def _list_overview(name: str, inquiry: Inquiry, kind: str, usual: int) -> Any:
    """Make the handler `name`, which lists documents of one kind of an overview."""

    async def answer(
        house: House,
        cluster: ClusterQuery = None,
        limit: LimitQuery = usual,
        offset: OffsetQuery = 0,
    ) -> Response:
        await house.refuse_unknown_cluster(cluster)
        overview = await house.overviews.read(inquiry)
        lines = overview.lines_of(kind, cluster)
        return documents(lines[offset : offset + limit], overview.at, len(lines))

    answer.__name__ = name
    return answer


# --- telling and asking -----------------------------------------------------------------------


async def answer_gate(house: House, request: Request) -> Response:
    wish = read_request(await request.body(), kind_of(request), GateBody)
    requester, began, settings = requester_of(request), time.monotonic(), house.settings
    if wish.start_tests:
        requester.require("act")
    meant = await house.cluster_name(wish.cluster)
    gang = Gang(cluster=meant or "", token=requester.token, name=wish.gang)
    nodes = house.gangs.together(gang, wish.names(), began)
    question = GateQuestion(
        history_url=house.history_url,
        token=requester.token,
        request=GateRequest(nodes, wish.duration_s, unknown_passes=wish.unknown_passes),
        file=settings.files.get(meant or "", ""),
        terms=Terms(
            suite=settings.suite,
            policy=settings.policy,
            benchmarks=settings.benchmarks,
            cluster=meant,
            job=wish.job,
        ),
    )
    reply = await house.gates.ask(question)
    house.gangs.note(gang, wish.names(), began, is_stopped=reply.answer == "no-go")
    cluster = reply.decision.cluster
    await house.write(house.history.cluster(cluster).decisions.add, reply.decision)
    house.gauges.observe_gate(reply.answer, time.monotonic() - began)
    if not (wish.start_tests and reply.needs_tests):
        return document(reply.line)
    await house.run_in_thread(_start_tests, house, question, cluster, requester)
    return document(reply.line, status=202)


async def review_pod(house: House, request: Request) -> Response:
    """Answer Kubernetes whether a new pod gets a gate."""
    pods = house.settings.pods
    assert pods is not None
    answered = pods.answer(read_document(await request.body(), kind_of(request)))
    house.gauges.observe_pod(answered.outcome)
    return Response(json.dumps(answered.document), media_type=JSON)


def _start_tests(house: House, question: GateQuestion, cluster: str, requester: Requester) -> None:
    wish, settings = question.request, house.settings
    nodes = ",".join(wish.nodes)
    words = ["gate", nodes, "--duration", f"{wish.duration_s:.0f}s", "--json"]
    words += ["--suite", settings.suite, "--policy", settings.policy]
    words += [word for folder in settings.benchmarks for word in ("--benchmarks", str(folder))]
    words += ["--on-unknown", "pass" if wish.unknown_passes else "fail"]
    words += [f"--job={question.terms.job}"] if question.terms.job else []
    if cluster in settings.files:
        words += ["--cluster", settings.files[cluster]]
    house.audit_now(requester, f"tests on {nodes} of {cluster}")
    house.started.start(words, house.history_url, requester.clock())


async def take_event(house: House, request: Request) -> Response:
    envelope, event = read_event(await request.body(), kind_of(request))
    requester = requester_of(request)
    requester.require_for(event)
    telling = Telling(
        event=event, id=envelope.id, at=envelope.at, cluster=envelope.cluster, by=requester.name()
    )
    receipt = await house.event_queue.tell(telling, requester)
    if receipt.is_new:
        house.board.forget()
        house.turns.hurry(receipt.cluster)
    return document(
        json_line("receipt", ReceiptLine(**vars(receipt))), status=201 if receipt.is_new else 200
    )


async def take_log_lines(house: House, request: Request) -> Response:
    report = read_request(await request.body(), kind_of(request), LineReport)
    meant = await house.cluster_name(report.cluster)
    report = replace(report, cluster=meant)
    taken = await house.write(take_lines, report, requester_of(request))
    if taken.incidents or taken.suspicions:
        house.board.forget()
        house.turns.hurry(taken.cluster, at_once=bool(taken.incidents))
    return document(kernel_lines_line(**vars(taken)))


async def take_incidents(
    house: House,
    request: Request,
    cluster: ClusterQuery = None,
    mapping: Annotated[
        str, Query(max_length=100, description="A name under configs/incidents/.")
    ] = "plain",
) -> Response:
    return await _take(house, request, cluster, mapping)


async def take_alerts(house: House, request: Request, cluster: ClusterQuery = None) -> Response:
    return await _take(house, request, cluster, house.settings.alerts)


async def _take(house: House, request: Request, cluster: str | None, mapping: str) -> Response:
    check_name(cluster)
    check_name(mapping, "mapping")
    text, requester = text_of(await request.body(), kind_of(request)), requester_of(request)
    source = f"what {requester.name()} told {request.url.path}"
    meant = await house.cluster_name(cluster)
    return await house.write(_report, house, text, source, mapping, meant, requester)


def _report(
    house: House, text: str, source: str, mapping: str, cluster: str | None, requester: Requester
) -> Response:
    reported = report_incidents(text, source, mapping=mapping, cluster=cluster, caller=requester)
    house.board.forget()
    house.turns.hurry(reported.kept.cluster)
    line = incidents_line(
        reported.intake, reported.kept, ignored=reported.strangers, keeps_watches=False
    )
    return document(line)


def requester_of(request: Request) -> Requester:
    requester: Requester = request.state.requester
    return requester


def kind_of(request: Request) -> str:
    return request.headers.get("content-type", "")
