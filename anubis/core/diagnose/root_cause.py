"""Finds the host, NIC, cable or switch behind the reports of many hosts on each other (RootDiag).

At a crash every host reports another one, and most of them are victims. With a fabric a report is a
bad flow and a pair known to work a good one, and `network.localization` weighs all of them. Without
one each host counts by the share of the reports that it is an end of. Parts that explain the
reports equally well are returned together: all of them go to validation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from anubis.core.diagnose.chain import Hearing, InferenceRule
from anubis.core.diagnose.evidence import Gravity, JobEvidence, WorkingPair
from anubis.core.diagnose.facts import FactKind, JobFact, Whom
from anubis.core.fabric import Fabric, Part, RailNic, rail_of
from anubis.core.network.crossing import Flow
from anubis.core.network.localization import Cause, describe, locate
from anubis.core.network.posterior import PRIOR, FaultPrior, Observation

SILENCE = "silent"
COVER, RUNNER_UP = 0.8, 0.5  # shares of all reports: of the one at fault, and of the next
LARGE_BYTES = 64 << 10  # a switch was seen to drop what is larger than 1 KB and to pass probes
FEW = 2  # hosts: both go to validation, and no cause is searched for

# The chance that a host reports a peer for another reason than a part of the fabric.
STRAY = 0.02  # the peer had not reported before
MUTUAL = 0.05  # the peer reports the host too: neither had ended
UNTIMED = 0.2  # the same, without dates
LATE = 0.947  # a pair with late reports only is hardly better than an unknown one
EARLY = 0.1  # among the first reports of all
SKEW_S = 1.0  # between clocks of hosts, and within a second of a log
MUTE = 0.5  # the chance that a host at fault says nothing
SURE = 0.85  # the least confidence in a cause that is reported
FEWEST = 2  # pairs that a cause explains
LEAST_COVER = 0.5  # share of the telling pairs that a part of a fabric must explain
MOST_SILENT = 0.05  # of a job's hosts; more silent ones have a common cause
MOST_HOSTS = 4  # sent to validation together
MOST_NAMED = 4  # parts that a sentence lists


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A host's report that something went wrong with another host."""

    reporter: str
    peer: str
    device: str = ""  # the NIC that they used
    at: float | None = None


@dataclass(frozen=True, kw_only=True)
class CrashScene:
    """All inputs of the search for the cause of a crash."""

    hosts: tuple[str, ...]  # of the job
    reports: tuple[Report, ...]
    spoke: Mapping[str, float | None] = field(default_factory=dict)
    # host that reported any error → time of its first one, if known
    unread: frozenset[str] = frozenset()  # hosts whose logs are not available: they are not silent
    working: tuple[WorkingPair, ...] = ()
    fabric: Fabric | None = None
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # without a fabric: "leaf", "rack" or the like → host → its name

    @cached_property
    def first_words(self) -> dict[str, float | None]:
        """Time of the first report of each host that reported anything; None: unknown."""
        first: dict[str, float | None] = dict(self.spoke)
        for report in self.reports:
            earlier = first.setdefault(report.reporter, report.at)
            if earlier is not None and report.at is not None:
                first[report.reporter] = min(earlier, report.at)
        return first

    @cached_property
    def silent(self) -> frozenset[str]:
        """Hosts that others name and that logged no error, although their log was read."""
        named = frozenset(report.peer for report in self.reports)
        return named - self.first_words.keys() - self.unread

    @cached_property
    def opening(self) -> frozenset[tuple[str, str, str]]:
        """Reports among the first errors of their hosts; all reports of hosts without dates."""
        first = self.first_words
        return frozenset(
            (report.reporter, report.peer, report.device)
            for report in self.reports
            if report.at is None
            or (earliest := first[report.reporter]) is None
            or report.at <= earliest + SKEW_S
        )

    @cached_property
    def began(self) -> float | None:
        """Time of the first two reports that are close together: a single one may be stray."""
        times = sorted(report.at for report in self.reports if report.at is not None)
        near = (early for early, late in pairwise(times) if late - early <= 2 * SKEW_S)
        return next(near, None)

    @cached_property
    def pairs(self) -> frozenset[frozenset[str]]:
        return frozenset(frozenset((report.reporter, report.peer)) for report in self.reports)


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """One cause. If `whom` has several entries, the evidence does not distinguish them."""

    whom: tuple[Whom, ...]
    parts: tuple[Part, ...] = ()
    confidence: float
    sentence: str
    code: str


