"""JSON Schemas of the documents, made from their declarations.

A schema is closed: it has every field that this release prints. Within a version fields are only
added; a schema that loses a field, or gives it another meaning, has a new version.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from anubis.core.fabric import Domain, Link, Nic, Remark, Switch
from anubis.core.history.status import Incident, Repair, Validation
from anubis.core.judge.tuning import Tuned
from anubis.core.network.redundancy import Shortage
from anubis.core.records import BenchmarkSpec, Count, MetricAlpha, NodeKind
from anubis.core.select.decision import Decision
from anubis.lab.simulation.reckoning import PlantedTrouble
from anubis.lab.study.trials import Trial
from anubis.models.risk.choice import ModelChoice
from anubis.models.risk.score_summary import Score
from anubis.report.coverage import CoverageLine
from anubis.report.criteria import (
    ChangesLine,
    CriterionChangeLine,
    CriterionLine,
    KeyFields,
    NodeChangeLine,
    VerdictChangeLine,
)
from anubis.report.decision import DecisionLine
from anubis.report.diagnose import DiagnosisLine, FactLine
from anubis.report.diagnosis_pages import DiagnosedLine
from anubis.report.documents import (
    CheckLine,
    NodeCheckLine,
    ReceiptLine,
    ResultDocument,
    TuningLine,
)
from anubis.report.fleet import CampaignGlance, StandingLine
from anubis.report.gate import GateLine
from anubis.report.history import (
    DamageLine,
    EventLine,
    HappenedLine,
    HistoryLine,
    HoldLine,
    ImportLine,
    ImportNumber,
)
from anubis.report.imports import (
    CampaignLine,
    IncidentsLine,
    IntakeFields,
    KernelLinesLine,
    NodesLine,
)
from anubis.report.json import ABSENT, json_name, schema_name
from anubis.report.jsonl import (
    CrossedLine,
    PartLine,
    PhaseLine,
    ReckoningLine,
    SummaryLine,
    VerdictLine,
)
from anubis.report.keep import ActionLine, KeepingLine, LifeLine, PeriodicTaskLine
from anubis.report.links import BetweenLine
from anubis.report.nodes import NodeLine
from anubis.report.pings import PingsLine
from anubis.report.risk import ChoiceLine, LeftOutLine, RiskLine
from anubis.report.risk_page import NodeRiskLine
from anubis.report.simulate import PolicyLine, RunLine, SimulationLine
from anubis.report.tickets import SparesLine, TicketLine
from anubis.report.tokens import TokenLine
from anubis.report.topology import CounterLine, LinkLine, ShortageLine, SwitchLine, TopologyLine
from anubis.report.track_records import TrackRecordLine
from anubis.report.watch import AnomalyLine, LookLine, SuspicionLine
from anubis.report.watch_model import ModelledMetricLine, WatchModelLine
from anubis.report.watch_rounds import WatchLine
from anubis.store.imports import Forgotten
from anubis.store.node_events import Kept
from anubis.store.tokens import AuditEntry

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
CONFIG = ConfigDict(
    extra="forbid",
    json_schema_serialization_defaults_required=True,  # what is printed has all fields
    alias_generator=json_name,
)


@dataclass(frozen=True)
class DocumentType:
    """A type of document: who prints it, what it is, and whose fields it has."""

    name: str
    printed_by: str
    summary: str
    fields: tuple[type, ...]


CAMPAIGN = "accept, validate, scan, locate, judge, report, gate, sweep, import superbench"
FABRIC = "topology show"
LINES = (
    DocumentType("verdict", CAMPAIGN, "on a node or group, by one metric", (VerdictLine,)),
    DocumentType("part", f"{CAMPAIGN}, {FABRIC}, watch", "what is at fault", (PartLine,)),
    DocumentType("pings", "watch", "what the pings between agents show", (PingsLine,)),
    DocumentType("kind", CAMPAIGN, "one of several kinds of nodes under a sku", (NodeKind,)),
    DocumentType("crossed", CAMPAIGN, "which links the pairs of a scan crossed", (CrossedLine,)),
    DocumentType("planted", CAMPAIGN, "a trouble of a simulated fleet", (PlantedTrouble,)),
    DocumentType("reckoning", CAMPAIGN, "how many of these were found", (ReckoningLine,)),
    DocumentType("summary", CAMPAIGN, "what the whole came to; the last line", (SummaryLine,)),
    DocumentType(
        "phase", "accept, validate, scan, locate", "of the plan that --dry-run shows", (PhaseLine,)
    ),
    DocumentType("coverage", "scan", "what the planned pairs cross", (CoverageLine,)),
    DocumentType(
        "decision",
        "gate, sweep, history decisions, history show",
        "which tests an event is worth, and why",
        (Decision, DecisionLine),
    ),
    DocumentType("gate", "gate", "the answer; the last line", (GateLine,)),
    DocumentType("switch", FABRIC, "a switch", (Switch, SwitchLine)),
    DocumentType("link", FABRIC, "all cables between two switches", (Link, LinkLine)),
    DocumentType("nic", FABRIC, "a port of a network adapter", (Nic,)),
    DocumentType("domain", FABRIC, "GPUs of several nodes that NVLink joins", (Domain,)),
    DocumentType("shortage", FABRIC, "uplinks that a switch lacks", (Shortage, ShortageLine)),
    DocumentType("counter", FABRIC, "what a port counted", (Count, CounterLine)),
    DocumentType("finding", FABRIC, "something odd", (Remark,)),
    DocumentType("topology", FABRIC, "the answer; the last line", (TopologyLine,)),
    DocumentType(
        "criterion", "criteria show", "what was learned of a metric", (KeyFields, CriterionLine)
    ),
    DocumentType(
        "adoption", "criteria adopt", "an alpha that is new in the policy", (MetricAlpha,)
    ),
    DocumentType(
        "criterion-change",
        "criteria diff, criteria adopt",
        "what moved in a criterion",
        (KeyFields, CriterionChangeLine),
    ),
    DocumentType(
        "node-change", "criteria diff, criteria adopt", "a node's verdict", (NodeChangeLine,)
    ),
    DocumentType(
        "verdict-change",
        "criteria diff, criteria adopt",
        "a verdict on a metric",
        (VerdictChangeLine,),
    ),
    DocumentType(
        "changes",
        "criteria diff, criteria adopt",
        "how much changed; the last line",
        (ChangesLine,),
    ),
    DocumentType("tuning", "tune", "how few steps of a metric still repeat", (Tuned, TuningLine)),
    DocumentType("score", "risk evaluate", "of a model, on one split", (Score,)),
    DocumentType("left-out", "risk evaluate", "why a split was left out", (LeftOutLine,)),
    DocumentType("choice", "risk evaluate", "the model to use", (ModelChoice, ChoiceLine)),
    DocumentType("risk", "risk show", "a node's chances of an incident", (RiskLine,)),
    DocumentType("watch-model", "watch-model show", "what it was learned from", (WatchModelLine,)),
    DocumentType(
        "modelled-metric",
        "watch-model show",
        "how well it was learned, and its thresholds",
        (ModelledMetricLine,),
    ),
    DocumentType("run", "simulate", "one seed of a policy", (Trial, RunLine)),
    DocumentType("policy", "simulate", "means over seeds", (PolicyLine,)),
    DocumentType("simulation", "simulate", "the findings; the last line", (SimulationLine,)),
    DocumentType("suspicion", "watch", "a node unlike its peers", (SuspicionLine,)),
    DocumentType("anomaly", "watch", "worth a remark, and no suspicion", (AnomalyLine,)),
    DocumentType("look", "watch", "the answer; the last line of a look", (LookLine,)),
    DocumentType("fact", "diagnose", "what a rule concludes about a job", (FactLine,)),
    DocumentType("diagnosis", "diagnose", "the answer; the last line", (DiagnosisLine,)),
    DocumentType("track-record", "history benchmarks", "what it has found", (TrackRecordLine,)),
    DocumentType("node", "nodes", "a node as it is now", (NodeLine,)),
    DocumentType("incident", "history show", "on a node", (Incident, HappenedLine)),
    DocumentType("repair", "history show", "of a node", (Repair, HappenedLine)),
    DocumentType("validation", "history show", "of a node", (Validation, HappenedLine)),
    DocumentType(
        "event", "history show", "what an orchestrator reported", (EventLine, HappenedLine)
    ),
    DocumentType("receipt", "tell", "what became of the event", (ReceiptLine,)),
    DocumentType(
        "kernel-lines", "serve", "what became of lines of a kernel log", (KernelLinesLine,)
    ),
    DocumentType("life", "tell, keep", "the state of a node", (LifeLine,)),
    DocumentType("action", "tell, keep, actions", "proposed or done", (ActionLine,)),
    DocumentType(
        "periodic-task",
        "keep",
        "periodic work: what became of it, when it is next",
        (PeriodicTaskLine,),
    ),
    DocumentType(
        "diagnosed", "keep", "a job that ended or makes no progress, diagnosed", (DiagnosedLine,)
    ),
    DocumentType("watch", "keep, serve", "the last look at a job", (WatchLine,)),
    DocumentType(
        "keeping", "tell, keep", "how many nodes are in each state; the last line", (KeepingLine,)
    ),
    DocumentType("node-risk", "serve", "what carries a node's risk", (NodeRiskLine,)),
    DocumentType("fabric", "serve", "when it was measured last", (BetweenLine,)),
    DocumentType("ticket", "serve", "a node that is out, or was", (TicketLine,)),
    DocumentType("spares", "serve", "of a sku, proven and kept ready", (SparesLine,)),
    DocumentType(
        "hold", "history show", "the campaign that measures there now", (HoldLine, HappenedLine)
    ),
    DocumentType("standing", "history standing", "what a node's history proves", (StandingLine,)),
    DocumentType("campaign-status", "history campaigns", "how far it has come", (CampaignGlance,)),
    DocumentType("token", "token list", "tokens of the service", (TokenLine,)),
    DocumentType("audit", "token audit", "what the service was asked to do", (AuditEntry,)),
    DocumentType("damage", "history check", "what is not as it was written", (DamageLine,)),
    DocumentType("history", "history check", "how sound it is; the last line", (HistoryLine,)),
    DocumentType(
        "import", "history imports", "a file that was taken over", (ImportNumber, ImportLine, Kept)
    ),
    DocumentType("forgotten", "history forget", "what went with it", (ImportNumber, Forgotten)),
    DocumentType(
        "incidents",
        "import incidents",
        "what a file had",
        (ImportNumber, IntakeFields, IncidentsLine, Kept),
    ),
    DocumentType(
        "nodes", "import nodes", "what a file had", (ImportNumber, IntakeFields, NodesLine, Kept)
    ),
    DocumentType(
        "campaign",
        "import csv, import superbench",
        "that measurements became",
        (ImportNumber, CampaignLine),
    ),
    DocumentType("benchmark", "bench list, bench describe", "a program", (BenchmarkSpec,)),
    DocumentType("check", "doctor", "something that benchmarks need", (CheckLine,)),
    DocumentType("node-check", "doctor --cluster", "what a node lacks", (NodeCheckLine,)),
)
PROGRAMS = (
    DocumentType("describe", "PROGRAM --describe", "what a program is", (BenchmarkSpec,)),
    DocumentType("result", "PROGRAM", "what a program measured", (ResultDocument,)),
)


class Plain(GenerateJsonSchema):
    """A generator of schemas without a title for every field; a field that `may_be_absent` is not
    required.

    A field is described by the string below it. pydantic reads those as well, but reads the whole
    module again for each class, which took nine tenths of the time.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        if field["type"] == "typed-dict-field":
            return bool(field.get("required", total))
        if _may_be_absent(field["schema"]):
            return False
        return super().field_is_required(field, total)

    def default_schema(self, schema: Any) -> Schema:
        if _may_be_absent(schema):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def dataclass_schema(self, schema: Any) -> Schema:
        made, source = super().dataclass_schema(schema), schema["cls"]
        if source.__doc__ and not source.__doc__.startswith(f"{source.__name__}("):
            made["description"] = inspect.cleandoc(source.__doc__)
        return _describe(made, source)

    def typed_dict_schema(self, schema: Any) -> Schema:
        return _describe(super().typed_dict_schema(schema), schema["cls"])


