"""A pass with other parameters counts if the program declares that they ask for as much."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from anubis.core.history.standing import CLEAN_AFTER_ONCE, standing
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


def screened(seconds):
    workload = Workload.make("sdc_screen", "1", {"seconds": seconds})
    return {"sdc_screen": (Demand(workload=workload, stronger_with=("seconds",)),)}


def result_of(number, judgement=Judgement.HEALTHY, **more):
    benchmarks = () if judgement is Judgement.UNKNOWN else ("gemm", "sdc_screen")
    return Validation(
        node="n1",
        at=float(number),
        judgement=judgement,
        campaign=str(number),
        benchmarks=benchmarks,
        **more,
    )


@pytest.mark.parametrize("is_in_doubt", [False, True])
def test_an_error_seen_once_is_out_until_no_more_came_in_19_times_as_long(is_in_doubt):
    """With a steady rate, the one error falls into the first T of T + t by chance with T / (T + t).
    Runs shorter than the one that found it say nothing."""
    found = {"judgement": Judgement.DEFECTIVE, "code": "SDC_SCREEN.SEEN_ONCE.FP32/NN"}
    if is_in_doubt:
        found = {"judgement": Judgement.UNKNOWN, "code": "SEEN-ONCE", "owes": ("sdc_screen",)}
    rng = random.Random(3)
    for _ in range(100):
        first = rng.choice([30.0, 60.0, 420.0])
        passes = [rng.choice([5.0, 30.0, 60.0, 570.0, 3600.0]) for _ in range(rng.randint(1, 12))]
        strength = Strength(demands={str(n): screened(s) for n, s in enumerate([first, *passes])})
        for count, clean in enumerate(accumulate(s * (s >= first) for s in passes), start=1):
            results = [result_of(0, **found), *map(result_of, range(1, count + 1))]
            findings = {("0", "n1"): ("sdc_screen",)}
            stand = standing(results, findings, (), (), (), now=100.0, strength=strength)
            chance = first / (first + clean)
            assert stand.is_proven("n1") or chance > 0.05
            assert (stand.judgement("n1") is Judgement.HEALTHY) == (chance <= 0.05)
    assert 1 / (1 + CLEAN_AFTER_ONCE) == 0.05


def test_a_fault_that_always_shows_is_disproved_by_one_pass_and_the_reason_states_the_rest():
    strength = Strength(demands={str(n): screened(30.0) for n in range(9)})
    findings = {("0", "n1"): ("sdc_screen", "gemm")}

    def unfit(code, passes):
        results = [result_of(0, Judgement.DEFECTIVE, code=code), *map(result_of, passes)]
        return standing(results, findings, (), (), (), now=9.0, strength=strength).unfit.get("n1")

    assert unfit("SDC_SCREEN.AGREEMENT.FP32/NN", [1]) is None
    assert unfit("GEMM.TFLOPS.BF16", [1]) is None
    once = "SDC_SCREEN.SEEN_ONCE.FP32/NN"
    assert unfit(once, []).endswith("has not passed gemm, sdc_screen 19 times as long since")
    assert unfit(once, [1, 2]).endswith("has not passed sdc_screen 17 times as long since")
