"""The training programs: averaged gradients, repeated losses, planted faults and what they show."""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import contract
import kit.gpus.ceilings
import kit.training.course
import kit.training.steps
import pytest
import torch
from kit.training.course import Schedule, Trained, choose_precisions, results_by_device
from kit.training.models import EVERY, model
from kit.training.operations import operations
from kit.training.steps import Times, Training, dissenters, draw_data, fingerprint, make_network
from kit.training.vgg import pool
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.long

BENCHMARKS = Path(contract.__file__).parent
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def losses(name, precision="fp32", steps=4, change=lambda network: None, size="tiny"):
    shape = model(name, size)
    network = make_network(shape, CPU, None)
    change(network)
    training = Training(network, draw_data(shape, shape.batch, 0, CPU), precision)
    with kit.training.course.repeatable():
        return [float((training.step(), training.loss)[1]) for _ in range(steps)]


@cache
def right_losses(name):
    return losses(name)


# --- the loss ------------------------------------------------------------------------------


# the first of each class: its larger sisters repeat the same operations
ONE_OF_EACH_KIND = {model(name, "tiny").code: name for name in reversed(EVERY)}.values()

IN_ANOTHER_PROCESS = """
import json, sys
sys.path[:0] = [{benchmarks!r}, {root!r}]
import torch
from tests.contract.test_training import ONE_OF_EACH_KIND, losses

torch.set_num_threads(1)
print(json.dumps({{name: losses(name) for name in ONE_OF_EACH_KIND}}))
"""


@pytest.fixture(scope="module")
def losses_elsewhere(forked, tmp_path_factory) -> dict[str, list[float]]:
    """Losses in another process; JSON keeps every bit of a number."""
    program = tmp_path_factory.mktemp("elsewhere") / "losses.py"
    root = str(Path(__file__).parents[2])
    program.write_text(IN_ANOTHER_PROCESS.format(benchmarks=str(BENCHMARKS), root=root))
    ran = forked.run([str(program)], None, program.parent)
    assert ran.exit_code == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_loss_is_the_same_in_two_processes_bit_for_bit_and_moves_with_every_step(
    name, losses_elsewhere
):
    found = right_losses(name)
    assert losses_elsewhere[name] == found
    assert len(set(found)) == len(found)


def test_only_operations_that_repeat_make_the_loss():
    """If torch may warn instead, attention on GPUs adds its gradients in any order."""
    with kit.training.course.repeatable():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


# which torch's documentation of use_deterministic_algorithms has in its list of errors on GPUs
UNREPEATABLE = re.compile(
    r"avg_pool3d_backward|_?adaptive_(avg|max)_pool\dd_backward|fractional_max_pool\dd_backward|"
    r"max_unpool\dd|upsample_\w+_backward|reflection_pad\dd_backward|nll_loss2d_\w+|_ctc_loss\w*|"
    r"put_?|histc|bincount|median|grid_sampler_2d_backward|cumsum"
)


