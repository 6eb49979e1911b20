"""A fleet over time: verdicts by day, incidents by category, and the time before each incident."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from statistics import fmean

import pytest

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.history.events import EventRecord, IncidentReported
from anubis.core.history.fleet_days import (
    FleetDay,
    IncidentCategory,
    TimeBefore,
    health_by_day,
    incident_categories,
    times_before,
)
from anubis.core.history.past import Happened
from anubis.core.history.status import Incident, Validation, Watch
from anubis.core.history.tracks import IncidentColumns
from anubis.core.records import Judgement
from anubis.report.service_pages import ClusterOverTime, course, health_page

NOW = 100.5 * DAY_S


def naive(validations: list[Validation]) -> Judgement:
    """A defect, or a missing answer, counts unless its program passed at a later time."""

    def is_open(program: str, since: float) -> bool:
        later = (v for v in validations if v.at > since and v.judgement is Judgement.HEALTHY)
        return not any(program in v.benchmarks for v in later)

    for v in validations:
        program = v.code.lower().partition(".")[0]
        if v.judgement is Judgement.DEFECTIVE and is_open(program, v.at):
            return Judgement.DEFECTIVE
    for v in validations:
        if v.judgement is Judgement.UNKNOWN and any(is_open(program, v.at) for program in v.owes):
            return Judgement.UNKNOWN
    passes = [v for v in validations if v.judgement is Judgement.HEALTHY]
    return Judgement.HEALTHY if passes else Judgement.UNKNOWN


def test_counts_of_each_day_agree_with_a_naive_loop():
    draw = random.Random(4)
    kinds = [Judgement.HEALTHY, Judgement.HEALTHY, Judgement.DEFECTIVE, Judgement.UNKNOWN]
    validations = []
    for kind in draw.choices(kinds, k=200):
        run = tuple(draw.sample(("gemm", "disk", "ring"), draw.randint(1, 3)))
        code = f"{run[0].upper()}.RATE" if kind is Judgement.DEFECTIVE else ""
        owes = run[:1] if kind is Judgement.UNKNOWN else ()
        about = {"node": f"n{draw.randrange(12)}", "at": draw.uniform(60, 100.4) * DAY_S}
        validations.append(
            Validation(**about, judgement=kind, code=code, benchmarks=run, owes=owes)
        )
    for day in health_by_day(validations, NOW, 30):
        own = defaultdict(list)
        for each in sorted(validations, key=lambda each: each.at):
            if each.at < day.begin + DAY_S:
                own[each.node].append(each)
        judged = [naive(of_node) for of_node in own.values()]
        counts = [judged.count(kind) for kind in kinds[1:]]
        assert [day.healthy, day.defective, day.unknown] == counts


def test_the_last_day_is_as_the_nodes_stand_now_and_no_other_is():
    """An incident that no test has cleared makes a node unknown, and is no verdict."""
    at, run = NOW - 1.5 * DAY_S, ("gemm",)
    well = [
        Validation(node=f"n{n}", at=at, judgement=Judgement.HEALTHY, benchmarks=run)
        for n in range(3)
    ]
    stand = {"n0": Judgement.UNKNOWN, "n1": Judgement.HEALTHY, "n2": Judgement.DEFECTIVE}
    *_, before, today = health_by_day(well, NOW, 3, {**stand, "untested": Judgement.UNKNOWN})
    assert (before.healthy, before.defective, before.unknown) == (3, 0, 0)
    assert (today.healthy, today.defective, today.unknown) == (1, 1, 1)


def test_the_last_day_is_today_and_untested_nodes_are_not_counted():
    days = health_by_day([], NOW, 3)
    assert [day.begin / DAY_S for day in days] == [98, 99, 100]
    assert days[-1] == FleetDay(begin=100 * DAY_S, healthy=0, defective=0, unknown=0)


def incident(node: str, start_h: float, end_h: float | None, category: str = "gpu") -> Incident:
    end = None if end_h is None else end_h * HOUR_S
    return Incident(node=node, category=category, start=start_h * HOUR_S, end=end)


def test_categories_are_ordered_by_the_node_hours_that_they_cost():
    told = [
        incident("n1", 0, 2),
        incident("n1", 10, 14),
        incident("n2", 10, 19),
        incident("n3", 20, None, "psu"),
        incident("n4", 20, 21, "psu"),
    ]
    assert incident_categories(told, 50 * HOUR_S) == [
        IncidentCategory(category="psu", incidents=2, nodes=2, middle_h=1.0, lost_h=31.0),
        IncidentCategory(category="gpu", incidents=3, nodes=2, middle_h=4.0, lost_h=15.0),
    ]
    (still,) = incident_categories([incident("n1", 0, None)], HOUR_S)
    assert still.middle_h is None


def test_an_incident_that_was_only_reported_counts_and_ends_with_a_pass():
    """A defect that a test found is no incident, and a report within a known one adds nothing."""

    def told(node: str, at: float) -> EventRecord:
        event = IncidentReported(nodes=(node,), category="gpu")
        return EventRecord(id=f"{node} {at}", at=at * HOUR_S, event=event)

    imported = [incident("n1", 1, 5)]
    happened = Happened(
        incidents=IncidentColumns.from_incidents(imported),
        repairs=(),
        watches=(),
        event_records=[told("n1", 2), told("n2", 2), told("n3", 2)],
        validations=[
            Validation(node="n2", at=4 * HOUR_S, judgement=Judgement.HEALTHY, code=""),
            Validation(node="n4", at=4 * HOUR_S, judgement=Judgement.DEFECTIVE, code="GEMM.RATE"),
        ],
        attributes=(),
    )
    expected = [*imported, incident("n2", 2, 4), incident("n3", 2, None)]
    assert happened.known_incidents == expected


@pytest.mark.parametrize(
    ("told", "watched", "gaps"),
    [
        ([(10, 12), (20, 21), (51, 52)], 0, [10, 8, 30]),
        ([(10, 12), (20, 21)], None, [None, 8]),  # since when it is watched is not known
        ([(10, 30), (12, 15), (20, 40), (45, 46)], 0, [10, 5]),  # overlaps are one incident
        ([(10, None), (20, 21)], 0, [10]),  # after an open one nothing is known
        ([(10, 12), (20, 21)], 15, [None, 8]),  # before it was watched
    ],
)
def test_the_time_before_an_incident_is_that_without_one(told, watched, gaps):
    own = {"n1": [incident("n1", *stretch) for stretch in told]}
    watches = [] if watched is None else [Watch(node="n1", since=watched * HOUR_S)]
    assert times_before(own, watches) == [
        TimeBefore(number=number, nodes=1, mean_h=gap)
        for number, gap in enumerate(gaps, start=1)
        if gap is not None
    ]


def test_the_mean_is_over_the_nodes_that_had_so_many():
    draw = random.Random(1)
    own, expected = {}, defaultdict(list)
    for node in map(str, range(20)):
        at, own[node] = 0.0, []
        for number in range(1, draw.randint(2, 6)):
            gap = draw.uniform(1, 100)
            expected[number].append(gap)
            own[node].append(incident(node, at + gap, at + gap + 2))
            at += gap + 2
    for row in times_before(own, [Watch(node=node, since=0.0) for node in own]):
        assert row.nodes == len(expected[row.number])
        assert row.mean_h == pytest.approx(fmean(expected[row.number]))


def test_the_page_over_time_states_known_and_missing_figures():
    days = health_by_day([], NOW, 3)
    quiet = ClusterOverTime(name="<b>", now={}, days=days, categories=(), before=())
    page = health_page([quiet], NOW)
    assert "No incident is known." in page
    assert "No node was tested in the last 3 days." in page
    assert "Nodes by the results of their tests" not in page  # with nothing below it
    assert "<b>" not in page
    assert "begin with <code>anubis accept</code>" in health_page([], NOW)
    row = IncidentCategory(category="gpu", incidents=3, nodes=2, middle_h=60.0, lost_h=1234.4)
    times = [TimeBefore(number=1, nodes=2, mean_h=7.25)]
    told = replace(quiet, name="prod", categories=[row], before=times)
    page = health_page([told], NOW)
    assert "2.5 days</td>" in page
    assert "1,234</td>" in page
    assert "7.2 h</td>" in page
    counts = ((0, 0, 0), (7, 1, 0), (6, 1, 1))
    days = [
        FleetDay(begin=n * DAY_S, healthy=h, defective=d, unknown=u)
        for n, (h, d, u) in enumerate(counts)
    ]
    tested = replace(told, days=days, now={Judgement.HEALTHY: 5, Judgement.UNKNOWN: 4})
    page = health_page([tested, tested], NOW)
    assert "Nodes by the results of their tests" in page
    assert "<b>10</b> of 18 nodes healthy now" in page
    assert '<span class="unknown"><b>8</b> unknown</span>' in page
    assert "<b>6</b> incidents took 2,469 node-hours" in page
    sentences = course(tested)
    assert sentences == (
        "5 of 9 nodes healthy now, 7 of 8 tested nodes on 1970-01-02."
        " 3 incidents took 1,234 node-hours."
    )
