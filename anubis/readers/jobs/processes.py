"""Ranks of a job that a process of this machine has started, from what the kernel keeps of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from anubis.core.errors import EvidenceError
from anubis.readers.jobs.hook.sitecustomize import LAUNCHERS
from anubis.readers.jobs.live import FOLDER_VARIABLE, LiveRank

PROC = Path("/proc")
MOST_BYTES = 4 << 20  # of an environment


def ranks_of_process(pid: int) -> list[LiveRank]:
    """Return the ranks among a process and all that it started. A rank's own helpers have its
    environment, too: the first of them is the rank."""
    if not (PROC / str(pid)).exists():
        raise EvidenceError(f"there is no process {pid} on this machine")
    ranks: dict[int, LiveRank] = {}
    for descendant in _family(pid):
        environment = _environment(descendant)
        names = next((names for names in LAUNCHERS if names[0] in environment), LAUNCHERS[0])
        rank, world, here = (_number_in(environment, name) for name in names)
        if rank is not None:
            ranks.setdefault(
                rank,
                LiveRank(
                    rank=rank,
                    pid=descendant,
                    socket="",
                    host=socket.gethostname(),
                    world=world or 0,
                    here=here or 0,
                ),
            )
    if not ranks:
        raise EvidenceError(
            f"process {pid} has no rank of a job, nor has any that it started: none has"
            f" {' or '.join(names[0] for names in LAUNCHERS)} in an environment that may be read"
        )
    return list(ranks.values())


def live_folder(pid: int) -> Path | None:
    """Return the folder in which the ranks of a job announce themselves; None if they were not
    started with the hook."""
    folders = (_environment(descendant).get(FOLDER_VARIABLE) for descendant in _family(pid))
    return next((Path(folder) for folder in folders if folder), None)


def _family(pid: int) -> list[int]:
    """Return a process and all below it, parents before children."""
    children: dict[int, list[int]] = {}
    for process, parent in _parents():
        children.setdefault(parent, []).append(process)
    family = [pid]
    for member in family:
        family += sorted(children.get(member, ()))
    return family


def _parents() -> Iterable[tuple[int, int]]:
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            try:
                status = Path(entry.path, "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            yield int(entry.name), int(status.rpartition(")")[2].split()[1])


def _environment(pid: int) -> Mapping[str, str]:
    """Return the environment with which the process began; empty for somebody else's process."""
    try:
        with (PROC / str(pid) / "environ").open("rb") as file:
            entries = file.read(MOST_BYTES).decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _number_in(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").partition("(")[0]  # 4(x2): of Slurm, on each node
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None
