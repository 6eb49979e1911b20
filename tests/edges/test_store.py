"""The history keeps its records, in SQLite and in a real PostgreSQL alike."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import string
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from dataclasses import fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from anubis.core.errors import BusyNodesError, StoreError, StoreUnreachableError
from anubis.core.fabric import Cable, Fabric, Link, Nic, Part, Switch
from anubis.core.history.defects import Defect
from anubis.core.history.events import (
    EventRecord,
    FleetUpgraded,
    IncidentReported,
    JobAllocated,
    NodeAdded,
)
from anubis.core.history.status import Incident, Instants, Job, Repair, Validation, Watch
from anubis.core.records import (
    UNNAMED,
    Assessment,
    BatchVerdict,
    Campaign,
    CampaignKind,
    CriteriaSet,
    Ended,
    Execution,
    Judgement,
    Layout,
    Limit,
    Node,
    NodeVerdict,
    PartVerdict,
    Readings,
    Result,
    SelectionPolicy,
    Series,
    Verdict,
    Workload,
)
from anubis.core.select.decision import Outlook, decide
from anubis.core.select.selection import learn_detection
from anubis.store import codec, database, database_errors, row_mapping
from anubis.store.campaigns import CAMPAIGNS, CampaignRow
from anubis.store.database import HEAD
from anubis.store.database_errors import insist
from anubis.store.decisions import DECISIONS
from anubis.store.history import History
from anubis.store.holds import LASTS_S, holder_of
from anubis.store.imports import Forgotten
from anubis.store.node_events import Kept
from tests.edges.executions import GEMM, campaign, execution
from tests.edges.postgresql import Server, ask, engine_for
from tests.edges.stamps import stamp
from tests.forked import ForkServer, Started
from tests.patience import LIMIT_S, eventually

RELEASES = Path(__file__).parents[1] / "releases"

pytestmark = pytest.mark.long

# --- the databases -------------------------------------------------------------------------


numbers = count()


def new_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "postgresql":
        server: Server = request.getfixturevalue("server")
        return server.new_database()
    return f"sqlite:///{folder / f'history_{next(numbers)}'}.db"


@pytest.fixture(scope="module")
def database_with_tables(server: Server) -> str:
    """Its name, on that server, which copies it sooner than it makes tables."""
    url = server.new_database()
    History.open(url).close()
    return str(sa.make_url(url).database)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database, or of one with tables if the test asks for the history in it."""
    if request.param == "postgresql" and "history" in request.fixturenames:
        server: Server = request.getfixturevalue("server")
        return server.new_database(like=request.getfixturevalue("database_with_tables"))
    return new_database(request.param, request, tmp_path)


