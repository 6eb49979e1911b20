"""Bandwidth and latency between two nodes by perftest: RDMA writes, HCA by HCA (rail by rail).

From 64 bytes to megabytes, because a switch may drop large packets in silence and pass small ones.
With at_once all HCAs measure at the same time, for networks in which rails share no cable; if they
agree, one sample of each is enough.
With memory=cuda the buffers are in the nearest GPU (GPUDirect RDMA), and the latency is that of
send and receive. An HCA that is up on one node only is a wrong answer of that pair, under
`agreement:rails`. With a shift, each HCA meets another one than its namesake (across rails).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import contract
from kit.network.perftest import (
    BANDWIDTH,
    LATENCY,
    LATENCY_OF_GPUS,
    LIMIT_S,
    answer,
    arguments,
    memory_arguments,
)
from kit.network.ports import NO_HCA, Hca, active, ceiling_of
from kit.pair import (
    OF_PAIR_TEST,
    Numbers,
    Pair,
    Test,
    Way,
    agree,
    common_rails,
    everywhere,
    pair_nodes,
    report_sizes,
    shifted_rails,
    tests_of,
    transfer,
    transfer_at_once,
)
from kit.tools import find

ALIKE = {"gbps": 0.03, "us": 0.1}  # the spread of HCAs that need no further sample

BENCHMARK = contract.Benchmark(
    name="pair_rdma",
    version="1",
    summary="Bandwidth both ways and latency between two nodes, per HCA (perftest, RDMA writes).",
    stresses="HCAs, their PCIe slots, cables, switches",
    reveals="a slow or lossy rail or direction, a missing HCA, sizes that a switch drops",
    scope="pair",
    duration_s=130.0,
    packages=("torch",),
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
        contract.Parameter(
            "at_once",
            False,
            "test all HCAs at the same time, and once if they are alike; none may share a cable",
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
    at_once: bool,
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
        ways = {device: HcaWay(hca, tools, buffers[hca]) for device, hca in own.items()}
        with pair_nodes(report) as pair:
            if pair.end is None:
                return
            together = test_at_once(pair, ways, chosen, samples) if at_once else {}
            for device, way in ways.items():
                with report.sparing_others(device):  # both ends fail alike, and go on together
                    alone = partial(test_alone, pair, way, samples)
                    report_sizes(report, device, together.get(device, alone), chosen)


class HcaWay(NamedTuple):
    """An HCA here, and how perftest measures by it."""

    hca: Hca
    tools: Mapping[str, str]
    memory: Sequence[str]

    def make_way(self, unit: str, size: int) -> Way:
        def server(port: int) -> list[str]:
            return arguments(self.tools[unit], self.hca, port, size, self.memory)

        def client(address: str, port: int) -> list[str]:
            return [*server(port), address]

        return Way(server=server, client=client, cpus=self.hca.cpus)


def test_alone(
    pair: Pair, way: HcaWay, samples: int, unit: str, size: int, sender: int
) -> list[float]:
    made = way.make_way(unit, size)
    return [answer(transfer(pair, sender, made, LIMIT_S), size, unit) for _ in range(samples)]


def test_at_once(
    pair: Pair, ways: Mapping[str, HcaWay], sizes: Sequence[int], samples: int
) -> dict[str, Numbers]:
    """Return the samples of each device by its tests. One that fails does not go on."""
    left = dict(ways)
    measured: dict[str, dict[Test, list[float] | contract.Unmeasured]] = {d: {} for d in ways}
    for test in tests_of(sizes):
        values = sample_at_once(pair, left, test, samples) if left else {}
        for device, of_device in values.items():
            measured[device][test] = of_device
        left = {d: way for d, way in left.items() if isinstance(values[d], list)}
    return {device: lambda *test, own=own: agree(own[test]) for device, own in measured.items()}


def sample_at_once(
    pair: Pair, ways: Mapping[str, HcaWay], test: Test, samples: int
) -> dict[str, list[float] | contract.Unmeasured]:
    """Return the samples of all devices, or why one has none. If the first samples are alike, no
    others follow."""
    unit, size, sender = test
    values: dict[str, list[float]] = {device: [] for device in ways}
    failed: dict[str, contract.Unmeasured] = {}
    for _ in range(samples):
        at_once = {d: ways[d].make_way(unit, size) for d in ways if d not in failed}
        for device, printed in transfer_at_once(pair, sender, at_once, LIMIT_S).items():
            try:
                values[device].append(answer(agree(printed), size, unit))
            except contract.Unmeasured as error:
                failed[device] = error
        firsts = [values[device][0] for device in ways if device not in failed]
        if not firsts or are_alike(firsts, ALIKE[unit]):
            break
    return values | failed


def are_alike(values: Sequence[float], spread: float) -> bool:
    """True if several values lie within this share of the largest."""
    return len(values) > 1 and max(values) - min(values) <= spread * max(values)


def processes() -> int:
    find(BANDWIDTH)
    if not active():
        raise contract.NotApplicable(NO_HCA)
    return 2


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
