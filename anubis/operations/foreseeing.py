"""How likely incidents are: learning a model from the history, comparing models, using one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis import places
from anubis.core.past.logbook import Logbook
from anubis.core.past.status import Instants
from anubis.operations.caller import NOBODY, Caller
from anubis.report.wording import names
from anubis.risk import evaluation, files, learning
from anubis.risk.evaluation import Evaluation, ModelChoice
from anubis.risk.files import ModelProvenance
from anubis.risk.forecast import Forecast
from anubis.risk.model import RiskModel, forecast
from anubis.risk.splits import named


@dataclass(frozen=True, kw_only=True)
class LearnedRisk:
    model: RiskModel
    provenance: ModelProvenance
    file: Path


@dataclass(frozen=True, kw_only=True)
class NodeRisks:
    nodes: tuple[str, ...]
    forecast: Forecast  # a row for each of them
    model: str
    choice: str  # why this model


def train_risk(
    model: str | None = None, *, file: Path | None = None, seed: int = 0, caller: Caller = NOBODY
) -> LearnedRisk:
    """The model of that name, or the one that wins by node and by time; kept in the file."""
    spells = learning.spells_of(_logbook(caller), caller.clock())
    trained, provenance = learning.train(spells, seed, model, caller.doing)
    path = _model_file(file)
    files.save(trained, provenance, path)
    return LearnedRisk(model=trained, provenance=provenance, file=path)


def evaluate_risk(
    *, seeds: int = 5, ask: Collection[str] = (), caller: Caller = NOBODY
) -> tuple[Evaluation, ModelChoice]:
    """Compares the models; nodes in `ask` are kept out of training."""
    spells, tell = learning.spells_of(_logbook(caller), caller.clock()), caller.doing
    if not ask:
        compared = evaluation.evaluate(spells, seeds=range(seeds), tell=tell)
    else:
        train_spells, test_spells = named(spells, list(ask))
        compared = evaluation.evaluate(train_spells, seeds=range(seeds), tell=tell)
        compared += evaluation.elsewhere(train_spells, test_spells, seeds=range(seeds), tell=tell)
    return compared, evaluation.best(compared)


def foresee(
    nodes: Sequence[str], *, file: Path | None = None, caller: Caller = NOBODY
) -> NodeRisks:
    """What the trained model says of these nodes as they are now."""
    model, provenance = files.load(_model_file(file))
    logbook = _logbook(caller)
    if strangers := sorted(set(nodes) - set(logbook.nodes)):
        caller.remark(f"nothing is known of {names(strangers)}: taken for just added")
    if unforeseen := logbook.unforeseen(model.covariates):
        caller.remark(f"not known when it was trained, counted in the totals: {names(unforeseen)}")
    statuses = logbook.statuses(Instants.now(list(nodes), caller.clock()), model.covariates)
    return NodeRisks(
        nodes=tuple(nodes),
        forecast=forecast(model, statuses),
        model=model.name,
        choice=provenance.choice,
    )


def _logbook(caller: Caller) -> Logbook:
    with caller.history() as history:
        return history.experience.logbook()


def _model_file(chosen: Path | None) -> Path:
    return chosen.expanduser() if chosen else places.risk_file()