@pytest.fixture
def history(url: str) -> Iterator[History]:
    with History.open(url) as opened:
        yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lasting_history(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[History]:
    folder = tmp_path_factory.mktemp("lasting")
    with History.open(new_database(request.param, request, folder)) as opened:
        yield opened


N1, NO_ENVIRONMENT = map(row_mapping.digest_of, ('["n1"]', "{}"))

# --- what is kept --------------------------------------------------------------------------


def slow(judgement: Judgement, *participants: str) -> Verdict:
    return Verdict(
        participants=participants,
        benchmark="gemm@1",
        judgement=judgement,
        code="below-criterion",
        reason="slow",
        similarity=0.5,
        alpha=0.95,
    )


def spelled(value: Any) -> Any:
    """A value as something that compares by every bit of its samples."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tobytes()
    if is_dataclass(value):
        return type(value), {
            item.name: spelled(getattr(value, item.name)) for item in fields(value)
        }
    if isinstance(value, Mapping):
        return {key: spelled(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value), [spelled(item) for item in value]
    return type(value), value


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
finite = st.floats(allow_nan=False, allow_infinity=False)
samples = st.one_of(
    st.lists(st.floats(), max_size=20),
    st.tuples(finite, st.integers(128, 400)).map(lambda drawn: [drawn[0]] * drawn[1]),
).map(lambda numbers: np.array(numbers, dtype=np.float64))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | finite | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)


# Fields that do not take every value of their type; the bounds only need to lie inside theirs.
bounded = {
    "reference": st.lists(finite, min_size=1, max_size=20).map(np.array),
    "alpha": st.floats(0.01, 0.99),
    "tail": st.floats(0.0, 1.0),
    "false_alarm_rate": st.floats(0.001, 0.4),
    "min_units": st.integers(3, 99),
    "retries": st.integers(0, 9),
    "duration_s": st.floats(5e-324, 1e308),
    "min_nodes": st.integers(2, 99),
    "p0": st.floats(0, 1) | st.just("job"),
    "counts": st.just(()),  # metrics of the same program
    "silence_d": st.floats(0, 1e6),
    **dict.fromkeys(["horizon_h", "half_life_h"], st.floats(0.1, 1e6)),
    **dict.fromkeys(["prior", "category_prior"], st.floats(1e-6, 1e6)),
}


@st.composite
def limits(draw: st.DrawFn) -> Limit:
    """Bounds that keep something: one of them, or a range."""
    low, high = sorted(draw(st.tuples(st.floats(0, 1e308), st.floats(0, 1e308))))
    bounds = draw(
        st.sampled_from([{"equals": low}, {"at_most": high}, {"at_least": low, "at_most": high}])
    )
    texts = ("benchmark", "metric", "source", "action", "table")
    return Limit(**bounds, **{name: draw(words) for name in texts})


@st.composite
def batch_verdicts(draw: st.DrawFn) -> BatchVerdict:
    """Columns that belong together; some compared with nothing."""
    said = draw(anything(Verdict))
    units = draw(st.lists(st.tuples(st.lists(words, max_size=2).map(tuple), words), max_size=4))
    similarities = [draw(st.none() | st.floats())] * len(units)
    columns = {
        "participants": tuple(participants for participants, _ in units),
        "devices": tuple(device for _, device in units),
        "similarities": None if None in similarities else np.array(similarities),
    }
    common = ("benchmark", "parameters", "metric", "judgement", "code", "reason", "alpha")
    return BatchVerdict(**columns, **{name: getattr(said, name) for name in common})


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Switches, a link between two of them, and NICs on one of them."""
    switches = draw(st.lists(anything(Switch), min_size=2, max_size=3, unique_by=lambda s: s.id))
    cables = draw(st.lists(anything(Cable), min_size=1, max_size=3).map(tuple))
    nics = draw(st.lists(anything(Nic), max_size=3, unique_by=lambda nic: (nic.node, nic.rail)))
    return Fabric(
        switches=tuple(switches),
        links=(Link(a=switches[0].id, b=switches[1].id, cables=cables),),
        nics=tuple(replace(nic, switch=switches[-1].id) for nic in nics),
    )


def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of that type; a field that is added to a record is drawn from then on."""
    known = {str: words, float: finite, int: st.integers(-(2**31), 2**31 - 1)}
    if hint in known:
        return known[hint]
    if hint is BatchVerdict:
        return batch_verdicts()
    if hint is Limit:
        return limits()
    if hint is Fabric:
        return fabrics()
    if hint is Readings:
        return anything(tuple[Series, ...]).map(Readings.pack)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        drawn = {item.name: anything(hints[item.name]) for item in fields(hint)}
        if "metrics" in drawn:
            drawn["metrics"] = drawn["metrics"].filter(len)
        return st.builds(
            hint, **drawn | {name: bounded[name] for name in drawn.keys() & bounded.keys()}
        )
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is np.ndarray:
        return samples
    if origin is tuple:
        return st.lists(anything(arguments[0]), max_size=3).map(tuple)
    if origin is Mapping or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return st.dictionaries(words, plain, max_size=3)
    if origin is types.UnionType:
        return st.one_of([anything(item) for item in arguments])
    return st.from_type(hint)


ids = (f"campaign-{number}" for number in count())
thorough = settings(
    deadline=None, max_examples=10, report_multiple_bugs=False, phases=[Phase.generate]
)


@thorough
@given(batches=st.lists(st.lists(anything(Execution), max_size=4), max_size=3))
def test_executions_come_back_bit_for_bit_in_the_order_of_their_arrival(
    lasting_history: History, batches: list[list[Execution]]
) -> None:
    name = next(ids)
    lasting_history.campaigns.begin(campaign(name))
    arrived: dict[tuple[str, int], Execution] = {}
    for batch in batches:
        lasting_history.executions.record(name, batch)
        for one in batch:
            arrived.setdefault((one.step.id, one.attempt), one)
    assert spelled(lasting_history.executions.read(name)) == spelled(list(arrived.values()))


@thorough
@given(drawn=anything(Campaign))
def test_a_campaign_comes_back_as_it_was_begun(lasting_history: History, drawn: Campaign) -> None:
    begun = replace(drawn, id=next(ids))
    lasting_history.campaigns.begin(begun)
    assert spelled(lasting_history.campaigns.get(begun.id)) == spelled(begun)


@thorough
@given(
    assessment=anything(Assessment),
    criteria=anything(tuple[CriteriaSet, ...]),
    finished_at=finite,
)
def test_verdicts_come_back_with_the_criteria_they_were_judged_by(
    lasting_history: History,
    assessment: Assessment,
    criteria: tuple[CriteriaSet, ...],
    finished_at: float,
) -> None:
    name = next(ids)
    lasting_history.campaigns.begin(campaign(name))
    lasting_history.assessments.conclude(name, assessment, criteria, finished_at)
    kept = replace(assessment, to_confirm=frozenset())  # which only the campaign needs
    assert spelled(lasting_history.assessments.find(name)) == spelled(kept)
    concluded = lasting_history.campaigns.get(name)
    assert spelled(concluded.criteria) == spelled(criteria)
    assert concluded.finished_at == finished_at


def test_the_numbers_that_formats_lose_are_kept_bit_for_bit(history: History) -> None:
    awkward = [5e-324, -5e-324, 2.2250738585072009e-308, -0.0, math.inf, -math.inf, math.nan, 0.1]
    paying = np.repeat(awkward, 300)
    batch = [execution("raw", *awkward), execution("packed", *paying)]
    history.campaigns.begin(campaign())
    history.executions.record("c1", batch)
    kept = [next(iter(one.result.series)).samples for one in history.executions.read("c1")]
    assert [array.tobytes() for array in kept] == [np.array(awkward).tobytes(), paying.tobytes()]


def test_values_that_are_no_numbers_survive_a_document() -> None:
    unsure = replace(slow(Judgement.UNKNOWN), similarity=math.nan, alpha=-math.inf)
    kept = codec.load(Verdict, codec.dump(unsure))
    assert kept.similarity is not None
    assert math.isnan(kept.similarity)
    assert kept.alpha == -math.inf


def test_a_document_that_lacks_a_younger_field_is_filled_with_its_default() -> None:
    assert codec.load(Node, '{"name":"n1","sku":"x"}') == Node(name="n1", sku="x", address="")


# --- the verbs -----------------------------------------------------------------------------


def test_an_execution_that_is_recorded_twice_counts_once_and_the_first_stays(
    history: History,
) -> None:
    first, second, again = execution("a", 1.0), execution("b", 2.0), execution("a", 9.0)
    history.campaigns.begin(campaign())
    history.executions.record("c1", [first, first])
    history.executions.record("c1", [again, second])
    assert spelled(history.executions.read("c1")) == spelled([first, second])


def test_another_attempt_and_another_campaign_are_no_repetition(history: History) -> None:
    history.campaigns.begin(campaign("c1"))
    history.campaigns.begin(campaign("c2"))
    history.executions.record("c1", [execution("a", attempt=1), execution("a", attempt=2)])
    history.executions.record("c2", [execution("a", attempt=1)])
    assert [one.attempt for one in history.executions.read("c1")] == [1, 2]
    assert [one.attempt for one in history.executions.read("c2")] == [1]


def test_a_batch_that_fails_leaves_nothing_behind_and_harms_no_later_one(
    history: History,
) -> None:
    broken = replace(
        execution("b"),
        result=Result(series=Readings(Layout((("m", "d", 1),)), "no numbers")),  # type: ignore[arg-type]
    )
    history.campaigns.begin(campaign())
    with pytest.raises(ValueError, match="no numbers"):
        history.executions.record("c1", [execution("a", 1.0), broken])
    assert history.executions.read("c1") == []
    history.executions.record("c1", [execution("a", 1.0)])
    assert spelled(history.executions.read("c1")) == spelled([execution("a", 1.0)])


def test_later_verdicts_replace_the_earlier_ones(history: History) -> None:
    history.campaigns.begin(campaign())
    before = Assessment(
        alone=(slow(Judgement.DEFECTIVE, "n1"), slow(Judgement.HEALTHY, "n1", "n2")),
        nodes=(NodeVerdict(node="n1", judgement=Judgement.DEFECTIVE, code="c", reason="r"),),
    )
    after = Assessment(alone=(replace(slow(Judgement.HEALTHY, "n1"), cause="slow"),), nodes=())
    history.assessments.conclude("c1", before, (), 5.0)
    history.assessments.conclude("c1", after, (), 6.0)
    assert history.assessments.find("c1") == after
    assert history.campaigns.get("c1").finished_at == 6.0


def test_a_campaign_without_verdicts_has_no_assessment(history: History) -> None:
    history.campaigns.begin(campaign())
    assert history.assessments.find("c1") is None


def test_an_absent_campaign_is_named_with_the_closest_known_one(history: History) -> None:
    history.campaigns.begin(campaign("accept-2026"))
    for question in (
        history.campaigns.get,
        history.executions.read,
        history.assessments.find,
        lambda name: history.executions.record(name, []),
        lambda name: history.assessments.conclude(name, Assessment(alone=(), nodes=()), (), 1.0),
        lambda name: history.campaigns.claim(name).__enter__(),
    ):
        with pytest.raises(StoreError, match=r'"accept-2025".*did you mean "accept-2026"'):
            question("accept-2025")


def test_the_same_campaign_cannot_begin_twice(history: History) -> None:
    history.campaigns.begin(campaign("c1"))
    with pytest.raises(StoreError, match='campaign "c1" exists already; resume it'):
        history.campaigns.begin(campaign("c1", kind=CampaignKind.VALIDATE))
    assert history.campaigns.get("c1").kind is CampaignKind.ACCEPT


def test_campaigns_are_listed_newest_first_and_the_latest_is_found(history: History) -> None:
    assert history.campaigns.latest() is None
    # the clock was behind when the last was begun
    for name, created_at, finished_at in (("a", 8.0, None), ("b", 9.0, None), ("c", 2.0, 3.0)):
        history.campaigns.begin(campaign(name, created_at=created_at, finished_at=finished_at))
    row = CampaignRow(
        id="c",
        cluster=UNNAMED,
        kind=CampaignKind.ACCEPT,
        suite="quick",
        created_at=2.0,
        finished_at=3.0,
        nodes=1,
        judgement=None,
    )
    assert history.campaigns.glance("c") == row
    assert history.campaigns.newest(2) == [
        row,
        replace(row, id="b", created_at=9.0, finished_at=None),
    ]
    assert [
        history.campaigns.latest(),
        history.campaigns.latest(True),
        history.campaigns.latest(False),
    ] == ["c", "c", "b"]


def test_a_campaign_began_when_it_was_begun_unless_its_conclusion_corrects_that(
    history: History,
) -> None:
    for name in ("c1", "c2"):
        history.campaigns.begin(campaign(name, created_at=5.0))
    history.assessments.conclude("c1", Assessment(alone=(), nodes=()), (), 7.0)
    history.assessments.conclude("c2", Assessment(alone=(), nodes=()), (), 8.0, created_at=6.0)
    begun_and_ended = {(row.created_at, row.finished_at) for row in history.campaigns.newest(2)}
    assert begun_and_ended == {(5.0, 7.0), (6.0, 8.0)}


def test_shared_environments_and_participants_are_stored_once(history: History, url: str) -> None:
    history.campaigns.begin(campaign())
    history.executions.record("c1", [execution(f"step-{number}", 1.0) for number in range(20)])
    history.executions.record("c1", [execution("another", 1.0)])
    with History.open(url) as later:
        later.executions.record("c1", [execution("after a restart", 1.0)])
    assert ask(url, "SELECT count(*) FROM environments") == 1
    assert ask(url, "SELECT count(*) FROM participants") == 1
    assert len(history.executions.read("c1")) == 22


def test_a_reason_with_bytes_that_are_no_text_is_kept_readable(history: History) -> None:
    history.campaigns.begin(campaign())
    history.executions.record("c1", [replace(execution("a"), reason="core\0dumped \udcff there")])
    assert history.executions.read("c1")[0].reason == "core\ufffddumped ? there"


def test_a_document_of_another_anubis_is_refused_by_campaign_and_field(
    history: History, url: str
) -> None:
    history.campaigns.begin(campaign())
    ask(url, """UPDATE campaigns SET policy = '{"alpha":0.95,"mood":"good"}'""")
    with closing(engine_for(url).raw_connection()) as connection:
        stamp(connection, CAMPAIGNS)
        connection.commit()
    with pytest.raises(StoreError, match=r'campaign "c1" cannot be read: Policy has no .*"mood"'):
        history.campaigns.get("c1")


# --- experience ----------------------------------------------------------------------------


def took(step: str, duration_s: float, **changes: Any) -> Execution:
    return replace(execution(step, 1.0), duration_s=duration_s, **changes)


def test_the_duration_of_a_benchmark_is_the_average_of_its_measured_runs(
    history: History,
) -> None:
    for name, shift in (("c1", 0.0), ("c2", 2.0)):
        history.campaigns.begin(campaign(name))
        small = replace(took("b", 7.0).step, workload=Workload.make("gemm", "1", {"size": 1}))
        history.executions.record(
            name,
            [
                took("a", 1.0 + shift),
                replace(took("b", 7.0), step=small),
                took("c", 600.0, ended=Ended.TIMED_OUT),
                took("d", 0.0, ended=Ended.NOT_APPLICABLE),
            ],
        )
    assert history.only().experience.durations_s() == {
        ("gemm", GEMM.parameters): 2.0,
        ("gemm", '{"size":1}'): 7.0,
    }


def test_findings_are_the_defects_of_single_nodes_once_each(history: History) -> None:
    history.campaigns.begin(campaign("c1"))
    bad = Judgement.DEFECTIVE
    said = (
        slow(bad, "n1"),
        replace(slow(bad, "n1"), metric="another"),
        replace(slow(bad, "n1"), benchmark="copy"),
        slow(bad, "n1", "n2"),  # a pair: whom to blame stands in a verdict of its own
        slow(Judgement.UNKNOWN, "n3"),
    )
    history.assessments.conclude("c1", Assessment(alone=said, nodes=()), (), finished_at=5.0)
    assert history.only().experience.failed_tests() == {("c1", "n1"): {"copy", "gemm@1"}}


def test_decisions_come_back_as_they_were_taken_the_latest_first(history: History) -> None:
    known = learn_detection(
        [Defect(found_by=frozenset({"gemm"}))], ["copy", "gemm"], prior=0.05, category_prior=5
    )
    outlook = Outlook(
        probabilities=np.array([0.2, 1e-9]),
        proven=np.array([True, True]),
        mixes=[{}, {}],
        ages_s=np.full((2, 2), np.inf),
        detection=known,
        durations_s=[1.0, 2.5],
        assumed=("ÿ: no model",),
    )
    taken = [
        decide(event, outlook, SelectionPolicy(), at=at)
        for at, event in enumerate(
            [
                JobAllocated(nodes=("n1", "n2"), duration_s=1 / 3),
                IncidentReported(nodes=("n1", "n2"), category="netz"),
            ]
        )
    ]
    for decision in taken:
        history.only().decisions.add(decision)
    assert history.only().decisions.newest() == taken[::-1]
    assert history.only().decisions.newest(limit=1) == taken[1:]


def test_event_records_are_returned_in_order_of_time_as_first_reported(
    history: History,
) -> None:
    events = [
        NodeAdded(nodes=("ÿ",)),
        FleetUpgraded(nodes=("n1", "n2"), criteria="refused"),
        IncidentReported(nodes=("n1",), category="netz"),
    ]
    told = [EventRecord(id=event.kind, at=5.0 - at, event=event) for at, event in enumerate(events)]
    for event_record in told:
        history.only().event_records.add(event_record)
    history.only().event_records.add(replace(told[0], at=99.0))
    assert history.only().event_records.all() == told[::-1]


# --- parts, and the whole ------------------------------------------------------------------


LEAF, SPINE = Part("switch", "leaf3"), Part("switch", "spine1")


def dead(*parts: Part) -> PartVerdict:
    return PartVerdict(
        parts=parts,
        subject=" or ".join(f"switch {part.name}" for part in parts),
        judgement=Judgement.DEFECTIVE,
        code="NETWORK.SWITCH",
        reason="40 of 48 flows across it are slow",
        confidence=0.97,
        evidence=("n1 to n9: 2 GB/s",),
    )


def test_all_verdicts_on_a_part_are_found_across_campaigns(history: History, url: str) -> None:
    for name, verdict in (("c1", dead(LEAF)), ("c2", dead(SPINE, LEAF)), ("c3", dead(SPINE))):
        history.campaigns.begin(campaign(name, kind=CampaignKind.SCAN))
        history.assessments.conclude(
            name, Assessment(alone=(), nodes=(), parts=(verdict,)), (), finished_at=1.0
        )
    found = ask(url, f"SELECT count(*) FROM part_verdicts WHERE parts LIKE '%{codec.dump(LEAF)}%'")
    assert found == 2


def test_the_judgement_of_the_whole_is_stored_with_the_campaign(history: History, url: str) -> None:
    well = NodeVerdict(node="n1", judgement=Judgement.HEALTHY, code="OK", reason="")
    history.campaigns.begin(campaign())
    assert ask(url, "SELECT judgement FROM campaigns") is None
    history.assessments.conclude("c1", Assessment(alone=(), nodes=(well,)), (), finished_at=1.0)
    assert ask(url, "SELECT judgement FROM campaigns") == "healthy"
    with_a_part = Assessment(alone=(), nodes=(well,), parts=(dead(LEAF),))
    history.assessments.conclude("c1", with_a_part, (), finished_at=2.0)
    assert ask(url, "SELECT judgement FROM campaigns") == "defective"
    assert history.assessments.find("c1") == with_a_part


# --- what happened to nodes ----------------------------------------------------------------


def incident(node: str, start: float, end: float | None = None, category: str = "x") -> Incident:
    return Incident(node=node, category=category, start=start, end=end)


told = st.tuples(words, words.filter(len), st.tuples(finite, finite | st.none()))


@thorough
@given(batch=st.lists(told, max_size=5))
def test_stored_incidents_are_returned_as_reported(
    lasting_history: History, batch: list[tuple[str, str, tuple[float, float | None]]]
) -> None:
    name = next(ids)
    expected = {}
    for node, category, (start, end) in batch:
        first, last = (start, None) if end is None else sorted((start, end))
        one = incident(f"{name}/{node}", first, last, category)
        expected.setdefault((one.node, one.start, one.category), one)
    lasting_history.cluster(UNNAMED).incidents.add(expected.values())
    mine = [
        one
        for one in lasting_history.cluster(UNNAMED).incidents.all()
        if one.node.startswith(f"{name}/")
    ]
    assert {(one.node, one.start, one.category): one for one in mine} == expected


def test_an_incident_added_twice_is_kept_once(history: History) -> None:
    batch = [incident("n1", 1.0, 2.0), incident("n1", 1.0, 2.0, "y"), incident("n2", 1.0)]
    assert history.only().incidents.add([*batch, batch[0]]) == Kept(new=3, completed=0, known=0)
    assert history.only().incidents.add(batch) == Kept(new=0, completed=0, known=3)
    assert history.only().incidents.all() == batch


def test_an_incident_is_completed_by_its_end_and_does_not_begin_again(history: History) -> None:
    history.only().incidents.add([incident("n1", 1.0)])
    assert history.only().incidents.add([incident("n1", 1.0, 5.0)]) == Kept(
        new=0, completed=1, known=0
    )
    assert history.only().incidents.add([incident("n1", 1.0)]) == Kept(new=0, completed=0, known=1)
    assert history.only().incidents.all() == [incident("n1", 1.0, 5.0)]
    history.only().incidents.add([incident("n1", 1.0, 4.0), incident("n1", 1.0)])
    assert history.only().incidents.all() == [incident("n1", 1.0, 4.0)]


def forgotten(incidents: int = 0, reopened: int = 0, watches: int = 0) -> Forgotten:
    counts = {"incidents": incidents, "reopened": reopened, "watches": watches}
    return Forgotten(**counts, nodes=0, campaign="")


def test_an_import_is_withdrawn_with_the_records_that_it_alone_brought(history: History) -> None:
    known, told = incident("n1", 1.0), incident("n2", 2.0, 3.0)
    watch = Watch(node="n1", since=0.0, until=9.0)
    history.only().incidents.add([known])
    history.only().watches.add([watch])
    first = history.imports.add(
        "a.csv", 10.0, UNNAMED, [told], [watch, Watch(node="n2", since=1.0)]
    )
    before = (history.only().incidents.all(), history.only().watches.all())
    second = history.imports.add(
        "b.csv",
        11.0,
        UNNAMED,
        [replace(known, end=5.0), told, incident("n3", 4.0)],
        [replace(watch, until=8.0), Watch(node="n3", since=4.0)],
    )
    assert history.imports.newest() == [second, first]
    assert second.kept == Kept(new=1, completed=1, known=1)
    assert history.only().incidents.all()[0] == replace(known, end=5.0)
    assert history.imports.forget(second.key) == forgotten(incidents=1, reopened=1, watches=1)
    assert (history.only().incidents.all(), history.only().watches.all()) == before
    assert history.imports.forget(first.key) == forgotten(incidents=1, watches=1)
    assert (
        history.only().incidents.all(),
        history.only().watches.all(),
        history.imports.newest(),
    ) == (
        [known],
        [watch],
        [],
    )
    with pytest.raises(StoreError, match="import 7 is not in the history; known: there is none"):
        history.imports.forget(7)


def test_a_corrected_end_outlives_the_import_of_the_first(history: History) -> None:
    history.only().incidents.add([incident("n1", 1.0)])
    imported = history.imports.add("a.csv", 10.0, UNNAMED, [incident("n1", 1.0, 5.0)], [])
    history.only().incidents.add([incident("n1", 1.0, 6.0)])
    assert history.imports.forget(imported.key) == forgotten()
    assert history.only().incidents.all() == [incident("n1", 1.0, 6.0)]


def test_parameters_of_any_length_are_kept(history: History) -> None:
    letters = "".join(Random(0).choices(string.ascii_letters, k=9000))  # hard to compress
    long = Workload.make("gemm", "1", {"shapes": letters})
    history.campaigns.begin(campaign())
    history.executions.record(
        "c1", [replace(took("a", 7.0), step=replace(took("a", 7.0).step, workload=long))]
    )
    assert history.only().experience.durations_s() == {("gemm", long.parameters): 7.0}


def test_a_decision_of_another_anubis_is_one_clear_error(history: History, url: str) -> None:
    row = """VALUES (1, 1.0, 'tick', 'skip', '{"mood": "good"}', 'unnamed', 0)"""
    columns = "key, at, event, action, document, cluster, checksum"
    ask(url, f"INSERT INTO decisions ({columns}) {row}")
    with closing(engine_for(url).raw_connection()) as connection:
        stamp(connection, DECISIONS)
        connection.commit()
    with pytest.raises(
        StoreError, match=r'a decision cannot be read: .*"mood".*another version of Anubis'
    ):
        history.only().decisions.newest()


def test_the_later_of_two_ends_of_a_watch_counts_until_the_node_is_removed(
    history: History,
) -> None:
    watch = Watch(node="n1", since=1.0, until=5.0)
    history.only().watches.add([watch, replace(watch, until=3.0)])
    history.only().watches.add([replace(watch, until=4.0)])
    assert history.only().watches.all() == [watch]
    history.only().watches.add([replace(watch, until=None)])
    history.only().watches.add([watch])
    assert history.only().watches.all() == [replace(watch, until=None)]
    history.only().watches.end(["n1", "nobody"], at=9.0)
    assert history.only().watches.all() == [replace(watch, until=9.0)]
    history.only().watches.end(["n1"], at=12.0)
    assert history.only().watches.all()[0].until == 9.0


def test_repairs_and_jobs_come_back_and_are_completed_too(history: History) -> None:
    mended = Repair(node="n1", start=1.0, end=2.0, action="a new fan\0")
    history.only().repairs.add([replace(mended, end=None), replace(mended, start=1.5)])
    history.only().repairs.add([mended])
    readable = replace(mended, action="a new fan\ufffd")
    assert history.only().repairs.all() == [readable, replace(readable, start=1.5)]
    later = Job(id="7", nodes=("n2", "n1"), start=5.0, planned_s=60.0)
    sooner = Job(id="8", nodes=("n1",), start=4.0)
    assert history.only().jobs.add([later, sooner]) == Kept(new=2, completed=0, known=0)
    ended = replace(later, end=6.0)
    assert history.only().jobs.add([ended, sooner]) == Kept(new=0, completed=1, known=1)
    assert history.only().jobs.all() == [sooner, ended]


def concluded(
    history: History,
    name: str,
    at: float,
    judgement: Judgement,
    measured: Sequence[Execution] = (),
    **more: Any,
) -> None:
    history.campaigns.begin(campaign(name, **more))
    history.executions.record(name, measured)
    verdict = NodeVerdict(node="n1", judgement=judgement, code="GEMM.TFLOPS", reason="r")
    history.assessments.conclude(name, Assessment(alone=(), nodes=(verdict,)), (), finished_at=at)


def test_validations_are_the_conclusions_of_finished_campaigns(
    history: History,
) -> None:
    pair = execution("pair@1/n1+n2", 1.0)
    pair = replace(
        pair,
        step=replace(
            pair.step, participants=("n2", "n1"), workload=Workload.make("pair", "1", {"size": 1})
        ),
    )
    crash = replace(execution("disk@1/n1"), ended=Ended.FAILED)
    crash = replace(crash, step=replace(crash.step, workload=Workload.make("disk", "1", {})))
    measured = [pair, execution("a", 1.0), execution("b", 1.0), crash]
    concluded(history, "second", 9.0, Judgement.HEALTHY, measured)
    concluded(history, "first", 5.0, Judgement.DEFECTIVE)
    concluded(history, "imported", 7.0, Judgement.DEFECTIVE, measured, kind=CampaignKind.IMPORT)
    history.campaigns.begin(campaign("unfinished"))
    history.executions.record("unfinished", measured)
    first = Validation(
        node="n1",
        at=5.0,
        judgement=Judgement.DEFECTIVE,
        code="GEMM.TFLOPS",
        campaign="first",
        began=1.0,
    )
    second = replace(
        first,
        at=9.0,
        judgement=Judgement.HEALTHY,
        benchmarks=("gemm", "pair"),
        campaign="second",
    )
    assert history.only().experience.validations() == [first, second]
    assert history.only().experience.validations(since=9.0) == [second]
    assert history.only().experience.validations(since=9.5) == []


def test_a_node_is_watched_from_its_first_validation_on_until_it_is_removed(
    history: History,
) -> None:
    concluded(history, "imported", 3.0, Judgement.HEALTHY, kind=CampaignKind.IMPORT)
    concluded(history, "first", 5.0, Judgement.HEALTHY)
    concluded(history, "second", 7.0, Judgement.DEFECTIVE)
    told = Watch(node="n1", since=1.0, until=6.0)  # as a file tells that ends then
    history.only().watches.add([told])
    assert history.only().watches.all() == [told, Watch(node="n1", since=5.0)]
    history.only().watches.end(["n1"], at=9.0)
    concluded(history, "third", 11.0, Judgement.HEALTHY)
    assert history.only().watches.all() == [
        told,
        Watch(node="n1", since=5.0, until=9.0),
        Watch(node="n1", since=11.0),
    ]


def test_a_logbook_has_reported_and_found_incidents(history: History) -> None:
    concluded(history, "c1", 5 * 3600.0, Judgement.DEFECTIVE)
    concluded(history, "c2", 7 * 3600.0, Judgement.HEALTHY)
    history.only().incidents.add([incident("n1", 8 * 3600.0, 9 * 3600.0, "network")])
    history.only().repairs.add([Repair(node="n1", start=10 * 3600.0, end=11 * 3600.0)])
    history.only().watches.add([Watch(node="n1", since=0.0)])
    found = (
        history.only()
        .experience.logbook()
        .statuses(
            Instants.now(["n1"], 12 * 3600.0),
            ["incidents", "incidents:gemm", "incidents:network", "up_h", "validated_h"],
        )
    )
    assert found.values.tolist() == [[2, 1, 1, 1, 5]]


@pytest.mark.parametrize("in_a_writer", [False, True])
def test_rows_written_between_two_statements_of_a_reader_are_no_damage(
    history: History, url: str, *, in_a_writer: bool
) -> None:
    if in_a_writer and url.startswith("sqlite"):
        pytest.skip("a file has one writer")
    history.only().incidents.add([incident("n0", 1.0)])
    numbers = count(1)
    with History.open(url) as another, history.together() if in_a_writer else nullcontext():

        def write(*_: object) -> None:
            another.only().incidents.add([incident(f"n{next(numbers)}", 1.0)])

        sa.event.listen(history._database.engine, "after_cursor_execute", write)
        found = history.only().incidents.all()
    assert incident("n0", 1.0) in found
    assert next(numbers) > 2, "two statements were sent, or more"


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Statements that were sent to any database."""
    sent: list[str] = []

    def keep(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", keep)
    yield sent
    sa.event.remove(sa.Engine, "before_cursor_execute", keep)


def statements_for(many: int, url: str, statements: list[str]) -> int:
    """Number of statements to keep and read a campaign of so many nodes in a history just
    opened."""
    name = f"campaign of {many}"
    nodes = [f"n{number} of {many}" for number in range(many)]
    executions = [
        replace(one, result=replace(one.result, environment={"host": f"{name} {one.step.id}"}))
        for one in (execution(node, 1.0) for node in nodes)
    ]
    bad = Judgement.DEFECTIVE
    assessment = Assessment(
        alone=tuple(slow(bad, name, node) for node in nodes),
        nodes=tuple(NodeVerdict(node=node, judgement=bad, code="c", reason="") for node in nodes),
        parts=tuple(dead(Part("switch", node)) for node in nodes),
    )
    with History.open(url) as history:
        history.campaigns.begin(campaign(name))
        statements.clear()
        history.executions.record(name, executions)
        history.assessments.conclude(name, assessment, (), 1.0)
        assert len(history.executions.read(name)) == many
        assert history.assessments.find(name) == assessment
    return len(statements)


def test_a_large_campaign_takes_no_more_statements_than_a_small_one(
    url: str, statements: list[str]
) -> None:
    History.open(url).close()
    assert statements_for(50, url, statements) == statements_for(1, url, statements)


# --- one driver, and its sudden end --------------------------------------------------------


Child = Callable[..., Started]
IMPORTS = """
import os, sys, time
from dataclasses import replace
from anubis.store.history import History
from anubis.store.database_errors import insist
from tests.edges.executions import execution
"""


@pytest.fixture
def child(verbs: ForkServer, tmp_path: Path) -> Child:
    """Start a program in a process of its own."""

    def start(program: str, *arguments: str) -> Started:
        file = tmp_path / f"child_{next(numbers)}.py"
        file.write_text(IMPORTS + program)
        return verbs.start([str(file), *arguments], None, tmp_path)

    return start


def test_a_killed_writer_loses_nothing_that_record_returned_for(url: str, child: Child) -> None:
    with History.open(url) as history:
        history.campaigns.begin(campaign())
    writer = child(
        "history = History.open(sys.argv[1])\n"
        "for number in range(10_000):\n"
        "    batch = [execution(f'{number}/{half}', number) for half in (0, 1)]\n"
        "    history.executions.record('c1', batch)\n"
        "    print(number, flush=True)\n",
        url,
    )
    last = [int(writer.stdout.readline()) for _ in range(25)][-1]
    writer.send_signal(signal.SIGKILL)
    last = max([last, *map(int, writer.communicate()[0].split())])
    with History.open(url) as history:
        kept = [
            (one.step.id, next(iter(one.result.series)).samples[0])
            for one in history.executions.read("c1")
        ]
    everything = [(f"{number}/{half}", number) for number in range(10_000) for half in (0, 1)]
    assert kept == everything[: len(kept)]
    assert len(kept) % 2 == 0, "half a batch was kept"
    assert len(kept) >= 2 * (last + 1)


def test_a_campaign_has_one_driver_and_a_killed_one_gives_it_back(
    history: History, url: str, child: Child
) -> None:
    history.campaigns.begin(campaign("c1"))
    history.campaigns.begin(campaign("c2"))
    driver = child(
        "with History.open(sys.argv[1]) as history, history.campaigns.claim('c1'):\n"
        "    print('claimed', flush=True)\n"
        "    time.sleep(600)\n",
        url,
    )
    assert driver.stdout.readline() == "claimed\n"
    with pytest.raises(StoreError, match=f'"c1" is being driven by .*process {driver.pid} on .*; '):
        history.campaigns.claim("c1").__enter__()
    with history.campaigns.claim("c2"):
        pass
    driver.kill()
    driver.communicate()

    def can_be_claimed() -> bool:
        with suppress(StoreError), history.campaigns.claim("c1"):
            return True
        return False

    assert eventually(can_be_claimed)  # a server takes a moment to notice that its client is gone


def test_a_claim_that_was_given_back_can_be_taken_again(history: History, url: str) -> None:
    history.campaigns.begin(campaign())
    with History.open(url) as other:
        for one in (history, other, history):
            with one.campaigns.claim("c1"):
                one.executions.record("c1", [execution("a")])
        with history.campaigns.claim("c1"), pytest.raises(StoreError, match="is being driven by"):
            other.campaigns.claim("c1").__enter__()


# --- holds ---------------------------------------------------------------------------------


class Clock:
    """It remains until it is set."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_held_node_is_refused_with_its_holder_and_the_time(history: History) -> None:
    clock = Clock()
    with history.only().holds.hold(["n1", "n2"], 'campaign "c1"', clock):
        clock.now += 10
        sentence = (
            rf'node "n2" of cluster "{UNNAMED}" is held by campaign "c1"'
            rf" \(process {os.getpid()} on .*\) since"
            r" 2023-11-14 22:13:20 UTC; wait"
        )
        with pytest.raises(BusyNodesError, match=sentence):
            history.only().holds.hold(["n2", "n3"], 'campaign "c2"', clock).__enter__()
        assert [hold.node for hold in history.only().holds.current(clock.now)] == ["n1", "n2"]
        with history.only().holds.hold(["n3"], 'campaign "c2"', clock):
            assert len(history.only().holds.current(clock.now)) == 3
    assert history.only().holds.current(clock.now) == []


def test_a_hold_of_a_wrong_clock_ends_two_minutes_after_its_node_is_wanted(
    history: History,
) -> None:
    wrong, clock = Clock(), Clock()
    wrong.now += 86_400 * 365
    holds = history.only().holds
    dying = holds.hold(["n1"], 'campaign "c1"', wrong)
    dying.__enter__()  # its process never ends it
    assert [hold.until for hold in holds.current(clock.now)] == [clock.now + LASTS_S]
    with pytest.raises(BusyNodesError, match="is held by"):
        holds.hold(["n1"], 'campaign "c2"', clock).__enter__()
    clock.now += LASTS_S
    with holds.hold(["n1"], 'campaign "c2"', clock):
        assert [hold.holder for hold in holds.current(clock.now)] == ['campaign "c2"']


def test_a_holder_lets_some_of_its_nodes_go_and_keeps_the_others(history: History) -> None:
    clock = Clock()
    with history.only().holds.hold(["n1", "n2", "n3"], 'campaign "c1"', clock) as held:
        held.let_go(["n1", "n3"])
        with history.only().holds.hold(["n1"], 'campaign "c2"', clock):
            clock.now += LASTS_S / 2
            held.renew()  # of what is left
            holders = {hold.node: hold.holder for hold in history.only().holds.current(clock.now)}
        assert holders == {"n1": 'campaign "c2"', "n2": 'campaign "c1"'}


def test_a_renewed_hold_lasts_and_an_old_one_ends_with_notice_to_its_holder(
    history: History,
) -> None:
    clock = Clock()
    with history.only().holds.hold(["n1"], 'campaign "c1"', clock) as first:
        for _ in range(5):
            clock.now += LASTS_S - 1
            first.renew()
        with pytest.raises(BusyNodesError, match="is held by"):
            history.only().holds.hold(["n1"], 'campaign "c2"', clock).__enter__()
        clock.now += LASTS_S
        with history.only().holds.hold(["n1"], 'campaign "c2"', clock) as second:
            with pytest.raises(StoreError, match=r'campaign "c1" .* no longer holds its nodes'):
                first.renew()
            first.give_back()
            second.renew()
            assert [hold.holder for hold in history.only().holds.current(clock.now)] == [
                'campaign "c2"'
            ]


def test_a_holder_that_restarts_takes_its_nodes_back_and_others_must_wait(
    history: History, url: str, child: Child
) -> None:
    driver = child(
        "history = History.open(sys.argv[1])\n"
        "hold = history.only().holds.hold(['n1'], 'campaign \"c1\"', time.time)\n"
        "hold.__enter__()\n"
        "os.kill(os.getpid(), 9)\n",
        url,
    )
    driver.communicate()
    with pytest.raises(BusyNodesError, match=f"process {driver.pid} on .*if that process died"):
        history.only().holds.hold(["n1"], 'campaign "c2"', time.time).__enter__()
    with history.only().holds.hold(["n1"], 'campaign "c1"', time.time):
        pass
    with history.only().holds.hold(["n1"], 'campaign "c2"', time.time):
        pass


def test_one_of_many_claimants_gets_the_nodes(history: History, url: str) -> None:
    all_begin, all_have_tried = (
        threading.Barrier(6, timeout=LIMIT_S),
        threading.Barrier(6, timeout=LIMIT_S),
    )

    def want(number: int) -> list[str]:
        nodes = [f"n{(number + i) % 6}" for i in range(4)]  # any two want a node in common
        with History.open(url) as own:
            all_begin.wait()
            try:
                with own.only().holds.hold(nodes, f"campaign {number}", lambda: 1.0):
                    all_have_tried.wait()
                    return [hold.holder for hold in own.only().holds.current(2.0)]
            except BusyNodesError:
                all_have_tried.wait()
                return []

    with ThreadPoolExecutor(6) as pool:
        *losers, winner = sorted(pool.map(want, range(6)), key=len)
    assert losers == [[]] * 5
    assert (len(winner), len(set(winner))) == (4, 1)


class ServerDown:
    """A database that cannot be reached for now."""

    dialect = "postgresql"

    def writing(self) -> Any:
        raise StoreUnreachableError("no server answers")


def test_a_server_that_is_away_for_a_while_costs_no_hold(history: History) -> None:
    clock = Clock()
    with history.only().holds.hold(["n1"], 'campaign "c1"', clock) as held:
        server, held._database = held._database, ServerDown()
        clock.now += LASTS_S - 1
        held.renew()
        clock.now += 1
        with pytest.raises(StoreError, match="no server answers"):
            held.renew()
        held._database = server
        held.renew()
        assert [hold.until for hold in history.only().holds.current(clock.now)] == [
            clock.now + LASTS_S
        ]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_connections_that_the_server_dropped_between_two_batches_do_no_harm(
    history: History, url: str
) -> None:
    history.campaigns.begin(campaign())
    ask(
        url,
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    history.executions.record("c1", [execution("a", 1.0)])
    assert len(history.executions.read("c1")) == 1


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_restarted_server_costs_no_claim_and_lets_in_no_second_driver(
    history: History, url: str, server: Server
) -> None:
    history.campaigns.begin(campaign())
    remarks: list[str] = []
    holder = holder_of("c1")
    with (
        history.campaigns.claim("c1"),
        history.only().holds.hold(["n1"], holder, time.time) as held,
        History.open(url) as other,
    ):
        history.executions.record("c1", [execution("a", 1.0)])
        server.stop()
        held.renew()  # no time for it yet
        again = threading.Timer(1.0, server.start)
        again.start()
        insist(lambda: history.executions.record("c1", [execution("b", 1.0)]), remarks.append)
        again.join()
        assert len(remarks) == 1
        assert "trying again for 90 s" in remarks[0]
        with pytest.raises(StoreError, match=f"driven by .*process {os.getpid()} on"):
            other.campaigns.claim("c1").__enter__()
    assert [one.step.id for one in history.executions.read("c1")] == ["a", "b"]


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_after_a_restart_a_campaign_with_a_live_driver_cannot_be_taken(
    history: History, url: str, server: Server, child: Child
) -> None:
    history.campaigns.begin(campaign())
    driver = child(
        "with History.open(sys.argv[1]) as history, history.campaigns.claim('c1'):\n"
        "    with history.only().holds.hold(['n1'], 'campaign \"c1\"', time.time):\n"
        "        print('drives', flush=True)\n"
        "        sys.stdin.readline()\n"
        "        one = execution('a', 1.0)\n"
        "        insist(lambda: history.executions.record('c1', [one]), lambda _: None)\n"
        "        print('wrote', flush=True)\n"
        "        sys.stdin.readline()\n",
        url,
    )
    assert driver.stdout.readline() == "drives\n"
    server.stop()
    server.start()
    driven = rf"driven by process {driver.pid} on .*, or was when the server was restarted"
    with pytest.raises(StoreError, match=driven):
        insist(lambda: history.campaigns.claim("c1").__enter__(), lambda _: None)
    print(file=driver.stdin, flush=True)
    assert driver.stdout.readline() == "wrote\n"
    driver.communicate("\n")


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_driver_that_lost_its_campaign_writes_nothing_more(
    history: History, url: str, child: Child
) -> None:
    history.campaigns.begin(campaign())
    with history.campaigns.claim("c1"), History.open(url) as other:
        ask(
            url,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        driver = child(
            "with History.open(sys.argv[1]) as history, history.campaigns.claim('c1'):\n"
            "    print('drives', flush=True)\n"
            "    sys.stdin.readline()\n",
            url,
        )
        assert driver.stdout.readline() == "drives\n"
        with pytest.raises(StoreError, match=rf"is being driven by .*process {driver.pid} on"):
            insist(lambda: history.executions.record("c1", [execution("a")]), lambda _: None)
        assert other.executions.read("c1") == []
        driver.communicate("\n")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_lock_that_lasts_is_waited_for_and_one_that_stays_is_one_sentence(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PRAGMAS", ("busy_timeout = 50",))
    monkeypatch.setattr(database_errors, "PATIENCE_S", 1.0)
    remarks: list[str] = []
    with History.open(url) as history, closing(engine_for(url).raw_connection()) as other:
        history.campaigns.begin(campaign())
        other.execute("BEGIN IMMEDIATE")
        locked = r"database is locked; another process has been writing .*; that has lasted 1 s"
        with pytest.raises(StoreUnreachableError, match=locked):
            insist(lambda: history.executions.record("c1", [execution("a")]), remarks.append)
        assert len(remarks) == 1
        monkeypatch.setattr(database_errors, "PATIENCE_S", 60.0)
        insist(
            lambda: history.executions.record("c1", [execution("a")]), lambda _: other.rollback()
        )
        assert len(history.executions.read("c1")) == 1


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_user_with_select_only_reads_and_is_refused_writes_with_the_reason(
    history: History, url: str
) -> None:
    history.campaigns.begin(campaign())
    history.executions.record("c1", [execution("a", 1.0)])
    ask(url, "DROP ROLE IF EXISTS reader")
    ask(url, "CREATE ROLE reader LOGIN")
    ask(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    with History.open(url.replace("anubis@", "reader@")) as reading:
        assert len(reading.executions.read("c1")) == 1
        assert reading.examine().damages == ()
        with pytest.raises(StoreError, match=r"permission denied .*; grant this user the right"):
            reading.executions.record("c1", [execution("b", 1.0)])


def test_two_drivers_of_two_campaigns_write_at_the_same_time(
    history: History, url: str, child: Child
) -> None:
    history.campaigns.begin(campaign("c1"))
    history.campaigns.begin(campaign("c2"))
    program = (
        "with History.open(sys.argv[1]) as history:\n"
        "    for number in range(40):\n"
        "        one = execution(str(number), number)\n"
        "        shared = replace(one.result, environment={'number': number})\n"
        "        history.executions.record(sys.argv[2], [replace(one, result=shared)])\n"
    )
    drivers = [child(program, url, name) for name in ("c1", "c2")]
    for driver in drivers:
        _, err = driver.communicate()
        assert driver.returncode == 0, err
    for name in ("c1", "c2"):
        assert [one.step.id for one in history.executions.read(name)] == [*map(str, range(40))]


# --- the schema ----------------------------------------------------------------------------


@pytest.mark.parametrize("release", sorted(RELEASES.iterdir()), ids=lambda files: files.name)
def test_the_migrations_lead_from_each_release_to_the_tables_of_today(
    release: Path, tmp_path: Path
) -> None:
    file = tmp_path / "history.db"
    with closing(sqlite3.connect(file)) as raw:
        raw.executescript((release / "history.sql").read_text())
    History.open(str(file)).close()
    with engine_for(f"sqlite:///{file}").connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, row_mapping.metadata) == []
        assert context.get_current_revision() == HEAD


def test_verdicts_of_before_causes_were_kept_are_sound_and_have_none(url: str) -> None:
    verdict = NodeVerdict(node="n1", judgement=Judgement.DEFECTIVE, code="c", reason="r", owes=())
    before = Assessment(alone=(slow(Judgement.DEFECTIVE, "n1"),), nodes=(verdict,))
    with History.open(url) as history:
        history.campaigns.begin(campaign())
        history.assessments.conclude("c1", before, (), 5.0)
    # as the code of revision 0035 wrote these two rows
    assert ask(url, "SELECT checksum FROM verdicts") == 5700872845471514624
    assert ask(url, "SELECT checksum FROM node_verdicts") == 5969046403178871593
    for change in (
        "ALTER TABLE verdicts DROP COLUMN cause",
        "ALTER TABLE node_verdicts DROP COLUMN cause",
        "UPDATE alembic_version SET version_num = '0035'",
    ):
        ask(url, change)
    with History.open(url) as history:
        assert history.assessments.find("c1") == before


@pytest.mark.parametrize(
    ("revision", "advice"), [("9999", "upgrade Anubis"), ("0031", "it is of before 1.0")]
)
def test_a_schema_of_another_time_is_refused_and_left_as_it_is(
    url: str, revision: str, advice: str
) -> None:
    with History.open(url) as history:
        history.campaigns.begin(campaign())
    ask(url, f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(StoreError, match=rf'"{revision}".* to "{HEAD}".*{advice}') as error:
        History.open(url)
    assert url.partition("?")[0].rpartition("/")[2] in str(error.value)
    assert ask(url, "SELECT version_num FROM alembic_version") == revision
    assert ask(url, "SELECT id FROM campaigns") == "c1"


def test_a_database_of_something_else_is_refused_and_left_as_it_is(url: str) -> None:
    ask(url, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreError, match='found the table "recipes"; nothing was changed'):
        History.open(url)
    assert sa.inspect(engine_for(url)).get_table_names() == ["recipes"]


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_up_to_date_database_opens_without_alembic(url: str) -> None:
    History.open(url).close()
    program = (
        "import sys; from anubis.store.history import History; History.open(sys.argv[1]).close();"
        "import json; print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, url], check=True, capture_output=True, timeout=LIMIT_S
    )
    loaded = json.loads(done.stdout)
    assert "sqlalchemy" in loaded
    assert "alembic" not in loaded


def test_several_that_open_a_new_database_at_once_all_succeed(url: str, child: Child) -> None:
    openers = [child("History.open(sys.argv[1]).close()", url) for _ in range(4)]
    assert [opener.communicate() for opener in openers] == [("", "")] * 4
    assert [opener.returncode for opener in openers] == [0, 0, 0, 0]
    with History.open(url) as history:
        assert history.campaigns.newest(1) == []
