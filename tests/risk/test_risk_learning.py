"""A newly trained model replaces the one in use only if later events favour it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Incident, Watch
from anubis.models.risk.baselines import Exponential
from anubis.models.risk.choice import judge_successor
from anubis.models.risk.cox import Cox
from anubis.models.risk.risk_learning import uptimes_of
from anubis.models.risk.splits import split_at

DAY_S = 86_400.0
NOW = 500 * DAY_S
USED_AT = 100 * DAY_S


def logbook(rates_per_day, until=NOW):
    """Each node has incidents at a rate of its own; nothing happens after `until`."""
    rng = np.random.default_rng(0)
    incidents, watches = [], []
    for number, rate in enumerate(rates_per_day):
        node = f"n{number:03}"
        watches.append(Watch(node=node, since=0.0))
        ats = rng.uniform(0, NOW, rng.poisson(rate * NOW / DAY_S))
        incidents += [
            Incident(node=node, category="x", start=at, end=at + 3600)
            for at in sorted(ats.tolist())
            if at < until
        ]
    return Logbook.from_records(incidents, watches)


UNEVEN = np.random.default_rng(1).gamma(0.5, 0.01 / 0.5, 60)


def judged(book, used, learn=lambda uptimes: Cox.fit(uptimes, 0)):
    def view(covariates):
        return uptimes_of(book, NOW, covariates)

    return judge_successor(view, used, USED_AT, NOW, learn)


def trained(book, kind, at=USED_AT):
    past, _ = split_at(uptimes_of(book, NOW), at)
    return kind.fit(past, 0)


def test_a_model_that_tells_nodes_apart_replaces_one_that_does_not():
    book = logbook(UNEVEN)
    outcome = judged(book, trained(book, Exponential))
    assert not outcome.because
    gained = outcome.fresh.log_likelihood - outcome.used.log_likelihood
    assert gained > 3
    assert str(outcome).startswith(f"log-likelihood +{gained:.1f} on ")
    assert judged(book, trained(book, Cox), lambda uptimes: Exponential.fit(uptimes, 0)).because


def test_a_model_that_is_no_better_changes_nothing():
    book = logbook(UNEVEN)
    used = trained(book, Cox)
    assert judged(book, used, lambda uptimes: used).because.endswith("its chances are no better")


def test_a_gain_that_may_be_luck_changes_nothing():
    book = logbook(np.full(30, 0.002))
    used = trained(book, Exponential)
    for kind in (Cox, Exponential):
        assert judged(book, used, partial(kind.fit, seed=0)).because


@pytest.mark.parametrize("until", [USED_AT, 299 * DAY_S])
def test_without_later_incidents_the_new_model_cannot_be_judged(until):
    book = logbook(UNEVEN, until)
    outcome = judged(book, trained(book, Exponential))
    assert outcome.because.startswith("too little happened since the model in use was trained")


def test_a_new_model_learns_from_all_that_was_known_at_the_middle_and_from_nothing_later():
    book, learned = logbook(UNEVEN), []

    def learn(uptimes):
        learned.append(uptimes)
        return Cox.fit(uptimes, 0)

    judged(book, trained(book, Exponential), learn)
    (uptimes,) = learned
    middle = (USED_AT + NOW) / 2
    ends = uptimes.statuses.at + 3600 * uptimes.duration_h
    assert USED_AT < uptimes.statuses.at.max() < middle
    assert ends.max() <= middle + 1
