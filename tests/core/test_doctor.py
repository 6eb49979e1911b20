"""The build of torch that the doctor names for a driver and a GPU."""

from __future__ import annotations

import pytest

from anubis.operations.doctor import BUILDS, CAPABILITIES, advise, fitting_build


@pytest.mark.parametrize(
    ("driver", "model", "cuda"),
    [
        ("580.95.05", "NVIDIA H100 80GB HBM3", "13.0"),
        ("570.86.15", "NVIDIA H100 80GB HBM3", "12.8"),
        ("580.95.05", "Tesla V100-SXM2-32GB", "12.6"),  # CUDA 13 has no Volta
        ("570.86.15", "NVIDIA GB200", "12.8"),
        ("535.104.05", "NVIDIA A100-SXM4-80GB", "12.8"),
        ("580.95.05", "NVIDIA L4", "13.0"),
        ("580.95.05", "a GPU of the future", "13.0"),
    ],
)
def test_the_newest_build_that_fits_is_named(driver, model, cuda):
    assert fitting_build(driver, model).cuda == cuda
    assert f"CUDA {cuda} (cu{cuda.replace('.', '')}) for {model}" in advise(driver, model)


def test_without_a_fitting_build_the_driver_is_to_be_updated_and_without_a_driver_none_is_guessed():
    assert advise("470.82", "Tesla V100-SXM2-32GB").endswith("update the driver")
    assert advise("", "AMD Instinct MI300X") == (
        "install torch's build for these GPUs: CUDA for NVIDIA's, ROCm for AMD's"
    )


def test_every_gpu_in_the_table_has_a_build_with_the_newest_driver():
    assert all(fitting_build(str(BUILDS[0].driver), model) for model in CAPABILITIES)
