"""The contract between a benchmark program and whoever runs it: what it declares, what it prints.

Standard library only, so that `--describe` answers at once and a program runs alone. It measures
nothing and judges nothing: no thresholds, no retries, no verdicts. A program reads

    BENCHMARK = contract.Benchmark(name="gemm", ...)

    def measure(report: contract.Report, size: int, ...) -> None:
        report.add("tflops:bf16", "cuda:0", samples)

    if __name__ == "__main__":
        contract.run(BENCHMARK, measure)

and exits with 0 (measured, good or bad), 3 (not applicable here), 2 (asked for nonsense) or
1 (could not measure).
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import gc
import json
import math
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

Value = int | float | str | bool
LAUNCHER = "ANUBIS_LAUNCHER"
TELLING = ("NCCL_", "UCX_", "TORCH_NCCL_")  # variables that explain a number
GPU_MODELS = "gpu_models"  # in an environment: the model of each GPU, by device
ONE_GPU = "ANUBIS_GPU"  # the name of the GPU for a process that measures one of several


class Unmeasured(Exception):
    """It could not be measured, for a reason that fits one line."""

    exit_code = 1


class BadParameter(Unmeasured):
    """A parameter has the right type and an impossible value."""

    exit_code = 2


class NotApplicable(Exception):
    """This machine is not one that this benchmark can say anything about.

    In a group every rank must come to the same answer, or the others wait for those that left.
    """

    exit_code = 3


# --- what a program declares ---------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str
    direction: Literal["higher", "lower", "either"]  # either: whatever differs is worse
    summary: str = ""
    ceiling: str = ""
    judged_by: Literal["fleet", "limit"] = "fleet"  # a limit: a fact, which may be 0


def higher(name: str, unit: str, summary: str = "", ceiling: str = "") -> Metric:
    """Return a metric that is better when it is higher, compared with the fleet."""
    return Metric(name, unit, "higher", summary, ceiling)


def lower(name: str, unit: str, summary: str = "", ceiling: str = "") -> Metric:
    return Metric(name, unit, "lower", summary, ceiling)


@dataclass(frozen=True)
class Setting:
    """A fact as text, such as a version. Nodes of a kind are to have the same."""

    name: str
    summary: str = ""


@dataclass(frozen=True)
class Parameter:
    """A parameter. `smoke` is its default under --smoke, `at_least` the smallest number it takes.

    `more_is_stronger`: with a larger number, or more words in its list, the program finds all that
    it finds with less. A pass with more then counts if less is asked for. `of_pair_test`: it says
    between which devices to measure, and is set for each pair of nodes; no suite sets it. `counts`:
    metrics of which each series has at least as many samples, or it counts as not measured, unless
    the parameter `unless` is set.
    """

    name: str
    default: Value
    summary: str
    smoke: Value | None = None
    at_least: float | None = None
    more_is_stronger: bool = False
    of_pair_test: bool = False
    counts: tuple[str, ...] = ()
    unless: str = ""

    def parse(self, text: str) -> Value:
        value = _READ[type(self.default)](text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("must be finite")
        if self.at_least is not None and float(value) < self.at_least:
            raise ValueError(f"must be at least {self.at_least:g}")
        return value


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    name: str
    version: str
    summary: str
    stresses: str
    reveals: str
    duration_s: float
    metrics: tuple[Metric, ...]
    level: Literal["micro", "end-to-end"] = "micro"
    scope: Literal["node", "pair", "group"] = "node"
    parameters: tuple[Parameter, ...] = ()
    packages: tuple[str, ...] = ()  # of Python: without one of them it measures nothing
    tools: tuple[str, ...] = ()
    gpu: bool = False
    hca: bool = False  # an RDMA adapter: InfiniBand, or RoCE
    min_nodes: int = 1
    min_devices: int = 1  # that take part: GPUs, or ranks where there are none
    exclusive: bool = True
    launcher: Literal["plain", "torchrun"] = "plain"
    settings: tuple[Setting, ...] = ()

    def __post_init__(self) -> None:
        if self.exclusive and self.scope == "node":
            object.__setattr__(self, "metrics", (*self.metrics, *UNDER_LOAD))

    def describe(self) -> dict[str, Any]:
        document = {"schema": "anubis.describe/1", **asdict(self)}
        needs = ("packages", "tools", "gpu", "hca", "min_nodes", "min_devices")
        document["needs"] = {key: document.pop(key) for key in needs}
        document["parameters"] = [
            {
                "name": parameter.name,
                "type": type(parameter.default).__name__,
                "default": parameter.default,
                "summary": parameter.summary,
                "more_is_stronger": parameter.more_is_stronger,
                "of_pair_test": parameter.of_pair_test,
                "counts": parameter.counts,
                "unless": parameter.unless,
            }
            for parameter in self.parameters
        ]
        return document


UNDER_LOAD = (  # of every program that has a node for itself: its GPUs are watched meanwhile
    Metric(
        "gpu_errors_per_min",
        "1/min",
        "lower",
        "how fast a GPU's counters of errors rose while the program ran, by kind",
        judged_by="limit",
    ),
    Metric(
        "gpu_held_back",
        "1",
        "lower",
        "share of looks at a busy GPU at which it slowed itself down, by reason",
        judged_by="limit",
    ),
)

AGREEMENT = higher(
    "agreement", "1", "1 when every checked answer is right, else 1 / (1 + wrong answers)", "1"
)


def agreement(wrong: int) -> list[float]:
    """Return wrong answers as a sample: a measured metric, not a crash, and positive like all
    samples."""
    return [1.0 / (1 + wrong)]


# --- what a program reports ----------------------------------------------------------------


@dataclass
class Report:
    """The collected measurements; it refuses what could not be compared later."""

    metrics: frozenset[str]
    facts: frozenset[str] = frozenset()  # those metrics that may be 0
    settings: frozenset[str] = frozenset()
    series: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_benchmark(cls, benchmark: Benchmark) -> Report:
        """Return an empty report for what the program declares."""
        return cls(
            frozenset(metric.name for metric in benchmark.metrics),
            frozenset(metric.name for metric in benchmark.metrics if metric.judged_by == "limit"),
            frozenset(setting.name for setting in benchmark.settings),
        )

    def add(
        self, metric: str, device: str, samples: Iterable[float], taken: Sequence[float] = ()
    ) -> None:
        """Add all samples of one metric on one device, warm-up dropped.

        `taken`: the share of each sample that other programs may have cost it, as
        `kit.possession` finds it.
        """
        numbers = [float(sample) for sample in samples]
        family = metric.partition(":")[0]
        if family not in self.metrics:
            raise Unmeasured(f'metric "{metric}" is not declared: {sorted(self.metrics)}')
        if any(
            (earlier["metric"], earlier["device"]) == (metric, device) for earlier in self.series
        ):
            raise Unmeasured(f'metric "{metric}" of {device} was reported twice')
        if not numbers:
            raise Unmeasured(f'metric "{metric}" of {device} has no samples')
        for number in numbers:
            if not (
                math.isfinite(number) and (number > 0 or (number == 0 and family in self.facts))
            ):
                raise Unmeasured(
                    f'metric "{metric}" of {device} has the sample {number}: '
                    "samples are positive and finite, or 0 in a metric that a limit judges"
                )
        self.series.append({"metric": metric, "device": device, "samples": numbers})
        if any(taken):
            shares = self.notes.setdefault("taken_by_others", {}).setdefault(metric, {})
            shares[device] = [*taken]

    @contextmanager
    def sparing_others(self, device: str) -> Iterator[None]:
        """Name a failure inside the block; it costs the samples of this device only."""
        try:
            yield
        except BadParameter:
            raise
        except (Unmeasured, RuntimeError) as error:  # CUDA's go on for lines
            reasons = self.notes.setdefault("failed_devices", {})
            reasons[device] = str(error).partition("\n")[0]

    def failures(self) -> str:
        """Return each reason once, after its devices."""
        devices: dict[str, list[str]] = {}
        for kind in ("failed_devices", "silent_devices"):
            for device, reason in self.notes.get(kind, {}).items():
                devices.setdefault(reason, []).append(device)
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in devices.items())

    def note(self, **facts: Value | Mapping[str, str] | None) -> None:
        """Note what was chosen or found here; parameters repeat only what was asked."""
        self.notes |= facts

    def set_as(self, name: str, device: str, text: str) -> None:
        """Report a setting or a version, in the words in which others say it.

        What differs from node to node by itself is no setting: names, addresses, serial numbers.
        """
        if name not in self.settings:
            raise Unmeasured(f'setting "{name}" is not declared: {sorted(self.settings)}')
        if not (text and text.isprintable()):
            raise Unmeasured(f'setting "{name}" of {device} is {text!a}: expected printable text')
        of_devices = self.notes.setdefault("settings", {}).setdefault(name, {})
        if device in of_devices:
            raise Unmeasured(f'setting "{name}" of {device} was reported twice')
        of_devices[device] = text

    def ceiling(self, metric: str, value: float, source: str) -> None:
        """State the most that physics allows of a metric on this machine, if a source states it."""
        self.notes.setdefault("ceilings", {})[metric] = {"value": value, "source": source}


def environment() -> dict[str, Any]:
    """Return facts of this machine that explain a number. torch is asked only if it was loaded
    anyway."""
    facts: dict[str, Any] = {
        "hostname": platform.node(),
        "kernel": platform.release(),
        "cpu": value_after("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }
    if variables := {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(TELLING)
    }:
        facts["variables"] = variables
    if driver := value_after("/proc/driver/nvidia/version", "NVRM version"):
        facts["driver"] = driver
    if torch := sys.modules.get("torch"):
        facts["torch"] = torch.__version__
        if torch.cuda.is_available():
            facts["cuda"] = torch.version.cuda or torch.version.hip
            if torch.distributed.is_available() and torch.distributed.is_nccl_available():
                facts["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
            if version := torch.backends.cudnn.version():
                facts["cudnn"] = cudnn_version(version)
            facts[GPU_MODELS] = {
                f"cuda:{gpu}": torch.cuda.get_device_name(gpu)
                for gpu in range(torch.cuda.device_count())
            }
    return facts


def cudnn_version(number: int) -> str:
    """Format a version: 91002 is 9.10.2; before version 9 there was one digit less: 8902 is
    8.9.2."""
    major = 10000 if number >= 90000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


# --- the way from the command line to the document -----------------------------------------


def run(
    benchmark: Benchmark, measure: Callable[..., None], processes: Callable[[], int] | None = None
) -> NoReturn:
    """Run the whole program, from arguments to the document.

    `processes` says how many ranks a torchrun program gets on this machine when it is run alone.
    """
    parameters, wants_description = _parse(benchmark, sys.argv[1:])
    if wants_description:
        print(json.dumps(benchmark.describe(), indent=2, allow_nan=False))
        sys.exit(0)
    in_group = "RANK" in os.environ and benchmark.launcher == "torchrun"
    atexit.register(gc.freeze)  # looking at all of torch before the end took a quarter of the time
    if in_group:
        die_with_launcher()  # torchrun gives each rank a session of its own: no group kill finds it
    document_fd = _keep_stdout()
    # threads that wait by spinning take the cores from those that work as soon as a core is shared
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    report = Report.from_benchmark(benchmark)
    started_at, clock = time.time(), time.perf_counter()
    reason = None
    try:
        if benchmark.launcher == "torchrun" and not in_group and processes:
            _lead(processes(), document_fd)
        if in_group:
            _ask_for_host_memory()
        with _gpus_watched(report):
            measure(report, **parameters)
        if not report.series:
            raise Unmeasured(report.failures() or "nothing was measured")
    except NotApplicable as refusal:
        reason, report.series = str(refusal), []
    except Unmeasured as error:
        print(f"{benchmark.name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except RuntimeError as error:  # CUDA's go on for lines: last comes the one that says it
        traceback.print_exc()
        print(f"{benchmark.name}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        sys.exit(1)
    if in_group and os.environ["RANK"] != "0":
        sys.exit(0)  # rank 0 speaks for all; a rank that failed first would cut it short
    document = {
        "schema": "anubis.result/1",
        "benchmark": benchmark.name,
        "version": benchmark.version,
        "parameters": parameters,
        "environment": environment() | report.notes,
        "started_at": started_at,
        "duration_s": time.perf_counter() - clock,
        "series": report.series,
        "not_applicable": reason,
    }
    with os.fdopen(document_fd, "w", encoding="utf-8") as stdout:
        stdout.write(json.dumps(document, allow_nan=False) + "\n")
    sys.exit(0 if reason is None else NotApplicable.exit_code)


def _ask_for_host_memory() -> None:
    try:
        from kit.host_memory import shortage_of_ranks
    except ImportError:  # a program that travels with this file alone
        return
    if reason := shortage_of_ranks():
        raise Unmeasured(reason)


def _gpus_watched(report: Report) -> AbstractContextManager[None]:
    """Watch clocks and temperatures of a node's GPUs beside whatever is measured there."""
    if os.environ.get("LOCAL_RANK", "0") != "0" or ONE_GPU in os.environ:
        return nullcontext()
    try:
        from kit.gpus.cards import cards

        if not cards():
            return nullcontext()
        from kit.gpus.gpu_watch import node_watched
    except ImportError:  # a program that travels with this file alone
        return nullcontext()
    return node_watched(report)


