"""Statuses and uptimes against a pass over all records, node by node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_status import NaiveLogbook

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import (
    Incident,
    Instants,
    Repair,
    Validation,
    Watch,
    defects_as_incidents,
)
from anubis.core.history.tracks import IncidentColumns
from anubis.core.keep.life import open_incidents
from anubis.core.records import Judgement

HOUR_S = 3600.0
NODES = ("a", "b", "c")
COVARIATES = (
    "up_h",
    "total_up_h",
    "since_incident_h",
    "incidents",
    "mtbi_h",
    "validated_h",
    *(
        f"{what}:{category}"
        for category in "xyz"
        for what in ("since_incident_h", "incidents", "mtbi_h")
    ),
    "age_h",
    "rack_rate",
    "sku_rate",
)


@dataclass(frozen=True)
class Past:
    incidents: tuple[Incident, ...] = ()
    watches: tuple[Watch, ...] = ()
    validations: tuple[Validation, ...] = ()
    repairs: tuple[Repair, ...] = ()
    attributes: tuple[NodeAttributes, ...] = ()

    @property
    def logbook(self) -> Logbook:
        return Logbook.from_records(**vars(self))

    @property
    def naive(self) -> NaiveLogbook:
        return NaiveLogbook(**vars(self))


# few instants, so that stretches touch, overlap, have no length and begin when one looks
hours = st.integers(0, 12).map(lambda hour: hour * HOUR_S)
stretches = st.tuples(hours, hours | st.none()).map(
    lambda drawn: drawn if drawn[1] is None else tuple(sorted(drawn))
)
nodes = st.sampled_from(NODES)


def many(build: Any) -> st.SearchStrategy[Any]:
    return st.lists(build, max_size=6).map(tuple)


incidents = st.builds(
    lambda node, category, stretch: Incident(
        node=node, category=category, start=stretch[0], end=stretch[1]
    ),
    nodes, st.sampled_from("xy"), stretches,
)  # fmt: skip
pasts = st.builds(
    Past,
    many(incidents),
    many(st.builds(lambda n, s: Watch(node=n, since=s[0], until=s[1]), nodes, stretches)),
    many(st.builds(Validation, node=nodes, at=hours, judgement=st.just(Judgement.HEALTHY))),
    many(st.builds(lambda n, s: Repair(node=n, start=s[0], end=s[1]), nodes, stretches)),
    st.lists(
        st.builds(
            NodeAttributes,
            node=st.sampled_from((*NODES, "d")),  # d has no records
            installed=hours | st.none(),
            rack=st.sampled_from(("", "r1", "r2")),
            sku=st.sampled_from(("", "x")),
        ),
        unique_by=lambda told: told.node,
    ).map(tuple),
)
instants = st.lists(st.tuples(nodes, st.integers(0, 26).map(lambda half: half * HOUR_S / 2)))


def asked(drawn: list[tuple[str, float]]) -> Instants:
    return Instants(
        nodes=tuple(node for node, _ in drawn),
        at=np.array([at for _, at in drawn], dtype=np.float64),
    )


def everywhere(past: Past) -> list[tuple[str, float]]:
    return [(node, half * HOUR_S / 2) for node in NODES for half in range(27)]


@given(past=pasts, drawn=instants)
def test_every_status_agrees_with_a_pass_over_all_records(
    past: Past, drawn: list[tuple[str, float]]
) -> None:
    found = past.logbook.statuses(asked(drawn), COVARIATES)
    expected = [[past.naive.value(name, *row) for name in COVARIATES] for row in drawn]
    assert found.values == pytest.approx(np.array(expected).reshape(found.values.shape))
    assert np.isfinite(found.values).all()


@given(past=pasts)
def test_watched_and_down_nodes_agree_with_a_pass_over_all_records(past: Past) -> None:
    rows = everywhere(past)
    assert past.logbook.are_watched(asked(rows)).tolist() == [
        past.naive.watched(*row) for row in rows
    ]
    assert past.logbook.are_down(asked(rows)).tolist() == [past.naive.down(*row) for row in rows]


def known_at(past: Past, at: float) -> Past:
    """Records known at an instant: none that begins then or later, and no end that is to come."""

    def begun(one: Incident | Repair) -> dict[str, Any]:
        return vars(one) | {"end": None if one.end is None or one.end > at else one.end}

    return Past(
        incidents=tuple(Incident(**begun(one)) for one in past.incidents if one.start < at),
        repairs=tuple(Repair(**begun(one)) for one in past.repairs if one.start < at),
        validations=tuple(one for one in past.validations if one.at < at),
        watches=tuple(
            Watch(
                node=one.node,
                since=one.since,
                until=None if one.until is None or one.until > at else one.until,
            )
            for one in past.watches
            if one.since <= at  # to be added is what one knows at that instant
        ),
        attributes=past.attributes,
    )


@given(past=pasts, half=st.integers(0, 26))
def test_no_status_knows_the_future(past: Past, half: int) -> None:
    at = half * HOUR_S / 2
    now = Instants.now(NODES, at)
    then = known_at(past, at).logbook.statuses(now, COVARIATES)
    assert past.logbook.statuses(now, COVARIATES).values.tolist() == then.values.tolist()


@given(past=pasts, drawn=instants, until=hours)
def test_every_uptime_agrees_with_a_pass_over_all_records(
    past: Past, drawn: list[tuple[str, float]], until: float
) -> None:
    found = past.logbook.uptimes(asked(drawn), until, COVARIATES)
    uptimes = [(row, past.naive.spell(*row, until)) for row in drawn]
    expected = [(row, spell) for row, spell in uptimes if spell]
    rows = [row for row, _ in expected]
    assert list(zip(found.statuses.nodes, found.statuses.at, strict=True)) == rows
    assert found.duration_h.tolist() == [duration_h for _, (duration_h, _) in expected]
    assert found.observed.tolist() == [observed for _, (_, observed) in expected]
    statuses = past.logbook.statuses(asked(rows), COVARIATES)
    assert found.statuses.values.tolist() == statuses.values.tolist()


@given(past=pasts, until=hours)
def test_the_table_as_of_a_time_ignores_later_records(past: Past, until: float) -> None:
    every = asked([row for row in everywhere(past) if row[1] < until])
    now = past.logbook.uptimes(every, until, COVARIATES)
    then = known_at(past, until).logbook.uptimes(every, until, COVARIATES)
    assert now.statuses.nodes == then.statuses.nodes
    assert now.statuses.values.tolist() == then.statuses.values.tolist()
    assert now.duration_h.tolist() == then.duration_h.tolist()
    assert now.observed.tolist() == then.observed.tolist()


@given(past=pasts)
def test_a_node_returns_whenever_it_was_down_or_away_just_before(past: Past) -> None:
    """Between two multiples of an hour nothing happens, so a look in between is conclusive."""
    found = past.logbook.returns()
    uptimes = past.logbook.uptimes(found, until=100 * HOUR_S, covariates=())
    whole = {(n, at) for n, at in zip(*(uptimes.statuses.nodes, uptimes.statuses.at), strict=True)}
    sudden = {(one.node, one.end) for one in (*past.incidents, *past.repairs)}

    def up(node: str, at: float) -> bool:
        return past.naive.watched(node, at) and not past.naive.down(node, at)

    for node, at in everywhere(past)[::2]:
        back = up(node, at + 1) and (not up(node, at - 1) or (node, at) in sudden)
        there = (node, at) in whole or (node, np.nextafter(at, np.inf)) in whole
        assert there == back, (node, at / HOUR_S)
    assert len(whole) == len({(node, round(at)) for node, at in whole})


def worked_example() -> Past:
    """Ten hours of one node, written by hand: two incidents that overlap, one later, one open."""
    stretches = [("x", 2, 3), ("y", 2.5, 4), ("x", 6, 7), ("y", 9, None)]
    return Past(
        incidents=tuple(
            Incident(node="a", category=category, start=start * HOUR_S, end=end and end * HOUR_S)
            for category, start, end in stretches
        ),
        watches=(Watch(node="a", since=0.0),),
        validations=(Validation(node="a", at=5 * HOUR_S, judgement=Judgement.HEALTHY),),
    )


@pytest.mark.parametrize(
    ("hour", "up_h", "total_up_h", "since_incident_h", "count", "mtbi_h", "validated_h", "x_h"),
    [
        (1.0, 1.0, 1.0, 1.0, 0, 1.0, 1.0, 1.0),  # nothing yet: watched for an hour
        (2.0, 2.0, 2.0, 2.0, 0, 2.0, 2.0, 2.0),  # what begins now is not known
        (2.75, 0.0, 2.0, 0.25, 2, 1.25, 2.75, 0.75),  # down; two beginnings in 2.5 h
        (4.0, 0.0, 2.0, 1.5, 2, 1.25, 4.0, 2.0),  # back this instant
        (5.5, 1.5, 3.5, 3.0, 2, 1.25, 0.5, 3.5),
        (8.0, 1.0, 5.0, 2.0, 3, 2.0, 3.0, 2.0),
        (10.0, 0.0, 6.0, 1.0, 4, 2.25, 5.0, 4.0),  # down, for an unknown time
    ],
)
def test_the_status_of_a_node_hour_by_hour(
    hour: float,
    up_h: float,
    total_up_h: float,
    since_incident_h: float,
    count: int,
    mtbi_h: float,
    validated_h: float,
    x_h: float,
) -> None:
    found = worked_example().logbook.statuses(Instants.now(["a"], hour * HOUR_S), COVARIATES)
    expected = [up_h, total_up_h, since_incident_h, count, mtbi_h, validated_h, x_h]
    assert found.values[0, :7].tolist() == pytest.approx(expected)


def test_a_node_is_known_to_be_up_no_longer_than_it_was_watched() -> None:
    watch = Watch(node="a", since=0.0, until=7 * HOUR_S)
    incident = Incident(node="a", category="x", start=1 * HOUR_S, end=2 * HOUR_S)
    late = Instants.now(["a"], 100 * HOUR_S)
    found = Logbook.from_records([incident], [watch]).statuses(late, ("up_h", "total_up_h"))
    assert found.values.tolist() == [[5, 6]]


def test_the_uptimes_of_a_node_run_from_each_return_to_the_next_incident() -> None:
    logbook = worked_example().logbook
    found = logbook.uptimes(logbook.returns(), until=20 * HOUR_S, covariates=["incidents"])
    assert (found.statuses.at / HOUR_S).tolist() == [0, 4, 7]
    assert found.duration_h.tolist() == [2, 2, 2]
    assert found.observed.tolist() == [True, True, True]
    assert found.statuses.values.tolist() == [[0], [2], [3]]
    earlier = logbook.uptimes(logbook.returns(), until=5 * HOUR_S, covariates=["incidents"])
    assert earlier.duration_h.tolist() == [2, 1]
    assert earlier.observed.tolist() == [True, False]


def test_snapshots_and_returns_may_be_in_one_table() -> None:
    logbook = worked_example().logbook
    asked = logbook.returns() + Instants.now(["a", "a"], 5 * HOUR_S)
    found = logbook.uptimes(asked, until=20 * HOUR_S, covariates=["up_h"])
    assert found.statuses.values.tolist() == [[0], [0], [0], [1], [1]]
    assert found.duration_h.tolist() == [2, 2, 2, 1, 1]


def test_snapshots_are_regular_within_each_watch_and_begin_anywhere_in_the_first_step() -> None:
    watches = [
        Watch(node=f"n{n:03}", since=n * HOUR_S, until=(n + 10) * HOUR_S) for n in range(200)
    ]
    rng = np.random.default_rng(5)
    found = Logbook.from_records([], watches).snapshots(4, until=150 * HOUR_S, rng=rng)
    first = []
    for n in range(200):
        mine = found.at[np.array(found.nodes) == f"n{n:03}"] / HOUR_S - n
        assert np.diff(mine) == pytest.approx(4.0)
        assert ((mine >= 0) & (mine < min(10, 150 - n))).all()
        if n <= 140:
            assert len(mine) == (3 if mine[0] < 2 else 2)
            first.append(mine[0])
    assert max(found.at) < 150 * HOUR_S
    assert np.quantile(first, [0, 0.5, 1]) == pytest.approx([0, 2, 4], abs=0.4)


def test_beyond_2400_hours_the_time_since_a_category_does_not_grow() -> None:
    logbook = worked_example().logbook
    known = ("since_incident_h", "since_incident_h:x", "since_incident_h:never")
    early, late = Instants.now(["a"], 2405 * HOUR_S), Instants.now(["a"], 9999 * HOUR_S)
    assert logbook.statuses(early, known).values.tolist() == [[2396, 2399, 2400]]
    assert logbook.statuses(late, known).values.tolist() == [[9990, 2400, 2400]]


def test_a_category_that_a_model_never_saw_counts_in_the_totals_and_is_named() -> None:
    logbook = worked_example().logbook
    known = ("incidents", "incidents:x", "incidents:never", "mtbi_h:never", "since_incident_h:y")
    found = logbook.statuses(Instants.now(["a"], 8 * HOUR_S), known)
    assert found.values.tolist() == [[3, 2, 0, 8, 5.5]]
    assert logbook.uncovered_categories(known[:-1]) == ("y",)


def test_validations_are_a_covariate_only_if_there_are_some() -> None:
    past = worked_example()
    assert "validated_h" in past.logbook.covariates()
    assert Logbook.from_records(past.incidents, past.watches).covariates() == (
        "up_h", "total_up_h", "since_incident_h", "incidents", "mtbi_h",
        "since_incident_h:x", "incidents:x", "mtbi_h:x",
        "since_incident_h:y", "incidents:y", "mtbi_h:y",
    )  # fmt: skip


RACKS = tuple(NodeAttributes(node=f"n{i}", rack=f"r{i // 5}") for i in range(10))
STRUCK = tuple(
    Incident(node=f"n{i}", category="x", start=k * HOUR_S, end=k * HOUR_S + 60)
    for i in range(1, 5)
    for k in range(50, 90)
)
WATCHED = tuple(Watch(node=f"n{i}", since=0.0) for i in range(10))


def test_a_node_of_a_bad_rack_is_known_by_the_others_of_it_before_anything_happens_to_it() -> None:
    told = (*RACKS, NodeAttributes(node="new", rack="r0"), NodeAttributes(node="newer", rack="r7"))
    logbook = Logbook.from_records(STRUCK, WATCHED, attributes=told)
    asked_now = Instants.now(("n0", "n1", "n9", "new", "newer", "stranger"), 100 * HOUR_S)
    rates = logbook.statuses(asked_now, ("rack_rate",)).values[:, 0].tolist()
    assert rates[0] == pytest.approx((160 + 10) / (160 / 900 * 400 + 10))
    assert rates[1] < rates[0]  # its own incidents tell nothing of its rack
    assert rates[2] < 0.2
    assert rates[3] > 1.5  # it was never watched, and its rack is known
    assert rates[4:] == [1.0, 1.0]  # of an unknown rack, and of an unknown node
    before = logbook.statuses(Instants.now(("n0", "n9"), 50 * HOUR_S), ("rack_rate",))
    assert before.values[:, 0].tolist() == [1.0, 1.0]


def test_an_attribute_that_many_nodes_lack_is_no_covariate_and_is_named() -> None:
    gapless = Logbook.from_records(STRUCK, WATCHED, attributes=RACKS)
    assert "rack_rate" in gapless.covariates()
    assert "sku_rate" not in gapless.covariates()
    assert gapless.sparse_attributes() == {}
    gappy = Logbook.from_records(STRUCK, WATCHED, attributes=RACKS[:9])
    assert "rack_rate" not in gappy.covariates()
    assert gappy.sparse_attributes() == {"rack": 9}


def test_before_a_node_was_installed_it_was_another_one_under_its_name() -> None:
    """It would else be known early that the first one is going to be replaced."""
    told = [NodeAttributes(node="a", installed=20 * HOUR_S)]
    logbook = Logbook.from_records([], [Watch(node="a", since=0.0)], attributes=told)
    instants = Instants(nodes=("a", "a"), at=np.array([15.0, 25.0]) * HOUR_S)
    assert logbook.statuses(instants, ("age_h",)).values[:, 0].tolist() == [15.0, 5.0]


def test_an_unknown_node_has_the_status_of_a_new_one_and_is_not_watched() -> None:
    logbook = worked_example().logbook
    asked = Instants.now(["stranger"], 8 * HOUR_S)
    status = dict(zip(COVARIATES, logbook.statuses(asked, COVARIATES).values[0], strict=True))
    assert {name for name in status if status[name]} == {"rack_rate", "sku_rate"}  # as all: 1
    assert logbook.are_watched(asked).tolist() == [False]
    assert len(logbook.uptimes(asked, until=9 * HOUR_S)) == 0


def test_nothing_at_all_makes_empty_tables() -> None:
    logbook = Logbook.from_records([])
    assert len(logbook.returns()) == 0
    assert len(logbook.snapshots(1, until=HOUR_S, rng=np.random.default_rng(1))) == 0
    uptimes = logbook.uptimes(logbook.returns(), until=HOUR_S)
    assert uptimes.statuses.values.shape == (0, 5)


@pytest.mark.parametrize(
    "name", ["uptime", "up_h:x", "incidents:", "mtbi_h:", "validated_h:x", "", ":x"]
)
def test_a_covariate_that_does_not_exist_is_named_with_those_that_do(name: str) -> None:
    with pytest.raises(ValueError, match=f'covariate "{name}"; known: up_h, .*mtbi_h:CATEGORY'):
        worked_example().logbook.statuses(Instants.now(["a"], 0.0), [name])


@pytest.mark.parametrize(
    "stretch", [(2.0, 1.0), (float("nan"), None), (1.0, float("inf")), (float("-inf"), 1.0)]
)
def test_a_stretch_that_runs_backwards_or_never_is_refused(stretch: Any) -> None:
    start, end = stretch
    with pytest.raises(ValueError, match=r"watch of a (ends before it starts|begins at)"):
        Watch(node="a", since=start, until=end)
    if end == 1.0 < start:
        return  # the test below is about incidents
    with pytest.raises(ValueError, match="incident of a begins at"):
        Incident(node="a", category="x", start=start, end=end)


def test_an_incident_that_a_clock_dated_after_its_end_was_short_and_then() -> None:
    dated = Incident(node="a", category="x", start=9.0, end=4.0)
    columns = IncidentColumns.from_incidents(
        [dated, Incident(node="a", category="x", start=1.0, end=2.0)]
    )
    assert (columns.start.tolist(), columns.end.tolist()) == ([4.0, 1.0], [4.0, 2.0])
    assert open_incidents(columns, 5.0) == {}


def validation(at: float, judgement: str, code: str = "") -> Validation:
    return Validation(node="a", at=at, judgement=Judgement(judgement), code=code)


def test_a_defect_that_a_validation_found_lasts_until_one_finds_the_node_healthy() -> None:
    told = [
        validation(9.0, "defective", "NODE_HEALTH.XID"),
        validation(1.0, "defective", "GEMM.TFLOPS.FP32"),
        validation(2.0, "defective", "COLLECTIVE.BUSBW_GBPS"),  # still the first one
        validation(3.0, "unknown"),
        validation(4.0, "healthy"),
        validation(5.0, "healthy"),
    ]
    first = Incident(node="a", category="gemm", start=1.0, end=4.0)
    second = Incident(node="a", category="node_health", start=9.0)
    assert defects_as_incidents(told) == [first, second]
    mended = Repair(node="a", start=9.5, end=11.0)
    assert defects_as_incidents(told, [mended])[1].end == 11.0
    assert defects_as_incidents(told, [Repair(node="b", start=9.5, end=11.0)])[1].end is None
