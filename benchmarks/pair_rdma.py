"""Bandwidth and latency between two nodes by perftest: RDMA writes, HCA by HCA (rail by rail).

From 64 bytes to megabytes, because a switch may drop large packets in silence and pass small ones.
With memory=cuda the buffers are in the nearest GPU (GPUDirect RDMA), and the latency is that of
send and receive. An HCA that is up on one node only is a wrong answer of that pair, under
`agreement:rails`. With a shift, each HCA meets another one than its namesake (across rails).
"""

from __future__ import annotations

from functools import partial

import contract
from kit.pair import (
    OF_PAIR_TEST,
    Pair,
    common_rails,
    everywhere,
    pair_nodes,
    report_sizes,
    shifted_rails,
    transfer,
)
from kit.perftest import (
    BANDWIDTH,
    LATENCY,
    LATENCY_OF_GPUS,
    LIMIT_S,
    answer,
    arguments,
    memory_arguments,
)
from kit.ports import NO_HCA, Hca, active, ceiling_of
from kit.tools import find

BENCHMARK = contract.Benchmark(
    name="pair_rdma",
    version="1",
    summary="Bandwidth both ways and latency between two nodes, per HCA (perftest, RDMA writes).",
    stresses="HCAs, their PCIe slots, cables, switches",
    reveals="a slow or lossy rail or direction, a missing HCA, sizes that a switch drops",
    scope="pair",
    duration_s=130.0,
    min_nodes=2,
    launcher="torchrun",
    hca=True,
    tools=(BANDWIDTH, LATENCY),
    metrics=(
        contract.higher(
            "bandwidth_gbps",
            "GB/s",
            "mean, by direction (forth: first node to second) and message size",
            ceiling="the HCA's link rate, one way (sysfs: rate), or its PCIe slot's",
        ),
        contract.lower("latency_us", "us", "mean of a write, from GPU to GPU of a send, one way"),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter("hcas", "", 'HCAs to test, separated by commas; "": all that are up'),
        contract.Parameter("memory", "host", '"host", or "cuda": the GPU nearest to each HCA'),
        contract.Parameter(
            "sizes",
            "64,1024,65536,8388608",
            "bytes per message",
            smoke="64,65536",
            more_is_stronger=True,
        ),
        contract.Parameter(
            "samples", 3, "tests per size and direction", smoke=1, at_least=1, more_is_stronger=True
        ),
        *OF_PAIR_TEST,
    ),
)


def measure(
    report: contract.Report,
    hcas: str,
    memory: str,
    sizes: str,
    samples: int,
    shift: int,
    rails: str,
) -> None:
    from kit.group import meet

    chosen = contract.sizes("sizes", sizes)
    with meet():
        latency = LATENCY_OF_GPUS if memory == "cuda" else LATENCY
        tools = everywhere(lambda: {"gbps": find(BANDWIDTH), "us": find(latency)})
        if shift:
            own = shifted_rails(rails or hcas, shift)
        else:
            own, missing = common_rails(hcas)
            report.add("agreement:rails", "hcas", contract.agreement(missing))
        buffers = everywhere(lambda: {hca: memory_arguments(memory, hca) for hca in own.values()})
        if rate := ceiling_of(list(own.values())):
            report.ceiling("bandwidth_gbps", rate, source="rate of the link, in sysfs")
        with pair_nodes(report) as pair:
            for device, hca in own.items() if pair.end is not None else ():
                with report.sparing_others(device):  # both ends fail alike, and go on together
                    numbers = partial(tests, pair, hca, tools, buffers[hca], samples)
                    report_sizes(report, device, numbers, chosen)


def tests(
    pair: Pair,
    hca: Hca,
    tools: dict[str, str],
    memory: list[str],
    samples: int,
    unit: str,
    size: int,
    sender: int,
) -> list[float]:
    tool = tools[unit]

    def server(port: int) -> list[str]:
        return arguments(tool, hca, port, size, memory)

    def client(address: str, port: int) -> list[str]:
        return [*server(port), address]

    return [
        answer(transfer(pair, sender, server, client, LIMIT_S, cpus=hca.cpus), size, unit)
        for _ in range(samples)
    ]


def processes() -> int:
    find(BANDWIDTH)
    if not active():
        raise contract.NotApplicable(NO_HCA)
    return 2


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
