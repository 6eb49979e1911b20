"""The list of nodes on the page of the fleet: its filters, and the page around it."""

from __future__ import annotations

import re

import pytest

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.status import Validation
from anubis.core.keep.life import DefectFound, Life
from anubis.core.records import Judgement
from anubis.report.fleet import PAGE, NodeGlance, NodeQuery, list_nodes, node_row
from anubis.report.page import simulated_note
from anubis.report.service_pages import ClusterOnPage, fleet

HEALTHY, DEFECTIVE, UNKNOWN = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN


def glance(number: int, judgement: Judgement = HEALTHY, rack: str = "r1") -> NodeGlance:
    node = f"n{number}"
    last = Validation(node=node, at=1e9 - number, judgement=HEALTHY, benchmarks=("pair",))
    attributes = NodeAttributes(node=node, rack=rack)
    why = "" if judgement is HEALTHY else "it failed gemm"
    return NodeGlance(
        node=node,
        cluster="prod",
        judgement=judgement,
        why=why,
        last=last,
        attributes=attributes,
    )


FLEET = [
    glance(number, judgement, f"r{number % 3}")
    for number, judgement in enumerate([HEALTHY] * 100 + [DEFECTIVE] * 70 + [UNKNOWN] * 3)
]


def names(address: str) -> list[str]:
    """Nodes of the page of the list at this address."""
    pairs = (part.partition("=") for part in filter(None, address.split("&")))
    query = NodeQuery.read({name: value for name, _, value in pairs})
    return [row.glance.node for row in list_nodes((node_row(g, None) for g in FLEET), query).rows]


@pytest.mark.parametrize(
    ("address", "nodes"),
    [
        ("", [f"n{n}" for n in range(100, 150)]),  # the worst first, by their numbers
        ("page=2", [*(f"n{n}" for n in range(150, 170)), "n170", "n171", "n172"]),
        ("page=99", [*(f"n{n}" for n in range(150, 170)), "n170", "n171", "n172"]),
        ("show=unknown", ["n170", "n171", "n172"]),
        ("q=n[9-11]&show=all", ["n9", "n10", "n11"]),
        ("q=n9,n101&show=all&sort=node", ["n9", "n101"]),
        ("q=UNKNOWN r2&show=all", ["n170"]),
        ("q=n172&show=healthy", []),
        ("show=all&sort=tested", [f"n{n}" for n in range(172, 122, -1)]),  # longest ago first
        ("show=every&sort=colour&page=-1", [f"n{n}" for n in range(100, 150)]),
        ("q=n[9-", []),
    ],
)
def test_a_reader_sees_the_nodes_that_were_asked_for(address, nodes):
    assert names(address) == nodes


def test_a_search_counts_the_other_nodes_that_fit():
    rows = [node_row(each, None) for each in FLEET]
    found = list_nodes(rows, NodeQuery(words="n1", show="unknown"))
    assert (found.found, found.others) == (3, len([1 for g in FLEET if "n1" in g.node]) - 3)


def test_links_keep_the_query_and_go_to_the_first_page():
    query = NodeQuery(words="r1 & x", show="all", page=3)
    assert query.href(page=4) == "/?q=r1+%26+x&show=all&page=4"
    assert query.href(sort="node") == "/?q=r1+%26+x&show=all&sort=node"


def test_no_column_says_that_a_defective_node_is_well():
    row = node_row(glance(1, DEFECTIVE), None)
    assert (row.why, row.last) == ("it failed gemm", "passed only pair")
    assert node_row(glance(1), None).last == "passed pair"


def test_a_defect_that_the_keeper_knows_is_shown_with_its_figures():
    found = DefectFound(at=1.0, campaign="c", code="GEMM.TFLOPS", reason="products 20% slower")
    life = Life(node="n1", defect=found)
    assert node_row(glance(1, DEFECTIVE), life).why == f"{found.reason} (GEMM.TFLOPS)"
    assert node_row(glance(1), life).why.startswith("passed")


def cluster(nodes: list[NodeGlance]) -> ClusterOnPage:
    return ClusterOnPage(
        name="prod",
        nodes=nodes,
        lives={},
        headline="",
        is_alarming=False,
        actions=(),
    )


def test_simulated_clusters_are_named_among_real_ones():
    assert simulated_note({"prod": False}) == simulated_note({}) == ""
    assert simulated_note({"lab": True}) == "a simulated fleet: no hardware was measured"
    named = simulated_note({"lab": True, "prod": False, "toy": True})
    assert named == "simulated, no hardware was measured: lab, toy"


def test_a_large_fleet_has_few_stops_for_the_tabulator_and_a_link_past_the_first_ones():
    nodes = [glance(n, UNKNOWN if n % 7 == 0 else HEALTHY) for n in range(2000)]
    page = fleet([cluster(nodes)], 1e9)
    stops = re.findall(r"<(?:a|button|select|input|div)\b[^>]*>", page)
    stops = [stop for stop in stops if not stop.startswith("<div") or "tabindex" in stop]
    assert sum('tabindex="-1"' not in stop for stop in stops) <= PAGE + 25
    assert stops[0] == '<a class="skip" href="#main">'
    assert len(re.findall(r'data-node="n\d+"', page)) == 2000


def test_a_name_that_is_markup_stays_text():
    strange = glance(1, DEFECTIVE, rack='"><script>')
    page = fleet([cluster([strange])], 1e9, NodeQuery(words='"><script>'))
    assert "<script>" not in page
