"""Whatever decides which kernels run on a device, and so which bits are right.

A device with other words is no witness of its bits.
"""

from __future__ import annotations

import os
from ctypes import CDLL, byref, c_int
from hashlib import sha256
from typing import TYPE_CHECKING

import contract

if TYPE_CHECKING:
    import torch

# variables by which libraries choose other kernels, whose sums have another order
STEERING = (
    *("CUBLAS", "NVIDIA_TF32", "TORCH_BLAS", "PYTORCH_TUNABLEOP", "ROCBLAS", "HIPBLASLT"),
    *("ATEN_CPU", "MKL_", "ONEDNN_", "DNNL_", "OPENBLAS_", "CUDNN_", "MIOPEN_"),
)


def describe_kernels(device: torch.device) -> str:
    import torch

    words = [f"torch {torch.__version__}"]
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        words = [f"{gpu.name} with {gpu.multi_processor_count} processors", *words]
        cuda = torch.version.cuda
        words += [
            f"CUDA {cuda}, cuBLAS {cublas_version(cuda)}" if cuda else f"HIP {torch.version.hip}"
        ]
        words += [f"cuDNN {torch.backends.cudnn.version()}"]
    else:
        build = sha256(torch.__config__.show().encode()).hexdigest()[:8]
        words = [contract.environment()["cpu"], *words, f"build {build}"]
        words += [torch.backends.cpu.get_cpu_capability(), f"{torch.get_num_threads()} threads"]
    steered = (f"{name}={text}" for name, text in os.environ.items() if name.startswith(STEERING))
    return ", ".join([*words, *sorted(steered)])


def uuid_of(device: torch.device) -> str:
    """Return what tells a GPU from one that replaces it; "" if torch does not say."""
    import torch

    if device.type != "cuda":
        return ""
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))


def cublas_version(cuda: str) -> str:
    """Return the version of the library that this process has loaded: torch does not name it, and
    an image may bring another one than torch's build."""
    try:
        ask = CDLL(f"libcublas.so.{cuda.partition('.')[0]}").cublasGetProperty
    except (OSError, AttributeError):
        return "unknown"
    numbers = [c_int() for _ in range(3)]  # major, minor, patch
    for kind, number in enumerate(numbers):
        ask(kind, byref(number))
    return ".".join(str(number.value) for number in numbers)
