"""Errors that the user can act on.

AnubisError                exit code 2: no verdict
├── UsageError             exit code 64 (EX_USAGE): the command line asks for something impossible
│   ├── HostlistError      a node list that cannot be read
│   └── UnknownNameError   a name or path that no file has; a ConfigError as well
├── ConfigError            exit code 64: a file under configs/ (or one like it) is not valid
├── CatalogError           a benchmark is absent, or does not describe itself
├── ContractError          a benchmark ran but broke the contract of its document
│   └── MisdatedError      the document is not of this run, or a clock is wrong
├── CriteriaError          criteria that cannot be read, learned or compared
│   └── NothingLearnedError  there are none yet for these nodes and this suite
├── RiskError              a risk model cannot be learned, read or asked
├── TopologyError          the description of a fabric cannot be read
├── TelemetryError         reports of nodes are missing, or cannot be read
├── WatchError             a watch model cannot be learned, read or asked
├── EvidenceError          the logs, dumps or traces of a job cannot be read
├── TraceError             a trace of jobs cannot be read, or has no jobs
├── Stopped                exit code 130: an operation was ended early; the text says how to go on
├── OutputError            the answer could not be written
├── MissingPackageError    a Python package that only some installations have is not there
├── ExecutorError          no node can be reached any more (not only one)
├── OrchestratorError      the owner of the nodes does not answer, refuses, or has them in use
│   └── OrchestratorSilentError  it does not answer at all: another order would wait as long
├── NotifyError            the receiver of messages does not answer, or refuses one
└── StoreError             the history cannot be read or written
    ├── StoreUnreachableError  it cannot be reached now; a later try may succeed
    ├── StoreFailedError       its database refuses: it is full, damaged or not writable
    ├── CampaignTakenError     another process drives that campaign
    ├── TakenNameError         exit code 64: the history has a record of that name already
    └── UnknownRecordError     exit code 64: the history has no record of that name
        └── UnknownCampaignError

Exit code 64 means that a person has to change the request or a configuration: an option, a node
list, an unknown or taken name, or a file that the request names and that cannot be used (whoever
reads it does so in `named_by_request`). It says nothing about any node, and leaves no trace. If
something else cannot be read, such as the history, the exit code is 2.

An error names the thing, what was expected, what was found and what to do next,
in lower case with the value in quotes. Anything else that escapes is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

MISUSED = 64  # as sysexits.h has it: EX_USAGE
INTERRUPTED = 130  # as shells have it: 128 + SIGINT


class AnubisError(Exception):
    """A condition the user can act on; the CLI prints it on one line and exits with its code."""

    exit_code = 2


class UsageError(AnubisError):
    exit_code = MISUSED


class HostlistError(UsageError, ValueError):
    """A ValueError as well, so that a record refuses a node list like any other value."""


class ConfigError(AnubisError):
    exit_code = MISUSED


class UnknownNameError(UsageError, ConfigError):
    pass


class CatalogError(AnubisError):
    pass


class ContractError(AnubisError):
    pass


class MisdatedError(ContractError):
    pass


class CriteriaError(AnubisError):
    pass


class NothingLearnedError(CriteriaError):
    pass


class RiskError(AnubisError):
    pass


class TopologyError(AnubisError):
    pass


class TelemetryError(AnubisError):
    pass


class FetchError(AnubisError):
    """No whole answer to an HTTP request."""


class WatchError(AnubisError):
    pass


class EvidenceError(AnubisError):
    pass


class TraceError(AnubisError):
    pass


class Stopped(AnubisError):
    exit_code = INTERRUPTED


class OutputError(AnubisError):
    pass


class MissingPackageError(AnubisError):
    pass


class ExecutorError(AnubisError):
    pass


class OrchestratorError(AnubisError):
    pass


class OrchestratorSilentError(OrchestratorError):
    pass


class BusyNodesError(AnubisError):
    """Others work on the nodes: nothing was started, and the same may begin later."""


class NotifyError(AnubisError):
    def __init__(
        self, sentence: str, *, is_refusal: bool = False, pause_s: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.is_refusal = is_refusal  # of this message only: others may be received
        self.pause_s = pause_s  # that the receiver asks for


class StoreError(AnubisError):
    pass


class StoreUnreachableError(StoreError):
    pass


class StoreFailedError(StoreError):
    pass


class CampaignTakenError(StoreError):
    pass


class UnknownRecordError(StoreError):
    exit_code = MISUSED


class TakenNameError(StoreError):
    exit_code = MISUSED


class UnknownCampaignError(UnknownRecordError):
    pass


@contextmanager
def named_by_request(is_named: bool = True) -> Iterator[None]:
    """Make errors of this block wrong usage: it only reads or runs what the request names."""
    try:
        yield
    except AnubisError as error:
        if is_named:
            error.exit_code = MISUSED
        raise


def did_you_mean(word: str, known_words: Iterable[str]) -> str:
    """A hint to append to an error: the closest known word, or all of them if none is close."""
    words = sorted(known_words)
    close = get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    return "known: " + ", ".join(words) if words else "none are known"
