"""One process of a small training job: computes, reduces gradients with the others, and again.

A program for a host of the test bed: gloo instead of NCCL, and a few milliseconds of matrices
instead of a GPU's work. While it waits for the others it asks again and again whether the reduction
is done, as NCCL's processes do, so a host that waits is busy and a process that stands still is
not. When a partner is gone it waits on until the job is given up, as NCCL's processes do for ten
minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

WIDTH = 1024  # of two layers, so that a step reduces 8 MiB of gradients
ASKS_S, RESTS_S = 0.001, 0.005  # NCCL asks all the time; a sixth leaves the machine to others


def wait_busily(over: Callable[[], bool]) -> None:
    while not over():
        until = time.monotonic() + ASKS_S
        while time.monotonic() < until:
            pass
        time.sleep(RESTS_S)


def wait_idly(over: Callable[[], bool]) -> None:
    while not over():
        time.sleep(RESTS_S)


WAITS = {"busy": wait_busily, "idle": wait_idly}


def train(options: argparse.Namespace, given_up: Callable[[], bool]) -> None:
    wait = WAITS[options.wait]
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2)))
    batch = torch.randn(options.batch, WIDTH)
    checkpoint = time.monotonic() + options.checkpoint_every
    while not given_up():
        model.zero_grad()
        for _ in range(options.batches):
            model(batch).square().mean().backward()
        time.sleep(options.rest)
        reduce_gradients(model, wait, given_up)
        if time.monotonic() > checkpoint:
            checkpoint += options.checkpoint_every
            save(model, options)


def reduce_gradients(
    model: torch.nn.Module,
    wait: Callable[[Callable[[], bool]], None],
    given_up: Callable[[], bool],
) -> None:
    for weight in model.parameters():
        assert weight.grad is not None
        work = dist.all_reduce(weight.grad, async_op=True)
        assert work is not None
        reduced = work.get_future()
        wait(lambda reduced=reduced: reduced.done() or given_up())
        if not reduced.done():
            return
        work.wait()


def save(model: torch.nn.Module, options: argparse.Namespace) -> None:
    """All stop for it; the first also writes."""
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), options.folder / "checkpoint")
    time.sleep(options.checkpoint_takes)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--rank", type=int, required=True)
    add("--ranks", type=int, required=True)
    add("--master", required=True, metavar="ADDRESS:PORT", help="where they meet")
    add("--seconds", type=float, default=600.0, help="after which the job is given up")
    add("--batch", type=int, default=64)
    add("--batches", type=int, default=4, help="for one step")
    add("--rest", type=float, default=0.6, help="s of a step in which a GPU would compute")
    add("--wait", choices=WAITS, default="busy", help="for the others")
    add("--checkpoint-every", type=float, default=60.0, metavar="SECONDS")
    add("--checkpoint-takes", type=float, default=4.0, metavar="SECONDS")
    add("--folder", type=Path, default=Path(tempfile.gettempdir()), help="of checkpoints")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    torch.manual_seed(options.rank)
    end = time.monotonic() + options.seconds
    place, ranks = f"tcp://{options.master}", options.ranks
    dist.init_process_group("gloo", init_method=place, rank=options.rank, world_size=ranks)
    print("training", flush=True)
    given_up = partial(is_past, end)
    try:
        train(options, given_up)
    except RuntimeError as error:
        print(f"lost a partner: {error}", file=sys.stderr, flush=True)
    dist.destroy_process_group()  # else gloo spins on the connection that was closed
    WAITS[options.wait](given_up)


def is_past(moment: float) -> bool:
    return time.monotonic() > moment


if __name__ == "__main__":
    main()
