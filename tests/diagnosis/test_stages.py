"""The stage of each rank by the names of its groups."""

from __future__ import annotations

import pytest

from anubis.readers.jobs.flight_recorder import dump_of, evidence_of
from anubis.readers.jobs.ranks import NamedGroup, pipeline_stages


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
