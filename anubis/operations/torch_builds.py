"""The builds of torch, and which of them fits a driver and a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Build:
    """A build of torch by the CUDA that comes with it, and what it needs."""

    cuda: str
    driver: int  # the oldest, by its first number
    oldest: int  # compute capability of the GPUs that it has kernels for, times ten
    newest: int


# Sources: release notes of CUDA (12.x needs driver 525; 13.x needs 580 and has no Volta; Blackwell
# came with 12.8) and the architectures that builds of torch list. The newest first.
BUILDS = (
    Build("13.0", driver=580, oldest=75, newest=121),
    Build("12.8", driver=525, oldest=75, newest=120),
    Build("12.6", driver=525, oldest=50, newest=90),
)
CAPABILITIES = {  # by a model's first letters; drivers before 570 know no Blackwell
    "GB300": 103,
    "B300": 103,
    "GB200": 100,
    "B200": 100,
    "GH200": 90,
    "H200": 90,
    "H100": 90,
    "H800": 90,
    "H20": 90,
    "L40": 89,
    "L20": 89,
    "L4": 89,
    "A100": 80,
    "A800": 80,
    "A30": 80,
    "A40": 86,
    "A10": 86,
    "T4": 75,
    "V100": 70,
}


def capability_of(model: str) -> int:
    """The compute capability of a GPU by its name, times ten; 0 if it is unknown."""
    words = re.split(r"[\s-]", re.sub(r"^(NVIDIA|Tesla)\s+", "", model.strip()))
    names = sorted((name for name in CAPABILITIES if words[0].startswith(name)), key=len)
    return CAPABILITIES[names[-1]] if names else 0


def fitting_build(driver: str, model: str) -> Build | None:
    """The newest build for this driver and GPU; None if there is none, or the driver is unknown."""
    number = int(first[0]) if (first := re.match(r"\d+", driver)) else 0
    capability = capability_of(model)
    fitting = (
        build
        for build in BUILDS
        if build.driver <= number and (not capability or build.oldest <= capability <= build.newest)
    )
    return next(fitting, None)


def advise(driver: str, model: str) -> str:
    """A sentence with the build to install, or with what has to be done before."""
    if build := fitting_build(driver, model):
        tag = "cu" + build.cuda.replace(".", "")
        return f"install torch's build with CUDA {build.cuda} ({tag}) for {model}, driver {driver}"
    if re.match(r"\d+", driver):
        return f"no build of torch fits {model} with driver {driver}: update the driver"
    return "install torch's build for these GPUs: CUDA for NVIDIA's, ROCm for AMD's"
