"""Consequences of events that are reported together, against a reader that looks at everything
again before each of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.history.events import (
    Consequences,
    JobAllocated,
    JobEnded,
    JobStalled,
    JobUnexplained,
    NodeAdded,
    RepairBegun,
    RepairDone,
    UnknownJob,
    jobs_in,
    repaired_nodes,
)
from anubis.core.history.status import Job, Repair

NODES = st.lists(st.sampled_from(["n1", "n2"]), min_size=1, max_size=2, unique=True).map(tuple)
NAMES = st.sampled_from(["j1", "j2"])
EVENTS = st.one_of(
    st.builds(JobAllocated, nodes=NODES, duration_s=st.just(60.0), job=NAMES | st.just("")),
    st.builds(JobEnded, nodes=NODES | st.just(()), job=NAMES),
    st.builds(JobStalled, nodes=NODES | st.just(()), job=NAMES),
    st.builds(JobUnexplained, nodes=NODES | st.just(()), job=NAMES),
    st.builds(RepairBegun, nodes=NODES),
    st.builds(RepairDone, nodes=NODES, action=st.sampled_from(["", "a", "b"])),
    st.builds(NodeAdded, nodes=NODES),
)
TOLD = st.lists(st.tuples(EVENTS, st.integers(0, 5).map(float)), max_size=12)


class Naive:
    """Rows, each completed by later events, and searched for every event."""

    def __init__(self):
        self.jobs, self.repairs = {}, {}

    def write(self, rows, key, record):
        if key in rows:
            end = rows[key].end if record.end is None else record.end
            moved = isinstance(record, Job) and record.nodes != rows[key].nodes
            same = rows[key].end == end and not moved
            rows[key] = rows[key] if same else replace(record, end=end)
        else:
            rows[key] = record

    def tell(self, event, at):
        match event:
            case JobAllocated(job=str(name), nodes=nodes) if name in self.jobs:
                job = self.jobs[name]
                if job.end is None and any(node not in job.nodes for node in nodes):
                    self.jobs[name] = replace(job, nodes=nodes)
            case JobAllocated(job=str(name), nodes=nodes) if name:
                self.write(self.jobs, name, Job(id=name, nodes=nodes, start=at, planned_s=60.0))
            case JobEnded():
                known = [job for job in self.jobs.values() if job.id == event.job]
                nodes = event.nodes or (known[0].nodes if known else None)
                if nodes is None:
                    return None
                job = known[0] if known else Job(id=event.job, nodes=nodes, start=at)
                self.write(self.jobs, job.id, replace(job, end=max(at, job.start)))
                return replace(event, nodes=nodes)
            case JobStalled() | JobUnexplained():
                nodes = event.nodes or next(
                    (job.nodes for job in self.jobs.values() if job.id == event.job), ()
                )
                return replace(event, nodes=nodes) if nodes else None
            case RepairBegun():
                for node in event.nodes:
                    self.write(self.repairs, (node, at), Repair(node=node, start=at))
            case RepairDone():
                for node in event.nodes:
                    self.done(node, at, event.action)
        return event

    def done(self, node, at, action):
        rows = sorted(self.repairs.items())
        going_on = [repair for (name, _), repair in rows if name == node and repair.end is None]
        repair = going_on[-1] if going_on else Repair(node=node, start=at)
        over = replace(repair, end=max(at, repair.start), action=action or repair.action)
        self.write(self.repairs, (node, repair.start), over)


@given(before=TOLD, told=TOLD)
def test_many_events_at_once_have_the_consequences_of_one_after_the_other(before, told):
    naive = Naive()
    for event, at in before:
        naive.tell(event, at)
    events = [event for event, _ in told]
    jobs = [job for job in naive.jobs.values() if job.id in jobs_in(events)]
    repairs = [repair for repair in naive.repairs.values() if repair.node in repaired_nodes(events)]
    follows, together = Consequences(jobs, repairs), Naive()
    together.jobs, together.repairs = dict(naive.jobs), dict(naive.repairs)
    for event, at in told:
        expected = naive.tell(event, at)
        if expected is None:
            with pytest.raises(UnknownJob):
                follows.follow(event, at)
        else:
            assert follows.follow(event, at) == expected
    for job in follows.jobs:
        together.write(together.jobs, job.id, job)
    for repair in follows.repairs:
        together.write(together.repairs, (repair.node, repair.start), repair)
    assert (together.jobs, together.repairs) == (naive.jobs, naive.repairs)
