"""Jobs of real ranks that train tiny models by gloo, with a fault that one of them does to itself.

A program for show-diagnose-live and show-loop, one process for each rank:

    live_jobs.py JOB FAULT CULPRIT STEP FOLDER [--steps N] [--width N] [--batch N] [--pause SECONDS]

The rank comes from the environment, as each launcher says it. FOLDER gets `mark` in the moment of
the fault, and `steps` with the time of each fifth step of rank 0. With `--steps` a job ends there;
if it is started again, it goes on behind the last step in that file, as from a checkpoint.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WIDTH, BATCH = 64, 8
PAUSE_S = 0.05  # of each step: the machine has few processors
SLOWNESS = 4
NOTED = 5  # every so many steps are noted
FOR_EVER_S = 1000.0  # longer than any study watches a job
RANKS = (  # as launchers name the rank and the number of ranks
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@dataclass
class Plan:
    """Which job, and what goes wrong in it, at whom and when."""

    job: str
    fault: str
    culprit: int
    step: int
    folder: Path
    rank: int
    world: int
    pause_s: float = PAUSE_S
    slowness: int = 1  # its own work takes so many times as long
    width: int = WIDTH
    batch: int = BATCH
    last_step: int | None = None  # None: it goes on for ever
    stuck: threading.Event = field(default_factory=threading.Event)

    @property
    def is_here(self) -> bool:
        return self.rank == self.culprit

    def mark(self) -> None:
        (self.folder / "mark").write_text(repr(time.time()))

    def strike(self, step: int) -> None:
        """Cause the fault before its step."""
        if step != self.step:
            return
        if self.is_here:
            self.mark()
            self.misbehave()
        if self.fault == "whole":
            self.pause_s *= 4

    def misbehave(self) -> None:
        if self.fault in ("sleep", "again-sleep"):
            time.sleep(FOR_EVER_S)
        elif self.fault == "gil":
            ctypes.PyDLL(None).sleep(int(FOR_EVER_S))  # unlike CDLL it keeps the interpreter's lock
        elif self.fault == "fifo":
            read_fifo(self.folder / "fifo")
        elif self.fault == "spin":
            spin()
        elif self.fault == "lock":
            threading.Lock().acquire() and self.stuck.wait()
        elif self.fault == "raise":
            raise RuntimeError("planted")
        elif self.fault == "shape":
            dist.all_reduce(torch.ones(7))
        elif self.fault == "memory":
            time.sleep(0.5)  # until its limit is set
            torch.ones(1 << 28)
        elif self.fault == "slow":
            self.pause_s *= SLOWNESS
            self.slowness = SLOWNESS


def read_fifo(path: Path) -> str:
    os.mkfifo(path)
    with path.open() as opened:  # nothing writes to it
        return opened.read()


def burn(seconds: float) -> None:
    """Take processor time, which on a busy machine lasts as much longer as all work does."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def spin() -> None:
    number = 0
    while True:
        number = (number * 31 + 7) % 1_000_003


def model(width: int = WIDTH) -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(4)])


def train(module: nn.Module, batch: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    module(batch).square().mean().backward()
    optimizer.step()


Step = Callable[[int], None]


def ddp(plan: Plan) -> Step:
    module = nn.parallel.DistributedDataParallel(model(plan.width))
    optimizer = torch.optim.SGD(module.parameters(), 0.001)

    def step(number: int) -> None:
        train(module, torch.randn(plan.batch, plan.width), optimizer)

    return step


def fsdp(plan: Plan) -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (plan.world,))
    module = model()
    for layer in module:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.SGD(module.parameters(), 0.001)

    def step(number: int) -> None:
        train(module, torch.randn(8, WIDTH), optimizer)

    return step


def pipeline(plan: Plan) -> Step:
    """A stage on each rank: activations go forward, gradients back."""
    first, last = plan.rank == 0, plan.rank == plan.world - 1

    def step(number: int) -> None:
        batch = torch.randn(8, WIDTH)
        if not first:
            dist.recv(batch, plan.rank - 1)
        if plan.fault == "within" and number == plan.step and plan.is_here:
            plan.mark()
            time.sleep(FOR_EVER_S)
        if plan.fault == "both" and number == plan.step:  # all wait to receive
            plan.mark()
            dist.recv(batch, (plan.rank + 1) % plan.world)
        if not last:
            dist.send(batch, plan.rank + 1)
            dist.recv(batch, plan.rank + 1)
        if not first:
            dist.send(batch, plan.rank - 1)

    return step


