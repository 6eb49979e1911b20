"""Recorded telemetry of a job's nodes as evidence: the look at it."""

from __future__ import annotations

from pathlib import Path

from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.errors import AnubisError, EvidenceError
from anubis.readers.jobs.trace_reader import TraceContext, TraceReader


def read_telemetry(path: Path, context: TraceContext) -> JobEvidence:
    try:
        look = context.look(path)
    except AnubisError as error:
        raise EvidenceError(str(error)) from None
    return JobEvidence(at=look.end, collectors=frozenset({Collector.TELEMETRY}), look=look)


TRACE = TraceReader(
    place="telemetry",
    words="telemetry",
    help="Recorded telemetry of its nodes: CSV, Parquet or text.",
    brings=(Collector.TELEMETRY,),
    order=8,
    read=read_telemetry,
)
