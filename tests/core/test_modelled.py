"""Incidents from a fitted model: they follow its hazard, and the status is what a history tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from clusters import BENCHMARKS, category, endless, site, truth
from scipy.stats import kstest, weibull_min

from anubis.lab.study.cluster import run
from anubis.lab.study.incidents import Histories
from anubis.lab.study.policies import Absence
from anubis.lab.study.sources import ModelledIncidents, ModelRisk

KINDS = (category(name="gpu", mtbi_h=100.0), category(name="link", mtbi_h=300.0))


@dataclass(frozen=True)
class Weibull:
    scale: float
    shape: float
    covariates: tuple[str, ...] = ("incidents",)

    def cumulative_hazard(self, statuses, hours):
        return np.tile((hours / self.scale) ** self.shape, (len(statuses), 1))


@dataclass(frozen=True)
class PerCount:
    """The rate doubles with each of the first three incidents."""

    covariates: tuple[str, ...] = ("incidents",)

    def cumulative_hazard(self, statuses, hours):
        return np.outer(0.01 * 2.0 ** np.minimum(statuses.values[:, 0], 3), hours)


@pytest.mark.parametrize("shape", [0.6, 1.0, 2.5])
def test_times_follow_the_hazard_of_the_model(shape):
    fates = ModelledIncidents(Weibull(200.0, shape), KINDS, BENCHMARKS, nodes=500, seed=0)
    histories = Histories.blank(nodes=500, categories=2, benchmarks=3)
    times = [fates.next(node, 0, 50.0, histories).due_h - 50.0 for node in range(500)]
    assert kstest(times, weibull_min(shape, scale=200.0).cdf).pvalue > 0.001


@pytest.mark.parametrize("shape", [0.6, 1.0, 2.5])
def test_the_true_risk_is_that_of_a_node_which_has_lasted_so_long(shape):
    fates = ModelledIncidents(Weibull(200.0, shape), KINDS, BENCHMARKS, nodes=1, seed=0)
    histories = Histories.blank(nodes=1, categories=2, benchmarks=3)
    fates.next(0, 0, 50.0, histories)
    alive = weibull_min(shape, scale=200.0).sf
    for up_h in (0.0, 30.0, 700.0):
        p = fates.chances_within([0], 100.0, 50.0 + up_h, histories)
        assert p == pytest.approx(1 - alive(up_h + 100.0) / alive(up_h), rel=5e-3)


def test_a_model_that_knows_the_truth_gives_as_many_incidents_as_the_truth():
    place = site(nodes=80)
    growing = category(mtbi_h=100.0, worse_by=2.0, at_worst=8.0)
    drawn = run(place, endless(80), truth(place, growing), Absence())
    fates = ModelledIncidents(PerCount(), (growing,), BENCHMARKS, nodes=80, seed=5)
    fitted = run(place, endless(80), fates, Absence())
    assert fitted.incidents == pytest.approx(drawn.incidents, rel=0.1)


def test_where_the_model_sees_no_hazard_nothing_happens():
    class Nothing(Weibull):
        def cumulative_hazard(self, statuses, hours):
            return np.zeros((len(statuses), hours.size))

    fates = ModelledIncidents(Nothing(1.0, 1.0), KINDS, BENCHMARKS, nodes=20, seed=0)
    assert run(site(nodes=20), endless(20), fates, Absence()).incidents == 0


def test_a_status_is_what_the_history_of_the_node_tells():
    names = ("up_h", "since_incident_h", "incidents", "mtbi_h", "incidents:link", "mtbi_h:gpu")
    more = ("validated_h", "total_up_h", "since_incident_h:gpu")
    told = ModelRisk(Weibull(1.0, 1.0, (*names, *more)), KINDS)
    histories = Histories.blank(nodes=2, categories=2, benchmarks=3)
    histories.incidents[1] = (2, 1)
    histories.last_incident_h[1] = (60.0, 80.0)
    histories.out_of_service_h[1] = 80.0
    histories.bring_back(1, 90.0)
    histories.validated_h[1, 0] = 95.0
    new, old = told.statuses([0, 1], 100.0, histories).values.tolist()
    assert new == [100, 100, 0, 100, 0, 100, 100, 100, 100]
    assert old == [10, 20, 3, 80 / 3, 1, 30, 5, 90, 40]
    *_, late = told.statuses([0, 1], 5000.0, histories).values.tolist()
    assert (late[1], late[-1]) == (4920, 2400)  # longer ago, the category's is all the same


def test_a_covariate_nobody_simulates_is_named():
    told = ModelRisk(Weibull(1.0, 1.0, ("temperature",)), KINDS)
    with pytest.raises(ValueError, match='not know the covariate "temperature"'):
        told.statuses([0], 0.0, Histories.blank(nodes=1, categories=2, benchmarks=3))
