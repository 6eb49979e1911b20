"""From families of metrics that deviate to kinds of faults and a site's categories."""

import math

import pytest

from anubis.core.watch.likelihood import FAMILIES, FAULTS, mix_by_category, mix_of


@pytest.mark.parametrize(
    ("fired", "expected"),  # percent, worked out from the published table by hand
    [
        ("pfc", {"pcie-downgrade": 91}),
        ("pfc throughput", {"pcie-downgrade": 90}),
        ("cpu gpu memory", {"ecc": 64, "cuda-error": 18}),
        ("cpu gpu throughput memory", {"ecc": 42, "nic-dropout": 41}),
        ("cpu", {"ecc": 47, "storage": 19, "cuda-error": 16}),
        ("throughput", {"ecc": 29, "unreachable": 24}),
    ],
)
def test_deviating_families_give_the_published_likelihoods_of_faults(fired, expected):
    mix = mix_of(fired.split())
    assert list(mix)[: len(expected)] == list(expected)
    for fault, percent in expected.items():
        assert 100 * mix[fault] == pytest.approx(percent, abs=0.7)


def test_over_all_that_could_deviate_the_mixes_add_up_to_the_published_shares():
    """The law of total probability: over all observations, kinds are as frequent as they are."""
    total = sum(kind.share for kind in FAULTS.values())
    shares = dict.fromkeys(FAULTS, 0.0)
    for code in range(2 ** len(FAMILIES)):
        fired = [family for place, family in enumerate(FAMILIES) if code >> place & 1]
        chance = sum(kind.share / total * kind.likelihood(fired) for kind in FAULTS.values())
        for fault, share in mix_of(fired).items():
            shares[fault] += chance * share
    for fault, kind in FAULTS.items():
        assert shares[fault] == pytest.approx(kind.share / total)


def test_no_pattern_of_families_makes_a_kind_impossible():
    mix = mix_of(FAMILIES)
    assert min(mix.values()) > 0
    assert math.isclose(sum(mix.values()), 1)


def test_kinds_of_one_category_are_added_up_and_one_without_a_word_keeps_its_own():
    faults = {"ecc": 0.5, "cuda-error": 0.2, "nvlink": 0.3}
    assert mix_by_category(faults, {"ecc": "gpu", "cuda-error": "gpu"}) == {
        "gpu": 0.7,
        "nvlink": 0.3,
    }
