"""The way to the driver of this machine's GPUs: a module for each maker, with the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kit.gpus.cards import amd_cards
from kit.gpus.readings import Handle, Reader, Reading


class Driver(Protocol):
    """What each of these modules has. A reader returns one value of a GPU, or raises."""

    CALLED: str
    DRIVER: dict[str, Reader]  # of the node: the handle is not used
    UUID: dict[str, Reader]
    IDENTITY: dict[str, Reader]  # explains a number and is no metric
    CONDITION: dict[str, Reader]  # errors, states and sizes
    BY_SIBLINGS: dict[str, str]  # what is missing of a value that GPUs like it have
    COUNTERS: dict[str, Reader]  # since they were cleared: only a rise counts
    ERRORS: dict[str, Reader]  # counters that a load may raise
    STATE: dict[str, Reader]  # differs from second to second
    HELD_BACK: dict[str, Reader]  # what slows the GPU down now

    def begin(self) -> None: ...
    def gpus_by_index(self) -> tuple[dict[int, Handle], dict[int, str]]: ...
    def read(self, gpu: Handle, readers: Mapping[str, Reader]) -> Reading: ...
    def find_gpu(self, properties: Any) -> Handle: ...
    def busy(self, held_back: Sequence[Any]) -> list[Any]: ...
    def shares(self, held_back: Sequence[Any]) -> dict[str, float]: ...
    def slowdowns(self, held_back: Sequence[Any]) -> dict[str, float]: ...


def find_driver() -> Driver:
    """Return the module that asks the driver of the GPUs."""
    from kit.gpus import amdgpu, nvml

    return amdgpu if amd_cards() else nvml