class Seen(TorchDispatchMode):
    """Operations with floating point numbers, by name."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            self.names.add(operation.overloadpacket.__name__)
        return result


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_a_model_of_any_size_has_no_operation_that_cannot_repeat_on_a_gpu(name):
    shape = model(name, "tiny")
    training = Training(
        make_network(shape, CPU, None), draw_data(shape, shape.batch, 0, CPU), "fp32"
    )
    with Seen() as seen:
        training.step()
    assert {"addmm", "mm", "bmm", "convolution"} & seen.names
    assert not {name for name in seen.names if UNREPEATABLE.fullmatch(name)}


@pytest.mark.parametrize("edge", [1, 2, 5, 7, 9, 14])
def test_vggs_pooling_is_the_mean_over_torchs_stretches(edge):
    x = torch.randn(2, 3, edge, edge, dtype=torch.float64)
    assert torch.allclose(pool(x), nn.functional.adaptive_avg_pool2d(x, 7))
    assert pool(x.to("meta", torch.bfloat16)).dtype == torch.bfloat16  # wherever pictures lie


def test_a_network_that_torch_cannot_repeat_has_no_loss_with_the_reason_and_all_else():
    layer = nn.Linear(3, 4)
    training = Training(layer, (torch.randn(5, 3), torch.randint(4, (5,))), "fp32")
    words = "max_unpool2d does not have a deterministic implementation, but you set …"

    def unrepeatable(steps):
        raise RuntimeError(f"{words}\nand a trace")

    training.time_steps = unrepeatable
    loss, reason = kit.training.course.loss_alone(training, 3)
    assert (math.isnan(loss), reason) == (True, words)
    del training.time_steps
    assert len(training.time_steps(2).step_s) == 2


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *product(["vgg11", "gpt2_small", "bert_base", "llama", "moe"], ["fp16", "bf16"]),
        ("resnet50", "bf16"),  # a processor takes seconds for it in fp16
    ],
)
def test_half_precision_comes_to_nearly_the_same_loss(name, precision):
    size = "reduced" if name == "resnet50" else "tiny"  # a batch norm of two numbers is none
    half, full = losses(name, precision, size=size), losses(name, size=size)
    assert half == pytest.approx(full, rel=0.02)
    assert half != full


@pytest.mark.parametrize("name", ["lstm", "gpt2_small"])
def test_scaling_the_loss_changes_no_update(name, monkeypatch):
    monkeypatch.setattr(
        kit.training.steps, "ADAM_EPSILON", 1.0
    )  # so large that steps go with the gradient
    monkeypatch.setattr(kit.training.steps, "LEARNING_RATE", 1.0)
    plain = losses(name)
    monkeypatch.setitem(kit.training.steps.LOSS_SCALE, "fp32", 1024.0)
    assert losses(name) == pytest.approx(plain, rel=1e-6)


def a_wrong_product(network):
    """Double one of sixteen channels in a layer halfway."""

    def spoil(module, inputs, output):
        values, *rest = output if isinstance(output, tuple) else (output,)
        axis = 1 if isinstance(module, nn.Conv2d) else -1
        factors = torch.ones(values.shape[axis])
        factors[::16] = 2
        wrong = values * (factors[:, None, None] if axis == 1 else factors)
        return (wrong, *rest) if rest else wrong

    kinds = (nn.Linear, nn.Conv2d, nn.LSTM)
    layers = [module for module in network.modules() if isinstance(module, kinds)]
    layers[(len(layers) - 1) // 2].register_forward_hook(spoil)


@pytest.mark.parametrize("name", EVERY)
def test_a_wrong_product_shows_in_the_loss(name):
    wrong = losses(name, change=a_wrong_product)
    assert wrong[-1] != pytest.approx(right_losses(name)[-1], rel=1e-6)


def test_adamw_moves_every_weight_as_its_paper_says():
    """The first step: both corrected means are of one gradient, so g / (|g| + eps); decay 0.01."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 4, bias=False)
    data = torch.randn(5, 3), torch.randint(4, (5,))
    begun = layer.weight.detach().clone().requires_grad_()
    nn.functional.cross_entropy(data[0] @ begun.T, data[1]).backward()
    Training(layer, data, "fp32").step()
    move = begun.grad / (begun.grad.abs() + 1e-8) + 0.01 * begun.detach()
    assert torch.allclose(layer.weight.detach(), begun.detach() - 1e-4 * move, atol=1e-8)


def test_a_loss_that_is_no_number_counts_as_wrong_and_is_not_reported():
    layer = nn.Linear(3, 4)
    data = torch.full((5, 3), float("inf")), torch.zeros(5, dtype=torch.int64)
    training = Training(layer, data, "fp32")
    training.time_steps(3)
    assert int(training.not_finite) == 3
    report = contract.Report(frozenset(metric.name for metric in kit.training.course.METRICS))
    times = Times([1.0], [0.5])
    kit.training.course.add(
        report, "x/fp32", "cpu", Trained(times=times, loss=float("nan"), wrong=3)
    )
    assert [(s["metric"], s["samples"]) for s in report.series] == [
        ("compute_s:x/fp32", [0.5]),
        ("agreement:x/fp32", [0.25]),
    ]


# --- who is wrong, who is slow -------------------------------------------------------------


def test_weights_that_differ_from_those_of_most_ranks_are_dissent():
    assert dissenters([(1,), (1,), (1,)]) == [False] * 3
    assert dissenters([(1,), (2,), (1,)]) == [False, True, False]
    assert dissenters([(1,), (2,)]) == [True, True]  # which of two is right is unknown
    assert dissenters([(1,)]) == [False]


