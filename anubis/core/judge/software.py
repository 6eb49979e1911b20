"""Versions of driver, CUDA, NCCL and cuDNN, compared with those of the learned criteria.

A reported version is no proof of a defect: a difference is reported, and changes no verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from anubis.core.records import CriteriaSet, Execution, Plan

NAMES = ("driver", "cuda", "nccl", "cudnn")  # as the environment of a result has them

Versions = Mapping[str, str]


def versions(executions: Iterable[Execution], plan: Plan) -> dict[str, Versions]:
    """The versions that the nodes of each sku reported; several of one thing are one text."""
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
    """Yield a sentence for each version that differs from the one with which the criteria were
    learned."""
    for criteria_set in criteria:
        now = present.get(criteria_set.nodes_sku, {})
        for name, learned in criteria_set.provenance.versions.items():
            if now.get(name, learned) != learned:
                yield (
                    f'{name} of {criteria_set.sku} is "{now[name]}", its criteria were learned '
                    f'with "{learned}": if many nodes differ from them, learn again'
                )
