"""The compute programs: formulas against counts made by hand, answers against planted faults."""

from __future__ import annotations

import itertools
import random
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import contract
import convolution
import gemm
import gpu_burn
import kernel_launch
import kit.arithmetic
import kit.gpus.ceilings
import kit.possession
import kit.swing
import kit.timing
import numpy as np
import pytest
import torch
from kit.arithmetic import FORMATS, Product, lacks, state_ceiling
from kit.possession import Seconds


def test_the_ceilings_are_those_of_the_data_sheets():
    h200 = kit.gpus.ceilings.gpu("NVIDIA H200")
    assert h200.tflops["bf16"] == 989.4
    assert h200.tflops["fp8"] == 1978.9  # the data sheet prints 3,958 with sparsity
    assert h200.hbm_gbps == 4800
    assert kit.gpus.ceilings.gpu("Tesla V100-SXM2-32GB").tflops["fp16"] == 125
    assert kit.gpus.ceilings.gpu("A100-SXM4-80GB") == kit.gpus.ceilings.gpu("NVIDIA A100-SXM4-80GB")


@pytest.mark.parametrize("name", ["NVIDIA H300", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""])
def test_a_gpu_that_is_not_in_the_table_has_no_ceiling(name):
    assert kit.gpus.ceilings.gpu(name) is None


@pytest.mark.parametrize(
    ("first_s", "last_s", "calls"),
    [(1.5, 0.5, 2 + 4), (0.029, 0.011, 2 + 2 + 3 + 3 * (3 + 4))],
)
def test_warm_up_calls_are_no_samples_and_a_long_call_is_not_repeated(
    monkeypatch, first_s, last_s, calls
):
    """The first two take longer. Short ones are repeated until a sample lasts 0.03 s."""
    clock, began = [0.0], []
    monkeypatch.setattr(kit.possession, "perf_counter", lambda: clock[0])

    def call():
        began.append(clock[0])
        clock[0] += first_s if len(began) < 3 else last_s

    assert kit.timing.seconds_per_call(call, torch.device("cpu"), 4) == pytest.approx([last_s] * 4)
    assert len(began) == calls


# What a GPU can do follows from its cores: multiprocessors x FMAs per clock of one x 2 x clock. The
# matrix units of the later ones are clocked apart. Memory: pins x Gbit/s of each. As the vendor's
# white papers and product briefs have them.
CORES = """
                | SMs | MHz of matrix | of others | fp32 FMAs | fp16 FMAs | pins | Gbit/s
V100-SXM2-32GB  |  80 |          1530 |      1530 |        64 |       512 | 4096 |  1.752
V100-PCIE-32GB  |  80 |          1380 |      1380 |        64 |       512 | 4096 |  1.752
V100S-PCIE-32GB |  80 |          1597 |      1597 |        64 |       512 | 4096 |  2.214
T4              |  40 |          1590 |      1590 |        64 |       512 |  256 | 10
A100-SXM4-40GB  | 108 |          1410 |      1410 |        64 |      1024 | 5120 |  2.43
A100-SXM4-80GB  | 108 |          1410 |      1410 |        64 |      1024 | 5120 |  3.186
A100 80GB PCIe  | 108 |          1410 |      1410 |        64 |      1024 | 5120 |  3.024
A800-SXM4-80GB  | 108 |          1410 |      1410 |        64 |      1024 | 5120 |  3.186
A800 80GB PCIe  | 108 |          1410 |      1410 |        64 |      1024 | 5120 |  3.024
A30             |  56 |          1440 |      1440 |        64 |      1024 | 3072 |  2.43
A40             |  84 |          1740 |      1740 |       128 |       512 |  384 | 14.5
A10             |  72 |          1695 |      1695 |       128 |       512 |  384 | 12.5
L4              |  58 |          2040 |      2040 |       128 |       512 |  192 | 12.5
L40             | 142 |          2490 |      2490 |       128 |       256 |  384 | 18
L40S            | 142 |          2520 |      2520 |       128 |       512 |  384 | 18
H100 80GB HBM3  | 132 |          1830 |      1980 |       128 |      2048 | 5120 |  5.24
H100 PCIe       | 114 |          1620 |      1755 |       128 |      2048 | 5120 |  3.186
GH200 480GB     | 132 |          1830 |      1980 |       128 |      2048 | 6144 |  5.24
H200            | 132 |          1830 |      1980 |       128 |      2048 | 6144 |  6.25
B200            | 148 |          1860 |      1980 |       128 |      4096 | 8192 |  7.5
GB200           | 148 |          2062 |      2112 |       128 |      4096 | 8192 |  7.8
B300 SXM6 AC    | 148 |          1860 |      1980 |       128 |      4096 | 8192 |  7.5
GB300           | 148 |          2062 |      2112 |       128 |      4096 | 8192 |  7.8
"""
KNOWN = [[cell.strip() for cell in row.split("|")] for row in CORES.strip().splitlines()[1:]]