def test_a_fingerprint_changes_with_a_single_flipped_bit():
    network = make_network(model("gpt2_small", "tiny"), CPU, None)
    before = fingerprint(network)
    assert fingerprint(network) == before
    bits = next(network.parameters()).detach().view(torch.int32).view(-1)
    bits[3] ^= 1
    assert fingerprint(network) != before


def trained(step_s, compute_s, loss=2.0, wrong=0, weights=(7,)):
    times = Times(step_s, compute_s)
    return Trained(times=times, loss=loss, wrong=wrong, weights=weights)


def test_weights_of_gpus_that_trained_alone_are_noted_to_be_compared_bit_for_bit():
    results = [
        (f"cuda:{gpu}", replace(trained([1.0], [0.5]), alone=alone, witness={"computed_by": "K"}))
        for gpu, alone in enumerate(("a1", "b2", "a1"))
    ]
    report = contract.Report(frozenset())
    for device, found in kit.training.course.results_by_device(results).items():
        kit.training.course.note_digest(report, "training x/bf16", device, found)
    answers = {device: of["training x/bf16"] for device, of in report.notes["digests"].items()}
    assert answers == {"cuda:0": "a1", "cuda:1": "b2", "cuda:2": "a1"}
    assert set(report.notes["computed_by"].values()) == {"K"}


def test_ranks_of_one_device_count_as_its_slowest_and_others_for_themselves():
    results = [
        ("cpu", trained([1.0, 4.0], [0.5, 3.0], wrong=1)),
        ("cpu", trained([2.0, 3.0], [1.5, 2.0], loss=2.5)),
        ("cuda:0", trained([9.0, 9.0], [1.0, 1.0], weights=(8,))),
    ]
    found = results_by_device(results)
    assert found["cpu"].times == Times([2.0, 4.0], [1.5, 3.0])
    assert (found["cpu"].loss, found["cpu"].wrong) == (2.5, 1)
    assert found["cuda:0"].times == results[2][1].times
    assert found["cuda:0"].wrong == 1  # its weights are not those of most


# --- parameters, ceilings, memory ----------------------------------------------------------


def test_precisions_are_chosen_refused_or_not_for_this_machine():
    assert choose_precisions("auto", cuda=True) == ["bf16"]
    assert choose_precisions("auto", cuda=False) == ["fp32"]
    assert choose_precisions("fp32,tf32", cuda=True) == ["fp32", "tf32"]
    with pytest.raises(contract.NotApplicable, match="tf32 and fp16 can be trained on GPUs only"):
        choose_precisions("bf16,tf32,fp16", cuda=False)
    for text in ("", "fp8"):
        with pytest.raises(contract.BadParameter, match="use fp32, tf32, fp16, bf16"):
            choose_precisions(text, cuda=True)


def test_fp32_on_a_gpu_is_not_silently_tf32():
    kit.training.steps.choose_products("tf32")
    assert torch.get_float32_matmul_precision() == "high"
    assert torch.backends.cudnn.allow_tf32
    kit.training.steps.choose_products("fp32")
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32


