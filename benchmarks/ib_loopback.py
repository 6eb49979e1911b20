"""RDMA writes of every HCA to itself: perftest's server and client on one node, beside the HCA.

The data goes over the HCA's PCIe slot, out and in, without a switch: what is slow here is the
node's own. Both processes keep to the cores that the kernel calls near the HCA.
"""

from __future__ import annotations

import contract
from kit.network.perftest import BANDWIDTH, LIMIT_S, answer, arguments, memory_arguments
from kit.network.ports import NO_HCA, Hca, active, ceiling_of
from kit.tools import find, require_success, run, serve

BENCHMARK = contract.Benchmark(
    name="ib_loopback",
    version="1",
    summary="RDMA writes of every HCA to itself (perftest).",
    stresses="HCAs and their PCIe slots, host or GPU memory",
    reveals="a PCIe slot trained low, a wrong NUMA or ACS setting, a weak HCA; needs no partner",
    duration_s=40.0,
    hca=True,
    tools=(BANDWIDTH,),
    metrics=(
        contract.higher(
            "bandwidth_gbps",
            "GB/s",
            "mean, per HCA and message size",
            ceiling="the HCA's link rate (sysfs: rate), or its PCIe slot's",
        ),
    ),
    parameters=(
        contract.Parameter("hcas", "", 'HCAs to test, separated by commas; "": all that are up'),
        contract.Parameter("memory", "host", '"host", or "cuda": the GPU nearest to each HCA'),
        contract.Parameter(
            "sizes", "1024,65536,8388608", "bytes per message", smoke="65536", more_is_stronger=True
        ),
        contract.Parameter(
            "samples",
            3,
            "tests per size",
            smoke=1,
            at_least=1,
            counts=("bandwidth_gbps",),
            more_is_stronger=True,
        ),
    ),
)


def measure(report: contract.Report, hcas: str, memory: str, sizes: str, samples: int) -> None:
    tool, chosen = find(BANDWIDTH), contract.sizes("sizes", sizes)
    present = {hca.name: hca for hca in active()}
    if not present:
        raise contract.NotApplicable(NO_HCA)
    names = contract.split(hcas) or list(present)
    if unknown := set(names) - set(present):
        raise contract.BadParameter(f"no active HCA is called {', '.join(sorted(unknown))}")
    if rate := ceiling_of(list(present.values())):
        report.ceiling("bandwidth_gbps", rate, source="rate of the link, in sysfs")
    for name in names:
        buffers = memory_arguments(memory, present[name])
        with report.sparing_others(name):
            for size in chosen:
                numbers = [to_itself(tool, present[name], size, buffers) for _ in range(samples)]
                report.add(f"bandwidth_gbps:{size}", name, numbers)


def to_itself(tool: str, hca: Hca, size: int, memory: list[str]) -> float:
    def server(port: int) -> list[str]:
        return arguments(tool, hca, port, size, memory)

    with serve(server, LIMIT_S, cpus=hca.cpus) as (port, _):
        output = run([*server(port), "127.0.0.1"], LIMIT_S, cpus=hca.cpus)
    return answer(require_success(output, BANDWIDTH), size, "gbps")


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
