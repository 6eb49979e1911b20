"""The course of a training program: its parameters, its metrics, and how it measures.

Each model is trained twice. First every rank trains alone for a few steps, from the same weights
and on the same data as any other rank of any node: the loss it comes to depends on nothing but its
own arithmetic. Of a GPU the bits of its weights are noted too, which move more often than the loss.
(The experts of a mixture are spread over the ranks, which so depend on each other.)
Then all train together, each on data of its own, gradients averaged while backward still runs. A
slow rank holds up all alike, so beside the rate each has the time of its own forward and backward,
taken before it waits for anybody's gradients: the rank with a long time is the culprit.
"""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib import import_module
from itertools import product
from math import inf, nan
from time import perf_counter
from typing import TYPE_CHECKING, Any

import contract

from kit.gpus import ceilings
from kit.kernels import describe_kernels, uuid_of
from kit.training.models import SIZES, Model, model

if TYPE_CHECKING:
    from kit.group import Group
    from kit.training.steps import Times, Training

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
ON_A_CPU = ("fp32", "bf16")
REPEATING_WORKSPACES = (":4096:8", ":16:8")  # with any other cuBLAS may not repeat, by its manual

METRICS = (
    contract.higher(
        "samples_per_s",
        "1/s",
        "pictures or sequences per second, per step, by model and precision",
        ceiling="the dense rate of the precision over the operations of a sample",
    ),
    contract.lower(
        "compute_s", "s", "forward and backward pass of a step, before waiting for other ranks"
    ),
    contract.Metric(
        "loss",
        "1",
        "either",
        summary="after a few steps on each device alone, from fixed weights and data; a loss that "
        "differs from other nodes' was computed wrongly",
    ),
    contract.AGREEMENT,
)


def parameters(models: str, catalog: Iterable[str], smoke: str) -> tuple[contract.Parameter, ...]:
    return (
        contract.Parameter(
            "models", models, f"any of {', '.join(catalog)}", smoke=smoke, more_is_stronger=True
        ),
        contract.Parameter(
            "precisions", "auto", f'any of {", ".join(PRECISIONS)}; "auto": bf16, on a CPU fp32'
        ),
        contract.Parameter(
            "size",
            "auto",
            f'size of the models: {", ".join(SIZES)}; "auto": published, on a CPU reduced',
            smoke="tiny",
        ),
        contract.Parameter("batch", 0, "samples per step and rank; 0: the model's own", at_least=0),
        contract.Parameter(
            "steps",
            30,
            "timed steps",
            smoke=3,
            at_least=1,
            more_is_stronger=True,
            counts=("samples_per_s", "compute_s"),
            unless="seconds",
        ),
        contract.Parameter("warmup", 0, "steps to drop after the first few", at_least=0),
        contract.Parameter("loss_steps", 10, "steps on each device alone", smoke=2, at_least=1),
        contract.Parameter(
            "seconds",
            0.0,
            "how long to train each model; a sample is then the mean of `steps` steps",
            at_least=0,
        ),
    )


def processes() -> int:
    """Return the number of ranks on one machine alone: one per GPU, or two on a CPU, as an executor
    starts them."""
    from kit.timing import gpus

    return gpus() or 2


@dataclass(frozen=True, kw_only=True)
class Schedule:
    steps: int
    warmup: int
    loss_steps: int
    seconds: float