@pytest.mark.parametrize(("name", "numbers"), [(name, numbers) for name, *numbers in KNOWN])
def test_a_rate_of_nvidia_is_that_of_its_cores_at_the_boost_clock(name, numbers):
    sms, matrix_mhz, mhz, fp32_fmas, fp16_fmas, pins, gbit_s = map(float, numbers)
    gpu = kit.gpus.ceilings.gpu(name)
    rates = gpu.tflops
    assert rates["fp16"] == pytest.approx(sms * fp16_fmas * 2 * matrix_mhz / 1e6, rel=0.015)
    assert rates["fp32"] == pytest.approx(sms * fp32_fmas * 2 * mhz / 1e6, rel=0.015)
    assert gpu.hbm_gbps == pytest.approx(pins * gbit_s / 8, rel=0.01)
    for of_that_rate, times in {"bf16": 1, "fp8": 2, "int8": 2, "tf32": 0.5, "nvfp4": 4}.items():
        if of_that_rate in rates:
            assert rates[of_that_rate] == pytest.approx(times * rates["fp16"], rel=0.025)
    if "fp64" in rates:
        share = rates["fp32"] / rates["fp64"]
        assert share == pytest.approx(round(share), rel=0.02)
        assert round(share) in (1, 2)


# Of AMD's, what one device of torch's is: compute units x operations per clock of the matrix units
# in one, by AMD's papers on each architecture, x clock; and pins x Gbit/s of its memory, half of a
# card's where two devices share one.
UNITS = """
       | CUs |  MHz | fp64 | fp32 | fp16 | bf16 | 8 bits | pins | Gbit/s
MI100  | 120 | 1502 |   64 |  256 | 1024 |  512 |   1024 | 4096 | 2.4
MI210  | 104 | 1700 |  256 |  256 | 1024 | 1024 |   1024 | 4096 | 3.2
MI250  | 104 | 1700 |  256 |  256 | 1024 | 1024 |   1024 | 4096 | 3.2
MI250X | 110 | 1700 |  256 |  256 | 1024 | 1024 |   1024 | 4096 | 3.2
MI300A | 228 | 2100 |  256 |  256 | 2048 | 2048 |   4096 | 8192 | 5.2
MI300X | 304 | 2100 |  256 |  256 | 2048 | 2048 |   4096 | 8192 | 5.2
MI325X | 304 | 2100 |  256 |  256 | 2048 | 2048 |   4096 | 8192 | 6
MI350X | 256 | 2200 |  128 |  256 | 4096 | 4096 |   8192 | 8192 | 8
MI355X | 256 | 2400 |  128 |  256 | 4096 | 4096 |   8192 | 8192 | 8
"""
AMDS = [[cell.strip() for cell in row.split("|")] for row in UNITS.strip().splitlines()[1:]]


