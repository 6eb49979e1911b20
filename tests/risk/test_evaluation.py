"""The models that win on fleets with a known truth, and splits that leak nothing from the
future."""

from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest

from anubis.core.errors import RiskError
from anubis.models.risk import evaluation, splits
from anubis.models.risk.choice import best
from anubis.models.risk.cox import Cox
from anubis.models.risk.evaluation import Evaluation, evaluate
from anubis.models.risk.models import MODELS
from anubis.models.risk.splits import draw_nodes, split, split_at, take
from tests.risk.known_hazard import NO_SIGNAL, KnownHazard, uptimes

QUICK = MODELS[:-1]  # all but the network


@pytest.fixture(scope="module")
def fleet():
    return uptimes(KnownHazard(), nodes=150, seed=4)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_split_by_node_leaves_no_node_on_both_sides(fleet, seed):
    ((train, test),) = split(fleet, "node", [seed])
    assert set(train.statuses.nodes).isdisjoint(test.statuses.nodes)
    assert len(train) + len(test) == len(fleet)


def test_a_random_split_leaves_most_nodes_on_both_sides(fleet):
    ((train, test),) = split(fleet, "random", [0])
    assert len(set(train.statuses.nodes) & set(test.statuses.nodes)) > 100
    assert len(test) == pytest.approx(splits.TESTED * len(fleet), abs=1)


@pytest.mark.parametrize("rows", [1, 400, 10**6])
def test_whole_nodes_of_a_large_fleet_are_drawn_independently_of_their_incidents(fleet, rows):
    drawn = draw_nodes(fleet, rows)
    kept = np.isin(fleet.statuses.nodes, drawn.statuses.nodes)
    np.testing.assert_array_equal(drawn.statuses.values, fleet.statuses.values[kept])
    share = min(1, rows / len(fleet))
    assert len({*drawn.statuses.nodes}) == np.ceil(share * 150)
    other = replace(fleet, observed=~fleet.observed)
    assert draw_nodes(other, rows).statuses.nodes == drawn.statuses.nodes


def test_events_after_a_split_by_time_change_nothing_before_it(fleet):
    now = float(np.quantile(fleet.statuses.at, 0.6))
    ends = fleet.statuses.at + 3600 * fleet.duration_h
    later = ends > now
    assert later.any()
    other = replace(
        fleet,
        duration_h=np.where(later, fleet.duration_h + 777, fleet.duration_h),
        observed=np.where(later, ~fleet.observed, fleet.observed),
    )
    before, _ = split_at(fleet, now)
    same, _ = split_at(other, now)
    np.testing.assert_array_equal(before.duration_h, same.duration_h)
    np.testing.assert_array_equal(before.observed, same.observed)
    assert np.all(before.statuses.at + 3600 * before.duration_h <= now + 1e-3)
    known = before.statuses.at + 3600 * before.duration_h < now - 1e-3
    assert before.observed[known].any()
    assert not before.observed[~known].any()


def test_models_with_covariates_win_if_incidents_cause_incidents(fleet):
    found = best(evaluate(fleet, QUICK, seeds=(0, 1, 2)))
    assert found.model in {"cox", "exponential-per-count"}
    assert found.beats_base_rate
    assert "wins by node and by time" in found.reason
    assert "the constant's" in found.reason


@pytest.mark.parametrize("seed", range(2))
def test_without_a_signal_no_model_beats_the_base_rate(seed):
    found = best(evaluate(uptimes(NO_SIGNAL, nodes=60, seed=seed), QUICK, seeds=(0, 1, 2, 3)))
    assert not found.beats_base_rate
    assert "no model that looks at the nodes beats the base rate" in found.reason


@pytest.fixture(scope="module")
def found(fleet):
    return evaluate(fleet, QUICK, seeds=(0, 1))


LOOKING = {model.name for model in QUICK if model.looks}


def likelier(found, gain) -> Evaluation:
    """The same with as much more evidence for each score."""
    return Evaluation(
        scores=tuple(
            replace(one, log_likelihood=one.log_likelihood + gain(one)) for one in found.scores
        )
    )


def test_a_model_that_wins_by_node_only_is_not_taken(found):
    spoilt = likelier(found, lambda one: -500 * (one.split == "time" and one.model in LOOKING))
    assert best(found).beats_base_rate
    assert not best(spoilt).beats_base_rate


def test_a_model_with_covariates_has_to_beat_the_best_one_without(found):
    choice = best(likelier(found, lambda one: 500 * (one.model == "weibull")))
    assert choice.model == "weibull"
    assert not choice.beats_base_rate


@pytest.mark.parametrize("better", ["cox", "exponential-per-count"])
def test_the_one_of_two_winning_models_with_the_higher_likelihood_is_taken(found, better):
    gains = {name: 500 + 500 * (name == better) for name in LOOKING}
    assert best(likelier(found, lambda one: gains.get(one.model, 0))).model == better


def test_brier_scores_do_not_decide(found):
    """Of nodes that seldom fail, they are the same in all digits."""
    even = Evaluation(scores=tuple(replace(one, brier=0.007) for one in found.scores))
    assert best(even).model == best(found).model


