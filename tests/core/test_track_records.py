"""Findings of each benchmark, against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest

from anubis.core.history.defects import Defect, Repeatability, track_records
from anubis.core.records import CriteriaSet, Criterion, CriterionKey, Provenance, Workload

ALL = {"disk", "gemm", "ring"}


def defect(node, *found_by, tried=ALL):
    return Defect(node=node, found_by=frozenset(found_by), tried=frozenset(tried) - set(found_by))


def learned(**repeatabilities):
    """`gemm_tflops=0.99`: the metric tflops of gemm."""
    criteria = [
        Criterion(
            key=CriterionKey(
                sku="s",
                workload=Workload.make(name.split("_")[0], "1", {}),
                metric=name.split("_")[1],
                device_kind="cuda",
            ),
            unit="",
            direction="higher",
            reference=np.ones(3),
            alpha=0.95,
            tail=0.05,
            units=3,
            healthy=3,
            nodes=3,
            repeatability=value,
        )
        for name, value in repeatabilities.items()
    ]
    provenance = Provenance(suite="s", anubis="0", digest="", created_at="")
    return (CriteriaSet(sku="s", criteria=tuple(criteria), provenance=provenance),)


def test_figures_of_a_track_record_are_sums_by_hand():
    known = [
        defect("n1", "gemm", "ring"),
        defect("n1", "gemm"),  # the same node again, and nothing else finds it
        defect("n2", "ring"),
        defect("n3", "gemm", tried=["gemm", "disk"]),
        defect("n4"),  # an incident that no test foresaw
    ]
    rows = {row.benchmark: row for row in track_records(known, ["disk"], [])}
    assert list(rows) == ["gemm", "ring", "disk"]
    assert (rows["gemm"].nodes, rows["gemm"].alone) == (("n1", "n3"), ("n1", "n3"))
    assert (rows["ring"].nodes, rows["ring"].alone) == (("n1", "n2"), ("n2",))
    assert (rows["disk"].nodes, rows["disk"].alone) == ((), ())
    assert [row.coverage for row in rows.values()] == [3 / 5, 2 / 5, 0]
    assert [row.tried for row in rows.values()] == [5, 4, 5]
    assert {row.repeatability for row in rows.values()} == {None}


def test_repeatability_is_that_of_the_latest_criteria_of_each_benchmark():
    campaigns = [
        learned(gemm_tflops=0.98, gemm_agreement=1.0),
        learned(gemm_tflops=0.5, disk_iops=None),  # measured once: nothing to compare
        learned(disk_iops=0.75),
        learned(disk_iops=0.1),
    ]
    rows = {row.benchmark: row for row in track_records([], ["disk", "gemm"], campaigns)}
    assert rows["gemm"].repeatability == Repeatability(
        mean=pytest.approx(0.99), lowest=0.98, metric="tflops"
    )
    assert rows["disk"].repeatability == Repeatability(mean=0.75, lowest=0.75, metric="iops")


def test_without_a_known_defect_the_coverage_of_a_benchmark_is_unknown():
    (row,) = track_records([], ["gemm"], [])
    assert (row.coverage, row.nodes, row.tried) == (None, (), 0)
