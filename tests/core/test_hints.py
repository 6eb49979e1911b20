"""The prior odds of parts, as port counters change them: against counting by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from anubis.core.diagnose.crash import counter_hints
from anubis.core.fabric import Part
from anubis.core.network.attribution import part_verdicts
from anubis.core.network.confirmation import confirmation
from anubis.core.network.crossing import link_part
from anubis.core.network.hints import MOST, SHOWN, SUSPECTED, add_hints, hints, symptom_of
from anubis.core.network.localization import locate
from anubis.core.network.posterior import FaultPrior, Observation
from anubis.core.network.traffic import Traffic
from anubis.core.records import Count, Counters
from anubis.lab.simulation.simulated_network import Fault, SimulatedNetwork, count_errors
from tests.core.made_fabrics import FatTree, statically_routed
from tests.core.test_localization import fully_scanned, located, observe

TREE = FatTree(nodes=32, nodes_per_leaf=8, spines=4).fabric()
LINK = Part("link", "leaf-0-1", "spine-0-2")
PARTS = 32 + 16  # cables: of NICs, and between switches


def counted(port, counter="symbol_error", value=100, switch="leaf-0-1"):
    return Count(guid="", name=switch, port=port, counter=counter, value=value)


def told(*counts, is_whole=True, unread=()):
    return hints(TREE, Counters(counts=counts, is_whole=is_whole, unread=unread))


def test_the_only_port_that_counts_errors_is_as_much_likelier_as_that_is_rare():
    factors = told(counted("11"))  # behind eight NICs: the third uplink
    assert factors[LINK] == pytest.approx(SHOWN * PARTS)
    (silent,) = {factor for part, factor in factors.items() if part != LINK}
    assert silent == pytest.approx((1 - SHOWN) / (1 - 1 / (PARTS + 1)))
    assert len(factors) == PARTS


def test_a_count_far_above_the_others_raises_the_odds_and_a_usual_count_does_not():
    counts = [counted(str(port), value=10) for port in range(1, 8)]
    factors = told(*counts, counted("8", value=100_000))
    nodes = [Part("node", f"node{number:05}") for number in range(9, 17)]
    rarity = SHOWN * PARTS / 8

    def ratio(value):  # of a faulty cable the density grows with the logarithm, up to e^14
        healthy = NormalDist(math.log(10), 1.5).pdf(math.log(value))
        return 2 * math.log(value) / 14**2 / healthy

    assert factors[nodes[0]] == pytest.approx(rarity * ratio(10))
    assert factors[nodes[7]] == MOST["errors"]
    assert told(*counts, counted("8", value=200))[nodes[7]] == pytest.approx(rarity * ratio(200))


def test_a_single_error_is_never_proof_that_a_cable_is_well():
    counts = [counted(str(port), value=10) for port in range(1, 8)]
    factors = told(*counts, counted("11", value=1))
    assert 0 < factors[LINK] < factors[Part("node", "node00009")]


def test_a_usual_count_on_one_link_does_not_clear_its_silent_sisters():
    fabric = FatTree(nodes=64, nodes_per_leaf=8, spines=4).fabric()
    silent = Part("link", "leaf-0-1", "spine-0-2")
    network = SimulatedNetwork(fabric=fabric, faults=(Fault(kind="", part=silent, loss=0.5),))
    usual = [counted("1", value=20, switch=f"leaf-0-{number}") for number in (2, 3)]
    read = Counters(counts=(*usual, counted("9", value=20)), is_whole=True)
    model = FaultPrior(noise=0.01, hints=hints(fabric, read))
    (cause,) = locate(fabric, observe(fabric, fully_scanned(network, fabric)), model).causes
    assert cause.parts[0] == Part("link", "leaf-0-1", "spine-0-0")
    assert silent in cause.parts


def test_many_counters_say_no_more_than_one():
    one = told(counted("11"))[LINK]
    assert told(counted("11"), counted("11", "port_rcv_errors"))[LINK] == one / 2


def test_unread_counters_change_no_odds():
    assert told(counted("11"), is_whole=False).keys() == {LINK}
    factors = told(counted("11"), unread=(("leaf-0-3", "ALL"), ("leaf-0-0", "2")))
    unread = {Part("node", f"node{number:05}") for number in (2, *range(25, 33))}
    unread |= {Part("link", "leaf-0-3", f"spine-0-{number}") for number in range(4)}
    assert unread.isdisjoint(factors)
    assert len(factors) == PARTS - len(unread)


@pytest.mark.parametrize(
    ("counter", "symptom"),
    [
        ("symbol_error", "errors"),
        ("rx_crc_errors_phy", "errors"),
        ("fec_uncorrectable_errors", "errors"),
        ("SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES", "errors"),
        ("dot3HCStatsFCSErrors", "errors"),
        ("fec_corrected_blocks", "corrected"),
        ("rx_corrected_bits_phy", "corrected"),
        ("rx_prio3_pause", "paused"),
        ("cpfcIfPriorityIndications", "paused"),
        ("ifOutDiscards", "paused"),
        ("SAI_QUEUE_STAT_DROPPED_PACKETS", "paused"),
        ("np_ecn_marked_roce_packets", "paused"),
    ],
)
def test_counters_of_both_worlds_are_errors_corrections_or_congestion(counter, symptom):
    assert symptom_of(counter) == symptom


def test_congestion_says_less_than_errors_and_never_clears():
    others = [counted(str(port), "rx_prio3_pause", port) for port in range(1, 11)]
    paused = told(counted("11", "rx_prio3_pause", 10**9), *others, is_whole=False)
    erring = told(counted("11"), *(counted(str(port), value=port) for port in range(1, 11)))
    assert 1 < paused[LINK] < erring[LINK]
    assert min(paused.values()) == 1


def test_a_port_that_counts_errors_is_named_among_uplinks_that_no_flow_can_tell_apart():
    network = SimulatedNetwork(
        fabric=TREE, faults=(Fault(kind="", part=LINK, loss=0.5),), noise=0.01
    )
    measured = fully_scanned(network, TREE)
    (alike,) = located(TREE, measured).causes
    assert len(alike.parts) == 4
    assert alike.chances == (0.25,) * 4
    model = FaultPrior(noise=0.01, hints=told(counted("11")))
    (cause,) = locate(TREE, observe(TREE, measured), model).causes
    assert cause.parts == (LINK,)


@pytest.mark.parametrize("place", range(0, 16, 5))
def test_a_slow_link_that_pauses_and_errs_not_is_never_called_defective(place):
    link = TREE.links[place]
    network = SimulatedNetwork(
        fabric=TREE, faults=(Fault(kind="", part=link_part(link), loss=0.5),), noise=0.01
    )
    rows = tuple(observe(TREE, fully_scanned(network, TREE)))
    traffic = Traffic(observations=rows, unmeasured=frozenset())
    paused = counted(link.cables[0].port_a, "rx_prio3_pause", 10**6, switch=link.a)
    erring = counted(link.cables[0].port_b, "symbol_error", 10**4, switch=link.b)
    still = [
        counted(cable.port_a, counter, 0, switch=other.a)
        for other in TREE.links
        for cable in other.cables
        for counter in ("rx_prio3_pause", "symbol_error")
    ]
    verdicts = [
        part_verdicts(TREE, traffic, Counters(counts=(*still, *counts), over_s=60.0))[0]
        for counts in ((paused,), (paused, erring))
    ]
    assert [verdict.code for verdict in verdicts] == ["CONGESTED", "NETWORK.LINK"]
    assert [verdict.judgement.value for verdict in verdicts] == ["unknown", "defective"]


def test_a_slow_link_is_defective_only_if_nodes_that_took_no_part_cannot_have_loaded_it():
    network = SimulatedNetwork(
        fabric=TREE, faults=(Fault(kind="", part=LINK, loss=0.5),), noise=0.01
    )
    rows = tuple(observe(TREE, fully_scanned(network, TREE)))
    traffic = Traffic(observations=rows, unmeasured=frozenset())
    below = {nic.node for nic in TREE.nics_on[LINK.name]}
    other = next(node for node in TREE.nodes if node not in below)
    one = min(below)
    erring = Counters(counts=(counted("11"),), is_whole=True)
    risen = [
        counted(cable.port_a, counter, 0, switch=link.a)
        for link in TREE.links
        for cable in link.cables
        for counter in ("rx_prio3_pause", "symbol_error")
    ]
    still = Counters(counts=tuple(risen), over_s=60.0)

    def code(absent, counters=Counters(counts=()), fabric=TREE):  # noqa: B008
        idle = set(TREE.nodes) - absent
        return part_verdicts(fabric, traffic, counters, idle)[0].code

    second = (
        replace(nic, id=f"{nic.id} second", rail="second", port=f"{nic.port}, second")
        for nic in TREE.nics
        if nic.node != one
    )
    storage = replace(TREE, nics=(*TREE.nics, *second))  # `one` has fewer NICs than all others

    assert code(set()) == code({other}) == "NETWORK.LINK"
    assert code({one}) == "LOAD-NOT-EXCLUDED"
    assert code({one}, erring) == code({one}, still) == "NETWORK.LINK"
    assert code({one}, fabric=storage) == "NETWORK.LINK"  # which has no job to send for
    assert code({one, other}, fabric=storage) == "LOAD-NOT-EXCLUDED"


def test_a_slow_spine_is_defective_only_if_all_nodes_that_send_over_it_took_part():
    spine, fabric = Part("switch", LINK.other), statically_routed(TREE)
    network = SimulatedNetwork(fabric=fabric, faults=(Fault(kind="", part=spine, loss=0.5),))
    rows = tuple(observe(fabric, fully_scanned(network, fabric)))
    traffic = Traffic(observations=rows, unmeasured=frozenset())
    still = [
        counted(port, "symbol_error", 0, switch=switch)
        for link in TREE.links
        for cable in link.cables
        for switch, port in ((link.a, cable.port_a), (link.b, cable.port_b))
    ]

    def code(idle, counters=Counters(counts=())):  # noqa: B008
        (part,) = part_verdicts(fabric, traffic, counters, idle)
        assert part.parts == (spine,)
        return part.code

    assert code(TREE.nodes) == "NETWORK.SWITCH"
    assert code(TREE.nodes[1:]) == "LOAD-NOT-EXCLUDED"
    assert code(TREE.nodes[1:], Counters(counts=tuple(still), over_s=60.0)) == "NETWORK.SWITCH"


def test_counters_name_no_part_if_no_flow_is_bad():
    rows = [
        Observation(flow, 0.0)
        for flow, _ in fully_scanned(SimulatedNetwork(fabric=TREE, noise=0), TREE)
    ]
    model = FaultPrior(hints=told(counted("11", value=10**6)))
    assert locate(TREE, rows, model).causes == ()
    assert confirmation(TREE, rows, model) == ()


def test_simulated_ports_count_errors_at_the_stated_rates():
    fault = Fault(kind="", part=LINK)
    networks = [SimulatedNetwork(fabric=TREE, faults=(fault,), seed=seed) for seed in range(200)]
    readings = [count_errors(network).counts for network in networks]
    bad = [any(c.name == "leaf-0-1" and c.port == "11" for c in counts) for counts in readings]
    assert np.mean(bad) == pytest.approx(0.9, abs=0.06)
    good = np.mean([len(counts) for counts in readings]) - np.mean(bad)
    assert good / (PARTS - 1) == pytest.approx(0.05, abs=0.01)


def test_a_link_that_went_down_is_likelier_and_a_switch_or_host_if_all_of_its_links_did():
    rails = FatTree(nodes=16, nodes_per_leaf=4, spines=2, rails=4).fabric()
    link, leaf = rails.links[0], rails.links[0].a

    def factors(*ports):
        counts = [counted(port, "link_downed", 1, switch) for switch, port in ports]
        return counter_hints(rails, Counters(counts=tuple(counts), is_whole=True))

    uplinks = [(up.a, up.cables[0].port_a) for up in rails.links if up.a == leaf]
    alone, together = factors(uplinks[0]), factors(*uplinks)
    switch = Part("switch", leaf)
    assert alone[link_part(link)] == max(alone.values())
    assert switch not in alone
    assert together[switch] == max(together.values()) > 1
    assert together[link_part(link)] == 1
    nics = [nic for nic in rails.nics if nic.node == rails.nodes[0]]
    of_host = factors(*((nic.switch, nic.port) for nic in nics))
    assert of_host[Part("node", rails.nodes[0])] == max(of_host.values()) > 1
    assert max(factor for part, factor in of_host.items() if part.kind == "nic") <= 1


def test_a_part_that_came_and_went_before_is_likelier_by_its_factor():
    """Of four uplinks that no flow can tell apart, one is suspected."""
    network = SimulatedNetwork(
        fabric=TREE, faults=(Fault(kind="", part=LINK, loss=0.5),), noise=0.01
    )
    seen = observe(TREE, fully_scanned(network, TREE))
    model = add_hints(FaultPrior(noise=0.01), TREE, Counters(), [LINK])
    (cause,) = locate(TREE, seen, model).causes
    chances = dict(zip(cause.parts, cause.chances, strict=True))
    beside = [chance for part, chance in chances.items() if part != LINK]
    assert chances[LINK] == pytest.approx(SUSPECTED * beside[0], rel=0.01)
