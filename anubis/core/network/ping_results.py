"""Find the parts of a fabric whose standing pings are lost now, or again and again.

Pings are counted in windows. A flow is bad in a window if it lost more than the usual loss of the
mesh explains. Bad windows in a row are one episode. An episode that is over came and went: it
blames no part, and is counted. A flow speaks for a fault if an episode lasts, or if it has more of
them than other flows at its distance. Then the windows in which the worst such flow was bad count
as one scan: each flow enters it with its usual loss in these windows, and the posterior of scans
names the part at fault. So losses at different times have different causes. Answers that take far
longer than others at their distance are judged alike. A window is unknown if the agent at either
end did not run in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from anubis.core.fabric import Fabric, RailNics
from anubis.core.network.attribution import part_verdicts
from anubis.core.network.confirmation import confirmation
from anubis.core.network.crossing import Flow, may_cross
from anubis.core.network.localization import FEWEST_FLOWS
from anubis.core.network.posterior import Observation
from anubis.core.network.repetition import BY_CHANCE, USUAL
from anubis.core.network.traffic import LIMIT, Traffic
from anubis.core.records import Judgement, PartVerdict

LEAST_SENT, LEAST_LOST = 10, 2  # in a window that says anything; one lost ping is no evidence
LUCK = 1e-4  # chance of a good flow to lose as much in a window
NORMAL = 1 / 3  # share of flows that are taken to be well
WORST_WINDOWS = 0.05  # share of windows that do not show what is usual
LEAST_LOSS = 1e-4  # the usual loss, if nothing was lost so far
OFTEN = 3  # episodes of a flow that comes and goes
LASTING = 10  # windows of an episode that is not over
MOST_FAULTS = 8  # at different times
LATE, SCATTER = 2.0, 6.0  # times the usual time; robust standard deviations above it


class PingCount(NamedTuple):
    sent: int
    answered: int

    @property
    def lost_share(self) -> float:
        return 1 - self.answered / self.sent


@dataclass(frozen=True, kw_only=True)
class PingedFlow:
    """The losses and answer times of one flow since its first ping. Windows that are not in `lost`
    lost nothing."""

    ends: RailNics
    since: int  # the first window
    was_answered: bool  # ever
    lost: Mapping[int, PingCount] = field(default_factory=dict)
    best_us: float | None = None  # the quickest answer of late


@dataclass(frozen=True, kw_only=True)
class PingReport:
    """What the agent of a node counted, in all windows from the first to the last."""

    first: int
    last: int
    asleep: frozenset[int] = frozenset()  # windows in which it did not run all the time
    flows: tuple[PingedFlow, ...] = ()

    def covers(self, window: int) -> bool:
        return self.first <= window <= self.last and window not in self.asleep


@dataclass(frozen=True, kw_only=True)
class PingSuspicion:
    """A part that is at fault by what its pings show."""

    verdict: PartVerdict
    bad: int  # flows across it that speak for it
    crossing: int  # flows that may cross it
    episodes: int
    since: int  # the window in which the first episode began
    lasts: bool  # the last episode is not over
    worst_loss: float  # share of the pings in a window
    is_late: bool  # nothing is lost, but answers take long


@dataclass(frozen=True, kw_only=True)
class PingFindings:
    known: int  # flows that were answered, and whose ends both run
    unknown: tuple[RailNics, ...]  # flows without a known window
    usual_loss: float  # share of pings that a usual flow loses, apart from its worst windows
    suspicions: tuple[PingSuspicion, ...] = ()
    doubts: tuple[PartVerdict, ...] = ()  # losses that come again, and whose part is not sure
    came_and_went: Mapping[RailNics, int] = field(default_factory=dict)  # episodes that are over
    further_flows: tuple[RailNics, ...] = ()  # not pinged so far, which would settle the doubts


def judge_pings(
    fabric: Fabric,
    reports: Mapping[str, PingReport],
    forget: Mapping[str, int] = MappingProxyType({}),
) -> PingFindings:
    """Judge what all agents reported. `forget`: by node, the first window that counts."""
    flows = list(_known_flows(fabric, reports, forget))
    mesh = _Mesh(fabric, flows)
    judged = {flow.ends for flow in flows}
    every = (pinged.ends for report in reports.values() for pinged in report.flows)
    all_scans = list(mesh.scans())
    scans = [(scan, verdict) for scan in all_scans for verdict in scan.verdicts]
    separating = (ends for scan in all_scans if scan.is_in_doubt for ends in scan.further_flows())
    return PingFindings(
        known=len(flows),
        unknown=tuple(ends for ends in every if ends not in judged),
        usual_loss=mesh.usual_loss,
        suspicions=tuple(
            scan.suspicion(verdict)
            for scan, verdict in scans
            if verdict.judgement is Judgement.DEFECTIVE
        ),
        doubts=tuple(v for _, v in scans if v.judgement is Judgement.UNKNOWN),
        came_and_went={flow.ends: len(flow.episodes) for flow in mesh.gone},
        further_flows=tuple(dict.fromkeys(separating)),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _KnownFlow:
    """A flow in the windows in which both of its ends ran."""

    ends: RailNics
    windows: int
    first: int
    last: int
    unknown: Set[int]
    lost: Mapping[int, PingCount]
    hops: int | None
    best_us: float | None
    episodes: Sequence[range] = ()  # of bad windows; known once the usual loss is

    @property
    def loss(self) -> float:
        """The share of pings that it loses apart from its worst windows, which may be a fault."""
        shares = sorted(count.lost_share for count in self.lost.values())
        worst = max(OFTEN, round(WORST_WINDOWS * self.windows))
        return sum(shares[: max(0, len(shares) - worst)]) / self.windows

    @property
    def is_bad_now(self) -> bool:
        """True if its last episode lasts, and is not over."""
        if not self.episodes:
            return False
        newest = self.episodes[-1]
        return len(newest) >= LASTING and newest[-1] >= self.last - 1

    @cached_property
    def bad_windows(self) -> frozenset[int]:
        return frozenset(chain.from_iterable(self.episodes))

    def episode_chance(self, rate: float) -> float:
        """The chance of so many episodes, if they came as often as others' do; 1 for a few."""
        episodes = len(self.episodes)
        usual = min((rate * self.windows + USUAL) / (self.windows + 1), 1.0)
        return _chance_of(episodes, self.windows, usual) if episodes >= OFTEN else 1.0

    def knows(self, window: int) -> bool:
        return self.first <= window <= self.last and window not in self.unknown

    def knows_most(self, windows: Sequence[int]) -> bool:
        return 2 * sum(map(self.knows, windows)) >= len(windows)

    def loss_in(self, windows: Sequence[int]) -> float:
        """The usual loss in these windows: what shows in a few of them does not count."""
        usable = filter(self.knows, windows)
        return _median(self.lost[w].lost_share if w in self.lost else 0.0 for w in usable)

    def worst_loss(self) -> float:
        shares = (self.lost[window].lost_share for episode in self.episodes for window in episode)
        return max(shares, default=0.0)


