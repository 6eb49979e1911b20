"""What was known before a campaign: settings that other nodes reported, with which one node alone
is compared; criteria that other campaigns taught, which tell how healthy nodes scatter; and wrong
numbers that came once, by which chance and a sick GPU are told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from anubis.config import catalog
from anubis.core.history.events import FleetUpgraded
from anubis.core.judge.equality import NodeSettings
from anubis.core.judge.wrong_numbers import CAME_ONCE, NO_SCREENS, Screens
from anubis.core.records import BenchmarkSpec, Campaign, CriteriaSet
from anubis.store.history import ClusterHistory, History


@dataclass(frozen=True, kw_only=True)
class Precedents:
    settings: Sequence[NodeSettings] = ()  # that other nodes last reported
    criteria: Sequence[CriteriaSet] = ()  # that other campaigns taught
    screens: Screens = NO_SCREENS  # for wrong numbers


NOTHING_BEFORE = Precedents()


Programs = Mapping[str, frozenset[str]]  # programs and the settings that they report

MOST_SEARCHED = 200  # campaigns, the newest, among which those that taught are sought
MOST_EARLIER = 8  # of them that tell how healthy nodes scatter


def precedents(
    history: History, cluster: str, specs: Iterable[BenchmarkSpec], at: float
) -> Precedents:
    """Precedents at a time, for a campaign that runs these programs in a cluster."""
    part, specs = history.cluster(cluster), list(specs)
    repeating = [s.name for s in specs if any(m.name == CAME_ONCE for m in s.metrics)]
    return Precedents(
        settings=_settings_before(part, specs, at),
        criteria=taught_before(history, at),
        screens=Screens.from_notes(part.earlier_runs.newest_notes(at, repeating)),
    )


def precedents_of(history: History, campaign: Campaign) -> Precedents:
    return precedents(history, campaign.cluster, campaign.plan.specs, campaign.created_at)


def taught_before(history: History, at: float) -> tuple[CriteriaSet, ...]:
    """The criteria that the last campaigns before a time learned from their own measurements, in
    any cluster."""
    ended = [
        row.id
        for row in history.campaigns.newest(limit=MOST_SEARCHED)
        if row.kind.learns and row.finished_at is not None and row.finished_at < at
    ]
    taught = map(history.campaigns.get, ended[:MOST_EARLIER])
    return tuple(chain.from_iterable(campaign.criteria for campaign in taught))


def _settings_before(
    part: ClusterHistory, specs: Iterable[BenchmarkSpec], at: float
) -> list[NodeSettings]:
    """Settings that nodes reported, without those from before an upgrade: they are of other
    software."""
    programs = reporting_programs(specs)
    if not programs:
        return []
    return drop_outdated(part, part.earlier_runs.last_settings(at, programs), at)


def reporting_programs(specs: Iterable[BenchmarkSpec]) -> Programs:
    """Programs that report settings, with the names of these."""
    return {
        spec.name: frozenset(setting.name for setting in spec.settings)
        for spec in specs
        if spec.settings
    }


def last_settings(part: ClusterHistory, at: float) -> list[NodeSettings]:
    """Settings that all nodes of a cluster last reported, by the shipped programs."""
    programs = reporting_programs(catalog.load(catalog.folders()).specs.values())
    return drop_outdated(part, part.earlier_runs.last_settings(at, programs), at)


def drop_outdated(part: ClusterHistory, votes: list[NodeSettings], at: float) -> list[NodeSettings]:
    if not votes:
        return []
    upgraded: dict[str, float] = {}
    for event_record in part.event_records.all():
        if isinstance(event_record.event, FleetUpgraded) and event_record.at <= at:
            upgraded |= dict.fromkeys(event_record.event.nodes, event_record.at)
    return [vote for vote in votes if vote.at > upgraded.get(vote.node, float("-inf"))]
