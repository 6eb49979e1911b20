"""Locate the faulty parts behind pairs that fall short, with confidence and evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from anubis.core.fabric import (
    NVLINK,
    Fabric,
    Nic,
    Numbers,
    Part,
    PartKind,
    Shares,
    link_name,
    natural_key,
    port_name,
)
from anubis.core.network.crossing import WAYS, Flow, Parts, Way
from anubis.core.network.posterior import Case, FaultPrior, Observation, Problem, odds
from anubis.core.network.slow_domains import SlowDomain, set_off, slow_domains

FEWEST_FLOWS = 12  # fewer flows do not show what a cause usually takes
LAYERS = 3  # levels of causes behind causes
NOTHING = 0.995  # a larger shortfall is called so
SURELY, DEAD, UNSTEADY = 0.999, 0.9, 0.25  # shares: of paths, of the rate, of flows
WRONG_ROUTES = 3.0  # routes are wrong if chance explains better by more than exp of this


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A fault, and the parts that explain it equally well; a single part if it is known."""

    parts: tuple[Part, ...]  # the most probable first
    chances: tuple[float, ...]  # of each part, given that it is one of them
    way: Way
    steady: bool  # it shows in all flows across it; else in some tests only
    confidence: float  # probability that it is one of them, not another part or chance
    shortfall: float  # median of its bad flows, beyond the share of other causes
    bad: tuple[Observation, ...]  # flows that cross it and speak for it
    good: int  # measurements of flows that cross it and are good
    flows: int  # different flows that may cross it; some are measured more than once


@dataclass(frozen=True, kw_only=True)
class Located:
    causes: tuple[Cause, ...]
    unexplained: tuple[Observation, ...]  # bad, more probably by chance than by any cause
    by_routes: bool = False  # known routes were used


def hops_of(fabric: Fabric, flow: Flow) -> int | None:
    a, b = fabric.nic(*flow.source), fabric.nic(*flow.target)
    return fabric.hops(a, b) if a and b else None


def locate(
    fabric: Fabric, observations: Sequence[Observation], model: FaultPrior | None = None
) -> Located:
    """The most probable set of causes; parts that cannot be told apart count as one.

    If a cause takes the same share of every flow that crosses it, that share is subtracted. Flows
    that still fall short have another cause, such as a slow node on a slow leaf.
    """
    model = model or FaultPrior()
    observations = drop_wrong_routes(fabric, observations, model)
    slow = slow_domains(fabric, observations, model)
    observations = set_off(observations, slow, model) if slow else observations
    parts, flows = Parts(fabric), [observation.flow for observation in observations]
    shortfalls = np.array([observation.shortfall for observation in observations], dtype=np.float64)
    shortfall, crossings = shortfalls, list[_Crossed]()
    for _ in range(LAYERS):
        problem = Problem(parts, flows, shortfall, model)
        blamed = {part for crossed in crossings for part in crossed.cause.parts}
        newly = [
            crossed
            for case in problem.cases()
            for crossed in _causes(problem, case, observations)
            if not blamed & set(crossed.cause.parts)
        ]
        if not newly:
            break
        newly = _merge_directions(newly, shortfall, observations)
        crossings += newly
        shortfall = _unexplained_shortfall(shortfall, newly, model)
    stays = np.array([not flow.gone for flow in flows], dtype=bool)
    bad = np.flatnonzero((shortfalls > model.limit) & stays)
    for crossed in crossings:
        bad = np.setdiff1d(bad, crossed.bad)
    causes = [crossed.cause for crossed in crossings] + [_domain_cause(s, model) for s in slow]
    return Located(
        causes=tuple(sorted(causes, key=lambda cause: (-len(cause.bad), cause.parts))),
        unexplained=tuple(observations[row] for row in bad.tolist()),
        by_routes=any(flow.via for flow in flows),
    )


def _domain_cause(slow: SlowDomain, model: FaultPrior) -> Cause:
    bad = tuple(seen for seen in slow.observations if seen.shortfall > model.limit)
    return Cause(
        parts=(Part("switch", slow.name),),
        chances=(1.0,),
        way="both",
        steady=True,
        confidence=SURELY,
        shortfall=float(np.median([seen.shortfall for seen in bad])),
        bad=bad,
        good=len(slow.observations) - len(bad),
        flows=len({seen.flow for seen in slow.observations}),
    )


