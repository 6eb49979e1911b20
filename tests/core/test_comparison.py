"""Changes between two sets of criteria, verdicts that change with them, pooled campaigns, and
criteria that are worth changing after they are learned again."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from anubis.core.judge.comparison import criterion_changes, node_changes, renewal, verdict_changes
from anubis.core.records import (
    Assessment,
    CriteriaSet,
    Criterion,
    CriterionKey,
    Judgement,
    MetricSpec,
    NodeKind,
    NodeVerdict,
    Provenance,
    Verdict,
    Workload,
)
from anubis.report.criteria import show, show_changes

RATE = MetricSpec(name="rate", unit="GB/s", direction="higher")
HEALTHY, DEFECTIVE, UNKNOWN = Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN


def key(benchmark: str, version: str = "1") -> CriterionKey:
    workload = Workload.make(benchmark, version, {})
    return CriterionKey(sku="h100", workload=workload, metric="rate", device_kind="cuda")


def criterion(benchmark: str = "gemm", **changes: object) -> Criterion:
    facts = {
        "key": key(benchmark),
        "unit": "GB/s",
        "direction": "higher",
        "reference": np.array([100.0]),
        "alpha": 0.95,
        "tail": 0.05,
        "units": 8,
        "healthy": 8,
        "nodes": 8,
        "repeatability": 0.99,
    }
    return Criterion(**(facts | changes))


def criteria(*members: Criterion, digest: str = "d") -> list[CriteriaSet]:
    provenance = Provenance(suite="s", anubis="1", digest=digest, created_at=digest)
    return [CriteriaSet(sku="h100", criteria=members, provenance=provenance)]


def test_no_number_of_a_change_is_cut_on_a_narrow_terminal():
    qualified = key("train_transformer_with_a_long_name", "12")
    old = criterion(key=qualified, alpha=0.9612345678, shows=0.0000312, units=12_345, nodes=12_345)
    new = replace(old, alpha=old.alpha - 0.00002693, shows=0.0000011, units=98_765, refusal="loud")
    console = Console(width=80, file=io.StringIO())
    show_changes(criterion_changes(criteria(old), criteria(new)), console)
    shown = console.file.getvalue()
    for figure in ("-2.693e-05", "0.9612", "3.12e-05", "1.1e-06", "-3.01e-05", "8 of 98,765"):
        assert figure in shown, shown
    assert "(1) loud" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_narrow_terminal_breaks_no_name_of_a_learned_criterion():
    facts = {"healthy": 2000, "units": 2048, "proposed_alpha": 0.974, "shows": 0.051}
    learned = [criterion("train_transformer", **facts, stalls=0.02, unit="TFLOP/s")]
    console = Console(width=80, file=io.StringIO())
    show(criteria(*learned)[0], console)
    shown = console.file.getvalue()
    assert "train_transformer " in shown
    assert "48/2,048" in shown


# --- criteria ------------------------------------------------------------------------------


def test_nothing_moved_between_equal_criteria_of_different_dates():
    before, after = criteria(criterion(), digest="old"), criteria(criterion(), digest="new")
    assert criterion_changes(before, after) == ()


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("alpha", 0.97),
        ("proposed_alpha", 0.98),
        ("tail", 0.0),
        ("units", 9),
        ("healthy", 7),
        ("nodes", 9),
        ("repeatability", None),
        ("refusal", "not repeatable enough"),
        ("unit", "MB/s"),
        ("direction", "lower"),
        ("from_repeats", True),
    ],
)
def test_each_moved_aspect_of_a_criterion_is_listed_with_both_values(what, value):
    before = criterion()
    (change,) = criterion_changes(criteria(before), criteria(replace(before, **{what: value})))
    (move,) = change.moves
    assert (change.kind, change.alike) == ("moved", None)
    assert (move.aspect, move.before, move.after) == (what, getattr(before, what), value)


def test_a_reference_that_moved_says_by_how_much():
    """Of single values the similarity is smaller over larger."""
    before, after = criterion(), criterion(reference=np.array([80.0]))
    (change,) = criterion_changes(criteria(before), criteria(after))
    (move,) = change.moves
    assert (move.aspect, move.before, move.after) == ("median", 100.0, 80.0)
    assert change.alike == pytest.approx(0.8)


def test_a_reference_with_the_same_median_and_another_tail_has_moved():
    before = criterion(reference=np.array([90.0, 100.0, 110.0]))
    after = criterion(reference=np.array([50.0, 100.0, 110.0]))
    (change,) = criterion_changes(criteria(before), criteria(after))
    assert change.moves == ()
    assert change.alike < 1


def test_another_version_is_another_criterion():
    before, after = criterion(), criterion(key=key("gemm", "2"))
    changes = criterion_changes(criteria(before), criteria(after))
    assert [(c.kind, c.key.workload.version) for c in changes] == [
        ("disappeared", "1"),
        ("appeared", "2"),
    ]


def test_changes_of_criteria_list_gone_then_new_then_the_largest_move_first():
    names = ("near", "far", "gone")
    before = criteria(*(criterion(name) for name in names))
    after = criteria(
        criterion("near", reference=np.array([99.0])),
        criterion("far", reference=np.array([70.0])),
        criterion("new"),
    )
    order = [change.key.workload.benchmark for change in criterion_changes(before, after)]
    assert order == ["gone", "new", "far", "near"]


# --- verdicts ------------------------------------------------------------------------------


def assessment(**said: Judgement) -> Assessment:
    """An assessment with one metric per node, and the node as its metric."""
    return Assessment(
        alone=tuple(
            Verdict(
                participants=(node,),
                benchmark="gemm",
                metric="rate",
                device="cuda:0",
                judgement=judgement,
                code="",
                reason="",
            )
            for node, judgement in said.items()
        ),
        nodes=tuple(
            NodeVerdict(node=node, judgement=judgement, code="", reason="")
            for node, judgement in said.items()
        ),
    )


def test_only_nodes_whose_verdict_differs_are_listed_as_changed():
    before = assessment(a=HEALTHY, b=HEALTHY, c=UNKNOWN)
    after = assessment(b=DEFECTIVE, c=UNKNOWN, a=HEALTHY)
    (node,) = node_changes(before, after)
    (part,) = verdict_changes(before, after)
    assert (node.after.node, node.before.judgement, node.after.judgement) == (
        "b",
        HEALTHY,
        DEFECTIVE,
    )
    assert part.after.participants == ("b",)


def test_a_part_can_change_while_its_node_does_not():
    """Of two defective GPUs one is cleared: the node stays defective."""
    both = assessment(a=DEFECTIVE)
    other = replace(both.alone[0], device="cuda:1")
    before = replace(both, alone=(*both.alone, other))
    after = replace(both, alone=(*both.alone, replace(other, judgement=HEALTHY)))
    assert node_changes(before, after) == ()
    (part,) = verdict_changes(before, after)
    assert part.after.device == "cuda:1"


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
    assert renewed.unmeasured == 1
    assert not renewal(criteria(OLD), criteria(at(80.0, nodes=20))).unmeasured


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
    assert renewed.unmeasured == 1


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
