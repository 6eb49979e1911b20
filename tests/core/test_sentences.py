"""The sentence that each fault gets: thirty faults, each with the words that a person would use."""

from __future__ import annotations

import pytest

from anubis.core.judge.sentences import (
    Shortfall,
    cause_of,
    metric_words,
    node_sentence,
    shortfall_sentence,
    slow_samples_sentence,
)


def short(
    what: str, measured: float, normal: float, unit: str, device: str = "cuda:6", **other
) -> Shortfall:
    benchmark, metric = what.split()
    facts = {"direction": "higher", "similarity": 0.8, "alpha": 0.95} | other
    return Shortfall(
        benchmark=benchmark,
        metric=metric,
        unit=unit,
        device=device,
        measured=float(measured),
        normal=float(normal),
        **facts,
    )


LOWER = {"direction": "lower"}
LEVELS = [
    (
        short("gemm tflops:fp32", 0.0708, 0.1475, "TFLOP/s", "cpu"),
        "matrix products (fp32) 52% slower than normal on cpu: 0.0708 instead of 0.147 TFLOP/s",
    ),
    (
        short("host_device_copy d2h_gbps", 42.58, 53.48, "GB/s"),
        "copies from the GPU 20% slower than normal on cuda:6: 42.6 instead of 53.5 GB/s",
    ),
    (
        short("host_device_copy both_ways_gbps", 70, 88, "GB/s", "cuda:0"),
        (
            "copies to and from the GPU at once 20% slower than normal on cuda:0: "
            "70 instead of 88 GB/s"
        ),
    ),
    (
        short("train_transformer compute_s", 0.1947, 0.1549, "s", **LOWER),
        (
            "the computation of a training step takes 26% longer than normal on cuda:6: "
            "0.195 instead of 0.155 s"
        ),
    ),
    (
        short("train_transformer samples_per_s", 332, 411.8, "1/s"),
        "training 19% slower than normal on cuda:6: 332 instead of 412 per s",
    ),
    (
        short("kernel_launch event_us", 9.0, 4.5, "us", **LOWER),
        "a kernel launch takes 100% longer than normal on cuda:6: 9 instead of 4.5 us",
    ),
    (
        short("memory_bandwidth hbm_gbps:triad", 2389, 2982, "GB/s"),
        "GPU memory (triad) 20% slower than normal on cuda:6: 2,389 instead of 2,982 GB/s",
    ),
    (
        short("train_cnn loss", 7.9, 7.64, "1", direction="either"),
        (
            "training loss uneven on cuda:6: 20% from normal as a whole, limit 5%; "
            "median 7.9 instead of 7.64"
        ),
    ),
    (
        short("train_cnn loss", 9.168, 7.64, "1", direction="either"),
        "training loss 20% above normal on cuda:6: 9.17 instead of 7.64",
    ),
    (short("node_health gpus", 7, 8, "1", "node"), "7 of 8 GPUs are there"),
    (short("node_health nvlinks", 16, 18, "1"), "16 of 18 NVLinks are up on cuda:6"),
    (short("node_health cpus", 128, 224, "1", "node"), "128 of 224 processors are online"),
    (
        short("node_health port_gbps", 25, 50, "GB/s", "mlx5_0"),
        "link rate of an RDMA port 50% slower than normal on mlx5_0: 25 instead of 50 GB/s",
    ),
    (
        short("node_health memory_gb", 2032, 2164, "GB", "node"),
        "main memory 6% below normal: 2,032 instead of 2,164 GB",
    ),
    (
        short("node_health power_cap_w", 400, 700, "W"),
        "power limit of a GPU 43% below normal on cuda:6: 400 instead of 700 W",
    ),
    (  # 1 % below where the limit says 5: it is the whole that is off
        short("gemm tflops", 99, 100, "TFLOP/s", similarity=0.93),
        (
            "matrix products uneven on cuda:6: 7% from normal as a whole, limit 5%; "
            "median 99 instead of 100 TFLOP/s"
        ),
    ),
    (
        short("gemm tflops", 100.04, 100, "TFLOP/s", similarity=0.93),
        (
            "matrix products uneven on cuda:6: 7% from normal as a whole, limit 5%; "
            "median 100.04 instead of 100 TFLOP/s"
        ),
    ),
    (  # nothing at all is carried
        short("pair_rdma bandwidth_gbps:forth", 0, 49, "GB/s", "mlx5_0-mlx5_0"),
        (
            "transfers between two nodes (forth) 100% slower than normal on mlx5_0-mlx5_0: "
            "0 instead of 49 GB/s"
        ),
    ),
    (
        short("collective busbw_gbps:all_reduce/8388608", 18, 364, "GB/s", "cuda"),
        "collectives (all_reduce/8388608) 95% slower than normal on cuda: 18 instead of 364 GB/s",
    ),
    (  # a program of a site: its own names
        short("resnet perf", 0.1531, 0.1358, "s", "gpu:2", **LOWER),
        "perf takes 13% longer than normal on gpu:2: 0.153 instead of 0.136 s",
    ),
    (short("count things", 3, 4, "1", "node"), "3 of 4 things"),
    (short("odd score", 0.5, 0.0, "1", "node"), "score 100% above normal: 0.5 instead of 0"),
]


