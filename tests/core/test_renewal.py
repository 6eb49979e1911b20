"""Criteria that are worth changing after they are learned again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anubis.core.judge.comparison import renewal
from anubis.core.records import NodeKind
from tests.core.test_comparison import criteria, criterion, key

OLD = criterion(alpha=0.95, nodes=40)  # a loss of 0.05 passes


def at(level, **changes):
    return replace(OLD, reference=np.array([level]), **changes)


def changed(old, new):
    return {change.key.workload.benchmark for change in renewal(old, new).changes}


@pytest.mark.parametrize(("level", "is_changed"), [(99.6, False), (100.4, False), (99.4, True)])
def test_a_criterion_changes_if_it_moved_by_more_than_a_tenth_of_its_margin(level, is_changed):
    assert changed(criteria(OLD), criteria(at(level))) == ({"gemm"} if is_changed else set())


def test_a_criterion_that_hardly_moved_stays_while_another_changes():
    other = criterion("nccl", key=key("nccl"))
    new = criteria(at(100.1), replace(other, reference=np.array([90.0])), digest="new")
    (after,) = renewal(criteria(OLD, other), new).after
    levels = {c.key.workload.benchmark: c.reference[0] for c in after.criteria}
    assert levels == {"gemm": 100.0, "nccl": 90.0}
    assert after.provenance.digest == "new"


def test_a_limit_that_moved_counts_as_the_level_does():
    assert changed(criteria(OLD), criteria(at(100.0, alpha=0.956))) == {"gemm"}
    assert not changed(criteria(OLD), criteria(at(100.0, alpha=0.952)))


@pytest.mark.parametrize("changes", [{"nodes": 19}, {"refusal": "no majority is alike"}])
def test_an_untrusted_criterion_or_one_of_few_nodes_changes_nothing_and_is_counted(changes):
    renewed = renewal(criteria(OLD), criteria(at(80.0, **changes)))
    assert not renewed.changes
    assert renewed.untold == 1
    assert not renewal(criteria(OLD), criteria(at(80.0, nodes=20))).untold


def test_renewal_keeps_unmeasured_criteria_and_adds_new_and_newly_trusted_ones():
    refused, unmeasured = replace(OLD, refusal="too few units"), criterion(key=key("nccl"))
    fresh = criterion(key=key("disk"))
    renewed = renewal(criteria(refused, unmeasured), criteria(OLD, fresh))
    (after,) = renewed.after
    assert {c.key.workload.benchmark: c.refusal for c in after.criteria} == {
        "disk": "",
        "gemm": "",
        "nccl": "",
    }
    assert {change.key.workload.benchmark for change in renewed.changes} == {"gemm", "disk"}
    assert renewed.untold == 1


def test_a_new_criterion_that_refuses_does_not_come():
    assert not changed(criteria(OLD), criteria(OLD, criterion(key=key("disk"), refusal="loud")))


def test_the_kinds_into_which_a_sku_was_parted_stay():
    (whole,) = criteria(at(80.0))
    kind = NodeKind(
        sku="h100",
        label="b",
        nodes=("n1",),
        confidence=1.0,
        metric="rate",
        typical=1.0,
        unit="GB/s",
    )
    (parted,) = criteria(replace(OLD, key=replace(OLD.key, sku="b")))
    parted = replace(parted, sku="b", node_kind=kind)
    assert not renewal([parted], [whole]).changes
    assert not renewal([whole], [parted]).changes


def test_skus_of_which_nothing_was_learned_are_left_out():
    (other,) = criteria(replace(OLD, key=replace(OLD.key, sku="a100")))
    renewed = renewal([*criteria(OLD), replace(other, sku="a100")], criteria(at(80.0)))
    assert [of_sku.sku for of_sku in renewed.before] == ["h100"]
    assert [of_sku.sku for of_sku in renewed.after] == ["h100"]
