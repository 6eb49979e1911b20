"""Looks at the ranks of a job by the agents on its nodes: all are asked at once, each speaks of its
own node only, and a node that does not answer is missing.

An agent begins its look and answers at once; then it is asked again and again for what the look
brought. So a node without an agent costs seconds, and few threads suffice for many nodes. All
answers together take limited time, room and memory.
"""

from __future__ import annotations

import re
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from anubis.core.errors import EvidenceError, TelemetryError
from anubis.core.text import escape_line
from anubis.readers.jobs.live import MOST_HERE, LiveLook
from anubis.readers.jobs.live_trace import parse_look
from anubis.readers.jobs.trace_reader import MOST_RANKS
from anubis.readers.telemetry.agents import AgentClient
from anubis.text.files import GZIPPED, json_value, unpack

FORM = 1  # of the agents' answers
DEADLINE_S = 75.0  # for all of it: a look takes 65 s at most, unless its machine is slow
EVERY_S = 1.0  # an agent is asked again
TRIES = 3  # an agent that was there may be late so often
AT_ONCE = 128  # agents that begin; most of the time goes by waiting for those that are silent
MOST_UNPACKED = 32 << 20  # bytes of one look
MOST_TOGETHER = 256 << 20  # packed bytes of all of them
MOST_STRUCTURE = 4 << 20  # characters of a look outside its texts: each may cost 50 bytes
MOST_RESOLVED = 64  # silent nodes; more of them are no fault of a node
CLOCK_OFF_S = 60.0  # a node whose clock is further off says nothing of now
LONGEST_WORD = 300  # characters of a reason
GOES_ON = b""  # instead of an answer
_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class AgentLooks:
    looks: Mapping[str, LiveLook]  # by node
    silent: Mapping[str, str]  # why the other nodes brought none
    addresses: Mapping[str, str] = field(default_factory=dict)  # of those: the others' ends
    read_bytes: int = 0


def ask_agents(
    job: str,
    nodes: Sequence[str],
    client: AgentClient,
    *,
    deadline_s: float = DEADLINE_S,
    every_s: float = EVERY_S,
) -> AgentLooks:
    """Have all agents look at a job, and return the looks that can be believed."""
    until = time.monotonic() + deadline_s
    path = f"/looks/{quote(job.partition('@')[0], safe='')}"  # requeued, its name has a time, too
    begin = dict.fromkeys(nodes, b"")
    begun, silent = client.ask_all(nodes, path, _read, begin, at_once=AT_ONCE, until=until)
    packed: dict[str, bytes] = {}
    arrived: dict[str, float] = {}
    late: Counter[str] = Counter()
    waiting = list(begun)
    while waiting and time.monotonic() < until:
        time.sleep(every_s)
        answers, reasons = client.ask_all(waiting, path, _read, until=until)
        for node, body in answers.items():
            if body:
                packed[node] = body
                arrived[node] = time.time()  # wall clock: looks are dated by it
        late.update(reasons.keys())
        silent |= {node: why for node, why in reasons.items() if late[node] >= TRIES}
        waiting = [node for node in waiting if node not in packed and node not in silent]
    silent |= dict.fromkeys(waiting, f"its look did not end within {deadline_s:g} s")
    seen = believe(packed, arrived, silent)
    return replace(seen, addresses=dict(_addresses([*seen.silent][:MOST_RESOLVED])))


