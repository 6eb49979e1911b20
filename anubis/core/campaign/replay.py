"""Replay a campaign's machine from its recorded events.

The machine has no clock and no randomness: with the same opening and the same events, it gives the
same commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from anubis.core.campaign.state_machine import CampaignEvent, CampaignMachine, Command
from anubis.core.records import Execution, Plan


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The input from which a machine is built, and the time of its start."""

    campaign: str
    at: float
    plan: Plan
    retries: int
    parallel_nodes: int | None
    absent: Mapping[str, str]  # absent nodes, with the reason
    history: tuple[Execution, ...]  # settled by earlier runs

    def machine(self) -> CampaignMachine:
        return CampaignMachine(
            self.plan,
            retries=self.retries,
            parallel_nodes=self.parallel_nodes,
            history=self.history,
            absent=self.absent,
        )


Witness = Callable[[Opening | CampaignEvent], None]


def replay(
    opening: Opening, events: Iterable[CampaignEvent]
) -> Iterator[tuple[Opening | CampaignEvent, list[Command]]]:
    """Yield each event, with the commands that the machine gave in response."""
    machine = opening.machine()
    yield opening, machine.start(opening.at)
    for event in events:
        yield event, machine.handle(event)
