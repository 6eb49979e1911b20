"""Random lives of a fleet under all verbs of the product: accept, scan, gates and sweeps with and
without tests, reports, imports, the keeper, interrupted campaigns, clocks that are set.

After each verb a gate, a sweep, the lists of nodes, documents, pages and figures of the service and
the keeper are asked about every node: they never contradict each other, and no node is good that
`Ledger` has something against. It shares no code with the product.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from anubis.core.clock import SETTLED_S
from anubis.core.errors import AnubisError, Stopped, UsageError
from anubis.core.history.events import (
    FleetUpgraded,
    IncidentReported,
    JobEnded,
    MaintenanceEnded,
    MaintenancePlanned,
    NodeAdded,
    NodeRemoved,
    OperatorSaid,
    Order,
    RepairBegun,
    RepairDone,
    SuspicionRaised,
)
from anubis.core.history.status import Incident
from anubis.core.keep.commands import Mode
from anubis.core.keep.keeper_events import SeenJob, SeenNode
from anubis.core.keep.life import State
from anubis.core.records import CampaignKind, Judgement
from anubis.operations.campaigns import resume_campaign, run_campaign
from anubis.operations.clusters import time_in
from anubis.operations.fleet import glance_at
from anubis.operations.import_ import import_csv
from anubis.operations.keep import approve, close_breakers
from anubis.operations.nodes import nodes
from anubis.operations.requests import CsvImport, ScanRequest, Terms, ValidateRequest
from anubis.operations.sweep import sweep
from anubis.report.gate import sentence
from anubis.service.fleet_cache import Board
from anubis.service.metrics import Gauges
from anubis.store.history import History
from tests.edges.test_keeping import ACT, Site
from tests.edges.visitor import Visitor, house_of, items, page

FLEET = [f"n{i}" for i in range(1, 9)]
HEALTHY, DEFECTIVE, UNKNOWN = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN
TURN_EVERY = 4  # verbs
LONG_AWAY_S = 300.0 + 150.0  # a turn of this site takes so long
SUITE = {"flow"}  # benchmarks of the suite by which the site is kept and asked

# What a gate that runs nothing, and a page, may say of a node, by where its keeper has it; and
# whether a sweep may test it: None where it may, and need not.
TILE = r'class="t ([\w-]+)[^"]*" data-node="(\w+)"'
COMPATIBLE = {
    State.IN_SERVICE: ({"go", "unknown"}, {HEALTHY}, None),
    State.SPARE: ({"go", "unknown"}, {HEALTHY}, None),
    State.SUSPECT: ({"unknown"}, {UNKNOWN}, True),
    State.NEW: ({"unknown"}, {UNKNOWN}, True),
    State.DRAINING: ({"no-go", "unknown"}, {DEFECTIVE, UNKNOWN}, None),
    State.OUT: ({"no-go", "unknown"}, {DEFECTIVE, UNKNOWN}, None),  # it owes proof only
    State.REPAIRING: ({"no-go"}, {DEFECTIVE}, False),
    State.MAINTENANCE: ({"no-go"}, {UNKNOWN}, False),
    State.LOST: ({"unknown", "no-go"}, {UNKNOWN, DEFECTIVE}, False),
    State.RETIRED: ({"no-go"}, {DEFECTIVE}, False),
}
IN_DOUBT = ({"unknown"}, {UNKNOWN}, None)  # of nodes that serve, while the clock is in doubt


@dataclass
class Ledger:
    """What a clerk would write down of each node, by a clock that is right."""

    against: dict[str, tuple[float, str]] = field(default_factory=dict)  # the last: when, what
    passed: dict[str, float] = field(default_factory=dict)  # begin of the last pass of all
    ill: dict[str, float] = field(default_factory=dict)  # with an incident without an end: since
    in_repair: set[str] = field(default_factory=set)
    away: dict[str, float] = field(default_factory=dict)  # since when
    retired: set[str] = field(default_factory=set)
    left_alone: dict[str, float] = field(default_factory=dict)  # until when

    def object_to(self, some: Sequence[str], at: float, why: str) -> None:
        for node in some:
            self.against[node] = max(self.against.get(node, (at, why)), (at, why))

    def objection_to(self, node: str, now: float) -> str:
        """Reason why it cannot be good; empty: none."""
        states = {
            "an incident is open": node in self.ill,
            "it is in repair": node in self.in_repair,
            "it is away": node in self.away,
            "it is retired": node in self.retired,
            "people work on it": self.left_alone.get(node, now) > now,
        }
        at, why = self.against.get(node, (float("-inf"), ""))
        passed = self.passed.get(node, float("-inf"))
        states[f"not passed ({passed}) since {why} ({at})"] = not passed > at
        return "; ".join(reason for reason, holds in states.items() if holds)


class VerbLife:
    """A life of a whole fleet under random verbs."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.draw = site, random.Random(seed)
        self.moves: list[str] = []
        self.glance = None
        self.ledger, self.campaigns = Ledger(), set[str]()
        self.begun: dict[str, float] = {}  # campaigns that were interrupted
        self.incidents: list[Incident] = []
        self.is_kept = False
        self.board = Board(site.caller)
        house = house_of(site.history)
        self.visitor = Visitor(replace(house, board=self.board, gauges=Gauges(self.board.read)))
        self.read_campaigns(None)

    def step(self) -> None:
        some = tuple(self.draw.sample(FLEET, self.draw.choice([1, 1, 2])))
        moves = [name for name in dir(self) if name.startswith("do_")]
        move = self.draw.choice([*moves, *["do_tell"] * 5, *["do_turn"] * 3])
        self.moves.append(f"{move} {','.join(some)}")
        began = self.site.later()
        getattr(self, move)(some)
        self.read_campaigns(began)

    def read_campaigns(self, began: float | None) -> None:
        """Write down what came of campaigns since then, in their order; None: as they are dated."""
        with History.open(self.site.history) as history:
            rows = [row for row in history.campaigns.newest(50) if row.id not in self.campaigns]
            for place, row in enumerate(sorted(rows, key=lambda row: (row.created_at, row.id))):
                at = row.created_at if began is None else began + place / 1000
                kind = CampaignKind(row.kind)
                if not kind.validates:
                    continue  # of another tool, at an unknown time
                if row.finished_at is None:  # it may be resumed, and counts then from its begin
                    self.begun.setdefault(row.id, at)
                    continue
                self.campaigns.add(row.id)
                tested = {spec.name for spec in history.campaigns.get(row.id).plan.specs}
                for verdict in history.assessments.node_verdicts(row.id):
                    self._judge(verdict, kind, tested >= SUITE, at, row.id)

    def _judge(self, verdict, kind, is_whole, at, campaign) -> None:
        node, began = verdict.node, self.begun.get(campaign, at)
        match verdict.judgement:
            case Judgement.HEALTHY:
                if is_whole and kind in (CampaignKind.ACCEPT, CampaignKind.VALIDATE):
                    self.ledger.passed[node] = max(began, self.ledger.passed.get(node, began))
            case Judgement.DEFECTIVE:
                self.ledger.object_to([node], at, f"defective in {campaign}")
            case Judgement.UNKNOWN if verdict.owes != ():
                self.ledger.object_to([node], at, f"unknown in {campaign}")

    # --- what is asked for ---

    def do_turn(self, some):
        modes = self.draw.choice([ACT, {**ACT, "test": Mode.PROPOSE}, {"test": Mode.PROPOSE}])
        spares = self.draw.choice([{}, {}, {"h100": 1}])
        return self.turn(**modes, spares=spares)

    def turn(self, **modes):
        at = self.site.now - 0.5  # before what the turn itself tests
        fleet = self.site.keep(**modes)
        self._look(at)
        return fleet

    def _look(self, at: float) -> None:
        """Write down what the owner of the nodes showed in a turn."""
        self.is_kept = True
        away, there = self.ledger.away, {*self.site.owner.nodes}
        back = [node for node in there if at - away.pop(node, at) > LONG_AWAY_S]
        self.ledger.object_to(back, at, "it is there again")
        for node in {*FLEET} - there:
            away.setdefault(node, at)

    def do_pass(self, some):
        self._measure(some)

    def do_fail(self, some):
        self._measure(some, slow_share=0.4)

    def do_lose(self, some):
        self._measure(some, lost_share=0.3)

    def do_crash(self, some):
        self._measure(some, crash_share=0.3)

    def _measure(self, some, **trouble):
        """Measure with all others, so that there is something to compare with."""
        with self._troubled(trouble):
            self.site.measure(ValidateRequest, self.draw.choice([None, None, some]))

    @contextmanager
    def _troubled(self, trouble=None) -> Iterator[None]:
        if trouble is None:
            trouble = self.draw.choice([{}, {}, {"slow_share": 0.4}, {"lost_share": 0.3}])
        self.moves[-1] += f" {trouble}"
        self.site.describe(seed=self.draw.randrange(1000), **trouble)
        with suppress(AnubisError):  # there is nothing to compare with, or others hold the nodes
            yield
        self.site.describe()

    def do_interrupt(self, some):
        caller, left = self.site.caller, self.draw.randrange(12)

        def wants_stop():
            nonlocal left
            left -= 1
            return left < 0

        caller.wants_stop = wants_stop
        with self._troubled():
            self.site.measure(ValidateRequest, caller=caller)

    def do_resume(self, some):
        with self._troubled():
            resume_campaign(CampaignKind.VALIDATE, None, self.site.caller)

    def do_scan(self, some):
        with self._troubled():
            run_campaign(ScanRequest(cluster=self.site.cluster), self.site.caller)

    def do_gate(self, some):
        answer = None
        with self._troubled():
            answer = self.site.asked(*some, may_test=True)
        if answer and answer.answer == "go":
            self.read_campaigns(self.site.now)
            for node in some:
                assert not self.objection_to(node), f"go: {node}\n{self.moves}"

    def do_sweep(self, some):
        with self._troubled():
            sweep(FLEET, self._terms(), self.site.caller)

    def do_import_results(self, some):
        lines = [
            f"{node},{self.draw.choice([1, 1, 1, 9]) + self.draw.random() / 9}" for node in FLEET
        ]
        table = self.site.desk.write("results.csv", "\n".join(["node,ms", *lines]))
        read = CsvImport(
            file=table, suite="s", sku="h100", metrics=("ms=lower,ms",), cluster=self.site.cluster
        )
        with suppress(AnubisError):
            import_csv(read, self.site.caller)

    def do_approve(self, some):
        with History.open(self.site.history) as history:
            ids = [action.id for action in history.only().keeping.open_actions()]
        if ids and self.is_kept:
            at = self.site.now
            with suppress(UsageError):
                approve(self.site.keeping(test=Mode.ACT), [self.draw.choice(ids)], self.site.caller)
                self._look(at)

    def do_close(self, some):
        with suppress(UsageError):
            close_breakers(self.site.keeping(test=Mode.ACT), ["fleet"], self.site.caller)

    def do_tell(self, some):
        ledger, at, ago = self.ledger, self.site.now, self.draw.choice([0.0, 0.0, 5.0, 500.0])
        event = self.draw.choice(
            [
                *(kind(nodes=some) for kind in (NodeAdded, NodeRemoved, FleetUpgraded)),
                *(kind(nodes=some) for kind in (RepairBegun, RepairDone, RepairDone)),
                IncidentReported(nodes=some, category="gpu"),
                SuspicionRaised(nodes=some, category="gpu", source="me"),
                *(OperatorSaid(order=order, nodes=some) for order in (Order.RETIRE, Order.RETURN)),
            ]
        )
        self.moves[-1] += f" {event.kind} {getattr(event, 'order', '')} {ago} s ago"
        now = self.product_now()
        at = self.site.now - ago
        try:
            self.site.tell(event, at=now - ago if ago else None)
        except AnubisError:
            return
        match event:
            case OperatorSaid(order=Order.RETIRE):
                ledger.retired |= {*some}
            case OperatorSaid():
                back = ledger.retired & {*some}
                ledger.retired -= {*some}
                ledger.object_to([*back], at, "it returned")
            case NodeRemoved():
                for node in some:
                    ledger.away.setdefault(node, at)
            case RepairBegun():
                ledger.in_repair |= {*some}
            case _:
                ledger.object_to(some, at, event.kind)
        if isinstance(event, RepairDone):
            ledger.in_repair -= {*some}
        if isinstance(event, NodeAdded):
            for node in some:
                ledger.away.pop(node, None)

    def product_now(self) -> float:
        with History.open(self.site.history) as history:
            return time_in(history.only(), self.site.caller).now

    def do_maintain(self, some):
        lasts_s = self.draw.choice([1000.0, 1e5])
        begin = self.product_now()
        self.site.tell(MaintenancePlanned(nodes=some, begin=begin, end=begin + lasts_s))
        until = self.site.now + lasts_s
        self.ledger.left_alone |= {n: max(until, self.ledger.left_alone.get(n, 0)) for n in some}

    def do_end_maintenance(self, some):
        self.site.tell(MaintenanceEnded(nodes=some))
        for node in some:
            self.ledger.left_alone.pop(node, None)

    def do_import(self, some):
        """Import incidents that are over, or not; of a monitor, or of the future."""
        ago, now = self.draw.choice([500.0, 10.0]), self.product_now()
        start, end = now - ago, self.draw.choice([None, None, now - 1])
        self._add_incidents(
            [Incident(node=node, category="gpu", start=start, end=end) for node in some]
        )
        for node in some if end is None else ():
            self.ledger.ill.setdefault(node, self.site.now - ago)
        self.ledger.object_to(some, self.site.now - (1 if end else ago), "its incident")

    def do_import_of_the_future(self, some):
        start = self.product_now() + 1e6
        self._add_incidents([Incident(node=n, category="gpu", start=start, end=None) for n in some])
        for node in some:  # a clock was wrong, and it is not over
            self.ledger.ill.setdefault(node, self.site.now)

    def do_end_incidents(self, some):
        now = self.product_now()
        with History.open(self.site.history) as history:
            incidents = [i for i in history.only().incidents.all() if i.end is None]
        begun = [incident for incident in incidents if incident.start <= now]
        self._add_incidents([replace(incident, end=now) for incident in begun])
        self.ledger.object_to([i.node for i in begun], self.site.now, "its incident ended")
        for node in {i.node for i in begun} - {i.node for i in incidents if i.start > now}:
            self.ledger.ill.pop(node, None)

    def _add_incidents(self, incidents):
        with History.open(self.site.history) as history:
            history.only().incidents.add(incidents)

    # --- what happens ---

    def do_leave(self, some):
        for node in some:
            self.site.owner.nodes.pop(node, None)

    def do_come(self, some):
        for node in FLEET:
            self.site.owner.nodes.setdefault(node, SeenNode(sku="h100"))

    def do_job(self, some):
        self.site.owner.jobs = {"7": SeenJob(owner="jo", nodes=some, started_at=self.site.now)}

    def do_end_job(self, some):
        self.site.owner.jobs = {}
        with suppress(UsageError):  # it never began
            self.site.tell(JobEnded(nodes=(), job="7", failed=self.draw.random() < 0.5))

    def do_jump(self, some):
        self.site.off_s = self.draw.choice([0.0, 0.0, 3e7, 2.6e6, -3e7, 600.0, -600.0])
        self.moves[-1] += f" {self.site.off_s:g}"

    def do_set_right(self, some):
        self.site.off_s = 0.0

    def do_wait(self, some):
        self.site.later(self.draw.choice([10.0, SETTLED_S, 86_400.0]))

    # --- the answers of all verbs ----------------------------------------------------------

    def _terms(self) -> Terms:
        site = self.site
        return Terms(suite=site.suite, benchmarks=(site.desk.programs,), cluster=site.cluster)

    def swept(self):
        """Nodes that a sweep would test."""
        caller, decisions = self.site.caller, []

        def decided(decision):
            decisions.append(decision)
            raise Stopped("it is only asked")

        caller.decided = decided
        with suppress(Stopped):
            sweep(FLEET, self._terms(), caller)
        return {node for test in decisions[0].tests for node in test.nodes}

    def objection_to(self, node: str) -> str:
        return self.ledger.objection_to(node, self.site.now)

    def check(self) -> None:
        """Check what holds after every verb, also before a keeper heard of it."""
        site = self.site
        site.asked(FLEET[0])  # its decision redates records once a doubt about the clock is over
        with History.open(site.history) as history:
            part = history.only()
            self.glance = glance_at(part, time_in(part, site.caller), self.glance)
            afresh = glance_at(part, time_in(part, site.caller))
            doubt = time_in(part, site.caller).doubt
        assert self.glance.by_name == afresh.by_name, self.moves
        listed = {view.node: view for view in nodes(cluster=site.cluster, caller=site.caller)}
        assert listed.keys() == afresh.by_name.keys()
        for node, glance in afresh.by_name.items():
            asked, objection = site.asked(node), self.objection_to(node)
            answer = asked.answer
            said = (
                f"{node}: {glance.judgement} ({glance.why}), {sentence(asked)}; against it:"
                f" {objection}; {doubt}\n{self.moves}"
            )
            assert listed[node].judgement is glance.judgement, said
            is_left_alone = bool(listed[node].maintenance)
            assert (glance.judgement is DEFECTIVE) is (
                bool(listed[node].unfit) and not is_left_alone
            ), said
            if objection:
                assert glance.judgement is not HEALTHY, said
                assert answer != "go", said
            elif not doubt:
                assert glance.judgement is not DEFECTIVE, said
                assert answer != "no-go", said
            if answer == "go":
                assert glance.judgement is HEALTHY, said
            if glance.judgement is DEFECTIVE:
                assert answer == "no-go", said

    def check_turn(self) -> None:
        """Check what holds after a turn of the keeper."""
        modes = self.draw.choice([ACT, {**ACT, "test": Mode.PROPOSE}, {"test": Mode.PROPOSE}])
        began = self.site.later()
        fleet = self.turn(**modes)
        self.moves.append("turn")
        self.read_campaigns(began)
        self.check()
        self._check_service(fleet)

    def _check_service(self, fleet) -> None:
        site, doubt, glances = self.site, fleet.doubt, self.glance
        with History.open(site.history) as history:
            part = history.only()
            busy = {node for job in part.jobs.all() if job.end is None for node in job.nodes}
        swept, counted = self.swept(), dict.fromkeys(Judgement, 0)
        self.board._renew()
        documents = {line["node"]: line for line in items(self.visitor.ask("/v1/nodes"))}
        tiles = {node: how for how, node in re.findall(TILE, page(self.visitor, "/"))}
        assert documents.keys() == tiles.keys() == glances.by_name.keys()
        for node, glance in glances.by_name.items():
            counted[glance.judgement] += 1
            life = fleet.lives[node]
            state = replace(life, trial=None).state
            if life.maintained:
                state = State.MAINTENANCE
                if "people" not in self.objection_to(node):
                    continue  # it ended since the turn
            answers, judgements, is_swept = COMPATIBLE[state]
            asked = site.asked(node)
            said = f"{node} is {state}, {life}: {doubt}\n{self.moves}"
            if doubt and state in (State.IN_SERVICE, State.SPARE):
                answers, judgements, is_swept = IN_DOUBT
                is_early = "dated in the future" in glance.why
                assert is_early or glance.why in (doubt, "")  # empty: it had passed nothing before
                assert doubt in sentence(asked)
            assert asked.answer in answers, f"{asked.answer}\n{said}"
            assert glance.judgement in judgements, f"{glance}\n{said}"
            if state in (State.IN_SERVICE, State.SPARE) and not doubt:
                assert not self.objection_to(node), f"{self.objection_to(node)}\n{said}"
            judged, document = glance.judgement.value, documents[node]
            assert (document["judgement"], document["why"]) == (judged, glance.why), said
            assert tiles[node] == judged, said
            shown = page(self.visitor, f"/nodes/{glances.cluster}/{node}")
            assert f'<span class="{judged}">{judged}</span>' in shown, said
            assert f"<dt>state</dt><dd>{life.state.value}</dd>" in shown, said
            if is_swept is not None and node not in busy and not life.is_cordoned_by_others:
                assert (node in swept) is is_swept, said
        figures = self.visitor.ask("/metrics").text
        for judgement in (HEALTHY, DEFECTIVE, UNKNOWN):
            name = f'anubis_nodes{{cluster="{glances.cluster}",judgement="{judgement.value}"}}'
            assert f"{name} {counted[judgement]}.0" in figures
        assert f'anubis_clock_doubted{{cluster="{glances.cluster}"}} {bool(doubt):.1f}' in figures


def live(base: Site, home: Path, seed: int, verbs: int) -> None:
    """Live one life on a copy of a site that was accepted; an error names the seed."""
    with pytest.MonkeyPatch.context() as patch:
        life = VerbLife(base.copied(home, patch), seed)
        for number in range(1, verbs + 1):
            life.step()
            life.check()
            if number % TURN_EVERY == 0:
                life.check_turn()
    shutil.rmtree(home)
