"""News since a keeper's last turn: the verdicts of campaigns with what they prove, and what came
with time. They give the objections that the keeper would have after a turn now. Everything else
decides by these, so that no two answers about a node differ."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from anubis.config import configs
from anubis.core.clock import Time
from anubis.core.errors import ConfigError
from anubis.core.history.events import NodeAdded, NodeRemoved, OperatorSaid
from anubis.core.history.maintenance import open_windows
from anubis.core.history.standing import Standing
from anubis.core.keep.commands import Prove
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.keeper_events import Concluded, Dating, LifeEvent, VerdictReached, Waited
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.life import Life, Proof, ended_incidents, open_incidents
from anubis.core.keep.objections import Objections, objections
from anubis.core.records import BenchmarkSpec, Campaign, Judgement, NodeVerdict
from anubis.core.select.selection import Budget
from anubis.operations.caller import Caller
from anubis.operations.clusters import time_in
from anubis.operations.decide import Repertoire, Weighing, past_of, read_repertoire
from anubis.operations.keeping import DEFAULT
from anubis.operations.requests import Terms
from anubis.operations.selector import Past, Present
from anubis.operations.standings import present_of
from anubis.store.history import ClusterHistory
from anubis.store.keeping import Conclusion, LastTurn, News

LOOKED_AT = 100  # campaigns that are searched for the description of a program
OF_PRESENCE = NodeAdded, NodeRemoved, OperatorSaid

Prover = Callable[[tuple[str, ...]], Mapping[str, float]]


def objections_in(
    part: ClusterHistory,
    time: Time,
    nodes: Collection[str] | None = None,
    benchmarks: Sequence[Path] = (),
) -> Objections:
    """Objections of the keeper to these nodes, or to all, as if it had heard by now of all that was
    reported and concluded since its last turn. `benchmarks`: folders with programs of its suite
    beside the shipped ones; others are known as campaigns described them."""
    lives = part.keeping.lives() if nodes is None else part.keeping.lives_of(nodes)
    last = part.keeping.last_turn()
    news = part.keeping.news_of_nodes()
    kept = part.keeping.kept_by(or_none=True)
    policy = kept.policy if kept else configs.keeping(DEFAULT)
    if last is None:  # a person may have taken nodes away, and nothing is owed to a keeper
        keeper = Keeper(policy)
        words = (r for r in news.event_records if isinstance(r.event, OF_PRESENCE))
        keeper.hear(*sorted(words, key=attrgetter("at")))
        gone = [life for life in keeper.lives.values() if life.retired or not life.present]
        chosen = [life for life in gone if nodes is None or life.node in nodes]
        return objections(chosen, policy.suite)
    named = {node for record in news.event_records for node in record.event.nodes}
    before = objections(lives, policy.suite)
    denied = before.out.keys() | before.unproven.keys()
    if denied and news.conclusions:
        unheard = {conclusion.campaign for conclusion in news.conclusions}
        named |= {v.node for v in part.experience.validations() if v.campaign in unheard} & denied
    if nodes is not None:
        named &= {*nodes}
    if not named:
        return before
    touched = [life for life in lives if life.node in named]
    after = _hear(part, time, policy, last, touched, named, news, benchmarks)
    same = [life for life in lives if life.node not in named]
    return objections([*same, *after], policy.suite)


def weighing_by_now(
    part: ClusterHistory,
    time: Time,
    repertoire: Repertoire,
    nodes: AbstractSet[str] | None = None,
    tested: Collection[str] = (),
) -> Weighing:
    """Weighing by the past of these nodes, or of all, with the objections of the keeper by now, and
    with the doubt of the clock, but for nodes that were `tested` just now."""
    past = past_of(part, time.now, repertoire, nodes).doubting(time.doubt, tested)
    against = objections_in(part, time, nodes, repertoire.terms.benchmarks)
    past = past.add_objections(against)
    return Weighing(repertoire=repertoire, past=past, history=part, at=time.now)


def time_after(campaign: Campaign, part: ClusterHistory, caller: Caller) -> Time:
    """The time after a campaign, also if the clock was set back while it ran."""
    time = time_in(part, caller)
    return replace(time, now=max(time.now, campaign.finished_at or 0.0))


def _hear(
    part: ClusterHistory,
    time: Time,
    policy: KeepingPolicy,
    last: LastTurn,
    lives: Sequence[Life],
    named: AbstractSet[str],
    news: News,
    benchmarks: Sequence[Path],
) -> list[Life]:
    """Lives of the named nodes after the news."""
    keeper = Keeper(
        policy,
        lives,
        seen_at=float("-inf") if last.seen_at is None else last.seen_at,
        waited_at=last.at,
        dating=Dating(now=time.now, before=time.before),
    )
    events: list[LifeEvent] = [
        record for record in news.event_records if not named.isdisjoint(record.event.nodes)
    ]
    if news.conclusions:
        events += _heard_verdicts(part, time, keeper.lives, policy, news.conclusions, benchmarks)
    keeper.hear(*sorted(events, key=attrgetter("at")))
    return [life for node, life in keeper.lives.items() if node in named]


def _heard_verdicts(
    part: ClusterHistory,
    time: Time,
    lives: Mapping[str, Life],
    policy: KeepingPolicy,
    conclusions: Sequence[Conclusion],
    benchmarks: Sequence[Path],
) -> list[LifeEvent]:
    """Verdicts since the last turn, and what came with time after them."""
    at, terms = time.now, terms_of(policy, Proof.FULL, benchmarks)
    try:
        repertoire = read_repertoire(terms, partial(_specs_in, part, conclusions))
        present = present_of(part, at, repertoire)
    except ConfigError:
        return []
    past = partial(past_of, part, at, repertoire, standing=present.standing)
    prove = partial(proven_nodes, part, at, repertoire, past)
    verdicts = verdicts_of(part, conclusions, present.standing, prove, nodes=lives.keys())
    return [*verdicts, time_passed(part, present, lives, time)]


def _specs_in(
    part: ClusterHistory, conclusions: Sequence[Conclusion], missing: AbstractSet[str]
) -> dict[str, BenchmarkSpec]:
    """Programs of an operator's own folders, as the latest campaigns described them."""
    specs: dict[str, BenchmarkSpec] = {}
    latest = (row.id for row in part.campaigns.newest(LOOKED_AT) if row.cluster == part.cluster)
    unheard = (conclusion.campaign for conclusion in reversed(conclusions))
    for campaign in dict.fromkeys((*unheard, *latest)):
        if missing <= specs.keys():
            break
        described = part.campaigns.get(campaign).plan.specs
        specs = {spec.name: spec for spec in described if spec.name in missing} | specs
    return specs


