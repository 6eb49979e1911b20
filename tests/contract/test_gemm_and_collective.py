"""gemm and collective: their numbers against counts made by hand, their eye for wrong answers."""

from __future__ import annotations

import os
from pathlib import Path

import contract
import pytest
import torch
from collective import busbw_gbps
from kit.arithmetic import Product, flop, wrong_elements
from kit.timing import gpus

BENCHMARKS = Path(contract.__file__).parent


def test_gemm_counts_the_operations_of_the_textbook_algorithm():
    m, n, k, operations = 5, 7, 3, 0
    for _row in range(m):
        for _column in range(n):
            for _term in range(k):
                operations += 2  # one multiplication, one addition
    assert flop(m, n, k) == operations


@pytest.mark.parametrize("name", ["fp64", "fp32", "fp16", "bf16", "fp8", "int8"])
def test_gemm_accepts_a_right_product_in_every_format(name):
    right = Product(name, 64, 128, 256, torch.device("cpu"))
    right.multiply()
    assert right.wrong_elements() == 0


def test_gemm_counts_each_wrong_element_of_the_rows_it_checks():
    left, right = torch.randn(2, 128, 128)
    out = left @ right
    out[0, 3] += 1
    out[61, 5] = float("nan")
    out[122, 7] = float("inf")
    assert wrong_elements(left, right, out, tolerance=1e-3) == 3


def ring_link_bytes(operation: str, size: int, n: int) -> int:
    """Bytes that one link of a ring carries when ranks pass chunks on, step by step."""
    chunk = size // n
    if operation == "all_gather":
        return sum(chunk for _step in range(n - 1))
    return 2 * ring_link_bytes("all_gather", size, n)  # reduce-scatter, then all-gather


def pairwise_bytes(size: int, n: int) -> int:
    """Bytes that one rank sends in an all-to-all: a block to each of the others, none to itself."""
    return sum(size // n for peer in range(n) if peer != 0)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_bus_bandwidth_is_the_rate_of_the_slowest_link(n):
    size, seconds = n * 1_000_000, 0.004
    for operation in ("all_reduce", "all_gather"):
        rate = ring_link_bytes(operation, size, n) / seconds / 1e9
        assert busbw_gbps(operation, size, n, seconds) == pytest.approx(rate)
    rate = pairwise_bytes(size, n) / seconds / 1e9
    assert busbw_gbps("all_to_all", size, n, seconds) == pytest.approx(rate)


def test_a_machine_whose_gpus_torch_cannot_see_is_not_taken_as_a_cpu_node(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("ANUBIS_HOST_ROOT", str(tmp_path))
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidiactl"):
        (tmp_path / "dev" / name).touch()
    with pytest.raises(contract.Unmeasured, match=r"has nvidia0, but torch .* sees no GPU"):
        gpus()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hidden on purpose
    assert gpus() == 0


# --- two real ranks over gloo --------------------------------------------------------------

# The seconds are planted: rank 1 takes twice as long as rank 0, whose number must not be used.
# One element that rank 1 receives in an all-to-all is spoilt, as by a bad link.
PLANTED = """
import os, sys
sys.path.insert(0, {benchmarks!r})
import torch.distributed as dist
import kit.timing, collective, contract
from kit.possession import Seconds

rank = int(os.environ.get("RANK", -1))
own = [0.001 * (1 + rank)]
kit.timing.time_calls = lambda call, device, samples, calls: Seconds(own * samples, [0] * samples)
sound = dist.all_to_all_single
def spoilt(received, sent, group=None):
    sound(received, sent, group=group)
    if rank == 1:
        received[0, 0] += 1
dist.all_to_all_single = spoilt
contract.run(collective.BENCHMARK, collective.measure, collective.processes)
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory, run):
    program = tmp_path_factory.mktemp("planted") / "collective.py"
    program.write_text(PLANTED.format(benchmarks=str(BENCHMARKS)))
    return run(program, "--bytes=4000", "--samples=2")


@pytest.mark.smoke
def test_two_ranks_report_the_time_of_the_slower_one(planted):
    assert planted.exit_code == 0, planted.stderr
    assert planted.document["environment"]["ranks"] == 2
    # 4000 bytes in 2 ms are 0.002 GB/s; times 2 (2-1)/2 = 1 for all-reduce, else (2-1)/2
    assert planted.samples("busbw_gbps:all_reduce/4000") == pytest.approx([0.002] * 2)
    assert planted.samples("busbw_gbps:all_gather/4000") == pytest.approx([0.001] * 2)
    assert planted.samples("busbw_gbps:all_to_all/4000") == pytest.approx([0.001] * 2)


def test_a_wrong_answer_of_any_rank_is_a_measured_metric(planted):
    assert planted.samples("agreement:all_to_all/4000") == [0.5]
    assert planted.samples("agreement:all_reduce/4000") == [1.0]


def test_a_group_of_one_rank_is_not_applicable(run, benchmark_file):
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    ran = run(benchmark_file("collective"), "--smoke", env={**os.environ, **alone})
    assert ran.exit_code == 3
    assert "one rank" in ran.document["not_applicable"]
