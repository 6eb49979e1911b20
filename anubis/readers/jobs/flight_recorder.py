"""Dumps of PyTorch's Flight Recorder, pickled or as JSON, of NCCL and of gloo: one of each rank.

Within a dump a communicator is a number that means nothing elsewhere. Its name is taken from the
recorded calls, or, if a rank recorded none in it, from ranks with the same communicators. If ranks
send and receive in a communicator, its counts say nothing of its collectives; then, and whenever
calls were recorded, the recorded calls count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from anubis.core.diagnose.evidence import Advance, Call, CallState, Collector, JobEvidence, RankMap
from anubis.core.diagnose.hang import rank_list
from anubis.core.diagnose.transfers import recorded_transfers
from anubis.core.errors import EvidenceError
from anubis.core.text import escape_line
from anubis.readers.jobs.log_lines import written_at
from anubis.readers.jobs.plain_pickle import plain_values
from anubis.readers.jobs.ranks import NamedGroup, pipeline_stages
from anubis.readers.jobs.trace_reader import MOST_RANKS, Broken, TraceReader
from anubis.text.files import json_value, read_bytes

MOST_BYTES = 64 << 20  # of one dump
MOST_FILES = 20_000  # one for each rank
MOST_CALLS = 100_000  # of one dump
LONGEST_NAME = 120  # a name is shown in a sentence
KNOWN_VERSIONS = ("1.", "2.")
DEFAULT = "default_pg"
COALESCED = "coalesced"
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pickle|pkl|bin|gz|dump))*$")
_PAIR = re.compile(r"(\d{1,7})(?:->|<-)(\d{1,7})")


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    name: str
    description: str
    ranks: tuple[int, ...]  # empty: not recorded


@dataclass(frozen=True, kw_only=True)
class GroupStatus:
    enqueued: int
    started: int | None
    completed: int


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    group: str  # its number, on this rank
    name: str
    description: str
    collective: int
    pair: int  # among sends and receives
    order: int
    operation: str
    state: CallState
    is_pair: bool
    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    launched: float | None
    finished: float | None
    took_s: float | None
    timeout_s: float | None
    line: str


@dataclass(frozen=True, kw_only=True)
class FlightDump:
    groups: tuple[GroupConfig, ...]
    status: Mapping[str, GroupStatus]
    calls: tuple[RecordedCall, ...]


# --- reading -------------------------------------------------------------------------------------


def read_dumps(folder: Path) -> JobEvidence:
    """Read all dumps of a folder. One that cannot be read is a gap; if none can, that is an
    error."""
    files, broken = _files(folder), Broken()
    dumps: dict[int, FlightDump] = {}
    written: dict[int, float] = {}
    for path, dump in broken.read(files, _read):
        rank = files[path]
        if rank in dumps:
            broken.reasons.append(f"rank {rank} has two dumps: the later one counts")
        if rank not in dumps or _last_launch(dump) > _last_launch(dumps[rank]):
            dumps[rank], written[rank] = dump, written_at(path)
    if not dumps:
        expected = "expected files such as nccl_trace_rank_0 or _dump_0"
        raise broken.error(f'"{folder}" has no dumps: {expected}')
    newest = {rank: at for rank, dump in dumps.items() if (at := _last_launch(dump))}
    earlier = earlier_ranks(newest, _timeouts(dumps.values()))
    if earlier:
        broken.reasons.append(f"{_dumps_of(earlier)} left out: of an earlier run")
    if busy := busy_ranks(newest, written) - earlier:
        raise EvidenceError(
            f"{_dumps_of(busy)} written seconds after a launch: the job did not stand still then"
        )
    now = {rank: dump for rank, dump in dumps.items() if rank not in earlier}
    gaps = broken.gaps(Collector.CALLS)
    return _check_one_moment(evidence_of(now, expected=earlier, gaps=gaps))


def _read(path: Path) -> tuple[Path, FlightDump]:
    return path, parse_dump(read_bytes(path, EvidenceError, limit=MOST_BYTES), f'"{path}"')


def _check_one_moment(evidence: JobEvidence) -> JobEvidence:
    """Return the evidence, unless a dump is older than others."""
    if overtaken := overtaken_rank(evidence):
        rank, faster, call = overtaken
        raise EvidenceError(
            f"the dumps are not of one moment: rank {faster} had ended {call} and rank {rank},"
            " which is part of it, had not begun it"
        )
    return evidence


def _dumps_of(ranks: frozenset[int]) -> str:
    is_one = len(ranks) == 1
    dumps, were = ("dump", "was") if is_one else ("dumps", "were")
    return f"the {dumps} of {rank_list(sorted(ranks))} {were}"


def _last_launch(dump: FlightDump) -> float:
    """Return the time of the last launch; 0 if none is recorded."""
    return max((call.launched for call in dump.calls if call.launched is not None), default=0.0)


def _timeouts(dumps: Iterable[FlightDump]) -> Iterator[float]:
    return (call.timeout_s for dump in dumps for call in dump.calls if call.timeout_s is not None)


def _files(folder: Path) -> dict[Path, int]:
    """Return the files of dumps and their ranks."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as cause:
        raise EvidenceError(f'cannot read "{folder}": {cause.strerror}') from None
    files = {path: int(match[1]) for path in paths if (match := _RANK.search(path.name))}
    if len(files) > MOST_FILES:
        raise EvidenceError(f'"{folder}" has {len(files):,} dumps, at most {MOST_FILES:,} are read')
    return files