@pytest.mark.parametrize(("name", "numbers"), [(name, numbers) for name, *numbers in AMDS])
def test_a_rate_of_amd_is_that_of_its_compute_units_at_the_peak_clock(name, numbers):
    units, mhz, *per_clock, pins, gbit_s = map(float, numbers)
    gpu = kit.gpus.ceilings.gpu(f"AMD Instinct {name}", int(units))
    for format_name, operations in zip(("fp64", "fp32", "fp16", "bf16"), per_clock, strict=False):
        rate = gpu.tflops[format_name]
        assert rate == pytest.approx(units * mhz * operations / 1e6, rel=0.005)
    for format_name in {"fp8", "int8"} & gpu.tflops.keys():
        rate = gpu.tflops[format_name]
        assert rate == pytest.approx(units * mhz * per_clock[-1] / 1e6, rel=0.002)
    assert gpu.hbm_gbps == pytest.approx(pins * gbit_s / 8, rel=0.025)


def test_a_slice_of_amd_has_no_ceiling_and_the_number_of_units_separates_two_models():
    assert kit.gpus.ceilings.gpu("AMD Instinct MI300X OAM", 304).tflops["bf16"] == 1307.4
    assert kit.gpus.ceilings.gpu("AMD Instinct MI300X OAM", 38) is None  # an eighth of one (CPX)
    assert kit.gpus.ceilings.gpu("AMD Instinct MI250X/MI250", 104) == kit.gpus.ceilings.gpu(
        "MI250", 104
    )
    assert kit.gpus.ceilings.gpu("AMD Instinct MI250X/MI250", 110) == kit.gpus.ceilings.gpu(
        "MI250X", 110
    )
    assert kit.gpus.ceilings.gpu("AMD Radeon Graphics", 304) is None


# --- gemm ----------------------------------------------------------------------------------

CPU = torch.device("cpu")
KERNEL = {"fp64": "mm", "fp32": "mm", "bf16": "mm", "fp8": "_scaled_mm", "int8": "_int_mm"}


@pytest.mark.parametrize("name", KERNEL)
def test_a_product_is_the_one_that_numpy_computes(name, monkeypatch):
    """The factors as the kernel gets them, and what it wrote."""
    seen = {}
    sound = getattr(torch, KERNEL[name])

    def listening(left, right, *scales, out, **rest):
        seen.update(left=left.double().numpy(), right=right.double().numpy(), out=out)
        return sound(left, right, *scales, out=out, **rest)

    monkeypatch.setattr(torch, KERNEL[name], listening)
    Product(name, 64, 128, 256, CPU).multiply()
    truth = seen["left"] @ seen["right"]
    rounding = {"fp64": 1e-13, "fp32": 1e-5, "bf16": 2**-7, "fp8": 2**-7, "int8": 0}[name]
    error = np.abs(seen["out"].double().numpy() - truth).max() / np.abs(truth).max()
    assert error <= rounding
    assert np.unique(seen["left"]).size > 100  # no easy numbers


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_a_product_with_scales_in_blocks_is_the_one_that_its_documented_layout_gives(
    name, monkeypatch
):
    monkeypatch.syspath_prepend("tests/gpus")
    import fake_blocks

    def documented(*factors, out, **_):
        return fake_blocks.multiply(*factors, out=out)

    monkeypatch.setattr(torch, "_scaled_mm", documented)
    product = Product(name, 256, 128, 512, CPU)
    product.multiply()
    assert product.wrong_elements() == 0
    assert product.out.double().std() > 5  # and no zeros
    product.out[61, 5] += 3 * product.tolerance
    assert product.wrong_elements() == 1
    for factor in product.factors:
        factor.scales.view(torch.uint8).copy_(factor.scales.view(torch.uint8).roll(1, 0))
    assert product.wrong_elements() > 100  # other blocks have other scales


@pytest.mark.parametrize("name", KERNEL)
def test_one_wrong_element_of_a_product_is_seen_in_every_format(name, monkeypatch):
    sound = getattr(torch, KERNEL[name])

    def spoilt(left, right, *scales, out, **rest):
        sound(left, right, *scales, out=out, **rest)
        out[61, 5] += 1 if name == "int8" else left.shape[1] ** 0.5  # a typical element's size

    monkeypatch.setattr(torch, KERNEL[name], spoilt)
    product = Product(name, 64, 128, 256, CPU)
    product.multiply()
    assert product.wrong_elements() == 1


