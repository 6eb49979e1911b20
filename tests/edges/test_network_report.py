"""The pictures of a network show measured flows and blamed parts, and a browser shows them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate, combinations, pairwise, permutations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.fabric import Cable, Fabric, Link, Nic, Part, Remark, Switch, rail_nics_on
from anubis.core.network.crossing import link_part
from anubis.core.network.localization import locate, sentence
from anubis.core.records import Judgement, PartVerdict
from anubis.lab.simulation.simulated_network import Fault, SimulatedNetwork
from anubis.readers.topology.fabric_sources import load
from anubis.report import fabric_picture, heat_map
from anubis.report.network_page import network_page
from anubis.report.svg import LETTER, apart
from anubis.report.view import Blamed, NetworkView, blamed_by
from tests.core.made_fabrics import FatTree
from tests.edges.test_report import Markup
from tests.edges.test_topology import YAML
from tests.patience import LIMIT_S

SMALL = FatTree(nodes=6, nodes_per_leaf=2, spines=1).fabric()
PICTURES = ("heat", "fabric")
HUGE = FatTree(nodes=10_000).fabric()


def scan(fabric: Fabric, *faults: Fault) -> NetworkView:
    """Measurements of a full scan of this fabric, and the parts that the localisation blames."""
    pairs = [
        rail_nics_on(a, b, rail) for rail in fabric.rails for a, b in combinations(fabric.nodes, 2)
    ]
    network = SimulatedNetwork(fabric=fabric, faults=faults, seed=3)
    seen = network.observations(network.measure(pairs))
    return NetworkView(
        fabric=fabric,
        shortfall={(o.flow.source, o.flow.target): o.shortfall for o in seen},
        blamed=tuple(
            Blamed(
                parts=cause.parts,
                sentence=sentence(fabric, cause),
                surely=len(cause.parts) == 1,
            )
            for cause in locate(fabric, seen).causes
        ),
    )


def slow(node: str, loss: float = 0.37) -> Fault:
    return Fault(kind="slow node", part=Part("node", node), loss=loss)


def blaming(fabric: Fabric, *parts: Part, surely: bool = True) -> NetworkView:
    """Every pair is normal, and yet there is a sentence."""
    shortfall = {
        rail_nics_on(a, b, r): 0.0 for r in fabric.rails for a, b in permutations(fabric.nodes, 2)
    }
    blamed = (Blamed(parts=parts, sentence="it is slow", surely=surely),)
    return NetworkView(fabric=fabric, shortfall=shortfall, blamed=blamed)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def of_kind(svg: ElementTree.Element, *kinds: str) -> list[ElementTree.Element]:
    return [each for each in svg.iter() if {*kinds} <= set(each.get("class", "").split())]


def said(element: ElementTree.Element) -> str:
    return element.findtext("title") or ""


def matrix_of(view: NetworkView) -> tuple[heat_map.Matrix, ElementTree.Element]:
    (matrix,) = heat_map.matrices(view)
    return matrix, drawn(heat_map.drawing(view, matrix))


def cells(svg: ElementTree.Element) -> Iterator[tuple[int, int, int]]:
    """Row, column and colour of every cell that is drawn as measured."""
    for each in of_kind(svg, "cells")[0]:
        level = re.fullmatch(r"s(\d)", each.get("class", ""))
        if level and each.tag == "rect":
            yield int(each.get("y", "")), int(each.get("x", "")), int(level[1])
        elif level:
            for x, y, run in re.findall(r"M(\d+) (\d+)h(\d+)v1", each.get("d", "")):
                yield from ((int(y), int(x) + i, int(level[1])) for i in range(int(run)))


def level(short: float) -> int:
    """The colours as the legend words them: up to 5, 10, 20, 40, 70 % and less than all."""
    return sum(short > limit for limit in (0.05, 0.10, 0.20, 0.40, 0.70, 0.999))


# --- the heat map ------------------------------------------------------------------------------


def test_each_measured_flow_is_a_cell_and_an_unmeasured_one_is_not():
    view = scan(SMALL, slow("node00004"))
    absent = rail_nics_on("node00002", "node00005", "0")
    kept = {flow: short for flow, short in view.shortfall.items() if flow != absent}
    matrix, svg = matrix_of(replace(view, shortfall=kept))
    number = {f"node0000{n}": n - 1 for n in range(1, 7)}
    assert sorted(cells(svg)) == sorted(
        (number[a.node], number[b.node], level(short)) for (a, b), short in kept.items()
    )
    assert (matrix.measured, matrix.pairs, matrix.short) == (29, 30, 10)
    titles = {said(each) for each in svg.iter("rect")}
    assert "node00004 → node00001: 37% below normal" in titles
    assert "node00001 → node00002: normal" in titles
    assert not any(title.startswith("node00002 → node00005") for title in titles)


@pytest.mark.parametrize(
    ("short", "colour"),
    [(-0.2, 0), (0.0, 0), (0.05, 0), (0.051, 1), (0.2, 2), (0.4, 3), (0.7, 4), (0.99, 5), (1, 6)],
)
def test_a_flow_has_the_colour_of_its_shortfall(short, colour):
    view = NetworkView(fabric=SMALL, shortfall={rail_nics_on("node00001", "node00003", "0"): short})
    assert list(cells(matrix_of(view)[1])) == [(0, 2, colour)]


def test_a_number_that_is_none_counts_as_not_measured():
    view = NetworkView(
        fabric=SMALL, shortfall={rail_nics_on("node00001", "node00003", "0"): float("nan")}
    )
    matrix, svg = matrix_of(view)
    assert (matrix.measured, list(cells(svg))) == (0, [])


def cabled(**leaves: list[str]) -> Fabric:
    """Leaves with these nodes, in this order, below one spine."""
    return Fabric(
        switches=tuple(Switch(id=name, name=name) for name in (*leaves, "spine")),
        links=tuple(Link(a=leaf, b="spine", cables=(Cable(),)) for leaf in leaves),
        nics=tuple(
            Nic(id=node, node=node, device="mlx5_0", rail="0", switch=leaf)
            for leaf, nodes in leaves.items()
            for node in nodes
        ),
    )


def test_rows_are_ordered_by_leaf_and_number_with_strangers_last():
    fabric = cabled(leaf10=["n2", "n20", "n3"], leaf9=["n10", "n4", "n1"])
    flows = dict.fromkeys(permutations(fabric.nodes, 2), 0.0) | {("n1", "n99"): 0.5}
    view = NetworkView(
        fabric=fabric, shortfall={rail_nics_on(a, b, "0"): x for (a, b), x in flows.items()}
    )
    _, svg = matrix_of(view)
    names = [each.text for each in of_kind(svg, "row")]
    assert names == ["n1", "n4", "n10", "n2", "n3", "n20", "n99"]
    assert [each.text for each in of_kind(svg, "column")] == names
    assert [each.text for each in of_kind(svg, "leaf") if each.tag == "text"] == [
        "leaf9",
        "leaf10",
        "not in the fabric",
    ]


@pytest.mark.parametrize("fabric", [FatTree(nodes=700, nodes_per_leaf=25).fabric(), HUGE])
def test_in_a_large_fleet_neighbours_share_a_row_and_the_worst_is_shown(fabric):
    rng = np.random.default_rng(len(fabric.nodes))
    pairs = rng.choice(fabric.nodes, size=(20_000, 2)).tolist()
    flows = {rail_nics_on(a, b, "0"): float(rng.uniform(-0.1, 1.0)) for a, b in pairs if a != b}
    blamed = (Blamed(parts=(Part("node", "node00042"),), sentence="it is slow"),)
    matrix, svg = matrix_of(NetworkView(fabric=fabric, shortfall=flows, blamed=blamed))
    assert sorted(node for row in matrix.rows for node in row.nodes) == sorted(fabric.nodes)
    assert ("node00042",) in {row.nodes for row in matrix.rows}
    assert len(matrix.rows) <= heat_map.ROWS + 2
    row_of = {node: at for at, row in enumerate(matrix.rows) for node in row.nodes}
    worst: dict[tuple[int, int], float] = {}
    for (a, b), short in flows.items():
        cell = row_of[a.node], row_of[b.node]
        worst[cell] = max(short, worst.get(cell, -1))
    assert {(row, column): colour for row, column, colour in cells(svg)} == {
        cell: level(short) for cell, short in worst.items()
    }


def test_a_row_is_never_shared_by_nodes_of_two_pods():
    fabric = FatTree(nodes=10_000, leaves_per_pod=15, spines=4, cores=4).fabric()
    flow = rail_nics_on(fabric.nodes[0], fabric.nodes[-1], "0")
    (matrix,) = heat_map.matrices(NetworkView(fabric=fabric, shortfall={flow: 0.0}))
    of_pod = {nic.node: int(nic.switch.split("-")[2]) // 15 for nic in fabric.nics}
    assert all(len({of_pod[node] for node in row.nodes}) == 1 for row in matrix.rows)
    pods = [of_pod[row.nodes[0]] for row in matrix.rows]
    assert pods == sorted(pods)


def test_only_a_slow_node_is_marked_at_its_row_and_column():
    _, svg = matrix_of(scan(SMALL, slow("node00004")))
    marked = [each.text for each in of_kind(svg, "defective") if each.tag == "text"]
    assert marked == ["✗1 node00004", "✗1 node00004"]
    assert len(of_kind(svg, "bar")) == 2
    assert of_kind(svg, "unknown") == []


def test_a_blamed_leaf_is_framed_around_its_nodes():
    fabric = FatTree(nodes=64, nodes_per_leaf=8, spines=2).fabric()
    for part in (
        Part("switch", "leaf-0-3"),
        Part("uplinks", "leaf-0-3"),
        Part("link", "leaf-0-3", "spine-0-1"),
    ):
        matrix, svg = matrix_of(blaming(fabric, part))
        across = next(each for each in of_kind(svg, "mark") if float(each.get("width", "")) > 100)
        frame = next(each for each in of_kind(svg, "border", "pod") if each.tag == "rect")
        cell = float(frame.get("height", "")) / len(matrix.rows)
        top = (float(across.get("y", "")) - float(frame.get("y", ""))) / cell
        assert (round(top), round(float(across.get("height", "")) / cell)) == (24, 8)
        assert "✗1 leaf-0-3" in {each.text for each in of_kind(svg, "leaf", "defective")}


def test_the_sign_of_a_leaf_is_above_the_names_of_its_columns():
    _, svg = matrix_of(blaming(SMALL, Part("switch", SMALL.leaves[0])))
    (sign,) = [text for text in svg.iter("text") if text.text == "✗1"]
    for name in of_kind(svg, "column"):
        start = re.match(r"translate\(\S+ (\S+)\)", name.get("transform", ""))
        assert start
        top = float(start[1]) - LETTER * len(name.text or "")  # it is written upwards
        assert float(sign.get("y", "")) + 6 <= top  # half a letter is that high


def test_candidates_that_cannot_be_told_apart_are_outlined_as_unknown():
    view = blaming(SMALL, Part("node", "node00001"), Part("node", "node00002"), surely=False)
    for svg in (matrix_of(view)[1], drawn(fabric_picture.drawing(view))):
        assert of_kind(svg, "defective") == []
        words = {text.text for each in of_kind(svg, "unknown") for text in each.iter("text")}
        assert {"?1 node00001", "?1 node00002"} <= words


def test_a_slow_nic_is_marked_on_its_own_rail_only():
    fabric = FatTree(nodes=8, nodes_per_leaf=4, rails=3, spines=2).fabric()
    view = blaming(fabric, Part("nic", "node00003", "1"))
    marked = [
        matrix.rail
        for matrix in heat_map.matrices(view)
        if of_kind(drawn(heat_map.drawing(view, matrix)), "defective")
    ]
    assert marked == ["1"]


# --- the fabric --------------------------------------------------------------------------------


def boxes(svg: ElementTree.Element) -> dict[str, ElementTree.Element]:
    return {each.findtext("text") or "": each for each in of_kind(svg, "switch")}


def test_every_switch_is_a_box_every_nic_a_dot_and_every_link_a_wire():
    fabric = FatTree(nodes=128, nodes_per_leaf=16, spines=4, rails=4).fabric()
    svg = drawn(fabric_picture.drawing(NetworkView(fabric=fabric, shortfall={})))
    assert set(boxes(svg)) == {switch.name for switch in fabric.switches}
    assert Counter(map(said, of_kind(svg, "dot"))) == Counter(nic.node for nic in fabric.nics)
    assert len(of_kind(svg, "wire")) == len(fabric.links)
    assert [each.text for each in of_kind(svg, "caption")] == [f"rail {n}" for n in range(4)]


def test_a_wire_is_the_wider_the_more_cables_it_has():
    links = [Link(a=f"l{n}", b="s", cables=(Cable(),) * n) for n in (1, 2, 4, 9)]
    switches = tuple(Switch(id=name, name=name) for name in ("l1", "l2", "l4", "l9", "s"))
    nics = tuple(
        Nic(id=f"n{n}", node=f"n{n}", device="", rail="0", switch=f"l{n}") for n in (1, 2, 4, 9)
    )
    fabric = Fabric(switches=switches, links=tuple(links), nics=nics)
    svg = drawn(fabric_picture.drawing(NetworkView(fabric=fabric, shortfall={})))
    widths = {
        said(each).split("\n")[0]: float(each.get("stroke-width", ""))
        for each in of_kind(svg, "wire")
    }
    ordered = [widths[f"l{n} - s: {n} cable{'s' * (n > 1)}"] for n in (1, 2, 4, 9)]
    assert ordered == sorted(set(ordered))


def test_blamed_parts_are_marked_with_their_sentence():
    link = SMALL.links[1]
    node, switch = Part("node", "node00001"), Part("switch", "leaf-0-2")
    svg = drawn(fabric_picture.drawing(blaming(SMALL, link_part(link), node, switch)))
    assert "it is slow" in said(boxes(svg)["✗1 leaf-0-2"])
    (chip,) = of_kind(svg, "chip", "defective")
    assert (chip.findtext("text"), said(chip)) == ("✗1 node00001", "it is slow")
    (wire,) = of_kind(svg, "wire", "defective")
    assert said(wire) == "leaf-0-1 - spine-0-0: 1 cable\nit is slow"
    assert [each.text for each in of_kind(svg, "sign")] == ["✗1"]


def test_a_node_has_the_colour_of_its_verdict_and_none_without_measurements():
    verdicts = {"node00001": Judgement.HEALTHY, "node00002": Judgement.UNKNOWN}
    verdicts["node00003"] = Judgement.DEFECTIVE
    flows = {rail_nics_on("node00001", "node00002", "0"): 0.0}
    view = NetworkView(fabric=SMALL, shortfall=flows, verdicts=verdicts)
    svg = drawn(fabric_picture.drawing(view))
    chips = {said(chip): chip for chip in of_kind(svg, "chip")}
    kinds = {node: chip.get("class", "").split()[1:] for node, chip in chips.items()}
    assert kinds["node00001: healthy"] == ["healthy"]
    assert kinds["node00002: unknown"] == ["unknown"]
    assert kinds["node00003: defective"] == ["defective"]
    assert kinds["node00004"] == []
    assert chips["node00002: unknown"].findtext("text") == "? node00002"


def test_dots_have_the_colour_of_their_node_and_green_only_with_measured_flows():
    fabric = FatTree(nodes=64, nodes_per_leaf=8, spines=4).fabric()
    verdicts = dict.fromkeys(fabric.nodes[1:], Judgement.HEALTHY)
    verdicts[fabric.nodes[0]] = Judgement.UNKNOWN
    first, second, third = fabric.nodes[1:4]
    view = NetworkView(
        fabric=fabric,
        shortfall={},
        measured=[rail_nics_on(first, second, fabric.rails[0])],
        verdicts=verdicts,
    )
    svg = drawn(fabric_picture.drawing(view))
    green = [f"{first}: healthy", f"{second}: healthy"]
    assert [said(dot) for dot in of_kind(svg, "dot", "healthy")] == green
    assert [said(dot) for dot in of_kind(svg, "dot", "unknown")] == [f"{fabric.nodes[0]}: unknown"]
    dead = dict.fromkeys(view.measured, 0.9998)  # below a dead leaf none of them is green
    assert not of_kind(
        drawn(fabric_picture.drawing(replace(view, shortfall=dead))), "dot", "healthy"
    )
    assert f"{third}: healthy, but nothing arrived over this NIC" in map(said, svg.iter())
    key = Markup(network_page(view, title="scan")).text
    assert "nothing arrived over this NIC" in key


def test_uplinks_blamed_together_are_all_wires_upwards_of_their_leaf():
    fabric = FatTree(nodes=64, nodes_per_leaf=8, spines=4).fabric()
    svg = drawn(fabric_picture.drawing(blaming(fabric, Part("uplinks", "leaf-0-5"))))
    assert sorted(said(each).split(":")[0] for each in of_kind(svg, "wire", "defective")) == [
        f"leaf-0-5 - spine-0-{n}" for n in range(4)
    ]


def test_a_leaf_with_fewer_uplinks_than_its_like_is_marked_as_odd():
    whole = FatTree(nodes=16, nodes_per_leaf=4, spines=4).fabric()
    cut = [link for link in whole.links if link.a != "leaf-0-2" or link.b == "spine-0-0"]
    fabric = replace(whole, links=tuple(cut))
    svg = drawn(fabric_picture.drawing(NetworkView(fabric=fabric, shortfall={})))
    (odd,) = of_kind(svg, "switch", "odd")
    assert odd.findtext("text") == "! leaf-0-2"
    assert "has 1 of the 4 uplinks" in said(odd)


def test_ten_thousand_nodes_are_boxes_by_pod_and_the_blamed_keep_their_own():
    parts = Part("node", "node00042"), Part("switch", "leaf-0-100")
    blamed = tuple(Blamed(parts=(part,), sentence="it is slow") for part in parts)
    view = NetworkView(fabric=HUGE, shortfall={}, blamed=blamed)
    svg = drawn(fabric_picture.drawing(view))
    names = boxes(svg)
    assert {"leaf-0-1", "✗2 leaf-0-100", "leaf-0-[16-31]", "core-[0-15]"} <= set(names)
    switches = [each.findall("text")[1:] for each in names.values()]
    assert sum(int((note[0].text or "").split()[0]) if note else 1 for note in switches) == len(
        HUGE.switches
    )
    counts = [each.findtext("text") or "" for each in of_kind(svg, "chip", "count")]
    assert sum(int(count.removesuffix(" nodes")) for count in counts) == 9_999
    assert of_kind(svg, "dot") == []


@pytest.mark.parametrize("name", ["small", "rails", "huge", "real", "bare", "empty"])
def test_boxes_do_not_overlap_and_stay_inside_the_picture(name, request):
    fabric = {
        "small": lambda: SMALL,
        "rails": lambda: FatTree(nodes=96, rails=4, planes=True, spines=6).fabric(),
        "huge": lambda: HUGE,
        "real": lambda: (
            load(request.getfixturevalue("real")("topology/topograph-example.out")).fabric
        ),
        "bare": lambda: replace(SMALL, nics=()),
        "empty": lambda: Fabric(switches=(), links=(), nics=()),
    }[name]()
    svg = drawn(fabric_picture.drawing(NetworkView(fabric=fabric, shortfall={})))
    left, top, width, height = map(float, svg.get("viewBox", "").split())
    frames = [
        [float(each.get(key, "")) for key in ("x", "y", "width", "height")]
        for each in svg.iter("rect")
    ]
    for x, y, w, h in frames:
        assert left <= x <= x + w <= left + width
        assert top <= y <= y + h <= top + height
    for (x, y, w, h), (a, b, _, d) in combinations(sorted(frames), 2):
        assert x + w <= a + 0.05 or y + h <= b + 0.05 or b + d <= y + 0.05


sizes = st.floats(0.5, 30)


@given(st.lists(st.tuples(st.floats(-50, 400), sizes), max_size=20))
def test_labels_that_want_one_place_are_put_side_by_side(asked):
    wanted, size = [place for place, _ in sorted(asked)], [each for _, each in sorted(asked)]
    high = max(300.0, sum(size))
    places = apart(wanted, size, high)
    ends = [(at - each / 2, at + each / 2) for at, each in zip(places, size, strict=True)]
    assert all(one[1] <= other[0] + 1e-6 for one, other in pairwise(ends))
    assert all(begin > -1e-6 and end < high + 1e-6 for begin, end in ends)


@given(st.lists(st.tuples(st.floats(0, 20), sizes), min_size=1, max_size=20))
def test_labels_with_room_stay_at_their_place(asked):
    ends = list(accumulate(gap + size for gap, size in asked))
    wanted = [end - size / 2 for end, (_, size) in zip(ends, asked, strict=True)]
    assert apart(wanted, [size for _, size in asked], ends[-1]) == pytest.approx(wanted)


# --- the page ----------------------------------------------------------------------------------


def test_the_page_names_blamed_unplaced_and_odd_parts():
    odd = Remark(kind="no-host", sentence="nobody knows whose H-1 is", line=7)
    view = replace(scan(SMALL, slow("node00004")), unplaced=("n7", "n8"))
    page = Markup(network_page(view, title="scan", findings=[odd]))
    assert (
        "node00004 or its NIC mlx5_0 at leaf-0-1[2]: 37% below normal in all its 10 flows"
        in page.text
    )
    assert "not in the fabric: n[7-8]" in page.text
    assert "line 7: nobody knows whose H-1 is" in page.text
    assert "10 of 30 flows are below normal" in page.text


def test_the_page_of_a_clean_scan_states_it_and_a_fabric_alone_claims_nothing():
    assert "no part of the network is blamed" in network_page(scan(SMALL), title="scan")
    page = network_page(NetworkView(fabric=SMALL, shortfall={}), title="it")
    assert "blamed" not in Markup(page).text
    assert 'class="heat"' not in page
    assert "Nothing was measured" in Markup(page).text
    assert "Nothing was measured" not in network_page(scan(SMALL), title="scan")


def test_rails_without_trouble_are_folded_away_and_those_not_measured_are_named():
    fabric = FatTree(nodes=8, nodes_per_leaf=4, rails=3, spines=2).fabric()
    flow = ("node00001", "node00002")
    view = NetworkView(
        fabric=fabric, shortfall={rail_nics_on(*flow, "0"): 0.0, rail_nics_on(*flow, "1"): 0.5}
    )
    text = " ".join(Markup(network_page(view, title="scan")).text.split())
    assert (
        text.index("Rail 1")
        < text.index("1 more rail with no flow below normal")
        < text.index("Rail 0")
    )
    assert "nothing was measured on rail 2" in text


def test_the_page_of_a_network_refers_to_nothing_outside_itself():
    page = network_page(scan(SMALL, slow("node00004")), title="scan")
    assert not re.search("https?:|@import|url\\(|<script|<img|href=|src=", page)
    policy = next(a["content"] for _, a in Markup(page).tags if "http-equiv" in a)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_hostile_names_stay_text():
    hostile = "</title></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"'"
    fabric = cabled(**{"l1": ["n1", hostile], hostile: ["n2"]})
    view = replace(
        blaming(fabric, Part("node", hostile), Part("switch", hostile)), unplaced=(hostile,)
    )
    view = replace(view, blamed=(replace(view.blamed[0], sentence=hostile),))
    page = Markup(network_page(view, title=hostile))
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name == "onerror"]
    assert page.text.count(hostile) > 3


@pytest.mark.parametrize(("nodes", "rails"), [(128, 4), (10_000, 2)])
@pytest.mark.long
def test_the_page_stays_below_two_megabytes_for_any_flows(nodes, rails):
    fabric = FatTree(nodes=nodes, leaves_per_pod=8, spines=8, rails=rails).fabric()
    rng = np.random.default_rng(nodes)
    pairs = rng.choice(fabric.nodes, size=(30_000, 2)).tolist()
    flows = {
        rail_nics_on(a, b, rail): float(rng.random())
        for a, b in pairs
        for rail in fabric.rails
        if a != b
    }
    page = network_page(NetworkView(fabric=fabric, shortfall=flows), title="scan")
    assert 50_000 < len(page) < 2e6


# Machado, Oliveira and Fernandes 2009: what those see who lack one kind of cone, in linear RGB
SEEN_AS = {
    "everybody": "1 0 0  0 1 0  0 0 1",
    "protanopia": ".152286 1.052583 -.204868 .114503 .786281 .099216 -.003882 -.048116 1.051998",
    "deuteranopia": ".367322 .860646 -.227968 .280085 .672501 .047413 -.011820 .042940 .968881",
    "tritanopia": "1.255528 -.076749 -.178779 -.078411 .930809 .147602 .004733 .691367 .303900",
}
TO_XYZ = [[0.4339, 0.3762, 0.1899], [0.2127, 0.7152, 0.0722], [0.0178, 0.1095, 0.8728]]  # / white


def lab(colour: str, seen_as: str) -> np.ndarray:
    """CIE L*a*b* of a colour such as #c9d9e6."""
    share = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    cones = np.array(seen_as.split(), dtype=float).reshape(3, 3)
    xyz = np.asarray(TO_XYZ) @ np.clip(cones @ linear, 0, 1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("eyes", SEEN_AS)
def test_the_scale_can_be_read_by_the_colour_blind_by_day_and_by_night(eyes):
    page = network_page(NetworkView(fabric=SMALL, shortfall={}), title="it")
    for scale in re.findall("--s0: .*", page):
        colours = [lab(colour, SEEN_AS[eyes]) for colour in re.findall("#[0-9a-f]{6}", scale)]
        assert len(colours) == len(heat_map.WORDS)
        assert all(np.linalg.norm(a - b) > 9 for a, b in combinations(colours, 2))
        steps = np.diff([colour[0] for colour in colours[1:]])
        assert (steps < -8).all() or (steps > 8).all()


# --- from a scan -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "judgement", "surely"),
    [
        (1, Judgement.DEFECTIVE, True),
        (2, Judgement.DEFECTIVE, False),  # one of them is
        (1, Judgement.UNKNOWN, False),
    ],
)
def test_only_a_single_part_that_is_defective_is_blamed_for_sure(parts, judgement, surely):
    verdict = PartVerdict(
        parts=tuple(Part("switch", f"s{n}") for n in range(parts)),
        subject="switch s0",
        judgement=judgement,
        code="NETWORK.SWITCH",
        reason="it is slow",
        confidence=0.95,
        evidence=("a → b: 30% below normal",),
    )
    blamed = blamed_by(verdict)
    assert (blamed.surely, blamed.sentence, blamed.evidence) == (
        surely,
        "it is slow",
        ("a → b: 30% below normal",),
    )


