"""From pairs that fall short to the parts at fault: which, how surely, and on what evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from anubis.core.fabric import Fabric, Numbers, Part, PartKind, Shares
from anubis.core.network.crossing import WAYS, Flow, Parts, Way
from anubis.core.network.posterior import Case, FaultPrior, Observation, Problem, odds

FEWEST_FLOWS = 12  # fewer flows say nothing of what is usual
LAYERS = 3  # of causes behind causes
SURELY, DEAD, UNSTEADY = 0.999, 0.9, 0.25  # shares: of ways, of the rate, of flows


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A fault, and the parts that explain it as well as each other; one part if it is known."""

    parts: tuple[Part, ...]  # the most probable first
    way: Way
    confidence: float  # that it is one of them, rather than another part or chance
    shortfall: float  # of the bad flows through it, in the middle, beyond what other causes take
    bad: tuple[Observation, ...]  # that cross it and speak for it
    good: int  # flows that cross it and are good


@dataclass(frozen=True, kw_only=True)
class Located:
    causes: tuple[Cause, ...]
    unexplained: tuple[Observation, ...]  # bad, and more probably by chance than by any cause


def observe(fabric: Fabric, measured: Iterable[tuple[Flow, float]]) -> list[Observation]:
    """Rates against what flows of as many hops on the same rail usually reach.

    A rail that few flows were measured on is compared with all rails: they may be the bad ones.
    """
    rates = list(measured)
    where = [(hops_of(fabric, flow), flow.rail) for flow, _ in rates]
    on_rail: dict[tuple[int | None, str], list[float]] = {}
    on_all: dict[int | None, list[float]] = {}
    for (hops, rail), (_, rate) in zip(where, rates, strict=True):
        on_rail.setdefault((hops, rail), []).append(rate)
        on_all.setdefault(hops, []).append(rate)
    usual = {
        kind: usual_rate(np.array(found if len(found) >= FEWEST_FLOWS else on_all[kind[0]]))
        for kind, found in on_rail.items()
    }
    return [
        Observation(flow, 1 - rate / usual[kind] if usual[kind] > 0 else 0.0)
        for kind, (flow, rate) in zip(where, rates, strict=True)
    ]


def usual_rate(rates: Shares, window: float = 0.05) -> float:
    """The middle of the fast ones: a slow leaf may slow more than half of all pairs.

    From the 90th percentile on, the median of all within 5 % of the last answer.
    """
    here, before = float(np.quantile(rates, 0.9, method="higher")), np.inf
    for _ in range(50):
        if here == before:
            break
        here, before = float(np.median(rates[np.abs(rates - here) <= window * here])), here
    return here


def noise_of(observations: Sequence[Observation]) -> float:
    """The standard deviation of healthy flows, from those that are faster than usual."""
    found = np.array([-each.shortfall for each in observations if each.shortfall < 0])
    return float(1.4826 * np.median(found)) if len(found) else 0.0


def hops_of(fabric: Fabric, flow: Flow) -> int | None:
    a, b = fabric.nic(flow.source, flow.rail), fabric.nic(flow.target, flow.rail)
    return fabric.hops(a, b) if a and b else None


