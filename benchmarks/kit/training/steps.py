"""Training steps of one rank, timed on its own device without making it wait.

fp16 and bf16 are autocast over fp32 weights, as in training jobs. For fp16 the loss is multiplied
by a constant, and AdamW's epsilon with it: the updates are the same, exactly, and no step is ever
skipped, so that losses and times repeat.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from time import perf_counter

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from kit.possession import Possession, Threads
from kit.training.models import Model

HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
LOSS_SCALE = {"fp16": 1024.0}
LEARNING_RATE = 1e-4  # a usual one; how well a model learns is not judged
ADAM_EPSILON = 1e-8  # torch's default

Mark = torch.cuda.Event | float


@dataclass
class Times:
    """Seconds of each step, and of its forward and backward before the wait for the others."""

    step_s: list[float] = field(default_factory=list)
    compute_s: list[float] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)  # shares that others may have cost each step

    def __iadd__(self, more: Times) -> Times:
        self.step_s += more.step_s
        self.compute_s += more.compute_s
        self.taken += more.taken
        return self

    def mean(self) -> Times:
        taken = [fmean(self.taken)] if self.taken else []
        return Times([fmean(self.step_s)], [fmean(self.compute_s)], taken)


@dataclass
class Averaging:
    """The state of DDP's hook. It must not know the training: DDP's C++ keeps it, and Python could
    never free the two."""

    group: dist.ProcessGroup
    device: torch.device
    begun: Mark = 0.0  # of the last bucket: then backward is done on this rank


def average(averaging, bucket):  # type: ignore[no-untyped-def] # DDP takes no types as strings
    """Average a bucket of gradients, as DDP itself does."""
    if bucket.is_last():
        averaging.begun = mark(averaging.device)
    mean = bucket.buffer().div_(averaging.group.size())
    work = dist.all_reduce(mean, group=averaging.group, async_op=True)
    return work.get_future().then(lambda work: work.value()[0])


def averaged_bytes(network: nn.Module) -> int:
    """Return the bytes of the gradients that all ranks average in a step."""
    own = set(own_weights(network))
    return sum(
        weight.nbytes
        for name, weight in network.named_parameters()
        if weight.requires_grad and name not in own
    )


class Training:
    """Forward, backward, AdamW, always on the same data. It counts losses that are not numbers."""

    def __init__(self, network: nn.Module, data: tuple[Tensor, Tensor], precision: str) -> None:
        self.device = data[0].device
        choose_products(precision)
        # the matrix units' convolutions want the channels of a pixel side by side
        self.layout = torch.contiguous_format if precision == "fp32" else torch.channels_last
        self.network = network.to(memory_format=self.layout)
        self.forward: nn.Module = self.network
        self.data = self._laid_out(data)
        self.scale = LOSS_SCALE.get(precision, 1.0)
        half = HALF.get(precision)
        self.autocast = torch.autocast(self.device.type, dtype=half, enabled=half is not None)
        self.optimizer = torch.optim.AdamW(
            network.parameters(), lr=LEARNING_RATE, eps=ADAM_EPSILON * self.scale, fused=True
        )
        self.loss = torch.zeros((), device=self.device)
        self.not_finite = torch.zeros((), dtype=torch.int64, device=self.device)
        self.averaging: Averaging | None = None

    def join(self, group: dist.ProcessGroup, data: tuple[Tensor, Tensor]) -> None:
        """Train together from now on, each rank on data of its own."""
        self.data = self._laid_out(data)
        # nothing but gradients is to be sent: with buffers every forward would wait for rank 0
        left_out = [*own_weights(self.network), *dict(self.network.named_buffers())]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.network, left_out)
        self.forward = DistributedDataParallel(
            self.network, process_group=group, gradient_as_bucket_view=True
        )
        self.averaging = Averaging(group, self.device)
        self.forward.register_comm_hook(self.averaging, average)

    def _laid_out(self, data: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, labels = data
        return (inputs.to(memory_format=self.layout) if inputs.dim() == 4 else inputs), labels

    def step(self) -> Mark:
        """Do a step; return when forward and backward were done, before the wait for other
        ranks."""
        inputs, labels = self.data
        with self.autocast:
            scores = self.forward(inputs)
            loss = F.cross_entropy(scores.flatten(0, -2), labels.flatten())
        (loss * self.scale).backward()
        computed = self.averaging.begun if self.averaging else mark(self.device)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.detach()
        self.not_finite += ~self.loss.isfinite()  # stays on the device, without a wait
        return computed

    def time_steps(self, steps: int) -> Times:
        """Time steps, with one mark between steps and one wait at the end: a GPU never idles in
        between."""
        on_gpu = self.device.type == "cuda"
        with Possession(Threads.this_one() if on_gpu else Threads.all()) as possession:
            possession.stamp()
            edges, computed = [mark(self.device)], []
            for _ in range(steps):
                computed.append(self.step())
                edges.append(mark(self.device))
                possession.stamp()
        if on_gpu:
            torch.cuda.synchronize(self.device)
            begun = edges
            timed = possession.seconds_on_gpu(
                [seconds(start, end) for start, end in pairwise(edges)]
            )
        else:
            begun, timed = possession.begun, possession.seconds_on_host()
        compute_s = [seconds(start, end) for start, end in zip(begun, computed, strict=False)]
        return Times([*timed], compute_s, timed.taken)


def mark(device: torch.device) -> Mark:
    if device.type != "cuda":
        return perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def seconds(start: Mark, end: Mark) -> float:
    if isinstance(start, float) and isinstance(end, float):
        return end - start
    elapsed_ms: float = start.elapsed_time(end)
    return elapsed_ms / 1e3


def choose_products(precision: str) -> None:
    """Set the precision of products. fp32 is fp32: torch would let cuDNN round it to tf32."""
    tf32 = precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32


def make_network(model: Model, device: torch.device, group: dist.ProcessGroup | None) -> nn.Module:
    """Return the network with its first weights, the same on every rank."""
    torch.manual_seed(0)
    with torch.device(device):
        network = model.build(group)
    return network.train()


def draw_data(model: Model, batch: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return random inputs and labels: no disk, no tokenizer, nothing but the machine to wait
    for."""
    generator = torch.Generator(device).manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def labels(*shape: int) -> Tensor:
        return torch.randint(model.classes, shape, generator=generator, device=device)

    if model.data == "tokens":
        return labels(batch, model.length), labels(batch, model.length)
    if model.data == "sequences":
        return numbers(batch, model.length, model.shape["features"]), labels(batch)
    return numbers(batch, 3, model.length, model.length), labels(batch)


# --- did the ranks average rightly? ---------------------------------------------------------


def own_weights(network: nn.Module) -> frozenset[str]:
    """Return parameters that each rank has for itself: the experts of a mixture."""
    return getattr(network, "own_weights", frozenset())


def fingerprint(network: nn.Module) -> tuple[int, ...]:
    """Return a sum over the bits of each parameter; ranks that averaged rightly have the same."""
    sums = [
        parameter.detach().view(torch.int32).sum(dtype=torch.int64)
        for name, parameter in network.named_parameters()
        if name not in own_weights(network)
    ]
    return tuple(torch.stack(sums).tolist())


def dissenters(prints: Sequence[tuple[int, ...]]) -> list[bool]:
    """Mark ranks that differ from more than half of all; all of them if there is no such
    majority."""
    common, count = Counter(prints).most_common(1)[0]
    return [2 * count <= len(prints) or own != common for own in prints]
