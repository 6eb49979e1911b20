"""`anubis tell`, `keep` and `history actions`: what happens to a fleet, and what is done."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
from anubis.core.errors import AnubisError, UsageError, did_you_mean
from anubis.text import places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anubis.core.history.events import KeptEvent
    from anubis.core.keep.periodic_tasks import PeriodicTaskState
    from anubis.operations.keep import KeptFleet
    from anubis.operations.watch_rounds import WatchRound
    from anubis.report.diagnoses import DiagnosedJob

KeepingName = Annotated[
    str | None,
    typer.Option(
        "--keeping",
        metavar="NAME",
        help="A policy under configs/keeping/, or a file. Default: the policy that the "
        "cluster's file names (keeping:), else that of the last turn, else default.",
    ),
]


def tell(
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT",
            help="node-added, node-removed, fleet-upgraded, job-allocated, job-stalled, "
            "job-ended, incident-reported, suspicion-raised, repair-begun, repair-done, "
            "maintenance, maintenance-ended, retire or return.",
        ),
    ],
    nodes: options.Nodes = None,
    job: Annotated[str | None, typer.Option("--job", help="The job's id.")] = None,
    failed: Annotated[
        bool,
        typer.Option("--failed", help="The job that ended has failed: its nodes are checked."),
    ] = False,
    duration: Annotated[
        str | None,
        typer.Option("--duration", metavar="TIME", help="How long the job may run: 90m, 24h, 2d."),
    ] = None,
    category: Annotated[
        str | None,
        typer.Option("--category", metavar="WORD", help="Of an incident or of a suspicion."),
    ] = None,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="WORD",
            help="The person or program that suspects the nodes, saw the stall or planned the "
            "maintenance.",
        ),
    ] = "operator",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; or what a repair did.")
    ] = "",
    mix: Annotated[
        str | None,
        typer.Option(
            "--mix",
            metavar="SHARES",
            help="Of a suspicion: how likely each category is, such as gpu=0.7,host=0.3; tests are"
            " chosen by it.",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--confidence",
            metavar="SHARE",
            min=0,
            max=1,
            help="How likely the suspicion is right, as its source says. The outcomes of "
            "earlier suspicions of this source outweigh it.",
        ),
    ] = None,
    begins: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="When a maintenance begins: 2026-11-01T12:00; else now."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="When a maintenance ends.")
    ] = None,
    id: Annotated[
        str,
        typer.Option(
            "--id", help="Its name: an event that is reported twice by one name counts once."
        ),
    ] = "",
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="When it happened: 2026-11-01T12:00."),
    ] = None,
    later: Annotated[
        bool, typer.Option("--later", help="Only keep it: the next anubis keep does the rest.")
    ] = False,
    cluster: options.ClusterAsked = None,
    benchmarks: options.Benchmarks = None,
    json: options.Json = False,
) -> None:
    """Report what happened to nodes, and take a turn of the keeper.

    No turn is taken with --later, or if anubis serve or anubis keep --every takes the turns. The
    event is kept in the history: the next gate, sweep and turn know it.
    """
    turn_termination_into_interrupt()
    named = amounts.nodes(nodes) or ()
    if event == "maintenance":
        happened: KeptEvent = _maintenance(named, begins, until, source, reason)
    elif begins or until:
        raise UsageError(f"{event} has no --from and no --until: only a maintenance has")
    else:
        happened = _event(event, named, job, duration, category, source, reason, failed)
    happened = _add_likelihood(happened, mix, confidence)
    caller = Terminal(as_json=json)
    when = amounts.instant(at, "--at").timestamp() if at else None
    receipt = anubis.tell(happened, id=id, at=when, cluster=cluster, caller=caller)
    if json:
        from anubis.report.documents import ReceiptLine

        answer.write_json("receipt", ReceiptLine(**vars(receipt)))
    else:
        print(f"{'kept' if receipt.is_new else 'known already'}: {event} (id {receipt.id})")
    if later:
        return
    if keeper := anubis.keeper_of(receipt.cluster, caller):
        caller.remark(
            f"{keeper} keeps cluster {receipt.cluster}, and takes its next turn by itself"
        )
        return
    request = anubis.keeping_of(cluster, None, benchmarks or (), caller=caller)
    _show(anubis.keep(request, caller), as_json=json)


def keep(
    cluster: options.ClusterAsked = None,
    keeping: KeepingName = None,
    benchmarks: options.Benchmarks = None,
    do: Annotated[
        list[int] | None,
        typer.Option("--do", metavar="ID", help="A proposal to be done; may be repeated."),
    ] = None,
    close: Annotated[
        list[str] | None,
        typer.Option(
            "--close",
            metavar="SCOPE",
            help="Close the breaker of this scope: fleet, or as keep names it. The nodes that "
            "are out now are accepted, and the policy's share of the others may go out; "
            "may be repeated.",
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="TIME", help="Go on, with a turn at this interval: 60s, 5m."
        ),
    ] = None,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="Run tests in processes of their own, so that no turn waits for them; --every "
            "does so anyway.",
        ),
    ] = False,
    test: Annotated[
        int | None,
        typer.Option("--test", metavar="ID", help="Only carry out the test of this action."),
    ] = None,
    periodic_tasks: Annotated[
        bool, typer.Option("--periodic-tasks", help="Only do the periodic work that is due.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Only look at the running jobs that are due.")
    ] = False,
    diagnose: Annotated[
        bool,
        typer.Option("--diagnose", help="Only diagnose the jobs that ended lately or stand still."),
    ] = False,
    service: Annotated[
        str,
        typer.Option(
            "--service",
            metavar="NAME",
            help="Used by anubis serve: the service that takes this turn. No turn is taken if "
            "another service acts by now.",
        ),
    ] = "",
    json: options.Json = False,
) -> None:
    """Take a turn of the keeper: propose, or do, what its policy says.

    It reads what is new, acts, and does the periodic work that is due. If the policy says so, it
    looks at running jobs, and diagnoses those that ended or stand still.

    Exit code 1: a node is out or to be taken out, or a breaker is open.
    """
    turn_termination_into_interrupt()
    caller = Terminal(as_json=json)
    pause_s = amounts.duration_s(every, "--every") if every else None
    claim: Callable[[], None] = anubis.going_on(cluster, caller) if every else lambda: None
    claim()
    request = anubis.keeping_of(cluster, keeping, benchmarks or (), service, caller)
    if periodic_tasks:
        _show_periodic_tasks(anubis.do_periodic_tasks(request, caller), as_json=json)
        return
    if watch:
        _show_watch(anubis.watch_jobs(request, caller), as_json=json)
        return
    if diagnose:
        _show_diagnoses(anubis.diagnose_due(request, caller), as_json=json)
        return
    elsewhere = _make_starter(cluster, benchmarks or (), service) if apart or every else None
    drive = (lambda id: elsewhere(f"test-{id}", "--test", str(id))) if elsewhere else None
    name = Path(cluster or "here").stem
    do_periodic_tasks = (
        (lambda: elsewhere(f"periodic-tasks-{name}", "--periodic-tasks")) if elsewhere else None
    )
    look = (lambda: elsewhere(f"watch-{name}", "--watch")) if elsewhere else None
    ended = (lambda: elsewhere(f"diagnose-{name}", "--diagnose")) if elsewhere else None
    if test is not None:
        anubis.carry_out_test(request, test, caller)
        drive = do_periodic_tasks = look = ended = _do_nothing
    if close:
        anubis.close_breakers(request, close, caller)
    fleet = (
        anubis.approve(request, do, caller, drive) if do else anubis.keep(request, caller, drive)
    )
    standings = anubis.do_periodic_tasks(request, caller, do_periodic_tasks)
    watched = anubis.watch_jobs(request, caller, look)
    diagnoses = anubis.diagnose_due(request, caller, ended)
    while pause_s is not None:
        _show_diagnoses(diagnoses, as_json=json)
        _show(fleet, standings, watched, as_json=json)
        time.sleep(pause_s)
        try:
            claim()
            request = anubis.keeping_of(cluster, keeping, benchmarks or (), service, caller)
            fleet = anubis.keep(request, caller, drive)
            standings = anubis.do_periodic_tasks(request, caller, do_periodic_tasks)
            watched = anubis.watch_jobs(request, caller, look)
            diagnoses = anubis.diagnose_due(request, caller, ended)
        except AnubisError as error:
            caller.remark(f"no turn was taken: {error}")
    _show_diagnoses(diagnoses, as_json=json)
    _show(fleet, standings, watched, as_json=json)
    _leave(fleet)


def _make_starter(
    cluster: str | None, benchmarks: Sequence[Path], service: str
) -> Callable[..., bool]:
    """Make a function that starts `anubis keep` with more words in a process of its own and does
    not wait. That process uses the policy that this turn has kept."""
    from anubis.operations.verb_processes import begin, keep_words

    words = keep_words(cluster, None, benchmarks, service)

    def drive(name: str, *more: str) -> bool:
        begin([*words, *more], places.history_url(), name)
        return False

    return drive


def _do_nothing(*_: int) -> bool:
    """Do nothing: the next turn does the other tests and the periodic work."""
    return False


def actions(
    all_: Annotated[
        bool, typer.Option("--all", help="Also list those that are done, failed or withdrawn.")
    ] = False,
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, help="How many.")] = 100,
    cluster: options.ClusterShown = None,
    json: options.Json = False,
) -> None:
    """List what the keeper proposes, has sent and has done."""
    from anubis.report import keep as keeping

    listed = anubis.actions(last, only_open=not all_, cluster=cluster)
    if json:
        answer.write_lines(map(keeping.action_line, listed))
        return
    waiting = sum(map(keeping.waits_for_a_person, listed))
    print(f"{waiting} to look at: anubis keep --do ID has one done" if waiting else "nothing to do")
    keeping.show_actions(listed, answer.screen())


def _show(
    fleet: KeptFleet,
    standings: Sequence[PeriodicTaskState] = (),
    watched: WatchRound | None = None,
    *,
    as_json: bool,
) -> None:
    from anubis.report import keep as keeping

    if as_json:
        for life in fleet.lives.values():
            answer.write_json("life", keeping.life_fields(life))
        answer.write_lines(map(keeping.action_line, fleet.actions))
        _show_periodic_tasks(standings, as_json=True)
        _show_watch(watched, as_json=True)
        answer.write_json(
            "keeping",
            keeping.keeping_fields(fleet.cluster, fleet.lives, fleet.breakers, fleet.doubt),
        )
        return
    proposals = sum(map(keeping.waits_for_a_person, fleet.actions))
    print(keeping.headline(fleet.cluster, fleet.lives, fleet.breakers, proposals))
    keeping.show_lives(fleet.lives, answer.screen())
    keeping.show_actions(fleet.actions, answer.screen())
    _show_periodic_tasks(standings, as_json=False)
    _show_watch(watched, as_json=False)


def _show_watch(watched: WatchRound | None, *, as_json: bool) -> None:
    from anubis.report import watch_rounds

    if watched is None:
        return
    if as_json:
        answer.write_lines(watch_rounds.watch_line(watched.cluster, look) for look in watched.looks)
        return
    for sentence in watch_rounds.sentences(watched.looks, watched.at):
        print(sentence)
    for sentence in watch_rounds.sentences_on_rates(watched.rates):
        print(sentence)


def _show_diagnoses(diagnosed: Sequence[DiagnosedJob], *, as_json: bool) -> None:
    from anubis.report import diagnoses

    if as_json:
        answer.write_lines(map(diagnoses.diagnosed_line, diagnosed))
        return
    for sentence in diagnoses.sentences(diagnosed):
        print(sentence)


def _show_periodic_tasks(standings: Sequence[PeriodicTaskState], *, as_json: bool) -> None:
    from anubis.report import periodic_tasks

    if as_json:
        answer.write_lines(map(periodic_tasks.periodic_task_line, standings))
        return
    # wall clock: shown to a person, decides nothing
    for sentence in periodic_tasks.sentences(standings, time.time()):
        print(sentence)


def _leave(fleet: KeptFleet) -> NoReturn:
    from anubis.core.records import Judgement

    is_open = any(breaker.is_open for breaker in fleet.breakers.values())
    are_out = any(life.must_be_out for life in fleet.lives.values() if life.is_there)
    well = Judgement.UNKNOWN if fleet.doubt else Judgement.HEALTHY
    answer.leave(Judgement.DEFECTIVE if is_open or are_out else well)


def _event(
    kind: str,
    nodes: tuple[str, ...],
    job: str | None,
    duration: str | None,
    category: str | None,
    source: str,
    reason: str,
    failed: bool,
) -> KeptEvent:
    from anubis.core.history import events

    orders = {order.value: order for order in events.Order}
    if kind == events.Order.CLOSE:
        raise UsageError("a breaker is closed by anubis keep --close SCOPE, such as fleet")
    if not nodes and kind not in ("job-stalled", "job-ended"):
        raise UsageError(f"{kind}: name the nodes after the event")
    if kind in orders:
        return events.OperatorSaid(order=orders[kind], nodes=nodes)
    match kind:
        case "node-added":
            return events.NodeAdded(nodes=nodes)
        case "node-removed":
            return events.NodeRemoved(nodes=nodes)
        case "fleet-upgraded":
            return events.FleetUpgraded(nodes=nodes)
        case "job-allocated":
            seconds = amounts.duration_s(_require(duration, "--duration", kind), "--duration")
            return events.JobAllocated(
                nodes=nodes, duration_s=seconds, job=_require(job, "--job", kind)
            )
        case "job-stalled":
            id = _require(job, "--job", kind)
            return events.JobStalled(nodes=nodes, job=id, source=source, reason=reason)
        case "job-ended":
            return events.JobEnded(nodes=nodes, job=_require(job, "--job", kind), failed=failed)
        case "incident-reported":
            word = _require(category, "--category", kind)
            return events.IncidentReported(nodes=nodes, category=word)
        case "suspicion-raised":
            word = _require(category, "--category", kind)
            return events.SuspicionRaised(nodes=nodes, category=word, source=source, reason=reason)
        case "maintenance-ended":
            return events.MaintenanceEnded(nodes=nodes)
        case "repair-begun":
            return events.RepairBegun(nodes=nodes)
        case "repair-done":
            return events.RepairDone(nodes=nodes, action=reason)
    kinds = [*events.KEPT, *orders]
    kinds.remove(events.OperatorSaid.kind)
    kinds.remove(events.Order.CLOSE)
    raise UsageError(f'event "{kind}" is not known; {did_you_mean(kind, kinds)}')


def _maintenance(
    nodes: tuple[str, ...], begins: str | None, until: str | None, source: str, reason: str
) -> KeptEvent:
    from anubis.core.history.events import MaintenancePlanned

    if not nodes:
        raise UsageError("maintenance: name the nodes after the event")
    end = amounts.instant(_require(until, "--until", "maintenance"), "--until").timestamp()
    # wall clock: the person who types the time means their own
    begin = amounts.instant(begins, "--from").timestamp() if begins else time.time()
    try:
        return MaintenancePlanned(nodes=nodes, begin=begin, end=end, source=source, reason=reason)
    except ValueError as error:
        raise UsageError(f"{error}: look at --from and --until") from None


def _add_likelihood(event: KeptEvent, mix: str | None, confidence: float | None) -> KeptEvent:
    from anubis.core.history.events import SuspicionRaised

    if mix is None and confidence is None:
        return event
    if not isinstance(event, SuspicionRaised):
        raise UsageError(f"{event.kind} has no --mix and no --confidence: only a suspicion has")
    shares = amounts.shares(mix, "--mix") if mix else {}
    try:
        return replace(event, mix=shares, confidence=confidence)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _require(value: str | None, option: str, kind: str) -> str:
    if not value:
        raise UsageError(f"{kind} needs {option}")
    return value
