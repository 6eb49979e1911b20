"""The answer of a look on 80 columns and for programs. Its first line has the most important
fact."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

from anubis.core.keep.suspicions import HitRate
from anubis.core.watch.detector import look
from anubis.core.watch.watch_settings import WatchSettings
from anubis.report import watch, watch_page
from anubis.report.schemas import any_line_schema
from anubis.report.watch import LookView
from tests.core.watched import CPU, DUTY, PFC, START, StandIn, healthy

SETTINGS = WatchSettings()


def viewed(telemetry, *, job="4711", **facts):
    seen = look(telemetry, StandIn(), SETTINGS, job=job)
    return LookView(
        look=seen, telemetry=telemetry, continuity_s=SETTINGS.continuity_s, cluster="prod", **facts
    )


def faulty(telemetry=None, node=3, since=500):
    telemetry = telemetry or healthy()
    telemetry.series("cpu_use")[node, since:] = 2.0
    return telemetry


def text(view, width=80):
    out = io.StringIO()
    watch.show(view, Console(width=width, file=out))
    return out.getvalue()


def test_the_first_line_names_the_node_the_moment_and_both_values():
    first = watch.headline(viewed(faulty()))
    assert first == (
        "job 4711: n3 is unlike its 7 peers since 22:21:40 UTC "
        "(cpu_use 2 %, peers 40.0 %); no other node"
    )
    assert START + 500 == 1_700_000_500  # 2023-11-14 22:21:40 UTC


def test_the_first_line_of_an_all_clear_states_on_how_much_data_it_rests():
    first = watch.headline(viewed(healthy(nodes=64)))
    assert first == ("job 4711: nothing unlike its peers in 15 min on 3 metrics of 64 nodes")


def test_unreported_metrics_are_not_counted_as_judged():
    first = watch.headline(viewed(healthy(metrics=(CPU, DUTY))))
    assert "on 2 of 3 metrics of 8 nodes" in first


@pytest.mark.parametrize(
    ("telemetry", "reason"),
    [
        (healthy(nodes=3), "cannot say: 3 nodes, too few to find one unlike the others"),
        (healthy(points=100), "cannot say: most nodes reported for 100 s at a stretch"),
    ],
)
def test_an_unknown_answer_is_shown_with_the_reason(telemetry, reason):
    assert reason in watch.headline(viewed(telemetry))


def test_a_node_without_a_report_is_not_called_like_its_peers():
    telemetry = healthy()
    telemetry.values[:, 2] = np.nan
    first = watch.headline(viewed(telemetry))
    assert "cannot say of n2, which reported nothing" in first
    assert "of the other 7 nodes" in first


def test_a_node_that_fell_silent_is_named_with_the_metrics_that_stopped():
    telemetry = healthy()
    telemetry.values[:, 5, 600:] = np.nan
    first = watch.headline(viewed(telemetry))
    assert "n5 reports no " in first
    assert "since 22:23:19 UTC, while its 7 peers do" in first


@pytest.mark.parametrize("width", [48, 80])
def test_all_words_fit_on_narrow_terminals_and_only_commands_may_be_longer(width):
    telemetry = faulty(replace(healthy(), nodes=tuple(f"gpu-node-rack17-{i:04}" for i in range(8))))
    view = viewed(telemetry, remarks=("no node reports pfc_tx; it needs an exporter " * 3,))
    shown = text(view, width)
    lines = [line for line in shown.splitlines() if "anubis " not in line]
    assert max(map(len, lines)) <= width
    assert shown.replace("─", "").split() == text(view, 200).replace("─", "").split()


def test_a_figure_and_its_unit_stay_on_one_line():
    assert "\n  %" not in text(viewed(faulty()))
    assert " 40.0 %" in text(viewed(faulty(replace(healthy(), nodes=tuple("abcdefgh")))))


def test_a_suspicion_shows_the_hit_rate_of_its_source_or_that_none_is_known():
    (suspicion,) = viewed(faulty()).look.suspicions
    fresh = watch.confidence_sentence(viewed(faulty()), suspicion)
    assert "by no experience" in fresh
    known = viewed(faulty(), rates={"n3": HitRate(hits=9, misses=1)})
    sure = replace(suspicion, confidence=0.83)
    assert watch.confidence_sentence(known, sure) == (
        "how sure: 83%, as tests confirmed 9 of 10 suspicions of this kind at this site"
    )


def test_the_mix_is_called_a_hint_and_its_shares_come_to_a_hundred():
    (suspicion,) = viewed(faulty()).look.suspicions
    mixed = replace(suspicion, mix={"gpu": 0.64, "host": 0.18, "link": 0.09, "network": 0.09})
    sentence = watch.mix_sentence(mixed)
    assert "gpu 64%, host 18%, others 18%" in sentence
    assert "published table" in sentence


def test_the_next_step_is_a_command_for_exactly_the_suspected_nodes():
    shown = text(viewed(faulty()))
    assert "anubis validate 'n3' --cluster prod" in shown
    assert "what next" not in text(viewed(healthy()))


def test_nothing_is_left_out_in_silence():
    telemetry = healthy(metrics=(CPU, PFC))
    telemetry.series("cpu_use")[1, 300:400] = 2.0  # came back
    shown = text(viewed(telemetry))
    assert "odd, and no suspicion:" in shown
    assert "n1: left its peers in cpu_use" in shown
    assert "not judged:" in shown
    assert "gpu_duty: not in the telemetry" in shown


@pytest.mark.parametrize("telemetry", [faulty(), healthy(nodes=3)], ids=["named", "unknown"])
def test_each_line_for_programs_is_as_declared_and_the_look_is_the_last(telemetry):
    written = [json.loads(line) for line in watch.lines(viewed(telemetry))]
    validator = Draft202012Validator(any_line_schema())
    for line in written:
        validator.validate(line)
    assert written[-1]["type"] == "look"
    assert {line["node"] for line in written if line["type"] == "suspicion"} == set(
        written[-1]["suspects"]
    )


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (71.0, "W", "71 W"),
        (412.4, "W", "412 W"),
        (39.96, "%", "40.0 %"),
        (2_097_152_000, "B/s", "2.10 GB/s"),
        (0.0, "packets/s", "0 packets/s"),
        (float("nan"), "W", "-"),
        (1980.0, "MHz", "1,980 MHz"),
    ],
)
def test_amounts_are_short_and_have_their_unit(value, unit, written):
    assert watch.amount(value, unit) == written


@pytest.mark.parametrize(
    ("value", "beside", "written"),
    [
        (1449.0, 6.33, ("1,449 packets/s", "6.33 packets/s")),
        (6.33, 1449.0, ("6.33 packets/s", "1,449 packets/s")),
        (1449.0, 812.0, ("1.45 kpackets/s", "0.81 kpackets/s")),
        (3.1e9, 0.0, ("3.10 Gpackets/s", "0 Gpackets/s")),
        (3.1e9, float("nan"), ("3.10 Gpackets/s", "-")),
    ],
)
def test_amounts_that_are_compared_have_one_unit(value, beside, written):
    assert watch.amounts(value, beside, "packets/s") == written


def test_the_page_pictures_the_suspect_against_its_peers_metric_by_metric():
    page = watch_page.render([viewed(faulty())])
    assert page.count('class="chart"') == 3
    assert page.index("cpu_use <span>2 %, peers 40.0 %") < page.index("pfc_tx <span>like its peers")
    assert page.count('class="suspect"') == 3
    assert page.count('class="moment"') == 1  # only where it left
    assert "<script" not in page


def test_a_hole_in_the_data_is_a_hole_in_the_picture():
    whole, holed = faulty(), faulty()
    holed.series("cpu_use")[3, 600:650] = np.nan
    lines = [watch_page.render([viewed(t)]).count('class="suspect"') for t in (whole, holed)]
    assert lines[1] == lines[0] + 1


def test_names_from_outside_are_escaped_on_the_page():
    names = ("<script>alert(1)</script>", *(f"n{i}" for i in range(7)))
    page = watch_page.render([viewed(faulty(replace(healthy(), nodes=names), node=0))])
    assert "<script" not in page


def test_the_page_of_a_healthy_job_shows_charts_of_its_metrics():
    page = watch_page.render([viewed(healthy())])
    assert "nothing unlike its peers" in page
    assert page.count('class="chart"') == 3
    assert 'class="suspect"' not in page
