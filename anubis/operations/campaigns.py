"""Plan campaigns, run them, and resume them after an interruption."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from anubis.config import catalog, configs, criteria_files
from anubis.core.campaign import planning
from anubis.core.campaign.follow_ups import nodes_handed_back
from anubis.core.campaign.planning import Estimate, Schedule
from anubis.core.campaign.state_machine import CampaignEvent, CampaignMachine
from anubis.core.clock import TOLERANCE_S
from anubis.core.errors import (
    AnubisError,
    NothingLearnedError,
    Stopped,
    StoreUnreachableError,
    UsageError,
)
from anubis.core.fabric import Link
from anubis.core.judge.equality import differences, versions
from anubis.core.judge.judgement import mark_unfinished
from anubis.core.network.coverage import Coverage, Why, coverage, untested_by_reason
from anubis.core.network.group_search import REPEATS
from anubis.core.network.reproduction import (
    divide,
    most_rounds,
    most_rounds_together,
    rounds_of_two_parts,
)
from anubis.core.records import (
    Campaign,
    CampaignKind,
    ClusterIdentity,
    Execution,
    Node,
    Plan,
    canonical,
    sets_taught_by,
)
from anubis.operations import campaign_files
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.campaign_files import Brief, Setting
from anubis.operations.clusters import enter, identify, time_in
from anubis.operations.executors import executor_of
from anubis.operations.history import resume_hint, view_in
from anubis.operations.keeper_news import objections_in
from anubis.operations.links import find_returning_faults, suspect_returning_parts
from anubis.operations.names import new_name
from anubis.operations.owners import (
    OthersWork,
    free_nodes,
    is_brought_up,
    others_work,
    refuse_named,
    refuse_unseen,
    spare_busy,
    windows_known,
)
from anubis.operations.precedents import Precedents, precedents, precedents_of
from anubis.operations.requests import CampaignRequest
from anubis.operations.validator import CampaignOutcome, carry_out, judge
from anubis.reach.executors.executor import Executor
from anubis.report.campaign_remarks import remarks_on
from anubis.report.view import CampaignResult, CampaignView
from anubis.store import event_log
from anubis.store.database import absent_file
from anubis.store.database_errors import insist
from anubis.store.history import ClusterHistory, History
from anubis.store.holds import RENEWED_S, HeldNodes, holder_of, utc
from anubis.text import places
from anubis.text.hostlist import shorten
from anubis.text.wording import quantity, time_span

LOOKED_AT = 100  # campaigns that are searched for the latest interrupted one

ACCEPT = "repair it, or learn what is normal for its new kind with anubis accept"
PLURALS = {"leaf": "leaves"}  # that an s does not make


@dataclass(frozen=True, kw_only=True)
class PlannedCampaign:
    """A campaign that would run, and the limit on simultaneous nodes."""

    plan: Plan
    parallel_nodes: int | None

    @cached_property
    def costs(self) -> tuple[Estimate, ...]:
        phases = range(len(self.plan.phases))
        return tuple(
            planning.estimate(self.plan, phase, self.parallel_nodes, self._schedule)
            for phase in phases
        )

    @cached_property
    def coverage(self) -> Coverage | None:
        """Parts of the fabric that the planned pairs cross."""
        fabric = self.plan.fabric
        if fabric is None:
            return None
        meeting = planning.nodes_that_meet_all(self.plan, fabric)
        rounds = planning.planned_rounds(self.plan, fabric, self._schedule)
        return coverage(fabric, rounds, meeting)

    @cached_property
    def _schedule(self) -> Schedule:
        return planning.schedule(self.plan)

    @cached_property
    def why_untested(self) -> Mapping[Why, tuple[Link, ...]]:
        """Links that no pair crosses, by reason."""
        placed = planning.placed_nodes(self.plan, self.plan.fabric) if self.plan.fabric else []
        return untested_by_reason(self.coverage, placed) if self.coverage else {}


def plan_campaign(request: CampaignRequest, caller: Caller = NO_CALLER) -> PlannedCampaign:
    """Plan a campaign: nodes are looked up, but nothing runs on them."""
    brief = campaign_files.read_request(request, caller)
    cluster, work = brief.setting.cluster, OthersWork()
    if is_brought_up(cluster):
        # wall clock: only a plan, before the history is read
        work = others_work(cluster, {}, caller.clock())
    if request.nodes is None:
        work = dataclasses.replace(work, retired=_retired_nodes(brief, caller))
        brief = spare_busy(brief, work, caller)
    else:  # a plan for nodes at work is as good as another
        refuse_unseen(request.nodes, cluster, work)
    with executor_of(
        brief.setting.cluster,
        brief.programs,
        caller,
        used=brief.benchmarks,
        nodes=brief.request.nodes,
    ) as executor:
        nodes = free_nodes(brief, executor.nodes(), work, caller)
        plan = campaign_files.make_plan(brief, nodes)
    alone = [entry for phase in plan.phases for entry in phase.entries if entry.scope == "node"]
    if plan.reproducing:
        caller.remark(_search_sentence(plan))
    if brief.policy.confirm and alone and not plan.reproducing:
        longest = time_span(sum(entry.repeats * entry.duration_s for entry in alone))
        caller.remark(
            "not in the plan: a program by which a node falls short runs there once more; all of "
            f"them take {longest}"
        )
    return PlannedCampaign(plan=plan, parallel_nodes=brief.setting.parallel_nodes)


def _retired_nodes(brief: Brief, caller: Caller) -> Collection[str]:
    """Retired nodes of the cluster. A plan begins no history."""
    if absent_file(caller.find_history(begins=True)):
        return ()
    with suppress(UsageError), caller.history() as history:
        part = history.cluster(identify(brief.request.cluster, brief.setting.cluster).name)
        return objections_in(part, time_in(part, caller)).retired
    return ()


def _search_sentence(plan: Plan) -> str:
    """A sentence with the number of rounds that a search may take, and their time."""
    divided = divide([node.name for node in plan.nodes], plan.fabric)
    entries = [entry for phase in plan.phases for entry in phase.entries]
    group_s = [entry.duration_s for entry in entries if entry.workload in plan.reproducing]
    round_s, brief_s = sum(group_s), min(group_s)
    rounds = most_rounds(divided)
    parts = ", ".join(
        f"{quantity(len(groups), kind, PLURALS.get(kind, ''))} of up to "
        f"{max(map(len, groups)):,} nodes"
        for kind, groups in divided.levels().items()
    )
    meet = rounds_of_two_parts(divided)
    across = [entry for entry in entries if entry.workload in plan.across]
    pair_s = sum(entry.duration_s for entry in across)
    turns = planning.turns_across(plan, [part.nodes for part in divided.parts]) if across else 0
    well = [f"every two parts, {quantity(meet, 'round')}"] * bool(meet)
    well += [f"pairs across the parts, {time_span(turns * pair_s)}"] * bool(turns)
    well += ["all nodes together, 1 round"]
    well_s = (meet + 1) * brief_s + turns * pair_s
    together = most_rounds_together(divided)
    return (
        f"divided into {parts or 'halves, as no topology was given'}; for one bad node at most "
        f"{quantity(rounds, 'round')}, {time_span(rounds * round_s)}, and up to "
        f"{REPEATS} times as many if it fails at times; if every part is well: "
        f"{', '.join(well)}, {time_span(well_s)} in all"
        + (
            f"; for two nodes that fail only together at most {quantity(together, 'round')}, "
            f"{time_span(together * round_s)}"
            if together
            else ""
        )
    )


def run_campaign(request: CampaignRequest, caller: Caller = NO_CALLER) -> CampaignResult:
    """Run a campaign. Every result is kept as soon as it arrives; learned criteria are written."""
    with carried_out(request, caller) as result:
        return result


@contextmanager
def carried_out(
    request: CampaignRequest,
    caller: Caller,
    beside: Callable[[History], None] = lambda history: None,
) -> Iterator[CampaignResult]:
    """Run a campaign and yield its result. Its nodes are released after the block, which may take
    long or fail, so a caller that makes more of the result gives its own answer inside the block.
    `beside`: writes what belongs to the campaign; a refused campaign leaves no trace of either."""
    brief = campaign_files.read_request(request, caller)
    with caller.history(begins=True) as history, ExitStack() as until_all_has_ended:
        premises = _read_premises(history, brief, caller)
        brief = spare_busy(brief, premises.work, caller)
        if is_brought_up(brief.setting.cluster):  # or it would wait in the queue of their owner
            holds = history.cluster(premises.cluster.name).holds
            holds.refuse_held(brief.request.nodes or (), holder_of(brief.request.name), premises.at)
        with executor_of(
            brief.setting.cluster,
            brief.programs,
            caller,
            used=brief.benchmarks,
            nodes=brief.request.nodes,
            fabric=brief.simulated_fabric(),
        ) as executor:
            nodes = free_nodes(brief, executor.nodes(), premises.work, caller)
            campaign = _new_campaign(brief, premises, nodes, executor.now(), caller)
            if campaign.kind.names_parts:
                part = history.cluster(campaign.cluster)
                plan = suspect_returning_parts(campaign.plan, history, part)
                campaign = dataclasses.replace(campaign, plan=plan)

            def begin() -> None:
                names = [node.name for node in campaign.plan.nodes]
                enter(history, premises.cluster, caller, names)
                beside(history)
                history.campaigns.begin(campaign)

            held = until_all_has_ended.enter_context(_hold(campaign, history, caller, begin))
            with _saying_how_to_go_on(campaign, held):
                until_all_has_ended.enter_context(history.campaigns.claim(campaign.id))
            yield _drive(
                campaign, brief.setting, executor, history, caller, held, before=premises.before
            )


@dataclass(frozen=True, kw_only=True)
class _Premises:
    """What the history and the owner of the nodes say before anything is decided."""

    cluster: ClusterIdentity
    at: float  # by the clock of the cluster's turns
    work: OthersWork
    before: Precedents
    skus: Mapping[str, str]  # of nodes when they were last measured


def _read_premises(history: History, brief: Brief, caller: Caller) -> _Premises:
    request, cluster = brief.request, brief.setting.cluster
    identity = identify(request.cluster, cluster)
    part = history.cluster(identity.name)
    time = time_in(part, caller)
    at = time.now
    work = _others_work(part, cluster, at, request.job)
    if request.nodes is None:
        work = dataclasses.replace(work, retired=objections_in(part, time).retired)
    return _Premises(
        cluster=identity,
        at=at,
        work=work,
        before=precedents(history, part.cluster, brief.specs, at),
        skus=part.experience.measured_skus(),
    )


def _others_work(
    part: ClusterHistory, cluster: configs.Cluster, at: float, job: str = ""
) -> OthersWork:
    return others_work(cluster, windows_known(part), at, part.jobs.open_jobs(), job)


def resume_campaign(
    kind: CampaignKind, name: str | None = None, caller: Caller = NO_CALLER
) -> CampaignResult:
    """Resume the named campaign, or the latest interrupted one of this kind; run only what is
    left."""
    with caller.history() as history, ExitStack() as until_all_has_ended:
        campaign = _find_unfinished(history, kind, name)
        with _saying_how_to_go_on(campaign):  # before anything is asked or started
            until_all_has_ended.enter_context(history.campaigns.claim(campaign.id))
        setting = campaign_files.read_setting(campaign.setting)
        programs = setting.programs()
        _refuse_changed(campaign.plan, programs)
        measured = history.executions.read(campaign.id)
        part = history.cluster(campaign.cluster)
        work = _others_work(part, setting.cluster, time_in(part, caller).now)
        before = precedents_of(history, campaign)
        needed = _still_needed(campaign, measured)
        refuse_named(work, needed)
        with _saying_how_to_go_on(campaign):
            held = until_all_has_ended.enter_context(_hold(campaign, history, caller, nodes=needed))
        with executor_of(
            setting.cluster,
            programs,
            caller,
            used={spec.name for spec in campaign.plan.specs},
            nodes=[node.name for node in campaign.plan.nodes],
            missing_is_fine=True,
            fabric=campaign.plan.fabric,
        ) as executor:
            return _drive(
                campaign,
                setting,
                executor,
                history,
                caller,
                held,
                before=before,
                measured=measured,
                resumed=True,
            )


def _new_campaign(
    brief: Brief, premises: _Premises, nodes: Sequence[Node], at: float, caller: Caller
) -> Campaign:
    """A campaign on these nodes. `at`: by the executor's clock."""
    kind = brief.request.kind
    campaign = Campaign(
        id=brief.request.name or new_name(kind, caller.clock()),  # wall clock: only a name
        cluster=premises.cluster.name,
        kind=kind,
        plan=campaign_files.make_plan(brief, nodes),
        policy=brief.policy,
        executor=brief.setting.cluster.executor,
        setting=canonical(dataclasses.asdict(brief.setting)),
        criteria=brief.criteria,
        created_at=at,
    )
    if changed := _changed_kinds(campaign.plan.nodes, premises.skus):
        if brief.request.is_instead_of_validation:
            raise NothingLearnedError(f"{changed}, so its own measurements show nothing: {ACCEPT}")
        caller.remark(changed)
    if campaign.is_in_memory:  # its results are no older than its request
        return dataclasses.replace(campaign, created_at=premises.at)
    return campaign


