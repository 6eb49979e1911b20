"""Orders to an orchestrator about one node: a refusal is raised. It asserts nothing."""

from __future__ import annotations

from collections.abc import Mapping

from anubis.core.errors import OrchestratorError
from anubis.reach.orchestrators.orchestrator import Orchestrator


def cordon(owner: Orchestrator, node: str, reason: str) -> None:
    _raise(owner.cordon({node: reason}))


def release(owner: Orchestrator, node: str) -> None:
    _raise(owner.release([node]))


def _raise(refused: Mapping[str, str]) -> None:
    for why in refused.values():
        raise OrchestratorError(why)