def terms_of(
    policy: KeepingPolicy, proof: Proof, benchmarks: Sequence[Path], cluster: str | None = None
) -> Terms:
    """Terms by which a keeper chooses the tests of a proof."""
    is_light = proof in (Proof.LIGHT, Proof.CHECK)
    return Terms(
        suite=policy.check if is_light else policy.suite,
        policy=policy.selection,
        benchmarks=benchmarks,
        budget=Budget(seconds=policy.check_limit_s) if is_light else None,
        cluster=cluster,
    )


def time_passed(
    part: ClusterHistory,
    present: Present,
    lives: Mapping[str, Life],
    time: Time,
    watched: Collection[str] = (),
) -> Waited:
    """Changes that come with time alone. While the clock is in doubt, no pass counts as too old or
    as not yet valid."""
    at, stand = time.now, present.standing
    held = frozenset(hold.node for hold in part.holds.current(at))
    in_fleet = {*watched, *lives}
    unproven = (node for node in in_fleet if stand.judgement(node) is Judgement.UNKNOWN)
    in_incidents = [life.node for life in lives.values() if life.incidents]
    return Waited(
        at=at,
        unproven=frozenset() if time.doubt else frozenset(unproven),
        proven=frozenset() if time.doubt else frozenset(stand.passed),
        owes=frozenset(stand.owes),
        unreachable=held | stand.down,
        held=held,
        incidents=open_incidents(present.incidents, at),
        ended=ended_incidents(present.incidents, in_incidents, at),
        maintained=open_windows(present.windows, at),
    )


def verdicts_of(
    part: ClusterHistory,
    conclusions: Sequence[Conclusion],
    standing: Standing,
    prove: Prover,
    nodes: Collection[str] | None = None,
) -> list[VerdictReached]:
    """Verdicts of campaigns that are new to the keeper, on all nodes or on these. `prove`: returns
    those of some nodes that passed everything that would be chosen for new ones, and since when."""
    if not conclusions:
        return []
    tests = {
        action.campaign: action.command
        for action in part.keeping.open_actions()
        if isinstance(action.command, Prove)
    }
    of_nodes = {c.campaign: part.assessments.node_verdicts(c.campaign, nodes) for c in conclusions}
    latest = {v.node: c.campaign for c in conclusions for v in of_nodes[c.campaign]}
    fit = tuple(node for node in latest if standing.counted.get(node))
    proven = prove(fit) if fit else {}
    return [
        VerdictReached(
            at=conclusion.at,
            campaign=conclusion.campaign,
            began=conclusion.began,
            verdicts={
                verdict.node: _conclusion_for(
                    verdict,
                    tests.get(conclusion.campaign),
                    is_fit=verdict.node not in standing.unfit,
                    owes=verdict.node in standing.owes,
                    since=proven.get(verdict.node)
                    if latest[verdict.node] == conclusion.campaign
                    else None,
                )
                for verdict in of_nodes[conclusion.campaign]
            },
            test=test.id if (test := tests.get(conclusion.campaign)) else "",
        )
        for conclusion in conclusions
    ]


def proven_nodes(
    part: ClusterHistory,
    at: float,
    repertoire: Repertoire,
    past: Callable[[], Past],
    nodes: tuple[str, ...],
) -> dict[str, float]:
    """Those of the nodes that passed everything that would be chosen for new ones, and when the
    first of these tests began. `past`: reads the whole past."""
    before = past()
    weighing = Weighing(repertoire=repertoire, past=before, history=part, at=at)
    chosen = defaultdict[str, set[str]](set)
    for test in weighing.decide(NodeAdded(nodes=nodes)).tests:
        for node in test.nodes:
            chosen[node].add(test.benchmark)
    counted = before.standing.counted
    since = {n: math.inf for n in nodes if chosen[n] and chosen[n] <= counted[n].keys()}
    for result in part.experience.validations():
        passed = chosen[result.node].intersection(result.benchmarks) if result.node in since else ()
        if any(counted[result.node][name] == result.at for name in passed):
            since[result.node] = min(since[result.node], result.since)
    return since


def _conclusion_for(
    verdict: NodeVerdict, test: Prove | None, *, is_fit: bool, owes: bool, since: float | None
) -> Concluded:
    """Conclusion for a node. Tests chosen as proof are proof. Whatever was asked for, the node is
    fully proven if it has now passed all that a new one has to pass, since the first of these tests
    began (`since`)."""
    asked_for = test if test and verdict.node in test.owed else None
    return Concluded(
        judgement=verdict.judgement,
        code=verdict.code,
        reason=verdict.reason,
        proof=asked_for.proof if asked_for else None,
        about=asked_for.about if asked_for else "",
        whole_since=since,
        is_fit=is_fit,
        owes=owes,
    )
