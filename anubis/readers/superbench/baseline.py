"""baseline.json as criteria: one mean per metric, over a number of units that the user states.

A mean has no spread, so the repeatability of such a criterion is unknown, and it says so. How many
units the mean covers is not in the file, so it has to be given. Single ranks have no baseline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from anubis.core.errors import CriteriaError
from anubis.core.records import (
    CriteriaSet,
    Criterion,
    CriterionKey,
    Policy,
    Provenance,
    canonical,
)
from anubis.readers.superbench.metric_names import (
    NODE,
    RANK,
    RETURN_CODE,
    VERSION,
    place,
    spec,
    workload,
)
from anubis.readers.superbench.results import comparable

SUITE = f"{VERSION}-baseline"


def criteria(
    baseline: Mapping[str, object],
    *,
    sku: str,
    units: int,
    policy: Policy,
    anubis: str,
    created_at: str,
) -> tuple[CriteriaSet, list[str]]:
    """Return criteria for the node and for each rank, as SuperBench applies them, and names left
    out."""
    if units < policy.min_units:
        raise CriteriaError(
            f"a mean of {units} units is too few: the policy asks for {policy.min_units}"
        )
    criteria_read = []
    left_out = []
    for name, mean in baseline.items():
        where, value = place(name), comparable(mean)
        if where and where.metric == RETURN_CODE:
            continue
        declared = spec(where) if where else None
        if where is None or declared is None or value is None or where.device != NODE:
            left_out.append(name)
            continue
        criteria_read += [
            Criterion(
                key=CriterionKey(
                    sku=sku,
                    workload=workload(where.benchmark),
                    metric=where.metric,
                    device_kind=kind,
                ),
                unit=declared.unit,
                direction=declared.direction,
                reference=np.array([value]),
                alpha=policy.alpha_of(where.benchmark, where.metric),
                tail=policy.tail,
                units=units,
                healthy=units,
                nodes=units,
                repeatability=None,
            )
            for kind in (NODE, RANK)
        ]
    if not criteria_read:
        raise CriteriaError("the baseline has no metric that can be judged")
    digest = hashlib.sha256(canonical(dict(baseline)).encode()).hexdigest()[:16]
    provenance = Provenance(suite=SUITE, anubis=anubis, digest=digest, created_at=created_at)
    return CriteriaSet(sku=sku, criteria=tuple(criteria_read), provenance=provenance), left_out
