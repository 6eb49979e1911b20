"""All GPUs of a node at once, each measured by a process of its own, as jobs load a node.

The program is started again for each GPU, with only that one in sight and on the CPUs near it; in a
suite by a process that stays with the GPU for several programs (forks.py). They begin each series
together. This process loads no torch: it waits, and joins what the others report.
A GPU that hangs or fails costs its own samples and is named; those of the others stay. If the host
has no memory for so many processes at once, nothing is measured: one after the other would be
another measurement.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from signal import strsignal
from typing import Any

import contract

from kit import forks, host_memory
from kit.background import begin
from kit.gpus.cards import amd_cards, cards, choosing_variable, visible_gpus
from kit.gpus.readings import Unread
from kit.together import MEETING, STARTS, hold_meeting
from kit.tools import Output, Silent, run

DAY_S = 86400.0  # without a limit of its caller
PATIENCE_S = 20.0  # with a driver that may hang: without persistence it wakes eight GPUs first
LIMIT = "ANUBIS_LIMIT_S"  # after so long the program is ended from outside

GPUS = contract.Parameter(
    "gpus",
    "at_once",
    '"at_once": all GPUs of a node at once, as jobs load them; "in_turn": one after the other',
)

Measure = Callable[..., None]


def each_gpu(
    measure: Measure,
    measure_host: Measure | None = None,
    host_bytes: Callable[..., int] = lambda **_: 0,
) -> Measure:
    """Return a measurement that runs `measure` for every GPU, in this process if there is at most
    one, and then `measure_host`.

    `host_bytes` of the parameters: what each holds on the host, beyond what every process does.
    """

    def measure_all(report: contract.Report, gpus: str, **parameters: contract.Value) -> None:
        (way,) = contract.choose("gpus", gpus, ["at_once", "in_turn"])
        if contract.ONE_GPU in os.environ:
            from kit.numa import stay_near_gpu

            stay_near_gpu(0)
            count_cpus_again()
            measure(report, **parameters)
            report.note(host_peak_bytes={"cuda:0": host_memory.peak_bytes()})
            if late_s := STARTS.late_s:
                report.note(
                    began_together={"cuda:0": {"series": len(late_s), "late_s": max(late_s)}}
                )
            return
        if not measured_apart(report, way == "at_once", host_bytes(**parameters)):
            measure(report, **parameters)
        if measure_host:
            measure_host(report, **parameters)

    return measure_all


def count_cpus_again() -> None:
    """Let torch take the CPUs that are left to this process, if it was loaded before (forks.py)."""
    torch = sys.modules.get("torch")
    if torch and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(len(os.sched_getaffinity(0)))


def measured_apart(report: contract.Report, at_once: bool, host_bytes: int = 0) -> bool:
    """Fill the report by a process for each GPU. False: there are no two to keep apart."""
    deadline = time.monotonic() + limit_s()
    to_measure, refused = gpus()
    if len(to_measure) + len(refused) < 2:
        return False
    together = len(to_measure) or 1 if at_once else 1
    begun = min(together, forks.idle())  # they have what every process takes
    needed_bytes = (together - begun) * host_memory.PROCESS_BYTES + together * host_bytes
    in_turn = "free some, or measure with gpus=in_turn"
    if reason := host_memory.shortage(together, needed_bytes // together, in_turn):
        raise contract.Unmeasured(reason)
    names = [gpu.name for gpu in to_measure] if at_once else []
    with hold_meeting(names) as (address, meeting), ThreadPoolExecutor(together) as threads:
        meeting_at = {MEETING: address} if at_once else {}
        ask = partial(measure_gpu, deadline=deadline, more=meeting_at)
        outputs = list(threads.map(ask, to_measure))
    if meeting.left:
        report.note(left_the_others=meeting.left)
    join(report, dict(zip(to_measure, outputs, strict=True)), refused)
    return True


@dataclass(frozen=True)
class Gpu:
    name: str  # as documents have it: cuda:3, by its place on the PCI bus
    visible: str  # as CUDA_VISIBLE_DEVICES has it, or its like


def gpus() -> tuple[list[Gpu], dict[str, str]]:
    """Return GPUs to measure, and why others cannot be measured."""
    names, refused = visible_gpus(), {}
    if names is None:
        names, refused = list_gpus()
    numbered = enumerate(names)
    return [Gpu(f"cuda:{index}", name) for index, name in numbered if index not in refused], {
        f"cuda:{index}": reason for index, reason in refused.items()
    }


def list_gpus() -> tuple[list[str], dict[int, str]]:
    """Return GPUs by UUID, which stays right if a lost GPU shifts the numbers; else as /dev counts
    them."""
    by_number = [str(index) for index in range(len(cards()))]
    if not by_number or amd_cards() == cards():  # NVIDIA's driver knows nothing of them
        return by_number, {}

    from kit.gpus import nvml

    def ask() -> tuple[list[str], dict[int, str]]:
        nvml.begin()
        return nvml.names_for_cuda()

    try:
        return begin(ask).result(PATIENCE_S)
    except (Unread, TimeoutError):
        return by_number, {}


def limit_s() -> float:
    """Return the time limit of all of it: something is left to write the results."""
    seconds = float(os.environ.get(LIMIT, DAY_S))
    return seconds - min(5.0, seconds / 10)


def measure_gpu(
    gpu: Gpu, deadline: float, more: Mapping[str, str] | None = None
) -> Output | Silent:
    """Run the program with this GPU alone in sight and return its output."""
    python = os.environ.get("PYTHON_EXEC", sys.executable)  # as torchrun starts its ranks
    environment = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        choosing_variable(): gpu.visible,
        contract.ONE_GPU: gpu.name,
        **(more or {}),
    }
    seconds = max(0.1, deadline - time.monotonic())
    try:
        return run([python, *sys.argv], seconds, environment)
    except Silent:
        return Silent(f"no answer within {seconds:.3g} s")


# --- what came of it -----------------------------------------------------------------------


def join(
    report: contract.Report, outputs: Mapping[Gpu, Output | Silent], refused: Mapping[str, str]
) -> None:
    documents: dict[str, dict[str, Any]] = {}
    failed, silent = dict(refused), {}
    for gpu, output in outputs.items():
        if isinstance(output, Silent):
            silent[gpu.name] = str(output)
        elif output.exit_code == contract.BadParameter.exit_code:
            raise contract.BadParameter(reason_in(output))
        elif (document := document_of(gpu, output)) is not None:
            documents[gpu.name] = document
        else:
            failed[gpu.name] = reason_in(output)
    if documents and all(document["not_applicable"] for document in documents.values()):
        raise contract.NotApplicable(next(iter(documents.values()))["not_applicable"])
    for document in documents.values():
        for series in document["series"]:
            report.add(**series)
    own = contract.environment().keys()
    notes = {gpu: document["environment"] for gpu, document in documents.items()}
    report.note(**{name: fact for name, fact in together(notes).items() if name not in own})
    if failed:
        report.note(failed_devices=failed)
    if silent:
        report.note(silent_devices=silent)


def document_of(gpu: Gpu, output: Output) -> dict[str, Any] | None:
    """Return the document of a program, with its GPU's own name: its only GPU is called the first
    there."""
    if output.exit_code not in (0, contract.NotApplicable.exit_code):
        return None
    try:
        document: dict[str, Any] = json.loads(output.stdout.replace("cuda:0", gpu.name))
    except ValueError:
        return None
    return document


def reason_in(output: Output) -> str:
    """Return why a program ended: the signal that ended it, or its last line on stderr, in which it
    says why, without its name before it."""
    lines = output.stderr.strip().splitlines()
    if output.exit_code < 0:
        words = f'; last words on stderr: "{lines[-1]}"' if lines else ""
        number = -output.exit_code
        return f"it was killed by signal {number} ({strsignal(number)}){words}"
    line = (lines or [f"exit {output.exit_code}, without a word"])[-1]
    return line.partition(": ")[2] or line


def together(notes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Join the facts of all GPUs: tables joined, lists in a row, and what differs by GPU."""
    names = dict.fromkeys(name for facts in notes.values() for name in facts)
    joined: dict[str, Any] = {}
    for name in names:
        values = {gpu: facts[name] for gpu, facts in notes.items() if name in facts}
        joined[name] = join_fact(values)
    return joined


def join_fact(values: Mapping[str, Any]) -> Any:
    first, *rest = values.values()
    if isinstance(first, list):
        return [part for value in values.values() for part in value]
    if all(isinstance(value, dict) for value in values.values()):
        return together(values)
    return first if all(value == first for value in rest) else dict(values)
