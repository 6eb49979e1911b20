"""The same facts give the same first line in terminal, JSON and page, and the exit code it means.

The code is read from the words: 1 where a node or a part is defective, 2 where anything is unknown
or nothing is healthy, else 0.
"""

from __future__ import annotations

import html
import io
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from anubis.cli.answer import EXIT_CODES
from anubis.core.fabric import Part
from anubis.core.network.crossing import link_part, nic_part
from anubis.lab.simulation.simulated_network import Fault
from anubis.report import campaign_page as page
from anubis.report import campaign_screen, jsonl
from tests.core.test_scan import RAILS, TWO_TIERS, scanned


def parts_of(fabric):
    nics = [nic_part(fabric, node, rail) for node in fabric.nodes for rail in fabric.rails]
    nodes = [Part("node", node) for node in fabric.nodes]
    return [
        *nodes,
        *nics,
        *map(link_part, fabric.links),
        *(Part("switch", s.id) for s in fabric.switches),
    ]


@st.composite
def scans(draw):
    """Any faults, lost and broken nodes, and adapters that the topology does not know."""
    fabric = draw(st.sampled_from([TWO_TIERS, RAILS]))
    losses = st.sampled_from([0.04, 0.3, 1.0])
    faults = draw(
        st.lists(
            st.builds(Fault, kind=st.just(""), part=st.sampled_from(parts_of(fabric)), loss=losses),
            max_size=3,
        )
    )
    sick = st.sets(st.sampled_from(fabric.nodes), max_size=2)
    trouble = {"broken": draw(sick), "lost": dict.fromkeys(draw(sick), 0.5)}
    if draw(st.booleans()):
        trouble["measured_as"] = {fabric.nics[0].device: "cuda:7"}
    return scanned(fabric, faults, **trouble)


def code_of(headline):
    number = {
        word: int(count)
        for count, word in re.findall(r"(\d+) (healthy|defective|unknown)", headline)
    }
    if number["defective"] or headline.startswith("defective:"):
        return 1
    return 2 if number["unknown"] or "unknown:" in headline or not number["healthy"] else 0


@pytest.mark.long
@settings(max_examples=4)
@given(scans())
def test_the_same_facts_give_the_same_first_line_everywhere_and_its_exit_code(view):
    screen = io.StringIO()
    campaign_screen.render(view, Console(file=screen, width=400))
    *_, summary = map(json.loads, jsonl.lines(view))
    title = re.search(r"<title>(.*) · s · Anubis</title>", page.render(view))
    assert screen.getvalue().splitlines()[0] == summary["headline"] == html.unescape(title[1])
    assert EXIT_CODES[summary["judgement"]] == code_of(summary["headline"])
    assert EXIT_CODES[view.assessment.judgement] == code_of(summary["headline"])
