"""Copies from each GPU to each other one, one way at a time and both ways at once.

Where two GPUs cannot reach each other's memory the driver stages the copy through the host; that
is measured as well and noted, because no metric can tell it from a broken link.
"""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING

import contract

if TYPE_CHECKING:
    import torch

BENCHMARK = contract.Benchmark(
    name="peer_copy",
    version="1",
    summary="Copies between the GPUs of a node, all pairs.",
    stresses="NVLink and its switches, or PCIe between GPUs; copy engines",
    reveals="a link that is down or retries, a switch port at reduced width, peer access that is "
    "off, wrong bits",
    duration_s=45.0,
    gpu=True,
    min_devices=2,
    metrics=(
        contract.higher(
            "bandwidth_gbps",
            "GB/s",
            "one_way: from the first GPU of the device's name to the second; both_ways: "
            "the bytes of both directions, copied at once",
            ceiling="links x rate of a link, per direction; NVLink of an H100 or H200: 450 GB/s",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter("size_bytes", 1 << 28, "bytes per copy", smoke=1 << 20, at_least=4),
        contract.Parameter(
            "samples", 15, "timed batches per pair", smoke=3, at_least=1, more_is_stronger=True
        ),
    ),
)


def measure(report: contract.Report, size_bytes: int, samples: int) -> None:
    import torch
    from _timing import gpus

    count = gpus()
    if count < 2:
        gpus_here = "only one" if count else "none"
        raise contract.NotApplicable(
            f"copies between GPUs need two of them, and here is {gpus_here}"
        )
    devices = [torch.device("cuda", index) for index in range(count)]
    staged = [
        f"{a}-{b}"
        for a, b in permutations(devices, 2)
        if not torch.cuda.can_device_access_peer(a, b)
    ]
    report.note(peer_access=not staged, staged_through_host=",".join(staged))
    copy_all_pairs(report, devices, size_bytes, samples)


def schedule(gpus: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """What runs one after the other: each time one copy from a to b, or two at once."""
    one_way = [("one_way", [pair]) for pair in permutations(range(gpus), 2)]
    both_ways = [("both_ways", [(a, b), (b, a)]) for a, b in combinations(range(gpus), 2)]
    return one_way + both_ways


def copy_all_pairs(
    report: contract.Report, devices: list[torch.device], size_bytes: int, samples: int
) -> None:
    from _copies import at_once, settle, words, write_pattern, wrong_words
    from _timing import seconds_per_call

    sent = [write_pattern(words(size_bytes, gpu), salt) for salt, gpu in enumerate(devices)]
    received = [words(size_bytes, gpu) for gpu in devices]
    wrong: dict[str, int] = {}
    for ways, copies in schedule(len(devices)):
        (a, b), *_ = copies
        pair = f"{devices[a]}-{devices[b]}"
        with report.sparing_others(pair):
            for _, target in copies:
                received[target].zero_()
            settle([devices[a], devices[b]])
            call = at_once([(received[y], sent[x]) for x, y in copies], devices[a])
            seconds = seconds_per_call(call, devices[a], samples)
            rates = [len(copies) * sent[a].nbytes / s / 1e9 for s in seconds]
            wrong_now = sum(wrong_words(received[y], salt=x) for x, y in copies)
            report.add(f"bandwidth_gbps:{ways}", pair, rates)
            wrong[pair] = wrong.get(pair, 0) + wrong_now
    for pair, count in wrong.items():
        report.add("agreement", pair, contract.agreement(count))


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
