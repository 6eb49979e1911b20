"""The ranks of a running job as evidence: those of this machine are observed for a while, those of
several machines are read from files that were written on each."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from anubis.core.diagnose.evidence import Collector, JobEvidence
from anubis.core.diagnose.live_progress import LONGEST_STILL_S
from anubis.core.errors import EvidenceError
from anubis.readers.jobs.live import (
    LiveLook,
    LiveRank,
    ask_ranks,
    evidence_of_looks,
    hang_together,
    ranks_in,
    refusals,
    stall_of,
    watch_ranks,
)
from anubis.readers.jobs.processes import PROC, live_folder, ranks_of_process
from anubis.readers.jobs.trace_reader import TraceReader
from anubis.text.files import json_value, read_text, write_whole
from anubis.text.reading import read

LIVE_S = 20.0  # how long running processes are observed
KEPT_S = 10.0  # the same if other machines observe at the same time
UNTOLD_S = LONGEST_STILL_S + 5.0  # the same if they seem to stand still


def read_live(path: Path) -> JobEvidence:
    """Evidence of running processes, with the reason why some ranks cannot be asked."""
    refused = refusals(path) if path.is_dir() else ""
    try:
        evidence = _observe_ranks(path)
    except EvidenceError:
        if refused:
            raise EvidenceError(refused) from None
        raise
    gaps = {Collector.PROCESSES: refused} if refused else {}
    return replace(evidence, gaps={**evidence.gaps, **gaps})


def write_live(place: Path, folder: Path) -> Path:
    """Write what this machine's ranks report, for a diagnosis of all machines of their job."""
    return write_look(_observe(place, KEPT_S), folder)


def _observe_ranks(path: Path) -> JobEvidence:
    """Evidence of the ranks. If the job works, no rank counts as absent, only as late."""
    looks = read_looks(look_files(path)) or [_observe(path, LIVE_S)]
    evidence = evidence_of_looks(looks)
    if hang_together(looks):
        return replace(evidence, stall=stall_of(looks, evidence))
    at_work = frozenset({Collector.PROGRESS, Collector.CALLS})
    return replace(evidence, collectors=evidence.collectors - at_work, advances=(), calls=())


def _observe(place: Path, seconds: float) -> LiveLook:
    """Watch ranks until they stand still or are shown to work; if neither is clear in time, for as
    long as a pause may last."""
    present = _rank_finder(place)
    look = ask_ranks(present())  # raises an error that says why if no rank can be asked
    began = time.monotonic()
    for look in watch_ranks(present):
        spent_s = time.monotonic() - began
        if look.hangs or spent_s >= (seconds if look.is_told else max(seconds, UNTOLD_S)):
            break
    return look


def _rank_finder(place: Path) -> Callable[[], list[LiveRank]]:
    """Make a function that finds the ranks. `place`: the folder in which ranks announce themselves,
    or /proc/PID of a process that started them."""
    if place.parent != PROC:
        return partial(ranks_in, place)
    pid = int(place.name) if place.name.isdecimal() else 0
    if folder := live_folder(pid):
        return partial(ranks_in, folder)
    ranks = ranks_of_process(pid)
    return lambda: ranks


TRACE = TraceReader(
    place="live",
    words="processes to ask",
    help="The folder in which its processes announce themselves, to be asked while it hangs; "
    "or the one that --live-to wrote into.",
    brings=(Collector.PROCESSES, Collector.STACKS, Collector.CONNECTIONS),
    order=0,  # a process may end while it is observed, and then its logs say why
    read=lambda path, _: read_live(path),
)


# --- looks that are kept as files ------------------------------------------------------------

SUFFIX = ".look"
MOST_FILES = 65_536  # looks, one for each machine
TOGETHER_S = 120.0  # looks of one question are not further apart


def write_look(look: LiveLook, folder: Path) -> Path:
    """Write a look into a file that is named after this machine."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise EvidenceError(f'cannot make "{folder}": {cause.strerror}') from None
    file = folder / f"{socket.gethostname()}{SUFFIX}"
    packed = gzip.compress(json.dumps(asdict(look)).encode(), mtime=0)
    write_whole(file, packed, EvidenceError, "the answers of this machine's ranks")
    return file


def look_files(place: Path) -> list[Path]:
    """List the files of looks; none if the place is neither such a file nor a folder of them."""
    if place.suffix == SUFFIX:
        return [place]
    try:
        return sorted(place.glob(f"*{SUFFIX}"))[:MOST_FILES]
    except OSError as cause:
        raise EvidenceError(f'cannot read "{place}": {cause.strerror}') from None


def read_looks(files: Sequence[Path]) -> list[LiveLook]:
    """Read looks that were taken at one time; files of an earlier request do not count."""
    looks = [read_look(file) for file in files]
    newest = max((look.at for look in looks), default=0.0)
    return [look for look in looks if newest - look.at <= TOGETHER_S]


def read_look(file: Path) -> LiveLook:
    text = read_text(file, EvidenceError)
    try:
        document = json_value(text)
    except ValueError as cause:
        raise EvidenceError(f'"{file}" is no look at ranks: {cause}') from None
    return read(document, LiveLook, f'"{file}"', EvidenceError)