def locate(
    fabric: Fabric, observations: Sequence[Observation], model: FaultPrior | None = None
) -> Located:
    """The most probable set of causes; the parts that nobody can tell apart count as one.

    A cause that takes the same share of all that crosses it is taken off, and what then still falls
    short has another one: a slow node on a slow leaf.
    """
    model = model or FaultPrior()
    parts, flows = Parts(fabric), [each.flow for each in observations]
    given = np.array([each.shortfall for each in observations], dtype=np.float64)
    beyond, found = given, list[_Found]()
    for _ in range(LAYERS):
        problem = Problem(parts, flows, beyond, model)
        known = {part for each in found for part in each.parts}
        new = [
            each
            for case in problem.cases()
            for each in _found(problem, case)
            if not known & set(each.parts)
        ]
        if not new:
            break
        found += new
        beyond = _beyond(beyond, new, model)
    explained = {row for each in found for row in each.bad.tolist()}
    bad = np.flatnonzero(given > model.limit).tolist()
    causes = [
        Cause(
            parts=each.parts,
            way=each.way,
            confidence=each.confidence,
            shortfall=each.loss,
            bad=tuple(observations[row] for row in each.bad.tolist()),
            good=each.good,
        )
        for each in found
    ]
    return Located(
        causes=tuple(sorted(causes, key=lambda cause: (-len(cause.bad), cause.parts))),
        unexplained=tuple(observations[row] for row in bad if row not in explained),
    )


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A cause, with rows in place of observations."""

    parts: tuple[Part, ...]
    way: Way
    confidence: float
    loss: float
    bad: Numbers
    good: int
    crossing: Numbers
    share: Shares  # of the cause, in the ways of each that crosses it


def _found(problem: Problem, case: Case) -> Iterator[_Found]:
    for column in case.chosen:
        named = case.alternatives(column, 1 / problem.model.odds)
        columns = [c for each in named for c in problem.classes[case.classes[each]].tolist()]
        numbers = np.unique(np.array(columns) // 3)
        same = [  # the same parts in other ways
            each
            for each, number in enumerate(case.classes)
            if np.isin(problem.classes[number] // 3, numbers).all()
        ]
        mine = problem.crossed.column == case.classes[column]
        crossing, share = problem.crossed.row[mine], problem.q[mine]
        short = problem.shortfall[crossing] > problem.model.limit
        best = np.array([_best_other(case, column, row) for row in crossing.tolist()])
        mostly = short & (share >= best)
        bad = crossing[mostly if mostly.any() else short]
        yield _Found(
            parts=tuple(dict.fromkeys(map(problem.parts.part, columns))),
            way=WAYS[columns[0] % 3],
            confidence=case.confidence(same),
            loss=float(np.median(problem.shortfall[bad])),
            bad=bad,
            good=int(np.sum(problem.shortfall[crossing] <= problem.model.limit)),
            crossing=crossing,
            share=share,
        )


def _beyond(shortfall: Shares, found: Sequence[_Found], model: FaultPrior) -> Shares:
    """What each flow falls short by beyond these causes; unknown where they hide it (NaN)."""
    left = shortfall.copy()
    worst = np.zeros(len(shortfall))
    for each in found:
        surely = each.crossing[each.share > SURELY]
        off = np.abs(shortfall[each.bad] - each.loss) > model.limit
        steady = len(each.bad) >= FEWEST_FLOWS and off.mean() < UNSTEADY
        if len(each.parts) == 1 and each.loss < DEAD and steady:
            worst[surely] = np.maximum(worst[surely], each.loss)
            left[np.setdiff1d(each.bad, surely)] = np.nan
        else:
            left[each.bad] = np.nan
    return np.asarray(1 - (1 - left) / (1 - worst))


def _best_other(case: Case, column: int, row: int) -> float:
    """How likely the other causes hit this row; rows within noise need a cause that is likely."""
    place = int(np.searchsorted(case.rows, row))
    if place == len(case.rows) or case.rows[place] != row:
        return 0.5
    others = [other for other in case.chosen if other != column]
    return float(case.evidence.q[place, others].max(initial=0.0))


def healthy(observations: Sequence[Observation], model: FaultPrior | None = None) -> set[str]:
    """The nodes that took part and none of whose flows speaks for a fault."""
    against = odds(np.array([each.shortfall for each in observations]), model or FaultPrior()) <= 1
    nodes, suspects = set(), set()
    for each, good in zip(observations, against.tolist(), strict=True):
        both = {each.flow.source, each.flow.target}
        nodes |= both
        if not good:
            suspects |= both
    return nodes - suspects


# --- in words --------------------------------------------------------------------------------


def sentence(fabric: Fabric, cause: Cause) -> str:
    """What is at fault, and why anybody should believe it; short enough for a drain reason."""
    named = [describe(fabric, part) for part in cause.parts]
    where = named[0] if len(named) == 1 else f"cannot tell apart: {_listed(fabric, cause, named)}"
    way = {"both": "", "out": ", outwards only", "in": ", inwards only"}[cause.way]
    flows = len(cause.bad) + cause.good
    return (
        f"{where}{way}: {cause.shortfall:.0%} short in {len(cause.bad)} of {flows} flows, "
        f"{min(cause.confidence, 0.999):.1%} sure"
    )


def subject(fabric: Fabric, cause: Cause) -> str:
    """`switch leaf3`, or `one of 4 links of leaf3`."""
    named = [describe(fabric, part) for part in cause.parts]
    return named[0] if len(named) == 1 else f"one of {_listed(fabric, cause, named)}"


def describe(fabric: Fabric, part: Part) -> str:
    match part.kind:
        case "node":
            seats = [fabric.nic(part.name, rail) for rail in fabric.rails]
            match [nic.device for nic in seats if nic]:
                case [only]:
                    return f"node {part.name} or its NIC {only}".rstrip()
            return f"node {part.name}"
        case "nic":
            nic = fabric.nic(part.name, part.other)
            return f"NIC {nic.device if nic else part.other} of {part.name} or its cable"
        case "link":
            return f"link {fabric.name(part.name)} - {fabric.name(part.other)}"
        case "uplinks":
            return f"uplinks of {fabric.name(part.name)}"
        case "switch":
            return f"switch {fabric.name(part.name)}"
        case "path":
            return f"path between {part.name} and {part.other}"


def _listed(fabric: Fabric, cause: Cause, named: Sequence[str]) -> str:
    if len(named) <= 3:
        return ", ".join(named)
    kinds = Counter(part.kind for part in cause.parts)
    ends = set.intersection(*({part.name, part.other} for part in cause.parts))
    common = f" of {fabric.name(next(iter(ends - {''})))}" if len(ends - {""}) == 1 else ""
    return " and ".join(_many(kind, count) for kind, count in kinds.items()) + common


def _many(kind: PartKind, count: int) -> str:
    words = {"node": "nodes", "nic": "NICs", "link": "links", "switch": "switches"}
    return f"{count} {kind if count == 1 else words.get(kind, kind)}"
