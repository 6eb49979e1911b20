"""Orders for guardians, from benchmarks, and events from the outcomes of guardians.

Pure: it starts nothing and reads no file. The catalog decides what a document means; this module
only how an execution ended, in one sentence for the report.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from anubis.core.campaign.state_machine import Failed, Launch, Measured, TimedOut
from anubis.core.errors import ContractError, MisdatedError
from anubis.core.records import (
    FAILED_DEVICES,
    VARIABLE,
    BenchmarkSpec,
    ParameterValue,
    Result,
)
from anubis.core.text import escape_line, make_storable
from anubis.reach.executors.machine import Machine
from anubis.reach.executors.start_settings import (
    Program,
    Rendezvous,
    StartSettings,
)

ProgramOrder = dict[str, Any]
ProgramOutcome = Mapping[str, Any]
RunTimes = tuple[float, float]  # when a program began and ended, by the clock of its node
Parse = Callable[[str, BenchmarkSpec, Mapping[str, ParameterValue], RunTimes | None], Result]

STDOUT_LIMIT_BYTES = 16 << 20  # a document of about a million samples
STDERR_LIMIT_BYTES = 16 << 10  # the last words are the cause
GRACE_S = 2.0  # between SIGTERM and SIGKILL
LAST_WORDS = 160  # characters, so that a reason stays one line
NOT_APPLICABLE = 3  # an exit code of the benchmark contract


def order(
    program: Program,
    arguments: Mapping[str, ParameterValue],
    timeout_s: float,
    machine: Machine,
    rendezvous: Rendezvous | None = None,
    settings: StartSettings | None = None,
) -> ProgramOrder:
    settings = settings or StartSettings()
    launcher: list[str] = []
    env = {"ANUBIS_LIMIT_S": f"{timeout_s:g}"}  # of GPUs that hang, the others' samples stand
    if rendezvous is not None:
        processes = rendezvous.processes
        env = network(machine.interface)
        if processes == 1:
            env |= as_only_rank(rendezvous)
        else:
            launcher = torchrun(rendezvous, machine.address)
            # torchrun would set 1, and leave the other cores idle
            env["OMP_NUM_THREADS"] = str(max(1, machine.cores // processes))
    if settings.ports:
        env["ANUBIS_PORTS"] = settings.ports
    variables, parameters = split_arguments(arguments)
    chosen = {**settings.env, **variables}
    is_ours = program.file.suffix == ".py" and not settings.prefix
    by_gpu = any(parameter.name == "gpus" for parameter in program.spec.parameters)
    is_first = bool(launcher) or (by_gpu and not machine.gpus)  # the process itself loads torch
    kit = (program.library or program.file.parent) / "kit"
    return {
        "forks": str(kit / "forks.py") if is_ours and (is_first or machine.gpus > 1) else "",
        "by_gpu": by_gpu,
        "is_first_forked": is_first,
        "argv": [
            *settings.prefix,
            *program.argv(settings.python or machine.python, launcher),
            *(f"--{name}={spell(value)}" for name, value in sorted(parameters.items())),
        ],
        "env": {k: value for k, value in env.items() if k not in machine.is_set} | chosen,
        "vacant_gpus": machine.gpus > 0 and program.spec.exclusive and not settings.shared_gpus,
        "library": str(program.library or ""),
        "cwd": str(program.file.parent),
        "timeout_s": timeout_s,
        "grace_s": GRACE_S,
        "stdout_limit": STDOUT_LIMIT_BYTES,
        "stderr_limit": STDERR_LIMIT_BYTES,
    }


def split_arguments(
    arguments: Mapping[str, ParameterValue],
) -> tuple[dict[str, str], dict[str, ParameterValue]]:
    """Split arguments into variables of the environment that a suite sets, and the program's own
    parameters."""
    variables = {
        name.removeprefix(VARIABLE): str(value)
        for name, value in arguments.items()
        if name.startswith(VARIABLE)
    }
    return variables, {k: value for k, value in arguments.items() if not k.startswith(VARIABLE)}


def processes_on_each(machines: Sequence[Machine]) -> int:
    """Return the number of processes on each node: one for each GPU of the best equipped. A node
    that lacks one must say so, not hang the others.

    A CPU node takes part as one, and alone as two, so that there is a group.
    """
    return max(machine.gpus for machine in machines) or (2 if len(machines) == 1 else 1)


def torchrun(rendezvous: Rendezvous, own_address: str) -> list[str]:
    return [
        "-m",
        "torch.distributed.run",
        "--rdzv-backend=static",
        f"--nnodes={rendezvous.nodes}",
        f"--node-rank={rendezvous.rank}",
        f"--nproc-per-node={rendezvous.processes}",
        f"--master-addr={rendezvous.address}",
        f"--master-port={rendezvous.port}",
        f"--local-addr={own_address}",  # else it asks DNS for a name of this host
        f"--log-dir={os.devnull}",  # else a folder that stays behind when it is killed
    ]


def as_only_rank(rendezvous: Rendezvous) -> dict[str, str]:
    """Return what torchrun sets for its only rank. torchrun would import torch to do so: for most
    pairs of CPU nodes that takes longer than to measure them."""
    world_size, own_rank = str(rendezvous.nodes), str(rendezvous.rank)
    return {
        "RANK": own_rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": own_rank,
        "GROUP_WORLD_SIZE": world_size,
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.port),
    }


def network(interface: str) -> dict[str, str]:
    """Return variables that choose the interface. Otherwise gloo takes the one that the host's name
    resolves to: often loopback.

    Without the equals sign NCCL would take every interface whose name begins so.
    """
    exactly = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
    return exactly if interface else {}


def spell(value: ParameterValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- how it ended --------------------------------------------------------------------------


UNSAID: ProgramOutcome = {  # what holds where a report leaves something out
    "exit": None,
    "signal": None,
    "timed_out": False,
    "unheard": False,
    "flooded": False,
    "killed": False,
    "left_behind": 0,
    "unkillable": [],
    "could_not_start": "",
    "stdout": "",
    "stderr": "",
    "started_at": 0.0,
    "duration_s": 0.0,
}


def outcome_in(report: bytes | bytearray) -> ProgramOutcome:
    """Parse the report of a guardian; {} if it was killed before it could report, or halfway."""
    try:
        document = json.loads(report)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {"could_not_start": f"its guardian reported {type(document).__name__}, no table"}
    for name, value in document.items():
        if name in UNSAID and not _is_reportable(name, value):
            return {"could_not_start": f'its guardian reported a {name} of "{value!a:.40}"'}
    texts = {
        name: make_storable(value) for name, value in document.items() if isinstance(value, str)
    }
    return {**UNSAID, **document, **texts} if document else {}


def _is_reportable(name: str, value: object) -> bool:
    """Return true for a value that a guardian reports; a program may have written the report in its
    place."""
    if isinstance(value, list):
        return name == "unkillable" and all(type(pid) is int for pid in value)
    return type(value) is type(0 if UNSAID[name] is None and value is not None else UNSAID[name])


def failed_event(launch: Launch, at: float, reason: str, *, infrastructure: bool = False) -> Failed:
    step_id, attempt = launch.step.id, launch.attempt
    return Failed(
        step_id=step_id, attempt=attempt, at=at, reason=reason, infrastructure=infrastructure
    )


def measured_in_part(measured: Measured) -> Measured | Failed | TimedOut:
    """Return a failure if one device of several did not answer; what the others measured stays."""
    reasons = measured.result.unanswered
    if not reasons:
        return measured
    return (Failed if measured.result.environment.get(FAILED_DEVICES) else TimedOut)(
        step_id=measured.step_id,
        attempt=measured.attempt,
        at=measured.at,
        reason="; ".join(f"{device}: {reason}" for device, reason in reasons.items()),
        result=measured.result,
    )


def event_of(
    outcome: ProgramOutcome, launch: Launch, spec: BenchmarkSpec, at: float, parse: Parse
) -> Measured | Failed | TimedOut:
    """Return the event that an outcome amounts to; `outcome` is the guardian's, or {} for its
    silence."""
    event = _end_in(outcome, launch, spec, at, parse)
    return _lose_stuck(event, {launch.step.participants[0]: outcome}, spec)


def _end_in(
    outcome: ProgramOutcome, launch: Launch, spec: BenchmarkSpec, at: float, parse: Parse
) -> Measured | Failed | TimedOut:
    step, attempt = launch.step, launch.attempt
    if outcome.get("unheard"):
        reason = (
            f"{spec.name} kept its guardian from reporting long past its limit of"
            f" {step.timeout_s:g} s, as one that stops other processes does; all were killed"
        )
        return TimedOut(step_id=step.id, attempt=attempt, at=at, reason=reason)
    if outcome.get("timed_out"):
        waited_s = outcome.get("waited_s", 0.0)
        more = f" and {waited_s:.0f} s of waiting for a processor" if waited_s else ""
        reason = f"no answer within {step.timeout_s:g} s{more}; {killed_with(outcome)}"
        return TimedOut(step_id=step.id, attempt=attempt, at=at, reason=reason)
    if could_not_run(outcome) or port_was_taken(outcome, spec):
        return failed_event(launch, at, failure(outcome, spec), infrastructure=True)
    if reason := failure(outcome, spec):
        return failed_event(launch, at, reason)
    began = outcome["started_at"]
    ran = (began, began + outcome["duration_s"]) if began else None
    try:
        result = parse(outcome["stdout"], spec, split_arguments(launch.parameters)[1], ran)
    except ContractError as error:
        reason = add_last_words(f"{spec.name}: {error}", outcome, spec)
        is_misdated = isinstance(error, MisdatedError)  # which says nothing of the node
        return failed_event(launch, at, reason, infrastructure=is_misdated)
    not_applicable, exited = bool(result.not_applicable), exit_code(outcome, spec)
    if not_applicable != (exited == NOT_APPLICABLE):
        document = f'"{result.not_applicable}"' if not_applicable else "none"
        reason = (
            f"{spec.name} exited with {exited}, but its document's reason for being not applicable"
            f" is {document}: exit {NOT_APPLICABLE} and a reason go together"
        )
        return failed_event(launch, at, reason)
    if outcome["left_behind"]:
        facts = {**result.environment, "processes_left_behind": outcome["left_behind"]}
        result = replace(result, environment=facts)
    return measured_in_part(Measured(step_id=step.id, attempt=attempt, at=at, result=result))


def _lose_stuck(
    event: Measured | Failed | TimedOut, outcomes: Mapping[str, ProgramOutcome], spec: BenchmarkSpec
) -> Measured | Failed | TimedOut:
    """Mark nodes as lost on which a process outlived SIGKILL, however well its program ended."""
    stuck = {
        name: pids for name, outcome in outcomes.items() if (pids := outcome.get("unkillable"))
    }
    if not stuck:
        return event
    pids = ", ".join(str(pid) for pid in [*chain.from_iterable(stuck.values())][:5])
    reason = f"pid {pids} of {spec.name} outlived SIGKILL: stuck in the kernel, look at the node"
    parts = [part for part in (event.reason, reason) if part]
    return replace(event, reason="; ".join(parts), lost=tuple(stuck))


def failure(outcome: ProgramOutcome, spec: BenchmarkSpec, *, document: bool = True) -> str:
    """Return the reason why there is nothing to read; "" if it ended well, with its document if one
    is expected."""
    name = spec.name
    if not outcome:
        return f"the guardian of {name} ended without a report; was it killed for memory?"
    if outcome.get("could_not_start"):
        return f"{name} could not be run: {outcome['could_not_start']}"
    if outcome.get("killed"):
        return f"{name} was ended early; {killed_with(outcome)}"
    if outcome["flooded"]:
        return (
            f"{name} wrote over {STDOUT_LIMIT_BYTES >> 20} MiB to stdout (one JSON document "
            f"expected); {killed_with(outcome)}"
        )
    number, code = death_signal(outcome, spec), exit_code(outcome, spec)
    if number is not None:
        killed = f"{name} was killed by {signal_name(number)}"
        killed += "; was that for memory?" if number == signal.SIGKILL else ""
        return add_last_words(killed, outcome, spec)
    if code not in (0, NOT_APPLICABLE):
        return add_last_words(f"{name} exited with {code}", outcome, spec)
    if document and not outcome["stdout"].strip():
        nothing = f"{name} exited with {code} but wrote nothing to stdout (one JSON document"
        return add_last_words(f"{nothing} expected)", outcome, spec)
    return ""


def could_not_run(outcome: ProgramOutcome) -> bool:
    return not outcome or bool(outcome.get("could_not_start"))


def port_was_taken(outcome: ProgramOutcome, spec: BenchmarkSpec) -> bool:
    """True if the rendezvous port was bound between our finding it free and torchrun's binding
    it."""
    return (
        spec.launcher == "torchrun"
        and exit_code(outcome, spec) != 0
        and bool(re.search(r"EADDRINUSE|address already in use", outcome.get("stderr", ""), re.I))
    )


def killed_with(outcome: ProgramOutcome) -> str:
    left_behind = outcome.get("left_behind", 0)
    plural = "es" if left_behind > 1 else ""
    return f"killed with {left_behind} more process{plural}" if left_behind else "killed"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --- torchrun stands between us and the program --------------------------------------------

_TORCHRUN_LINE = re.compile(r"^[IWE]\d{4} .*torch/distributed/|^\*{5}")
_OF_A_GPU = re.compile(r"CUDA error|HIP error|NCCL error|CU(BLAS|DNN)_STATUS|out of memory")
_TORCHRUN_VERDICT = re.compile(r"failed \(exitcode: (-?\d+)\)")


def exit_code(outcome: ProgramOutcome, spec: BenchmarkSpec) -> int | None:
    return _exit_and_signal(outcome, spec)[0]


def death_signal(outcome: ProgramOutcome, spec: BenchmarkSpec) -> int | None:
    return _exit_and_signal(outcome, spec)[1]


def _exit_and_signal(outcome: ProgramOutcome, spec: BenchmarkSpec) -> tuple[int | None, int | None]:
    """Return exit code and signal of the child: torchrun exits with 1 whatever happened to it, and
    names the cause on stderr."""
    behind = spec.launcher == "torchrun" and outcome.get("exit") == 1
    verdict = _TORCHRUN_VERDICT.search(outcome.get("stderr", "")) if behind else None
    if verdict is None:
        return outcome.get("exit"), outcome.get("signal")
    code = int(verdict[1])
    return (code, None) if code >= 0 else (None, -code)


def last_words(outcome: ProgramOutcome, spec: BenchmarkSpec) -> str:
    stderr: str = outcome.get("stderr", "")
    if spec.launcher == "torchrun":
        verdict = _TORCHRUN_VERDICT.search(stderr)
        stderr = stderr[: stderr.rfind("\n", 0, verdict.start()) + 1] if verdict else stderr
    lines = [line.strip() for line in stderr.splitlines()]
    spoken = [line for line in lines if line and not _TORCHRUN_LINE.match(line)]
    telling = [line for line in spoken if _OF_A_GPU.search(line)]  # before ranks that lost a peer
    words = (telling or spoken or [""])[-1]
    words = escape_line(words)
    return words if len(words) <= LAST_WORDS else words[: LAST_WORDS - 1] + "…"


def add_last_words(reason: str, outcome: ProgramOutcome, spec: BenchmarkSpec) -> str:
    words = last_words(outcome, spec)
    return f'{reason}; last words on stderr: "{words}"' if words else reason


# --- a group ends as one -------------------------------------------------------------------

_BLAMES_A_PEER = re.compile(
    r"by peer|connection (refused|closed)|broken pipe|remote process exited|socket timeout", re.I
)


def culprit(outcomes: Mapping[str, ProgramOutcome], spec: BenchmarkSpec) -> list[str]:
    """Return the participant that failed first, not the ones that failed because of it."""
    failed = [
        node
        for node, outcome in outcomes.items()
        if not outcome.get("killed") and failure(outcome, spec, document=False)
    ]

    def innocence(node: str) -> int:
        outcome = outcomes[node]
        if could_not_run(outcome) or outcome["flooded"] or death_signal(outcome, spec):
            return 0
        return 2 if _BLAMES_A_PEER.search(last_words(outcome, spec)) else 1

    return sorted(failed, key=innocence)[:1]


def group_event_of(
    outcomes: Mapping[str, ProgramOutcome],
    launch: Launch,
    spec: BenchmarkSpec,
    at: float,
    parse: Parse,
) -> Measured | Failed | TimedOut:
    """Return the event of a group: the document of the first participant, or the failure of any."""
    participants = launch.step.participants
    answer = outcomes.get(participants[0], {})
    late = [node for node, outcome in outcomes.items() if outcome.get("timed_out")]
    if late:
        at_fault = late
    elif exit_code(answer, spec) == NOT_APPLICABLE:
        at_fault = []  # torchrun turns it into a failure, which makes the others fail
    else:
        at_fault = culprit(outcomes, spec)
    event = _end_in(outcomes[at_fault[0]] if at_fault else answer, launch, spec, at, parse)
    if not isinstance(event, Measured) and len(at_fault) not in (0, len(participants)):
        event = replace(event, reason=f"on {', '.join(at_fault)}: {event.reason}")
    return _lose_stuck(event, outcomes, spec)