@pytest.mark.parametrize(("shortfall", "sentence"), LEVELS, ids=lambda case: str(case)[:40])
def test_a_fault_is_said_with_what_by_how_much_where_and_against_what(shortfall, sentence):
    assert shortfall_sentence(shortfall) == sentence
    assert len(sentence) <= 140  # a drain reason has 200 characters, with code and owner


def test_a_device_that_is_slow_at_times_is_said_to_be_so():
    shortfall = short("train_transformer compute_s", 0.155, 0.155, "s", "cuda:1", **LOWER)
    sentence = slow_samples_sentence(
        shortfall, number=5, samples=52, measured=0.1752, usual=0.155, share=0.001
    )
    assert sentence == (
        "the computation of a training step slow at times on cuda:1: 5 of 52 samples at "
        "0.175 instead of 0.155 s; healthy: 0.1%"
    )


GPUS = [f"cuda:{number}" for number in range(8)]
REASON = "matrix products 20% slower than normal on cuda:6: 571 instead of 720 TFLOP/s"


@pytest.mark.parametrize(
    ("bad", "measured", "further", "place", "end"),
    [
        (["cuda:6"], ["cuda:6"], 0, "cuda:6", ""),
        (["cuda:6"], GPUS, 0, "cuda:6 (1 of 8 GPUs)", ""),
        (["cuda:1", "cuda:6"], GPUS, 1, "2 of 8 GPUs (worst cuda:6)", "; 1 more metric as well"),
        (GPUS, GPUS, 3, "all 8 GPUs (worst cuda:6)", "; 3 more metrics as well"),
        (["cuda:6", "cpu"], [*GPUS, "cpu"], 0, "cuda:6 (1 of 8 GPUs)", ""),
    ],
)
def test_a_node_says_which_of_its_devices_of_how_many(bad, measured, further, place, end):
    whole = node_sentence(REASON, "cuda:6", bad, measured, further)
    assert whole == REASON.replace("cuda:6", place) + end
    assert cause_of("n1", "GEMM.TFLOPS", whole) == "matrix products slower than normal"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("7 of 8 GPUs are there", "not all GPUs are there"),
        ("gemm: failed once, and ran when it was tried again: no answer", "gemm: failed once"),
        ('driver of n1 is "535.183", and "550.2" on 244 of 256 nodes', 'driver is "535.183"'),
        ("no longer answers (planted)", "no longer answers (planted)"),
        (
            "a kernel launch takes 9% longer than normal: 9 us",
            "a kernel launch takes longer than normal",
        ),
        ("gemm: perf 13% below normal on gpu:2: 3 instead of 4", "gemm: perf below normal"),
        ("NVMe throughput on cpu is 3 GB/s, limit 4", "NVMe throughput on cpu is 3 GB/s"),
    ],
)
def test_nodes_with_the_same_fault_have_the_same_cause(reason, cause):
    assert cause_of("n1", "GEMM.PERF", reason) == cause
    assert cause_of("n1", "GEMM.HANG", reason) == "gemm hangs"


def test_a_program_of_ours_has_words_for_what_it_measures_and_a_strangers_has_none():
    assert metric_words("nccl_tests", "algbw_gbps:all_gather") == "collectives (all_gather)"
    assert metric_words("gemm", "agreement") == metric_words("mine", "tflops") == ""
