"""Incidents from files of many forms into the history, and records left out of bad ones."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive_status import NaiveLogbook

from anubis.config import configs
from anubis.core.errors import UsageError
from anubis.core.history.logbook import Logbook
from anubis.core.history.standing import standing
from anubis.core.history.status import Incident, Instants, Validation, Watch
from anubis.core.records import Judgement, SelectionPolicy
from anubis.operations.selector import read_past, risks
from anubis.readers.incidents import named_cells
from anubis.readers.incidents.incident_intake import Intake, take_in
from anubis.readers.incidents.incident_mapping import EventMapping, IncidentMapping, IntervalMapping
from anubis.store.history import History
from tests.edges.desk import Done

PLAIN = IntervalMapping(
    records="intervals", node="host", category="cause", start="from", end="to", zone="UTC"
)
EVENTS = EventMapping(
    records="events", node="host", category="cause", event="what", starts=("down", "out"),
    ends=("up",), time="when", times=("hours",),
)  # fmt: skip


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = utc("2026-11-01")


def read(text: str, mapping: IncidentMapping = PLAIN, **more: Any) -> Intake:
    return take_in(named_cells.parse(text, "it"), mapping, "it", NOW, **more)


def table(*lines: str) -> str:
    return "\n".join(["host,cause,from,to", *lines])


def hours(found: Intake) -> list[tuple[str, str, float, float | None]]:
    """Node, category, start and end in hours since the epoch."""
    return [
        (one.node, one.category, one.start / 3600, one.end and one.end / 3600)
        for one in found.incidents
    ]


# --- forms ---------------------------------------------------------------------------------

TOLD = (
    Incident(node="n1", category="fan", start=utc("2026-03-01T10:00"), end=utc("2026-03-01T12:30")),
    Incident(node="n2", category="gpu", start=utc("2026-03-02T00:00")),
)
ROWS = [
    {"host": "n1", "cause": "fan", "from": "2026-03-01T10:00", "to": "2026-03-01 12:30:00"},
    {"host": "n2", "cause": "gpu", "from": "2026-03-02", "to": None},
]
CSV = table("n1,fan,2026-03-01T10:00,2026-03-01 12:30:00", '"n2", gpu ,2026-03-02,')
FORMS = {
    "commas": CSV,
    "semicolons": CSV.replace(",", ";"),
    "tabs": CSV.replace(",", "\t"),
    "empty lines and other line ends": CSV.replace("\n", "\r\n\r\n") + "\r\n,,,\r\n",
    "another order and more columns": "to,id,from,cause,host\n2026-03-01 12:30,1,2026-03-01 10:00,"
    "fan,n1\n,2,2026-03-02,gpu,n2",
    "a list": json.dumps(ROWS, indent=2),
    "lines": "\n".join(map(json.dumps, ROWS)),
    "a list inside": json.dumps({"version": 3, "incidents": ROWS}),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_incidents_are_read_from_every_form(form: str) -> None:
    assert read(FORMS[form]).incidents == TOLD


@pytest.mark.parametrize(
    "pack",
    [
        str.encode,
        lambda text: gzip.compress(text.encode()),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.encode("utf-16"),
    ],
)
def test_the_same_incidents_are_read_from_any_packed_form_of_the_file(
    tmp_path: Path, pack: Any
) -> None:
    file = tmp_path / "incidents"
    file.write_bytes(pack(CSV))
    assert take_in(named_cells.read(file), PLAIN, "it", NOW).incidents == TOLD


def test_a_list_of_records_for_each_node_is_read_by_its_key() -> None:
    mapping = IntervalMapping(
        records="intervals", node="key", category="why.class", start="from", end="to"
    )
    by_node = {
        "n1": [{"from": "2026-03-01 10:00", "to": "2026-03-01 12:30", "why": {"class": "fan"}}],
        "n2": [{"from": "2026-03-02", "why": {"class": "gpu"}}],
    }
    assert read(json.dumps(by_node), mapping).incidents == TOLD
    nested = [
        {"host": "n1", "rack": 4, "log": [ROWS[0] | {"host": "inner"}]},
        {"host": "n2", "rack": 4, "log": [{k: ROWS[1][k] for k in ("cause", "from")}]},
    ]
    assert [one.node for one in read(json.dumps(nested)).incidents] == ["inner", "n2"]


# --- starts and ends as records of their own -----------------------------------------------


def events(*told: str) -> Intake:
    rows = [dict(zip(("host", "what", "when", "cause"), one.split(), strict=True)) for one in told]
    return read(json.dumps(rows), EVENTS)


def test_an_end_belongs_to_the_oldest_incident_of_its_node_and_category() -> None:
    found = events(
        "n1 up 9 gpu",  # the order in the file does not matter
        "n1 down 1 gpu", "n1 out 2 fan", "n2 down 3 gpu", "n1 down 4 gpu", "n1 up 5 gpu",
        "n1 up 6 fan",
    )  # fmt: skip
    assert hours(found) == [
        ("n1", "gpu", 1, 5), ("n1", "fan", 2, 6), ("n1", "gpu", 4, 9), ("n2", "gpu", 3, None),
    ]  # fmt: skip


def test_two_starts_may_share_an_end_but_not_one_that_came_before() -> None:
    found = events("n1 down 1 gpu", "n1 down 2 gpu", "n1 up 3 gpu", "n1 down 4 gpu")
    assert hours(found) == [("n1", "gpu", 1, 3), ("n1", "gpu", 2, 3), ("n1", "gpu", 4, None)]


def test_an_incident_may_end_as_it_begins_and_an_end_without_a_begin_is_reported() -> None:
    found = events("n1 up 5 gpu", "n1 down 5 gpu", "n1 up 7 gpu", "n1 up 7 fan", "n1 flies 8 gpu")
    assert hours(found) == [("n1", "gpu", 5, 5)]
    assert {note.text: note.where for note in found.left_out} == {
        "it ends an incident that did not begin": ("record 3", "record 4"),
        "the event is neither a start nor an end": ('record 5 ("flies")',),
    }


def test_plain_columns_need_no_mapping(near) -> None:
    near.write(
        "incidents.csv",
        "node,category,start,end\n"
        "n1,gpu,2026-03-01T10:00,2026-03-01 12:00:00\n"
        "n2,disk,2026-03-01T10:00:00+01:00,\n",
    )
    done = near.run("history", "import", "incidents", "incidents.csv")
    assert done.code == 0, done.err
    with History.open(f"sqlite:///{near.home / 'history.sqlite'}") as history:
        assert history.only().incidents.all() == [
            Incident(
                node="n1",
                category="gpu",
                start=utc("2026-03-01T10:00"),
                end=utc("2026-03-01T12:00"),
            ),
            Incident(node="n2", category="disk", start=utc("2026-03-01T09:00")),
        ]


def test_the_shipped_mapping_reads_events_in_days() -> None:
    def event(kind: str, day: float) -> dict[str, Any]:
        fault = {"Level": "Hardware Failure", "Class": "GPU", "Desc": "GPU Lost"}
        return {"node_id": "a-1", "event_time": day, "event_type": kind, "fault_type": fault}

    text = json.dumps([event("fault_start", 1.5), event("fault_end", 1.75)])
    assert read(text, configs.incident_mapping("events")).incidents == (
        Incident(
            node="a-1", category="GPU", start=utc("2024-03-31T12:00"), end=utc("2024-03-31T18:00")
        ),
    )


# --- times ---------------------------------------------------------------------------------


def test_a_time_without_a_zone_is_in_the_zone_of_the_mapping_and_others_keep_theirs() -> None:
    berlin = IntervalMapping(**{**vars(PLAIN), "zone": "Europe/Berlin"})
    text = table("n1,x,2026-01-05 01:00,2026-01-05T01:00-08:00", "n2,x,2026-07-05 01:00,")
    winter, summer = read(text, berlin).incidents
    assert (winter.start, winter.end) == (utc("2026-01-05T00:00"), utc("2026-01-05T09:00"))
    assert summer.start == utc("2026-07-04T23:00")


def test_an_end_in_the_hour_that_the_clocks_repeat_is_in_the_second_one() -> None:
    """On 2026-10-25 Berlin has 02:00 to 03:00 twice, from 00:00 and from 01:00 UTC. A pass between
    both readings of an end proves nothing."""
    berlin = IntervalMapping(**{**vars(PLAIN), "zone": "Europe/Berlin"})
    day = "2026-10-25"
    lines = [f"n1,x,{day} 02:50,{day} 02:10", f"n2,x,{day} 02:10,{day} 02:50"]
    (lost,) = read(table(f"n1,x,{day} 02:50,soon"), berlin).incidents
    assert (lost.start, lost.end) == (utc(f"{day}T00:50"), utc(f"{day}T01:50"))
    found = read(table(*lines), berlin)
    repeated, plain = found.incidents
    assert (repeated.start, repeated.end) == (utc(f"{day}T00:50"), utc(f"{day}T01:10"))
    assert (plain.start, plain.end) == (utc(f"{day}T00:10"), utc(f"{day}T01:50"))
    assert not found.left_out
    assert [note.where for note in found.remarks] == [("line 2", "line 3")]


def test_a_date_and_a_time_of_day_may_be_in_two_columns() -> None:
    mapping = IntervalMapping(
        records="intervals", node="{rack}-{slot}", start="{day} {clock}", end="{over}"
    )
    found = read("rack,slot,day,clock,over\nr1,7,2026-03-01,10:00,\nr1,,2026-03-01,10:00,", mapping)
    assert hours(found) == [("r1-7", "unspecified", utc("2026-03-01T10:00") / 3600, None)]
    with pytest.raises(UsageError, match=r'no column "clock", .* as "start"'):
        read("rack,slot,day,over\n", mapping)


@pytest.mark.parametrize(
    ("times", "text", "expected"),
    [
        (("%m/%d/%Y %H:%M",), "6/7/2025 8:05", "2025-06-07T08:05"),
        (("%d.%m.%y",), "7.6.25", "2025-06-07T00:00"),
        (("%y-%b",), "2-May", "2002-05-01T00:00"),  # a spreadsheet's May 2002
        (("%y-%b", "%b-%y"), "Jun-96", "1996-06-01T00:00"),
        (("seconds",), "1750000000.5", "2025-06-15T15:06:40.500"),
        (("milliseconds",), "1750000000500", "2025-06-15T15:06:40.500"),
        (("microseconds",), "1750000000500000", "2025-06-15T15:06:40.500"),
        (("nanoseconds",), "1750000000500000000", "2025-06-15T15:06:40.500"),
        (("iso", "milliseconds"), "1711111111000", "2024-03-22T12:38:31"),  # not the year 1711
        (("iso",), "20250607", "2025-06-07T00:00"),
        (("iso",), "2025-06-07T08:05:30Z", "2025-06-07T08:05:30"),
    ],
)
def test_times_are_read_as_the_mapping_says(
    times: tuple[str, ...], text: str, expected: str
) -> None:
    found = read(table(f"n1,x,{text},"), IntervalMapping(**{**vars(PLAIN), "times": times}))
    assert [one.start for one in found.incidents] == [utc(expected)]
    if "seconds" in times[-1]:  # since 1970: the same instant, in whichever zone the site is
        there = IntervalMapping(**{**vars(PLAIN), "times": times, "zone": "Asia/Kolkata"})
        assert read(table(f"n1,x,{text},"), there).incidents == found.incidents


# --- bad input -----------------------------------------------------------------------------


def test_bad_lines_are_left_out_with_their_reason_and_the_rest_is_imported() -> None:
    good = "n1,fan,2026-03-01T10:00,2026-03-01T12:00"
    found = read(
        table(
            good,
            "n1,fan,01/03/26,",
            "n1,fan,2026-03-01T10:00,soon",
            "n1,fan,2026-02-30,",
            ",fan,2026-03-01T10:00,",
            "n 1!,fan,2026-03-01T10:00,",
            "n1,fan,2027-02-30,",
            good,
            "n1,fan,2026-03-01T10:00,2026-03-01T13:00",
            "n1",
            "n1,fan,nan,",
        )
    )
    assert hours(found) == hours(read(table("n1,fan,2026-03-01T10:00,2026-03-01T13:00")))
    assert found.records == 11
    assert {note.text: note.where for note in found.left_out} == {
        "the start cannot be read as a time": (
            'line 3 ("01/03/26")', 'line 5 ("2026-02-30")', 'line 8 ("2027-02-30")',
            'line 11 ("nothing")', 'line 12 ("nan")',
        ),
        "no node is named": ("line 6",),
        "the name is not a node name": ('line 7 ("n 1!")',),
        "the same incident is listed twice": ("line 9",),
        "the same incident is listed with another end: the later one counts":
            ("line 4", "line 10"),
    }  # fmt: skip


@pytest.mark.parametrize("end", ["N/A", "ongoing", "0", "2026-03-01T09:00", "1970-01-01"])
@pytest.mark.parametrize("also", [[], ["n1,fan,2026-03-01T10:00,2026-03-01T13:00"]])
def test_an_end_that_cannot_be_right_hides_no_incident(end: str, also: list[str]) -> None:
    """Its node has to pass a test that began after its start; a second line may know the end."""
    lines = [f"n1,fan,2026-03-01T10:00,{end}", *also]
    for order in (lines, lines[::-1]):
        (incident,) = (found := read(table(*order))).incidents
        over = utc("2026-03-01T13:00") if also else utc("2026-03-01T10:00")
        assert (incident.start, incident.end) == (utc("2026-03-01T10:00"), over)
        assert also or [n.text.partition(": ")[2] for n in found.remarks] == [
            "only its start counts"
        ]
    (open_,) = read(table(lines[0], "n1,fan,2026-03-01T10:00,")).incidents
    assert open_.end is None


@pytest.mark.parametrize("name", ["plain", "alertmanager"])
def test_the_zero_time_of_go_is_no_end(name: str) -> None:
    """A pass since its start would end an incident whose end is before its start."""
    mapping = configs.incident_mapping(name)
    assert isinstance(mapping, IntervalMapping)
    columns = (mapping.node, mapping.category, mapping.start, mapping.end, mapping.status or "x")
    record = ["n1", "fan", "2026-03-01T10:00:00Z", "0001-01-01T00:00:00Z", ""]
    (incident,) = read(f"{','.join(columns)}\n{','.join(record)}", mapping).incidents
    assert incident.end is None


@pytest.mark.parametrize("is_news", [False, True])
@pytest.mark.parametrize(
    ("end", "is_open"), [("", True), ("2027-01-02", False), ("2026-03-01", False), ("soon", False)]
)
def test_an_incident_that_begins_in_the_future_counts_from_now(end, is_open, is_news) -> None:
    """A clock or a zone is wrong, so its date decides nothing: not that the node is well either."""
    found = read(table(f"n1,fan,2027-01-01,{end}"), is_news=is_news)
    passed = Validation(node="n1", at=NOW - 1, judgement=Judgement.HEALTHY, benchmarks=("fan",))
    stand = standing([passed], {}, found.incidents, [], [], NOW)
    assert stand.judgement("n1") is (Judgement.DEFECTIVE if is_open else Judgement.UNKNOWN)
    assert stand.happened["n1"] == NOW
    assert any("it counts from now" in note.text for note in found.remarks)
    assert all(watch.until <= NOW for watch in found.watches)


def test_odd_lines_are_imported_and_reported() -> None:
    found = read(
        table(
            "n1,fan,2026-03-01,2026-03-05",
            "n1,gpu,2026-03-02,2026-03-03",
            "n1,gpu,2026-03-04,2026-03-06",
            "n1,gpu,2026-03-06,2026-03-07",
            "n2,,2026-03-04,2027-03-06",
            "n3,gpu,2026-03-04,",
        )
    )
    assert [one.end for one in found.incidents][-2:] == [utc("2027-03-06"), None]
    assert {watch.until for watch in found.watches} == {NOW}  # the future was not watched
    assert found.incidents[-2].category == "unspecified"
    assert {note.text: note.where for note in found.remarks} == {
        "the node was down already: the time counts once": ("line 3", "line 4"),
        "it ends in the future: the node is down until then": ("line 6",),
        'no category: taken as "unspecified"': ("line 6",),
        "no end: the node is down until one is imported": ("line 7",),
    }


def test_a_category_in_another_encoding_is_left_out_and_reported(tmp_path) -> None:
    """Two of them would look the same, and one of their incidents would be lost as a repetition."""
    file = tmp_path / "latin.csv"
    rows = (f"n1,{word},2026-03-01,2026-03-05" for word in ("L\u00fcfter", "L\u00e4fter", "gpu"))
    file.write_bytes(table(*rows).encode("latin-1"))
    found = take_in(named_cells.read(file), PLAIN, "it", NOW)
    (note,) = found.left_out
    assert [kept.category for kept in found.incidents] == ["gpu"]
    assert [place[:6] for place in note.where] == ["line 2", "line 3"]
    assert note.text == "the category is not UTF-8, convert the file"


def test_a_line_that_is_no_json_is_left_out() -> None:
    lines = [json.dumps(ROWS[0]), '{"host": "n1", "cau', "7", json.dumps(ROWS[1])]
    found = read("\n".join(lines))
    assert found.incidents == TOLD
    assert found.records == 4
    assert [(note.text, note.where) for note in found.left_out] == [
        ("no JSON", ("line 2",)),
        ("the start cannot be read as a time", ('line 3 ("nothing")',)),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it is empty: expected CSV with a heading, JSON or JSON Lines"),
        ("host,cause,form,to\n", 'no column "from", which .* as "start"; did you mean "form"'),
        ("host,cause,to,to,from\n", 'two columns "to": rename one'),
        ('[{"host": "n1",', "it is no JSON: .*line 1.*was it cut off"),
        ("[]", 'no column "host"'),
        ("[" * 100_000, "too deep"),
        ('host,cause,from,to\n"n1,' + "x" * 200_000, "it, line 2: field larger"),
    ],
)
def test_a_file_without_incidents_is_one_clear_error(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        read(text)


# --- who was watched -----------------------------------------------------------------------


def test_nodes_are_watched_from_the_first_to_the_last_time_in_the_file() -> None:
    first, last = utc("2026-03-01"), utc("2026-03-09")
    found = read(table("n1,x,2026-03-01,2026-03-02", "n2,x,2026-03-08,2026-03-09"))
    assert found.watches == tuple(Watch(node=n, since=first, until=last) for n in ("n1", "n2"))
    named = read(table("n2,x,2026-03-01,2026-03-09", "n9,x,2026-03-02,"), nodes=["n1", "n2"])
    assert named.watches == found.watches
    assert [(note.text, note.where) for note in named.left_out] == [
        ("the node is not in the list", ('line 3 ("n9")',))
    ]


def test_the_silent_nodes_of_a_cluster_were_watched_too() -> None:
    """A history without them would call the fleet worse than it is."""
    mapping = IntervalMapping(
        records="intervals", node="{sys}-{number}", start="from", end="to",
        since="added", until="gone", size="size",
    )  # fmt: skip
    found = read(
        "sys,size,number,added,gone,from,to\n"
        "a,3,1,2026-01-01,,2026-02-01,2026-02-03\n"
        "a,3,1,2026-01-01,,2026-02-05,2026-02-06\n"
        "b,2,0,2026-01-10,2026-01-20,2026-01-15,2026-01-25\n"
        "b,2,1,2026-01-11,someday,2026-01-18,2026-01-19\n",
        mapping,
    )
    last = utc("2026-02-06")
    assert found.watches == (
        Watch(node="a-0", since=utc("2026-01-01"), until=last),
        Watch(node="a-1", since=utc("2026-01-01"), until=last),
        Watch(node="a-2", since=utc("2026-01-01"), until=last),
        Watch(node="b-0", since=utc("2026-01-10"), until=utc("2026-01-25")),  # it was still there
        Watch(node="b-1", since=utc("2026-01-11"), until=last),
    )


def test_a_node_that_never_failed_has_a_watch_of_its_own() -> None:
    """A table of lifetimes has a row for each node, most of them without a failure."""
    mapping = IntervalMapping(
        records="intervals", node="gpu", start="failed", end="failed", not_over=("NA",),
        since="inserted", until="removed",
    )  # fmt: skip
    found = read(
        "gpu,inserted,removed,failed\n"
        "g1,2026-01-01,2026-02-01,2026-02-01\n"
        "g6,2026-01-01,2026-02-20,2026-02-01\n"
        "g2,2026-01-02,2026-02-03,\n"
        "g3,2026-01-03,,NA\n"
        "g4,someday,2026-02-03,\n"
        "!,2026-01-02,2026-02-03,\n",
        mapping,
    )
    assert [incident.node for incident in found.incidents] == ["g1", "g6"]
    assert found.watches == (
        Watch(node="g1", since=utc("2026-01-01"), until=utc("2026-02-01")),
        Watch(node="g2", since=utc("2026-01-02"), until=utc("2026-02-03")),
        Watch(node="g3", since=utc("2026-01-03"), until=utc("2026-02-03")),
        Watch(node="g6", since=utc("2026-01-01"), until=utc("2026-02-20")),  # as the file says
    )
    assert {note.text: note.where for note in found.left_out} == {
        "the start cannot be read as a time": ('line 6 ("nothing")',),
        "the name is not a node name": ('line 7 ("!")',),
    }


def test_the_number_of_nodes_may_be_a_plain_number() -> None:
    mapping = IntervalMapping(**{**vars(PLAIN), "size": 4})
    found = read(table("0,x,2026-03-01,", "n7,x,2026-03-01,2026-03-04"), mapping)
    assert [watch.node for watch in found.watches] == ["0", "1", "2", "n7"]


# --- the verb ------------------------------------------------------------------------------

MAPPING = {
    "records": "intervals",
    "node": "host",
    "category": "cause",
    "start": "from",
    "end": "to",
}


def imported(near: Any) -> History:
    return History.open(str(near.history))


def test_importing_the_same_file_twice_adds_nothing_and_a_later_one_completes(near) -> None:
    mapping = str(near.write("site.yaml", MAPPING))
    first = near.write("first.csv", CSV)
    done = near.run("history", "import", "incidents", str(first), "--mapping", mapping)
    assert done.code == 0
    assert done.out.splitlines() == [
        "first.csv: 2 incidents in 2 records: 2 new, 0 completed by their end, 0 known before",
        "on 2 of 2 nodes of cluster unnamed, watched 2026-03-01 10:00 UTC to 2026-03-02 00:00 UTC",
        "fan 1, gpu 1",
    ]
    assert done.err.splitlines() == [
        "taken: 1 record (line 3): no end: the node is down until one is imported",
        "to take this back: anubis history forget --import 1",
    ]
    with imported(near) as history:
        before = (history.only().incidents.all(), history.only().watches.all())
    again = near.run(
        "history", "import", "incidents", str(first), "--mapping", mapping, "--json"
    ).lines[0]
    assert (again["new"], again["completed"], again["known"]) == (0, 0, 2)
    with imported(near) as history:
        assert (history.only().incidents.all(), history.only().watches.all()) == before
    later = near.write("later.csv", table("n2,gpu,2026-03-02,2026-03-04", "n2,fan,2026-03-03,"))
    next_day = near.run(
        "history", "import", "incidents", str(later), "--mapping", mapping, "--json"
    ).lines[0]
    assert (next_day["new"], next_day["completed"], next_day["known"]) == (1, 1, 0)
    with imported(near) as history:
        assert [one.end for one in history.only().incidents.all()][1] == utc("2026-03-04")


def test_an_import_adds_no_node_to_a_cluster_that_has_some_unless_it_lists_all(near) -> None:
    """By the rule of `tell`: unknown nodes are named, and refused if all are unknown."""
    mapping = str(near.write("site.yaml", MAPPING))

    def take(*rows: str, nodes: str = "") -> Done:
        file = str(near.write("some.csv", table(*rows)))
        return near.run(
            "history",
            "import",
            "incidents",
            file,
            "--mapping",
            mapping,
            *(["--nodes", nodes] * bool(nodes)),
        )

    def known() -> set[str]:
        with imported(near) as history:
            return set(history.only().node_names.all())

    assert take("n1,fan,2026-03-01,2026-03-02").code == 0  # the cluster's first node
    refused = take("n2,fan,2026-03-01,2026-03-02")
    assert (
        refused.code == near.run("tell", "incident-reported", "n2", "--category", "fan").code == 64
    )
    assert 'node "n2" is not in cluster "unnamed", which has n1' in refused.err
    some = take("n1,gpu,2026-03-02,2026-03-03", "n2,fan,2026-03-01,2026-03-02")
    assert (some.code, known()) == (0, {"n1"})
    assert 'ignored: n2, not in cluster "unnamed" (report a new one with node-added)' in some.err
    assert take("n2,fan,2026-03-01,2026-03-02", nodes="n[1-3]").code == 0
    assert known() == {"n1", "n2", "n3"}


def test_one_incident_is_enough_and_none_is_no_success(near) -> None:
    mapping = str(near.write("site.yaml", MAPPING))
    one = near.write("one.csv", table("n1,fan,2026-03-01,2026-03-02"))
    assert near.run("history", "import", "incidents", str(one), "--mapping", mapping).code == 0
    none = near.write("none.csv", table("n1,fan,soon,"))
    sentence = (
        "has no usable incident, and does not say how long a node was watched: nothing was imported"
    )
    done = near.run("history", "import", "incidents", str(none), "--mapping", mapping)
    assert (done.code, done.out) == (64, "")
    assert done.err.splitlines() == [
        'left out: 1 record (line 2 ("soon")): the start cannot be read as a time',
        f'anubis: error: "{none}" {sentence}',
    ]
    only = near.run(
        "history", "import", "incidents", str(one), "--mapping", mapping, "--nodes", "n[2-3]"
    )
    assert only.code == 64
    assert '(line 2 ("n1")): the node is not in the list' in only.err


def test_a_fleet_in_which_no_node_failed_has_a_base_rate_by_the_hours_it_was_watched(near) -> None:
    mapping = str(near.write("lives.yaml", MAPPING | {"since": "added", "until": "seen"}))
    heading = "host,cause,from,to,added,seen\n"

    def take(*rows: str) -> Done:
        file = near.write("fleet.csv", heading + "\n".join(rows))
        return near.run("history", "import", "incidents", str(file), "--mapping", mapping)

    assert take("n1,,,,2026-01-01,2026-01-01").code == 64  # it was watched for no time
    done = take(*(f"n{i},,,,2026-01-01,2026-02-10" for i in range(1, 5)))
    counts, span = done.out.splitlines()
    assert counts.startswith("fleet.csv: 0 incidents in 4 records: 0 new")
    assert span.startswith("on 0 of 4 nodes of cluster unnamed, watched 2026-01-01 00:00 UTC to")
    with imported(near) as history:
        at = utc("2026-12-20")  # the silence since then is no sign of health
        chance = risks(read_past(history.only(), at), ["n1"], at, SelectionPolicy())["n1"]
    assert chance == pytest.approx(1 - math.exp(-24 / ((4 * 40 + 90) * 24)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"records": "rows"}, '"records" is "rows"; known: events, intervals'),
        ({"strat": "x"}, 'unknown key "strat"; did you mean "start"?'),
        ({"zone": "Mars/Olympus"}, '"zone" is "Mars/Olympus", expected a name like'),
        ({"times": ["sometimes"]}, '"times" has "sometimes", expected a pattern with %'),
        ({"times": []}, '"times" is empty'),
        ({"origin": "March"}, '"origin" is "March", expected a date'),
    ],
)
def test_a_mapping_that_is_wrong_is_one_line(near, change: dict[str, Any], sentence: str) -> None:
    mapping = near.write("site.yaml", MAPPING | change)
    done = near.run(
        "history", "import", "incidents", str(near.write("a.csv", CSV)), "--mapping", str(mapping)
    )
    assert (done.code, done.out) == (64, "")
    assert done.err.count("\n") == 1
    assert sentence in done.err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "No such file"),
        (b"\x1f\x8b\x08broken", "it is not a complete gzip file"),
        (gzip.compress(CSV.encode(), mtime=0)[:-12], "it is not a complete gzip file"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(near, content: Any, sentence: str) -> None:
    file = near.folder / "incidents.csv.gz"
    if content:
        file.write_bytes(content)
    done = near.run("history", "import", "incidents", str(file), "--mapping", "lanl")
    assert (done.code, done.out) == (64, "")
    assert done.err == f'anubis: error: cannot read "{file}": {done.err.split(": ")[-1]}'
    assert sentence in done.err


# --- real data -----------------------------------------------------------------------------


CAUSES = ("Facilities", "Hardware", "Human Error", "Network", "Undetermined", "Software")
LANL_HEADING = (
    "System,machine type,nodes,procstot,procsinnode,nodenum,nodenumz,node install,node prod,"
    "node decom,fru type,mem,cputype,memtype,num intercon,purpose,Prob Started (mm/dd/yy hh:mm),"
    f"Prob Fixed (mm/dd/yy hh:mm),Down Time,{','.join(CAUSES)},Same Event"
)


def table_like_lanls() -> str:
    """Incidents of a few nodes of both systems, some at once, in LANL's columns."""
    rng = np.random.default_rng(18)
    first = datetime(2002, 6, 1)
    rows = []
    for _ in range(300):
        begun = first + timedelta(hours=int(rng.integers(0, 20_000)))
        fixed = begun + timedelta(hours=int(rng.integers(1, 300)))
        cause = rng.integers(0, len(CAUSES))
        cells = ["found" if i == cause else "" for i in range(len(CAUSES))]
        number = rng.integers(0, 12)
        rows.append(
            f"{rng.choice([18, 19])},cluster,1024,4096,4,{number},{number},2-Mar,2-May,current,"
            f"part,8,2,2,2,compute,{begun:%m/%d/%Y %H:%M},{fixed:%m/%d/%Y %H:%M},0,"
            f"{','.join(cells)},No"
        )
    return "\n".join([LANL_HEADING, *rows]) + "\n"


