"""The policy of a fleet's keeper: what it may do, and how much of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from anubis.core.amounts import DAY_S, read_amount, seconds_of
from anubis.core.keep.commands import Mode
from anubis.core.keep.periodic_tasks import PeriodicTask, Rhythm

MOST_DOUBLINGS = 30  # 2.0 ** 1024 overflows; long before, a pause is a day
SHARES = ("out_of_fleet", "out_of_sku", "out_of_job", "tested_at_once")
SPANS = ("check_limit_s", "away_s", "pause_s", "resent_s", "unsettled_s", "answered_s")


@dataclass(frozen=True, kw_only=True)
class SweepTask(Rhythm):
    """The idle nodes most at risk, tested within a budget: no more than `tested_at_once`."""

    budget: str
    """What one sweep may cost: `8nh` of all nodes together, `30m` on each of them."""
    mode: Mode = Mode.PROPOSE
    """Whether to run it (act), or to ask a person each time (propose)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not read_amount(self.budget)[0]:
            raise ValueError(f'budget is "{self.budget}", expected one such as 8nh or 30m')


@dataclass(frozen=True, kw_only=True)
class CriteriaTask(Rhythm):
    """Criteria of the suite, learned again from what was measured lately. They are always proposed:
    those in use are never changed without a person."""

    look_back: str = "30d"
    """The age up to which measurements count."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not seconds_of(self.look_back):
            raise ValueError(f'look_back is "{self.look_back}", expected a time such as 30d')


@dataclass(frozen=True, kw_only=True)
class RiskTask(Rhythm):
    """The model of risk, trained again and compared with the one in use on later data."""

    mode: Mode = Mode.PROPOSE
    """Whether to put a better model in use (act), or to ask a person (propose)."""


@dataclass(frozen=True, kw_only=True)
class PingTask(Rhythm):
    """The standing mesh of light pings between the agents of the nodes: losses are judged,
    and the agents get a new plan of pings. The cluster's file has to name its topology."""

    telemetry: str = "default"
    """The file under configs/telemetry/ with the addresses and the token of the agents."""
    category: str = "network"
    """What a defect of a NIC or its cable is called in your incidents: a suspected node is tested
    for it."""


@dataclass(frozen=True, kw_only=True)
class LocatePolicy:
    """The search for the fault behind the trouble of a job that nothing explained, among its nodes:
    `anubis locate`, one at a time, within a day after the job."""

    mode: Mode = Mode.PROPOSE
    """Whether to run it (act), or to ask a person each time (propose)."""
    nodes: int = 64
    """The most nodes to search at once, without regard to `tested_at_once`. A job with more is
    searched in parts."""
    again_s: float = 7 * DAY_S
    """The time within which the same nodes are not searched again."""
    suite: str = "locate"
    """The suite with programs for groups that fit your jobs."""

    def __post_init__(self) -> None:
        if self.nodes < 2:
            raise ValueError(f"nodes is {self.nodes}, expected 2 or more")
        if not self.again_s >= 0:
            raise ValueError(f"again_s is {self.again_s:g}, expected seconds from 0")


