"""Faults as a campaign meets them, each with the sentence that a node gets for it, and its cause:
the words that a person would use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anubis.core.campaign.planning import follow_ups, steps
from anubis.core.fabric import rail_nics_on
from anubis.core.judge.equality import NodeSettings, judge_settings
from anubis.core.judge.judgement import DISBELIEVED
from anubis.core.judge.limits import find_excess
from anubis.core.judge.missing_values import judge_missing
from anubis.core.judge.sentences import Finding, Shortfall, find_shortfall, find_slow_samples
from anubis.core.judge.unanswered import judge_unmeasured, judge_unusable
from anubis.core.judge.verdicts import roll_up
from anubis.core.network.attribution import blamed_nodes, part_verdicts
from anubis.core.network.crossing import nic_part
from anubis.core.network.pairing import round_robin
from anubis.core.network.traffic import Traffic
from anubis.core.network.wiring import audit
from anubis.core.records import (
    Ended,
    Execution,
    Limit,
    NodeVerdict,
    PartVerdict,
    Plan,
    Readings,
    Result,
    Series,
    Verdict,
    Workload,
)
from anubis.lab.simulation.simulated_network import Fault as NetworkFault
from anubis.lab.simulation.simulated_network import SimulatedNetwork
from tests.core.fleets import entry, small_plan
from tests.core.made_fabrics import FatTree

LOWER = {"direction": "lower"}


@dataclass(frozen=True)
class Fault:
    planted: str
    found: Finding | Verdict | NodeVerdict  # what the code makes of it
    reason: str
    cause: str


def short(
    what: str, measured: float, normal: float, unit: str, device: str = "cuda:6", **other
) -> Shortfall:
    benchmark, metric = what.split()
    facts = {"direction": "higher", "similarity": 0.8, "alpha": 0.95} | other
    return Shortfall(
        benchmark=benchmark,
        metric=metric,
        unit=unit,
        device=device,
        measured=float(measured),
        normal=float(normal),
        **facts,
    )


def level(planted: str, shortfall: Shortfall, reason: str, cause: str) -> Fault:
    return Fault(planted, find_shortfall(shortfall), reason, cause)


LEVELS = [
    level(
        "half a processor",
        short("gemm tflops:fp32", 0.0708, 0.1475, "TFLOP/s", "cpu"),
        "matrix products (fp32) 52% slower than normal on cpu: 0.0708 instead of 0.147 TFLOP/s",
        "matrix products (fp32) slower than normal",
    ),
    level(
        "a PCIe link at half its width",
        short("host_device_copy d2h_gbps", 42.58, 53.48, "GB/s"),
        "copies from the GPU 20% slower than normal on cuda:6: 42.6 instead of 53.5 GB/s",
        "copies from the GPU slower than normal",
    ),
    level(
        "the same both ways",
        short("host_device_copy both_ways_gbps", 70, 88, "GB/s", "cuda:0"),
        "copies to and from the GPU at once 20% slower than normal on cuda:0: 70 instead of 88"
        " GB/s",
        "copies to and from the GPU at once slower than normal",
    ),
    level(
        "a GPU that computes slowly in training",
        short("train_transformer compute_s", 0.1947, 0.1549, "s", **LOWER),
        "the computation of a training step takes 26% longer than normal on cuda:6: 0.195 instead"
        " of 0.155 s",
        "the computation of a training step takes longer than normal",
    ),
    level(
        "a GPU that trains slowly",
        short("train_transformer samples_per_s", 332, 411.8, "1/s"),
        "training 19% slower than normal on cuda:6: 332 instead of 412 per s",
        "training slower than normal",
    ),
    level(
        "a slow launch",
        short("kernel_launch event_us", 9.0, 4.5, "us", **LOWER),
        "a kernel launch takes 100% longer than normal on cuda:6: 9 instead of 4.5 us",
        "a kernel launch takes longer than normal",
    ),
    level(
        "slow HBM",
        short("memory_bandwidth hbm_gbps:triad", 2389, 2982, "GB/s"),
        "GPU memory (triad) 20% slower than normal on cuda:6: 2,389 instead of 2,982 GB/s",
        "GPU memory (triad) slower than normal",
    ),
    level(
        "a loss that is uneven",
        short("train_cnn loss", 7.9, 7.64, "1", direction="either"),
        "training loss uneven on cuda:6: samples 20% from normal, limit 5%; their median is 7.9"
        " instead of 7.64",
        "training loss uneven",
    ),
    level(
        "a wrong loss",
        short("train_cnn loss", 9.168, 7.64, "1", direction="either"),
        "training loss 20% above normal on cuda:6: 9.17 instead of 7.64",
        "training loss above normal",
    ),
    level(
        "a GPU fell off the bus",
        short("node_health gpus", 7, 8, "1", "node"),
        "7 of 8 GPUs are there",
        "GPUs are missing",
    ),
    level(
        "two NVLinks are down",
        short("node_health nvlinks", 16, 18, "1"),
        "16 of 18 NVLinks are up on cuda:6",
        "NVLinks are down",
    ),
    level(
        "an XGMI link is down",
        short("node_health xgmi_links", 6, 7, "1"),
        "6 of 7 XGMI links are up on cuda:6",
        "XGMI links are down",
    ),
    level(
        "a socket is off",
        short("node_health cpus", 128, 224, "1", "node"),
        "128 of 224 processors are online",
        "processors are offline",
    ),
    level(
        "an RDMA port came up at half its rate",
        short("node_health port_gbps", 25, 50, "GB/s", "mlx5_0"),
        "link rate of an RDMA port 50% slower than normal on mlx5_0: 25 instead of 50 GB/s",
        "link rate of an RDMA port slower than normal",
    ),
    level(
        "a DIMM is missing",
        short("node_health memory_gb", 2032, 2164, "GB", "node"),
        "main memory 6% below normal: 2,032 instead of 2,164 GB",
        "main memory below normal",
    ),
    level(
        "a power cap",
        short("node_health power_cap_w", 400, 700, "W"),
        "power limit of a GPU 43% below normal on cuda:6: 400 instead of 700 W",
        "power limit of a GPU below normal",
    ),
    level(  # 1 % below where the limit says 5: it is the whole that is off
        "samples spread wider than normal",
        short("gemm tflops", 99, 100, "TFLOP/s", similarity=0.93),
        "matrix products uneven on cuda:6: samples 7% from normal, limit 5%; their median is 99"
        " instead of 100 TFLOP/s",
        "matrix products uneven",
    ),
    level(
        "the same about the usual median",
        short("gemm tflops", 100.04, 100, "TFLOP/s", similarity=0.93),
        "matrix products uneven on cuda:6: samples 7% from normal, limit 5%; their median is"
        " 100.04 instead of 100 TFLOP/s",
        "matrix products uneven",
    ),
    level(
        "a GPU slower than its siblings",
        short("gemm tflops", 90, 100, "TFLOP/s", than="its siblings"),
        "matrix products 10% slower than its siblings on cuda:6: 90 instead of 100 TFLOP/s",
        "matrix products slower than its siblings",
    ),
    level(
        "hardly anything is carried",
        short("pair_rdma bandwidth_gbps:forth", 0.098, 49, "GB/s", "mlx5_0-mlx5_0"),
        "transfers between two nodes (forth) over 99% slower than normal on mlx5_0-mlx5_0: 0.098"
        " instead of 49 GB/s",
        "transfers between two nodes (forth) slower than normal",
    ),
    level(
        "NCCL over sockets",
        short("collective busbw_gbps:all_reduce/8388608", 18, 364, "GB/s", "cuda"),
        "collectives (all_reduce/8388608) 95% slower than normal on cuda: 18 instead of 364 GB/s",
        "collectives (all_reduce/8388608) slower than normal",
    ),
    level(  # a program of a site: its own names
        "a metric of a program of one's own",
        short("resnet perf", 0.1531, 0.1358, "s", "gpu:2", **LOWER),
        "perf takes 13% longer than normal on gpu:2: 0.153 instead of 0.136 s",
        "resnet: perf takes longer than normal",
    ),
    level(
        "a count of one's own",
        short("count things", 3, 4, "1", "node"),
        "3 of 4 things",
        "fewer things than normal",
    ),
    level(
        "a score that is 0 normally",
        short("odd score", 0.5, 0.0, "1", "node"),
        "score above normal: 0.5 instead of 0",
        "odd: score above normal",
    ),
]


def slow_at_times() -> Finding:
    step = short("train_transformer compute_s", 0.155, 0.155, "s", "cuda:1", **LOWER)
    return find_slow_samples(step, number=5, samples=52, measured=0.1752, usual=0.155, share=0.001)


def xids() -> Finding:
    limit = Limit(benchmark="node_health", metric="xids:79", at_most=0, source="NVIDIA")
    series = Series(metric="xids:79", device="cuda:1", samples=np.array([2.0]))
    return find_excess("node_health", series, "1", limit)


def broken_limit(program_and_metric: str, value: float, device: str, **limit: float) -> Finding:
    """Plant a value outside a limit, by `program metric`."""
    program, metric = program_and_metric.split()
    series = Series(metric=metric, device=device, samples=np.array([1.0, value]))
    limits = Limit(benchmark=program, metric=metric, source="nvml.h", **limit)
    return find_excess(program, series, "1", limits)


def odd_setting(*, unread: bool = False) -> Verdict:
    """Plant a node of 8 that has another driver than most, or cannot say which it has."""
    usual = {"driver": {"node": "550.54"}}
    texts = [usual] * 7 + [{} if unread else {"driver": {"node": "535.183"}}]
    votes = [
        NodeSettings(
            node=f"n{number}",
            sku="h100",
            workload=Workload.make("node_config", "1", {}),
            texts=own,
            unread={} if own else {"driver": "nvidia-smi timed out"},
        )
        for number, own in enumerate(texts, start=1)
    ]
    return judge_settings(votes)[1][0]


def measured(plan: Plan, *rates: float) -> list[Execution]:
    """All nodes with the same rates, one for each GPU."""
    series = [
        Series(metric="rate", device=f"cuda:{gpu}", samples=np.array([rate]))
        for gpu, rate in enumerate(rates)
    ]
    result = Result(series=Readings.pack(series))
    return [
        Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)
        for step in steps(plan, 0, {node.name for node in plan.nodes})
    ]


COMPUTE = small_plan(8, [entry("compute")])


def of_n0(verdicts: Iterable[Verdict], done: Sequence[Execution]) -> NodeVerdict:
    return roll_up(COMPUTE, verdicts, (), (), done)[0]


def failed(
    how: Ended, reason: str, times: int = 1, nodes: int = 1, lost: dict[str, str] | None = None
) -> NodeVerdict:
    """The verdict on n0, on which a program fails so often, as it does on so many of 8 nodes."""
    done = measured(COMPUTE, 100.0)
    (again,) = follow_ups(COMPUTE, 0, 0, 1, [("n0",)])
    for place in range(nodes):
        done[place] = replace(done[place], ended=how, reason=reason)
    if times > 1:
        done.append(replace(done[0], step=again))
    return of_n0(judge_unmeasured(done, COMPUTE, lost or {}), done)


def half_measured() -> NodeVerdict:
    """Plant a program that ends well on a node, and no longer sees one of its GPUs."""
    done = [*measured(COMPUTE, 100.0)[:1], *measured(COMPUTE, 100.0, 100.0)[1:]]
    return of_n0(judge_missing(done, COMPUTE, ()), done)


def no_number() -> NodeVerdict:
    done = [*measured(COMPUTE, 0.0)[:1], *measured(COMPUTE, 100.0)[1:]]
    return of_n0(judge_unusable(done, COMPUTE), done)


FABRIC = FatTree(nodes=16, nodes_per_leaf=4, spines=4, rails=4).fabric()
NIC = nic_part(FABRIC, "node00001", "3")


def blamed(parts: Iterable[PartVerdict]) -> Verdict:
    return next(blamed_nodes(parts))


def slow_nic(loss: float) -> Verdict:
    network = SimulatedNetwork(
        fabric=FABRIC, faults=(NetworkFault(kind="", part=NIC, loss=loss),), noise=0.01
    )
    ends = [
        rail_nics_on(*pair, rail)
        for pairs in round_robin(FABRIC.nodes)
        for pair in pairs
        for rail in FABRIC.rails
    ]
    observations = SimulatedNetwork(fabric=FABRIC).observations(network.measure(ends))
    traffic = Traffic(observations=tuple(observations), unmeasured=frozenset())
    return blamed(part_verdicts(FABRIC, traffic))


def no_nic() -> Verdict:
    left = tuple(nic for nic in FABRIC.nics if (nic.node, nic.rail) != ("node00001", "3"))
    return blamed(audit(replace(FABRIC, nics=left)))


def others() -> Iterator[Fault]:
    reason = (
        "the computation of a training step slow at times on cuda:1: 5 of 52 samples at 0.175"
        " instead of 0.155 s, normally 0.1%"
    )
    cause = "the computation of a training step slow at times"
    yield Fault("a tenth of the steps is slow", slow_at_times(), reason, cause)
    doubt = "good when it was measured again"
    doubted = slow_at_times().cast_doubt(doubt)
    yield Fault("the same, once of two times", doubted, f"{doubt}: {reason}", f"{cause}, in doubt")
    reason = "XID errors (79) on cuda:1: 2 instead of at most 0 (NVIDIA)"
    cause = "XID errors (79) outside the limit (at most 0)"
    yield Fault("XID 79 in the kernel's log", xids(), reason, cause)
    pending = broken_limit("node_health row_remap_pending", 1, "cuda:6", at_most=0)
    state = "a row of GPU memory waits for a reset"
    yield Fault("a row waits for a reset", pending, f"{state} on cuda:6 (nvml.h)", state)
    aspect = broken_limit("node_health fabric_unhealthy:bandwidth", 1, "cuda:6", at_most=0)
    state = "the NVSwitch fabric reports a fault (bandwidth)"
    yield Fault("a slow NVSwitch fabric", aspect, f"{state} on cuda:6 (nvml.h)", state)
    answer = broken_limit("gemm agreement:bf16", 0.5, "cuda:6", at_least=0.75)
    reason = "1 wrong answer (bf16) on cuda:6"
    yield Fault("a product is wrong", answer, reason, "gemm: wrong answers")
    answers = broken_limit("gpu_burn agreement", 1 / 1301, "cuda:6", at_least=0.75)
    reason = "1,300 wrong answers on cuda:6"
    yield Fault("many products are wrong", answers, reason, "gpu_burn: wrong answers")
    tcp = broken_limit("collective agreement:by_hca", 1 / 3, "hcas", at_least=0.75)
    cause = "collective: nodes sent by TCP, not by HCAs"
    yield Fault("NCCL takes TCP", tcp, "2 nodes sent by TCP, not by HCAs", cause)
    reason = 'driver of n8 is "535.183", and "550.54" on 7 of 8 nodes of its sku'
    yield Fault("another driver", odd_setting(), reason, 'driver is "535.183"')
    reason = 'driver of n8 could not be read: nvidia-smi timed out; it is "550.54" on 7 of 7 nodes'
    unread = odd_setting(unread=True)
    yield Fault("nvidia-smi hangs", unread, f"{reason} of its sku", "driver could not be read")
    peers = "failed 2 times here, but it runs on 7 of 8 nodes"
    end = "compute was killed by SIGSEGV"
    twice = failed(Ended.FAILED, end, 2)
    yield Fault("a program crashes", twice, f"compute: {peers}: {end}", "compute crashes")
    slow = "no result within 60 s"
    twice = failed(Ended.TIMED_OUT, slow, 2)
    yield Fault("a program hangs", twice, f"compute: {peers}: {slow}", "compute hangs")
    once = failed(Ended.FAILED, end)
    yield Fault("a program fails once", once, end, "compute failed once")
    everywhere = failed(Ended.FAILED, end, nodes=8)
    yield Fault("a program fails on all nodes", everywhere, end, "compute failed")
    lost = {"n0": "no longer answers"}
    gone = failed(Ended.MEASURED, "", nodes=0, lost=lost)
    yield Fault("a node dies", gone, "no longer answers", "lost during the campaign")
    seen = "compute: 1 value that most nodes have is missing: rate on cuda:1"
    cause = "compute did not measure all that most nodes have"
    yield Fault("a program sees fewer GPUs than on its peers", half_measured(), seen, cause)
    reason = 'compute: measured rate on cuda:0 as "0": expected a positive finite number'
    yield Fault("nothing at all is moved", no_number(), reason, "compute: rate is no measurement")
    many = find_shortfall(short("gemm tflops", 720_000, 720, "TFLOP/s", similarity=1.0))
    reason = (
        "matrix products 1,000 times as high as normal on cuda:6: 720,000 instead of 720 TFLOP/s"
    )
    yield Fault(
        "a program changed its unit",
        many.cast_doubt(DISBELIEVED),
        f"{DISBELIEVED}: {reason}",
        "matrix products above normal, in doubt",
    )
    reason = (
        "NIC mlx5_3 of node00001 or its cable at leaf-3-0[1]: 40% below normal in all its 30 flows,"
        " 99.9% sure"
    )
    yield Fault("a slow NIC", slow_nic(0.4), reason, "a NIC or its cable is at fault")
    reason = reason.replace(
        "40% below normal in all its 30 flows", "carries nothing, all its 30 flows failed"
    )
    yield Fault("a dead NIC", slow_nic(1.0), reason, "a NIC or its cable is at fault")
    gone = "node00001 has no NIC on rail 3: expected one on leaf-3-0, as on 3 nodes beside it"
    yield Fault("no NIC", no_nic(), gone, "a NIC is missing")


FAULTS = [*LEVELS, *others()]
