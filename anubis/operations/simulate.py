"""Compare validation policies on a simulated cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anubis.config import configs
from anubis.core.errors import Stopped, UsageError, named_by_request
from anubis.lab.study import traces
from anubis.lab.study.scenario import SOURCES, IncidentSource, Jobs, Scenario
from anubis.lab.study.sources import DrawnIncidents, Recorded, Source
from anubis.lab.study.traces import TracedJob
from anubis.lab.study.trials import Study
from anubis.models.risk import risk_files, risk_learning
from anubis.models.risk.risk_model import RiskModel
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import look_up
from anubis.operations.requests import SimulateRequest
from anubis.text import places
from anubis.text.wording import names


def simulate(request: SimulateRequest, caller: Caller = NO_CALLER) -> Study:
    """Run every policy under every seed. The request's cluster is the one whose incidents are drawn
    or replayed."""
    setup, model = configs.simulation(request.scenario), request.model
    if request.trace is not None:
        setup = replace(setup, jobs=replace(setup.jobs, trace=str(request.trace)))
    if request.seeds is not None:
        setup = replace(setup, seeds=request.seeds)
    if request.incidents is not None or model is not None:
        setup = replace(setup, incidents=_incident_source(request.incidents or "model", model))
    if request.risk is not None:
        setup = replace(setup, risk=request.risk)
    if request.cluster is not None:
        _refuse_unused_cluster(setup, model)
    jobs = _recorded_jobs(setup.jobs, caller)
    source = _source(setup, model, request.cluster, caller)
    study = Study(source.scenario, jobs, source, _learn_model(source, caller))
    _run(study, caller)
    return study


def _refuse_unused_cluster(setup: Scenario, model: Path | None) -> None:
    """Refuse a cluster that would not be used: the answer would not be about it."""
    if setup.incidents == "rates":
        raise UsageError(
            "--cluster names the cluster whose incidents are used, but this scenario draws them"
            " from its own rates: add --incidents history or model, or leave --cluster out"
        )
    if model is not None:
        raise UsageError(
            "--cluster names a cluster with a risk model, and --risk-model a file: give only one"
        )


def _incident_source(name: str, model: Path | None) -> IncidentSource:
    for source in SOURCES:
        if source == name:
            if model is not None and source != "model":
                raise UsageError(
                    f"--risk-model draws incidents, and --incidents {source} does not use a model"
                )
            return source
    raise UsageError(f'--incidents is "{name}", expected {" or ".join(SOURCES)}')


def _recorded_jobs(jobs: Jobs, caller: Caller) -> tuple[TracedJob, ...]:
    """Jobs of the scenario's trace; skipped lines are reported."""
    if not jobs.trace:
        return ()
    with named_by_request():
        trace = traces.read(Path(jobs.trace), jobs.devices_per_node, jobs.whole_nodes_only)
    caller.remark(f"{jobs.trace}: {len(trace.jobs):,} jobs, {trace.node_hours:,.0f} node-hours")
    for sentence in traces.reasons(trace):
        caller.remark(f"  {sentence}")
    return trace.jobs


def _source(setup: Scenario, model: Path | None, cluster: str | None, caller: Caller) -> Source:
    """Source of the incidents; its scenario has the nodes they happen on."""
    match setup.incidents:
        case "rates":
            return DrawnIncidents(setup)
        case "model":
            file = model or _model_file(cluster, caller)
            with named_by_request(file == model):
                fitted, origin = risk_files.load(file)
            caller.remark(f"incidents are drawn from {fitted.name}: {origin.choice}")
            return DrawnIncidents(setup, fitted)
        case "history":
            return _replayed_incidents(setup, cluster, caller)


def _model_file(cluster: str | None, caller: Caller) -> Path:
    with caller.history() as history:
        return places.risk_file(look_up(history, cluster).cluster)


def _replayed_incidents(setup: Scenario, cluster: str | None, caller: Caller) -> Recorded:
    with caller.history() as history:
        part = look_up(history, cluster)
        incidents, watches = part.incidents.all(), part.watches.all()
    source = Recorded.from_records(setup, incidents, watches)
    caller.remark(
        f"replayed from cluster {part.cluster}: {len(incidents):,} incidents on"
        f" {source.scenario.nodes:,} nodes"
    )
    caused = {category.name for category in setup.categories}
    if strangers := sorted({incident.category for incident in incidents} - caused):
        caller.remark(f"the scenario has no causes for {names(strangers)}: no benchmark finds them")
    return source


def _learn_model(source: Source, caller: Caller) -> RiskModel | None:
    """Model that the Selector uses; None if it knows the true risk."""
    name = source.scenario.risk
    if name == "truth":
        return None
    past = source.past()
    uptimes = risk_learning.uptimes_of(past.logbook, past.until)
    model, origin = risk_learning.train(uptimes, 0, None if name == "best" else name, caller.doing)
    caller.remark(
        f"the Selector asks {model.name}, learned from {origin.uptimes:,} uptimes of the past"
    )
    return model


def _run(study: Study, caller: Caller) -> None:
    """Run everything once: the study keeps its results."""
    trials = study.trials()
    for finished, trial in enumerate(trials):
        if caller.wants_stop():
            raise Stopped(f"stopped after {finished} of {len(trials)} runs; nothing was kept")
        caller.doing(f"run {finished + 1} of {len(trials)}: {trial.policy}, seed {trial.seed}")
        study.result(trial)