def _may_be_absent(schema: Any) -> bool:
    return schema["type"] == "default" and schema.get("default") is ABSENT


def _describe(schema: Schema, source: type[Any]) -> Schema:
    own = [base for base in source.__mro__ if base.__module__.startswith("anubis.")]
    for base in reversed(own):
        for name, sentence in _sentences(base.__module__).get(base.__name__, {}).items():
            if described := schema["properties"].get(json_name(name)):
                described["description"] = sentence
    return schema


@cache
def _sentences(module: str) -> dict[str, dict[str, str]]:
    """Map each class of a module to the descriptions of its fields."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: dict(_field_sentences(node.body)) for node in classes}


def _field_sentences(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for pair in pairwise(body):
        match pair:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(sentence))),
            ):
                yield name, inspect.cleandoc(sentence)


@cache
def schemas() -> dict[str, Schema]:
    """Return the schema of each document by its name: lines, and what programs print. Made once:
    read only."""
    lines = _schemas(LINES, "serialization")
    for document in LINES:
        _begin(lines[document.name], "type", document.name)
    programs = _schemas(PROGRAMS, "validation")
    programs["result"]["additionalProperties"] = True  # other keys of a program are ignored
    return lines | programs


def request_schema(record: type[Any]) -> Schema:
    """Return the schema of a request; fields with a default may be left out."""
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[record], config=CONFIG)  # type: ignore[valid-type] # at run time
    definitions = adapter.json_schema(mode="validation", schema_generator=Plain)["$defs"]
    schema: Schema = _inline(definitions[record.__name__], definitions)
    return schema | {"additionalProperties": False}


def any_line_schema() -> Schema:
    """Return the schema that any line has to match."""
    made = schemas()
    return {"$schema": DIALECT, "oneOf": [made[document.name] for document in LINES]}


def broken_promises(before: Iterable[Schema], after: Iterable[Schema]) -> Iterator[str]:
    """Yield fields that a reader of `before` misses or misreads in `after`, though the version is
    the same."""
    now = {schema["title"]: schema for schema in after}
    for old in before:
        new = now.get(old["title"], old)
        for name, field in old["properties"].items():
            if _bare(new["properties"].get(name)) != _bare(field):
                yield f"{old['title']}: {name}"


def _bare(schema: Any) -> Any:
    """Return a schema without its sentences."""
    match schema:
        case dict():
            return {key: _bare(part) for key, part in schema.items() if key != "description"}
        case list():
            return [_bare(part) for part in schema]
    return schema


def _schemas(documents: Iterable[DocumentType], mode: JsonSchemaMode) -> dict[str, Schema]:
    sources = tuple(dict.fromkeys(source for document in documents for source in document.fields))
    adapter: TypeAdapter[Any] = TypeAdapter(tuple[sources], config=CONFIG)  # type: ignore[valid-type] # at run time
    definitions = adapter.json_schema(mode=mode, schema_generator=Plain)["$defs"]
    return {document.name: _join_fields(document, definitions) for document in documents}


def _join_fields(document: DocumentType, definitions: Mapping[str, Schema]) -> Schema:
    """Return one table with the fields of all sources."""
    parts = [_inline(definitions[source.__name__], definitions) for source in document.fields]
    joined: Schema = {
        "$schema": DIALECT,
        "title": schema_name(document.name),
        "description": document.summary,
        "type": "object",
        "properties": {name: field for part in parts for name, field in part["properties"].items()},
        "required": list(dict.fromkeys(name for part in parts for name in part["required"])),
        "additionalProperties": False,
    }
    _begin(joined, "schema", joined["title"])
    return joined


def _begin(schema: Schema, name: str, value: str) -> None:
    schema["properties"] = {name: {"const": value}, **schema["properties"]}
    schema["required"] = [name, *schema["required"]]


def _inline(schema: Any, definitions: Mapping[str, Schema]) -> Any:
    """Return a schema with its references replaced by what they refer to."""
    match schema:
        case {"$ref": str(place), **beside}:
            return _inline(definitions[place.rpartition("/")[2]], definitions) | beside
        case dict():
            return {
                key: _inline(part, definitions)
                for key, part in schema.items()
                if not (key == "title" and isinstance(part, str))
            }
        case list():
            return [_inline(part, definitions) for part in schema]
    return schema
