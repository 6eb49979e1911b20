"""Copies from each GPU to each other one, one way at a time, both ways at once, and all at once.

By default copy engines move the bytes. With `engine=sm` the GPU's own processors do, as kernels
that read or write a neighbour's memory: rows with a gap between them cannot go by a copy engine. If
two GPUs cannot reach each other's memory, the driver stages the copy through the host; that is
measured as well and noted, because no metric can tell it from a broken link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING

import contract

if TYPE_CHECKING:
    import torch

PATTERNS = ("one_way", "both_ways", "one_to_all", "all_to_one", "all_to_all")

BENCHMARK = contract.Benchmark(
    name="peer_copy",
    version="2",
    summary="Copies between the GPUs of a node, all pairs.",
    stresses="NVLink and its switches, or PCIe between GPUs; copy engines",
    reveals="a link that is down or retries, a switch port at reduced width, peer access that is "
    "off, wrong bits",
    duration_s=45.0,
    packages=("torch",),
    gpu=True,
    min_devices=2,
    metrics=(
        contract.higher(
            "bandwidth_gbps",
            "GB/s",
            "one_way: from the first GPU of the device's name to the second; both_ways: "
            "the bytes of both directions, copied at once; one_to_all: out of a GPU to all others; "
            "all_to_one: into a GPU from all others; all_to_all: into one GPU on average",
            ceiling="links x rate of a link, per direction; NVLink of an H100 or H200: 450 GB/s",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter(
            "patterns", "one_way,both_ways", f"any of {', '.join(PATTERNS)}", more_is_stronger=True
        ),
        contract.Parameter("engine", "copy", '"copy": copy engines; "sm": kernels'),
        contract.Parameter("size_bytes", 1 << 28, "bytes per copy", smoke=1 << 20, at_least=4),
        contract.Parameter(
            "samples",
            15,
            "timed batches per pair",
            smoke=3,
            at_least=1,
            counts=("bandwidth_gbps",),
            more_is_stronger=True,
        ),
    ),
)


def measure(
    report: contract.Report, patterns: str, engine: str, size_bytes: int, samples: int
) -> None:
    import torch
    from kit.timing import gpus

    names = contract.choose("patterns", patterns, PATTERNS)
    (by,) = contract.choose("engine", engine, ["copy", "sm"])
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
    if staged and by == "sm":
        raise contract.NotApplicable(
            f"kernels need peer access, and there is none between {staged[0].replace('-', ' and ')}"
        )
    copy_all(report, devices, Copies(names, by, size_bytes), samples)


@dataclass(frozen=True)
class Round:
    """Copies that are made at once, and the name of their rate."""

    pattern: str
    device: str
    pairs: list[tuple[int, int]]  # from, to
    receivers: int = 1  # whose bytes are counted together


def schedule(names: Sequence[str], patterns: Sequence[str]) -> list[Round]:
    """Return the rounds that run one after the other."""
    gpus = range(len(names))

    def others(gpu: int) -> list[int]:
        return [peer for peer in gpus if peer != gpu]

    all_gpus = f"{names[0].partition(':')[0]}:all"
    rounds = {
        "one_way": [
            Round("one_way", f"{names[a]}-{names[b]}", [(a, b)]) for a, b in permutations(gpus, 2)
        ],
        "both_ways": [
            Round("both_ways", f"{names[a]}-{names[b]}", [(a, b), (b, a)])
            for a, b in combinations(gpus, 2)
        ],
        "one_to_all": [Round("one_to_all", names[a], [(a, b) for b in others(a)]) for a in gpus],
        "all_to_one": [Round("all_to_one", names[b], [(a, b) for a in others(b)]) for b in gpus],
        "all_to_all": [
            Round("all_to_all", all_gpus, list(permutations(gpus, 2)), receivers=len(gpus))
        ],
    }
    return [one_round for pattern in patterns for one_round in rounds[pattern]]


@dataclass(frozen=True)
class Copies:
    patterns: Sequence[str]
    engine: str
    size_bytes: int

    def buffer(self, gpu: torch.device) -> torch.Tensor:
        from kit.copies import rows, words

        return words(self.size_bytes, gpu) if self.engine == "copy" else rows(self.size_bytes, gpu)


def copy_all(
    report: contract.Report, devices: list[torch.device], copies: Copies, samples: int
) -> None:
    from kit.copies import copy_together, settle, write_pattern, wrong_words
    from kit.timing import seconds_per_call

    sent = [write_pattern(copies.buffer(gpu), salt) for salt, gpu in enumerate(devices)]
    wrong: dict[str, int] = {}
    for one_round in schedule([str(device) for device in devices], copies.patterns):
        with report.sparing_others(one_round.device):
            received = {pair: copies.buffer(devices[pair[1]]) for pair in one_round.pairs}
            first = devices[one_round.pairs[0][0]]
            settle({devices[end] for pair in one_round.pairs for end in pair})
            call = copy_together([(received[a, b], sent[a]) for a, b in one_round.pairs], first)
            seconds = seconds_per_call(call, first, samples)
            moved = len(received) * sent[0].nbytes / one_round.receivers
            wrong_now = sum(wrong_words(buffer, salt=a) for (a, _), buffer in received.items())
            metric = f"bandwidth_gbps:{one_round.pattern}"
            rates = [moved / s / 1e9 for s in seconds]
            report.add(metric, one_round.device, rates, seconds.taken)
            wrong[one_round.device] = wrong.get(one_round.device, 0) + wrong_now
    for device, count in wrong.items():
        report.add("agreement", device, contract.agreement(count))


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
