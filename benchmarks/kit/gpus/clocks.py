"""The lowest or the highest clock of a GPU for a while, and then the one that it had.

Clocks for applications are set, as the driver says what they were; it does not say what
`nvidia-smi -lgc` has locked, which stays as it is. What they were is kept in a file below /run
until they are back, and the process that changed them locks the file: if it was killed, whoever
finds the file without its lock gives them back.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kit.gpus import nvml
from kit.gpus.cards import machine_root
from kit.gpus.nvml import pynvml
from kit.gpus.readings import Handle, Unread

CHOICES = {"lowest": min, "highest": max}
Clocks = tuple[int, int]  # of memory and of processors, in MHz


def folder() -> Path:
    return machine_root() / "run/anubis/clocks"


@contextmanager
def change_clock(way: str, gpu: Handle) -> Iterator[None]:
    """Set the clock while the body runs. Unread: it stays as it is, and why."""
    try:
        before = clocks_of(gpu)
        supported = pynvml.nvmlDeviceGetSupportedGraphicsClocks(gpu, before[0])
        name = nvml.read(gpu, nvml.UUID).values["uuid"]
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = (folder() / name).open("a+")
    except (AttributeError, KeyError, OSError, pynvml.NVMLError) as error:
        raise Unread(str(error)) from error
    with kept:
        try:
            fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unread("another process has changed it") from None
        kept.write("{} {}\n".format(*before))
        kept.flush()
        try:
            chosen = CHOICES[way](supported, default=before[1])
            pynvml.nvmlDeviceSetApplicationsClocks(gpu, before[0], chosen)
        except pynvml.NVMLError as error:
            Path(kept.name).unlink()
            raise Unread(str(error)) from error
        try:
            yield
        finally:
            give_back(gpu, Path(kept.name))


def clocks_of(gpu: Handle) -> Clocks:
    of_memory, of_processors = (
        pynvml.nvmlDeviceGetApplicationsClock(gpu, kind)
        for kind in (pynvml.NVML_CLOCK_MEM, pynvml.NVML_CLOCK_SM)
    )
    return of_memory, of_processors


def give_back(gpu: Handle, file: Path) -> None:
    """Set the clocks that the first line of a file has, and remove the file once they are back. An
    empty one was left before anything was changed."""
    before = tuple(map(int, file.read_text(encoding="ascii").split()[:2]))
    if before:
        pynvml.nvmlDeviceSetApplicationsClocks(gpu, *before)
    if not before or clocks_of(gpu) == before:
        file.unlink()


def give_back_all() -> None:
    """Give back the clocks that processes have left changed, as far as this one may."""
    files = [*folder().glob("*")] if folder().is_dir() else []
    for file in files:
        with suppress(OSError, Unread, pynvml.NVMLError), file.open("a") as kept:
            fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else it is in use
            nvml.begin()
            give_back(pynvml.nvmlDeviceGetHandleByUUID(file.name.encode()), file)
