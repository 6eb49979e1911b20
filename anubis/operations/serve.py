"""Read what a service serves: the files that its request names, and the gate of pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anubis.config import configs
from anubis.core.errors import UsageError
from anubis.operations.clusters import files_by_name
from anubis.operations.keeping import file_of, stated_policy
from anubis.operations.requests import ServeRequest
from anubis.reach.orchestrators.pod_gate import PodAnswer, PodGate, answer_review
from anubis.text.files import read_text

MOST_PEM = 1 << 16  # bytes: dozens of certificates


@dataclass(frozen=True, kw_only=True)
class PodReviewer:
    """The gate that new pods of Kubernetes get."""

    gate: PodGate

    def answer(self, review: Mapping[str, Any]) -> PodAnswer:
        """Answer Kubernetes whether a new pod gets a gate."""
        file = self.gate.authority
        authority = read_text(Path(file), UsageError, limit=MOST_PEM) if file else ""
        return answer_review(review, self.gate, authority)


@dataclass(frozen=True, kw_only=True)
class ServedFiles:
    clusters: Mapping[str, str]  # the files of clusters, by name
    pods: PodReviewer | None  # None: no pod is asked about


def read_served_files(request: ServeRequest) -> ServedFiles:
    """Read all files of a request, and refuse clusters that contradict their policies: what is
    wrong with them is said now, and not to whoever asks first."""
    configs.suite(request.suite)
    configs.policy(request.policy)
    configs.incident_mapping(request.alerts)
    if request.keeping:
        configs.keeping(request.keeping)
    for file in request.clusters:
        stated_policy(request.keeping, file_of(file), file)
    clusters = files_by_name(request.clusters)
    pods = PodReviewer(gate=configs.pod_gate(request.pod_gate)) if request.pod_gate else None
    return ServedFiles(clusters=clusters, pods=pods)
