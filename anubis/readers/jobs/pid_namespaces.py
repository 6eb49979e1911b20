"""Ids of processes that count them by themselves, as pods do: the same process has another id on
its machine. The kernel tells both to those who may trace the process, such as its own user."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path

PROC = Path("/proc")
ENDED = 0  # no process has this id


class PidNamespaces:
    """The processes of this machine that are in other namespaces of ids, as they are now."""

    def id_here(self, namespace: int, pid: int) -> int | None:
        """Return the id on this machine; `ENDED` if others of the namespace are here, and it is
        not; None if none is here."""
        if namespace == self._own:
            return pid
        members = self._members.get(namespace)
        return None if members is None else members.get(pid, ENDED)

    @cached_property
    def _own(self) -> int:
        return _namespace(PROC / "self")

    @cached_property
    def _members(self) -> dict[int, dict[int, int]]:
        members: dict[int, dict[int, int]] = {}
        for place in PROC.iterdir():
            if place.name.isdecimal():
                with suppress(OSError, ValueError, IndexError):  # it ended, or is of another user
                    status = (place / "status").read_text(errors="replace")
                    inner = int(status.partition("\nNSpid:")[2].partition("\n")[0].split()[-1])
                    members.setdefault(_namespace(place), {})[inner] = int(place.name)
        return members


def _namespace(place: Path) -> int:
    return (place / "ns/pid").stat().st_ino