def die_with_launcher() -> None:
    """Let the kernel end this rank when the launcher dies, however it dies (Linux)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid()):
        sys.exit("its launcher ended before the kernel knew of their bond")


BEFORE_EXEC = """
import ctypes, os, signal, sys
parent, cpus, *argv = sys.argv[1:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(parent):
    os._exit(1)  # it died before the kernel knew of the bond
if cpus:
    os.sched_setaffinity(0, map(int, cpus.split(",")))
os.execvp(argv[0], argv)
"""


def bonded(argv: Sequence[str], cpus: frozenset[int] = frozenset()) -> list[str]:
    """Return the command for a program that dies with this process, and runs on these of its CPUs.

    A function to be called between fork and exec would do the same, but if other threads are
    running, Python may hang there for ever.
    """
    allowed = ",".join(map(str, sorted(cpus & os.sched_getaffinity(0))))
    return [sys.executable, "-I", "-S", "-c", BEFORE_EXEC, str(os.getpid()), allowed, *argv]


def split(text: str) -> list[str]:
    """Split a list at its commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def choose(parameter: str, text: str, allowed: Iterable[str]) -> list[str]:
    """Return the names in a list, each once; all of them must be allowed."""
    names = list(dict.fromkeys(split(text)))
    if not names or not set(names) <= set(allowed):
        raise BadParameter(f'{parameter} cannot be "{text}": use {", ".join(allowed)}')
    return names


def sizes(parameter: str, text: str, at_least: int = 1) -> list[int]:
    words = split(text)
    if not words or not all(word.isdecimal() and int(word) >= at_least for word in words):
        raise BadParameter(
            f'{parameter} cannot be "{text}": whole numbers from {at_least}, separated by commas'
        )
    return [int(word) for word in words]


def _keep_stdout() -> int:
    """Set the real stdout aside for the document: C libraries print to 1, which is now stderr."""
    sys.stdout.flush()
    document_fd = os.dup(1)
    os.dup2(2, 1)
    return document_fd


def _lead(processes: int, document_fd: int) -> NoReturn:
    """Be torchrun for ranks on this machine alone, and end as the first of them that failed."""
    os.dup2(document_fd, 1)
    os.environ[LAUNCHER] = str(os.getpid())
    # torchrun would set 1, and leave the other cores idle
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // processes)))
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    ranks = ["--standalone", f"--nproc-per-node={processes}"]
    no_logs = f"--log-dir={os.devnull}"  # else a folder that stays behind when it is killed
    try:
        main([*ranks, no_logs, *sys.argv])
    except ChildFailedError as error:
        sys.exit(max(1, error.get_first_failure()[1].exitcode))  # a signal's number is negative
    sys.exit(0)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (--help lists what there is)", file=sys.stderr)
        sys.exit(BadParameter.exit_code)


def _parse(benchmark: Benchmark, arguments: list[str]) -> tuple[dict[str, Value], bool]:
    metrics = ", ".join(f"{metric.name} ({metric.unit})" for metric in benchmark.metrics)
    parser = _Parser(
        description=f"{benchmark.summary} Stresses {benchmark.stresses}. Reveals "
        f"{benchmark.reveals}. Measures {metrics}.".replace("%", "%%"),
        allow_abbrev=False,
    )
    parser.add_argument("--describe", action="store_true", help="print what this is, as JSON")
    parser.add_argument("--smoke", action="store_true", help="tiny defaults: done in seconds")
    for parameter in benchmark.parameters:
        parser.add_argument(
            f"--{parameter.name}",
            metavar=type(parameter.default).__name__,
            default=argparse.SUPPRESS,
            help=f"{parameter.summary} (default: {parameter.default})".replace("%", "%%"),
        )
    options = vars(parser.parse_args(arguments))
    values: dict[str, Value] = {}
    for parameter in benchmark.parameters:
        name, smoke = parameter.name, options["smoke"] and parameter.smoke is not None
        values[name] = parameter.smoke if smoke else parameter.default  # type: ignore[assignment]
        if name in options:
            try:
                values[name] = parameter.parse(options[name])
            except ValueError as error:
                parser.error(f'parameter "{name}" cannot be "{options[name]}": {error}')
    return values, options["describe"]


def _read_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


_READ: Mapping[type, Callable[[str], Value]] = {int: int, float: float, str: str, bool: _read_bool}


def value_after(path: str | Path, label: str) -> str:
    """Return what follows `label :` in a file of the kernel, or nothing if there is no such
    file."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    values = (line.partition(":")[2].strip() for line in lines if line.startswith(label))
    return next(values, "")