def mesh(plan: Plan) -> Step:
    """Two groups across two: sums in rows, then in columns."""
    from torch.distributed.device_mesh import init_device_mesh

    grid = init_device_mesh("cpu", (plan.world // 2, 2), mesh_dim_names=("dp", "tp"))
    rows, columns = grid.get_group("tp"), grid.get_group("dp")

    def step(number: int) -> None:
        groups = [rows, columns]
        # two ranks, or the others would not wait for each other in a circle
        across = plan.rank in (plan.culprit, plan.world - 1 - plan.culprit)
        if plan.fault == "order" and number == plan.step and across:
            plan.mark()
            groups = [columns, rows]
        for group in groups:
            dist.all_reduce(torch.ones(WIDTH), group=group)

    return step


def tensor(plan: Plan) -> Step:
    """Each layer is split among all ranks, as columns and then as rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    torch.manual_seed(0)  # all have the same batches
    split = {"0": ColwiseParallel(), "1": RowwiseParallel()}
    split |= {"2": ColwiseParallel(), "3": RowwiseParallel()}
    module = parallelize_module(model(), init_device_mesh("cpu", (plan.world,)), split)
    optimizer = torch.optim.SGD(module.parameters(), 0.001)

    def step(number: int) -> None:
        train(module, torch.randn(plan.batch, WIDTH), optimizer)

    return step


def experts(plan: Plan) -> Step:
    """Tokens go to their experts in each half of the ranks and come back; all ranks then agree."""
    half = plan.world // 2
    halves = [dist.new_group(range(half)), dist.new_group(range(half, plan.world))]
    own = halves[plan.rank // half]

    def step(number: int) -> None:
        tokens, there = torch.randn(half * 4, WIDTH), torch.empty(half * 4, WIDTH)
        dist.all_to_all_single(there, tokens, group=own)
        dist.all_to_all_single(tokens, there, group=own)
        dist.all_reduce(torch.ones(WIDTH))

    return step


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.plan.fault == "loader" and self.plan.is_here and index == self.plan.step:
            self.plan.mark()
            time.sleep(FOR_EVER_S)
        return torch.randn(8, WIDTH)


def loader(plan: Plan) -> Step:
    module = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(module.parameters(), 0.001)
    batches = iter(
        torch.utils.data.DataLoader(
            Samples(plan), batch_size=None, num_workers=1, prefetch_factor=2
        )
    )

    def step(number: int) -> None:
        train(module, next(batches), optimizer)

    return step


def thread(plan: Plan) -> Step:
    """A second thread prepares the batches; the first waits for them."""
    ready: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)

    def prepare() -> None:
        for number in range(1_000_000):
            if plan.fault == "thread" and number == plan.step and plan.is_here:
                plan.mark()
                plan.stuck.wait()
            ready.put(torch.randn(8, WIDTH))

    threading.Thread(target=prepare, daemon=True).start()
    module = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(module.parameters(), 0.001)

    def step(number: int) -> None:
        train(module, ready.get(), optimizer)

    return step


JOBS: dict[str, Callable[[Plan], Step]] = {
    job.__name__: job for job in (ddp, fsdp, pipeline, mesh, tensor, experts, loader, thread)
}


def numbers(plan: Plan) -> Iterator[int]:
    """The steps that are left to do."""
    if plan.last_step is None:
        yield from itertools.count()
    else:
        yield from range(done_before(plan.folder), plan.last_step + 1)


def done_before(folder: Path) -> int:
    noted = folder / "steps"
    lines = noted.read_text().splitlines() if noted.exists() else []
    return int(lines[-1].split()[0]) if lines else 0


def work(plan: Plan, *, says_rank: bool) -> None:
    """`says_rank`: the program itself says which rank it is, because the environment does not."""
    torch.set_num_threads(1)
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if plan.fault == "start" and plan.is_here:
        plan.mark()
        time.sleep(FOR_EVER_S)
    if plan.fault.startswith("again") and attempt == 0:  # before any rank left a trace in the store
        if plan.is_here:
            raise RuntimeError("planted, and gone when it is started again")
        time.sleep(FOR_EVER_S)
    if says_rank:
        where = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        dist.init_process_group("gloo", where, rank=plan.rank, world_size=plan.world)
    else:
        dist.init_process_group("gloo")
    step = JOBS[plan.job](plan)
    for number in numbers(plan):
        if plan.rank == 0 and number % NOTED == 0:
            with (plan.folder / "steps").open("a") as steps:
                steps.write(f"{number} {time.time()}\n")
        plan.strike(number)
        if plan.fault in ("nothing", "again") and number == plan.step and plan.is_here:
            plan.mark()
        began = time.thread_time()
        step(number)
        burn((plan.slowness - 1) * (time.thread_time() - began))
        time.sleep(plan.pause_s)


def spawned(rank: int, world: int, options: Mapping[str, Any]) -> None:
    work(Plan(**options, rank=rank, world=world), says_rank=True)


def parse() -> dict[str, Any]:
    """The fields of a plan that the command line states."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("job", choices=JOBS)
    add("fault")
    add("culprit", type=int)
    add("step", type=int)
    add("folder", type=Path)
    add("--steps", dest="last_step", type=int, metavar="N", help="after which it ends")
    add("--width", type=int, default=WIDTH)
    add("--batch", type=int, default=BATCH)
    add("--pause", dest="pause_s", type=float, default=PAUSE_S, metavar="SECONDS")
    return vars(parser.parse_args())


def main() -> None:
    options = parse()
    names = next((names for names in RANKS if names[0] in os.environ), None)
    if names is None:  # this process starts the ranks itself
        world = int(os.environ["LIVE_JOB_RANKS"])
        context = multiprocessing.get_context("spawn")
        ranks = [
            context.Process(target=spawned, args=(rank, world, options)) for rank in range(world)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        return
    rank, world = (int(os.environ[name]) for name in names)
    work(Plan(**options, rank=rank, world=world), says_rank=names[0] != "RANK")


if __name__ == "__main__":
    main()
