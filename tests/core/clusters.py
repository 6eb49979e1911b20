"""Small simulated clusters for tests, and the books that every run must balance."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import strategies as st

from anubis.core.history.status import Incident
from anubis.lab.study.cluster import PolicyOutcome, Site, StudiedPolicy, run
from anubis.lab.study.incidents import Category, DefectCause, KnownRates, Replayed
from anubis.lab.study.policies import Absence
from anubis.lab.study.traces import TracedJob

BENCHMARKS = ("gemm", "loopback", "train")
CAUSES = (
    DefectCause(share=3, found_by=("gemm", "train")),
    DefectCause(share=1, found_by=("loopback",)),
)


def site(nodes: int = 50, **changes) -> Site:
    plain = {
        "nodes": nodes,
        "spares": 0,
        "span_h": 720.0,
        "durations_h": (0.2, 0.1, 1.0),
        "incident_repair_h": 12.0,
        "defect_repair_h": 2.0,
        "shows_h": None,
        "catch": 1.0,
        "checkpoint_h": 0.0,
    }
    return Site(**{**plain, **changes})


def category(mtbi_h: float = 100.0, name: str = "gpu", causes=CAUSES, **changes) -> Category:
    return Category(name=name, mtbi_h=mtbi_h, causes=causes, **changes)


def truth(place: Site, *categories: Category, seed: int = 0) -> KnownRates:
    return KnownRates(categories or (category(),), BENCHMARKS, place.nodes, seed)


def sites(shortest_repair_h: float) -> st.SearchStrategy[Site]:
    """Small clusters of any kind."""
    repairs = st.sampled_from([shortest_repair_h, 1.0, 1e6])
    return st.builds(
        site,
        nodes=st.integers(1, 6),
        spares=st.integers(0, 6),
        span_h=st.floats(1.0, 100.0),
        durations_h=st.tuples(*[st.floats(0.01, 30.0)] * 3),
        incident_repair_h=repairs,
        defect_repair_h=repairs,
        shows_h=st.sampled_from([None, 0.0, 10.0]),
        catch=st.sampled_from([0.0, 0.5, 1.0]),
        checkpoint_h=st.sampled_from([0.0, 0.3, 1000.0]),
    )


JOBS = st.lists(
    st.builds(
        TracedJob,
        arrival_h=st.floats(0, 300),
        nodes=st.integers(1, 8),
        duration_h=st.floats(0.01, 200),
    ),
    max_size=25,
).map(lambda jobs: sorted(jobs, key=lambda job: job.arrival_h))
MTBI_H = st.sampled_from([2.0, 50.0, 1e9])  # almost all broken, some, none


def recorded(*incidents: tuple[str, float], nodes: int = 2) -> Replayed:
    """Incidents of nodes at given hours, and at no others."""
    return Replayed(
        [Incident(node=node, category="gpu", start=1000 + 3600 * at) for node, at in incidents],
        {f"n{number}": 1000.0 for number in range(nodes)},
        begin_s=1000.0,
        categories=[category(causes=(DefectCause(share=1, found_by=("gemm",)),))],
        benchmarks=BENCHMARKS,
        seed=3,
    )


def endless(
    nodes: int, size: int = 1, duration_h: float = 24.0, count: int = 4000
) -> list[TracedJob]:
    """More jobs than the cluster can ever do, all at once."""
    return [TracedJob(arrival_h=0.0, nodes=size, duration_h=duration_h)] * count


@dataclass(frozen=True, kw_only=True)
class Always:
    """The same benchmarks on every node."""

    benchmarks: int
    knows_all: bool = field(default=False)

    def choose(self, nodes, hours, now_h, histories):
        return [self.benchmarks] * len(nodes)


def outcome(
    place: Site, jobs, policy: StudiedPolicy | None = None, seed: int = 0, *categories
) -> PolicyOutcome:
    return run(place, jobs, truth(place, *categories, seed=seed), policy or Absence())


def assert_books_balance(found: PolicyOutcome, jobs) -> None:
    """Every hour of every node is spent once, and what was worked is in the jobs, once."""
    spent_h = found.working_h + found.stalled_h + found.validating_h + found.repair_h
    spent_h += found.idle_h + found.spare_h
    assert spent_h == pytest.approx(found.nodes * found.span_h)
    kinds = (found.working_h, found.lost_h, found.validating_h, found.repair_h, found.spare_h)
    assert min(*kinds, found.idle_h + 1e-6) >= 0
    nodes = np.array([job.nodes for job in jobs], dtype=float)
    duration_h = np.array([job.duration_h for job in jobs])
    kept_h = float((found.done_h * nodes).sum())
    assert kept_h == pytest.approx(found.working_h - found.lost_h, abs=1e-6)
    finished = np.isfinite(found.finished_h)
    assert np.array_equal(found.done_h[finished], duration_h[finished])
    assert (found.done_h[~finished] <= duration_h[~finished] * (1 + 1e-9)).all()
    assert (found.finished_h[finished] >= (found.first_h + duration_h)[finished] - 1e-6).all()
    assert found.hits <= found.incidents
    assert found.validations <= found.queries
