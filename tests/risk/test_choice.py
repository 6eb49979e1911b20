"""The model that is chosen, and the reasons against the others: on fleets whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.logbook import OF_ATTRIBUTES, Logbook
from anubis.core.history.status import Incident, Statuses, Uptimes, Watch
from anubis.models.risk.baselines import Exponential
from anubis.models.risk.choice import best
from anubis.models.risk.covariates import (
    Gain,
    chances_elsewhere,
    drop_covariates,
    gain_over_nodes,
    shortcoming,
    worth_learning,
)
from anubis.models.risk.cox import Cox
from anubis.models.risk.evaluation import Evaluation, evaluate
from anubis.models.risk.forecast import EDGES_H, coverage, log_likelihood
from anubis.models.risk.models import MODELS
from anubis.models.risk.risk_learning import choose, misplaced_node, uptimes_of
from anubis.models.risk.risk_model import forecast
from anubis.models.risk.splits import DECIDING, split
from tests.risk.known_hazard import KnownHazard, uptimes

DAY_S = 86_400.0
DAYS = 700
QUICK = MODELS[:-1]  # all but the network
LOOKING = {model.name for model in MODELS if model.looks}


def history(rates_per_day, seed=0) -> Uptimes:
    """Nodes with a constant rate each, watched for two years; each incident takes an hour."""
    rng = np.random.default_rng(seed)
    incidents, watches = [], []
    for number, rate in enumerate(rates_per_day):
        node = f"n{number:03}"
        watches.append(Watch(node=node, since=0.0))
        for at in np.sort(rng.uniform(0, DAYS * DAY_S, rng.poisson(rate * DAYS))).tolist():
            incidents.append(Incident(node=node, category="x", start=at, end=at + 3600))
    return uptimes_of(Logbook.from_records(incidents, watches), DAYS * DAY_S)


def uneven(nodes=160, worst=0.15, seed=0) -> Uptimes:
    """Rates that differ as those of real nodes do, and one node that is far worse than all."""
    rates = np.random.default_rng(seed).gamma(0.7, 0.004 / 0.7, nodes)
    rates[3] = worst
    return history(rates, seed)


@pytest.fixture(scope="module")
def one_bad_node():
    data = uneven()
    return data, evaluate(data, QUICK, kinds=DECIDING)


# --- the rule ------------------------------------------------------------------------------


@pytest.mark.long
def test_a_model_that_is_better_in_both_splits_is_not_refused_for_one_node_far_worse_than_all(
    one_bad_node,
):
    data, evaluation = one_bad_node
    choice, model = choose(evaluation, data, seed=0)
    assert choice.model in LOOKING
    assert choice.beats_base_rate
    risk = forecast(model, data.statuses).hazard_at(np.array([720.0]))[:, 0]
    by_node = dict(zip(data.statuses.nodes, risk, strict=True))  # of each node, the last
    assert sorted(by_node, key=by_node.get)[-3:].count("n003") == 1


def gaining(evaluation, gains):
    """The looking models' evidence is the base rate's and so much more, seed by seed."""
    return Evaluation(
        scores=tuple(
            replace(score, log_likelihood=gains[score.seed] * (score.model in LOOKING))
            for score in evaluation.scores
        )
    )


@pytest.mark.parametrize(
    ("gains", "wins"),
    [
        ((9.0, -1.0, -1.0, -1.0, -1.0), True),  # most of it on one part: five against one it stays
        ((0.5,) * 5, False),  # odds of 12 to 1
        ((0.7,) * 5, True),  # odds of 33 to 1
        ((1.0, 1.0, 1.0, 1.0, -3.0), False),
    ],
)
def test_the_gain_of_a_model_counts_as_a_whole_for_any_spread_of_its_parts(
    one_bad_node, gains, wins
):
    choice = best(gaining(one_bad_node[1], gains))
    assert choice.beats_base_rate is wins
    if not wins:
        assert all("chance" in refusal.because for refusal in choice.refused)


def test_every_refused_model_with_covariates_has_its_reason(one_bad_node):
    choice = best(one_bad_node[1])
    assert {refusal.model for refusal in choice.refused} == {"cox", "exponential-per-count"} - {
        choice.model
    }
    assert all("refused because" in text for text in list(choice.sentences())[1:])


def test_a_model_refused_for_its_order_yields_to_the_next_best(one_bad_node):
    first = best(one_bad_node[1]).model
    second = best(one_bad_node[1], lambda name: "upside down" if name == first else "")
    assert second.model != first
    assert (first, "upside down") in {(r.model, r.because) for r in second.refused}


@pytest.mark.parametrize("seed", range(2))
def test_nodes_that_are_all_alike_get_the_base_rate(seed):
    data = history(np.full(80, 0.01), seed)
    choice = best(evaluate(data, QUICK, kinds=DECIDING))
    assert not choice.beats_base_rate


def test_each_node_is_tested_once_and_each_later_status_once():
    data = uptimes(KnownHazard(), nodes=43, seed=2)
    seeds = range(5)
    tested = [set(test.statuses.nodes) for _, test in split(data, "node", seeds)]
    assert sorted(name for part in tested for name in part) == sorted(set(data.statuses.nodes))
    at = np.concatenate([test.statuses.at for _, test in split(data, "time", seeds)])
    assert sorted(at) == sorted(data.statuses.at[data.statuses.at >= np.median(data.statuses.at)])


# --- evidence ------------------------------------------------------------------------------


def by_hand(model, test: Uptimes) -> float:
    """Row after row, with the chance written out."""
    total, statuses = 0.0, test.statuses
    last = max(statuses.at)
    for i, (node, at) in enumerate(zip(statuses.nodes, statuses.at, strict=True)):
        later = [
            t for n, t in zip(statuses.nodes, statuses.at, strict=True) if n == node and t > at
        ]
        reach_h = (min(later, default=last) - at) / 3600

        def alive(hours, row=i):
            return np.exp(-forecast(model, statuses).hazard_at(np.array([hours]))[row, 0])

        if test.observed[i] and test.duration_h[i] <= reach_h + 1e-3:
            hours = min(test.duration_h[i], reach_h)
            stretch = max(k for k, edge in enumerate(EDGES_H) if edge < hours)
            end = alive(EDGES_H[stretch + 1]) if stretch + 1 < len(EDGES_H) else 0.0
            chance, even = alive(EDGES_H[stretch]) - end, 1 / len(EDGES_H)
        else:
            hours = min(test.duration_h[i], reach_h)
            stretch = max((k for k, edge in enumerate(EDGES_H) if edge < hours), default=0)
            chance, even = alive(hours), 1 - stretch / len(EDGES_H)
        total += np.log(0.99 * chance + 0.01 * even)
    return total


def test_evidence_is_the_log_of_the_chance_of_the_observed_incidents():
    data = uptimes(KnownHazard(), nodes=9, seed=1)
    model = Cox.fit(data, 0)
    assert log_likelihood(forecast(model, data.statuses), data) == pytest.approx(
        by_hand(model, data), rel=1e-6
    )


@pytest.mark.parametrize("data", [uptimes(KnownHazard(), nodes=20, seed=1), uneven(20)])
def test_every_incident_counts_once_for_any_number_of_rows_before_it(data):
    """An incident is known by its node and its second; after the last row there was no look."""
    _, happened = coverage(data)
    ends = np.round(data.statuses.at + 3600 * data.duration_h)
    seen = {
        (node, end)
        for node, end, observed in zip(data.statuses.nodes, ends, data.observed, strict=True)
        if observed and end <= data.statuses.at.max() + 1
    }
    assert np.count_nonzero(happened) == len(seen) > 20


def test_the_number_of_looks_at_a_node_is_no_evidence(monkeypatch):
    """A model of one rate: any number of rows in a quiet spell say what one row says."""
    monkeypatch.setattr("anubis.models.risk.forecast.DOUBT", 0.0)

    def looked_at(days):
        at = np.array(days, dtype=float) * DAY_S
        rows = Statuses(covariates=(), nodes=("a",) * len(at), at=at, values=np.zeros((len(at), 0)))
        left_h = (100 * DAY_S - at) / 3600
        return Uptimes(statuses=rows, duration_h=left_h, observed=np.zeros(len(at), dtype=bool))

    model = Exponential(covariates=(), rate=np.array([0.001]))
    sums = [
        log_likelihood(forecast(model, data.statuses), data)
        for data in (looked_at([0, 99]), looked_at([0, 10, 11, 12, 13, 50, 99]))
    ]
    assert sums[0] == pytest.approx(sums[1])
    assert sums[0] == pytest.approx(-0.001 * 99 * 24)


# --- a last look ---------------------------------------------------------------------------


class ByCount:
    """The more incidents a node had, the more at risk it is; or the less."""

    name, looks = "by-count", True

    def __init__(self, data, power):
        self.covariates, self.power = data.statuses.covariates, power

    def cumulative_hazard(self, statuses, hours):
        counts = statuses.values[:, statuses.covariates.index("incidents")]
        return np.outer((1 + counts) ** self.power, hours) * 1e-4


def test_a_node_with_far_more_incidents_is_not_put_among_the_safer_half(one_bad_node):
    data, _ = one_bad_node
    sentence = misplaced_node(ByCount(data, -1.0), data)
    assert sentence.startswith("it puts n003, with ")
    assert sentence.endswith("at place 160 of 160 by risk")
    assert misplaced_node(ByCount(data, 1.0), data) == ""


def test_a_bad_node_that_has_been_well_for_long_may_rank_low():
    rng = np.random.default_rng(0)
    early = np.sort(rng.uniform(0, 200 * DAY_S, 60)).tolist()  # and none in the 500 days since
    incidents = [Incident(node="n000", category="x", start=at, end=at + 60) for at in early]
    incidents += [
        Incident(node=f"n{n:03}", category="x", start=at, end=at + 60)
        for n in range(1, 60)
        for at in rng.uniform(0, DAYS * DAY_S, 2).tolist()
    ]
    watches = [Watch(node=f"n{n:03}", since=0.0) for n in range(60)]
    data = uptimes_of(Logbook.from_records(incidents, watches), DAYS * DAY_S)
    assert misplaced_node(ByCount(data, -1.0), data) == ""


def test_if_few_incidents_differ_by_chance_no_order_is_absurd():
    data = history(np.full(100, 0.003), seed=5)
    assert misplaced_node(ByCount(data, -1.0), data) == ""


# --- attributes of nodes -----------------------------------------------------------------------


def racked(rates_of_rack, seed=0, nodes=12) -> Uptimes:
    """Every node of a rack has the rack's rate."""
    rng = np.random.default_rng(seed)
    incidents, attributes, watches = [], [], []
    for rack, rate in enumerate(rates_of_rack):
        for number in range(nodes):
            node = f"r{rack:02}n{number:02}"
            sku = "odd" if number % 2 else "even"
            attributes.append(NodeAttributes(node=node, rack=f"rack{rack}", sku=sku, installed=0.0))
            watches.append(Watch(node=node, since=0.0))
            for at in np.sort(rng.uniform(0, DAYS * DAY_S, rng.poisson(rate * DAYS))).tolist():
                incidents.append(Incident(node=node, category="x", start=at, end=at + 3600))
    return uptimes_of(Logbook.from_records(incidents, watches, attributes=attributes), DAYS * DAY_S)


