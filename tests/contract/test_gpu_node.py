"""Programs on a node with GPUs that are not there (tests/gpus), and whether it is like one."""

from __future__ import annotations

import pytest

MIXED = """
import torch

first, second = (torch.ones(4, device=torch.device("cuda", gpu)) for gpu in range(2))
generator = torch.Generator("cuda:1").manual_seed(7)
assert str((first + 1).device) == "cuda:0"
assert str(torch.randn(3, generator=generator, device="cuda:1").device) == "cuda:1"
assert str(second.to("cuda:0").device) == str(torch.nn.Parameter(first).device) == "cuda:0"
assert float(first.copy_(2 * second).sum()) == 8.0
for mix in (
    lambda: first + second,
    lambda: torch.randn(3, generator=generator, device="cpu"),
    lambda: torch.ones(1, device="cuda:2"),
):
    try:
        mix()
    except RuntimeError as error:
        print(str(error).splitlines()[0])
"""


def devices(document):
    return sorted({series["device"] for series in document["series"]})


def test_a_stand_in_for_cuda_refuses_what_cuda_refuses(run, gpu_node, tmp_path):
    program = tmp_path / "mixed.py"
    program.write_text(MIXED)
    ran = run(program, env=gpu_node(2).environment())
    assert ran.stderr == ""
    mixed, generator, beyond = ran.stdout.splitlines()
    assert "at least two devices, cuda:0 and cuda:1" in mixed
    assert generator == "Expected a 'cpu' device type for generator but found 'cuda'"
    assert beyond == "CUDA error: invalid device ordinal"


@pytest.mark.parametrize(
    ("chosen", "measured"), [(None, ["cuda:0", "cuda:1", "cuda:2"]), ("GPU-2", ["cuda:0"])]
)
def test_every_gpu_that_is_visible_is_measured(run, gpu_node, benchmark_file, chosen, measured):
    environment = gpu_node(3).environment()
    environment |= {"CUDA_VISIBLE_DEVICES": chosen} if chosen else {}
    ran = run(benchmark_file("kernel_launch"), "--smoke", env=environment)
    assert devices(ran.document) == measured
    assert ran.document["environment"]["gpu_state"]["node"].keys() == {"GPU-0", "GPU-1", "GPU-2"}
