"""The collectives of `collective` among the devices of one node: NVLink, or on purpose the HCAs.

`through=hca` forbids NCCL peer access, NVLink multicast and shared memory, so that all traffic
leaves by an HCA and comes back by another. What the HCAs sent meanwhile is noted as the evidence.
"""

from __future__ import annotations

import os

import contract
from kit.collectives import METRICS, PARAMETERS
from kit.collectives import measure as measure_group
from kit.group import alone, processes
from kit.network.ports import NO_HCA, active, carried_bytes, risen

ONLY_BY_HCA = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_IB_DISABLE": "0",
    "NCCL_NET": "IB",
}

BENCHMARK = contract.Benchmark(
    name="intranode_collective",
    version="2",
    summary="Collective operations of one node's devices: NCCL on GPUs, gloo on CPUs.",
    stresses="NVLink and NVSwitch, or PCIe and the HCAs; on a CPU loopback and memory",
    reveals="a degraded NVLink, a switch plane that is down, a slow HCA or PCIe slot, wrong sums",
    duration_s=20.0,
    packages=("torch",),
    min_devices=2,
    launcher="torchrun",
    metrics=METRICS,
    parameters=(
        contract.Parameter("through", "auto", '"auto": NCCL chooses; "hca": through HCAs only'),
        *PARAMETERS,
    ),
)


def measure(
    report: contract.Report, through: str, operations: str, bytes: str, samples: int
) -> None:
    if through not in ("auto", "hca"):
        raise contract.BadParameter(f'through cannot be "{through}": use auto or hca')
    if alone():
        raise contract.NotApplicable("a node with one rank has no traffic between its devices")
    if through == "hca":
        os.environ.update(hca_environment())
    before = {hca.name: carried_bytes(hca.name) for hca in active()}
    measure_group(report, operations, bytes, samples)
    if before:
        report.note(
            hcas_carried_bytes={name: risen(n, carried_bytes(name)) for name, n in before.items()}
        )


def hca_environment() -> dict[str, str]:
    from kit.timing import gpus

    if not gpus():
        raise contract.NotApplicable("only NCCL between GPUs can be sent through the HCAs")
    if not active():
        raise contract.NotApplicable(NO_HCA)
    return ONLY_BY_HCA


if __name__ == "__main__":
    contract.run(BENCHMARK, measure, processes)