def _changed_kinds(nodes: Sequence[Node], before: Mapping[str, str]) -> str:
    """A sentence on nodes that are of another sku than when they were last measured; empty if there
    are none."""
    changed = [node for node in nodes if before.get(node.name, node.sku) != node.sku]
    if not changed:
        return ""
    first, *further = changed
    more = f", and {quantity(len(further), 'more node')} changed" if further else ""
    return (
        f'{first.name} is "{first.sku}" and was "{before[first.name]}" when it was last measured'
        f" (a GPU more or fewer, MIG, or another name for its kind){more}"
    )


def _find_unfinished(history: History, kind: CampaignKind, name: str | None) -> Campaign:
    if name:
        return _resumable(history.campaigns.get(name), kind)
    for latest in history.campaigns.newest(limit=LOOKED_AT):
        if latest.kind is kind and latest.finished_at is None:
            return history.campaigns.get(latest.id)
    raise UsageError(f"there is nothing to resume: no {kind} was interrupted")


def _resumable(campaign: Campaign, kind: CampaignKind) -> Campaign:
    if campaign.kind is not kind:
        raise UsageError(
            f'campaign "{campaign.id}" belongs to another verb; {resume_hint(campaign)}'
        )
    if campaign.finished_at is not None:
        raise UsageError(
            f'campaign "{campaign.id}" is finished: anubis report --campaign {campaign.id} shows it'
        )
    return campaign