def parse_dump(data: bytes, where: str) -> FlightDump:
    try:
        document = plain_values(data) if data[:1] == b"\x80" else json_value(data.decode())
    except UnicodeDecodeError:
        raise EvidenceError(f"{where} is no dump: neither a pickle nor JSON") from None
    except (ValueError, RecursionError) as cause:
        raise EvidenceError(
            f"{where} is no dump that can be read: {escape_line(str(cause))[:200]}"
        ) from None
    return dump_of(document, where)


def dump_of(document: object, where: str) -> FlightDump:
    table = _table(document, where, "the dump")
    version = _text(table.get("version"))
    if not version.startswith(KNOWN_VERSIONS):
        raise EvidenceError(
            f'{where}: its version is "{version}", expected 2 with any number behind the point'
        )
    entries = table.get("entries", [])
    if not isinstance(entries, list):
        raise EvidenceError(f"{where}: its entries are no list")
    if len(entries) > MOST_CALLS:
        raise EvidenceError(f"{where}: {len(entries):,} entries, at most {MOST_CALLS:,} are read")
    config = _table(table.get("pg_config") or {}, where, "pg_config")
    status = _table(table.get("pg_status") or {}, where, "pg_status")
    return FlightDump(
        groups=tuple(_group(value, where) for value in config.values()),
        status={_text(key): _status(value, where) for key, value in status.items()},
        calls=tuple(_call(entry, where) for entry in entries),
    )


def _group(value: object, where: str) -> GroupConfig:
    table = _table(value, where, "a group of pg_config")
    ranks = re.findall(r"\d{1,7}", _text(table.get("ranks"), 10_000_000))
    return GroupConfig(
        name=_text(table.get("name")),
        description=_text(table.get("desc")),
        ranks=tuple(map(int, ranks[:MOST_RANKS])),
    )


def _status(value: object, where: str) -> GroupStatus:
    table = _table(value, where, "a group of pg_status")
    started = _count(table.get("last_started_collective", -1), where)
    return GroupStatus(
        enqueued=max(0, _count(table.get("last_enqueued_collective", -1), where)),
        started=started if started >= 0 else None,
        completed=max(0, _count(table.get("last_completed_collective", -1), where)),
    )


def _call(value: object, where: str) -> RecordedCall:
    entry = _table(value, where, "an entry")
    group = entry.get("process_group") or ("", "")
    if not isinstance(group, (list, tuple)) or len(group) != 2:
        raise EvidenceError(f"{where}: an entry's process_group is no pair of name and description")
    return RecordedCall(
        group=_text(entry.get("pg_id", "")),
        name=_text(group[0]),
        description=_text(group[1]),
        collective=_count(entry.get("collective_seq_id", entry.get("seq_id", 0)), where),
        pair=_count(entry.get("p2p_seq_id", 0), where),
        order=_count(entry.get("record_id", entry.get("id", 0)), where),
        operation=_text(entry.get("profiling_name")),
        state=_state(entry),
        is_pair=entry.get("is_p2p") is True,
        sizes=_sizes(entry.get("input_sizes")),
        dtypes=tuple(_text(dtype) for dtype in _list(entry.get("input_dtypes"))[:64]),
        launched=_seconds(entry.get("time_created_ns")),
        finished=_seconds(entry.get("time_discovered_completed_ns")),
        took_s=_seconds(entry.get("duration_ms"), a_second=1e3),
        timeout_s=_seconds(entry.get("timeout_ms"), a_second=1e3),
        line=_line(entry.get("frames")),
    )