@dataclass(frozen=True, kw_only=True)
class KeepingPolicy:
    """Every command is proposed only, until a site switches it on."""

    summary: str = ""
    """What it is for, in one line."""
    cordon: Mode = Mode.PROPOSE
    """Whether to keep defective nodes, and new ones until they are proven, from jobs (act), or only
    to propose it (propose)."""
    release: Mode = Mode.PROPOSE
    """The same for taking back a cordon of Anubis. A person's cordon always stays."""
    test: Mode = Mode.PROPOSE
    """The same for running the tests that nodes have to pass."""
    swap: Mode = Mode.PROPOSE
    """The same for bringing a spare into service in place of a node that is taken out."""
    ticket: Mode = Mode.PROPOSE
    """The same for opening and closing tickets."""
    requeue: Mode | None = None
    """The same for putting a job back into the queue if a node of it is taken out. Without it,
    jobs go on, as far as they can."""
    repair: Mode | None = None
    """The same for running the commands of a site that repair a node which is out or lost
    (`commands` of a remedy), and testing it afterwards. Without it, none is run."""
    hold_from: float | None = None
    """The confidence from which a suspected node is kept from new jobs until it is tested, within
    the shares that are left for new nodes. Without it, it serves."""
    out_of_fleet: float = 0.05
    """The largest share of the fleet that may be out at once, at least one node. Beyond it the
    breaker opens, and nothing more is taken out until a person closes it. New nodes are kept out
    within the rest of the share. Beyond that they serve unproven."""
    out_of_sku: float = 0.10
    """The same share, of the nodes of one sku."""
    out_of_job: float = 0.10
    """The same share, of the nodes of one job."""
    spares: Mapping[str, int] = field(default_factory=dict)
    """How many proven nodes to keep ready, by sku."""
    repaired_at_once: int = 4
    """How many nodes are repaired by commands at once."""
    repairs: int = 3
    """How many such commands are run for one node within a week. Then a person is informed."""
    tested_at_once: float = 0.10
    """The largest share of the fleet under test at once, at least one node."""
    suite: str = "delivery"
    """The suite from which tests are chosen for nodes that have something to prove. New nodes, and
    those that come from a repair or an upgrade, pass all of it."""
    selection: str = "default"
    """The policy by which they are chosen and judged."""
    check: str = "light"
    """The suite from which tests are chosen after a job, when its nodes are idle. After a failed
    job, all of it is run."""
    check_limit_s: float = 600.0
    """How long such a check may take on a node. 0: no check after jobs."""
    away_s: float = 300.0
    """A node that does not answer its orchestrator for longer has to prove itself again."""
    tries: int = 3
    """Number of tests in a row without an answer after which a person is informed."""
    pause_s: float = 600.0
    """The pause between two such tests. It doubles every time, to a day at most."""
    resent_s: float = 60.0
    """The time after which a command that shows no effect is sent again."""
    unsettled_s: float = 7 * DAY_S
    """The time after which a suspicion that no test could settle is given up. If a suspicion was
    refuted and the node is suspected again within this time, it has to pass all tests."""
    answered_s: float = DAY_S
    """The time after which a test without an answer is given up."""
    watch: str = ""
    """The file under configs/watching/ by which running jobs are watched. Without it, they are
    not."""
    diagnose: str = ""
    """The file under configs/diagnosis/ by which jobs that ended or make no progress are diagnosed.
    Without it, they are not."""
    locate: LocatePolicy | None = None
    """How to search among the nodes of a job whose trouble its diagnosis did not explain. Without
    it, never."""
    notify: str = ""
    """The file under configs/notifiers/ with the receiver of the keeper's reports. Without it, none
    are sent."""
    sweep: SweepTask | None = None
    """When idle nodes are swept. Without it, never."""
    criteria: CriteriaTask | None = None
    """When criteria are learned again. Without it, never."""
    risk: RiskTask | None = None
    """When the model of risk is trained again. Without it, never."""
    pings: PingTask | None = None
    """When the pings between the agents of the nodes are judged. Without it, agents ping only
    if something else asks them to."""

    @property
    def rhythms(self) -> dict[PeriodicTask, Rhythm]:
        """Rhythms of the periodic work that is switched on."""
        of_periodic_tasks = {
            PeriodicTask.SWEEP: self.sweep,
            PeriodicTask.CRITERIA: self.criteria,
            PeriodicTask.RISK: self.risk,
            PeriodicTask.PINGS: self.pings,
        }
        return {task: rhythm for task, rhythm in of_periodic_tasks.items() if rhythm}

    @property
    def checks_after_jobs(self) -> bool:
        return self.check_limit_s > 0

    @property
    def acts_on_nodes(self) -> bool:
        """Return whether the keeper acts outside the history, so that the nodes need an owner."""
        return Mode.ACT in (self.cordon, self.release, self.requeue, self.repair)

    def pause_after(self, tries: int) -> float:
        doubled = self.pause_s * 2.0 ** min(tries, MOST_DOUBLINGS)
        return min(doubled, max(self.pause_s, DAY_S))

    def __post_init__(self) -> None:
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected a share from 0 to 1")
        for name in SPANS:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name):g}, expected seconds from 0")
        if self.hold_from is not None and not 0 <= self.hold_from <= 1:
            raise ValueError(f"hold_from is {self.hold_from:g}, expected a confidence from 0 to 1")
        for name in ("requeue", "repair"):
            if getattr(self, name) is Mode.ACT and self.cordon is not Mode.ACT:
                raise ValueError(f"{name} acts and cordon does not: a job could begin on the node")
        for name in ("tries", "repairs", "repaired_at_once"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected 1 or more")
        for sku, count in self.spares.items():
            if count < 0:
                raise ValueError(f"spares of {sku} are {count}, expected 0 or more")


def allowed_count(share: float, among: int) -> int:
    return max(1, math.floor(share * among))