def test_the_models_products_add_up_to_their_published_parameter_counts():
    """Of each layer, with its square output projection, and of the tables of tokens and places."""

    def millions(model: str, layers: int, width: int, rows: int) -> float:
        weights = sum(n * k for n, k in gemm.MODELS[model].values()) + width**2
        return (layers * weights + rows * width) / 1e6

    assert millions("bert_large", 24, 1024, 30522 + 512) == pytest.approx(335, rel=0.01)
    assert millions("gpt2_large", 36, 1280, 50257 + 1024) == pytest.approx(774, rel=0.01)
    assert millions("llama_7b", 32, 4096, 2 * 32000) == pytest.approx(6738, rel=0.01)


def test_shapes_are_named_in_the_metric_and_the_square_one_is_not():
    asked = gemm.products("square,llama_7b.down,32x64x48", square=512, tokens=16)
    assert asked == {
        "": (512, 512, 512),
        "llama_7b.down": (16, 4096, 11008),
        "32x64x48": (32, 64, 48),
    }
    assert len(gemm.products("bert_large,gpt2_large", 1, 1)) == 6
    assert gemm.products("attention,8x4x5x6", 1, 4096) == {
        "attention.scores": (128, 512, 512, 64),  # 16 heads of 8 sequences
        "attention.values": (128, 512, 64, 512),
        "8x4x5x6": (8, 4, 5, 6),
    }
    for nonsense in ("", "circle", "4x4", "4x4x0", "4x4xk"):
        with pytest.raises(contract.BadParameter):
            gemm.products(nonsense, 1, 1)


def test_a_format_that_the_libraries_refuse_is_left_out_and_a_failing_gpu_is_not(
    monkeypatch,
):
    """As cuBLAS answers for units that it has no kernel for, and CUDA for bad memory."""
    answers = {
        "fp8": "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`",
        "fp64": "CUDA error: uncorrectable ECC error encountered",
    }

    def fake(name, *sizes):
        def multiply():
            if name in answers:
                raise RuntimeError(answers[name])

        return types.SimpleNamespace(multiply=multiply)

    monkeypatch.setattr(kit.arithmetic, "Product", fake)
    monkeypatch.setattr(kit.arithmetic, "lacks", lambda *_: "")
    gpu, report = torch.device("cuda", 7), contract.Report(frozenset())
    kit.arithmetic.try_product.cache_clear()
    assert kit.arithmetic.choose(report, "bf16,fp8", "", FORMATS, gpu) == ["bf16"]
    assert "CUBLAS_STATUS_NOT_SUPPORTED" in report.notes["left_out"]
    with pytest.raises(RuntimeError, match="uncorrectable"):
        kit.arithmetic.choose(report, "fp64", "", FORMATS, gpu)


def test_a_format_that_the_machine_lacks_is_left_out_and_alone_not_applicable(near, benchmark_file):
    both = near(benchmark_file("gemm"), "--smoke", "--dtypes=tf32,fp32")
    assert {s["metric"] for s in both.document["series"]} == {"tflops:fp32", "agreement:fp32"}
    assert "tf32 is a format of GPUs" in both.document["environment"]["left_out"]
    alone = near(benchmark_file("gemm"), "--smoke", "--dtypes=tf32")
    assert alone.exit_code == 3
    assert "tf32 is a format of GPUs" in alone.document["not_applicable"]


