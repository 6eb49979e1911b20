"""The output of one program can cost its own step only: documents and reports, fuzzed."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from fleets import spec
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.config.catalog import MOST_SERIES, parse_result
from anubis.core.campaign.state_machine import Failed, Launch, Measured, TimedOut
from anubis.core.errors import ContractError
from anubis.core.records import Ended, Execution, MetricSpec, Needs, ParameterSpec, Step, Workload
from anubis.reach.executors.programs import event_of, group_event_of, outcome_in
from anubis.store import codec

SPEC = spec(
    "flow",
    duration_s=1.0,
    metrics=(MetricSpec(name="speed", unit="m/s", direction="higher"),),
    parameters=(
        ParameterSpec(name="size", type="int", default=8),
        ParameterSpec(name="share", type="float", default=0.5),
        ParameterSpec(name="deep", type="bool", default=True),
        ParameterSpec(name="kind", type="str", default="plain"),
    ),
)
ORDERED = {"size": 4, "share": 1, "env.LEVEL": "2"}
STATED = {"size": 4, "share": 1.0, "deep": True, "kind": "plain"}
STEP = Step(
    id="0.0.0/flow/n0",
    workload=Workload.make("flow", "1", ORDERED),
    participants=("n0",),
    phase=0,
    repeat=0,
    timeout_s=30.0,
    exclusive=True,
)
BEGAN = 1.7e9
DOCUMENT: dict[str, Any] = {
    "schema": "anubis.result/1",
    "benchmark": "flow",
    "version": "1",
    "parameters": STATED,
    "started_at": BEGAN,
    "duration_s": 2.5,
    "environment": {"driver": "550.1", "gpus": [{"name": "a", "watts": 3.5}]},
    "series": [{"metric": "speed", "device": "cpu", "samples": [1.0, 2.0]}],
}
REPORT: dict[str, Any] = {
    "exit": 0,
    "signal": None,
    "timed_out": False,
    "flooded": False,
    "killed": False,
    "left_behind": 0,
    "unkillable": [],
    "could_not_start": "",
    "stdout": json.dumps(DOCUMENT),
    "stderr": "",
    "started_at": BEGAN,
    "duration_s": 2.0,
}
HOSTILE = st.sampled_from(
    (
        *(1e400, -1e400, math.nan, 10**400, -1, 0, True, None, [], {}, {"a": "\0"}),
        *("", "\ud800", "\x1b[2J", "\u202e", "x" * 5000, "9" * 5000, [[[[[[[[[[[[1]]]]]]]]]]]]),
    )
)


def heard(document: object, **changes: object) -> Measured | Failed | TimedOut:
    """The event that a program's document, and the report of its guardian, amount to."""
    text = document if isinstance(document, str) else json.dumps(document)
    report = json.dumps({**REPORT, "stdout": text, **changes}).encode()
    return event_of(outcome_in(report), Launch(step=STEP, attempt=1), SPEC, 1.0, parse_result)


def kept(event: Measured | Failed | TimedOut) -> Execution:
    """It goes through the history and can be written to a page."""
    result = {"result": event.result} if isinstance(event, Measured) else {}
    execution = Execution(
        step=STEP, attempt=1, ended=Ended.MEASURED, final=True, reason=event.reason, **result
    )
    again = codec.load(Execution, codec.dump(execution))
    json.dumps(codec.document(again), ensure_ascii=False, allow_nan=False).encode()
    return again


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if not isinstance(value, dict | list):
        return [path]
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(p for key, item in inside for p in places(item, (*path, key)))]


def changed(document: Any, path: tuple[str | int, ...], value: object) -> Any:
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


LIES = {
    "size": (8, "4", 4.5, True, None, [4], 1e18),
    "share": (0.5, True, "1", -1),
    "deep": (1, "true", False),
    "kind": ("other", "", 0, "x" * 20_000),
    "spare": (1,),
}
SECONDS = (-1, -0.001, 1e18, 1e12, "2.5", "soon", True, None, [], 10**400)


