"""Traces of jobs: two formats, lines that are no job, and how a trace is made to fill a cluster."""

from __future__ import annotations

import csv
import gzip
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.errors import TraceError
from anubis.lab.study import traces
from anubis.lab.study.traces import (
    TracedJob,
    cut,
    read,
    reasons,
    requests_of_swf,
    requests_of_table,
    rotate,
    stress,
    trace_of,
)
from anubis.text.tables import parse_table

TABLE = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 08:00:00,7200,16,115200,a
2017-10-09 07:00:00,3600,1,3600,a
2017-10-09 09:00:00,0,8,0,a
2017-10-09 09:30:00,60,0,0,a
yesterday,60,8,480,a
2017-10-09 09:30:00,nan,8,480,a
2017-10-09 09:30:00,60
"""
NO_TIME = "not a timestamp (expected 2017-10-09 07:01:55)"
# job, submit, wait, run, allocated, cpu, memory, requested, time, memory, status, ...
SWF = """; Version: 2.2
; MaxNodes: 4
1 0 10 3600 16 -1 -1 16 -1 -1 1 3 1 -1 1 -1 -1 -1
2 1800 0 7200 -1 -1 -1 4 -1 -1 1 3 1 -1 1 -1 -1 -1
3 1900 0 -1 4 -1 -1 4 -1 -1 0 3 1 -1 1 -1 -1 -1

