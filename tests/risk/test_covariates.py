"""The causes of a node's risk, against chances that are known by a formula."""

from __future__ import annotations

import numpy as np

from anubis.core.history.status import Statuses
from anubis.models.risk.covariates import carriers, things_of

COVARIATES = ("up_h", "total_up_h", "incidents", "incidents:gpu", "mtbi_h:gpu", "rack_rate")


def linear(statuses):
    """A chance that each thing adds to by itself."""
    return 0.01 + statuses.values @ np.array([0.0, 0.0, 0.02, 0.03, 0.0, 0.05])


def fleet(*rows):
    names = tuple(f"n{number}" for number in range(len(rows)))
    values = np.array(rows, dtype=float)
    return Statuses(covariates=COVARIATES, nodes=names, at=np.zeros(len(rows)), values=values)


def test_covariates_that_speak_of_one_thing_change_together():
    assert things_of(COVARIATES) == {"up": [0, 1], "incidents": [2], "gpu": [3, 4], "rack": [5]}


def test_the_chance_without_a_carrier_is_that_of_the_median_node():
    """Medians are 10, 10, 1, 0, 50 and 1; a node is as bad in three things as no other."""
    usual = (10, 10, 1, 0, 50, 1)
    bad = (2, 10, 4, 3, 5, 2)
    (of_bad, of_usual) = carriers(linear, fleet(usual, bad, usual), [1, 0])
    chance = 0.01 + 0.02 * 4 + 0.03 * 3 + 0.05 * 2
    assert [carrier.about for carrier in of_bad] == ["gpu", "incidents", "rack"]
    np.testing.assert_allclose(
        [carrier.without for carrier in of_bad], [chance - 0.09, chance - 0.06, chance - 0.05]
    )
    assert of_bad[0].covariates == ("incidents:gpu", "mtbi_h:gpu")
    assert of_usual == []