@pytest.fixture(scope="module", params=["made", "real"])
def lanl_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "real":
        return Path(request.getfixturevalue("real")("incidents/lanl-18-19.csv.gz"))
    file = tmp_path_factory.mktemp("incidents") / "lanl.csv.gz"
    file.write_bytes(gzip.compress(table_like_lanls().encode(), mtime=0))
    return file


@pytest.fixture(scope="module")
def lanl(lanl_file: Path) -> Intake:
    return take_in(named_cells.read(lanl_file), configs.incident_mapping("lanl"), "it", NOW)


def test_lanl_counts_are_those_of_the_lines(lanl: Intake, lanl_file: Path) -> None:
    """Counted by the columns' places: system, number, start and end; one of six causes."""
    with gzip.open(lanl_file, "rt") as lines:
        rows = list(csv.reader(lines))[1:]
    told = {
        (row[0], row[6], row[16], cause)
        for row in rows
        for cause, cell in zip(CAUSES, row[19:25], strict=True)
        if cell
    }
    expected = Counter((system, cause) for system, _, _, cause in told)
    found = Counter((one.node[4:6], one.category) for one in lanl.incidents)
    assert found == expected
    assert sum(found.values()) == len(rows) - sum(len(note.where) for note in lanl.left_out)
    hit = {one.node for one in lanl.incidents}
    assert hit == {f"lanl{row[0]}-{row[6]}" for row in rows}
    assert {watch.node for watch in lanl.watches} == {
        f"lanl{system}-{number}" for system in (18, 19) for number in range(1024)
    }