4 2000 0 60 8 -1 -1 8 -1 -1 3 3 1 -1 1 -1 -1 -1   ; a piece
5 2100 0 60 8
"""


def requests_of(text, **limits):
    return requests_of_table(parse_table(text, "the table", TraceError, **limits))


def test_a_table_becomes_jobs_in_the_order_of_their_arrival():
    trace = trace_of(requests_of(TABLE), devices_per_node=8)
    assert trace.jobs == (
        TracedJob(arrival_h=0, nodes=1, duration_h=1),
        TracedJob(arrival_h=1, nodes=2, duration_h=2),
    )


def test_every_line_that_is_no_job_is_counted_by_its_reason_and_the_first_is_named():
    trace = trace_of(requests_of(f"{TABLE}today,1,1,1,a"), devices_per_node=8)
    assert set(reasons(trace)) == {
        "line 4: ran for no time",
        "line 5: asks for nothing",
        f"2 lines left out, the first is line 6: {NO_TIME}",
        "line 7: how long it ran is not a number",
        "line 8: 2 cells, expected 5 as in the heading",
    }


def test_the_standard_workload_format_uses_requests_if_allocations_are_missing():
    trace = trace_of(requests_of_swf(SWF.splitlines()), devices_per_node=4)
    assert trace.jobs == (
        TracedJob(arrival_h=0, nodes=4, duration_h=1),
        TracedJob(arrival_h=0.5, nodes=1, duration_h=2),
    )
    assert {reason: what.first for reason, what in trace.left_out.items()} == {
        "how long it ran is not known": 5,
        "a piece of a job that has a line of its own": 7,
        "expected 18 fields": 8,
    }


def test_a_job_of_more_than_a_century_is_none():
    text = f"timestamp,duration,num_gpus\n2017-10-09 08:00:00,{'9' * 60},8"
    trace = trace_of(requests_of(text), devices_per_node=8)
    assert list(reasons(trace)) == ["line 2: ran for more than a century"]


def test_jobs_too_short_to_load_the_nodes_are_refused_before_billions_are_made():
    job = TracedJob(arrival_h=0, nodes=1, duration_h=1 / 3600)
    with pytest.raises(TraceError, match="5,184,000 of them would be needed to load 2 nodes"):
        stress([job], nodes=2, span_h=720, load=1)


def test_a_job_on_a_part_of_a_node_takes_one_or_is_left_out():
    whole = trace_of(requests_of(TABLE), 8, whole_nodes_only=True)
    assert [job.nodes for job in whole.jobs] == [2]
    assert whole.left_out["asks for less than a node"].lines == 1


def test_the_format_of_a_trace_is_recognised_from_its_content(tmp_path):
    packed = tmp_path / "jobs.gz"
    packed.write_bytes(gzip.compress(SWF.encode()))
    plain = tmp_path / "jobs.csv"
    plain.write_text(TABLE)
    assert len(read(packed, 4).jobs) == len(read(plain, 8).jobs) == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty, expected a table with a heading"),
        (b"a,b\n1,2\n", 'has no column "timestamp", expected a heading such as timestamp,duration'),
        (b"; Version: 2.2\n", "has no job; it has no lines"),
        (b"1 2 3\n4 5 6\n", "has no job; 2 lines left out, the first is line 1: expected 18"),
        (b"\xff\xfe\x00", 'has no column "timestamp"'),
    ],
)
def test_a_file_without_a_job_is_refused_with_the_reason(tmp_path, content, sentence):
    file = tmp_path / "jobs"
    file.write_bytes(content)
    with pytest.raises(TraceError, match=sentence):
        read(file, 8)


def test_a_table_beyond_all_measure_is_a_sentence():
    header = ",".join(traces.COLUMNS)
    with pytest.raises(TraceError, match="line 1: field larger than field limit"):
        requests_of(header + "x" * 200_000)
    with pytest.raises(TraceError, match="line 4: at most 3 lines are read"):
        list(requests_of("\n".join([header] * 4), most_lines=3))


def test_a_broken_archive_is_an_error_for_a_person(tmp_path):
    file = tmp_path / "jobs.gz"
    file.write_bytes(gzip.compress(b"a" * 99, mtime=0)[:-9])
    with pytest.raises(TraceError, match="cannot read"):
        read(file, 8)


def assert_read_whole(packed, jobs):
    rows = list(csv.DictReader(gzip.decompress(packed.read_bytes()).decode().splitlines()))
    gpus = [int(row["num_gpus"]) for row in rows]
    trace = read(packed, 8)
    assert len(trace.jobs) == jobs
    assert sum(job.nodes for job in trace.jobs) == sum(-(-count // 8) for count in gpus)
    seconds = sum(float(row["duration"]) * -(-int(row["num_gpus"]) // 8) for row in rows)
    assert trace.node_hours == pytest.approx(seconds / 3600)
    whole = read(packed, 8, whole_nodes_only=True)
    assert len(whole.jobs) == sum(count >= 8 for count in gpus)


def test_a_table_in_an_archive_is_read_whole(tmp_path):
    lines = [f"2017-10-09 {hour:02}:00:00,{60 * hour},{hour},1,a" for hour in range(1, 24)]
    packed = tmp_path / "jobs.csv.gz"
    packed.write_bytes(gzip.compress("\n".join([TABLE.split()[0], *lines]).encode(), mtime=0))
    assert_read_whole(packed, 23)


@pytest.mark.twin("test_a_table_in_an_archive_is_read_whole")
@pytest.mark.long
def test_philly_is_read_whole(real):
    assert_read_whole(real("jobs/philly.csv.gz"), 82_247)  # as its description says


JOBS = st.lists(
    st.builds(
        TracedJob,
        arrival_h=st.floats(0, 1000),
        nodes=st.integers(1, 64),
        duration_h=st.floats(0.05, 100),
    ),
    min_size=1,
    max_size=20,
).map(lambda jobs: sorted(jobs, key=lambda job: job.arrival_h))


@given(JOBS, st.integers(1, 50), st.floats(0.5, 3))
def test_a_stressed_trace_asks_for_the_load_at_every_moment(jobs, nodes, load):
    """Until each arrival, those before it asked for what the nodes can do, times the load."""
    made = stress(jobs, nodes, span_h=100, load=load)
    asked_h = 0.0
    for job, model in zip(made, jobs * len(made), strict=False):
        assert (job.nodes, job.duration_h) == (model.nodes, model.duration_h)
        assert job.arrival_h * nodes * load == pytest.approx(asked_h)
        asked_h += job.nodes * job.duration_h
    assert asked_h >= nodes * 100 * min(load, 2)


def test_all_jobs_of_an_endless_load_come_at_once():
    made = stress([TracedJob(arrival_h=5, nodes=1, duration_h=10)], 2, span_h=100, load=math.inf)
    assert {job.arrival_h for job in made} == {0.0}
    assert len(made) == 40  # twice what two nodes do in 100 hours


@given(JOBS, st.integers(0, 100))
def test_a_rotated_trace_has_the_same_jobs_and_is_in_order(jobs, start):
    turned = rotate(jobs, start)
    arrivals = [job.arrival_h for job in turned]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] == 0
    key = sorted((job.nodes, job.duration_h) for job in jobs)
    assert sorted((job.nodes, job.duration_h) for job in turned) == key
    assert turned[0].duration_h == jobs[start % len(jobs)].duration_h


@given(JOBS, st.floats(0.5, 50))
def test_a_cut_trace_asks_for_the_same_in_pieces_no_longer_than_the_limit(jobs, limit_h):
    pieces = cut(jobs, limit_h)
    assert all(0 < job.duration_h <= limit_h for job in pieces)
    assert sum(job.nodes * job.duration_h for job in pieces) == pytest.approx(
        sum(job.nodes * job.duration_h for job in jobs)
    )
