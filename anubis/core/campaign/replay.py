"""What a campaign's machine was told, so that it can be told again.

The machine knows no clock and no chance: built alike and told the same, it commands the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from anubis.core.campaign.machine import CampaignEvent, CampaignMachine, Command
from anubis.core.records import Execution, Plan


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a machine is built from, and when it starts."""

    campaign: str
    at: float
    plan: Plan
    retries: int
    parallel_nodes: int | None
    absent: Mapping[str, str]  # nodes that are not there, and why
    history: tuple[Execution, ...]  # what earlier runs settled

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
    """What the machine was told, step by step, and what it commanded each time."""
    machine = opening.machine()
    yield opening, machine.start(opening.at)
    for event in events:
        yield event, machine.handle(event)
