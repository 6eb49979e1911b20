"""The record by which a file of this folder declares, as `ORCHESTRATOR`, an owner of nodes. Keys of
files, the reference and the values of `kind:` are derived from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from anubis.reach import orchestrators
from anubis.reach.orchestrators.orchestrator import NodeSkus, Orchestrator


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
