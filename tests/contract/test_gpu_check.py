"""scripts/gpu-check: the table of a machine, and the bounds it is held against."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "gpu-check"
check = runpy.run_path(str(SCRIPT))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_check_states_it_and_shows_the_cpu_only_on_request(run):
    done = run(SCRIPT, "--smoke")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "sees no GPU here" in done.stderr
    done = run(SCRIPT, "--smoke", "--without-gpu", "--only", "kernel_launch,dcgm_diag")
    assert done.exit_code == 0
    assert "wall_us" in done.stdout
    assert "all 1 checks of answers agree" in done.stdout
    assert "n/a: dcgmi is not on PATH" in done.stdout


def test_a_name_that_is_none_is_refused(run):
    done = run(SCRIPT, "--without-gpu", "--only", "gem")
    assert done.exit_code != 0
    assert 'there is no benchmark "gem"' in done.stderr


def ran(**medians: float):
    series = [
        {"metric": metric, "device": device, "samples": [value * 0.9, value, value * 1.2]}
        for metric, value in medians.items()
        for device in ("cuda:0", "cuda:1")
    ]
    return {"gemm": check["Ran"]("gemm", 1.0, {"series": series})}


@pytest.mark.parametrize(
    ("measured", "plain", "holds"), [(1500.0, 790.0, True), (1200.0, 790.0, False)]
)
def test_a_metric_is_held_against_another(measured, plain, holds):
    bound = check["Bound"]("fp8", "gemm", "tflops:fp8", ("gemm", "tflops:bf16"), (1.6, 9.0))
    found = ran(**{"tflops:fp8": measured, "tflops:bf16": plain})
    assert check["holds"](bound, found) is holds


def test_a_bound_on_a_format_that_the_gpu_lacks_is_no_failure(capsys):
    bound = check["Bound"]("fp8 over bf16", "gemm", "tflops:fp8", ("gemm", "tflops:bf16"), (1.6, 9))
    results = ran(**{"tflops:bf16": 300.0})
    results["gemm"].document["environment"] = {
        "left_out": "fp8 needs compute capability 8.9, NVIDIA A100-SXM4-80GB has 8.0"
    }
    assert check["holds"](bound, results)
    assert "fp8 over bf16: n/a: fp8 needs compute capability 8.9" in capsys.readouterr().out
    other = check["Bound"]("int8", "gemm", "tflops:int8", ("gemm", "tflops:bf16"), (1.6, 9))
    assert not check["holds"](other, results)


def test_a_metric_is_held_against_plain_code_and_may_be_too_high(capsys):
    bound = check["Bound"]("launch", "gemm", "event_us", lambda: 2.0, (0.9, 1.1))
    assert check["holds"](bound, ran(event_us=2.1))
    assert not check["holds"](bound, ran(event_us=2.3))
    assert not check["holds"](bound, ran(other=2.0))
    assert "launch: not measured" in capsys.readouterr().out


def test_a_wrong_answer_and_a_gpu_without_one_are_named():
    right, wrong = (
        {"device": "cuda:0", "samples": numbers} for numbers in ([1.0, 1.0], [1.0, 0.5])
    )
    series = [
        {**right, "metric": "agreement:bf16"},
        {**wrong, "metric": "agreement:fp8"},
        {**right, "metric": "seen_once:sort"},
        {**wrong, "metric": "tflops:bf16"},
    ]
    lost = {"failed_devices": {"cuda:3": "CUDA error"}}
    assert check["wrongs"]({"series": series, "environment": lost}) == [
        "cuda:3: CUDA error",
        "agreement:fp8 of cuda:0: [1.0, 0.5]",
        "seen_once:sort of cuda:0: [1.0, 1.0]",
    ]
    assert check["wrongs"]({}) == []


def test_a_metric_may_end_in_its_size():
    assert (
        check["median_of"](ran(**{"h2d_gbps:pinned/1024": 55.0}), "gemm", "h2d_gbps:pinned") == 55
    )