def test_a_rack_that_predicts_failures_is_learned_from_and_useless_attributes_are_left_out():
    kept, sentences = worth_learning(racked([0.0005] * 8 + [0.01] * 4))
    told = {sentence.partition(" ")[0]: sentence for sentence in sentences}
    assert set(kept.statuses.covariates) & set(OF_ATTRIBUTES) == {"rack_rate"}
    assert "is learned from: on other nodes log-likelihood +" in told["rack_rate"]
    assert all("is left out because" in told[name] for name in ("age_h", "sku_rate"))


def test_no_useless_rack_of_hundreds_is_learned_by_heart():
    kept, sentences = worth_learning(racked([0.003] * 60, nodes=3))
    assert not set(kept.statuses.covariates) & set(OF_ATTRIBUTES)
    assert len(sentences) == 3


def test_a_cage_of_nodes_that_seldom_fail_gains_as_much_as_its_rate_is_worth():
    """To know the rates r of equal groups, 1 on average, gains r log r at each incident. A model
    learns less, as it knows a rate from the incidents so far."""
    relative = np.array([0.25, 0.75, 2.0])
    data = racked(4e-4 * relative, nodes=150)
    rest = [name for name in OF_ATTRIBUTES if name != "rack_rate"]
    before = chances_elsewhere(drop_covariates(data, OF_ATTRIBUTES))
    after = chances_elsewhere(drop_covariates(data, rest))
    assert before is not None
    assert after is not None
    found = {kind: gain_over_nodes(before[kind], after[kind]) for kind in DECIDING}
    assert shortcoming(found) == ""
    most = coverage(data)[1].sum() * np.mean(relative * np.log(relative))
    assert 0.4 * most < found["node"].sum < most


def test_the_interval_of_a_gain_is_that_of_a_sum_over_nodes():
    found = Gain.from_nodes(np.array([1.0, 2.0, 3.0, 6.0]))
    error = 2 * np.sqrt((4 + 1 + 0 + 9) / 3)  # the square root of n, and the spread around 3
    assert (found.sum, found.error) == (12.0, pytest.approx(error))
    assert (found.low, found.high) == pytest.approx((12 - 1.96 * error, 12 + 1.96 * error))


def test_a_gain_of_one_node_is_no_gain_of_its_rack():
    """The odds are large, and all of them are from one node."""
    gains = Gain.from_nodes(np.array([30.0, *[0.0] * 49]))
    sure = Gain.from_nodes(np.full(50, 0.6))
    assert "a few nodes" in shortcoming({"node": gains, "time": sure})
    assert "chance" in shortcoming({"node": sure, "time": Gain.from_nodes(np.full(50, 0.05))})
    assert shortcoming({"node": sure, "time": gains}) == ""


def test_without_attributes_nothing_is_compared():
    data = history([0.01, 0.02])
    kept, sentences = worth_learning(data)
    assert kept is data
    assert sentences == ()