@pytest.mark.parametrize(
    ("capability", "lacking"),
    [
        ((7, 0), {"tf32", "fp8", "int8", "mxfp8", "nvfp4"}),
        ((8, 0), {"fp8", "mxfp8", "nvfp4"}),
        ((8, 9), {"mxfp8", "nvfp4"}),
        ((9, 0), {"mxfp8", "nvfp4"}),
        ((10, 0), set()),
    ],
)
def test_formats_follow_the_generation_of_the_gpu(capability, lacking, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA Some")
    cuda = torch.device("cuda", 0)
    assert {name for name in FORMATS if lacks(name, cuda)} == lacking


def test_the_ceiling_of_a_known_gpu_is_reported_beside_its_metric(monkeypatch):
    h200 = types.SimpleNamespace(name="NVIDIA H200", multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: h200)
    report = contract.Report(frozenset())
    for name in ("bf16", "fp8", "fp4"):
        state_ceiling(report, f"tflops:{name}", name, torch.device("cuda", 0))
    state_ceiling(report, "tflops:fp32", "fp32", CPU)
    stated = {metric: stated["value"] for metric, stated in report.notes["ceilings"].items()}
    assert stated == {"tflops:bf16": 989.4, "tflops:fp8": 1978.9}


def test_8_bit_products_need_multiples_of_16(near, benchmark_file):
    ran = near(benchmark_file("gemm"), "--dtypes=int8", "--size=100")
    assert ran.exit_code == 2
    assert "multiples of 16" in ran.stderr
    ran = near(benchmark_file("gemm"), "--dtypes=int8,fp32", "--size=100", "--samples=1")
    assert ran.document["environment"]["product:int8"] == "left out: int8 needs multiples of 16"
    assert len(ran.samples("tflops:fp32")) == 1


# --- kernel_launch -------------------------------------------------------------------------


def launched(launches: int, samples: int) -> dict[str, list[float]]:
    report = contract.Report(frozenset({"wall_us", "agreement"}))
    kernel_launch.launch_on(report, CPU, launches, samples)
    return {series["metric"]: series["samples"] for series in report.series}


def test_a_launch_that_takes_long_shows_in_its_wall_time(monkeypatch):
    sound = torch.Tensor.add_

    def slow(tensor, number):
        time.sleep(500e-6)
        return sound(tensor, number)

    monkeypatch.setattr(torch.Tensor, "add_", slow)
    measured = launched(launches=5, samples=3)
    assert len(measured["wall_us"]) == 3
    assert min(measured["wall_us"]) >= 500
    assert measured["agreement"] == [1.0]


def test_a_launch_that_gets_lost_is_a_wrong_answer(monkeypatch):
    sound, calls = torch.Tensor.add_, itertools.count()
    monkeypatch.setattr(torch.Tensor, "add_", lambda t, n: sound(t, n if next(calls) != 17 else 0))
    assert launched(launches=10, samples=2)["agreement"] == [0.5]


def test_the_percentiles_of_single_launches_show_those_that_are_late(monkeypatch):
    """Of each ten launches the last is late, by a clock that only they move."""
    clock, launched = [0.0], [0]

    def launch() -> None:
        launched[0] += 1
        clock[0] += 1.0 if launched[0] % 10 == 0 else 0.25

    monkeypatch.setattr(kernel_launch, "perf_counter", lambda: clock[0])
    percentiles = kernel_launch.single_launches(launch, samples=3, launches=20)
    assert {percent: [*of] for percent, of in percentiles.items()} == {
        50: [0.25] * 3,
        99: [1.0] * 3,
    }
    assert launched[0] == (3 + kit.timing.WARM_UP_SAMPLES) * 20


# --- convolution ---------------------------------------------------------------------------

LAYERS = [
    convolution.Layer(2, 3, kernel=3, image=5),
    convolution.Layer(3, 2, kernel=3, image=6, stride=2),
    convolution.Layer(2, 4, kernel=1, image=5, stride=2),
]
PASSES = ("forward", "data_gradient", "weight_gradient")


def by_definition(layer, data, weights, gradient):
    """The three passes tap by tap, and the operations that one of them takes."""
    pad = layer.padding
    padded = np.pad(data, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    out, data_gradient = np.zeros_like(gradient), np.zeros_like(padded)
    weight_gradient, operations = np.zeros_like(weights), 0
    for image, filter_, y, x in np.ndindex(gradient.shape):
        for channel, v, u in np.ndindex(weights.shape[1:]):
            place = image, channel, y * layer.stride + v, x * layer.stride + u
            tap, there = (filter_, channel, v, u), (image, filter_, y, x)
            out[there] += padded[place] * weights[tap]
            data_gradient[place] += gradient[there] * weights[tap]
            weight_gradient[tap] += gradient[there] * padded[place]
            operations += 2  # one multiplication, one addition
    within = slice(pad, pad + layer.image)
    return (out, data_gradient[:, :, within, within], weight_gradient), operations


@pytest.mark.parametrize("layer", LAYERS)
def test_every_pass_is_the_one_of_the_definition_and_takes_that_many_operations(layer):
    measured = convolution.Convolution(layer, 2, "fp32", CPU)
    tensors = (measured.data, measured.weights, measured.gradient)
    truth, operations = by_definition(layer, *(tensor.double().numpy() for tensor in tensors))
    assert convolution.flop(layer, batch=2) == operations
    for right, (name, one_pass) in zip(truth, measured.passes().items(), strict=True):
        np.testing.assert_allclose(one_pass.call().numpy(), right, rtol=1e-4, atol=1e-4)
        part = one_pass.part(torch.from_numpy(right)).numpy()
        np.testing.assert_allclose(one_pass.truth().numpy(), part, rtol=1e-12, atol=1e-12)
        assert one_pass.wrong() == 0, name


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_one_wrong_element_of_each_pass_is_seen(name, monkeypatch):
    forward, backward = torch.conv2d, torch.ops.aten.convolution_backward

    def spoil(tensor):
        if tensor is not None and tensor.dtype != torch.float64:  # fp64 is the reference
            tensor[-1, 0, 0, 0] += 10 * tensor.float().abs().max()
            tensor[0, 0, 0, 0] += 10 * tensor.float().abs().max()
        return tensor

    monkeypatch.setattr(torch, "conv2d", lambda *rest: spoil(forward(*rest)))
    monkeypatch.setattr(
        torch.ops.aten, "convolution_backward", lambda *rest: [*map(spoil, backward(*rest))]
    )
    passes = convolution.Convolution(convolution.Layer(8, 16, 3, 8), 2, name, CPU).passes()
    assert {what: one_pass.wrong() for what, one_pass in passes.items()} == dict.fromkeys(PASSES, 1)


def test_an_unknown_layer_is_refused_with_those_there_are(near, benchmark_file):
    ran = near(benchmark_file("convolution"), "--smoke", "--layers=resnet50.conv9")
    assert (ran.exit_code, ran.stderr.count("\n")) == (2, 1)
    assert "vgg16.conv3_2" in ran.stderr


def test_a_convolution_is_named_by_format_layer_and_pass(smoke, benchmark_file):
    document = smoke(benchmark_file("convolution")).document
    assert {s["metric"] for s in document["series"] if s["metric"].startswith("tflops")} == {
        f"tflops:{name}/resnet50.conv4_1x1/{what}" for name in ("fp32", "bf16") for what in PASSES
    }


def test_a_batch_of_products_counts_them_all_and_each_is_checked(near, benchmark_file, monkeypatch):
    monkeypatch.setattr(
        kit.timing, "seconds_per_call", lambda call, *_: Seconds([(call(), 0.5)[1]])
    )
    words = ("--shapes=6x70x32x48", "--dtypes=fp32,fp64,int8", "--samples=1")
    ran = near(benchmark_file("gemm"), *words)
    assert ran.exit_code == 0, ran.stderr
    assert ran.samples("tflops:fp32/6x70x32x48") == [6 * 2 * 70 * 32 * 48 / 0.5 / 1e12]
    assert ran.samples("agreement:fp64/6x70x32x48") == [1.0]
    notes = ran.document["environment"]
    assert notes["product:fp32/6x70x32x48"] == "6x70x32x48"
    assert notes["product:int8/6x70x32x48"] == "left out: torch has no batch of int8 products"
    product = Product("fp32", 70, 32, 48, CPU, 6)
    product.multiply()
    truth = np.einsum("bij,bjk->bik", product.left.numpy(), product.right.numpy())
    assert np.allclose(product.out.numpy(), truth, atol=1e-3)
    product.out[5, 61, 3] += 1
    assert product.wrong_elements() == 1


# --- gpu_burn ------------------------------------------------------------------------------


def test_every_product_that_differs_in_one_bit_from_the_first_is_a_wrong_result(monkeypatch):
    burn = gpu_burn.Burn("fp32", 64, CPU)
    multiply, products = burn.multiply, itertools.count()

    def spoilt():
        multiply()
        if next(products) in (3, 11):
            burn.now[40, 2] ^= 1  # the last bit of the mantissa

    monkeypatch.setattr(burn, "multiply", spoilt)
    for _ in range(20):
        burn.step()
    assert burn.wrong_results() == 2


def test_the_products_go_through_all_places_and_a_bad_one_shows_each_time(monkeypatch):
    burn = gpu_burn.Burn("fp32", 64, CPU)
    places = [words.data_ptr() for _, words in burn.products]
    assert len(set(places)) == gpu_burn.PLACES_ON_A_CPU == 4
    assert burn.bytes == 4 * 64 * 64 * 4
    multiply, met = burn.multiply, []

    def with_a_bad_place():
        multiply()
        met.append(burn.now.data_ptr())
        if met[-1] == places[2]:
            burn.now[1, 1] ^= 1 << 3

    monkeypatch.setattr(burn, "multiply", with_a_bad_place)
    for _ in range(12):
        burn.step()
    assert sorted(met) == sorted(3 * places)
    assert burn.wrong_results() == 3


def test_the_places_of_a_burn_fill_the_share_of_a_gpus_free_memory(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_000_000, 2_000_000))
    posing = types.SimpleNamespace(device=torch.device("cuda", 0), nbytes=100_000)
    monkeypatch.setattr(torch, "empty_like", lambda place: place)
    assert len(gpu_burn.more_places(posing, 0.9)) == 9
    assert gpu_burn.more_places(posing, 0.0) == []


def test_a_device_that_is_wrong_from_the_first_product_on_is_not_taken_for_right(monkeypatch):
    sound = torch.mm

    def always_spoilt(left, right, out):
        sound(left, right, out=out)
        out[61, 0] = float("nan")

    monkeypatch.setattr(torch, "mm", always_spoilt)
    burn = gpu_burn.Burn("fp32", 64, CPU)
    burn.step()
    assert int(burn.different) == 0  # the same NaN each time
    assert burn.wrong_results() == 1


def test_each_turn_of_a_burn_has_other_numbers_the_next_shape_and_as_much_work():
    burns = [gpu_burn.Burn("fp32", 64, CPU, turn=turn) for turn in range(4)]
    assert [burn.name for burn in burns] == ["fp32", "fp32/tall", "fp32/deep", "fp32"]
    assert [tuple(burn.first.shape) for burn in burns[:3]] == [(64, 64), (128, 64), (32, 64)]
    assert {burn.flop for burn in burns} == {2 * 64**3}
    assert not any(burn.first_is_wrong for burn in burns)
    assert not torch.equal(burns[0].first, burns[3].first)


def test_samples_of_several_turns_of_a_load_are_one_series():
    burn = types.SimpleNamespace(name="fp32", device=CPU, bytes=64, swings={})
    burn.run, burn.wrong_results = lambda *_: [2.0, 3.0], lambda: 1
    report, loads = contract.Report(frozenset({"tflops", "agreement"})), {}
    with ThreadPoolExecutor(1) as threads:
        for _ in range(2):
            gpu_burn.burn_all(report, [burn], 0, 1, threads, loads)
    gpu_burn.show(report, "fp32", "cpu", loads["fp32"][CPU])
    told = {series["metric"]: series["samples"] for series in report.series}
    assert told == {"tflops:fp32": [2.0, 3.0, 2.0, 3.0], "agreement:fp32": [1 / 3]}


def test_throttling_shows_second_by_second_and_does_not_prolong_the_burn(monkeypatch):
    """By a clock of our own, which every product moves on: 10 ms each, 40 ms after 5 seconds."""
    now = [0.0]
    for module in (gpu_burn, kit.possession):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])

    def multiply():
        now[0] += 0.01 if now[0] < 5 else 0.04

    burn = gpu_burn.Burn("fp32", 64, CPU)
    monkeypatch.setattr(burn, "multiply", multiply)
    samples = burn.run(seconds=10)
    rate = 2 * 64**3 / 0.01 / 1e12
    assert samples[:4] == pytest.approx([rate] * 4)
    assert samples[-4:] == pytest.approx([rate / 4] * 4)
    assert now[0] < 15