def _known_flows(
    fabric: Fabric, reports: Mapping[str, PingReport], forget: Mapping[str, int]
) -> Iterator[_KnownFlow]:
    for near in reports.values():
        for pinged in near.flows:
            source, target = pinged.ends
            far = reports.get(target.node)
            a, b = fabric.nic(*source), fabric.nic(*target)
            if far is None or a is None or b is None or not pinged.was_answered:
                continue
            first = max(
                pinged.since, near.first, far.first, *(forget.get(e.node, 0) for e in pinged.ends)
            )
            last = min(near.last, far.last)
            unknown = {w for w in near.asleep | far.asleep if first <= w <= last}
            windows = last - first + 1 - len(unknown)
            if windows > 0:
                yield _KnownFlow(
                    ends=pinged.ends,
                    windows=windows,
                    first=first,
                    last=last,
                    unknown=unknown,
                    lost={
                        window: count
                        for window, count in pinged.lost.items()
                        if first <= window <= last and window not in unknown
                    },
                    hops=fabric.hops(a, b),
                    best_us=pinged.best_us,
                )


class _Mesh:
    """All known flows, and what is usual for them."""

    def __init__(self, fabric: Fabric, flows: Sequence[_KnownFlow]) -> None:
        self.fabric = fabric
        self.usual_loss = _normal([flow.loss for flow in flows])
        least = max(self.usual_loss, LEAST_LOSS)
        self.flows = [replace(flow, episodes=_episodes(flow.lost, least)) for flow in flows]

    def scans(self) -> Iterator[_Scan]:
        """Yield the windows of each fault, as a scan of all flows in them."""
        left = self.repeated
        for _ in range(MOST_FAULTS):
            if not left:
                break
            worst = max(left, key=lambda flow: (len(flow.bad_windows), flow.ends))
            windows = self._windows_of_one_fault(worst)
            scan = _Scan(self.fabric, self.flows, windows, lasts=worst.is_bad_now)
            yield scan
            left = [flow for flow in left if flow is not worst and flow.ends not in scan.bad]
        if late := dict(_late_flows(self.flows)):
            yield _Scan(self.fabric, self.flows, (), late)

    def _windows_of_one_fault(self, worst: _KnownFlow) -> list[int]:
        """The bad windows of a flow in which most flows like it are bad too, if these alone are
        more than usual: in the rest it may suffer from something else, such as congestion."""
        windows = worst.bad_windows
        shared = [flow.bad_windows & windows for flow in self.flows]
        alike = [some for some in shared if 2 * len(some) > len(windows)]
        counts = Counter(chain.from_iterable(alike))
        common = {window for window in windows if 2 * counts[window] > len(alike)}
        alone = (replace(f, episodes=_runs(sorted(f.bad_windows & common))) for f in self.flows)
        return sorted(common if any(map(self._is_repeated, alone)) else windows)

    @cached_property
    def repeated(self) -> list[_KnownFlow]:
        """The flows with an episode that lasts, or with more of them than others as far apart."""
        return [flow for flow in self.flows if flow.is_bad_now or self._is_repeated(flow)]

    def _is_repeated(self, flow: _KnownFlow) -> bool:
        return flow.episode_chance(self._usual_rates[flow.hops]) < BY_CHANCE / len(self.flows)

    @cached_property
    def _usual_rates(self) -> dict[int | None, float]:
        """The usual number of episodes in a window, by distance."""
        every = {flow.hops for flow in self.flows}
        return {hops: _usual_rate([f for f in self.flows if f.hops == hops]) for hops in every}

    @property
    def gone(self) -> list[_KnownFlow]:
        repeated = {flow.ends for flow in self.repeated}
        return [flow for flow in self.flows if flow.episodes and flow.ends not in repeated]


