"""How likely incidents are: learning a model from the history, comparing models, using one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from anubis import places
from anubis.core.past.logbook import Logbook
from anubis.core.past.status import Instants, Statuses
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.clusters import look_up
from anubis.report.wording import names
from anubis.risk import evaluation, files, learning
from anubis.risk.choice import ModelChoice
from anubis.risk.evaluation import Evaluation
from anubis.risk.files import ModelProvenance
from anubis.risk.forecast import Forecast
from anubis.risk.model import RiskModel, forecast
from anubis.risk.splits import named


@dataclass(frozen=True, kw_only=True)
class LearnedRisk:
    cluster: str
    model: RiskModel
    provenance: ModelProvenance
    file: Path


@dataclass(frozen=True, kw_only=True)
class ComparedRisk:
    cluster: str
    evaluation: Evaluation
    choice: ModelChoice


@dataclass(frozen=True, kw_only=True)
class NodeRisks:
    cluster: str
    statuses: Statuses  # of the nodes as they are now
    forecast: Forecast  # a row for each of them
    model: str
    choice: str  # why this model

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.statuses.nodes


def train_risk(
    model: str | None = None,
    *,
    cluster: str | None = None,
    file: Path | None = None,
    seed: int = 0,
    caller: Caller = NOBODY,
) -> LearnedRisk:
    """The model of that name, or the one that wins by node and by time; kept in the file."""
    cluster, logbook = _logbook(cluster, caller)
    spells = learning.spells_of(logbook, caller.clock())
    trained, provenance = learning.train(spells, seed, model, caller.doing)
    path = _model_file(file, cluster)
    files.save(trained, provenance, path)
    return LearnedRisk(cluster=cluster, model=trained, provenance=provenance, file=path)


def evaluate_risk(
    *,
    cluster: str | None = None,
    seeds: int = 5,
    ask: Collection[str] = (),
    caller: Caller = NOBODY,
) -> ComparedRisk:
    """Compares the models; nodes in `ask` are kept out of training."""
    cluster, logbook = _logbook(cluster, caller)
    spells, tell = learning.spells_of(logbook, caller.clock()), caller.doing
    if not ask:
        train_spells = spells
        compared = evaluation.evaluate(spells, seeds=range(seeds), tell=tell)
    else:
        train_spells, test_spells = named(spells, list(ask))
        compared = evaluation.evaluate(train_spells, seeds=range(seeds), tell=tell)
        compared += evaluation.elsewhere(train_spells, test_spells, seeds=range(seeds), tell=tell)
    choice, _ = learning.choose(compared, train_spells, 0, tell)
    return ComparedRisk(cluster=cluster, evaluation=compared, choice=choice)


def foresee(
    nodes: Sequence[str],
    *,
    cluster: str | None = None,
    file: Path | None = None,
    caller: Caller = NOBODY,
) -> NodeRisks:
    """What the trained model says of these nodes as they are now."""
    cluster, logbook = _logbook(cluster, caller)
    model, provenance = files.load(_model_file(file, cluster))
    if strangers := sorted(set(nodes) - set(logbook.nodes)):
        caller.remark(f"nothing is known of {names(strangers)}: taken for just added")
    if unforeseen := logbook.unforeseen(model.covariates):
        caller.remark(f"not known when it was trained, counted in the totals: {names(unforeseen)}")
    statuses = logbook.statuses(Instants.now(list(nodes), caller.clock()), model.covariates)
    return NodeRisks(
        cluster=cluster,
        statuses=statuses,
        forecast=forecast(model, statuses),
        model=model.name,
        choice=provenance.choice,
    )


def _logbook(cluster: str | None, caller: Caller) -> tuple[str, Logbook]:
    """Of the named cluster or the only one, with its name."""
    with caller.history() as history:
        part = look_up(history, cluster)
        return part.cluster, part.experience.logbook()


def _model_file(chosen: Path | None, cluster: str) -> Path:
    return chosen.expanduser() if chosen else places.risk_file(cluster)