def refused(document: object, *words: str, infrastructure: bool = False) -> None:
    event = heard(document)
    assert isinstance(event, Failed), document
    assert event.infrastructure is infrastructure
    assert event.reason.startswith("flow: ")
    assert len(event.reason) < 300
    assert not set(words) - set(re.findall(r"\w+", event.reason)), event.reason


def test_a_correct_document_is_accepted():
    for stated in ({}, {"size": 4}, {"size": 4.0, "share": 1}, STATED):
        assert isinstance(heard({**DOCUMENT, "parameters": stated}), Measured)
    whole = changed(DOCUMENT, ("series", 0), {**DOCUMENT["series"][0], "unit": "m/s"})
    assert isinstance(heard(whole), Measured)
    bare = {k: v for k, v in DOCUMENT.items() if k in ("schema", "benchmark", "version", "series")}
    assert isinstance(heard(bare), Measured)


@pytest.mark.parametrize("name", sorted(LIES))
def test_a_document_of_other_parameters_than_were_ordered_is_refused(name):
    """Its numbers would be judged by the criteria of those."""
    for value in LIES[name]:
        refused({**DOCUMENT, "parameters": {**STATED, name: value}}, name)
    refused({**DOCUMENT, "parameters": [name]}, "parameters")


def test_a_document_of_another_unit_or_direction_is_refused():
    for key, value in (("unit", "km/h"), ("unit", None), ("direction", "lower")):
        other = changed(DOCUMENT, ("series", 0), {**DOCUMENT["series"][0], key: value})
        refused(other, "speed", key, "declares")


@pytest.mark.parametrize("key", ["started_at", "duration_s"])
def test_times_that_cannot_be_are_refused(key):
    for value in SECONDS:
        refused({**DOCUMENT, key: value}, key, "seconds")


def test_a_document_that_an_earlier_run_left_is_refused_and_blames_no_node():
    """A tool failed, and its adapter printed the file of yesterday; or a clock is wrong."""
    for away_s in (-86_400, -4000, 4000, 86_400 * 365):
        other = {**DOCUMENT, "started_at": BEGAN + away_s}
        refused(other, "started_at", "run", infrastructure=True)
    for near_s in (-3000, 0, 3000):  # a clock may be set meanwhile
        assert isinstance(heard({**DOCUMENT, "started_at": BEGAN + near_s}), Measured)


def test_a_key_written_twice_is_refused_at_any_depth():
    text = json.dumps(DOCUMENT)
    for key, again in (
        ("version", "2"),
        ("metric", "speed"),
        ("driver", "551"),
        ("size", 4),
    ):
        doubled = text.replace(f'"{key}": ', f'"{key}": {json.dumps(again)}, "{key}": ', 1)
        refused(doubled, key, "twice")


def test_a_text_of_15_mib_is_refused_in_any_field():
    refused(changed(DOCUMENT, ("environment", "driver"), "x" * (15 << 20)), "environment")
    long = "x" * 20_000
    for path in places(DOCUMENT):
        if path:
            refused(changed(DOCUMENT, path, long))
    refused({**DOCUMENT, "environment": {long: 1}}, "environment")
    many = {str(number): "x" * 16_000 for number in range(900)}
    refused({**DOCUMENT, "environment": many}, "environment")
    series = {**DOCUMENT["series"][0], "samples": [1.0] * 1_000_001}
    refused({**DOCUMENT, "series": [series]}, "samples")


def test_a_document_that_measured_and_does_not_apply_is_refused():
    refused({**DOCUMENT, "not_applicable": "no GPU"}, "not_applicable", "series")


def test_metrics_of_gpus_on_a_cpu_are_refused():
    needy = replace(SPEC, needs=Needs(gpu=True))
    with pytest.raises(ContractError, match='"speed" is of cpu, and flow measures GPUs'):
        parse_result(json.dumps(DOCUMENT), needy)


