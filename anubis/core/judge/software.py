"""Versions of driver, CUDA, NCCL and cuDNN: kept with what is learned, held against what is judged.

What programs say of themselves is no proof of a defect: a difference is told, and changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from anubis.core.records import CriteriaSet, Execution, Plan

NAMES = ("driver", "cuda", "nccl", "cudnn")  # as the environment of a result has them

Versions = Mapping[str, str]


def versions(executions: Iterable[Execution], plan: Plan) -> dict[str, Versions]:
    """For each sku what its nodes reported; several versions of one thing stand in one text."""
    reported: defaultdict[str, defaultdict[str, set[str]]]
    reported = defaultdict(lambda: defaultdict(set))
    for execution in executions:
        environment = execution.result.environment
        for name in NAMES:
            if name in environment:
                sku = plan.sku(execution.step.participants[0])
                reported[sku][name].add(str(environment[name]))
    return {
        sku: {name: ", ".join(sorted(of_sku[name])) for name in NAMES if name in of_sku}
        for sku, of_sku in reported.items()
    }


def differences(criteria: Iterable[CriteriaSet], present: Mapping[str, Versions]) -> Iterator[str]:
    """A sentence for each version that is not the one that the criteria were learned with."""
    for criteria_set in criteria:
        now = present.get(criteria_set.nodes_sku, {})
        for name, learned in criteria_set.provenance.versions.items():
            if now.get(name, learned) != learned:
                yield (
                    f'{name} of {criteria_set.sku} is "{now[name]}", its criteria were learned '
                    f'with "{learned}": if many nodes differ from them, learn again'
                )
