"""Sources of incidents: a record happens again as it was, a past ends before the runs, and
incidents from a fitted model follow its hazard."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from clusters import BENCHMARKS, category, endless, site, truth
from scipy.stats import kstest, weibull_min

from anubis.core.amounts import HOUR_S
from anubis.core.errors import TraceError
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Incident, Instants, Watch
from anubis.lab.study.cluster import run
from anubis.lab.study.incidents import DefectCause, Histories, KnownRates
from anubis.lab.study.policies import Absence
from anubis.lab.study.scenario import Benchmark, Jobs, Scenario, Variations
from anubis.lab.study.sources import (
    PAST_SEED,
    DrawnIncidents,
    ModelledIncidents,
    ModelRisk,
    Recorded,
)
from anubis.lab.study.trials import Study, Trial

DAY_S = 24 * HOUR_S
SCENARIO = Scenario(
    summary="for a test",
    nodes=20,
    spares=2,
    days=5,
    seeds=3,
    past_days=60,
    jobs=Jobs(median_h=10.0, spread=1.0),
    benchmarks=(Benchmark(name="gemm", minutes=2), Benchmark(name="train", minutes=60)),
    categories=(
        category(mtbi_h=200.0, causes=(DefectCause(share=1, found_by=("gemm", "train")),)),
        category(name="link", mtbi_h=500.0, causes=(DefectCause(share=1, found_by=("train",)),)),
    ),
    incident_costs_h=60.0,
    sweep=Variations(catch=(), p0=()),
)


class Known:
    """A model that knows the rates of SCENARIO."""

    covariates = ("incidents",)

    def cumulative_hazard(self, statuses, hours):
        return np.tile(hours * (1 / 200 + 1 / 500), (len(statuses), 1))


@pytest.fixture(scope="module")
def record() -> tuple[list[Incident], list[Watch]]:
    """A fleet that was watched for 60 days, some nodes from later on; repairs take a second."""
    rng = np.random.default_rng(5)
    watches = [Watch(node=f"n{i:02}", since=i % 3 * DAY_S) for i in range(12)]
    incidents = [
        Incident(node=watch.node, category=("gpu", "link")[kind], start=at, end=at + 1.0)
        for watch in watches
        for at, kind in zip(
            np.sort(watch.since + rng.uniform(0, 57 * DAY_S, 20)).tolist(),
            rng.integers(0, 2, 20).tolist(),
            strict=True,
        )
    ]
    return incidents, watches


# --- a record that happens again -----------------------------------------------------------


def test_the_last_days_happen_again_in_the_first_run_and_those_before_in_the_next(record):
    incidents, _ = record
    source = Recorded.from_records(SCENARIO, *record)
    last = max(incident.start for incident in incidents) + 1
    place = site(nodes=12, span_h=5 * 24.0, durations_h=(0.1, 1.0), incident_repair_h=1e-9)
    for seed in range(3):
        end = last - seed * 5 * DAY_S
        wanted = sum(end - 5 * DAY_S < one.start < end for one in incidents)
        fates, _ = source.fates(seed)
        assert run(place, endless(12), fates, Absence()).incidents == wanted


@pytest.mark.parametrize("repair_s", [1.0, 2 * DAY_S])
def test_simulated_histories_begin_with_the_statuses_of_the_logbook(record, repair_s):
    """The same statuses from two programs that have nothing in common."""
    incidents, watches = record
    incidents = [replace(incident, end=incident.start + repair_s) for incident in incidents]
    source = Recorded.from_records(SCENARIO, incidents, watches)
    fates, _ = source.fates(1)
    begin = max(one.start for one in incidents) + 1 - 10 * DAY_S
    logbook = Logbook.from_records(incidents, watches)
    names = tuple(name for name in logbook.covariates() if not name.startswith("validated"))
    wanted = logbook.statuses(Instants.now(logbook.nodes, begin), names)
    told = ModelRisk(Asked(names), source.scenario.categories)
    found = told.statuses(range(12), 0.0, fates.histories(2))
    assert found.values == pytest.approx(wanted.values)


class Asked:
    def __init__(self, covariates):
        self.covariates = covariates


def test_the_record_brings_its_nodes_and_its_categories(record):
    incidents, watches = record
    strange = Incident(node="n99", category="flood", start=9 * DAY_S)
    scenario = Recorded.from_records(SCENARIO, [*incidents, strange], watches).scenario
    assert (scenario.nodes, scenario.spares) == (13, 1)
    assert [one.name for one in scenario.categories] == ["flood", "gpu", "link"]
    assert scenario.categories[0].causes[0].found_by == ()
    gpu = scenario.categories[1]
    assert gpu.causes == SCENARIO.categories[0].causes
    starts = [one.start for one in incidents]
    count = sum(one.category == "gpu" for one in incidents)
    assert gpu.mtbi_h == pytest.approx(13 * (max(starts) - min(starts)) / HOUR_S / count)


def test_a_record_of_one_node_leaves_it_to_the_jobs():
    incidents = [Incident(node="n1", category="gpu", start=day * DAY_S) for day in range(40)]
    assert Recorded.from_records(replace(SCENARIO, spares=19), incidents, []).scenario.spares == 0


def test_a_model_learns_only_from_the_time_before_all_runs(record):
    incidents, watches = record
    last = max(incident.start for incident in incidents)
    later = Incident(node="n00", category="flood", start=last - DAY_S)
    past = Recorded.from_records(SCENARIO, [*incidents, later], watches).past()
    assert past.until == last + 1 - 15 * DAY_S
    assert past.logbook.categories == ("gpu", "link")
    before = [one for one in incidents if one.start < past.until]
    uptimes = past.logbook.uptimes(past.logbook.returns(), past.until)
    assert np.count_nonzero(uptimes.observed) == len(before)


def test_a_record_that_is_too_short_is_refused_with_the_way_out(record):
    with pytest.raises(TraceError, match=r"3 runs of 30 days leave no past .* fewer seeds or days"):
        Recorded.from_records(replace(SCENARIO, days=30.0), *record)
    with pytest.raises(TraceError, match="import some first"):
        Recorded.from_records(SCENARIO, [], [])


def test_the_true_risk_of_a_recorded_history_is_refused(record):
    source = Recorded.from_records(SCENARIO, *record)
    with pytest.raises(TraceError, match='"risk" has to name a model'):
        Study(source.scenario, (), source).result(SELECTOR)


# --- a past that is made -------------------------------------------------------------------


def test_a_drawn_past_equals_a_cluster_without_validation():
    first, second = SCENARIO.categories
    scenario = replace(SCENARIO, categories=(first, replace(second, worse_by=1.5, at_worst=10.0)))
    past = DrawnIncidents(scenario).past()
    uptimes = past.logbook.uptimes(past.logbook.returns(), past.until)
    truth = KnownRates(scenario.categories, scenario.benchmark_names, 20, PAST_SEED)
    place = site(nodes=20, span_h=60 * 24.0, incident_repair_h=scenario.repair.incident_h)
    assert np.count_nonzero(uptimes.observed) == run(place, [], truth, Absence()).incidents
    assert past.until == 60 * DAY_S
    assert len(past.logbook.nodes) == 20


# --- what the Selector knows ---------------------------------------------------------------

SELECTOR = Trial(policy="selector", seed=0, catch=1.0, p0=0.01)


def test_a_model_that_knows_the_rates_makes_much_the_same_selector_as_the_truth():
    """It lacks the rates of categories: of these it knows what has happened, as a fleet does."""
    nothing = Study(SCENARIO).result(replace(SELECTOR, policy="absence")).figures
    told = Study(SCENARIO).result(SELECTOR).figures
    asked = Study(SCENARIO, (), DrawnIncidents(SCENARIO), Known()).result(SELECTOR).figures
    assert asked["validation_h"] == pytest.approx(told["validation_h"], rel=0.15)
    assert max(asked["incidents"], told["incidents"]) < 0.2 * nothing["incidents"]


def test_a_selector_without_predicted_risk_tests_only_nodes_never_proven():
    """Once at most each time that a node goes into service."""

    class Blind(Known):
        def cumulative_hazard(self, statuses, hours):
            return np.zeros((len(statuses), hours.size))

    blind = Study(SCENARIO, (), DrawnIncidents(SCENARIO), Blind()).result(SELECTOR).outcome
    told = Study(SCENARIO).result(SELECTOR).outcome
    assert 0 < blind.validations <= SCENARIO.nodes + blind.incidents + blind.repaired_early
    assert told.validations > SCENARIO.nodes + told.incidents + told.repaired_early


def test_incidents_drawn_from_a_model_that_knows_the_rates_are_those_of_the_rates():
    absence = Trial(policy="absence", seed=0, catch=1.0, p0=0.01)
    longer = replace(SCENARIO, nodes=200, days=30.0)
    rates = Study(longer).result(absence).figures["incidents"]
    drawn = Study(longer, (), DrawnIncidents(longer, Known())).result(absence).figures["incidents"]
    assert drawn == pytest.approx(rates, rel=0.1)


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


def test_a_model_without_hazard_gives_no_incidents():
    class Nothing(Weibull):
        def cumulative_hazard(self, statuses, hours):
            return np.zeros((len(statuses), hours.size))

    fates = ModelledIncidents(Nothing(1.0, 1.0), KINDS, BENCHMARKS, nodes=20, seed=0)
    assert run(site(nodes=20), endless(20), fates, Absence()).incidents == 0


def test_statuses_in_the_lab_follow_from_the_history_of_the_node():
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


def test_a_covariate_that_is_not_simulated_is_refused_by_name():
    told = ModelRisk(Weibull(1.0, 1.0, ("temperature",)), KINDS)
    with pytest.raises(ValueError, match='not know the covariate "temperature"'):
        told.statuses([0], 0.0, Histories.blank(nodes=1, categories=2, benchmarks=3))