def measure(
    report: contract.Report,
    *,
    catalog: Mapping[str, object],
    models: str,
    precisions: str,
    size: str,
    batch: int,
    among_hosts: bool = False,
    **schedule: Any,
) -> None:
    """Measure training. On one node each device has a rate; among hosts the group has one, by its
    slowest rank."""
    from kit.group import join_ranks

    names = contract.choose("models", models, catalog)
    if size not in ("auto", *SIZES):
        raise contract.BadParameter(f'size cannot be "{size}": use auto, {", ".join(SIZES)}')
    # Every optimizer loads this. Loaded after a group was made, it holds on to the group's threads,
    # and a process that ends with them ends now and then with SIGABRT.
    import_module("torch._dynamo")
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in REPEATING_WORKSPACES:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = REPEATING_WORKSPACES[0]
    with join_ranks(report) as group:
        cuda = group.device.type == "cuda"
        formats = choose_precisions(precisions, cuda)
        if size == "auto":
            size = "published" if cuda else "reduced"
        if not cuda:
            share_cores()
        report.note(**group.facts())
        report.note(size=size, precisions=",".join(formats))
        for name, precision in product(names, formats):
            shape = model(name, size)
            samples = batch or shape.batch
            report.note(**{f"batch:{name}": samples})
            series = f"{name}/{precision}"
            with room_for(f"{series} with {samples} samples per step"):
                own = train(shape, precision, samples, group, Schedule(**schedule))
            if own.no_loss:
                report.note(**{f"no_loss:{series}": own.no_loss})
            devices = results_by_device(everybody(own, group, among_hosts))
            together = group.ranks if among_hosts else 1
            rated = {group.device.type: slowest(devices.values())} if among_hosts else devices
            for device, trained in rated.items():
                rates = [together * samples / s for s in trained.times.step_s]
                report.add(f"samples_per_s:{series}", device, rates, trained.times.taken)
            question = f"training {series}, {samples} samples, {schedule['loss_steps']} steps"
            for device, trained in devices.items():
                add(report, series, device, trained)
                note_digest(report, question, device, trained)
            if cuda:
                state_ceiling(
                    report, f"samples_per_s:{series}", shape, precision, samples, together
                )


def choose_precisions(text: str, cuda: bool) -> list[str]:
    if text == "auto":
        return ["bf16"] if cuda else ["fp32"]
    names = contract.choose("precisions", text, PRECISIONS)
    lacking = [name for name in names if name not in ON_A_CPU]
    if lacking and not cuda:
        raise contract.NotApplicable(
            f"{' and '.join(lacking)} can be trained on GPUs only, and there is none here"
        )
    return names


