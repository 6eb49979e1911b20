"""Fabrics without tiers: their links are counted, and their faults found, as those of trees."""

from __future__ import annotations

from itertools import combinations, pairwise

import networkx
import numpy as np
import pytest

from anubis.core.fabric import Part, rail_nics_on
from anubis.core.network.attribution import part_verdicts
from anubis.core.network.confirmation import confirmation
from anubis.core.network.coverage import coverage, covering_rounds
from anubis.core.network.crossing import (
    DETOURED,
    SELDOM,
    Flow,
    Parts,
    link_part,
    links_that_may_be_crossed,
)
from anubis.core.network.pairing import quick_rounds
from anubis.core.network.traffic import Traffic
from anubis.core.records import Judgement
from anubis.lab.simulation.simulated_network import (
    Fault,
    SimulatedNetwork,
    plant,
)
from tests.core.made_fabrics import Dragonfly, Torus, statically_routed
from tests.core.test_localization import located, model_of, observe

TORUS = Torus(shape=(4, 4, 3), nodes_per_switch=2).fabric()
DRAGONFLY = Dragonfly(groups=7, switches=3, nodes_per_switch=4).fabric()
FLAT = pytest.mark.parametrize("fabric", [TORUS, DRAGONFLY], ids=["torus", "dragonfly"])


def graph_of(fabric):
    return networkx.Graph((link.a, link.b) for link in fabric.links)


def test_a_torus_is_the_grid_of_another_library():
    assert networkx.is_isomorphic(
        graph_of(TORUS), networkx.grid_graph(dim=(4, 4, 3), periodic=True)
    )


def test_groups_of_a_dragonfly_are_whole_and_any_two_have_one_link():
    group = {switch.id: switch.id.split("-")[1] for switch in DRAGONFLY.switches}
    ends = [frozenset((group[link.a], group[link.b])) for link in DRAGONFLY.links]
    assert sorted(sorted(pair) for pair in ends if len(pair) == 2) == [
        list(pair) for pair in combinations(map(str, range(7)), 2)
    ]
    assert sum(len(pair) == 1 for pair in ends) == 7 * 3
    assert networkx.diameter(graph_of(DRAGONFLY)) == 3


def shares(fabric, a, b):
    """The share of each link in the traffic from one switch to another, path by path."""
    paths = list(networkx.all_shortest_paths(graph_of(fabric), a, b))
    share = dict.fromkeys(((link.a, link.b) for link in fabric.links), 0.0)
    for path in paths:
        chance = 1.0
        for place in range(len(path) - 1):
            chance /= len({p[place + 1] for p in paths if p[: place + 1] == path[: place + 1]})
        for here, there in pairwise(path):
            share[(here, there) if (here, there) in share else (there, here)] += chance
    return np.array(list(share.values()))


@FLAT
def test_every_link_counts_and_is_crossed_as_often_as_walks_along_the_paths_do(fabric):
    rounds = quick_rounds(fabric, fabric.nodes)[:2]
    missed = np.ones(len(fabric.links))
    for hop_round in rounds:
        for pair in hop_round.pairs:
            a, b = (fabric.nic(name, "0").switch for name in pair)
            if a != b:
                missed *= (1 - shares(fabric, a, b)) * (1 - shares(fabric, b, a))
    found = coverage(fabric, rounds)
    assert found.link_chance == pytest.approx(1 - missed, abs=1e-9)
    assert len(found.links(0)) == len(fabric.links)


