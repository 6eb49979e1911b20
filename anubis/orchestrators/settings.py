"""What a cluster's file says of who owns its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """Slurm, by its own commands: `sinfo`, `squeue` and `scontrol`."""

    kind: Literal["slurm"]
    partition: str = ""
    """The partition that these nodes are in, or several with commas between them. Default: all."""
    features: Mapping[str, str] = field(default_factory=dict)
    """Kinds of hardware by Slurm's features: a feature, and the sku of the nodes that have it. What
    the cluster's own `skus` say comes first."""
    deadline_s: float = 10.0
    """How long a command of Slurm may take."""

    def __post_init__(self) -> None:
        _positive("deadline_s", self.deadline_s)


OrchestratorSettings = SlurmSettings
ORCHESTRATORS: dict[str, type[OrchestratorSettings]] = {"slurm": SlurmSettings}


def _positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ValueError(f'"{name}" is {value:g}, expected more than 0')
