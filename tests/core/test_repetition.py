"""A unit that is slow once and good again is unknown; a unit that is slow each time is named."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest
from fleets import spec
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.campaign.planning import plan
from anubis.core.fabric import Part, RailNic
from anubis.core.network.crossing import Flow
from anubis.core.network.localization import Cause
from anubis.core.network.pairing import PairTest
from anubis.core.network.posterior import Observation
from anubis.core.network.repetition import Repetition
from anubis.core.network.traffic import Traffic
from anubis.core.records import (
    Campaign,
    CampaignKind,
    Judgement,
    Needs,
    Policy,
    Readings,
    Series,
    Suite,
    SuiteEntry,
)
from anubis.lab.simulation.simulated_fleet import SimulatedFleet
from anubis.operations.validator import carry_out
from anubis.reach.executors.simulated import SimulatedExecutor
from tests.core.made_fabrics import FatTree

PAIR = spec("pair", scope="pair", needs=Needs(min_nodes=2))
SPINES, LEAF = 8, 8
TREE = FatTree(nodes=64, nodes_per_leaf=LEAF, spines=SPINES).fabric()


def share(*names):
    """The same names give the same share from 0 to 1."""
    return int.from_bytes(sha256(repr(names).encode()).digest()[:6]) / 2**48


class Pairs(SimulatedExecutor):
    """Two tiers: a flow passes the cable up from its leaf and one down from the same spine, always
    the same. `left(cable, step)` is what a cable leaves of a flow."""

    def __init__(self, left):
        super().__init__(SimulatedFleet(nodes=",".join(TREE.nodes), slow_share=0), {"pair": PAIR})
        self.left = left

    def _measure(self, step, spec):
        a, b = step.participants
        return Readings.pack(
            Series(metric=f"rate:{way}", device="cpu", samples=self.samples(ends, step))
            for way, ends in (("forth", (a, b)), ("back", (b, a)))
        )

    def samples(self, ends, step):
        rng = np.random.default_rng([*step.id.encode(), *ends[0].encode()])
        leaves = [TREE.nodes.index(end) // LEAF for end in ends]
        spine = int(share(ends) * SPINES)
        cables = [(leaf, spine) for leaf in leaves] if leaves[0] != leaves[1] else []
        left = min((self.left(cable, step) for cable in cables), default=1.0)
        return 100 * left * rng.normal(1, 0.005, 8)


def scan(left):
    executor = Pairs(left)
    suite = Suite(name="s", summary="", benchmarks=(SuiteEntry(benchmark="pair", groups="quick"),))
    campaign = Campaign(
        id="c",
        kind=CampaignKind.SCAN,
        plan=plan(suite, executor.nodes(), {"pair": PAIR}, TREE),
        policy=Policy(),
        executor="simulated",
        created_at=0.0,
    )
    return carry_out(
        campaign, executor, keep=lambda batch: None, observe=lambda machine, events: None
    ).assessment


def blamed(assessment):
    return [part for part in assessment.parts if part.judgement is Judgement.DEFECTIVE]


LOADED = {(3, spine) for spine in range(4)}  # half of the cables of leaf 3


@pytest.mark.parametrize("turns", [(0,), (0, 2)])
def test_pairs_slowed_by_other_jobs_in_some_turns_are_unknown(turns):
    """The pairs of a loaded leaf are slow together, which looks like a fault of the leaf."""
    assessment = scan(lambda cable, step: 0.6 if cable in LOADED and step.turn in turns else 1.0)
    assert not blamed(assessment)
    assert not assessment.named(Judgement.DEFECTIVE)
    assert assessment.judgement is Judgement.UNKNOWN
    assert "UNSTABLE" in {verdict.code for verdict in assessment.alone}


def test_a_part_that_is_slow_in_each_turn_is_named():
    (part,) = blamed(scan(lambda cable, step: 0.6 if cable in LOADED else 1.0))
    assert {end.name for end in part.parts} | {end.other for end in part.parts} >= {"leaf-0-3"}


UPLINKS = tuple(Part("link", "leaf-0-3", f"spine-0-{spine}") for spine in range(SPINES))


def uplink_cause(pairs):
    """Return one of the cables above leaf 3 as a cause, for which these pairs speak."""
    return Cause(
        parts=UPLINKS,
        chances=(1 / SPINES,) * SPINES,
        way="both",
        steady=True,
        confidence=0.99,
        shortfall=0.3,
        bad=tuple(observed(pair, 0.3) for pair in pairs),
        good=40,
        flows=60,
    )


def observed(pair, shortfall, *, gone=False):
    ends = (RailNic(node, TREE.rails[0]) for node in pair)
    return Observation(Flow(*ends, turns=TURNS, gone=gone), shortfall)


TURNS = (0, 1, 2)
ACROSS = [(TREE.nodes[24 + k % 8], TREE.nodes[32 + k]) for k in range(16)]  # from leaf 3
ELSEWHERE = [(a, b) for a in TREE.nodes[:24] for b in TREE.nodes[48:56]]


def doubt(slow, *, once=(), gone=8, when=(0, 1), hidden=()):
    """The doubt about a cause for which `slow` pairs speak each time, and some that measured
    `once`; others across it were slow at first and then good. A larger cause explains those that
    are `hidden`."""
    came_good = ACROSS[len(slow) :][:gone]
    turns = {PairTest(*pair): TURNS for pair in slow}
    turns |= {PairTest(*pair): (2,) for pair in once}
    turns |= {PairTest(*pair): when for pair in came_good}
    turns |= {PairTest(*pair): (number % 2,) for number, pair in enumerate(ELSEWHERE)}
    bad = [observed(pair, 0.3) for pair in (*slow, *once)]
    good = [observed(pair, 0.0) for pair in ELSEWHERE]
    went = [observed(pair, 0.3, gone=True) for pair in came_good]
    traffic = Traffic(observations=(*bad, *good, *went), unmeasured=frozenset(), turns=turns)
    larger = [uplink_cause(hidden)] if hidden else []
    return Repetition(TREE, traffic).doubt(uplink_cause((*slow, *once)), larger)


def test_pairs_that_are_slow_each_time_speak_for_a_cable_although_others_came_good():
    """The paths are unknown, so most pairs that may cross it take another cable."""
    assert doubt(ACROSS[:4], gone=2) is None
    assert doubt(ACROSS[:4], gone=8) is None
    assert doubt(ACROSS[:4], gone=8, when=(1, 2))  # so many are slow although they run alone


@pytest.mark.parametrize("gone", range(3))
def test_a_cable_is_not_blamed_for_another_one_that_comes_and_goes(gone):
    """All slow pairs meet leaf 4, and others that meet it came good: one of its cables flaps."""
    beside = [(TREE.nodes[k], TREE.nodes[32 + k]) for k in range(gone)]
    bad, went = (
        [observed(pair, 0.3) for pair in ACROSS[:2]],
        [observed(pair, 0.3, gone=True) for pair in beside],
    )
    turns = {PairTest(*pair): TURNS for pair in (*ACROSS[:2], *beside)}
    turns |= {PairTest(*pair): (0,) for pair in ELSEWHERE}
    traffic = Traffic(observations=(*bad, *went), unmeasured=frozenset(), turns=turns)
    found = Repetition(TREE, traffic).doubt(uplink_cause(ACROSS[:2]))
    assert (found and found.code) == ("CAME-AND-WENT" if gone == 2 else None)


def test_pairs_of_a_larger_cause_do_not_show_that_a_second_one_was_there_each_time():
    assert doubt(ACROSS[:4], once=ACROSS[4:6], gone=0) is None
    assert doubt(ACROSS[:4], once=ACROSS[4:6], gone=0, hidden=ACROSS[:4])


@given(slow=st.integers(1, 7), good=st.integers(0, 7))
@settings(max_examples=10, deadline=None)
def test_a_node_that_comes_and_goes_is_not_blamed_if_those_beside_it_do_as_often(slow, good):
    """Other jobs load all cables of a leaf at times, and elsewhere nothing comes and goes."""
    node = TREE.nodes[24]
    own = [(node, TREE.nodes[32 + number]) for number in range(slow + good)]
    beside = [(TREE.nodes[25], partner) for _, partner in own]
    bad = [observed(pair, 0.3) for pair in own[:slow]]
    cause = replace(uplink_cause(own[:slow]), parts=(Part("node", node),), steady=False, good=0)

    def told(loaded):
        turns = {PairTest(*pair): (0,) for pair in (*beside, *ELSEWHERE)}
        turns |= {PairTest(*pair): TURNS for pair in (*own, *loaded)}
        went = [observed(pair, 0.3, gone=True) for pair in (*own[slow:], *loaded)]
        traffic = Traffic(observations=(*bad, *went), unmeasured=frozenset(), turns=turns)
        doubt = Repetition(TREE, traffic).doubt(cause)
        return doubt and doubt.code

    assert told([]) is None
    assert told(beside[:slow]) == "CAME-AND-WENT"


def test_cables_that_other_jobs_load_by_chance_blame_nothing():
    """One cable in five is loaded, other ones in each turn."""
    for seed in range(2, 4):
        assessment = scan(
            lambda cable, step, seed=seed: 0.6 if share(seed, cable, step.turn) < 0.2 else 1.0
        )
        assert not blamed(assessment)
        assert assessment.judgement is Judgement.UNKNOWN