def drop_wrong_routes(
    fabric: Fabric, observations: Sequence[Observation], model: FaultPrior
) -> Sequence[Observation]:
    """The observations, without their routes if paths taken by chance explain them far better.

    Forwarding tables do not describe paths that switches choose on the fly (adaptive routing), and
    are wrong if they are older than the cables.
    """
    if not any(observation.flow.via for observation in observations):
        return observations
    hashed = [
        replace(observation, flow=replace(observation.flow, via=(), back=()))
        for observation in observations
    ]
    parts = Parts(fabric)
    gains = [_gain(parts, paths, model) for paths in (observations, hashed)]
    return observations if gains[0] + WRONG_ROUTES >= gains[1] else hashed


def _gain(parts: Parts, observations: Sequence[Observation], model: FaultPrior) -> float:
    flows = [observation.flow for observation in observations]
    shortfall = np.array([observation.shortfall for observation in observations], dtype=np.float64)
    return sum(case.gain for case in Problem(parts, flows, shortfall, model).cases())


@dataclass(frozen=True, kw_only=True)
class _Crossed:
    """A cause, and the rows of the observations that cross it."""

    cause: Cause
    bad: Numbers  # rows that speak for it
    rows: Numbers
    share: Shares  # of the cause, in the ways of each of the rows


