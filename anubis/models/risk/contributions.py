"""Contributions to a node's risk: how much lower it would be if one thing about the node were as
for the median node. Covariates about one thing change together, because one of them alone could
not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.history.logbook import AGE, RATES, VALIDATED
from anubis.core.history.status import Statuses, Times

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