class _Scan:
    """All flows in the same windows, as a scan would have measured them. Of what lasts the newest
    windows suffice, so that flows count that were added lately."""

    def __init__(
        self,
        fabric: Fabric,
        flows: Sequence[_KnownFlow],
        windows: Sequence[int],
        late: Mapping[RailNics, float] = MappingProxyType({}),
        *,
        lasts: bool = False,
    ) -> None:
        self.fabric, self.windows, self.late = fabric, windows, late
        judged = windows[-LASTING:] if lasts else windows
        self.flows = [flow for flow in flows if flow.knows_most(judged)]
        self.shortfall = {f.ends: late.get(f.ends) or f.loss_in(judged) for f in self.flows}
        self.bad = {ends for ends, short in self.shortfall.items() if short > LIMIT}

    @cached_property
    def verdicts(self) -> tuple[PartVerdict, ...]:
        return part_verdicts(self.fabric, self._traffic)

    @property
    def is_in_doubt(self) -> bool:
        return any(verdict.judgement is Judgement.UNKNOWN for verdict in self.verdicts)

    def further_flows(self) -> tuple[RailNics, ...]:
        """Further flows, whose losses would tell the causes apart."""
        return confirmation(self.fabric, self._traffic.observations, self._traffic.model)

    @cached_property
    def _traffic(self) -> Traffic:
        observations = (
            Observation(_flow(self.fabric, ends), short) for ends, short in self.shortfall.items()
        )
        return Traffic(observations=tuple(observations), unmeasured=frozenset())

    def suspicion(self, verdict: PartVerdict) -> PingSuspicion:
        across = [
            flow
            for flow in self.flows
            if may_cross(self.fabric, _flow(self.fabric, flow.ends), verdict.parts)
        ]
        bad = [flow for flow in across if flow.ends in self.bad]
        last = max(flow.last for flow in across)
        return PingSuspicion(
            verdict=verdict,
            bad=len(bad),
            crossing=len(across),
            episodes=len(_runs(self.windows)),
            since=self.windows[0] if self.windows else last,
            lasts=bool(self.windows) and self.windows[-1] >= last - 1,
            worst_loss=max((flow.worst_loss() for flow in bad), default=0.0),
            is_late=bool(self.late),
        )


