"""`anubis tell`, `keep` and `history actions`: what happens to a fleet, and what is done."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
from anubis.cli.verb import Leaf, ListedBefore, verb
from anubis.core.errors import AnubisError
from anubis.operations.requests import KeepRequest, TellRequest
from anubis.text import places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anubis.core.keep.periodic_tasks import PeriodicTaskState
    from anubis.operations.keep import KeptFleet
    from anubis.operations.keeping import Keeping
    from anubis.operations.watch_rounds import WatchRound
    from anubis.report.diagnosis_pages import DiagnosedJob


class TellCommand(Leaf):
    """The verb with its events in the help; only this verb loads them."""

    def get_params(self, ctx: Any) -> list[Any]:
        from anubis.operations.tell import event_words

        params: list[Any] = super().get_params(ctx)
        *words, last = event_words()
        params[0].help = f"{', '.join(words)} or {last}."
        return params


@verb
def tell(
    request: TellRequest,
    later: Annotated[
        bool,
        typer.Option("--later", help="Only keep the event: the next turn does the rest."),
        ListedBefore("cluster"),
    ] = False,
    benchmarks: options.Benchmarks = None,
    json: options.Json = False,
) -> None:
    """Report what happened to nodes, and take a turn of the keeper.

    No turn is taken with --later, or if anubis serve or anubis keep --every takes the turns. The
    event is kept in the history: the next gate, sweep and turn know it.
    """
    turn_termination_into_interrupt()
    caller = Terminal(as_json=json)
    receipt = anubis.tell(anubis.telling_of(request, caller), caller)
    if json:
        from anubis.report.documents import ReceiptLine

        answer.write_json("receipt", ReceiptLine(**vars(receipt)))
    else:
        print(f"{'kept' if receipt.is_new else 'known already'}: {request.event} (id {receipt.id})")
    if later:
        return
    if keeper := anubis.keeper_of(receipt.cluster, caller):
        caller.remark(
            f"{keeper} keeps cluster {receipt.cluster}, and takes its next turn by itself"
        )
        return
    kept = KeepRequest(cluster=request.cluster, benchmarks=benchmarks or ())
    _show(anubis.keep(anubis.keeping_of(kept, caller), caller), as_json=json)


@verb
def keep(
    request: KeepRequest,
    do: Annotated[
        list[int] | None,
        typer.Option("--do", metavar="ID", help="Carry out this proposal. May be repeated."),
        ListedBefore("service"),
    ] = None,
    close: Annotated[
        list[str] | None,
        typer.Option(
            "--close",
            metavar="SCOPE",
            help="Close the breaker of this scope: fleet, or as keep names it. The nodes that "
            "are out now are accepted, and the policy's share of the others may go out. "
            "May be repeated.",
        ),
        ListedBefore("service"),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="TIME", help="Go on, with a turn at this interval: 60s, 5m."
        ),
        ListedBefore("service"),
    ] = None,
    apart: Annotated[
        bool,
        typer.Option(
            "--apart",
            help="Run tests and repairs in processes of their own, so that no turn waits for them. "
            "--every always does so.",
        ),
        ListedBefore("service"),
    ] = False,
    carry_out: Annotated[
        int | None,
        typer.Option(
            "--carry-out", metavar="ID", help="Only carry out the test or repair of this action."
        ),
        ListedBefore("service"),
    ] = None,
    periodic_tasks: Annotated[
        bool,
        typer.Option("--periodic-tasks", help="Only do the periodic work that is due."),
        ListedBefore("service"),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Only look at the running jobs that are due."),
        ListedBefore("service"),
    ] = False,
    diagnose: Annotated[
        bool,
        typer.Option(
            "--diagnose", help="Only diagnose the jobs that ended lately or make no progress."
        ),
        ListedBefore("service"),
    ] = False,
    json: options.Json = False,
) -> None:
    """Take a turn of the keeper: propose, or do, what its policy says.

    It reads what is new, acts, and does the periodic work that is due. If the policy says so, it
    looks at running jobs, and diagnoses those that ended or make no progress.

    Exit code 1: a node is out, lost or to be taken out, or a breaker is open.
    """
    turn_termination_into_interrupt()
    caller = Terminal(as_json=json)
    pause_s = amounts.duration_s(every, "--every") if every else None
    claim: Callable[[], None] = anubis.going_on(request.cluster, caller) if every else lambda: None
    claim()
    keeping = anubis.keeping_of(request, caller)
    if periodic_tasks:
        _show_periodic_tasks(anubis.do_periodic_tasks(keeping, caller), as_json=json)
        return
    if watch:
        _show_watch(anubis.watch_jobs(keeping, caller), as_json=json)
        return
    if diagnose:
        _show_diagnoses(anubis.diagnose_due(keeping, caller), as_json=json)
        return
    elsewhere = _start_apart(request) if apart or every else _Elsewhere()
    if carry_out is not None:
        anubis.carry_out(keeping, carry_out, caller)
        elsewhere = _Elsewhere(_do_nothing, _do_nothing, _do_nothing, _do_nothing)
    if close:
        anubis.close_breakers(keeping, close, caller)
    turn = _take_turn(keeping, caller, elsewhere, do or ())
    while pause_s is not None:
        turn.show(as_json=json)
        time.sleep(pause_s)
        try:
            claim()
            turn = _take_turn(anubis.keeping_of(request, caller), caller, elsewhere)
        except AnubisError as error:
            caller.remark(f"no turn was taken: {error}")
    turn.show(as_json=json)
    _leave(turn.fleet)


@dataclass(frozen=True)
class _Elsewhere:
    """What begins the long work of a turn in another process; None: the turn does it, and waits."""

    drive: Callable[[int], bool] | None = None
    do_periodic_tasks: Callable[[], object] | None = None
    watch: Callable[[], object] | None = None
    diagnose: Callable[[], object] | None = None


def _start_apart(request: KeepRequest) -> _Elsewhere:
    """Functions that begin each work as an `anubis keep` of its own, by the policy that this turn
    has kept, and do not wait for it."""
    from anubis.operations.verb_processes import begin, keep_words

    words = keep_words(replace(request, keeping=None))
    cluster = Path(request.cluster or "here").stem

    def start(name: str, *more: str) -> bool:
        begin([*words, *more], places.history_url(), name)
        return False

    return _Elsewhere(
        drive=lambda id: start(f"action-{id}", "--carry-out", str(id)),
        do_periodic_tasks=lambda: start(f"periodic-tasks-{cluster}", "--periodic-tasks"),
        watch=lambda: start(f"watch-{cluster}", "--watch"),
        diagnose=lambda: start(f"diagnose-{cluster}", "--diagnose"),
    )


def _do_nothing(*_: int) -> bool:
    """Do nothing: the next turn does the other actions and the periodic work."""
    return False


@dataclass(frozen=True)
class _Turn:
    """What a turn of the keeper found, did and began."""

    fleet: KeptFleet
    standings: Sequence[PeriodicTaskState]
    watched: WatchRound | None
    diagnosed: Sequence[DiagnosedJob]

    def show(self, *, as_json: bool) -> None:
        _show_diagnoses(self.diagnosed, as_json=as_json)
        _show(self.fleet, self.standings, self.watched, as_json=as_json)


def _take_turn(
    keeping: Keeping, caller: Terminal, elsewhere: _Elsewhere, approved: Sequence[int] = ()
) -> _Turn:
    drive = elsewhere.drive
    return _Turn(
        anubis.approve(keeping, approved, caller, drive)
        if approved
        else anubis.keep(keeping, caller, drive),
        anubis.do_periodic_tasks(keeping, caller, elsewhere.do_periodic_tasks),
        anubis.watch_jobs(keeping, caller, elsewhere.watch),
        anubis.diagnose_due(keeping, caller, elsewhere.diagnose),
    )


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
    print(
        f"{waiting} to look at: anubis keep --do ID carries one out" if waiting else "nothing to do"
    )
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
    from anubis.report import diagnosis_pages

    if as_json:
        answer.write_lines(map(diagnosis_pages.diagnosed_line, diagnosed))
        return
    for sentence in diagnosis_pages.sentences(diagnosed):
        print(sentence)


def _show_periodic_tasks(standings: Sequence[PeriodicTaskState], *, as_json: bool) -> None:
    from anubis.report.keep import periodic_task_line, periodic_task_sentences

    if as_json:
        answer.write_lines(map(periodic_task_line, standings))
        return
    # wall clock: shown to a person, decides nothing
    for sentence in periodic_task_sentences(standings, time.time()):
        print(sentence)


def _leave(fleet: KeptFleet) -> NoReturn:
    from anubis.core.records import Judgement

    is_open = any(breaker.is_open for breaker in fleet.breakers.values())
    are_out = any(life.is_missed for life in fleet.lives.values())
    knows = bool(fleet.lives) and not fleet.doubt
    well = Judgement.HEALTHY if knows else Judgement.UNKNOWN
    answer.leave(Judgement.DEFECTIVE if is_open or are_out else well)