def share_cores() -> None:
    """Divide the cores of a machine without GPUs among its ranks."""
    import torch

    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(max(1, cores // int(os.environ["LOCAL_WORLD_SIZE"])))


@contextmanager
def room_for(load: str) -> Iterator[None]:
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).splitlines()[0]
        raise contract.Unmeasured(f"{load} does not fit (try --batch=N): {reason}") from error
    finally:
        gc.collect()  # one model must go, cycles and all, before the next takes its place
        torch.cuda.empty_cache()  # does nothing without a GPU


def add(report: contract.Report, series: str, device: str, trained: Trained) -> None:
    report.add(f"compute_s:{series}", device, trained.times.compute_s, trained.times.taken)
    report.add(f"agreement:{series}", device, contract.agreement(trained.wrong))
    if 0 < trained.loss < inf:  # one that is no number is a wrong answer instead
        report.add(f"loss:{series}", device, [trained.loss])


def note_digest(report: contract.Report, question: str, device: str, trained: Trained) -> None:
    """Note the bits of the weights, by which GPUs of a kind are compared; no processors, whose
    libraries choose kernels by more than they say."""
    if trained.alone:
        report.notes.setdefault("digests", {}).setdefault(device, {})[question] = trained.alone
        for fact, text in trained.witness.items():
            report.notes.setdefault(fact, {})[device] = text


def state_ceiling(
    report: contract.Report, metric: str, shape: Model, precision: str, batch: int, ranks: int
) -> None:
    import torch

    from kit.training.operations import operations

    gpu = ceilings.gpu_of(torch.cuda.get_device_properties("cuda"))
    if gpu and (tflops := gpu.tflops.get(precision)):
        value = ranks * tflops * 1e12 / operations(shape, batch)
        report.ceiling(metric, value, source=gpu.source)


# --- one rank ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Trained:
    times: Times
    loss: float
    wrong: int  # steps whose loss was no number, ranks whose weights are not the others'
    weights: tuple[int, ...] = ()  # their fingerprint
    no_loss: str = ""  # why there is none
    # A digest of a GPU's weights after its steps alone, and what to compare it by: a wrong bit
    # moves them more often than the loss, and hides once the ranks have averaged.
    alone: str = ""
    witness: Mapping[str, str] = field(default_factory=dict)


def train(shape: Model, precision: str, batch: int, group: Group, schedule: Schedule) -> Trained:
    import torch

    from kit.timing import WARM_UP_SAMPLES
    from kit.training.steps import Training, averaged_bytes, draw_data, fingerprint, make_network

    links = group.links if group.ranks > 1 else None
    network = make_network(shape, group.device, links if shape.spread else None)
    training = Training(network, draw_data(shape, batch, 0, group.device), precision)
    loss, no_loss = loss_alone(training, schedule.loss_steps)
    is_witness = group.device.type == "cuda" and not no_loss and not shape.spread
    alone = sha256(repr(fingerprint(network)).encode()).hexdigest()[:16] if is_witness else ""
    torch.backends.cudnn.benchmark = True
    if links:
        training.join(links, draw_data(shape, batch, 1 + group.rank, group.device))
    training.time_steps(WARM_UP_SAMPLES + schedule.warmup)
    times = time_training(training, group, schedule)
    if links:
        group.add_crossing(averaged_bytes(network), len(times.step_s))
    wrong = int(training.not_finite)
    witness = {
        "computed_by": describe_kernels(group.device),
        "uuids": uuid_of(group.device),
        "places": group.place,
    }
    return Trained(
        times=times,
        loss=loss,
        wrong=wrong,
        weights=fingerprint(network),
        no_loss=no_loss,
        alone=alone,
        witness=witness if alone else {},
    )


def loss_alone(training: Training, steps: int) -> tuple[float, str]:
    """Return the loss after some steps that repeat bit for bit; NaN, and the reason, if torch
    cannot."""
    try:
        with repeatable():
            training.time_steps(steps)
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        training.optimizer.zero_grad(set_to_none=True)
        return nan, str(error).partition("\n")[0]
    return float(training.loss), ""


@contextmanager
def repeatable() -> Iterator[None]:
    """Allow only kernels that always add in the same order; others are an error.

    Strictly: if torch may merely warn, its attention goes on adding in any order.
    """
    import torch

    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def time_training(training: Training, group: Group, schedule: Schedule) -> Times:
    """Return the times of every step or, for a long run, the mean of every round, so that a day
    fits a document.

    All ranks stop after the same round.
    """
    times = training.time_steps(schedule.steps)
    if not schedule.seconds:
        return times
    times, begun = times.mean(), perf_counter()
    while group.slowest([perf_counter() - begun])[0] < schedule.seconds:
        times += training.time_steps(schedule.steps).mean()
    return times


# --- all ranks -----------------------------------------------------------------------------


def everybody(own: Trained, group: Group, among_hosts: bool) -> list[tuple[str, Trained]]:
    """Return every rank's device and result."""
    from kit.group import everyones

    host = f"{platform.node()}/" if among_hosts else ""
    results: list[tuple[str, Trained]] = everyones((f"{host}{group.device}", own))
    return results


def results_by_device(results: Iterable[tuple[str, Trained]]) -> dict[str, Trained]:
    """Combine ranks that share a device, as on a CPU. Weights that dissent are an error."""
    from kit.training.steps import dissenters

    devices, ranks = zip(*results, strict=True)
    dissent = dissenters([trained.weights for trained in ranks])
    by_name: dict[str, list[Trained]] = {}
    for device, trained, wrong in zip(devices, ranks, dissent, strict=True):
        checked = replace(trained, wrong=trained.wrong + wrong)
        by_name.setdefault(device, []).append(checked)
    return {device: slowest(ranks) for device, ranks in by_name.items()}


def slowest(ranks: Iterable[Trained]) -> Trained:
    """Combine ranks into one, as slow as the slowest at each step, and as wrong as all together."""
    from kit.training.steps import Times

    all_ranks = list(ranks)
    steps = zip(*(trained.times.step_s for trained in all_ranks), strict=True)
    computes = zip(*(trained.times.compute_s for trained in all_ranks), strict=True)
    taken = zip(*(trained.times.taken for trained in all_ranks), strict=True)
    return replace(
        all_ranks[0],
        times=Times([max(s) for s in steps], [max(s) for s in computes], [max(s) for s in taken]),
        loss=max(trained.loss for trained in all_ranks),
        wrong=sum(trained.wrong for trained in all_ranks),
    )
