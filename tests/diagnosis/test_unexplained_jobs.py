"""Which jobs stay unexplained, and among which nodes their fault must be."""

from __future__ import annotations

import pytest

from anubis.core.diagnose.cures import CureLevel, PastDiagnosis
from anubis.core.diagnose.diagnose_due import unexplained

NODES_OF = {"7": ("n1", "n2", "n3"), "8": ("n3", "n4", "n2"), "9": ("n5", "n6"), "alone": ("n1",)}


def past(job, level, code="", *nodes):
    headline = f"{job} {code}"
    return PastDiagnosis(job=job, at=1.0, level=level, code=code, nodes=nodes, headline=headline)


HANGS = past("7", CureLevel.RETRY, "standstill")
SLOWED = past("7", CureLevel.LEAVE, "slowed")
FAILED = past("7", CureLevel.RETRY)
FAILED_TOO = past("8", CureLevel.REPLACE, "distributed-error")
SAYS_NOTHING = past("7", CureLevel.NONE)
IS_WELL = past("7", CureLevel.LEAVE)
NAMED = past("7", CureLevel.RESTART, "absent", "n2")
OWN_FAULT = past("7", CureLevel.FAIL, "same-error")


@pytest.mark.parametrize(
    ("diagnoses", "nodes"),
    [
        ([HANGS], ("n1", "n2", "n3")),
        ([HANGS, SAYS_NOTHING], ("n1", "n2", "n3")),
        ([SLOWED, IS_WELL], ("n1", "n2", "n3")),
        ([FAILED], None),
        ([FAILED_TOO, FAILED], ("n2", "n3")),
        ([past("9", CureLevel.RETRY), FAILED], None),
        ([HANGS, NAMED], None),
        ([HANGS, OWN_FAULT], None),
        ([past("8", CureLevel.FAIL, "same-error"), FAILED_TOO, FAILED], None),
        ([SAYS_NOTHING], None),
        ([IS_WELL], None),
    ],
)
def test_a_hang_or_a_second_failure_on_the_same_nodes_stays_unexplained(diagnoses, nodes):
    found = unexplained("7", diagnoses, NODES_OF, has_stalled=False)
    assert (found and found[0]) == nodes


def test_a_failure_of_a_job_that_stalled_counts_as_a_hang_if_it_had_several_nodes():
    assert unexplained("7", [FAILED], NODES_OF, has_stalled=True) == (
        NODES_OF["7"],
        FAILED.headline,
    )
    alone = [past("alone", CureLevel.RETRY)]
    assert unexplained("alone", alone, NODES_OF, has_stalled=True) is None