class Crossing:
    """Nodes with incidents are more at risk at first, the others later."""

    name = "crossing"

    def __init__(self, covariates):
        self.covariates = covariates

    def cumulative_hazard(self, statuses, hours):
        power = np.where(statuses.values[:, 2:3] > 0, 0.5, 2.0)
        return (hours / 500) ** power


def test_nodes_are_compared_at_the_time_of_the_incident():
    asked = uptimes(KnownHazard(), nodes=12, seed=3)
    model = Crossing(asked.statuses.covariates)
    found = evaluation.score(model, "fleet", 0, asked).concordance
    right = compared = 0.0
    for i in np.flatnonzero(asked.observed):
        hazard = model.cumulative_hazard(asked.statuses, np.array([0.0, asked.duration_h[i]]))[:, 1]
        later = asked.duration_h > asked.duration_h[i]
        right += np.sum(hazard[i] > hazard[later]) + np.sum(hazard[i] == hazard[later]) / 2
        compared += later.sum()
    assert len(asked) <= evaluation.ENDS
    assert found == pytest.approx(right / compared, abs=0.01)


def test_random_splits_do_not_decide(fleet):
    found = evaluate(fleet, QUICK, kinds=("random",), seeds=(0,))
    assert best(found).model == "exponential"
    assert "cannot be compared" in best(found).reason


def test_a_model_that_cannot_be_fitted_is_left_out_with_its_reason(fleet):
    quiet = replace(fleet, observed=np.arange(len(fleet)) % 120 == 0)
    found = evaluate(quiet, MODELS[-2:], kinds=("node",), seeds=(0,))
    assert {score.model for score in found.scores} <= {Cox.name}
    assert any("cox-time by node, seed 0" in reason for reason in found.left_out)


def test_a_test_set_without_incidents_is_reported_in_one_sentence(fleet):
    only = fleet.statuses.nodes[np.flatnonzero(fleet.observed)[0]]
    rare = replace(fleet, observed=fleet.observed & np.equal(fleet.statuses.nodes, only))
    found = evaluate(rare, QUICK, kinds=("node",), seeds=range(4))
    silent = [each for each in found.left_out if each.startswith("all models by node, seed")]
    assert len(silent) >= 2
    assert best(Evaluation(left_out=tuple(silent))).reason.count("none of the") == 1


def test_uptimes_of_a_few_minutes_are_too_short_to_compare_models_on(fleet):
    minutes = replace(fleet, duration_h=np.minimum(fleet.duration_h, 0.2))
    found = evaluate(minutes, QUICK, kinds=("node", "time"), seeds=(0, 1))
    assert not found.scores
    assert len(found.left_out) == 4
    assert all("were watched for 15 minutes" in reason for reason in found.left_out)


def test_a_fleet_without_an_incident_has_nothing_to_compare(fleet):
    with pytest.raises(RiskError, match=r"0 of \d+ uptimes ended in an incident"):
        evaluate(replace(fleet, observed=np.zeros(len(fleet), dtype=bool)), QUICK)


@pytest.mark.long
def test_the_network_comes_close_to_the_truth_and_leaves_the_exponentials_behind():
    learned, asked = (
        uptimes(KnownHazard(), nodes=300, seed=1),
        uptimes(KnownHazard(), nodes=600, seed=2),
    )
    found = {
        model.name: evaluation.score(model.fit(learned, 0), "node", 0, asked)
        for model in MODELS
        if model.name in {"cox-time", "exponential", "exponential-per-count"}
    }
    truth = evaluation.score(KnownHazard(), "node", 0, asked)
    network = found["cox-time"]
    assert truth.concordance - network.concordance < 0.02
    assert network.brier - truth.brier < 0.005
    assert 0.8 < network.slope / truth.slope < 1.25
    for name in ("exponential", "exponential-per-count"):
        assert network.concordance - found[name].concordance > 0.01
        assert found[name].brier - network.brier > 0.003


def test_figures_of_a_model_do_not_depend_on_the_models_beside_it(fleet):
    first = evaluate(fleet, QUICK, seeds=(0, 1))
    again = evaluate(fleet, QUICK[::-1], kinds=("time", "node", "random"), seeds=(0, 1))
    key = attrgetter("model", "split", "seed")
    assert sorted(first.scores, key=key) == sorted(again.scores, key=key)
    assert len(first.scores) == len(QUICK) * 3 * 2


def test_baselines_learn_the_same_from_the_same_nodes_with_any_seed(fleet):
    other = uptimes(KnownHazard(), nodes=80, seed=9)
    found = evaluation.evaluate_elsewhere(fleet, other, QUICK, seeds=(0, 1))
    by_seed = [[replace(one, seed=0) for one in found.scores if one.seed == n] for n in (0, 1)]
    assert by_seed[0] == by_seed[1]
    assert {(one.split, one.uptimes) for one in found.scores} == {("fleet", len(other))}
    known = evaluation.score(Cox.fit(fleet, 0), "fleet", 0, other)
    assert known in found.scores


def test_uptimes_taken_by_rows_keep_their_statuses(fleet):
    rows = np.arange(len(fleet)) % 7 == 3
    found = take(fleet, rows)
    np.testing.assert_array_equal(found.statuses.values, fleet.statuses.values[rows])
    assert found.statuses.nodes == tuple(np.array(fleet.statuses.nodes)[rows])
