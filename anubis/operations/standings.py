"""Cache the standings of a cluster's nodes as the keeper last found them, until the records they
depend on change. Most turns bring no change, and computing standings is most of a turn's reading. A
second file caches the conclusions of campaigns: after one more campaign only that one is read, and
only its nodes are computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from anubis.config.descriptions import digest_of
from anubis.core.amounts import HOUR_S
from anubis.core.errors import StoreError
from anubis.core.history import standing as rules
from anubis.core.history.standing import Standing
from anubis.core.history.status import Validation
from anubis.operations.decide import Repertoire
from anubis.operations.selector import (
    EarlierStanding,
    LastingStanding,
    Present,
    ReadStanding,
    read_present,
)
from anubis.store import codec
from anubis.store.conclusions import ConcludedMark, StandingMark
from anubis.store.history import ClusterHistory
from anubis.text import places
from anubis.text.files import write_whole

LONGEST_S = HOUR_S  # then everything is read again, even if nothing changed

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class KeptStanding:
    terms: str  # digest of the demands on passes and of the rules
    mark: StandingMark  # of the records it depends on
    read_at: float  # when all of these were read
    since: float
    standing: LastingStanding

    def is_sound(self, terms: str, at: float) -> bool:
        return self.terms == terms and self.read_at <= at < self.read_at + LONGEST_S

    def is_current(self, at: float) -> bool:
        """True if time alone has changed nothing."""
        return self.since <= at < self.standing.until


@dataclass(frozen=True, kw_only=True)
class ConcludedCampaign:
    """Conclusions of a campaign about its nodes, which are the same for most of them."""

    mark: ConcludedMark
    nodes: tuple[str, ...]
    kinds: tuple[Validation, ...]  # without the node
    kind: tuple[int, ...]  # of each node


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    campaigns: tuple[ConcludedCampaign, ...]


def present_of(part: ClusterHistory, at: float, repertoire: Repertoire) -> Present:
    """Present state of the nodes, with the reports on them."""

    place = places.standing_file(part.cluster)
    beside = place.with_name(f"conclusions-{place.name}")

    def recall(read: ReadStanding) -> Standing:
        sources = (repertoire.demands, digest_of(Path(rules.__file__).parent))
        terms = sha256(repr(sources).encode()).hexdigest()
        mark = part.experience.standing_mark()
        kept = _load(KeptStanding, place)
        if kept and not kept.is_sound(terms, at):
            kept = None
        if kept and kept.mark == mark and kept.is_current(at):
            return kept.standing.standing
        conclusions = _load(Conclusions, beside) if kept else None
        validations = _validations(conclusions) if conclusions else {}
        part.experience.begin_with(validations)
        fresh = read(_earlier_standing(kept, mark, at) if kept else None)
        read_at = kept.read_at if kept and validations else at
        now = KeptStanding(terms=terms, mark=mark, read_at=read_at, since=at, standing=fresh)
        _keep(now, place)
        if (concluded := part.experience.conclusions()).keys() != validations.keys():
            _keep(_conclusions(concluded), beside)
        return fresh.standing

    return read_present(part, at, repertoire.demands, recall)


def _earlier_standing(kept: KeptStanding, mark: StandingMark, at: float) -> EarlierStanding | None:
    """The part of a kept standing that still holds, if only campaigns and event records were added
    since. None if the changed nodes are unknown."""
    before = kept.mark
    only_came = (
        before.counted == mark.counted
        and before.campaigns.items() <= mark.campaigns.items()
        and before.event_records.items() <= mark.event_records.items()
    )
    if not only_came or not kept.is_current(at):
        return None
    return EarlierStanding(
        standing=kept.standing,
        campaigns=mark.campaigns.keys() - before.campaigns.keys(),
        event_records=mark.event_records.keys() - before.event_records.keys(),
    )


def _conclusions(read: Mapping[ConcludedMark, Sequence[Validation]]) -> Conclusions:
    campaigns = []
    for mark, validations in read.items():
        kinds: dict[Validation, int] = {}
        kind = [kinds.setdefault(replace(v, node=""), len(kinds)) for v in validations]
        nodes = tuple(validation.node for validation in validations)
        campaigns.append(
            ConcludedCampaign(mark=mark, nodes=nodes, kinds=tuple(kinds), kind=tuple(kind))
        )
    return Conclusions(campaigns=tuple(campaigns))


def _validations(kept: Conclusions) -> dict[ConcludedMark, tuple[Validation, ...]]:
    return {
        campaign.mark: tuple(
            replace(campaign.kinds[kind], node=node)
            for node, kind in zip(campaign.nodes, campaign.kind, strict=True)
        )
        for campaign in kept.campaigns
    }


def _load(kind: type[T], place: Path) -> T | None:
    """A kept record; None if it cannot be read."""
    try:
        digest, _, text = place.read_text(encoding="utf-8").partition("\n")
        if sha256(text.encode()).hexdigest() == digest:
            return codec.load(kind, text)
    except (OSError, ValueError, TypeError):
        pass
    return None


def _keep(record: object, place: Path) -> None:
    """Write a record. If the home cannot be written, only time is lost."""
    text = codec.dump(record)
    with suppress(OSError, StoreError):
        place.parent.mkdir(parents=True, exist_ok=True)
        data = f"{sha256(text.encode()).hexdigest()}\n{text}".encode()
        write_whole(place, data, StoreError, "the states of the nodes")