def _addresses(nodes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Addresses of nodes: connections to one that is dead show it, and name only its address."""
    for node in nodes:
        with suppress(OSError):
            for *_, (address, *_) in socket.getaddrinfo(node, None, type=socket.SOCK_STREAM):
                yield str(address), node


def _read(body: bytes) -> bytes:
    """A look, packed; or nothing as long as it goes on."""
    if body.startswith(GZIPPED):
        return body
    try:
        if json_value(body.decode())["looks"] == FORM:
            return GOES_ON
    except (ValueError, TypeError, KeyError):
        pass
    raise TelemetryError(
        "its answer about a look cannot be read: use the same version on both sides"
    )


def believe(
    packed: Mapping[str, bytes], arrived: Mapping[str, float], silent: Mapping[str, str]
) -> AgentLooks:
    """The looks of nodes that speak of themselves and of now, with one way to count the job."""
    looks: dict[str, LiveLook] = {}
    reasons = dict(silent)
    room = MOST_TOGETHER
    for node, body in packed.items():
        room -= len(body)
        try:
            if room < 0:
                raise EvidenceError(f"all looks have more than {MOST_TOGETHER >> 20} MiB")
            looks[node] = _look_of(node, body, arrived[node])
        except EvidenceError as error:
            reasons[node] = escape_line(str(error))[:LONGEST_WORD]
    for node, rival in _liars(looks).items():
        del looks[node]
        reasons[node] = f"it reports ranks that {rival} reports, too"
    return AgentLooks(
        looks=_counted_alike(looks, is_whole=not reasons),
        silent=reasons,
        read_bytes=sum(map(len, packed.values())),
    )


def _look_of(node: str, body: bytes, arrived: float) -> LiveLook:
    """The look of a node: of its ranks, whatever they call their host."""
    text = unpack(body, "its look", EvidenceError, MOST_UNPACKED).decode(errors="replace")
    if len(_TEXT.sub("", text)) > MOST_STRUCTURE:
        raise EvidenceError("its look is no look: it has too many parts")
    look = parse_look(text, "its look")
    ranks = [answer.rank.rank for answer in look.answers]
    are_fit = all(0 <= rank < MOST_RANKS for rank in ranks)
    if not (are_fit and 0 < len(ranks) == len(set(ranks)) <= MOST_HERE):
        raise EvidenceError("its look has ranks that cannot be")
    if abs(look.at - arrived) > CLOCK_OFF_S:
        raise EvidenceError(
            f"its clock is off by {abs(look.at - arrived):.0f} s, or its look is old"
        )
    answers = (replace(answer, rank=replace(answer.rank, host=node)) for answer in look.answers)
    return replace(look, answers=tuple(answers))


def _liars(looks: Mapping[str, LiveLook]) -> dict[str, str]:
    """Nodes that report ranks of others, each with one of those: first the node that does so of
    most. If two nodes report ranks of each other, neither is believed."""
    nodes_of: dict[int, list[str]] = defaultdict(list)
    for node, look in looks.items():
        for answer in look.answers:
            nodes_of[answer.rank.rank].append(node)
    rivals: dict[str, set[str]] = defaultdict(set)
    for nodes in nodes_of.values():
        for node in nodes if len(nodes) > 1 else ():
            rivals[node].update(nodes)
    for node, rival_nodes in rivals.items():
        rival_nodes.discard(node)
    liars: dict[str, str] = {}
    while count := max(map(len, rivals.values()), default=0):
        worst = [node for node, rival_nodes in rivals.items() if len(rival_nodes) == count]
        liars |= {node: min(rivals[node]) for node in worst}
        rivals = {
            node: rival_nodes.difference(worst)
            for node, rival_nodes in rivals.items()
            if node not in liars
        }
    return liars


def _counted_alike(looks: Mapping[str, LiveLook], *, is_whole: bool) -> dict[str, LiveLook]:
    """The looks with the number of the job's ranks that most of them state. If a node is missing,
    none may claim that all ranks were asked."""
    worlds = Counter(answer.rank.world for look in looks.values() for answer in look.answers)
    ((world, _),) = worlds.most_common(1) or [(0, 0)]
    return {
        node: replace(
            look,
            answers=tuple(
                replace(
                    answer,
                    rank=replace(
                        answer.rank, world=world, here=answer.rank.here if is_whole else 0
                    ),
                )
                for answer in look.answers
            ),
        )
        for node, look in looks.items()
    }