def _refuse_changed(plan: Plan, programs: catalog.Catalog) -> None:
    """Refuse to finish a campaign with programs other than those it began with."""
    for spec in plan.specs:
        if programs.specs.get(spec.name) != spec:
            raise UsageError(
                f'benchmark "{spec.name}" is no longer the one this campaign began with; '
                "begin a new campaign"
            )


def _still_needed(campaign: Campaign, executions: Sequence[Execution]) -> list[str]:
    """Nodes of a campaign, without those that it handed back before it was interrupted: others may
    use them."""
    nodes = [node.name for node in campaign.plan.nodes]
    if not campaign.kind.narrows or not executions:
        return nodes
    assessment, _ = judge(campaign, executions, {}, campaign.created_at)
    phases = range(len(campaign.plan.phases))
    gone = frozenset().union(*(nodes_handed_back(campaign.plan, p, assessment) for p in phases))
    return [node for node in nodes if node not in gone]


def _hold(
    campaign: Campaign,
    history: History,
    caller: Caller,
    beginning: Callable[[], None] = lambda: None,
    nodes: Sequence[str] | None = None,
) -> AbstractContextManager[HeldNodes]:
    """Hold the nodes, so that no other campaign measures them; a fleet in memory needs no hold."""
    if nodes is None:
        nodes = [node.name for node in campaign.plan.nodes]
    nodes = [] if campaign.is_in_memory else nodes
    part = history.cluster(campaign.cluster)
    clock = caller.clock if campaign.is_in_memory else hold_clock(part, caller)
    return part.holds.hold(nodes, holder_of(campaign.id), clock, beginning)