def number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def may_pass(document: Any) -> bool:
    """The naive statement of it: each thing by which numbers are judged is as it was ordered and
    described, and all else is of its kind and within bounds."""
    if not isinstance(document, dict):
        return False
    if any(document.get(key) != DOCUMENT[key] for key in ("schema", "benchmark", "version")):
        return False
    stated = document.get("parameters", {})
    if not isinstance(stated, dict) or any(
        name not in STATED or isinstance(value, bool) != (name == "deep") or value != STATED[name]
        for name, value in stated.items()
    ):
        return False
    began, took = document.get("started_at", 0), document.get("duration_s", 0)
    if not number(began) or (began != 0 and not BEGAN - 3600 <= began <= BEGAN + 2.0 + 3600):
        return False
    if not number(took) or not 0 <= took <= 1e9:
        return False
    series = document.get("series")
    return (
        isinstance(series, list)
        and bool(series)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("metric"), str)
            and one["metric"].partition(":")[0] == "speed"
            and one["metric"].isprintable()
            and isinstance(one.get("device"), str)
            and one["device"].isprintable()
            and 0 < len(one["device"]) <= 1000
            and one.get("unit", "m/s") == "m/s"
            and isinstance(one.get("samples"), list)
            and bool(one["samples"])
            and all(
                number(sample) and 0 < sample <= sys.float_info.max for sample in one["samples"]
            )
            for one in series
        )
    )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(places(DOCUMENT)),
    HOSTILE | st.sampled_from((4, 4.0, 8, 1, "speed", "speed:a", "cpu", "1", [1.0], 1e18, 0.5)),
    st.sampled_from(("replace", "leave out", "put beside")),
    st.sampled_from(("unit", "size", "duration_s", "metric", "spare")),
)
def test_a_spoilt_document_passes_only_if_it_is_still_valid(path, value, how, key):
    document: Any = DOCUMENT
    if how == "replace":
        document = changed(DOCUMENT, path, value)
    elif how == "leave out" and path:
        inside = inside_of(DOCUMENT, path[:-1])
        rest = (
            {name: item for name, item in inside.items() if name != path[-1]}
            if isinstance(inside, dict)
            else [item for place, item in enumerate(inside) if place != path[-1]]
        )
        document = changed(DOCUMENT, path[:-1], rest)
    elif isinstance(inside := inside_of(DOCUMENT, path), dict):
        document = changed(DOCUMENT, path, {**inside, key: value})
    event = heard(document)
    kept(event)
    assert not isinstance(event, Measured) or may_pass(document), document


def inside_of(value: Any, path: tuple[str | int, ...]) -> Any:
    return inside_of(value[path[0]], path[1:]) if path else value


def test_a_number_too_large_for_a_float_costs_the_step_that_said_it():
    text = json.dumps(DOCUMENT).replace('"550.1"', "1e400")
    event = heard(text)
    assert isinstance(event, Failed)
    assert event.reason == 'flow: "environment" has a number that is too large: expected finite'


@pytest.mark.parametrize("missing", sorted(REPORT.keys() - {"stdout"}))
def test_a_report_of_the_guardian_may_leave_anything_out(missing: str):
    report = {name: value for name, value in REPORT.items() if name != missing}
    launch = Launch(step=STEP, attempt=1)
    event = event_of(outcome_in(json.dumps(report).encode()), launch, SPEC, 1.0, parse_result)
    assert isinstance(event, Failed if missing == "exit" else Measured)


def test_half_a_character_in_a_fact_costs_only_itself():
    text = json.dumps(DOCUMENT).replace('"550.1"', r'"a\ud800b"')
    event = heard(text)
    assert isinstance(event, Measured)
    assert event.result.environment["driver"] == "a?b"
    kept(event)


