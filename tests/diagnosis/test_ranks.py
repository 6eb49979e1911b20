"""The node of each rank, by a table or by the order of nodes."""

from __future__ import annotations

import pytest

from anubis.core.errors import EvidenceError
from anubis.readers.jobs.ranks import number_ranks, parse_ranks


def test_a_table_says_node_stage_and_address():
    ranks = parse_ranks("rank,node,stage,address\n0,n1,0,10.0.0.1\n1,n2,1,10.0.0.2\n", "ranks.csv")
    assert ranks.nodes == {0: "n1", 1: "n2"}
    assert ranks.stages == {0: 0, 1: 1}
    names = ("10.0.0.2", "10.0.0.2:40123", "n2", "[10.0.0.2]:1", "10.0.0.9", "elsewhere")
    assert [ranks.node_named(name) for name in names] == ["n2", "n2", "n2", "n2", "", ""]


def test_without_a_table_ranks_follow_each_other_on_the_nodes():
    assert number_ranks(["a", "b"], 2).nodes == {0: "a", 1: "a", 2: "b", 3: "b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("rank,host\n0,n1\n", 'has no column "node"'),
        ("rank,node\n", "no ranks"),
        ("rank,node\nx,n1\n", 'line 2: rank is "x"'),
        ("rank,node\n-1,n1\n", 'rank is "-1"'),
        ("rank,node\n0,\n", 'line 2: node is "", expected a name'),
        ("rank,node\n0,n1\n0,n2\n", "rank 0 is on n1 and on n2"),
        ("rank,node,stage\n0,n1,first\n", 'stage is "first"'),
        ("rank,node\n99999999999999999999,n1\n", "expected a whole number"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_in_a_sentence(text: str, message: str):
    with pytest.raises(EvidenceError, match=message):
        parse_ranks(text, "ranks.csv")