def _episodes(lost: Mapping[int, PingCount], usual: float) -> list[range]:
    return _runs(sorted(window for window, count in lost.items() if _is_bad(count, usual)))


def _runs(windows: Iterable[int]) -> list[range]:
    """The windows, those in a row as one episode."""
    runs: list[range] = []
    for window in windows:
        if runs and runs[-1].stop == window:
            runs[-1] = range(runs[-1].start, window + 1)
        else:
            runs.append(range(window, window + 1))
    return runs


def _usual_rate(flows: Sequence[_KnownFlow]) -> float:
    """The usual number of episodes in a window: that of flows with few of them, and at least that
    of a third of all. In a small fabric, the others may all cross the part at fault."""
    rates = [len(flow.episodes) / flow.windows for flow in flows]
    few = [r for r, flow in zip(rates, flows, strict=True) if len(flow.episodes) < OFTEN]
    return max(_normal(rates), sum(few) / len(few) if few else 0.0)


def _normal(values: Sequence[float]) -> float:
    """The value of the best third, all of which are taken to be well; 0 of none."""
    return float(np.quantile(values, NORMAL, method="lower")) if values else 0.0


def _is_bad(count: PingCount, usual: float) -> bool:
    """True if a window lost more than the usual loss explains."""
    lost = count.sent - count.answered
    if count.sent < LEAST_SENT or lost < LEAST_LOST or count.lost_share <= LIMIT:
        return False
    return _chance_of(lost, count.sent, usual) < LUCK


def _late_flows(flows: Sequence[_KnownFlow]) -> Iterator[tuple[RailNics, float]]:
    """Yield flows whose quickest answer took far longer than is usual at their distance, with the
    share by which they fall short of it."""
    by_hops: defaultdict[int | None, list[tuple[RailNics, float]]] = defaultdict(list)
    for flow in flows:
        if flow.best_us is not None and flow.best_us > 0:
            by_hops[flow.hops].append((flow.ends, flow.best_us))
    for alike in by_hops.values():
        times = np.array([time for _, time in alike])
        usual = float(np.median(times))
        spread = 1.4826 * float(np.median(np.abs(times - usual)))
        for ends, time in alike if len(alike) >= FEWEST_FLOWS else ():
            if time > max(LATE * usual, usual + SCATTER * spread):
                yield ends, 1 - usual / time


def _flow(fabric: Fabric, ends: RailNics) -> Flow:
    """A ping and its answer, by the routes if these are known."""
    a, b = fabric.nic(*ends[0]), fabric.nic(*ends[1])
    there, back = (fabric.route(a, b), fabric.route(b, a)) if a and b else ((), ())
    return Flow(*ends, via=there, back=back, mutual=True)


def _chance_of(least: int, tries: int, rate: float) -> float:
    """The chance that at least so many of these tries happen, each at this rate."""
    from scipy.special import bdtrc

    return float(bdtrc(least - 1, tries, rate))


def _median(values: Iterable[float]) -> float:
    numbers = list(values)
    return float(np.median(numbers)) if numbers else 0.0
