"""Train the risk model again on the history; use it, or propose it, only if it is better than the
one in use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from anubis.core.errors import ConfigError, RiskError
from anubis.core.history.status import Uptimes
from anubis.core.keep.commands import Mode
from anubis.core.keep.periodic_tasks import PeriodicTaskRecord
from anubis.models.risk import risk_files, risk_learning
from anubis.models.risk.choice import judge_successor
from anubis.models.risk.risk_files import ModelProvenance
from anubis.models.risk.risk_model import RiskModel
from anubis.operations.names import new_name
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.text import places
from anubis.text.wording import moment


def renew_risk(task: PeriodicTaskRun) -> PeriodicTaskRecord:
    if task.agreed is not None:
        return _take(task, Path(task.agreed.proposal))
    schedule = task.policy.risk
    if schedule is None:
        raise ConfigError("the policy of keeping states no times for the model of risk any more")
    logbook = task.part.experience.logbook()
    now = task.record.began

    def view(covariates: tuple[str, ...] | None) -> Uptimes:
        return risk_learning.uptimes_of(logbook, now, covariates)

    def learn(uptimes: Uptimes) -> tuple[RiskModel, ModelProvenance]:
        return risk_learning.train(uptimes, 0, tell=task.caller.doing)

    in_use = _model_in_use(task)
    try:
        if in_use is None:
            why = "no model was in use"
        else:
            used, trained_at = in_use
            verdict = judge_successor(view, used, trained_at, now, lambda past: learn(past)[0])
            if verdict.because:
                return task.end_unchanged(f"{used.name} of {moment(trained_at)} stays: {verdict}")
            why = f"better than {used.name} of {moment(trained_at)}: {verdict}"
        model, origin = learn(view(None))
    except RiskError as error:
        return task.end_unchanged(f"too little is known to train a model: {error}")
    if in_use is None and not model.looks:
        return task.end_unchanged(f"no model is worth using: {origin.choice}")
    origin = replace(origin, trained_at=now)
    if schedule.mode is Mode.ACT:
        _put_in_use(task, model, origin)
        return task.end_done(f"{model.name} is in use: {why}")
    proposal = places.proposals(task.part.cluster) / f"{new_name('risk', now)}.npz"
    risk_files.save(model, origin, proposal)
    return task.end_proposed(f"use {model.name}: {why}", proposal=str(proposal))


def _model_in_use(task: PeriodicTaskRun) -> tuple[RiskModel, float] | None:
    """The model in use, and the time up to which it learned; None if there is no model."""
    file = places.risk_file(task.part.cluster)
    if not file.is_file():
        return None
    model, origin = risk_files.load(file)
    return model, file.stat().st_mtime if origin.trained_at is None else origin.trained_at


def _put_in_use(task: PeriodicTaskRun, model: RiskModel, origin: ModelProvenance) -> None:
    risk_files.save(model, origin, places.risk_file(task.part.cluster))


def _take(task: PeriodicTaskRun, proposal: Path) -> PeriodicTaskRecord:
    if not proposal.is_file():
        raise RiskError(
            f'there is no proposal "{proposal}" on this machine: approve it on the machine that'
            " made it"
        )
    model, origin = risk_files.load(proposal)
    in_use = _model_in_use(task)
    if in_use and in_use[1] > (origin.trained_at or 0.0):
        raise RiskError(
            f"the model in use, of {moment(in_use[1])}, is newer than the one that was proposed:"
            " nothing is changed"
        )
    _put_in_use(task, model, origin)
    return task.end_done(f"{model.name} is in use: a person agreed")
