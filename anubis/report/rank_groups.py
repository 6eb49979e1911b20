"""What the ranks of a job are doing, for a page: those at one place of the program are one row, the
few first. A row says how far they came in the job's busiest communicator."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from anubis.core.diagnose.evidence import Advance, JobEvidence, ProcessState, Pulse
from anubis.core.diagnose.live_progress import is_waiting
from anubis.text.wording import quantity, short_node_list

GROUPS = 24  # rows; the largest come last, and are left out last
FRAMES = 16  # of a stack, the innermost
RANGES = 6  # of ranks, that a row lists
PULSES = {
    Pulse.STOPPED: "stopped",
    Pulse.GONE: "gone",
    Pulse.MUTE: "does not answer",
    Pulse.UNHEARD: "not heard",
}
_LINE = re.compile(r":\d+\)$")


@dataclass(frozen=True, kw_only=True)
class RankRow:
    """Plain texts, fit to be kept as JSON."""

    ranks: str
    nodes: str
    doing: str
    launched: str
    finished: str
    rests: str
    frames: Sequence[str]


def rank_groups(evidence: JobEvidence) -> tuple[list[RankRow], int]:
    """Return the groups, and how many were left out."""
    stacks = {
        stack.rank: stack.frames for stack in evidence.stacks if stack.frames and not stack.thread
    }
    processes = {process.rank: process for process in evidence.processes}
    together: dict[tuple[str, ...], list[int]] = {}
    for rank in sorted(stacks.keys() | processes.keys()):
        place = [_LINE.sub(")", frame) for frame in stacks.get(rank, ())]
        together.setdefault((_pulse(processes.get(rank)), *place), []).append(rank)
    groups = sorted(
        together.values(),
        key=lambda ranks: (is_waiting(stacks.get(ranks[0], ())), len(ranks), ranks),
    )
    kept = groups if len(groups) <= GROUPS else [*groups[: GROUPS - 1], groups[-1]]
    advances = _busiest(evidence.advances)
    return [_group(ranks, evidence, stacks, processes, advances) for ranks in kept], len(
        groups
    ) - len(kept)


def _pulse(process: ProcessState | None) -> str:
    return PULSES.get(process.pulse, "") if process else ""


def _busiest(advances: Iterable[Advance]) -> dict[int, Advance]:
    """Progress of each rank in the communicator of most ranks, and of those of most collectives."""
    advances = list(advances)
    sizes = Counter(advance.communicator for advance in advances)
    furthest: dict[str, int] = {}
    for advance in advances:
        name = advance.communicator
        furthest[name] = max(furthest.get(name, 0), advance.enqueued)
    busiest = max(sizes, key=lambda name: (sizes[name], furthest[name]), default="")
    return {advance.rank: advance for advance in advances if advance.communicator == busiest}


def _group(
    ranks: Sequence[int],
    evidence: JobEvidence,
    stacks: Mapping[int, Sequence[str]],
    processes: Mapping[int, ProcessState],
    advances: Mapping[int, Advance],
) -> RankRow:
    frames = stacks.get(ranks[0], ())
    kernel = {processes[rank].blocked_in for rank in ranks if rank in processes}
    in_kernel = f" ({kernel.pop()})" if len(kernel) == 1 and "" not in kernel else ""
    words = [_pulse(processes.get(ranks[0])), "waits for others in" if is_waiting(frames) else ""]
    place = frames[-1] if frames else "no stack is known"
    own = [advances[rank] for rank in ranks if rank in advances]
    rests = [processes[rank].rests_s for rank in ranks if rank in processes]
    rested = [seconds for seconds in rests if seconds is not None]
    nodes = {evidence.ranks.node_of(rank) for rank in ranks} - {""}
    return RankRow(
        ranks=rank_ranges(ranks),
        nodes=short_node_list(sorted(nodes)) if nodes else "-",
        doing=" ".join([*filter(None, words), f"{place}{in_kernel}"]),
        launched=_span([advance.enqueued for advance in own]),
        finished=_span([advance.completed for advance in own]),
        rests=f"{_span([round(seconds) for seconds in rested])} s" if rested else "-",
        frames=tuple(frames[-FRAMES:]),
    )


def _span(numbers: Sequence[int]) -> str:
    if not numbers:
        return "-"
    lowest, highest = min(numbers), max(numbers)
    return f"{lowest:,}" if lowest == highest else f"{lowest:,} to {highest:,}"


def rank_ranges(ranks: Sequence[int]) -> str:
    """Return text such as `0-4, 6-63`, with their number if there are several."""
    breaks = [0, *(at + 1 for at, (a, b) in enumerate(pairwise(ranks)) if b != a + 1), len(ranks)]
    parts = [ranks[start:end] for start, end in pairwise(breaks)]
    shown = [f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts[:RANGES]]
    more = f" and {sum(map(len, parts[RANGES:])):,} more" if len(parts) > RANGES else ""
    count = f"{quantity(len(ranks), 'rank')}: " if len(ranks) > 1 else "rank "
    return f"{count}{', '.join(shown)}{more}"