@pytest.mark.long
def test_more_series_than_any_machine_has_are_refused_with_a_sentence():
    series = {"metric": "speed", "samples": [1.0]}
    many = [{**series, "device": f"d{i}"} for i in range(150_000)]
    event = heard({**DOCUMENT, "series": many})
    assert event.reason == f'flow: "series" has 150,000 entries, expected at most {MOST_SERIES:,}'


def test_a_process_that_outlived_sigkill_loses_its_node_even_after_a_good_result():
    event = heard(DOCUMENT, unkillable=[77])
    assert isinstance(event, Measured)
    assert event.lost == ("n0",)
    assert event.reason == (
        "pid 77 of flow outlived SIGKILL: stuck in the kernel, look at the node"
    )
    failed = heard(DOCUMENT, unkillable=[77], exit=4)
    assert (type(failed), failed.lost) == (Failed, ("n0",))
    assert "exited with 4; pid 77" in failed.reason


def test_only_the_node_with_the_stuck_process_of_a_group_is_lost():
    reports = {name: dict(REPORT) for name in ("n0", "n1")}
    reports["n1"]["unkillable"] = [5, 6]
    event = group_event_of(reports, Launch(step=STEP, attempt=1), SPEC, 1.0, parse_result)
    assert isinstance(event, Measured)
    assert event.lost == ("n1",)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(places(DOCUMENT)), HOSTILE)
def test_a_step_ends_and_can_be_stored_with_any_value_in_its_document(path, value):
    document = changed(DOCUMENT, path, value)
    kept(heard(document))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(REPORT)), HOSTILE)
def test_a_step_ends_and_can_be_stored_with_any_value_in_its_report(name, value):
    kept(heard(DOCUMENT, **{name: value}))


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 400))
def test_a_step_ends_with_any_bytes_in_its_report(data, at):
    report = json.dumps(REPORT).encode()
    spoilt = report[:at] + data + report[at + len(data) :]
    launch = Launch(step=STEP, attempt=1)
    kept(event_of(outcome_in(spoilt), launch, SPEC, 1.0, parse_result))


def test_lists_that_nest_too_deep_are_a_sentence_at_any_depth():
    for depth in (9, 500, 990, 5000, 100_000):
        text = json.dumps(DOCUMENT).replace('"550.1"', "[" * depth + "]" * depth)
        with pytest.raises(ContractError):
            parse_result(text, SPEC)


@pytest.mark.parametrize(("name", "kind"), [("failed", Failed), ("silent", TimedOut)])
def test_a_device_without_results_is_named_and_those_of_others_are_kept(name, kind):
    devices = {f"{name}_devices": {"cuda:3": "no answer within 55 s"}}
    event = heard({**DOCUMENT, "environment": devices})
    assert type(event) is kind
    assert event.reason == "cuda:3: no answer within 55 s"
    assert [series.device for series in event.result.series] == ["cpu"]


def test_a_series_with_fewer_samples_than_ordered_is_noted_and_no_document_is_believed_about_it():
    counting = ParameterSpec(name="steps", type="int", default=3, counts=("speed",), unless="kind")
    ordered = replace(SPEC, parameters=(*SPEC.parameters[:3], counting))
    claims = {**DOCUMENT, "environment": {"cut_short": 7}, "parameters": {}}

    def cut_short(steps, spec=ordered, **more):
        return parse_result(json.dumps(claims), spec, {"steps": steps, **more}).cut_short

    assert not cut_short(2)
    assert cut_short(3) == {("speed", "cpu"): 3}
    kind = ParameterSpec(name="kind", type="str", default="plain")
    timed = replace(ordered, parameters=(counting, kind))
    assert not cut_short(3, timed)
    assert cut_short(3, timed, kind="")


@pytest.mark.parametrize("devices", [["cuda:3"], {"cuda:3": "a\x1b[2J"}, {"cuda:3": 7}, {}])
def test_devices_that_left_nothing_are_a_table_of_reasons(devices):
    event = heard({**DOCUMENT, "environment": {"failed_devices": devices}})
    assert isinstance(event, Failed)
    assert '"failed_devices"' in event.reason