def root_causes(scene: CrashScene) -> tuple[RootCause, ...]:
    """Causes that explain the reports, or none. If only two hosts are involved, both are suspects
    already and no cause is searched for."""
    ends = frozenset[str]().union(*scene.pairs)
    if len(ends) <= FEW:
        return ()
    scene = replace(scene, reports=tuple(sorted(scene.reports, key=_order)))
    if silent := _few_silent(scene):
        return tuple(_silent_cause(scene, host) for host in silent)
    if scene.fabric is not None:
        within = {end for end in ends if _is_on_fabric(scene.fabric, end)}
        if len(within) > FEW:
            return tuple(_fabric_causes(scene, scene.fabric))
    return tuple(_cover_causes(scene))


def _few_silent(scene: CrashScene) -> list[str]:
    """Hosts that several name and that log nothing, if they are so few that each may be at fault by
    itself: a dead host does not log."""
    silent = [host for host in scene.silent if len(_named_by(scene, host)) >= FEWEST]
    few = max(2, int(MOST_SILENT * len(scene.hosts)))
    return sorted(silent) if len(scene.silent) <= few else []


def _named_by(scene: CrashScene, host: str) -> set[str]:
    return {report.reporter for report in scene.reports if report.peer == host}


def _silent_cause(scene: CrashScene, host: str) -> RootCause:
    count = len(_named_by(scene, host))
    return RootCause(
        whom=(Whom(node=host),),
        parts=(Part("node", host),),
        confidence=1 - 1 / (1 + count * count),
        sentence=f"{host}: {count} hosts report it, and it says nothing",
        code=SILENCE,
    )


def _is_on_fabric(fabric: Fabric, node: str) -> bool:
    return any(fabric.nic(node, rail) for rail in fabric.rails)


# --- with a fabric ---------------------------------------------------------------------------


def _fabric_causes(scene: CrashScene, fabric: Fabric) -> Iterator[RootCause]:
    """The one cause that explains most; none, if another one explains half as much. Reports without
    a NIC are weighed for each rail as if all of them were about it."""
    model = _model(scene, fabric)
    rails = _rails(scene, fabric)
    explaining: dict[frozenset[frozenset[str]], list[Cause]] = {}
    for rail in rails:
        for located in locate(fabric, list(_observations(scene, fabric, rail)), model).causes:
            flows = (seen.flow for seen in located.bad)
            pairs = frozenset(frozenset((flow.source.node, flow.target.node)) for flow in flows)
            explaining.setdefault(pairs, []).append(located)
    ranked = sorted(explaining.items(), key=lambda item: (-len(item[0]), item[1][0].parts))
    if not ranked:
        return
    explained, same = ranked[0]
    cause = _merge_causes(scene, fabric, len(explained), same, len(rails))
    covers = len(explained) >= max(FEWEST, LEAST_COVER * len(_telling_pairs(scene)))
    sole = len(ranked) == 1 or len(ranked[1][0]) < RUNNER_UP * len(explained)
    hosts = sum(bool(whom.node) for whom in cause.whom)
    if covers and sole and cause.confidence >= SURE and hosts <= MOST_HOSTS:
        yield cause


def _rails(scene: CrashScene, fabric: Fabric) -> Sequence[str]:
    """Candidate rails for errors that name no NIC."""
    named = {rail_of(report.device) for report in scene.reports if report.device}
    if all(report.device for report in scene.reports):
        return fabric.rails[:1]  # not used
    return [rail for rail in fabric.rails if rail in named] or fabric.rails


def _model(scene: CrashScene, fabric: Fabric) -> FaultPrior:
    """Prior in which about one cause is expected in all, because something did break."""
    scale = min(20.0, max(1.0, 1 / (2 * PRIOR["node"] * len(scene.hosts))))
    hints = {}
    read = {end for pair in scene.pairs for end in pair} - scene.unread
    for host in sorted(read):
        if _is_on_fabric(fabric, host):
            mute = (len(scene.silent - {host}) + 1) / (len(read - {host}) + 2)
            silent = host in scene.silent
            factor = MUTE / mute if silent else (1 - MUTE) / (1 - mute)
            hints[Part("node", host)] = factor
    return FaultPrior(
        false_alarm=STRAY,
        intermittent=0.0,
        prior={kind: min(chance * scale, 0.3) for kind, chance in PRIOR.items()},
        hints=hints,
    )


