"""A pass with other parameters counts if the program declares that they ask for as much."""

from __future__ import annotations

import pytest

from anubis.core.history.standing import standing
from anubis.core.history.status import Validation
from anubis.core.history.strength import Strength
from anubis.core.records import Demand, Judgement, Workload

MORE = ("samples", "models")


def asks(version="1", **parameters):
    return Demand(workload=Workload.make("gemm", version, parameters), stronger_with=MORE)


@pytest.mark.parametrize(
    ("passed", "required", "counts"),
    [
        (asks(samples=20, size=8), asks(samples=20, size=8), True),
        (asks(samples=30, size=8), asks(samples=20, size=8), True),
        (asks(samples=10, size=8), asks(samples=20, size=8), False),
        (asks(samples=30, size=9), asks(samples=20, size=8), False),  # not declared for sizes
        (asks(models="bert,gpt"), asks(models="gpt"), True),
        (asks(models="gpt"), asks(models="bert,gpt"), False),
        (asks(models="bert"), asks(models="gpt"), False),
        (asks(samples=30, models="gpt"), asks(samples=20, models="bert,gpt"), False),
        (asks(samples=30), asks(samples=20, models="gpt"), False),
        (asks(version="2", samples=30), asks(version="1", samples=20), False),
    ],
)
def test_a_pass_counts_only_if_its_parameters_asked_for_no_less(passed, required, counts):
    assert passed.covers(required.workload) is counts


def concluded(campaign, at, judgement=Judgement.HEALTHY):
    return Validation(
        node="n1", at=at, judgement=judgement, benchmarks=("gemm",), campaign=campaign
    )


DEMANDS = {
    "weak": {"gemm": (asks(samples=5),)},
    "strong": {"gemm": (asks(samples=50),)},
    "both": {"gemm": (asks(samples=5), asks(samples=50))},
}


def stand(*validations, required=()):
    strength = Strength(demands=DEMANDS, required={"gemm": required})
    return standing(validations, {}, (), (), (), now=100.0, strength=strength)


def test_a_weaker_pass_covers_no_stronger_demand_and_hides_no_earlier_stronger_pass():
    weak, strong = asks(samples=5).workload, asks(samples=50).workload
    both = [concluded("strong", 1.0), concluded("weak", 2.0)]
    assert stand(*both, required=[strong]).counted == {"n1": {"gemm": 1.0}}
    assert stand(*both, required=[weak]).counted == {"n1": {"gemm": 2.0}}
    only_weak = stand(concluded("weak", 2.0), required=[strong])
    assert (only_weak.counted, only_weak.passed) == ({}, {"n1": {"gemm": 2.0}})
    assert stand(concluded("both", 1.0), required=[weak, strong]).counted == {"n1": {"gemm": 1.0}}
    assert stand(concluded("unknown", 1.0), required=[strong]).counted == {"n1": {"gemm": 1.0}}


def test_a_defect_is_disproved_only_by_a_pass_at_least_as_strong():
    found = concluded("strong", 1.0, Judgement.DEFECTIVE)
    assert "has not passed gemm since" in stand(found, concluded("weak", 2.0)).unfit["n1"]
    assert not stand(found, concluded("weak", 2.0), concluded("strong", 3.0)).unfit
    found_weakly = concluded("weak", 1.0, Judgement.DEFECTIVE)
    assert not stand(found_weakly, concluded("strong", 2.0)).unfit
