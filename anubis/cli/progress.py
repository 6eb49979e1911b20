"""Progress on stderr: a live bar with the time left on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from anubis.cli.screen import Screen
from anubis.cli.streams import say
from anubis.core.campaign.state_machine import CampaignEvent, CampaignMachine, EndOfStep, NodeLost
from anubis.core.campaign.time_left import TimeLeft
from anubis.core.records import Campaign
from anubis.text.wording import time_span

LINE_EVERY_S = 15.0  # without a terminal: a log stays short
LEFT_EVERY_S = 5.0  # on a terminal: half a million steps take 0.5 s to add up
LONG_GAP_S = 30.0  # shorter gaps are not mentioned: a busy machine has many
FEW_TROUBLES = 20  # after that many lines of trouble the report has the rest


class Progress:
    def __init__(self, campaign: Campaign, parallel_nodes: int | None) -> None:
        self._plan = campaign.plan
        self._time_left = TimeLeft(campaign.plan, parallel_nodes)
        self._began_at: tuple[float, float] | None = None  # by the campaign's clock, and by ours
        self._left, self._left_due = "", 0.0
        self._phase = -1
        self._line_due = 0.0
        self._troubles = 0
        self._unwatched_s = 0.0
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=Screen(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", visible=False, left="")
        say(
            f"campaign {campaign.id}: suite {campaign.plan.suite}, {_nodes(campaign)} of cluster"
            f" {campaign.cluster}"
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def observe(self, machine: CampaignMachine, events: Sequence[CampaignEvent]) -> None:
        self._began_at = self._began_at or (machine.now, time.monotonic())
        self._time_left.hear(events)
        for event in events:
            if isinstance(event, NodeLost) or (isinstance(event, EndOfStep) and event.reason):
                self._report_trouble(event, machine)
        self._report_gap(machine.unwatched_s)
        if self._phase < 0:
            for node, reason in machine.excluded.items():
                self._say_trouble(node, reason)
        if machine.finished:
            return
        if machine.phase != self._phase:
            self._begin_phase(machine)
        if self._bar.disable:
            self._write_line(machine)
        else:
            self._move_bar(machine)

    def _write_line(self, machine: CampaignMachine) -> None:
        if time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + LINE_EVERY_S
            left, why = self._announce_time_left(machine)
            steps = f"{machine.done} of {machine.planned} steps, {machine.running} running"
            say(f"  {steps}, {left}{why and ': '}{why}")

    def _move_bar(self, machine: CampaignMachine) -> None:
        if time.monotonic() >= self._left_due:
            self._left_due = time.monotonic() + LEFT_EVERY_S
            self._left, why = self._announce_time_left(machine)
            if why:
                say(f"  {self._left}: {why}")
        self._bar.update(self._task, completed=machine.done, total=machine.planned, left=self._left)

    def _announce_time_left(self, machine: CampaignMachine) -> tuple[str, str]:
        left_s, why = self._time_left.announce(machine, self._clock_pace(machine))
        return f"about {time_span(left_s)} left", why

    def _clock_pace(self, machine: CampaignMachine) -> float:
        """Seconds of this process for each of the campaign: a fleet in memory has its own clock."""
        began, began_here = self._began_at or (machine.now, 0.0)
        passed_s = machine.now - began
        return (time.monotonic() - began_here) / passed_s if passed_s > 0 else 1.0

    def _begin_phase(self, machine: CampaignMachine) -> None:
        self._phase = machine.phase
        self._line_due, self._left_due = time.monotonic() + LINE_EVERY_S, 0.0
        name = self._plan.phases[machine.phase].name
        self._bar.remove_task(self._task)
        self._task = self._bar.add_task(name, total=machine.planned, left="")
        if self._bar.disable:
            plural = "" if machine.planned == 1 else "s"
            say(f"phase {name}: {machine.planned} step{plural}")

    def _report_trouble(self, event: EndOfStep | NodeLost, machine: CampaignMachine) -> None:
        if isinstance(event, NodeLost):
            self._say_trouble(event.node, event.reason)
            return
        following = machine.next_try(event.step_id, event.attempt)
        more = "; now try {} of {}".format(*following) if following else ""
        self._say_trouble(event.step_id.partition("/")[2], event.reason + more)

    def _say_trouble(self, subject: str, reason: str) -> None:
        self._troubles += 1
        if self._troubles <= FEW_TROUBLES:
            say(f"  {subject}: {reason}")

    def _report_gap(self, unwatched_s: float) -> None:
        gap_s, self._unwatched_s = unwatched_s - self._unwatched_s, unwatched_s
        if gap_s >= LONG_GAP_S:
            say(
                f"  this driver did not look for {time_span(gap_s)}: it was stopped, suspended or"
                " kept waiting; what runs is given that time again"
            )


def _nodes(campaign: Campaign) -> str:
    count = len(campaign.plan.nodes)
    return campaign.plan.nodes[0].name if count == 1 else f"{count:,} nodes"
