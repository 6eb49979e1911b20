"""The detector against the plain path: all windows, all pairs, all points, one after the other."""

from __future__ import annotations

from dataclasses import asdict
from unittest import mock

import pytest
from naive_watching import naive_look
from watching_cases import made_case

from anubis.core.watch import distances
from anubis.core.watch.detector import look
from anubis.core.watch.findings import AnomalyKind

SILENCES = (AnomalyKind.GAPS, AnomalyKind.SILENT)


def told(result):
    """A look without its sentences; of what is no suspicion the order does not count, and metrics
    that fall silent together are one remark."""
    document = asdict(result)
    document["anomalies"] = sorted(
        {
            (
                *(anomaly[key] for key in ("node", "kind", "since", "until")),
                "" if anomaly["kind"] in SILENCES else anomaly["metric"],
            )
            for anomaly in document["anomalies"]
        }
    )
    document["unjudged"] = sorted(document["unjudged"])
    return document


def same(ours, theirs, precision=1e-6):
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(
            same(ours[key], theirs[key], precision) for key in ours
        )
    if isinstance(theirs, list | tuple):
        return len(ours) == len(theirs) and all(
            same(a, b, precision) for a, b in zip(ours, theirs, strict=True)
        )
    if isinstance(theirs, float):
        return ours == pytest.approx(theirs, rel=precision, abs=1e-9, nan_ok=True)
    return ours == theirs


def looks_alike(seed, precision=1e-6):
    asked, more = made_case(seed)
    return same(told(look(*asked, **more)), told(naive_look(*asked, **more)), precision)


def looks_alike_as_large_jobs_do(seed):
    """Looks with bounds and compiled loops, whose sums are of single precision."""
    with mock.patch.object(distances, "FEW", 0):
        return looks_alike(seed, 1e-3)


@pytest.mark.long
def test_the_look_is_that_of_the_plain_path():
    for seed in range(6):
        assert looks_alike(seed), f"seed {seed}"


@pytest.mark.long
def test_the_look_with_bounds_and_compiled_loops_is_that_of_the_plain_path():
    for seed in range(100, 104):
        assert looks_alike_as_large_jobs_do(seed), f"seed {seed}"
