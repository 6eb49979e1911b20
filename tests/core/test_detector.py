"""One look at a running job, on telemetry that was made for one fact each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from watched import CPU, DUTY, PFC, START, TENSOR, StandIn, healthy, set_values

from anubis.core.errors import UsageError
from anubis.core.watch.detector import look
from anubis.core.watch.findings import AnomalyKind, Sign
from anubis.core.watch.telemetry import Side
from anubis.core.watch.watch_settings import PUBLISHED, WatchSettings

SETTINGS = WatchSettings()
MODEL_ONLY = WatchSettings(contrast=False)


def looked(telemetry, settings=SETTINGS, **more):
    return look(telemetry, StandIn(), settings, job="j", **more)


def named(telemetry, settings=SETTINGS, **more):
    return [suspicion.node for suspicion in looked(telemetry, settings, **more).suspicions]


def kinds(telemetry, **more):
    return {(anomaly.node, anomaly.kind) for anomaly in looked(telemetry, **more).anomalies}


@pytest.mark.parametrize("nodes", [4, 8, 20])
def test_a_job_whose_nodes_are_alike_has_no_suspicion(nodes):
    result = looked(healthy(nodes))
    assert not result.suspicions
    assert not result.anomalies
    assert result.judged == ("pfc_tx", "cpu_use", "gpu_duty")


@pytest.mark.parametrize("nodes", [4, 8, 20])
@pytest.mark.parametrize(("rule", "limit"), [(Sign.CONTRAST, 2.0), (Sign.UNLIKE_PEERS, 3.0)])
def test_a_node_that_left_its_peers_is_named_since_the_second_at_which_it_did(nodes, rule, limit):
    settings = WatchSettings(contrast=rule is Sign.CONTRAST)
    result = looked(set_values(healthy(nodes), "cpu_use", "n2", 500, 900, 3.0), settings)
    (suspicion,) = result.suspicions
    (deviation,) = suspicion.deviations
    assert suspicion.node == "n2"
    assert suspicion.since == deviation.since == START + 500
    assert deviation.until == START + 899
    assert (deviation.metric, deviation.sign) == ("cpu_use", rule)
    assert (deviation.side, deviation.value) == (Side.LOW, 3.0)
    assert deviation.peers == pytest.approx(40, abs=1)
    assert deviation.effect == pytest.approx(0.37, abs=0.01)
    assert deviation.score > deviation.threshold == limit


def test_a_window_more_or_less_decides_on_continuity():
    # 240 windows of 8 samples span 247 s; all of each window is apart
    assert named(set_values(healthy(), "cpu_use", "n2", 900 - 247, 900, 3.0), MODEL_ONLY) == ["n2"]
    strict = replace(MODEL_ONLY, min_effect=0.36)  # so that a window is apart only as a whole
    assert named(set_values(healthy(), "cpu_use", "n2", 900 - 247, 900, 3.0), strict) == ["n2"]
    assert not named(set_values(healthy(), "cpu_use", "n2", 900 - 246, 900, 3.0), strict)


def test_continuity_is_a_time_independent_of_the_scrape_interval():
    slow = healthy(points=61, step_s=15.0)
    assert named(set_values(slow, "cpu_use", "n2", 61 - 23, 61, 3.0)) == ["n2"]  # 16 windows
    assert SETTINGS.windows_needed(15.0) == 16
    assert SETTINGS.windows_needed(1.0) == 240
    assert SETTINGS.windows_needed(7.0) == 35


def test_the_first_metric_in_the_order_of_the_model_names_the_node():
    telemetry = set_values(healthy(), "gpu_duty", "n2", 500, 900, 0.0)
    set_values(telemetry, "cpu_use", "n2", 520, 900, 3.0)
    (suspicion,) = looked(telemetry, MODEL_ONLY).suspicions
    assert [deviation.metric for deviation in suspicion.deviations] == ["cpu_use", "gpu_duty"]
    assert [deviation.since - START for deviation in suspicion.deviations] == [520, 500]


def test_a_node_that_came_back_is_unsteady_and_no_suspect():
    telemetry = set_values(healthy(), "cpu_use", "n2", 300, 700, 3.0)
    (anomaly,) = looked(telemetry).anomalies
    assert not named(telemetry)
    assert (anomaly.node, anomaly.kind, anomaly.metric) == ("n2", AnomalyKind.UNSTEADY, "cpu_use")
    assert (anomaly.since, anomaly.until) == (START + 300, START + 699)
    assert named(telemetry, PUBLISHED) == ["n2"]  # as Minder says


def test_a_node_has_not_returned_if_its_peers_came_to_its_value():
    telemetry = set_values(healthy(), "cpu_use", "n2", 300, 900, 3.0)
    telemetry.series("cpu_use")[:, 700:] = 3.0  # the job ended, all are idle
    assert named(telemetry) == ["n2"]


def test_a_node_that_was_always_apart_has_a_role():
    telemetry = set_values(healthy(), "cpu_use", "n2", 0, 900, 60.0)
    assert kinds(telemetry) == {("n2", AnomalyKind.ALWAYS_APART)}
    assert not named(telemetry)


def test_a_role_does_not_hide_a_fault_of_another_node_nor_its_own():
    telemetry = set_values(healthy(), "cpu_use", "n2", 0, 900, 60.0)
    assert named(set_values(telemetry, "cpu_use", "n5", 500, 900, 3.0)) == ["n5"]
    assert named(set_values(healthy(), "cpu_use", "n2", 0, 500, 52.0)) == []
    telemetry = set_values(healthy(), "cpu_use", "n2", 0, 500, 46.0)
    assert named(set_values(telemetry, "cpu_use", "n2", 500, 900, 3.0)) == ["n2"]


@pytest.mark.parametrize("nodes", [4, 5])
def test_in_a_job_of_few_nodes_one_with_a_role_does_not_hide_the_faulty_one(nodes):
    telemetry = set_values(healthy(nodes), "cpu_use", "n2", 0, 900, 60.0)
    assert not named(telemetry)
    assert named(set_values(telemetry, "cpu_use", "n1", 500, 900, 3.0)) == ["n1"]


def test_two_nodes_that_fail_at_once_are_both_named_in_a_job_that_allows_for_two():
    telemetry = healthy(40)
    for node in ("n3", "n30"):
        set_values(telemetry, "cpu_use", node, 500, 900, 3.0)
    assert sorted(named(telemetry)) == ["n3", "n30"]
    assert len(named(telemetry, WatchSettings(most_suspects=0.0))) == 1


def test_no_difference_below_the_floor_of_a_metric_counts():
    assert not named(set_values(healthy(), "pfc_tx", "n2", 500, 900, 55.0))
    assert named(set_values(healthy(), "pfc_tx", "n2", 500, 900, 5000.0)) == ["n2"]


@pytest.mark.parametrize("nodes", [0, 1, 2, 3])
def test_without_a_majority_no_node_is_named_and_the_reason_is_given(nodes):
    result = looked(healthy(nodes))
    assert not result.suspicions
    assert not result.judged
    if nodes:
        assert "at least 4" in result.unjudged["all metrics"]


def test_shares_of_one_that_count_as_percent_are_not_called_alike():
    telemetry = healthy(metrics=(replace(CPU, floor=1.0),))
    assert "cpu_use" in looked(telemetry).judged
    telemetry.values[:] /= 100
    seen = looked(set_values(telemetry, "cpu_use", "n2", 500, 900, 0.03))
    assert not seen.judged
    assert "shares of 1" in seen.unjudged["cpu_use"]


def test_each_group_of_peers_is_compared_among_its_own():
    groups = ("first",) * 6 + ("last",) * 6
    telemetry = healthy(12, groups=groups)
    telemetry.series("cpu_use")[6:] += 30  # the last stage works more
    assert not looked(telemetry).suspicions
    assert not looked(telemetry).anomalies
    assert named(set_values(telemetry, "cpu_use", "n8", 500, 900, 40.0)) == ["n8"]


def test_groups_that_are_too_small_are_compared_together_with_a_remark():
    telemetry = healthy(9, groups=("a",) * 5 + ("b",) * 2 + ("c",) * 2)
    result = looked(set_values(telemetry, "cpu_use", "n6", 500, 900, 3.0))
    assert [suspicion.node for suspicion in result.suspicions] == ["n6"]
    assert "compared with other groups" in result.unjudged["group b"]
    alone = looked(healthy(7, groups=("a",) * 5 + ("b",) * 2))
    assert alone.unjudged.keys() == {"group b"}


def test_series_that_end_while_those_of_the_peers_go_on_are_a_suspicion():
    telemetry = healthy()
    telemetry.values[1:, 2, 700:] = np.nan
    (suspicion,) = looked(telemetry).suspicions
    assert (suspicion.node, suspicion.since) == ("n2", START + 699)
    assert {d.metric for d in suspicion.deviations} == {"cpu_use", "gpu_duty"}
    assert {d.sign for d in suspicion.deviations} == {Sign.VANISHED}
    telemetry.values[1:, 2, 700:] = np.nan
    assert not named(set_values(healthy(), "cpu_use", "n2", 900 - 119, 900, np.nan))


def test_a_node_that_falls_silent_is_suspect_only_if_the_others_wait_for_it():
    telemetry = healthy(metrics=(PFC, CPU, DUTY, TENSOR))
    telemetry.values[:, 2, 700:] = np.nan
    assert named(telemetry) == []
    assert kinds(telemetry) == {("n2", AnomalyKind.GAPS)}
    assert named(telemetry, ended=True) == []  # it stopped by something else, much later
    telemetry.series("gpu_tensor")[:, 720:] *= 0.0
    assert named(telemetry) == named(telemetry, ended=True) == ["n2"]
    telemetry.series("gpu_duty")[2, 700:] = 99.0  # its GPUs report
    assert named(telemetry) == []


def test_values_that_an_exporter_only_repeats_are_not_reported():
    telemetry = healthy(metrics=(PFC, CPU, DUTY, TENSOR))
    alive = telemetry.series("cpu_use")[2, 500:].copy()
    telemetry.values[:, 2, 500:] = [[5.0], [4.0], [3.0], [2.0]]
    assert named(telemetry) == []
    (anomaly,) = looked(telemetry).anomalies
    assert (anomaly.node, anomaly.kind, anomaly.since) == ("n2", AnomalyKind.GAPS, START + 500)
    telemetry.series("cpu_use")[2, 500:] = alive  # so the others stand still by themselves
    assert named(telemetry) == ["n2"]


def test_a_series_that_never_was_is_odd_and_no_suspicion():
    telemetry = set_values(healthy(), "cpu_use", "n2", 0, 900, np.nan)
    assert kinds(telemetry) == {("n2", AnomalyKind.SILENT)}
    assert not named(telemetry)


def test_a_silence_of_the_whole_job_is_one_remark_about_the_job():
    for hole in (slice(300, 500), slice(700, 900)):
        telemetry = healthy()
        telemetry.values[:, :, hole] = np.nan
        (anomaly,) = looked(telemetry).anomalies
        assert (anomaly.node, anomaly.kind) == ("", AnomalyKind.GAPS)
        assert (anomaly.since, anomaly.until) == (START + hole.start, START + hole.stop - 1)
        assert not named(telemetry)


def test_half_of_the_series_missing_is_no_alarm():
    telemetry = healthy(10)
    telemetry.series("cpu_use")[:4, 600:] = np.nan  # 4 of 10 at once: not their own fault
    assert kinds(telemetry) == {("", AnomalyKind.GAPS)}
    assert not named(telemetry)


def test_with_two_nodes_silence_makes_neither_suspect():
    assert not named(set_values(healthy(2), "gpu_duty", "n1", 600, 900, np.nan))
    assert named(set_values(healthy(3), "gpu_duty", "n1", 600, 900, np.nan)) == ["n1"]


@pytest.mark.parametrize("seed", range(5))
def test_holes_anywhere_are_no_alarm(seed):
    random = np.random.default_rng(seed)
    telemetry = healthy(10, seed=seed)
    telemetry.values[random.random(telemetry.values.shape) < 0.2] = np.nan
    assert not named(telemetry)


def test_a_job_that_failed_is_looked_at_with_a_shorter_continuity():
    telemetry = set_values(healthy(), "cpu_use", "n2", 810, 900, 3.0)
    assert not named(telemetry)
    assert named(telemetry, ended=True) == ["n2"]
    assert not named(telemetry, PUBLISHED, ended=True)


def test_after_a_job_failed_all_are_idle_and_the_node_that_left_before_is_named():
    telemetry = set_values(healthy(), "cpu_use", "n2", 710, 900, 3.0)
    telemetry.series("cpu_use")[:, 800:] = 3.0
    assert named(telemetry, ended=True) == ["n2"]


def test_a_fault_hidden_by_the_end_of_the_job_is_still_named():
    telemetry = set_values(healthy(), "pfc_tx", "n2", 600, 800, 5000.0)
    assert kinds(telemetry) == {("n2", AnomalyKind.UNSTEADY)}
    telemetry.values[:, :, 800:] *= 0.03  # the job ended: no traffic, no work
    assert named(telemetry, ended=True) == ["n2"]


def test_a_difference_that_shows_when_the_work_begins_is_a_role():
    telemetry = set_values(healthy(points=600), "gpu_duty", "n2", 0, 600, 60.0)
    telemetry.series("gpu_duty")[:, :100] = 0.0  # all wait for the first step
    assert kinds(telemetry) == {("n2", AnomalyKind.ALWAYS_APART)}
    assert not named(telemetry)


@pytest.mark.parametrize("works", [40.0, 60.0, 90.0])
def test_a_gpu_that_stops_while_its_peers_spin_as_never_before_has_no_role(works):
    telemetry = healthy()
    telemetry.series("gpu_duty")[:, :500] -= 95.0 - works
    telemetry.series("gpu_duty")[:, 500:] += 4.0  # of kernels that wait
    assert named(set_values(telemetry, "gpu_duty", "n2", 500, 900, 0.0)) == ["n2"]


def test_metrics_that_cannot_be_judged_are_listed_with_the_reason():
    result = looked(healthy(metrics=(CPU,)))
    assert result.judged == ("cpu_use",)
    assert result.unjudged == dict.fromkeys(("pfc_tx", "gpu_duty"), "not in the telemetry")
    model = StandIn()
    del model.denoisers["gpu_duty"], model.thresholds["pfc_tx"]
    result = look(healthy(), model, SETTINGS)
    assert result.unjudged == {
        "gpu_duty": "the watch model was not trained for it",
        "pfc_tx": "the watch model has no threshold for it",
    }


def test_a_metric_that_no_node_reports_is_unjudged():
    telemetry = healthy()
    telemetry.series("cpu_use")[:] = np.nan
    assert looked(telemetry).unjudged.keys() == {"cpu_use"}


def test_metrics_can_be_compared_as_one():
    telemetry = set_values(healthy(metrics=(DUTY, CPU)), "cpu_use", "n2", 500, 900, 3.0)
    (suspicion,) = looked(telemetry, WatchSettings(concatenated=True)).suspicions
    assert suspicion.node == "n2"
    assert suspicion.deviations[0].metric == "cpu_use"


def test_pulls_that_could_miss_a_fault_are_refused():
    with pytest.raises(UsageError, match="pull at least 1140 s"):
        WatchSettings(interval_s=900)
