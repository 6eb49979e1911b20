"""Decide if nodes are good for a job: by history, or by the tests worth their time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from anubis.core.clock import Time
from anubis.core.errors import UsageError
from anubis.core.history.events import JobAllocated
from anubis.core.history.maintenance import open_windows
from anubis.core.history.standing import Standing, tell_debts
from anubis.core.records import Judgement, SelectionPolicy
from anubis.core.select.decision import Decision
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import cluster_file, find, time_in
from anubis.operations.decide import (
    USUAL,
    Repertoire,
    Weighing,
    add,
    keep,
    read_repertoire,
    refuse_nodes,
)
from anubis.operations.keeper_news import time_after, weighing_by_now
from anubis.operations.owners import owner_name, reported_work
from anubis.operations.requests import GateRequest, Terms
from anubis.operations.selector import Past
from anubis.report.gate import BadLinks, Doubt, GateResult
from anubis.report.maintenance import sentence
from anubis.store.history import ClusterHistory, History

if TYPE_CHECKING:
    from anubis.report.view import CampaignResult

REPEATS_DIFFER = (
    "the repeats of a single node differ too much from run to run to judge it by them: give"
    " criteria of 3 or more nodes of its kind (--criteria PATH), or a policy with wider limits"
    " (--policy shared-machine), or let it pass (--on-unknown pass)"
)

NO_PROOF = (
    "what it passed is less than its keeper asks of it (anubis validate runs the whole suite)"
)


def gate(
    request: GateRequest,
    terms: Terms = USUAL,
    caller: Caller = NO_CALLER,
    *,
    is_kept: bool = True,
    file: str = "",
) -> GateResult:
    """Decide if nodes are good for a job. Nothing runs without `may_test`, nor on nodes that the
    history calls unfit, that are under maintenance at any time of the job, or at work for another
    one. `unknown_passes`: a node may pass if no test could judge it. `is_kept`: the decision is in
    the history before anything runs, together with its campaign; otherwise the caller keeps it.
    `file`: the cluster's file, if the terms name the cluster as the history knows it. A
    refused gate leaves no trace. Nodes that the cluster does not have are refused, unless another
    node stops the job anyway: a caller that reads a refusal as "unknown" must not lose a no-go."""
    if not 0 < request.duration_s < math.inf:
        raise UsageError("a gate needs the job's duration, such as --duration 24h")
    repertoire = read_repertoire(terms)
    job = JobAllocated(nodes=tuple(request.nodes), duration_s=request.duration_s)
    with caller.history() as history:
        part, cluster = find(history, terms.cluster, caller, job.nodes)
        time = time_in(part, caller)
        facts = _read_facts(history, part, time, request, repertoire, file)
        refused = tuple(_refusals(facts, repertoire.policy))
        decision = replace(facts.weighing.decide(job), refused=refused)
        if not refused:  # a no-go counts, whatever other nodes were named
            refuse_nodes(part, job, terms, may_test=request.may_test)
        holds_back = facts.holding_back(decision)
        asks = not refused and (request.unknown_passes or not holds_back)
        runs = asks and (request.may_test or not decision.tests)
        if is_kept and not (runs and decision.tests):
            keep(decision, cluster, history, caller)
    doubt = _doubt_of_risk(decision, terms, repertoire.policy)
    if asks and not runs:
        doubt = "tests"
    elif not asks and not refused:
        doubt = holds_back
    caller.decided(decision)
    with _tests(decision, terms, caller) if runs else nullcontext() as campaign:
        if campaign:  # much may have been reported while it ran
            with caller.history() as history:
                part = history.cluster(decision.cluster)
                time = time_after(campaign.view.campaign, part, caller)
                facts = _read_facts(history, part, time, request, repertoire, file, campaign)
            doubt = doubt or ("busy" if facts.busy else "")
        judged = _judge_nodes(facts, campaign, is_doubtful=bool(doubt))
        result = GateResult(
            decision=decision,
            judged=judged,
            links={**facts.links, **_tested_links(campaign, facts.nodes)},
            parts=facts.parts,
            may_cross_parts=repertoire.policy.defective_parts == "go",
            unfit=facts.unfit,
            owing=_owing(facts, judged, campaign),
            busy=facts.busy,
            campaign=campaign,
            is_tested=runs,
            doubt=doubt,
            clock=facts.clock,
            unknown_passes=request.unknown_passes,
        )
        if any(criterion.from_repeats and criterion.refusal for criterion in result.criteria):
            caller.remark(REPEATS_DIFFER)
        caller.gated(result)
    return result


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What is known of the nodes, before any test or after the tests."""

    nodes: Sequence[str]  # also those that are down, which the decision leaves out
    weighing: Weighing
    unfit: Mapping[str, str]  # nodes, and why no test can make them good for this job
    maintained: Collection[str]  # those of them against which nothing else is held
    links: BadLinks
    parts: Mapping[str, str]
    busy: Mapping[str, str]
    clock: str

    @property
    def standing(self) -> Standing:
        return self.weighing.past.standing

    def holding_back(self, decision: Decision) -> Doubt:
        """Reason against a pass that no test of this decision can settle; empty: none."""
        if self.busy:
            return "busy"
        return "owed" if _has_unpaid_debt(decision, self.standing) else ""


