"""The node of each rank, by a table or by the order of nodes, and the stage of each rank, by the
names of its groups."""

from __future__ import annotations

import pytest

from anubis.core.errors import EvidenceError
from anubis.readers.jobs.flight_recorder import dump_of, evidence_of
from anubis.readers.jobs.ranks import NamedGroup, number_ranks, parse_ranks, pipeline_stages


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


def groups(name: str, *members: tuple[int, ...]) -> list[NamedGroup]:
    return [NamedGroup(rank=rank, name=name, members=own) for own in members for rank in own]


@pytest.mark.parametrize("name", ["mesh_pp", "PIPELINE_MODEL_PARALLEL_GROUP", "pipe 12", "pp"])
def test_a_rank_is_at_the_stage_of_its_place_in_its_pipeline(name: str):
    pipelines = groups(name, (0, 2, 4), (1, 3, 5))
    others = groups("mesh_dp", (0, 1), (2, 3), (4, 5))
    assert pipeline_stages([*others, *pipelines]) == {0: 0, 2: 1, 4: 2, 1: 0, 3: 1, 5: 2}


def test_if_one_rank_has_no_stage_or_two_no_rank_has_one():
    pipelines = groups("mesh_pp", (0, 1), (2, 3))
    assert not pipeline_stages([*pipelines, *groups("mesh_dp", (4, 5))])
    assert not pipeline_stages([*pipelines, *groups("mesh_pp", (1, 0))])
    assert not pipeline_stages(groups("shipping", (0, 1)))
    assert not pipeline_stages([])


def test_the_dumps_of_a_job_say_its_stages():
    def dump(ranks: str) -> dict:
        config = {"1": {"name": "1", "desc": "mesh_pp", "ranks": ranks}}
        return {"version": "2.10", "pg_config": config, "entries": []}

    dumps = {rank: dump_of(dump("[0, 1]" if rank < 2 else "[2, 3]"), "made") for rank in range(4)}
    assert evidence_of(dumps).ranks.stages == {0: 0, 1: 1, 2: 0, 3: 1}