def test_the_report_of_a_scan_shows_the_slow_node_in_both_pictures(near):
    file = near.write("fabric.yaml", YAML.replace("n[3-4]", "n[3-8]"))
    fleet = near.fleet(nodes="n[1-9]", faults=["slow node"], seed=3)
    words = ("--topology", str(file), "--suite", "scan", "--full", "--json", "--html", "it.html")
    done = near.run("scan", "--cluster", fleet, *words)
    (blamed,) = [line["parts"][0]["name"] for line in done.lines if line["type"] == "part"]
    page = (near.folder / "it.html").read_text()
    heat, fabric = (page.split(f'<svg class="{kind}"')[1].split("</svg>")[0] for kind in PICTURES)
    assert f"✗1 {blamed}<" in heat
    assert f"✗1 {blamed}<" in fabric
    assert "not in the fabric: n9" in page
    assert f"{blamed} → " in page.split("<svg")[0]  # the evidence


# --- in a browser ------------------------------------------------------------------------------

MEASURE = """<script>
addEventListener("load", () => {
  const outside = [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const { left, right, top, bottom } = text.getBoundingClientRect();
      const inside = left > frame.left - 2 && right < frame.right + 2;
      if (!inside || top < frame.top - 2 || bottom > frame.bottom + 2)
        outside.push(text.firstChild.data);
    }
  }
  const page = document.documentElement;
  parent.postMessage({ outside, wide: page.scrollWidth - page.clientWidth }, "*");
});
</script>"""
BOTH = """<script>
const told = [];
addEventListener("message", ({ data }) => {
  if (told.push(data) == 2) document.title = JSON.stringify(told);
});
</script>
<iframe src="scan.html" width="400" height="2000"></iframe>
<iframe src="scan.html" width="1280" height="2000"></iframe>
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.long
def test_a_browser_shows_every_label_whole_on_a_narrow_page_and_on_a_wide_one(tmp_path: Path):
    fabric = FatTree(nodes=128, nodes_per_leaf=16, spines=4, rails=2).fabric()
    view = scan(fabric, slow("node00029"), Fault(kind="slow leaf", part=Part("switch", "leaf-0-5")))
    page = network_page(view, title="scan")
    assert page.count("✗") > 10
    file = tmp_path / "scan.html"
    policy = '<meta http-equiv="Content-Security-Policy"'
    file.write_text(page.replace(policy, "<meta") + MEASURE, encoding="utf-8")
    both = tmp_path / "both.html"
    both.write_text(BOTH, encoding="utf-8")
    run = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *("--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=5000"),
            *("--window-size=1800,2000", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--dump-dom", both.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert [line for line in run.stderr.splitlines() if "CONSOLE" in line] == []
    measured = re.search("<title>(\\[.*?\\])</title>", run.stdout)
    assert measured, run.stdout[:500]
    assert json.loads(measured[1]) == 2 * [{"outside": [], "wide": 0}]


# --- the verb ----------------------------------------------------------------------------------


NOON = datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp()


def test_scan_draw_writes_the_picture_with_its_source_and_unplaced_nodes(near):
    file = near.write("fabric.yaml", YAML.replace("n[3-4]", "n[2-3]"))
    os.utime(file, (NOON, NOON))
    words = ("scan", "--draw", "--topology", str(file), "n[1-4]", "--html", "it.html")
    done = near.run(*words)
    assert (done.code, done.err) == (2, "report: it.html\n")
    text = " ".join(Markup((near.folder / "it.html").read_text()).text.split())
    assert "3 switches in 2 tiers, 3 NICs of 3 nodes" in text
    assert f'Source: "{file}", as of 2026-11-01 12:00 UTC' in text
    assert 'class="chip healthy' not in (near.folder / "it.html").read_text()
    assert "not in the fabric: n4" in text
    assert "n2" in text.split("anomaly")[1]


def test_a_page_that_cannot_be_written_is_one_line(near):
    file = near.write("fabric.yaml", YAML)
    done = near.run("scan", "--draw", "--topology", str(file), "--html", str(file / "it.html"))
    assert done.code == 64
    assert "is not a folder that this user can write to" in done.err
    assert done.err.count("\n") == 1
