"""The chance of each part to be behind a crash, by the time of every report and of every silence.

A broken connection is reported by each of its ends after a patience that all hosts share, give or
take a third. A host that has reported something ends soon. Its peers then report it, although their
connections to it are sound: at once if these are sockets, after the same patience if they are RDMA.
A host that is dead reports nothing.

Who talks to whom is unknown, but for the pairs that are named or known to work, and so is the path
of each connection: a part is crossed with the chance that the fabric gives. A pair whose rail is
unknown takes a set of paths, one on each rail, and any of them may break. For every part the
likelihood of all reports is computed as if that part had failed, for many patiences and both kinds
of connections, and averaged over these. Then the best parts are tried together with every other
one, because two may have failed.

A part may have been bad for a while before it failed. Then pairs that cross it exchanged their data
slowly, and that was on the path that broke.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from anubis.core.arrays import Flags, Floats, Ints
from anubis.core.diagnose.crash import CrashScene
from anubis.core.fabric import Fabric, Part, RailNic, rail_of
from anubis.core.network.crossing import Crossings, Flow, Parts
from anubis.core.network.posterior import PRIOR

SLOW = 1.5  # times as long as usual, from which on a pair is slow (Aegis' beta)
SLOWED_BEFORE = 0.3  # chance that a part at fault slowed its pairs before it failed,
SLOW_ACROSS, SLOW_ELSEWHERE = 0.9, 0.03  # of each of these to be slow, and of any other pair
LARGE_BYTES = 64 << 10  # a switch was seen to drop what is larger than 1 KB and to pass probes

# until a broken connection is reported, in seconds: torch waits 10 minutes for NCCL
PATIENCES_S = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)
JITTER = 0.3  # a patience may be longer by this share
SCATTER_S = 0.5  # standard deviation of the clocks of hosts, and of whole seconds in logs
LIVES_ON_S = 0.7  # mean time from the first report of a host to its end
HEARS_S = 0.5  # mean time from the end of a host to the report of its peer, by a socket
BEGINS = (0.02, 0.1)  # shares of a patience by which the first report may be later than possible
FIRST_REPORTS = 3  # one of these is the first that is not stray

STRAY = 0.02  # share of reports that have nothing to do with the crash,
COINCIDENCE = 0.2  # and share of these on a connection that is broken as well
WORKS_BROKEN = 1e-3  # chance that a pair is taken to work though its connection is broken
WORKS_AGAIN = 0.1  # the same if it was reported: a fault may have come and gone
# chance that a part at fault passes small messages: switches do that, and cables with bit errors
PASSES_SMALL = {"node": 0.3, "nic": 0.3, "link": 0.3, "uplinks": 0.5, "switch": 0.5}
MUTE = 0.03  # chance that a victim whose log was read logged nothing
TARDY = 0.03  # chance that an end of a broken connection says nothing within the patience
LAST_WORDS = 0.02  # chance that a dead host has logged an error before
DEAD = 0.5  # chance that a host at fault is dead
BOTH_IF_BROKEN, BOTH_IF_SOUND = 0.45, 0.05  # chance that both ends report it, not one alone

TEMPER = 0.7  # reports of one host go together, so they prove less than as many apart
ANOTHER = 0.08  # chance that one more part is at fault
NO_PART = 0.2  # chance that no part of the fabric is at fault: a program ended
WIDESPREAD = 0.02  # chance that what broke is no one part: each connection may be broken
UNKNOWN = 0.5  # the same without a fabric: cables and switches are not known
USES = 0.9  # chance that a pair uses a rail if it is unknown which
CERTAIN = 0.99  # a part that a connection surely crosses
FIRST_ONES, SECOND_ONES = 12, 200  # parts that are tried together, the likeliest of each alone
COURSES = 3  # of events, the likeliest, by which several parts are tried
WIDEST = 60.0  # logarithm of a ratio; larger ones are cut


class TalkingPair(NamedTuple):
    """A connection between two hosts."""

    a: str
    b: str
    rail: str  # "" if unknown


def _pair_up(host: str, peer: str, device: str) -> TalkingPair:
    a, b = sorted((host, peer))
    return TalkingPair(a, b, rail_of(device) if device else "")


@dataclass(frozen=True)
class Suspects:
    """Parts that some connection with a report crosses, with the chance of each crossing. A part
    without a fabric is a node, a NIC, or a group of nodes as a switch."""

    parts: tuple[Part, ...]
    row: Ints  # numbers of connections
    column: Ints  # numbers of parts
    chance: Floats

    def sums(self, values: Floats) -> Floats:
        return np.bincount(self.column, values, len(self.parts)).astype(np.float64)


@dataclass(frozen=True)
class RankedPart:
    part: Part
    chance: float  # that it is at fault,
    among_parts: float  # and the same if one part or two explain the reports, or a program ended
    pairs: int  # of hosts, with a report, whose connection may cross it
    is_dead: bool  # as a host that is dead, it explains the reports better


def rank_parts(scene: CrashScene) -> list[RankedPart]:
    """Parts that may be at fault, the likeliest first."""
    seen = _Reports.from_scene(scene)
    suspects = _cross(scene, seen.connections)
    return _Crash(scene, seen, suspects).rank() if suspects.parts else []


# --- what was reported -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reports:
    """Connections that either end reports. Arrays have a row for each end; times are NaN if
    unknown."""

    connections: tuple[TalkingPair, ...]
    has: Flags  # a report of this end
    at: Floats  # and its time
    spoke: Flags  # whether this end reported anything,
    first: Floats  # and when first
    is_read: Flags  # whether its log is available
    times: Floats  # of everything, in order

    @classmethod
    def from_scene(cls, scene: CrashScene) -> _Reports:
        earliest: dict[TalkingPair, dict[str, float]] = {}
        for report in scene.reports:
            if report.reporter != report.peer:
                connection = _pair_up(report.reporter, report.peer, report.device)
                by_end = earliest.setdefault(connection, {})
                when = math.inf if report.at is None else report.at
                by_end[report.reporter] = min(when, by_end.get(report.reporter, math.inf))
        connections = tuple(sorted(earliest))
        ends = [[connection.a for connection in connections], [c.b for c in connections]]
        of_ends = [list(zip(connections, side, strict=True)) for side in ends]
        at = [[earliest[c].get(end, math.inf) for c, end in side] for side in of_ends]
        first = scene.first_words
        since = [[first.get(end) for end in side] for side in ends]
        dates = [moment for moment in first.values() if moment is not None]
        dates += [report.at for report in scene.reports if report.at is not None]
        shape = 2, len(connections)
        return cls(
            connections=connections,
            has=np.array([[end in earliest[c] for c, end in side] for side in of_ends]).reshape(
                shape
            ),
            at=np.where(np.isinf(at), np.nan, at).reshape(shape),
            spoke=np.array([[end in first for end in side] for side in ends]).reshape(shape),
            first=np.array(since, dtype=np.float64).reshape(shape),
            is_read=np.array([[end not in scene.unread for end in side] for side in ends]).reshape(
                shape
            ),
            times=np.sort(np.array(dates, dtype=np.float64)),
        )

    @property
    def span_s(self) -> float:
        return float(self.times[-1] - self.times[0]) + 2 * SCATTER_S


# --- which parts connections cross ---------------------------------------------------------------


def _cross(scene: CrashScene, connections: Sequence[TalkingPair]) -> Suspects:
    named: list[tuple[int, Part]] = []
    on_rails: list[tuple[int, str, float]] = []
    for row, (a, b, rail) in enumerate(connections):
        rails = _rails_between(scene.fabric, a, b, rail) if scene.fabric else []
        uses = 1.0 if len(rails) == 1 else USES
        on_rails += [(row, name, uses) for name in rails]
        named += [] if rails else [(row, part) for part in _named_parts(scene, a, b, rail)]
    on_fabric, below = _fabric_parts(scene.fabric, connections, on_rails)
    parts = tuple(sorted({*below.values(), *(part for _, part in named)}))
    number = {part: column for column, part in enumerate(parts)}
    own = np.array([(row, number[part]) for row, part in named], dtype=np.int64).reshape(-1, 2)
    place = np.array([number[part] for part in below.values()], dtype=np.int64)
    column = place[np.searchsorted(list(below), on_fabric.column)] if below else on_fabric.column
    return Suspects(
        parts=parts,
        row=np.concatenate([own[:, 0], on_fabric.row]),
        column=np.concatenate([own[:, 1], column]),
        chance=np.concatenate([np.ones(len(own)), on_fabric.chance]),
    )


def _rails_between(fabric: Fabric, a: str, b: str, rail: str) -> list[str]:
    """The rails of a connection: its own, or all that both hosts have."""
    rails = [rail] if rail else fabric.rails
    return [name for name in rails if fabric.nic(a, name) and fabric.nic(b, name)]


def _named_parts(scene: CrashScene, a: str, b: str, rail: str) -> Iterator[Part]:
    for host in (a, b):
        yield Part("node", host)
        if rail:
            yield Part("nic", host, rail)
        for kind, of_host in scene.groups.items():
            if host in of_host:
                yield Part("switch", of_host[host], kind)


def _fabric_parts(
    fabric: Fabric | None,
    connections: Sequence[TalkingPair],
    on_rails: Sequence[tuple[int, str, float]],
) -> tuple[Crossings, dict[int, Part]]:
    """The crossings of connections over the rails that each uses with some chance: it crosses a
    part if it does so on any of them. And the part of each column, in their order."""
    if fabric is None or not on_rails:
        return Crossings(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)), {}
    parts = Parts(fabric)
    flows = [_flow(fabric, connections[row], rail) for row, rail, _ in on_rails]
    crossings = parts.crossings(flows, parts.columns)
    rows, uses = (np.array([of[place] for of in on_rails]) for place in (0, 2))
    width = int(crossings.column.max(initial=0)) + 1
    place, entry = np.unique(rows[crossings.row] * width + crossings.column, return_inverse=True)
    with np.errstate(divide="ignore"):
        missed = np.log1p(-uses[crossings.row] * np.minimum(crossings.chance, 1.0))
    chance = -np.expm1(np.bincount(entry, missed, len(place)))
    columns = place % width
    below = {column: parts.part(column) for column in np.unique(columns).tolist()}
    return Crossings(place // width, columns, chance), below


def _flow(fabric: Fabric, connection: TalkingPair, rail: str) -> Flow:
    here, there = fabric.nic(connection.a, rail), fabric.nic(connection.b, rail)
    via = fabric.route(here, there) if here and there else ()
    return Flow(RailNic(connection.a, rail), RailNic(connection.b, rail), via)


# --- how likely that is --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Course:
    """How trouble spread. Without times nothing is assumed of it."""

    begin: float  # the earliest time of a report on what broke
    patience_s: float
    is_rdma: bool

    @property
    def end(self) -> float:
        """The latest time of such a report."""
        return self.begin + JITTER * self.patience_s

    def density_if_broken(self, at: Floats) -> Floats:
        return _uniform(at, self.begin, self.end, SCATTER_S)

    def density_if_sound(self, after: Floats) -> Floats:
        """The density of a report so long after the first words of the peer."""
        if self.is_rdma:
            longest = (1 + JITTER) * self.patience_s
            scatter = math.hypot(SCATTER_S, LIVES_ON_S)
            return _uniform(after - LIVES_ON_S, self.patience_s, longest, scatter)
        return _exponential(after, LIVES_ON_S + HEARS_S, SCATTER_S)


def _courses(times: Floats) -> list[_Course | None]:
    if not len(times):
        return [None]
    return [
        _Course(begin, patience_s, is_rdma)
        for patience_s in PATIENCES_S
        for is_rdma in (False, True)
        for begin in sorted(
            {at - early * patience_s for at in times[:FIRST_REPORTS].tolist() for early in BEGINS}
        )
    ]


def _uniform(x: Floats, low: float, high: float, scatter: float) -> Floats:
    """Density of a uniform and a normal deviate together."""
    from scipy.special import ndtr

    return np.asarray((ndtr((x - low) / scatter) - ndtr((x - high) / scatter)) / (high - low))


def _exponential(x: Floats, mean: float, scatter: float) -> Floats:
    """Density of an exponential and a normal deviate together."""
    from scipy.special import log_ndtr

    ratio = scatter / mean
    return np.asarray(np.exp(ratio**2 / 2 - x / mean + log_ndtr(x / scatter - ratio)) / mean)


# in place of the number of a part: of faults everywhere, of no part, or of each part alone
ANYWHERE, OF_NONE, ALONE = -3, -2, -1
Weights = tuple[Floats, int]  # logarithms, of each part beside the one of that number, or ALONE


class _Crash:
    """The scores of parts, alone and together, for one crash."""

    def __init__(self, scene: CrashScene, seen: _Reports, suspects: Suspects) -> None:
        self.scene, self.seen, self.suspects = scene, seen, suspects
        parts = suspects.parts
        self.is_node = np.array([part.kind == "node" for part in parts])
        self.spoke = np.array([part.name in scene.first_words for part in parts])
        own = [[c.a for c in seen.connections], [c.b for c in seen.connections]]
        names = np.array([part.name for part in parts])
        sides = [np.array(side)[suspects.row] == names[suspects.column] for side in own]
        self.own_end = np.where(sides[0], 0, 1)  # of entries of nodes
        self.at_node = self.is_node[suspects.column]
        prior = [PRIOR[part.kind] * scene.hints.get(part, 1.0) for part in parts]
        self.prior = np.log(np.array(prior) / sum(prior)) + math.log(1 - NO_PART)
        self.prior += _log_cleared(scene, seen, suspects)
        works = set(_working(scene, is_large=True))
        self.works = np.array([c in works for c in seen.connections]) * math.log(WORKS_AGAIN)
        self.passes_alive, self.passes_dead = _log_cleared_by_small(scene, suspects)
        self.part_behind, self.behind = self._hosts_behind()
        of_rows, elsewhere = _weigh_paces(scene, seen.connections)
        self.slow_row = of_rows[suspects.row]
        self.slow_elsewhere = _log_likelier(scene, suspects, elsewhere)

    def rank(self) -> list[RankedPart]:
        from scipy.special import logsumexp

        courses = _courses(self.seen.times)
        by_course = [self._alone(course) for course in courses]
        alive, dead, none = (
            TEMPER * np.array([getattr(scores, name) for scores in by_course])
            for name in ("alive", "dead", "none")
        )
        alive, dead = alive + self.passes_alive, dead + self.passes_dead
        level = -math.log(len(courses))
        single = self.prior + level + logsumexp(np.logaddexp(alive, dead), axis=0)
        is_dead = dead.max(axis=0) > alive.max(axis=0)
        anywhere = WIDESPREAD if self.scene.fabric else UNKNOWN
        spread = TEMPER * np.array([scores.widespread for scores in by_course])
        nowhere, everywhere = (
            np.array([math.log(prior) + level + logsumexp(scores)])
            for prior, scores in ((NO_PART, none), (anywhere, spread))
        )
        weights: list[Weights] = [(nowhere, OF_NONE), (single, ALONE)]
        weights.append((everywhere, ANYWHERE if self.scene.fabric else OF_NONE))
        likeliest = np.argsort(-logsumexp(self.prior + np.logaddexp(alive, dead), axis=1))
        for number in likeliest[:COURSES].tolist():
            weights += self._together(by_course[number], single, is_dead, level)
        return self._chances(weights, is_dead)

    def _chances(self, weights: Sequence[Weights], is_dead: Flags) -> list[RankedPart]:
        """Weights of all parts, alone or beside another one. Those of an empty set of parts, or of
        too many, only make the others less sure. Faults everywhere fit any reports, so they do not
        count when parts are compared: if the reports fit no part well, one still fits best."""
        from scipy.special import logsumexp

        of_parts = logsumexp(np.concatenate([of for of, beside in weights if beside != ANYWHERE]))
        total = logsumexp(np.concatenate([weight for weight, _ in weights]))
        among = np.zeros(len(self.suspects.parts))
        for weight, beside in weights:
            if beside in (ANYWHERE, OF_NONE):
                continue
            share = np.exp(weight - of_parts)
            among += share
            if beside != ALONE:
                among[beside] += share.sum()
        chance = among * math.exp(of_parts - total)
        pairs: list[set[tuple[str, str]]] = [set() for _ in among]
        for row, column in zip(self.suspects.row, self.suspects.column, strict=True):
            pairs[column].add(self.seen.connections[row][:2])
        return [
            RankedPart(
                part=self.suspects.parts[number],
                chance=min(float(chance[number]), 1.0),
                among_parts=min(float(among[number]), 1.0),
                pairs=len(pairs[number]),
                is_dead=bool(is_dead[number]),
            )
            for number in np.argsort(-np.round(among, 9), kind="stable").tolist()
        ]

    def _alone(self, course: _Course | None) -> _Scores:
        log_sound, log_end, pattern = self._connections(course)
        broken = log_end.sum(axis=0) + pattern
        row, crossed = self.suspects.row, self.suspects.chance
        ratio = np.clip(broken - log_sound, -WIDEST, WIDEST)[row]
        far = log_end[1 - self.own_end, row] + self.works[row] - log_sound[row]
        own = self.seen.has[self.own_end, row] * math.log(STRAY / self._span(course))
        ratio_dead = np.where(self.at_node, np.clip(far + own, -WIDEST, WIDEST), ratio)
        none = float(log_sound.sum())
        alive = none + self.suspects.sums(np.log1p(crossed * np.expm1(ratio)))
        alive, was_slow = self._slowed_before(alive, none, ratio)
        ratio = np.where(was_slow[self.suspects.column], ratio + self.slow_row, ratio)
        alive += self._tardy_hosts(course)
        dead = none + self.suspects.sums(np.log1p(crossed * np.expm1(ratio_dead)))
        dead += np.where(self.spoke, math.log(LAST_WORDS), 0.0) + math.log(DEAD)
        return _Scores(
            none=none,
            widespread=float(np.logaddexp(log_sound, broken).sum()) - len(broken) * math.log(2),
            alive=alive + np.where(self.is_node, math.log(1 - DEAD), 0.0),
            dead=np.where(self.is_node, dead, -np.inf),
            ratio=ratio,
            ratio_dead=ratio_dead,
        )

    def _slowed_before(self, alive: Floats, none: float, ratio: Floats) -> tuple[Floats, Flags]:
        """Log of the likelihood with the paces of pairs before the crash, and for which parts it is
        likelier that they were slow."""
        if not self.scene.paces:
            return alive, np.zeros(len(alive), dtype=bool)
        gain = self.suspects.chance * np.expm1(ratio + self.slow_row)
        slow = none + self.suspects.sums(np.log1p(gain)) + self.slow_elsewhere
        slow, usual = slow + math.log(SLOWED_BEFORE), alive + math.log(1 - SLOWED_BEFORE)
        return np.logaddexp(slow, usual), slow > usual

    def _span(self, course: _Course | None) -> float:
        return 1.0 if course is None else self.seen.span_s

    def _connections(self, course: _Course | None) -> tuple[Floats, Floats, Floats]:
        """Log of the density of the reports on each connection if it is sound; if it is broken, of
        each end apart; and of how many ends report it if it is broken, and if it works later."""
        seen = self.seen
        stray = 1 / self._span(course)
        untimed = np.isnan(seen.at)
        if course is None:
            if_broken, if_sound = np.ones_like(seen.at), np.ones_like(seen.at)
        else:
            since = seen.first[::-1]
            if_broken = np.where(untimed, 1.0, course.density_if_broken(seen.at))
            after = course.density_if_sound(seen.at - since)
            if_sound = np.where(untimed, 1.0, np.where(np.isnan(since), stray, after))
        flat = np.where(untimed, 1.0, stray)
        is_mute = seen.is_read[::-1] & ~seen.spoke[::-1]
        if_sound = np.where(is_mute, MUTE * flat, if_sound)
        log_sound = np.where(seen.has, np.log((1 - STRAY) * if_sound + STRAY * flat), 0.0)
        log_broken = np.log((1 - STRAY) * if_broken + STRAY * COINCIDENCE * flat)
        is_tardy = ~seen.has & self._is_tardy(course, seen.spoke, seen.first, seen.is_read)
        log_end = np.where(seen.has, log_broken, np.where(is_tardy, math.log(TARDY), 0.0))
        return (
            log_sound.sum(axis=0) + _log_pattern(seen.has, seen.is_read, BOTH_IF_SOUND),
            log_end,
            _log_pattern(seen.has, seen.is_read, BOTH_IF_BROKEN) + self.works,
        )

    def _is_tardy(
        self, course: _Course | None, spoke: Flags, first: Floats, is_read: Flags
    ) -> Flags:
        """Flags for hosts that said nothing while a broken connection would have been reported."""
        late = first > course.end + 2 * SCATTER_S if course else np.zeros_like(spoke)
        return np.asarray(is_read & (~spoke | late))

    def _tardy_hosts(self, course: _Course | None) -> Floats:
        """Log of the chance of what hosts did not say that are behind a part with all that they
        have: the host itself, or those at a leaf. Ends of its connections count already."""
        late = self._is_tardy(course, *self.behind) if len(self.part_behind) else np.empty(0)
        counts = np.bincount(self.part_behind, late, len(self.suspects.parts))
        return np.asarray(math.log(TARDY) * counts, dtype=np.float64)

    def _hosts_behind(self) -> tuple[Ints, tuple[Flags, Floats, Flags]]:
        """The parts that have hosts behind them, and what is known of each of these: whether it
        spoke, when first, and whether its log is available."""
        first, unread = self.scene.first_words, self.scene.unread
        ends = _ends_surely_crossing(self.suspects, self.seen)
        behind = [
            (column, host)
            for column, below in enumerate(_hosts_below(self.scene, self.suspects.parts))
            for host in below
            if len(below) == 1 or host not in ends[column]
        ]
        hosts = [host for _, host in behind]
        return np.array([column for column, _ in behind], dtype=np.int64), (
            np.array([host in first for host in hosts], dtype=bool),
            np.array([first.get(host) for host in hosts], dtype=np.float64),
            np.array([host not in unread for host in hosts], dtype=bool),
        )

    def _together(
        self, scores: _Scores, single: Floats, is_dead: Flags, level: float
    ) -> Iterator[Weights]:
        """Weights of two parts together; and of three, which are too many to name any."""
        few = np.argsort(-single, kind="stable")[:SECOND_ONES]
        pairs = _Pairs(self, scores, is_dead, few)
        best = (-math.inf, 0, 0)
        for first in range(min(FIRST_ONES, len(few))):
            weight = np.full(len(single), -np.inf)
            weight[few] = pairs.weights(first) + level
            weight[few[: first + 1]] = -np.inf  # itself, and pairs that were counted before
            yield weight, int(few[first])
            best = max(best, (float(weight.max()), first, int(np.argmax(weight[few]))))
        yield pairs.weights(*best[1:]) + level, OF_NONE


@dataclass(frozen=True)
class _Scores:
    """Logarithms for one course: of no fault, of faults everywhere, and of each part alive or dead;
    and for each crossing how much likelier the reports on the connection are if it is broken."""

    none: float
    widespread: float
    alive: Floats
    dead: Floats
    ratio: Floats
    ratio_dead: Floats


class _Pairs:
    """Weights of several parts at fault together: a connection is broken by the first of them that
    it crosses."""

    def __init__(self, crash: _Crash, scores: _Scores, is_dead: Flags, few: Ints) -> None:
        suspects, connections = crash.suspects, len(crash.seen.connections)
        place = np.full(len(suspects.parts), -1)
        place[few] = np.arange(len(few))
        kept = place[suspects.column] >= 0
        row, column = suspects.row[kept], place[suspects.column[kept]]
        dead = is_dead[suspects.column[kept]]
        ratio = np.where(dead, scores.ratio_dead[kept], scores.ratio[kept])
        self.crossed = np.zeros((connections, len(few)))
        self.crossed[row, column] = suspects.chance[kept]
        self.gain = np.zeros_like(self.crossed)
        self.gain[row, column] = suspects.chance[kept] * np.exp(ratio)
        self.own = crash.prior[few] + np.where(crash.is_node[few], math.log(DEAD), 0.0)
        self.own += np.where(is_dead, crash.passes_dead, crash.passes_alive)[few]
        self.level = scores.none

    def weights(self, *members: int) -> Floats:
        """Log of the weight of these parts with each other one."""
        missed, broken = np.ones((len(self.crossed), 1)), np.zeros((len(self.crossed), 1))
        for member in members:
            broken = broken + missed * self.gain[:, [member]]
            missed = missed * (1 - self.crossed[:, [member]])
        likelihood = np.log(missed * (1 - self.crossed + self.gain) + broken)
        score = TEMPER * (self.level + likelihood.sum(axis=0))
        fixed = float(self.own[list(members)].sum()) + len(members) * math.log(ANOTHER)
        return np.asarray(score + self.own + fixed)


def _log_pattern(has: Flags, may: Flags, both: float) -> Floats:
    """Log of the chance that both ends of a connection report it, or just this one."""
    pattern = np.where(has.all(axis=0), both, (1 - both) / 2)
    return np.asarray(np.log(np.where(may.all(axis=0), pattern, 1.0)))


def _log_cleared(scene: CrashScene, seen: _Reports, suspects: Suspects) -> Floats:
    """Log of the chance that pairs work which would cross each part."""
    working = dict.fromkeys(_working(scene, is_large=True), WORKS_BROKEN)
    for pair in seen.connections:
        working.pop(pair, None)
    return _log_likelier(scene, suspects, working)


def _log_cleared_by_small(scene: CrashScene, suspects: Suspects) -> tuple[Floats, Floats]:
    """Log of the chance that small messages pass each part at fault, alive or dead. A host that is
    dead answers none. Others pass all of them or none."""
    small = dict.fromkeys(_working(scene, is_large=False), WORKS_BROKEN)
    dead = _log_likelier(scene, suspects, small)
    passes = np.array([PASSES_SMALL[part.kind] for part in suspects.parts])
    return np.log(passes + (1 - passes) * np.exp(dead)), dead


def _working(scene: CrashScene, *, is_large: bool) -> list[TalkingPair]:
    """The connections that are known to work, by large messages or by small ones."""
    return sorted(
        {
            _pair_up(pair.a, pair.b, pair.device)
            for pair in scene.working
            if (pair.size_bytes is None or pair.size_bytes >= LARGE_BYTES) is is_large
            and pair.a != pair.b
        }
    )


def _weigh_paces(
    scene: CrashScene, connections: Sequence[TalkingPair]
) -> tuple[Floats, dict[TalkingPair, float]]:
    """Weigh the pace of pairs before the crash: how much likelier it is if a part that they cross
    was slow. Logarithms for these connections, and factors for other pairs."""
    ratios = {
        pair: SLOW_ACROSS / SLOW_ELSEWHERE
        if times >= SLOW
        else (1 - SLOW_ACROSS) / (1 - SLOW_ELSEWHERE)
        for pair, times in scene.paces.items()
    }
    of_rows = np.zeros(len(connections))
    for row, (a, b, rail) in enumerate(connections):
        pair = frozenset((a, b))
        has_one = not rail or (scene.fabric and len(_rails_between(scene.fabric, a, b, "")) == 1)
        if has_one and pair in ratios:
            of_rows[row] = math.log(ratios.pop(pair))
    elsewhere = {TalkingPair(min(pair), max(pair), ""): ratio for pair, ratio in ratios.items()}
    return of_rows, elsewhere


def _log_likelier(
    scene: CrashScene, suspects: Suspects, ratios: Mapping[TalkingPair, float]
) -> Floats:
    """Log of how much likelier each part at fault makes what these pairs show, by how much likelier
    it is for a pair that crosses the part."""
    pairs = sorted(ratios)
    crossed = _cross(scene, pairs)
    number = {part: column for column, part in enumerate(suspects.parts)}
    likelier = np.zeros(len(suspects.parts))
    ratio = np.array([ratios[pair] for pair in pairs])[crossed.row]
    sums = crossed.sums(np.log1p(crossed.chance * (ratio - 1)))
    for part, value in zip(crossed.parts, sums, strict=True):
        if part in number:
            likelier[number[part]] = value
    return likelier


def _hosts_below(scene: CrashScene, parts: Sequence[Part]) -> list[tuple[str, ...]]:
    """The hosts of the job whose every connection, on some rail, crosses each part."""
    job, at_leaf = set(scene.hosts), scene.fabric.nics_on if scene.fabric else {}
    below: list[tuple[str, ...]] = []
    for part in parts:
        if part.kind in ("node", "nic"):
            below.append((part.name,))
        elif part.kind == "switch":
            nics = at_leaf.get(part.name, ())
            below.append(tuple(sorted({nic.node for nic in nics} & job)))
        else:
            below.append(())
    return below


def _ends_surely_crossing(suspects: Suspects, seen: _Reports) -> list[frozenset[str]]:
    """The ends of connections that surely cross each part: how late they reported counts with the
    connection."""
    ends: list[set[str]] = [set() for _ in suspects.parts]
    sure = suspects.chance > CERTAIN
    for row, column in zip(
        suspects.row[sure].tolist(), suspects.column[sure].tolist(), strict=True
    ):
        ends[column] |= set(seen.connections[row][:2])
    return [frozenset(hosts) for hosts in ends]
