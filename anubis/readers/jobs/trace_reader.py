"""The record by which a file of this folder declares, as `TRACE`, what it reads of a job. The
option, the key of the site's policy and the sentence about its absence are derived from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeVar

from anubis.core.diagnose.error_classes import ErrorClasses
from anubis.core.diagnose.evidence import Collector, JobEvidence, RankMap
from anubis.core.errors import EvidenceError
from anubis.core.watch.findings import Look
from anubis.readers import jobs

File = TypeVar("File")
Read = TypeVar("Read")
MOST_RANKS = 1_000_000  # ten times the largest jobs; a trace that claims more lies


@dataclass(frozen=True, kw_only=True)
class TraceContext:
    """What a reader may use besides the path of its trace."""

    ranks: RankMap  # as far as the request names them
    classes: ErrorClasses  # meanings of log lines
    zone: tzinfo  # of times that name none
    look: Callable[[Path], Look]  # examines recorded telemetry


@dataclass(frozen=True, kw_only=True)
class TraceReader:
    """One kind of trace that jobs leave, and its reader."""

    place: str  # the option, and the key of the policy's `places`
    words: str  # what is read: "training logs"
    help: str  # of the option
    brings: tuple[Collector, ...]
    order: int  # of reading; about ranks and nodes, an earlier reader is believed first
    read: Callable[[Path, TraceContext], JobEvidence]  # raises an EvidenceError that says why


@dataclass
class Broken:
    """Reasons why files of a collector could not be read. One of them hides no other file."""

    reasons: list[str] = field(default_factory=list)

    def read(self, files: Iterable[File], reader: Callable[[File], Read]) -> Iterator[Read]:
        """Yield what is in each file that can be read."""
        for file in files:
            try:
                yield reader(file)
            except EvidenceError as cause:
                self.reasons.append(str(cause))

    def error(self, nothing: str) -> EvidenceError:
        """Return the error if no file could be read, or if there was `nothing` in them."""
        return EvidenceError(self.reasons[0] if self.reasons else nothing)

    def gaps(self, collector: Collector) -> dict[Collector, str]:
        more = f" (and {len(self.reasons) - 1} more)" if len(self.reasons) > 1 else ""
        return {collector: f"{self.reasons[0]}{more}"} if self.reasons else {}


@cache
def trace_readers() -> Mapping[str, TraceReader]:
    """All readers by their place, in the order of reading: each file of this folder that declares
    one."""
    names = sorted(f"{jobs.__name__}.{module.name}" for module in iter_modules(jobs.__path__))
    declared = (getattr(import_module(name), "TRACE", None) for name in names)
    readers = [entry for entry in declared if isinstance(entry, TraceReader)]
    return {entry.place: entry for entry in sorted(readers, key=lambda entry: entry.order)}
