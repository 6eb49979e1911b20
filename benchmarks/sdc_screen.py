"""A search for wrong numbers that nothing reports: silent data corruption.

Ways that fail differently. Small integers have one exact answer, whatever the order of the sum, and
so has a sum with one term that is not zero, whose factors have full mantissas: the host knows it,
and the GPU's is compared with it bit for bit. Long sums of full mantissas have no such answer: they
are computed again with rows and columns moved by tiles, so that other processors do the same sums,
and the odd result tells the place. What is left, a GPU whose processors all add alike and wrong,
differs from its siblings: digests of the same numbers are compared among the GPUs of the node. The
host compares some results itself, since the comparison may be at fault.

No GPU is called healthy: the answer is "fewer than 1 wrong in so many comparisons". What is wrong
again when the same numbers are computed again is a defect, with its operation, tile and bits; what
is not was seen once.

Before some operations the GPU rests: its clocks and its voltage fall to those of an idle one, and
rise again while the operation runs. On request a share of the time goes to its lowest clock and to
its highest.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import contract
from kit.each_gpu import GPUS, each_gpu
from kit.gpus.readings import Unread
from kit.kernels import describe_kernels, uuid_of
from kit.screened_operations import NAMES, operations_on
from kit.screening import PLACED, TILE, Ledger, Operation, find_odd

if TYPE_CHECKING:
    import torch

SIZE = {"cuda": 2048, "cpu": 192}
TERMS = {"cuda": 2048, "cpu": 192}  # of a sum: more of them would not stay exact
WORK_PER_REST = 9  # times as long as a rest at least
AS_SET = "as_set"  # the clock, as somebody chose it
CLOCKS = (AS_SET, "lowest", "highest")

BENCHMARK = contract.Benchmark(
    name="sdc_screen",
    version="4",
    summary="Operations whose right bits are known, compared whole: silent data corruption.",
    stresses="matrix units, arithmetic, special functions, sorting, atomics and copies of each GPU",
    reveals="processors, and places of memory, that give wrong numbers without an error",
    duration_s=60.0,
    packages=("torch",),
    metrics=(
        contract.AGREEMENT,
        contract.Metric(
            "seen_once",
            "1",
            "lower",
            "wrong results that did not come back when the same numbers were computed again",
            judged_by="limit",
        ),
    ),
    parameters=(
        GPUS,
        contract.Parameter(
            "operations", "all", f"any of {', '.join(NAMES)}", more_is_stronger=True
        ),
        contract.Parameter(
            "seconds", 45.0, "of screening", smoke=0.0, at_least=0, more_is_stronger=True
        ),
        contract.Parameter(
            "rest_s",
            1.0,
            "seconds of rest before an operation, from idle to full load and back, in at most a "
            "tenth of the time; 0: none",
            smoke=0.0,
            at_least=0,
        ),
        contract.Parameter(
            "clocks",
            AS_SET,
            f"any of {', '.join(CLOCKS)}, each for its share of the time; only root may change a "
            "clock, which is set back, and only if the driver says what it was",
        ),
        contract.Parameter(
            "size",
            0,
            f"rows and columns, a multiple of {TILE}; "
            f"0: {SIZE['cuda']} on GPUs, {SIZE['cpu']} on a CPU",
            smoke=192,
            at_least=0,
        ),
        contract.Parameter(
            "numa_shift",
            0,
            "NUMA nodes by which the host's part is moved away from the GPU's own: what goes with "
            "the GPU is the GPU's",
            at_least=0,
        ),
    ),
)


def measure(
    report: contract.Report,
    operations: str,
    seconds: float,
    rest_s: float,
    clocks: str,
    size: int,
    numa_shift: int,
) -> None:
    from kit.numa import stay_beside_gpu
    from kit.timing import devices

    place = stay_beside_gpu(0, numa_shift)

    words = ",".join(NAMES) if operations == "all" else operations
    chosen = contract.choose("operations", words, NAMES)
    ways = contract.choose("clocks", clocks, CLOCKS)
    if size % TILE or 0 < size < 3 * TILE:
        raise contract.BadParameter(
            f'size cannot be "{size}": use a multiple of {TILE}, three tiles of which are moved'
        )
    for device in devices():
        n = size or SIZE[device.type]
        terms = min(n, TERMS[device.type])
        ledger = Ledger(rest=partial(sleep, rest_s))
        screened = operations_on(device, chosen, n, terms, ledger.left_out)
        for way in ways:
            with clock_changed(device, way, ledger) as is_changed:
                if is_changed:
                    screen(screened, ledger, seconds / len(ways), rest_s)
        report.note(size=n)
        computed_by = f"{describe_kernels(device)}, {n} x {n}"
        facts = {"places": place, "computed_by": computed_by, "uuids": uuid_of(device)}
        for fact, text in facts.items():
            report.notes.setdefault(fact, {})[str(device)] = text
        show(report, str(device), ledger)


@contextmanager
def clock_changed(device: torch.device, way: str, ledger: Ledger) -> Iterator[bool]:
    """Change the clock while the body runs; False: it cannot be, as the ledger says."""
    import torch
    from kit.gpus.clocks import change_clock
    from kit.gpus.drivers import find_driver

    with ExitStack() as changes:
        try:
            if way != AS_SET:
                driver = find_driver()
                if device.type != "cuda" or driver.CALLED != "NVML":
                    raise Unread("only clocks of NVIDIA's GPUs are changed")
                driver.begin()
                gpu = driver.find_gpu(torch.cuda.get_device_properties(device))
                changes.enter_context(change_clock(way, gpu))
        except Unread as reason:
            ledger.left_out[f"{way} clock"] = str(reason)
            yield False
        else:
            ledger.clock = way
            yield True


def screen(screened: list[Operation], ledger: Ledger, seconds: float, rest_s: float) -> None:
    """Screen round after round, each with other numbers; at least one."""
    from kit.together import start_together

    start_together()
    begun = rested = perf_counter()
    for turn in count(ledger.turns):
        for operation in screened:
            if rest_s and perf_counter() - rested >= WORK_PER_REST * rest_s:
                ledger.take_rest()
                rested = perf_counter()
            operation.screen(turn, ledger)
            ledger.has_rested = False
        ledger.turns = turn + 1
        if perf_counter() >= begun + seconds:
            ledger.seconds += perf_counter() - begun
            return


def show(report: contract.Report, device: str, ledger: Ledger) -> None:
    for name, compared in ledger.compared.items():
        report.add(f"agreement:{name}", device, contract.agreement(ledger.defects[name]))
        report.add(f"seen_once:{name}", device, [float(ledger.seen_once[name])])
        facts = report.notes.setdefault("fewer_than_one_wrong_in", {}).setdefault(device, {})
        if ledger.defects[name] and ledger.defects[name] == ledger.by_moving[name]:
            report.notes.setdefault("wrong_by_moving", {}).setdefault(device, []).append(name)
        if not ledger.defects[name] and not ledger.seen_once[name]:
            facts[name] = compared // 3  # with 95 %: the rule of three
    for fact, table in (
        ("wrong", ledger.wrong),
        ("digests", ledger.digests),
        ("left_out", ledger.left_out),
    ):
        if table:
            report.notes.setdefault(fact, {})[device] = dict(table)
    report.notes.setdefault("screened_s", {})[device] = round(ledger.seconds, 1)
    report.notes.setdefault("rests", {})[device] = ledger.rests
    if ledger.came_once:
        report.notes.setdefault("came_once", {})[device] = ledger.came_once


def compare_siblings(report: contract.Report, **_: contract.Value) -> None:
    """Compare the GPUs of a node that are alike: they computed the same numbers."""
    kinds = report.notes.get("computed_by", {})
    answers: dict[tuple[str, str], dict[str, str]] = {}
    for device, by_name in report.notes.get("digests", {}).items():
        for name, digest in by_name.items():
            answers.setdefault((name, kinds.get(device, "")), {})[device] = digest
    for (name, _kind), of_devices in answers.items():
        odd, is_known = find_odd(of_devices)
        if is_known:
            excuse_kernels(report, name, of_devices.keys() - odd, len(of_devices))
        if len(of_devices) < 2:
            continue
        if not is_known:
            report.notes.setdefault("siblings_without_majority", {})[name] = of_devices
            continue
        for device in of_devices:
            wrong = contract.agreement(int(device in odd))
            report.add(f"agreement:siblings/{name}", device, wrong)


def excuse_kernels(report: contract.Report, name: str, alike: Set[str], among: int) -> None:
    """Accuse no GPU of bits that change if rows and columns move, if they do so on most GPUs of a
    node and these agree: that is how the library adds."""
    moving = report.notes.get("wrong_by_moving", {})
    excused = {device for device in alike if name in moving.get(device, ())}
    if 2 * len(excused) <= among or len(excused) < 2:
        return
    for series in report.series:
        if series["device"] in excused and series["metric"] == f"agreement:{name}":
            series["samples"] = contract.agreement(0)
    for device in excused:
        report.notes.setdefault("left_out", {}).setdefault(device, {})[f"{name}, moved"] = PLACED


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure, compare_siblings))
