"""The one seam between Anubis and the owner of the nodes.

An orchestrator shows the fleet and takes two orders. None is trusted to have obeyed: the next
observation shows whether an order had its effect. It decides nothing. An OrchestratorError means
that it did not answer, or refused; it names the node, the command and its last line of output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anubis.core.keep.keeper_events import FleetSeen


@dataclass(frozen=True, kw_only=True)
class NodeSkus:
    """The skus in the cluster's file: the same for every orchestrator."""

    by_node: Mapping[str, str] = field(default_factory=dict)
    otherwise: str = ""  # of nodes that neither it nor the orchestrator speaks of

    def find(self, node: str, shown: str = "") -> str:
        """Return the sku of a node; `shown`: by the orchestrator, such as a label."""
        return self.by_node.get(node) or shown or self.otherwise


SKUS_UNTOLD = NodeSkus()


class Orchestrator(Protocol):
    def observe(self) -> FleetSeen:
        """Return its nodes, their jobs and the reasons why nodes are kept from jobs, as of now."""
        ...

    def cordon(self, node: str, reason: str) -> None:
        """Let no further job begin there; whatever runs goes on. May be repeated.

        `reason` is one of `core.keep.reasons.reason`. A node that somebody else keeps from jobs is
        left as it is, and its reason too: that is an OrchestratorError, which quotes it.
        """
        ...

    def release(self, node: str) -> None:
        """Take back a cordon of ours. If the reason is somebody else's, nothing happens, and an
        OrchestratorError quotes it; if there is none, nothing is to be done."""
        ...
