"""Settings of a start: the program, the meeting point of its ranks, and the cluster file's
settings.

It is apart from programs.py, because many name a program and few run one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from anubis.core.records import BenchmarkSpec
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings

# in a document's environment: devices without samples, and why (they failed, or did not answer)
FAILED_DEVICES, SILENT_DEVICES = "failed_devices", "silent_devices"
LEFT_NOTHING = {FAILED_DEVICES, SILENT_DEVICES}


@dataclass(frozen=True, kw_only=True)
class Program:
    """A benchmark's file, on the machine that runs it."""

    file: Path
    spec: BenchmarkSpec
    library: Path | None = None  # the shipped programs, whose modules a site's may import

    def argv(self, python: str, launcher: Iterable[str] = ()) -> list[str]:
        if self.file.suffix == ".py":
            return [python, *launcher, str(self.file)]
        return [python, *launcher, "--no-python", str(self.file)] if launcher else [str(self.file)]


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """The meeting point of the participants of a group, the rank of this one, and its ranks on
    each."""

    address: str
    port: int
    processes: int
    nodes: int = 1
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class StartSettings:
    """How programs are started on the nodes of a cluster, where its file says more."""

    env: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    python: str = ""
    ports: str = ""
    shared_gpus: bool = False


@dataclass(frozen=True, kw_only=True)
class PodSettings:
    """The pod that Kubernetes runs on a node under test."""

    image: str
    """The image with Anubis' programs, Ray and torch: of the same versions as here."""
    runtime_class: str = ""
    """Its `runtimeClassName`, if the GPUs' runtime is not the default one: `nvidia`."""
    pull_secret: str = ""
    """The secret with which the image is pulled, in the namespace of the pods."""
    privileged: bool = True
    """Whether the pod may do on the node whatever root may, as most of what is measured needs:
    InfiniBand, locked memory, the kernel's log."""


@dataclass(frozen=True, kw_only=True)
class PodStart:
    """How pods are started, and by whom."""

    settings: PodSettings
    kubernetes: KubernetesSettings


@dataclass(frozen=True, kw_only=True)
class RayStart:
    """How Ray is brought up on the nodes of a cluster that has none, as its file says."""

    by: str  # a name of `start_ways`
    pods: PodStart | None = None  # by Kubernetes
    options: tuple[str, ...] = ()  # more words for its command
    drained_by: tuple[str, ...] = ()  # another way, with its options, to nodes that it refuses
    prefix: tuple[str, ...] = ()
    python: str
    env: Mapping[str, str] = field(default_factory=dict)
    ports: str = ""
    driver_address: str = ""
