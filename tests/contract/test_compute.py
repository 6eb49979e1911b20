"""The compute programs: formulas against counts made by hand, answers against planted faults."""

from __future__ import annotations

import _ceilings
import pytest


def test_the_ceilings_are_those_of_the_data_sheets():
    h200 = _ceilings.gpu("NVIDIA H200")
    assert h200.tflops["bf16"] == 989.4
    assert h200.tflops["fp8"] == 1978.9  # the data sheet prints 3,958 with sparsity
    assert h200.hbm_gbps == 4800
    assert _ceilings.gpu("Tesla V100-SXM2-32GB").tflops["fp16"] == 125
    assert _ceilings.gpu("A100-SXM4-80GB") == _ceilings.gpu("NVIDIA A100-SXM4-80GB")


@pytest.mark.parametrize("name", ["NVIDIA H300", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", ""])
def test_nothing_is_said_of_a_gpu_that_is_not_in_the_table(name):
    assert _ceilings.gpu(name) is None


# rates with fp32 accumulation follow from the cores: SMs x FMAs per clock and SM x 2 x boost clock
@pytest.mark.parametrize(
    ("name", "sms", "boost_mhz", "bf16_fma_per_sm"),
    [
        ("NVIDIA A100-SXM4-80GB", 108, 1410, 1024),
        ("NVIDIA H100 80GB HBM3", 132, 1830, 2048),
        ("NVIDIA H200", 132, 1830, 2048),
        ("NVIDIA A10", 72, 1695, 512),
        ("NVIDIA L40S", 142, 2520, 512),
    ],
)
def test_a_rate_is_what_the_cores_can_do_at_the_boost_clock(name, sms, boost_mhz, bf16_fma_per_sm):
    cores = sms * bf16_fma_per_sm * 2 * boost_mhz * 1e6 / 1e12
    gpu = _ceilings.gpu(name)
    assert gpu.tflops["bf16"] == pytest.approx(cores, rel=0.02)
    for of_double_rate in {"fp8", "int8"} & set(gpu.tflops):
        assert gpu.tflops[of_double_rate] == pytest.approx(2 * gpu.tflops["bf16"], rel=0.02)
    assert gpu.tflops["tf32"] == pytest.approx(gpu.tflops["bf16"] / 2, rel=0.02)