def test_the_ceiling_is_the_gpus_rate_over_the_operations_of_a_sample(monkeypatch):
    report, shape = contract.Report(frozenset()), model("gpt2_small", "tiny")
    card = types.SimpleNamespace(name="NVIDIA H200", multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    kit.training.course.state_ceiling(report, "samples_per_s:x", shape, "bf16", batch=2, ranks=3)
    stated = report.notes["ceilings"]["samples_per_s:x"]
    assert stated["value"] == pytest.approx(3 * 989.4e12 / operations(shape, 2))
    assert stated["source"] == kit.gpus.ceilings.gpu("NVIDIA H200").source
    card.name = "NVIDIA X1"
    kit.training.course.state_ceiling(report, "samples_per_s:y", shape, "bf16", batch=2, ranks=3)
    assert set(report.notes["ceilings"]) == {"samples_per_s:x"}


def test_a_model_that_does_not_fit_is_reported_in_one_line():
    with (
        pytest.raises(contract.Unmeasured, match=r"^vgg19/fp32 does not fit \(try --batch=N\): no"),
        kit.training.course.room_for("vgg19/fp32"),
    ):
        raise torch.OutOfMemoryError("no memory\nand a long story")


class FakeGroup:
    """A group in which every time was this long on the slowest rank."""

    def __init__(self, *elapsed_s: float) -> None:
        self.elapsed_s = list(elapsed_s)

    def slowest(self, numbers):
        return [self.elapsed_s.pop(0)]


def test_training_goes_on_in_rounds_until_the_time_of_the_slowest_rank_is_over():
    shape = model("lstm", "tiny")
    training = Training(make_network(shape, CPU, None), draw_data(shape, 2, 0, CPU), "fp32")
    rounds = [Times([1.0, 2.0], [0.5, 1.0]), Times([3.0, 4.0], [2.0, 3.0]), Times([5.0], [4.0])]
    training.time_steps = lambda steps: rounds.pop(0)
    schedule = Schedule(steps=2, warmup=0, loss_steps=1, seconds=10)
    times = kit.training.course.time_training(training, FakeGroup(4.0, 9.9, 10.0), schedule)
    assert times == Times([1.5, 3.5, 5.0], [0.75, 2.5, 4.0])


def test_without_a_time_every_step_is_kept():
    shape = model("lstm", "tiny")
    training = Training(make_network(shape, CPU, None), draw_data(shape, 2, 0, CPU), "fp32")
    schedule = Schedule(steps=5, warmup=0, loss_steps=1, seconds=0)
    times = kit.training.course.time_training(training, FakeGroup(), schedule)
    assert len(times.step_s) == len(times.compute_s) == 5
    assert all(0 < own < all_in for own, all_in in zip(times.compute_s, times.step_s, strict=True))


# --- two real ranks over gloo --------------------------------------------------------------

# Rank 0 prints, per model, the mean of both ranks' losses after each step; then the same steps done
# alone with both ranks' data in one batch. The mixture gets room for every token: what is dropped
# depends on the batch. AdamW's epsilon is so large that steps go with the gradient: else a sum in
# place of a mean would not be seen.
AVERAGED = """
import json, sys
sys.path.insert(0, {benchmarks!r})
from dataclasses import replace
import torch
import torch.distributed as dist
from kit.group import everyones, join_ranks
from kit.training.models import model
import kit.training.steps
from kit.training.steps import Training, draw_data, make_network

kit.training.steps.ADAM_EPSILON = kit.training.steps.LEARNING_RATE = 1.0
torch.set_num_threads(1)
found = {{}}
with join_ranks(None) as group:
    for name in {names!r}:
        shape = model(name.split()[0], "tiny")
        if shape.spread:
            experts = {experts!r}[name]
            shape = replace(shape, shape={{**shape.shape, "slack": 4.0, "experts": experts}})
        data = [draw_data(shape, 4, 1 + rank, group.device) for rank in range(2)]

        def losses(training):
            return [float((training.step(), training.loss)[1]) for _ in range(5)]

        network = make_network(shape, group.device, group.links if shape.spread else None)
        together = Training(network, data[group.rank], "fp32")
        together.join(group.links, data[group.rank])
        each = everyones(losses(together))
        both = tuple(torch.cat(parts) for parts in zip(*data))
        alone = losses(Training(make_network(shape, group.device, None), both, "fp32"))
        found[name] = [[sum(pair) / 2 for pair in zip(*each)], alone]
    if group.rank == 0:
        print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def launched(forked) -> Callable[..., Any]:
    """The output of a program of two ranks, read as JSON."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

    def launched(program: Path, *arguments: str) -> Any:
        ran = forked.run([*torchrun, str(program), *arguments], None, program.parent)
        assert ran.exit_code == 0, ran.stderr
        return json.loads(ran.stdout)

    return launched


def test_two_ranks_learn_the_same_as_one_rank_with_both_their_data(tmp_path, launched):
    program = tmp_path / "averaged.py"
    experts = {"moe with 4": 4, "moe with 3": 3}  # 3: the ranks get one and two of them
    names = ("vgg11", "lstm", "bert_base", "gpt2_small", "llama", *experts)
    program.write_text(AVERAGED.format(benchmarks=str(BENCHMARKS), names=names, experts=experts))
    found = launched(program)
    assert set(found) == set(names)
    for together, alone in found.values():
        assert together == pytest.approx(alone, rel=1e-5)
        assert alone[-1] < 0.999 * alone[0]


# What is left of a training after it was measured: a network would take the next one's memory, and
# a group's threads at the end of a process now and then end it with SIGABRT.
LEFT = """
import os, sys
sys.path.insert(0, {benchmarks!r})
import contract, train_lstm
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

def measure(report, **asked):
    train_lstm.measure(report, **asked)
    import gc
    from torch.nn.parallel import DistributedDataParallel
    threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    report.note(gloo=sum("gloo" in name for name in threads))
    report.note(ddp=sum(type(thing) is DistributedDataParallel for thing in gc.get_objects()))

contract.run(train_lstm.BENCHMARK, measure, lambda: 2)
"""


def test_nothing_of_a_training_is_left_once_it_was_measured(tmp_path, launched):
    program = tmp_path / "train_lstm.py"
    program.write_text(LEFT.format(benchmarks=str(BENCHMARKS)))
    facts = launched(program, "--smoke")["environment"]
    assert (facts["gloo"], facts["ddp"]) == (0, 0)


# Each rank passes for a host of its own. Rank 1 sleeps in every forward, one of its products is
# wrong, and what it receives as the sum of the gradients is spoilt.
PLANTED = """
import os, platform, sys, time
sys.path.insert(0, {benchmarks!r})
import kit.training.steps, contract, torch, train_distributed

rank = int(os.environ["RANK"])
platform.node = lambda: f"n{{rank}}"
make = kit.training.steps.make_network
def spoilt(model, device, group):
    network = make(model, device, group)
    def slow(module, inputs):
        time.sleep(0.3)
    def wrong(module, inputs, output):
        output.view(-1)[3] += 1
    if rank == 1:
        network.register_forward_pre_hook(slow)
        network.blocks[0].register_forward_hook(wrong)
    return network
kit.training.steps.make_network = spoilt
def average(averaging, bucket):
    if bucket.is_last():
        averaging.begun = kit.training.steps.mark(averaging.device)
    work = torch.distributed.all_reduce(
        bucket.buffer(), group=averaging.group, async_op=True
    )
    return work.get_future().then(lambda done: done.value()[0] + 1e-3 * rank)
kit.training.steps.average = average
contract.run(train_distributed.BENCHMARK, train_distributed.measure, train_distributed.processes)
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory, launched):
    program = tmp_path_factory.mktemp("planted") / "train_distributed.py"
    program.write_text(PLANTED.format(benchmarks=str(BENCHMARKS)))
    document = launched(program, "--smoke", "--models=gpt2_small")
    return {(s["metric"].partition(":")[0], s["device"]): s["samples"] for s in document["series"]}


def test_a_slow_rank_delays_all_and_is_named_by_its_own_time(planted):
    assert min(planted["compute_s", "n1/cpu"]) > 0.3
    assert min(planted["compute_s", "n0/cpu"]) < 0.15  # on a busy machine other steps take longer
    batch, ranks = model("gpt2_small", "tiny").batch, 2
    assert max(planted["samples_per_s", "cpu"]) < ranks * batch / 0.3


def test_the_rank_that_computes_otherwise_is_named_by_its_loss(planted):
    (sound,), (wrong,) = planted["loss", "n0/cpu"], planted["loss", "n1/cpu"]
    truth = losses("gpt2_small", steps=2)[-1]
    assert sound == pytest.approx(truth, rel=1e-6)
    assert wrong != pytest.approx(truth, rel=1e-6)


def test_ranks_that_end_with_different_weights_disagree(planted):
    assert planted["agreement", "n0/cpu"] == planted["agreement", "n1/cpu"] == [0.5]


def test_a_cnn_and_an_lstm_are_trained_across_nodes(benchmark_file, run):
    """Two ranks over gloo, as the suite multi-node asks for them."""
    words = ("--models=resnet50,lstm", "--size=tiny", "--steps=2", "--loss_steps=1")
    ran = run(benchmark_file("train_distributed"), *words)
    assert ran.exit_code == 0, ran.stderr
    for name in ("resnet50", "lstm"):
        assert len(ran.samples(f"samples_per_s:{name}/fp32")) == 2
        assert ran.samples(f"agreement:{name}/fp32") == [1.0]


def test_a_format_of_gpus_is_not_applicable_without_one(benchmark_file, run):
    ran = run(benchmark_file("train_lstm"), "--smoke", "--precisions=tf32")
    assert ran.exit_code == 3
    assert ran.document["not_applicable"].startswith("tf32 can be trained on GPUs only")
    assert ran.document["series"] == []
