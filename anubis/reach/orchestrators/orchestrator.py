"""The one seam between Anubis and the owner of the nodes, and the record by which a file of this
folder declares one, as `ORCHESTRATOR`: keys of files, the reference and `kind:` follow from it.

An orchestrator shows the fleet and takes three orders. None is trusted to have obeyed: the next
observation shows whether an order had its effect. It decides nothing. An order names all of its
nodes, so that a rack that loses power costs a few commands. A refusal for one node is returned, and
the others get their order all the same. An OrchestratorError means that nothing answered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Protocol

from anubis.core.errors import OrchestratorError, OrchestratorSilentError
from anubis.core.keep.keeper_events import FleetSeen
from anubis.reach import orchestrators


@dataclass(frozen=True, kw_only=True)
class NodeSkus:
    """The skus in the cluster's file: the same for every orchestrator."""

    by_node: Mapping[str, str] = field(default_factory=dict)
    otherwise: str = ""  # of nodes for which neither names one

    def find(self, node: str, shown: str = "") -> str:
        """Return the sku of a node; `shown`: by the orchestrator, such as a label."""
        return self.by_node.get(node) or shown or self.otherwise


UNKNOWN_SKUS = NodeSkus()
Refusals = Mapping[str, str]  # by node, or by job: why an order was not carried out


class Orchestrator(Protocol):
    def observe(self) -> FleetSeen:
        """Return its nodes, their jobs and the reasons why nodes are kept from jobs, as of now."""
        ...

    def cordon(self, reasons: Mapping[str, str]) -> Refusals:
        """Let no further job begin on these nodes; whatever runs goes on. May be repeated.

        Each reason is one of `core.keep.reasons.reason`. A node that somebody else keeps from jobs
        is left as it is, and its reason too: the refusal quotes it.
        """
        ...

    def release(self, nodes: Collection[str]) -> Refusals:
        """Take back cordons of ours. If the reason is somebody else's, nothing happens, and the
        refusal quotes it; if there is none, nothing is to be done."""
        ...

    def requeue(self, jobs: Mapping[str, Collection[str]]) -> Refusals:
        """End jobs and let them begin again without some of their nodes; return refusals by job.

        A job that does not run on any of these nodes any more is left alone.
        """
        ...


def order_each(order: Callable[[str], None], nodes: Collection[str], at_once: int) -> Refusals:
    """Give an order for each node; after a refusal for one, the others still get theirs. Once the
    owner of all of them is silent, no more are tried: each would wait until its deadline."""
    silence = list[str]()

    def refusal(node: str) -> str:
        if silence:
            return silence[0]
        try:
            order(node)
        except OrchestratorSilentError as error:
            silence.append(str(error))
            return str(error)
        except OrchestratorError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(at_once) as pool:
        refusals = zip(nodes, pool.map(refusal, nodes), strict=True)
        return {node: why for node, why in refusals if why}


@dataclass(frozen=True, kw_only=True)
class OrchestratorSettings:
    """A file under configs/orchestrators/, or the table in a cluster's file."""

    kind: str
    """The kind of owner."""


@dataclass(frozen=True, kw_only=True)
class OrchestratorKind:
    """One kind of owner of nodes."""

    settings: type[OrchestratorSettings]
    open: Callable[[Any, NodeSkus], Orchestrator]  # from its settings
    title: str  # in a sentence
    job_variable: str = ""  # in the environment of its jobs: the id of the job


@cache
def orchestrator_kinds() -> Mapping[str, OrchestratorKind]:
    """All kinds, by the names of their files."""
    kinds = {}
    for module in iter_modules(orchestrators.__path__):
        path = f"{orchestrators.__name__}.{module.name}"
        declared = getattr(import_module(path), "ORCHESTRATOR", None)
        if isinstance(declared, OrchestratorKind):
            kinds[module.name] = declared
    return kinds


def settings_kinds() -> dict[str, type[OrchestratorSettings]]:
    """Records of their settings, by kind."""
    return {name: kind.settings for name, kind in orchestrator_kinds().items()}


def job_of_this_process() -> str:
    """Id of the job that this process is part of; empty if it is part of none."""
    names = (kind.job_variable for kind in orchestrator_kinds().values() if kind.job_variable)
    return next(filter(None, (os.environ.get(name, "") for name in names)), "")


def check_positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f'"{name}" is {value:g}, expected more than 0')
