"""Covariates of nodes (rack, cage, sku, age): decides which of them a model learns from, and how
much each contributes to a node's risk.

An attribute is used if cox, which is quick, foretells other nodes and later times better with it
than without it: by the logarithm of the chance that it gave to what happened there. Brier scores do
not decide here: of nodes that seldom fail, they are the same in all digits. Attributes are tried in
turn, each in addition to those already taken.

What happened must be `ODDS` as likely with the attribute, on other nodes and at later times. On
other nodes, where each node is asked once, the interval of the gain must leave out zero as well:
then it is not owed to a few nodes.

A contribution is how much lower the risk would be if one thing about the node were as for the
median node. Covariates about one thing change together, because one of them alone could not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.errors import RiskError
from anubis.core.history.logbook import AGE, OF_ATTRIBUTES, RATES, VALIDATED
from anubis.core.history.status import Statuses, Times, Uptimes
from anubis.models.risk.choice import ODDS, WHERE
from anubis.models.risk.cox import Cox
from anubis.models.risk.evaluation import SEEDS, Tell, ignore, unscorable_reason
from anubis.models.risk.forecast import log_chances
from anubis.models.risk.risk_model import forecast
from anubis.models.risk.splits import DECIDING, DrawnSplit, split

WIDTH = 1.96  # standard errors to each side: an interval of 95 %

NodeLogs = dict[DrawnSplit, dict[str, float]]  # log-chance of what happened to each node


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Logarithm of how much likelier all that happened is with an attribute than without it."""

    sum: float
    error: float

    @classmethod
    def from_nodes(cls, gains: Times) -> Gain:
        error = np.sqrt(gains.size) * gains.std(ddof=1) if gains.size > 1 else np.inf
        return cls(sum=float(gains.sum()), error=float(error))

    @property
    def low(self) -> float:
        return self.sum - WIDTH * self.error

    @property
    def high(self) -> float:
        return self.sum + WIDTH * self.error

    def __str__(self) -> str:
        return f"log-likelihood {self.sum:+.1f}, 95% interval {self.low:+.1f} to {self.high:+.1f}"


def worth_learning(uptimes: Uptimes, tell: Tell = ignore) -> tuple[Uptimes, tuple[str, ...]]:
    """Uptimes with the useful attributes only, and a sentence on each reported attribute."""
    names = [name for name in uptimes.statuses.covariates if name in OF_ATTRIBUTES]
    if not names:
        return uptimes, ()
    left, sentences = set(names), list[str]()
    before = chances_elsewhere(drop_covariates(uptimes, left), tell, "no attribute of nodes")
    for name in names:
        after = chances_elsewhere(drop_covariates(uptimes, left - {name}), tell, name)
        if before is None or after is None:
            sentences.append(f"{name} is left out because nothing can be compared")
            continue
        gains = {kind: gain_over_nodes(before[kind], after[kind]) for kind in DECIDING}
        if because := shortcoming(gains):
            sentences.append(f"{name} is left out because {because}")
        else:
            sums = ", ".join(f"{WHERE[kind]} {gains[kind]}" for kind in DECIDING)
            sentences.append(f"{name} is learned from: {sums}")
            left, before = left - {name}, after
    return drop_covariates(uptimes, left), tuple(sentences)


def drop_covariates(uptimes: Uptimes, names: Collection[str]) -> Uptimes:
    statuses = uptimes.statuses
    kept = [place for place, name in enumerate(statuses.covariates) if name not in names]
    covariates = tuple(statuses.covariates[place] for place in kept)
    return replace(
        uptimes, statuses=replace(statuses, covariates=covariates, values=statuses.values[:, kept])
    )


def gain_over_nodes(before: dict[str, float], after: dict[str, float]) -> Gain:
    return Gain.from_nodes(np.array([after[node] - before[node] for node in before]))


def chances_elsewhere(uptimes: Uptimes, tell: Tell = ignore, label: str = "") -> NodeLogs | None:
    """Log-chance that cox gave to what happened to each node, on other nodes and at later times; or
    None if it cannot be trained or scored."""
    logs: NodeLogs = {kind: {} for kind in DECIDING}
    for kind, of_node in logs.items():
        tell(f"{label}: by {kind}")
        for seed, (train, test) in zip(SEEDS, split(uptimes, kind, SEEDS), strict=True):
            if unscorable_reason(test):
                return None
            try:
                model = Cox.fit(train, seed)
            except RiskError:
                return None
            rows = log_chances(forecast(model, test.statuses), test)
            for node, log in zip(test.statuses.nodes, rows.tolist(), strict=True):
                of_node[node] = of_node.get(node, 0.0) + log
    return logs


def shortcoming(gains: Mapping[DrawnSplit, Gain]) -> str:
    """Reason to learn nothing from an attribute; empty if there is none."""
    for kind, gained in gains.items():
        if gained.sum < np.log(ODDS):
            return f"{WHERE[kind]} it may owe its gain to chance ({gained})"
    if gains["node"].low <= 0:
        return f"it may owe its gain to a few nodes ({gains['node']})"
    return ""


UP = ("up_h", "total_up_h")


@dataclass(frozen=True)
class Carrier:
    """A thing about a node, and the chance that the node would have without it."""

    about: str  # up, incidents, validated, age, a grouping; or the category of incidents
    covariates: tuple[str, ...]
    without: float


def carriers(
    within: Callable[[Statuses], Times], fleet: Statuses, rows: Sequence[int]
) -> list[list[Carrier]]:
    """Carriers of these rows of the fleet, each with those that lower its chance most first."""
    chosen = _rows(fleet, rows)
    chances, usual = within(chosen), np.median(fleet.values, axis=0)
    things = things_of(fleet.covariates)
    without = [within(_as_usual(chosen, places, usual)) for places in things.values()]
    return [
        sorted(
            (
                Carrier(about, tuple(fleet.covariates[p] for p in places), float(lower[row]))
                for (about, places), lower in zip(things.items(), without, strict=True)
                if lower[row] < chances[row]
            ),
            key=lambda carrier: carrier.without,
        )
        for row in range(len(rows))
    ]


def things_of(covariates: Sequence[str]) -> dict[str, list[int]]:
    """Positions of the covariates that are about one thing, by thing."""
    things: dict[str, list[int]] = {}
    for place, name in enumerate(covariates):
        things.setdefault(_thing(name), []).append(place)
    return things


def _thing(covariate: str) -> str:
    _, _, category = covariate.partition(":")
    if covariate in UP:
        return "up"
    alone = {VALIDATED: "validated", AGE: "age", **RATES}
    return category or alone.get(covariate, "incidents")


def _as_usual(statuses: Statuses, places: Sequence[int], usual: Times) -> Statuses:
    values = statuses.values.copy()
    values[:, places] = usual[places]
    return replace(statuses, values=values)


def _rows(statuses: Statuses, rows: Sequence[int]) -> Statuses:
    return replace(
        statuses,
        nodes=tuple(statuses.nodes[row] for row in rows),
        at=statuses.at[list(rows)],
        values=statuses.values[list(rows)],
    )