def _observations(scene: CrashScene, fabric: Fabric, unnamed: str) -> Iterator[Observation]:
    """Observations of each pair and rail: its report with the least excuse, or a good flow if the
    pair works with large messages and no host reports it."""
    excuses: dict[tuple[frozenset[str], str], tuple[float, str, str]] = {}
    late = dict[tuple[frozenset[str], str], tuple[str, str]]()
    for report in scene.reports:
        rail = rail_of(report.device) if report.device else unnamed
        key = frozenset((report.reporter, report.peer)), rail
        excuse = _excuse(report, scene)
        if excuse is None:
            late[key] = report.reporter, report.peer
            continue
        if key not in excuses or excuse < excuses[key][0]:
            excuses[key] = excuse, report.reporter, report.peer
    for (_, rail), (excuse, reporter, peer) in excuses.items():
        if fabric.nic(reporter, rail) and fabric.nic(peer, rail):
            yield Observation(_flow(fabric, reporter, peer, rail, excuse), 1.0)
    for key, (reporter, peer) in late.items():
        rail = key[1]
        if key not in excuses and fabric.nic(reporter, rail) and fabric.nic(peer, rail):
            yield Observation(_flow(fabric, reporter, peer, rail, LATE), 0.0)
    works = {
        (frozenset((pair.a, pair.b)), rail): pair
        for pair in scene.working
        if pair.size_bytes is None or pair.size_bytes >= LARGE_BYTES
        for rail in ([rail_of(pair.device)] if pair.device else fabric.rails)
    }
    for (ends, rail), pair in works.items():
        has_both = fabric.nic(pair.a, rail) and fabric.nic(pair.b, rail)
        if (ends, rail) not in excuses and len(ends) == 2 and has_both:
            yield Observation(_flow(fabric, pair.a, pair.b, rail), 0.0)


def _flow(fabric: Fabric, a: str, b: str, rail: str, excused: float = 0.0) -> Flow:
    source, target = RailNic(a, rail), RailNic(b, rail)
    here, there = fabric.nic(a, rail), fabric.nic(b, rail)
    via, back = (
        (fabric.route(here, there), fabric.route(there, here)) if here and there else ((), ())
    )
    return Flow(source, target, via, mutual=True, back=back, undisturbed=True, excused=excused)


def _order(report: Report) -> tuple[str, str, str, float]:
    at = -1.0 if report.at is None else report.at
    return report.reporter, report.peer, report.device, at


def _excuse(report: Report, scene: CrashScene) -> float | None:
    """Chance that the peer was a victim and had ended when it was reported. None: it probably had,
    so the report proves nothing."""
    if report.peer in scene.silent:
        return 0.0
    at, spoke, began = report.at, scene.first_words.get(report.peer), scene.began
    if at is not None and spoke is not None and at < spoke - SKEW_S:
        return 0.0
    there = report.reporter, report.peer, report.device
    back = report.peer, report.reporter, report.device
    if there in scene.opening and back in scene.opening:
        return MUTUAL if at is not None else UNTIMED
    if at is None or began is None or at > began + SKEW_S:
        return None
    return EARLY if spoke is None or at <= spoke else None


def _merge_causes(
    scene: CrashScene, fabric: Fabric, explained: int, same: Sequence[Cause], rails: int
) -> RootCause:
    """Merge causes on different rails that explain the same reports into one."""
    chances: dict[Part, float] = {}
    for cause in same:
        for part, chance in zip(cause.parts, cause.chances, strict=True):
            chances[part] = chances.get(part, 0.0) + chance / len(same)
    parts = tuple(sorted(chances, key=lambda part: (-chances[part], part)))
    names = [describe(fabric, part) for part in parts[:MOST_NAMED]]
    more = f" and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
    place = names[0] if len(parts) == 1 else f"cannot tell apart: {', '.join(names)}{more}"
    return RootCause(
        whom=tuple(dict.fromkeys(_part_subject(fabric, part) for part in parts)),
        parts=parts,
        confidence=sum(cause.confidence for cause in same) / rails,
        sentence=f"{place}: explains {explained} of {len(scene.pairs)} pairs that errors name",
        code="fabric",
    )


def _part_subject(fabric: Fabric, part: Part) -> Whom:
    if part.kind == "node":
        return Whom(node=part.name)
    if part.kind == "nic":
        nic = fabric.nic(part.name, part.other)
        return Whom(node=part.name, device=nic.device if nic else part.other)
    return Whom(part=describe(fabric, part))


# --- without one -----------------------------------------------------------------------------