def test_a_gpu_that_fails_under_load_is_named_in_one_line(monkeypatch):
    burn = gpu_burn.Burn("fp32", 64, CPU)

    def multiply():
        raise RuntimeError("CUDA error: unspecified launch failure\nCompile with ...")

    monkeypatch.setattr(burn, "multiply", multiply)
    with pytest.raises(contract.Unmeasured, match=r"cpu failed under load: .* launch failure$"):
        burn.time(calls=3)


# Two devices at once, of which the second gets one product wrong, its fortieth.
PLANTED = """
import itertools, sys
sys.path.insert(0, {benchmarks!r})
import torch
import kit.timing, contract, gpu_burn

kit.timing.devices = lambda: [torch.device("cpu"), torch.device("cpu", 0)]
class Spoilt(gpu_burn.Burn):
    def __init__(self, name, n, device, **others):
        super().__init__(name, n, device, **others)
        sound, products = self.multiply, itertools.count(1)
        def multiply():
            sound()
            if device.index == 0 and next(products) == 40:
                self.now[5, 7] ^= 1
        self.multiply = multiply
gpu_burn.Burn = Spoilt
contract.run(gpu_burn.BENCHMARK, gpu_burn.each_gpu(gpu_burn.measure))
"""


def test_silent_corruption_on_one_of_two_devices_falls_on_that_one(run, tmp_path):
    program = tmp_path / "gpu_burn.py"
    program.write_text(PLANTED.format(benchmarks=str(Path(gpu_burn.__file__).parent)))
    ran = run(program, "--smoke", "--size=64", "--swing_ms=20,0")
    assert ran.exit_code == 0, ran.stderr
    agreement = {
        (series["metric"].partition(":")[2], series["device"]): series["samples"]
        for series in ran.document["series"]
        if series["metric"].startswith("agreement")
    }
    wrong = {"fp32/20ms": [0.5], "fp32": [1.0]}
    assert agreement == {
        (load, device): wrong[load] if device == "cpu:0" else [1.0]
        for load in wrong
        for device in ("cpu", "cpu:0")
    }
    environment = ran.document["environment"]
    assert environment["wrong_results"]["cpu:0"] == {"fp32/20ms": 1, "fp32": 0}
    assert environment["swings"]["cpu"].keys() == {"fp32/20ms"}