def _read_facts(
    history: History,
    part: ClusterHistory,
    time: Time,
    request: GateRequest,
    repertoire: Repertoire,
    file: str,
    campaign: CampaignResult | None = None,
) -> _Facts:
    """Facts by now. `campaign`: what has tested the nodes just now."""
    nodes, terms = tuple(request.nodes), repertoire.terms
    verdicts = campaign.view.assessment.nodes if campaign else ()
    involved, tested = {*nodes, *terms.partners}, {verdict.node for verdict in verdicts}
    weighing = weighing_by_now(part, time, repertoire, involved, tested)
    past = weighing.past
    maintained = _maintained(nodes, past, time.now, request.duration_s)
    bad = {verdict.node for verdict in verdicts if verdict.judgement is Judgement.DEFECTIVE}
    unfit = {node: past.standing.unfit[node] for node in nodes if node in past.standing.unfit}
    unfit = {node: why for node, why in unfit.items() if node not in bad}  # by its own verdict
    return _Facts(
        nodes=nodes,
        weighing=weighing,
        unfit=unfit | maintained,
        maintained=maintained.keys(),
        links=past.links_among(nodes),
        parts=_defective_parts(history, part, nodes),
        busy=_busy_nodes(nodes, part, file or terms.cluster, time.now, terms.job),
        clock=time.doubt,
    )


def _defective_parts(
    history: History, part: ClusterHistory, nodes: Sequence[str]
) -> Mapping[str, str]:
    every = chain.from_iterable(part.experience.part_verdicts().values())
    if len(nodes) < 2 or not any(v.parts and v.judgement is Judgement.DEFECTIVE for v in every):
        return {}
    from anubis.operations.links import defective_between  # loads all that locates parts

    return defective_between(history, part, nodes)


def _maintained(nodes: Sequence[str], past: Past, at: float, duration_s: float) -> dict[str, str]:
    """Nodes that are under maintenance at any time of the job, and the sentence on it."""
    windows = open_windows(past.windows, at, at + duration_s)
    return {node: sentence(window, at) for node, window in windows.items() if node in nodes}


def _owing(
    facts: _Facts, judged: Mapping[str, Judgement], campaign: CampaignResult | None
) -> dict[str, str]:
    """Nodes that still owe an answer, or of which the tests that ran are no proof; and why."""
    verdicts = campaign.view.assessment.nodes if campaign else ()
    passed = [v.node for v in verdicts if v.judgement is Judgement.HEALTHY and v.node in judged]
    unproven = {
        node: facts.standing.reason(node) or NO_PROOF
        for node in passed
        if facts.standing.judgement(node) is Judgement.UNKNOWN
    }
    return unproven | tell_debts(facts.nodes, facts.standing.owes)


def _refusals(facts: _Facts, policy: SelectionPolicy) -> Iterator[str]:
    yield from (f"{node}: {why}" for node, why in facts.unfit.items())
    if policy.defective_parts == "no-go":
        yield from (f"{part} is defective: {why}" for part, why in facts.parts.items())
    links = facts.links.items()
    yield from (f"bad between {', '.join(sorted(nodes))}: {why}" for nodes, why in links)


def _tests(
    decision: Decision, terms: Terms, caller: Caller
) -> AbstractContextManager[CampaignResult | None]:
    if not decision.tests:
        return nullcontext()
    from anubis.operations.decided_tests import carried_out_tests  # half of a gate's imports

    return carried_out_tests(decision, terms, caller, beside=partial(add, decision))


def _busy_nodes(
    nodes: Sequence[str], part: ClusterHistory, cluster: str | None, at: float, own_job: str
) -> dict[str, str]:
    """Nodes with another job, as it was reported, and its id. An orchestrator gives its
    nodes to jobs itself and knows more than was reported: it is asked when a test has to run.
    `cluster`: its name or file."""
    settings = cluster_file(part, cluster)
    if settings and owner_name(settings):
        return {}
    return reported_work(part.jobs.open_jobs(), at, own_job).reasons_to_spare(nodes)


def _doubt_of_risk(decision: Decision, terms: Terms, policy: SelectionPolicy) -> Doubt:
    if decision.is_bearable:
        return ""
    if terms.budget:
        return "budget"
    return "" if policy.above_p0 == "go" else "policy"


def _has_unpaid_debt(decision: Decision, standing: Standing) -> bool:
    """True if a node has a debt that none of these tests can pay: then they cannot let it pass."""
    chosen = defaultdict[str, set[str]](set)
    for test in decision.tests:
        for node in test.nodes:
            chosen[node].add(test.benchmark)
    return any(
        not chosen[node].issuperset(standing.owed_benchmarks(node)) for node in decision.nodes
    )


def _judge_nodes(
    facts: _Facts, campaign: CampaignResult | None, *, is_doubtful: bool
) -> dict[str, Judgement]:
    """Judgement on each node. A node that passed its tests is unknown if they are no proof: it owes
    more, or something was reported while they ran. So is every healthy node while too much stays
    untested."""
    verdicts = campaign.view.assessment.nodes if campaign else ()
    tested = {verdict.node: verdict.judgement for verdict in verdicts}
    now = {node: facts.standing.judgement(node) for node in facts.nodes}
    judged = {node: tested.get(node, now[node]) for node in facts.nodes}
    healthy = {node for node, judgement in judged.items() if judgement is Judgement.HEALTHY}
    unproven = {n for n in healthy if is_doubtful or now[n] is not Judgement.HEALTHY}
    return judged | dict.fromkeys((*unproven, *facts.maintained), Judgement.UNKNOWN)


def _tested_links(campaign: CampaignResult | None, nodes: Collection[str]) -> BadLinks:
    """Bad links between these nodes, by the assessment's verdicts on their paths."""
    return {
        part.nodes: part.reason.removeprefix(f"{part.subject}: ")
        for part in (campaign.view.assessment.parts if campaign else ())
        if part.nodes and part.judgement is Judgement.DEFECTIVE and set(part.nodes) <= set(nodes)
    }