def hold_clock(part: ClusterHistory, caller: Caller) -> Callable[[], float]:
    """Clock by which a hold is renewed: the hold must not seem to end because a person set a
    clock. Each renewal asks for the time that the cluster's turns trust; in between, seconds are
    counted."""
    counts, (boot, asked_s) = caller.uptime, caller.uptime()
    if not boot:
        return caller.clock
    then = time_in(part, caller, is_kept=True).now

    def clock() -> float:
        nonlocal then, asked_s
        if counts()[1] - asked_s >= RENEWED_S:
            with suppress(StoreUnreachableError):  # seconds are counted until it is back
                then, asked_s = time_in(part, caller, is_kept=True).now, counts()[1]
        return then + counts()[1] - asked_s

    return clock


def _drive(
    campaign: Campaign,
    setting: Setting,
    executor: Executor,
    history: History,
    caller: Caller,
    held: HeldNodes,
    *,
    before: Precedents,
    measured: Sequence[Execution] = (),
    resumed: bool = False,
) -> CampaignResult:
    """Carry out a campaign and conclude it. `measured`: before it was interrupted."""
    kept = list(measured)

    def keep(batch: Sequence[Execution]) -> None:
        insist(partial(history.executions.record, campaign.id, batch), caller.remark)
        kept.extend(batch)

    with (
        _saying_how_to_go_on(campaign, held),
        _showing_what_is_known(campaign, setting, kept, executor, caller, before),
        event_log.recording(places.events(), campaign.id) as witness,
    ):
        with caller.following(campaign, setting.parallel_nodes) as observe:

            def look_in(machine: CampaignMachine, events: Sequence[CampaignEvent]) -> None:
                held.renew()
                observe(machine, events)

            def let_go(nodes: Sequence[str]) -> None:
                held.let_go(nodes)
                caller.remark(
                    f"handed back: {shorten(nodes)}, {quantity(len(nodes), 'node')} that did well "
                    "in their group while another group did not"
                )
                caller.handed_back(nodes)

            outcome = carry_out(
                campaign,
                executor,
                keep=keep,
                observe=look_in,
                wants_stop=caller.wants_stop,
                history=tuple(measured),
                parallel_nodes=setting.parallel_nodes,
                resumed=resumed,
                witness=witness,
                before=before,
                release=let_go,
            )
        behind_s = _behind_s(campaign, executor, history, caller)
        view = insist(
            partial(_conclude, campaign, setting, outcome, behind_s, history), caller.remark
        )
        for sentence in remarks_on(view):
            caller.remark(sentence)
        part = history.cluster(campaign.cluster)
        for fault in find_returning_faults(campaign.id, view.network, history, part):
            caller.remark(f"suspected: {fault.reason}; check its cables and both ends")
    for sentence in differences(campaign.criteria, versions(view.executions, campaign.plan)):
        caller.remark(sentence)
    files = () if campaign.criteria else _write_criteria(view, caller)
    caller.concluded(view)
    return CampaignResult(view=view, criteria_files=files)


