"""`anubis watch`: which node of a running job is unlike its peers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.answer import check_page, write_page
from anubis.cli.terminal import Terminal, turn_termination_into_interrupt
from anubis.cli.verb import verb
from anubis.core.errors import UsageError
from anubis.operations.requests import LookRequest

if TYPE_CHECKING:
    from anubis.operations.pings import JudgedPings
    from anubis.report.watch import LookView


@verb
def watch(
    request: LookRequest,
    follow: Annotated[bool, typer.Option("--follow", help="Go on looking, until Ctrl-C.")] = False,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", metavar="TIME", help="With --follow: from one look to the next. Default: 8m."
        ),
    ] = None,
    tell: Annotated[
        bool,
        typer.Option("--tell", help="Report suspicions to the keeper, which has the nodes tested."),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="Also write the telemetry that was read, for a later --file.",
        ),
    ] = None,
    pings: Annotated[
        bool,
        typer.Option(
            "--pings",
            help="Ask the agents of the cluster what the pings between them show, and nothing "
            "else.",
        ),
    ] = False,
    json: options.Json = False,
    html: options.HtmlToo = None,
) -> None:
    """Say which node of a running job is unlike its peers, from what its nodes report.

    Such a node is only suspected: a test shows whether it is bad. Exit code 0: no node is unlike
    its peers. 1: at least one is. 2: some nodes could not be judged. --pings: 0 if every flow is
    known and well, 1 if a part is suspected, 2 if anything is unknown.
    """
    if pings:
        if follow or tell or record or html or request.job or request.file:
            raise UsageError(
                "--pings asks about links, not about a job: give it with --cluster, --nodes, "
                "--telemetry and --json only"
            )
        _show_pings(anubis.look_at_pings(request, Terminal(as_json=json)), as_json=json)
    turn_termination_into_interrupt()
    check_page(html)
    check_page(record, "--record")
    _check(request, every, follow=follow)
    caller = Terminal(as_json=json)

    def answer_with(views: Sequence[LookView]) -> None:
        _write_files(views, html, record)
        _show(views, as_json=json)
        for view in views if tell else ():
            _tell(view, request.cluster, caller)

    if not follow:
        views = anubis.take_looks(request, caller)
        answer_with(views)
        sys.exit(_exit_code(views))
    every_s = amounts.duration_s(every, "--every") if every else None
    for views in anubis.follow_jobs(request, every_s=every_s, caller=caller):
        answer_with(views)
        sys.stdout.flush()


def _show_pings(judged: JudgedPings, *, as_json: bool) -> NoReturn:
    from anubis.report import pings as report

    if as_json:
        answer.write_lines(report.lines(judged.findings, judged.judgement, judged.silent))
    else:
        answer.write_lines(judged.sentences())
    answer.leave(judged.judgement)


def _check(request: LookRequest, every: str | None, *, follow: bool) -> None:
    if every and not follow:
        raise UsageError("--every is the interval of --follow: give both, or neither")
    if follow and request.until is not None:
        raise UsageError("--at and --follow exclude each other: give one of them")
    if request.file and (request.prometheus or request.agents):
        raise UsageError("--file replaces --prometheus and --agents: give one of them")


def _show(views: Sequence[LookView], *, as_json: bool) -> None:
    from anubis.report import watch as report

    for number, view in enumerate(views):
        if as_json:
            answer.write_lines(report.lines(view))
        else:
            if number:
                print()
            report.show(view, answer.screen())


def _tell(view: LookView, cluster: str | None, caller: Terminal) -> None:
    suspects = [suspicion.node for suspicion in view.look.suspicions]
    if not suspects:
        return
    from anubis.text.wording import short_node_list

    news = anubis.tell_suspicions(view, cluster, caller)
    if news:
        caller.remark(f"reported to the keeper: {short_node_list(news)}")
    if earlier := [node for node in suspects if node not in news]:
        caller.remark(f"the keeper knows of {short_node_list(earlier)} already")


def _write_files(views: Sequence[LookView], html: Path | None, record: Path | None) -> None:
    if record and len(views) > 1:
        raise UsageError(f"--record takes one job, not {len(views)}: name the job")
    if record:
        anubis.record_telemetry(views[0], record)
    if html:
        from anubis.report import watch_page

        write_page(watch_page.render(views), html)


def _exit_code(views: Sequence[LookView]) -> int:
    """Exit code of several looks; a named node outweighs an unknown answer."""
    answers = {view.conclusion.answer.value for view in views}
    return 1 if "named" in answers else 2 if "unknown" in answers or not answers else 0
