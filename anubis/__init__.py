"""Anubis keeps a GPU cluster fit for work. Its verbs are functions, too: see docs/python.md."""

from importlib import import_module
from typing import Any

__version__ = "1.0.0rc1"

# What there is, by its home; each name is loaded when it is first asked for. What type checkers and
# editors read, __init__.pyi, is made of this by scripts/make-reference.
HOMES = {
    "anubis.operations.bench": "check_program outside_limits tune write_suite",
    "anubis.operations.caller": "Caller",
    "anubis.operations.campaigns": "plan_campaign resume_campaign run_campaign",
    "anubis.operations.diagnose": "diagnose_and_tell diagnose_job keep_look",
    "anubis.operations.diagnose_due": "diagnose_due",
    "anubis.operations.doctor": "examine",
    "anubis.operations.doctor_nodes": "examine_nodes",
    "anubis.operations.fleet": "campaigns_at_a_glance standings",
    "anubis.operations.gate": "gate",
    "anubis.operations.history": (
        "campaigns check_history clusters decisions forget_cluster forget_import imports "
        "known_nodes recall rename_cluster timeline track_records"
    ),
    "anubis.operations.import_": (
        "import_csv import_incidents import_nodes import_superbench import_superbench_baseline "
        "report_incidents"
    ),
    "anubis.operations.judge": "adopt_alphas compare_criteria judge write_policy",
    "anubis.operations.keep": "actions approve carry_out close_breakers keep",
    "anubis.operations.keeping": "Keeping going_on keeper_of keeping_of",
    "anubis.operations.learn": "learn learned_here",
    "anubis.operations.nodes": "nodes",
    "anubis.operations.periodic_tasks": "do_periodic_tasks",
    "anubis.operations.pings": "look_at_pings",
    "anubis.operations.requests": (
        "AcceptRequest BaselineImport CampaignRequest CsvImport DiagnosisRequest "
        "EvaluateRiskRequest FabricRequest GateRequest IncidentImport JudgeRequest KeepRequest "
        "LearnRequest LocateRequest LookRequest NodeImport RiskRequest ScanRequest "
        "SimulateRequest SuperbenchImport TellRequest Terms TrainRiskRequest TuneRequest "
        "ValidateRequest"
    ),
    "anubis.operations.risk": "evaluate_risk foresee train_risk",
    "anubis.operations.select": "select",
    "anubis.operations.simulate": "simulate",
    "anubis.operations.sweep": "sweep",
    "anubis.operations.tell": "Telling tell telling_of",
    "anubis.operations.tokens": "audit make_token revoke_token tokens",
    "anubis.operations.topology": "inspect_fabric",
    "anubis.operations.watch": "follow_jobs record_telemetry take_looks tell_suspicions",
    "anubis.operations.watch_model": "train_watch_model watch_model",
    "anubis.operations.watch_rounds": "watch_jobs",
}
OPERATIONS = {name: home for home, names in HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in OPERATIONS:
        raise AttributeError(f'module "anubis" has no attribute "{name}"')
    return getattr(import_module(OPERATIONS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *OPERATIONS])