def _conclude(
    campaign: Campaign,
    setting: Setting,
    outcome: CampaignOutcome,
    behind_s: float,
    history: History,
) -> CampaignView:
    finished_at = outcome.finished_at + behind_s
    created_at = campaign.created_at + (0.0 if campaign.is_in_memory else behind_s)
    created_at = min(created_at, finished_at)
    assessment, criteria = outcome.assessment, outcome.criteria
    history.assessments.conclude(campaign.id, assessment, criteria, finished_at, created_at)
    concluded = dataclasses.replace(
        campaign, created_at=created_at, finished_at=finished_at, criteria=criteria
    )
    return view_in(setting, concluded, outcome.executions, assessment, criteria)


def _behind_s(campaign: Campaign, executor: Executor, history: History, caller: Caller) -> float:
    """Seconds by which the executor's clock is behind. A fleet in memory has a clock of its own,
    and any campaign may have begun while this machine's clock was wrong. The campaign is over now:
    a gate must find it recent, and later events of a node must come after it."""
    now = time_in(history.cluster(campaign.cluster), caller, is_kept=True).now
    behind_s = now - executor.now()
    return behind_s if campaign.is_in_memory or abs(behind_s) > TOLERANCE_S else 0.0


@contextmanager
def _showing_what_is_known(
    campaign: Campaign,
    setting: Setting,
    measured: Sequence[Execution],
    executor: Executor,
    caller: Caller,
    before: Precedents,
) -> Iterator[None]:
    """Offer the caller an interrupted campaign's results so far; nothing is concluded from them."""

    def view_so_far(why: str) -> CampaignView:
        assessment, criteria = judge(campaign, measured, {}, executor.now(), before=before)
        view = view_in(setting, campaign, measured, mark_unfinished(assessment), criteria)
        return dataclasses.replace(view, cut_short=why)

    try:
        yield
    except (AnubisError, KeyboardInterrupt) as error:
        was_stopped = isinstance(error, (KeyboardInterrupt, Stopped))
        if measured:
            caller.cut_short(
                partial(view_so_far, "the campaign was interrupted" if was_stopped else str(error))
            )
        raise


@contextmanager
def _saying_how_to_go_on(campaign: Campaign, held: HeldNodes | None = None) -> Iterator[None]:
    """Add to every error how to go on: measurements are kept, whatever stops the driver early."""
    try:
        yield
    except (KeyboardInterrupt, Stopped):
        raise Stopped(f"interrupted; what was measured is kept; {resume_hint(campaign)}") from None
    except StoreUnreachableError as error:
        at = held.resumable_at if held else None
        wait = f"its nodes are held until {utc(at)} at most, then " if at else ""
        raise type(error)(f"{error}; {wait}{resume_hint(campaign)}") from error
    except AnubisError as error:
        raise type(error)(f"{error}; {resume_hint(campaign)}") from error


def _write_criteria(view: CampaignView, caller: Caller) -> tuple[Path, ...]:
    """Write the learned criteria. The campaign is over and kept, so a failure is only a remark: the
    verdict and the page stay."""
    try:
        of_suite = sets_taught_by(view.criteria, view.campaign.plan)
        files = tuple(criteria_files.write_learned(of_suite, places.criteria()))
    except AnubisError as error:
        name = view.campaign.id
        caller.remark(
            f"{error}; anubis criteria learn --campaign {name} --out DIR writes them elsewhere"
        )
        return ()
    for learned, path in zip(of_suite, files, strict=True):
        caller.remark(f"criteria of {learned.sku} for suite {view.campaign.plan.suite}: {path}")
    return files
