"""Parts of the copy benchmarks: bytes that can be told apart, and copies that run at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch

ROW, GAP = 1 << 18, 32  # words


def words(size_bytes: int, device: torch.device, pinned: bool = False) -> torch.Tensor:
    elements = max(1, size_bytes // 4)
    return torch.zeros(elements, dtype=torch.int32, device=device, pin_memory=pinned)


def rows(size_bytes: int, device: torch.device) -> torch.Tensor:
    """Return as many words, in rows with a gap between them: what copies them is a kernel.

    A copy engine takes contiguous memory only, and torch then has the GPU's processors copy.
    """
    elements = max(2, size_bytes // 4)
    width = min(ROW, elements // 2)
    return words(4 * (width + GAP) * (elements // width), device).view(-1, width + GAP)[:, :width]


def write_pattern(target: torch.Tensor, salt: int) -> torch.Tensor:
    """Write words that differ from place to place and from salt to salt: what strays or stays
    shows."""
    if target.is_contiguous():
        torch.arange(target.numel(), out=target.view(-1))
    else:
        target.copy_(torch.arange(target.numel(), device=target.device).view_as(target))
    return target.mul_(0x01000193).add_(salt * 0x00F1EA5D)  # an odd factor: no word comes twice


def wrong_words(received: torch.Tensor, salt: int) -> int:
    return int((received != write_pattern(torch.empty_like(received), salt)).sum())


def copy_together(
    copies: Iterable[tuple[torch.Tensor, torch.Tensor]], device: torch.device
) -> Callable[[], None]:
    """Return a call that makes all (target, source) copies together; the current stream of `device`
    waits for the last.

    torch makes the current streams at both ends wait for a copy. So each copy gets a stream of its
    own on every GPU that it touches, or the way back would wait for the way there.
    """
    lanes = [
        (target, source, [torch.cuda.Stream(gpu) for gpu in gpus_of(target, source)])
        for target, source in copies
    ]

    def call() -> None:
        everyones = [stream for _, _, streams in lanes for stream in streams]
        for stream in everyones:
            stream.wait_stream(torch.cuda.current_stream(device))
        for target, source, streams in lanes:
            with ExitStack() as current:
                for stream in streams:
                    current.enter_context(torch.cuda.stream(stream))
                target.copy_(source, non_blocking=True)
        for stream in everyones:
            torch.cuda.current_stream(device).wait_stream(stream)

    return call


def settle(devices: Iterable[torch.device]) -> None:
    """Wait for what is under way: streams of two GPUs know nothing of each other."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def gpus_of(*tensors: torch.Tensor) -> set[torch.device]:
    return {tensor.device for tensor in tensors if tensor.device.type == "cuda"}
