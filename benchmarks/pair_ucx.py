"""Bandwidth and latency between two nodes by ucx_perftest: tagged messages over TCP or RDMA.

`transport` is a parameter, and the device names it, so that TCP is never compared with RDMA. Each
sample is a test of its own, of as many messages as last about `sample_s`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial

import contract
from kit.pair import (
    METRICS,
    OF_PAIR_TEST,
    Pair,
    Way,
    common_rails,
    everywhere,
    pair_nodes,
    report_sizes,
    shifted_rails,
    transfer,
)
from kit.parsers import ucx_perftest
from kit.tools import find

FEW = 4  # messages of the first test, and of the shortest
GROWTH = 30  # from test to test, since what fits into buffers seems faster than any link
LIMIT_S = 60.0  # beside the sample itself: both ends start and connect

BENCHMARK = contract.Benchmark(
    name="pair_ucx",
    version="1",
    summary="Bandwidth both ways and latency between two nodes (ucx_perftest, tagged messages).",
    stresses="the path between two nodes: NICs, cables, switches, and the host's part in it",
    reveals="a slow or lossy link or direction, sizes that a switch drops, a misconfigured NIC",
    scope="pair",
    duration_s=30.0,
    packages=("torch",),
    min_nodes=2,
    launcher="torchrun",
    tools=("ucx_perftest",),
    metrics=METRICS,
    parameters=(
        contract.Parameter(
            "transport", "tcp", '"tcp": anywhere; "rdma": each HCA that both nodes have'
        ),
        contract.Parameter(
            "sizes",
            "64,1024,65536,4194304",
            "bytes per message",
            smoke="64,65536",
            more_is_stronger=True,
        ),
        contract.Parameter("sample_s", 0.3, "seconds per sample", smoke=0.02, at_least=0.001),
        contract.Parameter(
            "samples",
            3,
            "tests per size and direction",
            smoke=1,
            at_least=1,
            counts=("bandwidth_gbps", "latency_us"),
            more_is_stronger=True,
        ),
        *OF_PAIR_TEST,
    ),
)


def measure(
    report: contract.Report,
    transport: str,
    sizes: str,
    sample_s: float,
    samples: int,
    shift: int,
    rails: str,
) -> None:
    from kit.group import meet

    if transport not in ("tcp", "rdma"):
        raise contract.BadParameter(f'transport cannot be "{transport}": use tcp or rdma')
    if transport == "tcp" and shift:
        raise contract.NotApplicable("TCP takes one way between two nodes: there is none across")
    chosen = contract.sizes("sizes", sizes)
    with meet():
        tool = everywhere(lambda: find("ucx_perftest"))
        lanes = tcp_ways() if transport == "tcp" else rdma_ways(rails, shift)
        with pair_nodes(report) as pair:
            for device, env in lanes.items() if pair.end is not None else ():
                tests = partial(repeat, pair, tool, env, sample_s, samples)
                report_sizes(report, device, tests, chosen)


def tcp_ways() -> dict[str, dict[str, str]]:
    """Return the environment for the interface that the launcher chose for this node, if it did."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    return {"tcp": {"UCX_TLS": "tcp"} | ({"UCX_NET_DEVICES": interface} if interface else {})}


def rdma_ways(rails: str, shift: int) -> dict[str, dict[str, str]]:
    hcas = shifted_rails(rails, shift) if shift else common_rails("")[0]
    return {
        device: {"UCX_TLS": "rc", "UCX_NET_DEVICES": f"{hca.name}:{hca.port}"}
        for device, hca in hcas.items()
    }


def repeat(
    pair: Pair,
    tool: str,
    env: dict[str, str],
    sample_s: float,
    samples: int,
    unit: str,
    size: int,
    sender: int,
) -> list[float]:
    """Return the values of as many tests as samples; shorter ones show how long they must be."""
    test = "tag_lat" if unit == "us" else "tag_bw"

    def run_test(messages: int) -> float:
        def client(address: str, port: int) -> Sequence[str]:
            options = ["-t", test, "-s", str(size), "-n", str(messages), "-w", str(FEW)]
            return [tool, address, "-p", str(port), *options, "-f", "-v"]

        way = Way(server=lambda port: [tool, "-p", str(port)], client=client)
        printed = transfer(pair, sender, way, LIMIT_S + sample_s, env)
        if not (values := ucx_perftest(printed)):
            raise contract.Unmeasured(
                f'ucx_perftest wrote no result but "{printed[-160:].strip()}"'
            )
        return values[unit]

    def message_s(messages: int) -> float:
        value = run_test(messages)
        return value / 1e6 if unit == "us" else size / value / 1e9

    messages = lasting(sample_s, message_s)
    return [run_test(messages) for _ in range(samples)]


def lasting(sample_s: float, message_s: Callable[[int], float]) -> int:
    """Return the number of messages that last about `sample_s`, by a test that lasted half of it: a
    short one may have met a busy moment, and samples as short as that would not repeat."""
    tried = FEW
    while (needed := math.ceil(sample_s / message_s(tried))) > 2 * tried:
        tried = min(needed, GROWTH * tried)
    return max(FEW, needed)


def processes() -> int:
    find("ucx_perftest")  # before any rank is started for nothing
    return 2


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