def _causes(
    problem: Problem, case: Case, observations: Sequence[Observation]
) -> Iterator[_Crossed]:
    shares = [problem.shares[number] for number in case.classes.tolist()]
    for column in case.chosen:
        alike = _same_parts(problem, case, problem.classes[case.classes[column]] // 3)
        chances: dict[int, float] = {}
        for place, member, chance in case.alternatives(
            column, 1 / problem.model.odds, shares, alike
        ):
            number = int(problem.classes[case.classes[place]][member]) // 3
            chances[number] = chances.get(number, 0.0) + chance
        ranked = sorted(chances, key=lambda number: -chances[number])
        total = sum(chances.values())
        crosses = problem.crossed.column == case.classes[column]
        crossing, share = problem.crossed.row[crosses], problem.q[crosses]
        short = problem.shortfall[crossing] > problem.model.limit
        best = np.array([_best_rival(case, column, row) for row in crossing.tolist()])
        mostly = short & (share >= best)
        bad = crossing[mostly if mostly.any() else short]
        cause = Cause(
            parts=tuple(problem.parts.part(3 * number) for number in ranked),
            chances=tuple(chances[number] / total for number in ranked),
            way=WAYS[problem.classes[case.classes[column]][0] % 3],
            steady=bool(problem.steady[case.classes[column]]),
            confidence=case.confidence(_named_shares(problem, case, ranked)),
            shortfall=float(np.median(problem.shortfall[bad])),
            bad=tuple(observations[row] for row in bad.tolist()),
            good=int(np.sum(problem.shortfall[crossing] <= problem.model.limit)),
            flows=_count_flows(observations, crossing),
        )
        yield _Crossed(cause=cause, bad=bad, rows=crossing, share=share)


def _merge_directions(
    crossings: Sequence[_Crossed], shortfall: Shares, observations: Sequence[Observation]
) -> list[_Crossed]:
    """Causes that blame the same parts, as one: a link that is worse in one direction is one bad
    link."""
    by_parts: dict[frozenset[Part], _Crossed] = {}
    for crossed in sorted(crossings, key=lambda crossed: -len(crossed.bad)):
        parts = frozenset(crossed.cause.parts)
        if parts not in by_parts:
            by_parts[parts] = crossed
            continue
        first, second = by_parts[parts], crossed
        bad = np.union1d(first.bad, second.bad)
        extra = ~np.isin(second.rows, first.rows)
        rows = np.concatenate([first.rows, second.rows[extra]])
        cause = replace(
            first.cause,
            way="both" if first.cause.way != second.cause.way else first.cause.way,
            shortfall=float(np.median(shortfall[bad])),
            bad=tuple(observations[row] for row in bad.tolist()),
            good=max(first.cause.good, second.cause.good),
            flows=_count_flows(observations, rows),
        )
        by_parts[parts] = _Crossed(
            cause=cause,
            bad=bad,
            rows=rows,
            share=np.concatenate([first.share, second.share[extra]]),
        )
    return list(by_parts.values())


def _count_flows(observations: Sequence[Observation], rows: Numbers) -> int:
    return len({observations[row].flow for row in rows.tolist()})


def _same_parts(problem: Problem, case: Case, numbers: Numbers) -> list[int]:
    """The columns of a case that are these parts, or some of them, in any direction."""
    return [
        position
        for position, number in enumerate(case.classes)
        if np.isin(problem.classes[number] // 3, numbers).all()
    ]


def _named_shares(problem: Problem, case: Case, parts: Sequence[int]) -> Shares:
    """The share of these parts in each column of a case, in any direction."""
    return np.array(
        [
            problem.shares[number][np.isin(problem.classes[number] // 3, parts)].sum()
            for number in case.classes.tolist()
        ]
    )


def _unexplained_shortfall(
    shortfall: Shares, causes: Sequence[_Crossed], model: FaultPrior
) -> Shares:
    """The shortfall that these causes do not explain; NaN if they hide it."""
    left = shortfall.copy()
    worst = np.zeros(len(shortfall))
    for crossed in causes:
        bad, loss = crossed.bad, crossed.cause.shortfall
        surely = crossed.rows[crossed.share > SURELY]
        off = np.abs(shortfall[bad] - loss) > model.limit
        steady = len(bad) >= FEWEST_FLOWS and off.mean() < UNSTEADY
        if len(crossed.cause.parts) == 1 and loss < DEAD and steady:
            worst[surely] = np.maximum(worst[surely], loss)
            left[np.setdiff1d(bad, surely)] = np.nan
        else:
            left[bad] = np.nan
    return np.asarray(1 - (1 - left) / (1 - worst))


def _best_rival(case: Case, column: int, row: int) -> float:
    """The best chance of any other cause to hit this row; 0.5 for rows within the noise."""
    place = int(np.searchsorted(case.rows, row))
    if place == len(case.rows) or case.rows[place] != row:
        return 0.5
    rivals = [rival for rival in case.chosen if rival != column]
    return float(case.evidence.q[place, rivals].max(initial=0.0))


def healthy_nodes(observations: Sequence[Observation], model: FaultPrior | None = None) -> set[str]:
    """The participating nodes without a flow that speaks for a fault."""
    shortfall = np.array([observation.shortfall for observation in observations])
    speaks = odds(shortfall, model or FaultPrior()) > 1
    ends = [
        {observation.flow.source.node, observation.flow.target.node} for observation in observations
    ]
    return set().union(*ends).difference(*compress(ends, speaks))


# --- in words --------------------------------------------------------------------------------


def sentence(fabric: Fabric, cause: Cause) -> str:
    """The sentence about a cause: the part at fault and the evidence, short enough for a drain
    reason."""
    names = [describe(fabric, part) for part in cause.parts]
    place = (
        names[0] if len(names) == 1 else f"cannot tell apart: {_list_names(fabric, cause, names)}"
    )
    way = {"both": "", "out": ", outwards only", "in": ", inwards only"}[cause.way]
    when = "" if cause.steady else ", on and off"
    bad = len({seen.flow for seen in cause.bad})
    some = "all" if bad == cause.flows else f"{bad} of"
    is_end = cause.parts[0].kind in ("node", "nic")
    some += f" its {cause.flows} flows" if is_end else f" {cause.flows} flows that may cross it"
    how = f"{cause.shortfall:.0%} below normal in {some}"
    if cause.shortfall >= NOTHING:
        how = f"carries nothing, {some} failed"
    return f"{place}{way}{when}: {how}, {min(cause.confidence, 0.999):.1%} sure"


def subject(fabric: Fabric, cause: Cause) -> str:
    """The subject of a cause: `switch leaf3`, or `one of 4 links of leaf3`."""
    named = [describe(fabric, part) for part in cause.parts]
    return named[0] if len(named) == 1 else f"one of {_list_names(fabric, cause, named)}"


def _node(part: Part) -> str:
    """The kind and name of a node; `node49` says both."""
    return part.name if part.name.startswith("node") else f"node {part.name}"


def describe(fabric: Fabric, part: Part) -> str:
    """The name of a part, with the ports at both ends if they are known."""
    match part.kind:
        case "node":
            rail_nics = [fabric.nic(part.name, rail) for rail in fabric.rails]
            match [nic for nic in rail_nics if nic]:
                case [only] if fabric.is_nvlink:
                    return f"{_node(part)} or the NVLinks of its GPU"
                case [only]:
                    return f"{_node(part)} or its NIC {only.device}".rstrip() + _port_suffix(
                        fabric, only
                    )
            return _node(part)
        case "nic":
            nic = fabric.nic(part.name, part.other)
            if fabric.is_nvlink:
                return f"NVLinks of GPU {part.other.removeprefix(NVLINK)} of {part.name}"
            if nic is None:
                return f"NIC {part.other} of {part.name} or its cable"
            return f"NIC {nic.device} of {part.name} or its cable{_port_suffix(fabric, nic)}"
        case "link":
            return f"link {link_name(fabric, fabric.link(part.name, part.other))}"
        case "uplinks":
            return f"uplinks of {fabric.name(part.name)}"
        case "switch":
            return f"{_switch_word(fabric, part.name)} {fabric.name(part.name)}"


def _switch_word(fabric: Fabric, switch: str) -> str:
    """The word for a switch: an NVLink domain counts as one switch, and has several."""
    if not fabric.is_nvlink:
        return "switch"
    names = next(domain.switches for domain in fabric.domains if domain.name == switch)
    return f"one of the {len(names)} NVLink switches of" if names[1:] else "NVLink switches of"


def _port_suffix(fabric: Fabric, nic: Nic) -> str:
    return f" at {port_name(fabric, nic.switch, nic.port)}" if nic.port else ""


def _list_names(fabric: Fabric, cause: Cause, named: Sequence[str]) -> str:
    if len(named) <= 2:
        return ", ".join(named)
    kinds = Counter(part.kind for part in cause.parts)
    counted = " and ".join(_count_in_words(kind, count) for kind, count in kinds.items())
    return counted + _shared_place(fabric, cause.parts)


def _shared_place(fabric: Fabric, parts: Sequence[Part]) -> str:
    """The switch, node or rail that all of these parts belong to, or the tiers that links join."""
    if shared := set.intersection(*(_switches(part) for part in parts)):
        return f" of {fabric.name(min(shared))}" if len(shared) == 1 else ""
    kinds = {part.kind for part in parts}
    nodes, rails = ({getattr(part, end) for part in parts} for end in ("name", "other"))
    if kinds == {"nic"} and len(nodes) == 1:
        return f" of {min(nodes)}"
    if kinds == {"nic"} and len(rails) == 1:
        return f" on rail {min(rails)}"
    return f" between {_tier_names(fabric, parts)}" if kinds == {"link"} else ""


def _switches(part: Part) -> set[str]:
    """The switches in the name of a part; none for a node or a NIC."""
    match part.kind:
        case "link":
            return {part.name, part.other}
        case "switch" | "uplinks":
            return {part.name}
    return set()


def _tier_names(fabric: Fabric, links: Sequence[Part]) -> str:
    """The switches that links join: `spine-0 to spine-3, core-0 to core-7`."""
    tiers: dict[int, set[str]] = {}
    for switch in {end for link in links for end in (link.name, link.other)}:
        tiers.setdefault(fabric.tier[switch], set()).add(fabric.name(switch))
    ordered = [sorted(names, key=natural_key) for _, names in sorted(tiers.items())]
    return ", ".join(" to ".join(dict.fromkeys((names[0], names[-1]))) for names in ordered)


def _count_in_words(kind: PartKind, count: int) -> str:
    words = {"node": "nodes", "nic": "NICs", "link": "links", "switch": "switches"}
    return f"{count} {kind if count == 1 else words.get(kind, kind)}"


def ranking(fabric: Fabric, cause: Cause) -> list[str]:
    """The parts of a class, with their chances, the most probable first."""
    return [
        f"{chance:.0%} {describe(fabric, part)}"
        for part, chance in zip(cause.parts, cause.chances, strict=True)
    ]
