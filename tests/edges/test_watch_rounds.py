"""From the reports of a job's nodes to suspicions, and their outcomes."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from anubis.config import configs
from anubis.core.watch.rounds import KeptLook
from anubis.operations.watch_rounds import JobMemory, Watching, look_at, look_at_job
from anubis.readers.telemetry.pulled import PulledTelemetry
from anubis.service import metrics
from tests.core.watched import CPU, PFC, START, StandIn, healthy

CATEGORIES = configs.watching("default").categories


class Planted:
    """Reports of nodes, with the CPU of one falling from the given time on."""

    def __init__(self, telemetry):
        self.telemetry = telemetry
        self.asked = []

    def pull(self, nodes, until, last_s):
        self.asked.append((tuple(nodes), until, last_s))
        return PulledTelemetry(telemetry=self.telemetry.only(nodes), remarks=("a remark",))


def falling(metric=CPU, *, node=3, since=500, to=2.0, **kwargs):
    telemetry = healthy(**kwargs)
    values = telemetry.values.copy()
    values[[m.name for m in telemetry.metrics].index(metric.name), node, since:] = to
    return replace(telemetry, values=values)


def watching(telemetry=None):
    return Watching(source=Planted(telemetry), model=StandIn(), categories=CATEGORIES)


def test_a_look_asks_for_as_much_as_its_settings_say_and_names_the_node_with_its_mix():
    by = watching(falling())
    seen = look_at_job("17", by.source.telemetry.nodes, by, until=START + 900)
    (suspicion,) = seen.look.suspicions
    assert (suspicion.node, seen.look.job, seen.remarks) == ("n3", "17", ("a remark",))
    assert by.source.asked == [(by.source.telemetry.nodes, START + 900, 1200.0)]
    assert sum(suspicion.mix.values()) == pytest.approx(1)
    assert next(iter(suspicion.mix)) == "gpu"  # CPU alone: ECC 47 %, CUDA 16 %


def test_telemetry_before_the_job_began_says_nothing_about_it():
    """Idle until the job, or busy with another one; a job that has just begun is not judged."""
    telemetry = falling()
    by, nodes = watching(telemetry), telemetry.nodes
    whole = look_at_job("17", nodes, by, until=telemetry.end)
    assert [suspicion.node for suspicion in whole.look.suspicions] == ["n3"]
    for began in (telemetry.end - 30, telemetry.end - 5, telemetry.end + 60):
        seen = look_at_job("17", nodes, by, since=began, until=telemetry.end)
        assert seen.look.suspicions == ()
        assert seen.still_since is None
        assert seen.telemetry.start >= began or not seen.telemetry.points


def test_the_deviating_metric_decides_the_mix():
    by = watching(falling(PFC, to=5000.0))
    (suspicion,) = look_at(by.source.telemetry, by).suspicions
    assert suspicion.mix["link"] > 0.9  # PFC alone: a PCIe link


class Reported(Planted):
    """No more of it than was asked for, up to then."""

    def pull(self, nodes, until, last_s):
        known = replace(self.telemetry, values=self.telemetry.values[:, :, self._inside(until)])
        return replace(super().pull(nodes, until, last_s), telemetry=known.last(last_s))

    def _inside(self, until):
        return slice(0, int(np.count_nonzero(self.telemetry.times <= until)))


def test_a_followed_job_is_asked_for_new_data_and_outliers_of_an_hour_are_found():
    telemetry = falling(since=490, to=32.0, points=600, step_s=10.0)
    blunt = replace(watching().settings, min_effect=0.2, contrast=False)
    by = replace(watching(), source=Reported(telemetry), settings=blunt)
    memory = JobMemory(by)
    suspects = []
    for until in np.arange(START + 1200, telemetry.end + 1, 480):
        seen = look_at_job("17", telemetry.nodes, by, until=until, memory=memory)
        suspects.append([suspicion.node for suspicion in seen.look.suspicions])
    first, *later = [last_s for _, _, last_s in by.source.asked]
    assert first == 1200
    assert max(later) <= 480 + 2 * 60
    assert suspects[-1] == ["n3"]
    assert not any(suspects[:-2])
    alone = look_at_job("17", telemetry.nodes, by, until=telemetry.end)
    assert not alone.look.suspicions  # twenty minutes alone do not tell


def test_with_more_than_an_hour_of_data_the_rule_of_ten_minutes_applies_too():
    """A drop of 8 of 100 is too little for a window, and plain beside ten minutes of peers."""
    telemetry = falling(since=480, to=32.0, points=600, step_s=10.0)
    values = telemetry.values.copy()
    values[1, 3, 480:] += np.random.default_rng(2).normal(0, 0.5, 120).astype(np.float32)
    by = replace(watching(), settings=replace(watching().settings, min_effect=0.2, contrast=False))
    (suspicion,) = look_at(replace(telemetry, values=values), by).suspicions
    assert suspicion.node == "n3"
    assert {d.sign.value for d in suspicion.deviations} == {"outlier"}
    short = replace(telemetry, values=values).last(1800)
    assert look_at(short, by).suspicions == ()


def test_a_pull_that_is_too_short_for_the_interval_is_refused_when_the_file_is_read(tmp_path):
    file = tmp_path / "site.yaml"
    file.write_text("pull_s: 600\ninterval_s: 480\n")
    with pytest.raises(configs.ConfigError, match="pull at least 720 s"):
        configs.watching(str(file))


def test_a_kind_of_fault_that_does_not_exist_is_refused(tmp_path):
    file = tmp_path / "site.yaml"
    file.write_text("categories: {ecx: gpu}\n")
    with pytest.raises(configs.ConfigError, match='has "ecx", expected kinds of faults: ecc'):
        configs.watching(str(file))


def test_metrics_of_the_watch_count_watched_jobs_and_date_the_oldest_look():
    looks = (
        KeptLook(job="a", at=100.0, nodes=8, suspects=1),
        KeptLook(job="b", at=50.0, nodes=8, trouble="the Prometheus does not answer"),
        KeptLook(job="c", at=10.0, nodes=8, suspects=3, job_ended=True),
    )
    clusters = {"prod": SimpleNamespace(looks=looks), "unwatched": SimpleNamespace(looks=())}
    figures = {
        family.name: {sample.labels["cluster"]: sample.value for sample in family.samples}
        for family in metrics._looks(SimpleNamespace(clusters=clusters))
    }
    assert figures == {
        "anubis_watched_jobs": {"prod": 2},
        "anubis_watch_failures": {"prod": 1},
        "anubis_watch_suspects": {"prod": 1},
        "anubis_watch_oldest_look_timestamp_seconds": {"prod": 50.0},
    }
