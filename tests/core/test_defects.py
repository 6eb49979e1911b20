from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.history.defects import Defect, defects
from anubis.core.history.status import Incident, Validation
from anubis.core.records import Judgement

HOUR_S = 3600.0
RAN = ("disk", "gemm", "ring")


def validated(hour, judgement, node="n1"):
    return Validation(
        node=node,
        at=hour * HOUR_S,
        judgement=Judgement(judgement),
        benchmarks=RAN,
        campaign=f"c{hour}",
    )


def found(hour, *benchmarks, node="n1"):
    return {(f"c{hour}", node): set(benchmarks)}


def incident(hour, category, end=None, node="n1"):
    over = None if end is None else end * HOUR_S
    return Incident(node=node, category=category, start=hour * HOUR_S, end=over)


def defect(*found_by, category="", node="n1"):
    some = frozenset(found_by)
    return Defect(node=node, category=category, found_by=some, tried=frozenset(RAN) - some)


def test_defects_of_two_nodes_in_one_campaign_count_as_two():
    both = [validated(1, "defective"), validated(1, "defective", "n2")]
    findings = found(1, "gemm") | found(1, "disk", "ring", node="n2")
    assert defects(both, findings, []) == [
        defect("gemm"),
        defect("disk", "ring", node="n2"),
    ]


def test_findings_until_the_node_is_healthy_again_are_one_defect():
    times = {1: "defective", 2: "defective", 3: "healthy", 4: "defective"}
    history = [validated(hour, judgement) for hour, judgement in times.items()]
    findings = found(1, "gemm") | found(2, "ring") | found(4, "gemm")
    for shuffled in permutations(history):
        assert defects(shuffled, findings, []) == [defect("gemm", "ring"), defect("gemm")]


@pytest.mark.parametrize(
    ("start", "end", "category"),
    [
        (90, None, "net"),  # ten hours before
        (110, 112, "net"),  # ten hours after
        (10, 90, "net"),  # it ended ten hours before
        (10, 60, ""),
        (70, None, ""),  # of unknown length
        (130, None, ""),
    ],
)
def test_a_finding_belongs_to_an_incident_within_a_day(start, end, category):
    (only,) = defects(
        [validated(100, "defective")], found(100, "ring"), [incident(start, "net", end)]
    )
    assert only == defect("ring", category=category)


def test_the_later_of_two_incidents_counts_and_those_of_other_nodes_never():
    told = [incident(90, "net"), incident(95, "gpu"), incident(99, "psu", node="n2")]
    (only,) = defects([validated(100, "defective")], found(100, "gemm"), told)
    assert only == defect("gemm", category="gpu")


def test_findings_about_one_incident_are_one_defect():
    times = {100: "defective", 101: "healthy", 102: "defective"}
    history = [validated(hour, judgement) for hour, judgement in times.items()]
    findings = found(100, "gemm") | found(102, "disk")
    (only,) = defects(history, findings, [incident(99, "gpu")])
    assert only == defect("gemm", "disk", category="gpu")


def test_an_incident_without_a_finding_is_a_defect_that_no_test_finds():
    (only,) = defects([validated(100, "healthy")], {}, [incident(99, "net", end=101)])
    assert only == defect(category="net")


def test_a_node_that_is_healthy_after_its_repair_says_nothing_of_the_incident():
    assert defects([validated(100, "healthy")], {}, [incident(90, "net", end=99)]) == []
    assert defects([validated(80, "healthy")], {}, [incident(90, "net", end=99)]) == []
    assert defects([], {}, [incident(90, "net")]) == []


@pytest.mark.parametrize(
    ("hour", "end", "missed"),
    [(9, 20, 0), (10, 20, 1), (20, 20, 1), (21, 20, 0), (34, None, 1), (35, None, 0)],
)
def test_an_incident_was_missed_from_its_start_to_its_end_or_for_a_day(hour, end, missed):
    told = [incident(10, "gpu", end)]
    assert defects([validated(hour, "healthy")], {}, told) == [defect(category="gpu")] * missed


def test_results_without_a_verdict_neither_open_nor_close_a_defect():
    times = {1: "defective", 2: "unknown", 3: "defective", 4: "not-applicable"}
    history = [validated(hour, judgement) for hour, judgement in times.items()]
    findings = found(1, "gemm") | found(3, "ring")
    assert defects(history, findings, []) == [defect("gemm", "ring")]


results = st.lists(
    st.builds(
        validated,
        st.integers(0, 200).map(lambda hour: 3 * hour),
        st.sampled_from(["healthy", "defective", "unknown"]),
        st.sampled_from(["n1", "n2"]),
    ),
    max_size=6,
    unique_by=lambda result: result.at,
)
stretches = st.lists(
    st.builds(
        lambda hour, lasted, category, node: incident(
            hour, category, None if lasted is None else hour + lasted, node
        ),
        st.integers(0, 600),
        st.none() | st.integers(0, 300),
        st.sampled_from(["gpu", "net"]),
        st.sampled_from(["n1", "n2", "n3"]),
    ),
    max_size=8,
)


@given(results, stretches)
def test_incidents_far_from_any_result_change_no_defect(measured, told):
    def all_of(incidents, results):
        return incidents.select_nodes(results)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anubis.core.history.defects._near_results", all_of)
        plain = defects(measured, {}, told)
    assert defects(measured, {}, told) == plain