def test_statuses_and_uptimes_of_lanl_nodes_agree_with_a_pass_over_all_records(
    lanl: Intake,
) -> None:
    logbook = Logbook.from_records(lanl.incidents, lanl.watches)
    rng = np.random.default_rng(18)
    nodes = ["lanl18-0", "lanl19-0", *rng.choice(logbook.nodes, 20, replace=False)]
    until = utc("2005-01-01")
    asked = Instants(
        nodes=tuple(str(node) for node in rng.choice(nodes, 300)),
        at=rng.uniform(utc("2002-10-01"), until, 300),
    )
    found = logbook.uptimes(asked, until)
    rows = iter(zip(found.statuses.values, found.duration_h, found.observed, strict=True))
    alone = {
        node: NaiveLogbook(
            incidents=[one for one in lanl.incidents if one.node == node],
            watches=[one for one in lanl.watches if one.node == node],
        )
        for node in set(asked.nodes)
    }
    for node, at in zip(asked.nodes, asked.at, strict=True):
        naive = alone[node]
        spell = naive.spell(node, at, until)
        if spell is None:
            continue
        values, duration_h, observed = next(rows)
        assert (duration_h, observed) == (pytest.approx(spell[0]), spell[1])
        expected = [naive.value(name, node, at) for name in found.statuses.covariates]
        assert values == pytest.approx(np.array(expected))
    assert next(rows, None) is None