def test_swinging_loads_begin_at_the_same_moments_for_any_lengths_of_work():
    """Against the naive count: one begins at each beginning of a period that does not find it at
    work."""
    rng = random.Random(7)
    works = [[rng.uniform(0.001, 0.13) for _ in range(50)] for _ in range(3)]
    for work in works:
        now, swing, starts = [3.0], kit.swing.Swing(0.05, origin=3.0), []
        for seconds in work:
            swing.wait(lambda now=now: now[0], lambda s, now=now: now.__setitem__(0, now[0] + s))
            starts.append(now[0])
            now[0] += seconds
        free_at, naive = 3.0, []
        for seconds in work:
            while 3.0 + 0.05 * len(naive) < free_at - 1e-9:
                naive.append(None)  # missed
            naive.append(3.0 + 0.05 * len(naive))
            free_at = naive[-1] + seconds
        assert starts == pytest.approx([start for start in naive if start])
        assert swing.facts()["missed"] == naive.count(None)


def test_a_burn_rests_at_its_end_so_that_the_next_program_begins_cool(monkeypatch):
    import gpu_burn

    rested: list[float] = []
    monkeypatch.setattr(gpu_burn, "sleep", rested.append)
    monkeypatch.setattr(gpu_burn, "burn_all", lambda *_: None)
    gpu_burn.measure(contract.Report(frozenset()), "fp32", 64, 0.0, "0", 1, 1, 120)
    assert rested == [120]