def _state(entry: Mapping[Any, Any]) -> CallState:
    if entry.get("retired") is True or entry.get("state") == "completed":
        return CallState.FINISHED
    return CallState.STARTED if entry.get("state") == "started" else CallState.LAUNCHED


def _sizes(value: object) -> tuple[tuple[int, ...], ...]:
    return tuple(
        [
            tuple([number for number in _list(size)[:16] if type(number) is int and number >= 0])
            for size in _list(value)[:64]
        ]
    )


def _line(frames: object) -> str:
    first = next(iter(_list(frames)), None)
    if not isinstance(first, dict):
        return ""
    return f"{_text(first.get('filename'))}:{_text(first.get('line'))} {_text(first.get('name'))}"


def _table(value: object, where: str, name: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise EvidenceError(f"{where}: {name} is no table")
    return value


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _text(value: object, longest: int = LONGEST_NAME) -> str:
    return escape_line(str(value)[:longest]) if isinstance(value, (str, int, float)) else ""


def _count(value: object, where: str) -> int:
    """Return a count; JSON has some as texts."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    if type(value) is int and -1 <= value < 1 << 62:
        return value
    raise EvidenceError(
        f"{where}: a count is {escape_line(repr(value)[:40])}, expected a whole number"
    )


def _seconds(value: object, *, a_second: float = 1e9) -> float | None:
    """Convert nanoseconds, or another unit; None if nothing was recorded."""
    if type(value) not in (int, float) or not 0 < value < 1e20:  # type: ignore[operator]
        return None
    return float(value) / a_second  # type: ignore[arg-type]


# --- what it means -------------------------------------------------------------------------------


def evidence_of(
    dumps: Mapping[int, FlightDump],
    *,
    at: float = 0.0,
    expected: Iterable[int] = (),
    gaps: Mapping[Collector, str] | None = None,
) -> JobEvidence:
    """Return the evidence in dumps; `expected`: ranks of the job, including those that left no
    dump."""
    reading = _Reading(dumps, frozenset((*dumps, *expected)))
    calls = tuple(reading.calls())
    transfers = tuple(recorded_transfers(calls))
    met = {Collector.PROGRESS, Collector.CALLS, *([Collector.TRANSFERS] if transfers else [])}
    return JobEvidence(
        at=at,
        collectors=frozenset(met),
        gaps=gaps or {},
        advances=tuple(reading.advances()),
        calls=calls,
        transfers=transfers,
        ranks=RankMap(stages=pipeline_stages(_named_groups(dumps))),
    )


def _named_groups(dumps: Mapping[int, FlightDump]) -> Iterator[NamedGroup]:
    for rank, dump in dumps.items():
        yield NamedGroup(rank=rank, name="", members=())  # also a rank without groups has no stage
        for group in dump.groups:
            yield NamedGroup(
                rank=rank, name=f"{group.description} {group.name}", members=group.ranks
            )


GroupKey = tuple[str, str]  # name and description


class _Reading:
    def __init__(self, dumps: Mapping[int, FlightDump], ranks: frozenset[int]) -> None:
        self.dumps = dumps
        self.ranks = ranks
        self.groups = {rank: _recorded_groups(dump) for rank, dump in dumps.items()}
        for rank, naming in _infer_groups(dumps, self.groups).items():
            self.groups[rank] = {**naming, **self.groups[rank]}
        self.members = self._members()
        self.with_pairs = {
            _key(call) for dump in dumps.values() for call in dump.calls if call.is_pair
        }

    def _members(self) -> dict[tuple[int, GroupKey], tuple[int, ...]]:
        """Members of each rank's groups, in the order of their own numbers. If no dump lists them:
        the ranks that recorded a call in the group, and all ranks for the default group."""
        users: dict[GroupKey, set[int]] = {}
        groups = {
            rank: {*self.groups[rank].values(), *(_key(call) for call in dump.calls)}
            for rank, dump in self.dumps.items()  # a damaged dump calls several by one number
        }
        for rank, own in groups.items():
            for group in own:
                users.setdefault(group, set()).add(rank)
        members: dict[tuple[int, GroupKey], tuple[int, ...]] = {}
        for rank, dump in self.dumps.items():
            config = {(group.name, group.description): group.ranks for group in dump.groups}
            for group in groups[rank]:
                all_ranks = self.ranks if group[1] == DEFAULT else users[group]
                members[rank, group] = config.get(group) or tuple(sorted(all_ranks))
        return members

    @cached_property
    def _variants(self) -> Mapping[GroupKey, frozenset[tuple[int, ...]]]:
        variants: dict[GroupKey, frozenset[tuple[int, ...]]] = {}
        for (_, group), members in self.members.items():
            variants[group] = variants.get(group, frozenset()) | {members}
        return variants

    def _communicator(self, rank: int, group: GroupKey) -> str:
        return self._communicator_of(group, self.members[rank, group])

    def _communicator_of(self, group: GroupKey, members: Sequence[int]) -> str:
        """Name a communicator; several groups that ranks made by themselves may share a name."""
        name, description = group
        plain = description if description == DEFAULT else f"{description} {name}".strip()
        return plain if len(self._variants[group]) == 1 else f"{plain} from rank {members[0]}"

    def advances(self) -> Iterator[Advance]:
        for rank, dump in self.dumps.items():
            recorded: dict[GroupKey, list[RecordedCall]] = {}
            for call in dump.calls:
                recorded.setdefault(_key(call), []).append(call)
            counted_groups: set[GroupKey] = set()
            for number, group in self.groups[rank].items():
                if calls := recorded.get(group):
                    counted = _count_calls(calls)
                elif group not in self.with_pairs and number in dump.status:
                    status = dump.status[number]
                    counted = status.enqueued, status.completed, status.started, ""
                else:
                    continue
                counted_groups.add(group)
                enqueued, completed, started, operation = counted
                yield Advance(
                    rank=rank,
                    communicator=self._communicator(rank, group),
                    members=self.members[rank, group],
                    enqueued=enqueued,
                    completed=completed,
                    started=started,
                    operation=operation,
                )
            if not dump.calls and not any(seen.enqueued for seen in dump.status.values()):
                yield from self._nothing_launched(rank, dump, counted_groups)

    def _nothing_launched(
        self, rank: int, dump: FlightDump, counted: set[GroupKey]
    ) -> Iterator[Advance]:
        """Yield that a rank has come to no collective of its groups, nor to those of all ranks."""
        named = {(group.name, group.description) for group in dump.groups}
        used = {group for own in self.groups.values() for group in own.values()}
        of_all = {group for group in used if group[1] == DEFAULT}
        for group in sorted((named & used | of_all) - counted):
            members = next(members for (_, key), members in self.members.items() if key == group)
            if rank in members or group in of_all:
                yield Advance(
                    rank=rank,
                    communicator=self._communicator_of(group, members),
                    members=members,
                    enqueued=0,
                    completed=0,
                )

    def calls(self) -> Iterator[Call]:
        for rank, dump in self.dumps.items():
            for call in _whole(dump.calls):
                group = _key(call)
                yield Call(
                    rank=rank,
                    communicator=self._communicator(rank, group),
                    sequence=call.pair if call.is_pair else call.collective,
                    operation=call.operation,
                    state=call.state,
                    point_to_point=call.is_pair,
                    peer=_peer(call, self.members[rank, group]),
                    sizes=call.sizes,
                    dtypes=call.dtypes,
                    launched=call.launched,
                    finished=call.finished,
                    took_s=call.took_s,
                    members=self.members[rank, group],
                    line=call.line,
                )


def _key(call: RecordedCall) -> GroupKey:
    return call.name, call.description


def _recorded_groups(dump: FlightDump) -> dict[str, GroupKey]:
    """Return the groups in which a rank recorded calls, by their numbers. A dump without calls
    shows them only if it has one group."""
    named = [group for group in dump.groups if group.description]
    if not dump.calls and len(named) == len(dump.status) == 1:
        return dict.fromkeys(dump.status, (named[0].name, named[0].description))
    return {call.group: _key(call) for call in dump.calls}


def _infer_groups(
    dumps: Mapping[int, FlightDump], naming: Mapping[int, Mapping[str, GroupKey]]
) -> dict[int, dict[str, GroupKey]]:
    """Infer groups from ranks with the same communicators: their numbers mean groups of the same
    description."""
    layouts: dict[object, list[int]] = {}
    for rank, dump in dumps.items():
        descriptions = Counter(group.description for group in dump.groups)
        layout = frozenset(dump.status), frozenset(descriptions.items())
        layouts.setdefault(layout, []).append(rank)
    inferred: dict[int, dict[str, GroupKey]] = {}
    for alike in layouts.values():
        meant: dict[str, set[str]] = {}
        for rank in alike:
            for number, (_, description) in naming[rank].items():
                meant.setdefault(number, set()).add(description)
        for rank in alike:
            own: dict[str, list[str]] = {}
            for group in dumps[rank].groups:
                own.setdefault(group.description, []).append(group.name)
            inferred[rank] = {
                number: (own[description][0], description)
                for number, descriptions in meant.items()
                if len(descriptions) == 1
                for description in descriptions
                if len(own.get(description, ())) == 1
            }
    return inferred


def _count_calls(calls: Sequence[RecordedCall]) -> tuple[int, int, int | None, str]:
    """Count launched, finished and begun collectives, and name the operation that is under way.
    Calls that are older than the recorder's memory were finished."""
    enqueued = max(call.collective for call in calls)
    under_way = [
        call for call in calls if not call.is_pair and call.state is not CallState.FINISHED
    ]
    first = min(under_way, key=lambda call: call.collective, default=None)
    completed = first.collective - 1 if first else enqueued
    begun = [call.collective for call in under_way if call.state is CallState.STARTED]
    return enqueued, completed, max(begun, default=None), first.operation if first else ""


def _whole(calls: Sequence[RecordedCall]) -> Iterator[RecordedCall]:
    """Merge calls that were launched as one: the record of them all says how far they are, and the
    single ones say between which ranks."""
    together = {_place(call): call for call in calls if COALESCED in call.operation.lower()}
    single = {_place(call) for call in calls if COALESCED not in call.operation.lower()}
    for call in sorted(calls, key=lambda call: call.order):
        all_of_them = together.get(_place(call))
        if all_of_them is None:
            yield call
        elif call is all_of_them:
            if not (call.is_pair and _place(call) in single):
                yield call
        elif call.is_pair:
            yield _as_far_as(call, all_of_them)


def _place(call: RecordedCall) -> tuple[str, bool, int]:
    return call.group, call.is_pair, call.pair if call.is_pair else call.collective


def _as_far_as(call: RecordedCall, together: RecordedCall) -> RecordedCall:
    return replace(call, state=together.state, finished=together.finished, took_s=together.took_s)


def _peer(call: RecordedCall, members: Sequence[int]) -> int | None:
    if not (call.is_pair and (ends := _PAIR.search(call.operation))):
        return None
    number = int(ends[2])
    return members[number] if number < len(members) else None


TRACE = TraceReader(
    place="dumps",
    words="dumps of collectives",
    help="A folder of Flight Recorder dumps, one for each rank.",
    brings=(Collector.PROGRESS, Collector.CALLS),
    order=3,
    read=lambda path, _: read_dumps(path),
)


# --- dumps of one moment -----------------------------------------------------------------------
# Only dumps of one run, taken while it stood still, show which ranks are absent from a collective.

WAITED_S = 1800.0  # gloo's time-out, the longest that is usual
SLACK_S = 60.0  # a step, and what clocks differ
STILL_S = 5.0  # a rank that launched so shortly before its dump did not stand still
SYNCHRONOUS = ("allreduce", "allgather", "reducescatter", "barrier")
# no rank ends one of these before all have begun it; with uneven sizes all_to_all is none


def earlier_ranks(newest: Mapping[int, float], timeouts: Iterable[float]) -> frozenset[int]:
    """Return the ranks whose last launch is so long before the newest of all that the others would
    have timed out since: their dumps are of an earlier run."""
    limit = max(timeouts, default=WAITED_S) + SLACK_S
    last = max(newest.values(), default=0.0)
    return frozenset(rank for rank, at in newest.items() if last - at > limit)


def busy_ranks(newest: Mapping[int, float], written: Mapping[int, float]) -> frozenset[int]:
    """Return the ranks that launched a collective just before their dumps were written."""
    return frozenset(
        rank for rank, at in newest.items() if 0 <= written.get(rank, 0.0) - at < STILL_S
    )


def overtaken_rank(evidence: JobEvidence) -> tuple[int, int, str] | None:
    """Return a rank whose dump is older than that of another one, which ended a collective that
    needs both: the rank, the other one, and the collective. None: there is none."""
    ended: dict[str, tuple[int, int, str]] = {}
    for call in evidence.calls:
        if call.state is CallState.FINISHED and is_synchronous(call.operation):
            best = ended.get(call.communicator, (0, 0, ""))
            ended[call.communicator] = max(best, (call.sequence, call.rank, call.operation))
    for advance in evidence.advances:
        sequence, faster, operation = ended.get(advance.communicator, (0, 0, ""))
        if advance.enqueued < sequence:
            return advance.rank, faster, f"{operation} {sequence} of {advance.communicator}"
    return None


def is_synchronous(operation: str) -> bool:
    plain = operation.lower().replace("_", "")
    return any(name in plain for name in SYNCHRONOUS) and "coalesced" not in plain