def _cover_causes(scene: CrashScene) -> Iterator[RootCause]:
    """A host, or else a leaf, a pod or a rail, that is an end of nearly all pairs, if the next one
    is an end of far fewer."""
    pairs = _telling_pairs(scene)
    if len(pairs) <= FEWEST:
        return
    of_hosts = {end: end for pair in pairs for end in pair}
    for kind, of_host in {"": of_hosts, **scene.groups}.items():
        counts: Counter[str] = Counter()
        for pair in pairs:
            counts.update({of_host[end] for end in pair if end in of_host})
        ranked = sorted(counts, key=lambda name: (-counts[name], name))
        best, following = [*((name, counts[name]) for name in ranked[:2]), ("", 0), ("", 0)][:2]
        covers = best[1] >= COVER * len(pairs) and following[1] < RUNNER_UP * len(pairs)
        if best[0] and covers:
            yield _cover_cause(f"{kind} {best[0]}".strip(), kind, best[1], following[1], len(pairs))
            return


def _cover_cause(name: str, kind: str, count: int, following: int, total: int) -> RootCause:
    return RootCause(
        whom=(Whom(part=name) if kind else Whom(node=name),),
        parts=() if kind else (Part("node", name),),
        confidence=count / total,
        sentence=(
            f"{name}: an end of {count} of {total} pairs that errors name, the next one of "
            f"{following}"
        ),
        code="cover",
    )


def _telling_pairs(scene: CrashScene) -> frozenset[frozenset[str]]:
    """Pairs with a report that proves something; all pairs, if there is none."""
    telling = (report for report in scene.reports if _excuse(report, scene) is not None)
    pairs = frozenset(frozenset((report.reporter, report.peer)) for report in telling)
    return pairs or scene.pairs


# --- as a rule -------------------------------------------------------------------------------


def scene_of(evidence: JobEvidence, errors: Sequence[JobFact]) -> CrashScene:
    """Scene of the crash, with errors between ranks as reports between nodes. A node with any
    logged error is not silent."""
    reports = []
    for fact in errors:
        reporter, peer = _node(evidence, fact.whom), _node(evidence, fact.peer or Whom())
        if reporter and peer and reporter != peer:
            device = fact.whom.device
            reports.append(Report(reporter=reporter, peer=peer, device=device, at=fact.at))
    spoke: dict[str, float | None] = {}
    for event in evidence.log:
        node = event.node or ("" if event.rank is None else evidence.ranks.node_of(event.rank))
        if node and event.gravity is not Gravity.NOTE:
            earlier = spoke.setdefault(node, event.at)
            timed = earlier is not None and event.at is not None
            spoke[node] = min(earlier, event.at) if timed else None  # type: ignore[type-var]
    return CrashScene(
        hosts=tuple(dict.fromkeys(evidence.ranks.nodes.values())),
        reports=tuple(reports),
        spoke=spoke,
        unread=evidence.unread,
        working=(*evidence.working, *_surviving_pairs(evidence, errors)),
        fabric=evidence.fabric,
        groups=evidence.groups,
    )


def _surviving_pairs(evidence: JobEvidence, errors: Sequence[JobFact]) -> Iterator[WorkingPair]:
    """Pairs between which data still arrived after the first error. Earlier arrivals prove
    nothing."""
    began = min((fact.at for fact in errors if fact.at is not None), default=math.inf)
    ends = {
        frozenset((evidence.ranks.node_of(call.rank), evidence.ranks.node_of(call.peer)))
        for call in evidence.calls
        if call.peer is not None and call.finished is not None and call.finished > began + SKEW_S
    }
    for a, b in sorted(sorted(pair) for pair in ends if len(pair) == 2 and "" not in pair):
        yield WorkingPair(a=a, b=b)


def _node(evidence: JobEvidence, whom: Whom) -> str:
    if whom.node or whom.rank is None:
        return whom.node
    return evidence.ranks.node_of(whom.rank)


def _infer(hearing: Hearing) -> Iterator[JobFact]:
    errors = hearing.facts_of(FactKind.DISTRIBUTED_ERROR)
    scene = scene_of(hearing.evidence, errors)
    began = min((fact.at for fact in errors if fact.at is not None), default=None)
    for cause in root_causes(scene):
        for whom in cause.whom:
            yield JobFact(
                kind=FactKind.SILENT if cause.code == SILENCE else FactKind.COMMON_PART,
                whom=whom,
                evidence=cause.sentence,
                confidence=cause.confidence / len(cause.whom),
                code=cause.code,
                at=began,
                because=tuple(errors),
            )


RULES = (
    InferenceRule(
        name="what is behind many reports",
        needs=frozenset({FactKind.DISTRIBUTED_ERROR}),
        gives=frozenset({FactKind.COMMON_PART, FactKind.SILENT}),
        infer=_infer,
    ),
)
