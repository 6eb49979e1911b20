"""The start of a program on a node: the program, the meeting point of its ranks, the settings of
the cluster's file, and the ways in which `start:` of that file may have a command started: ssh, and
what owners of nodes declare as `START` in their files of `anubis/reach/orchestrators/`.

It is apart from programs.py, because many name a program and few run one.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from anubis.core.records import BenchmarkSpec
from anubis.reach import orchestrators
from anubis.reach.orchestrators.kubernetes_settings import KubernetesSettings


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


SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-a", "-x", "-T")
RESOLVE_PATIENCE_S = 10.0  # ssh's configuration may look up names, and DNS may be slow
NEVER = re.compile(r"(?!)")  # matches no line


@dataclass(frozen=True, kw_only=True)
class StartWay:
    """One way to start a command on a node."""

    trial: Callable[[RayStart, str, Sequence[str]], list[str]]  # a command for a person to type
    limits: Mapping[str, str]  # how the limits on `memlock` and `nofile` are raised there
    argv: Callable[[RayStart, str, Sequence[str]], list[str]] | None = None  # of a command here
    open: Callable[[RayStart, str], Any] | None = None  # instead, a `Courier`; by our own address
    host: Callable[[RayStart, str], str] = lambda _, node: node  # the name that leads to a node
    advice: Mapping[str, str] = field(default_factory=dict)  # by words of the last output
    telling: re.Pattern[str] = NEVER  # lines that say more than those after them
    idle: re.Pattern[str] = NEVER  # lines that say nothing
    too_busy: re.Pattern[str] = NEVER  # last words of a way that may answer a moment later
    job_variables: re.Pattern[str] = NEVER  # of a job in which the driver itself may run
    refused_nodes: Callable[[], frozenset[str]] | None = None  # idle, but this way starts nothing


def ssh_argv(start: RayStart, node: str, command: Sequence[str]) -> list[str]:
    """Return the words of ssh, which hands the command to a shell, whatever it is."""
    return ["ssh", *SSH, *start.options, "--", node, shlex.join(command)]


def ssh_host(start: RayStart, node: str) -> str:
    """Return the host name of a node by ssh's configuration."""
    answer = subprocess.run(
        ["ssh", "-G", *start.options, "--", node],
        capture_output=True,
        text=True,
        timeout=RESOLVE_PATIENCE_S,
        check=True,
    )
    hostnames = re.findall(r"^hostname (\S+)$", answer.stdout, re.M)
    return hostnames[0] if hostnames else node


BY_SSH = StartWay(
    argv=ssh_argv,
    host=ssh_host,
    trial=lambda start, node, command: ["ssh", *start.options, node, *command],
    too_busy=re.compile("kex_exchange_identification|Connection (reset|closed) by"),  # MaxStartups
    limits={
        "memlock": '"* - memlock unlimited" in /etc/security/limits.d/',
        "nofile": '"* - nofile 65536" in /etc/security/limits.d/',
    },
)


@cache
def start_ways() -> Mapping[str, StartWay]:
    """Return all ways by name: ssh, and those of owners by the names of their files."""
    ways = {"ssh": BY_SSH}
    for module in iter_modules(orchestrators.__path__):
        declared = getattr(import_module(f"{orchestrators.__name__}.{module.name}"), "START", None)
        if isinstance(declared, StartWay):
            ways[module.name] = declared
    return ways


def leave_own_job(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables of the driver's own job: a driver that runs as a
    job asks for nodes of its own, not for a step of that job."""
    dropped = [way.job_variables for way in start_ways().values()]
    return {
        name: text
        for name, text in environment.items()
        if not any(pattern.match(name) for pattern in dropped)
    }