@FLAT
def test_flows_of_unknown_path_may_take_a_detour_by_way_of_any_switch(fabric):
    flow = Flow(*rail_nics_on(fabric.nodes[0], fabric.nodes[-1], "0"))
    a, b = fabric.leaves[0], fabric.leaves[-1]
    to_all = sum(shares(fabric, a, via) for via in fabric.leaves if via != a)
    from_all = sum(shares(fabric, via, b) for via in fabric.leaves if via != b)
    each = DETOURED / len(fabric.leaves)
    missed = (1 - each * to_all) * (1 - each * from_all)
    missed *= 1 - (1 - DETOURED) * shares(fabric, a, b)
    parts = Parts(fabric)
    columns = 3 * np.array([parts.number(link_part(link)) for link in fabric.links])
    crossed = parts.crossings([flow], columns)
    chances = dict(zip(crossed.column.tolist(), crossed.chance, strict=True))
    assert [chances.get(c, 0.0) for c in columns] == pytest.approx(1 - missed, abs=3 * SELDOM)
    assert links_that_may_be_crossed(fabric, flow) == set(map(link_part, fabric.links))
    routed = Parts(statically_routed(fabric)).crossings([flow], columns)
    assert set(chances) > set(routed.column.tolist())


@FLAT
def test_more_rounds_cross_every_link_almost_surely(fabric):
    rounds = quick_rounds(fabric, fabric.nodes)
    assert coverage(fabric, rounds[:1]).untested_links == fabric.links
    after = coverage(fabric, [*rounds, *covering_rounds(fabric, fabric.nodes, rounds)])
    assert not after.untested_links
    assert not after.unsure_links


def measured(network, rounds, turn=0):
    return [
        flow
        for number, each in enumerate(rounds)
        for flow in network.measure([rail_nics_on(a, b, "0") for a, b in each.pairs], turn + number)
    ]


def quick_and_confirmed(network, fabric):
    flows = measured(network, quick_rounds(fabric, fabric.nodes))
    observations = observe(fabric, flows)
    chosen = confirmation(fabric, observations, model_of(observations))
    return located(fabric, flows + network.measure(chosen, 99))


@pytest.mark.long
@FLAT
@pytest.mark.parametrize("kind", ["slow node", "bad cable", "slow leaf"])
@pytest.mark.parametrize("seed", range(2))
def test_a_single_fault_is_named_and_nothing_else(fabric, kind, seed):
    fault = plant(fabric, kind, np.random.default_rng(seed))
    network = SimulatedNetwork(fabric=fabric, faults=(fault,), noise=0.01, seed=seed)
    answer = quick_and_confirmed(network, fabric)
    assert [cause.parts for cause in answer.causes] == [(fault.part,)]


@FLAT
@pytest.mark.parametrize("seed", range(2))
def test_a_lossy_link_is_named_if_the_paths_are_known(fabric, seed):
    link = fabric.links[int(np.random.default_rng(seed).integers(len(fabric.links)))]
    fault = Fault(kind="", part=link_part(link), loss=0.4)
    routed = statically_routed(fabric)
    network = SimulatedNetwork(fabric=routed, faults=(fault,), noise=0.01, seed=seed)
    assert [c.parts for c in quick_and_confirmed(network, routed).causes] == [(fault.part,)]


@FLAT
def test_without_a_fault_there_is_no_cause(fabric):
    assert not quick_and_confirmed(SimulatedNetwork(fabric=fabric, noise=0.01), fabric).causes


def test_an_uplink_can_be_planted_in_a_fabric_without_tiers():
    part = plant(TORUS, "lossy uplink", np.random.default_rng(0)).part
    assert part in {link_part(link) for link in TORUS.links}
    assert isinstance(part, Part)


@pytest.mark.parametrize("is_routed", [False, True])
def test_a_link_is_blamed_only_if_it_is_known_which_flows_cross_it(is_routed):
    fabric = statically_routed(DRAGONFLY) if is_routed else DRAGONFLY
    fault = Fault(kind="", part=link_part(fabric.links[0]), loss=0.4)
    network = SimulatedNetwork(fabric=fabric, faults=(fault,), noise=0.01)
    observations = observe(fabric, measured(network, quick_rounds(fabric, fabric.nodes)))
    traffic = Traffic(observations=tuple(observations), unmeasured=frozenset())
    links = [v for v in part_verdicts(fabric, traffic) if v.parts and v.parts[0].kind == "link"]
    assert {verdict.judgement for verdict in links} == {
        Judgement.DEFECTIVE if is_routed else Judgement.UNKNOWN
    }
