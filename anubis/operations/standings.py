"""Where the nodes of a cluster stood when the keeper looked last, kept until anything changes of
what that is made of: most turns bring nothing new of it, and it is most of what a turn reads. What
campaigns concluded is kept beside it: when one more is over, only that one is read, and only its
nodes are looked at again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from anubis.config.descriptions import digest_of
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
from anubis.store.experience import ConcludedMark, StandingMark
from anubis.store.history import ClusterHistory
from anubis.text import places
from anubis.text.files import write_whole

LONGEST_S = 3600.0  # then all of it is read again, whatever is the same

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class KeptStanding:
    terms: str  # by which it was told: what is required of passes, and the rules
    mark: StandingMark  # of all that it is made of
    read_at: float  # when all of that was read
    since: float
    standing: LastingStanding

    def is_sound(self, terms: str, at: float) -> bool:
        return self.terms == terms and self.read_at <= at < self.read_at + LONGEST_S

    def is_current(self, at: float) -> bool:
        """Time alone has changed nothing."""
        return self.since <= at < self.standing.until


@dataclass(frozen=True, kw_only=True)
class ConcludedCampaign:
    """What a campaign concluded about its nodes: of most of them the same."""

    mark: ConcludedMark
    nodes: tuple[str, ...]
    kinds: tuple[Validation, ...]  # without the node
    kind: tuple[int, ...]  # of each node


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    campaigns: tuple[ConcludedCampaign, ...]


def present_of(part: ClusterHistory, at: float, repertoire: Repertoire) -> Present:
    """Where nodes stand now, with what is told of them."""

    place = places.standing_file(part.cluster)
    beside = place.with_name(f"conclusions-{place.name}")

    def recall(read: ReadStanding) -> Standing:
        sources = (repertoire.demands, digest_of(Path(rules.__file__).parent))
        terms = sha256(repr(sources).encode()).hexdigest()
        mark = part.experience.standing_mark()
        kept = _kept(KeptStanding, place)
        if kept and not kept.is_sound(terms, at):
            kept = None
        if kept and kept.mark == mark and kept.is_current(at):
            return kept.standing.standing
        conclusions = _kept(Conclusions, beside) if kept else None
        validations = _validations(conclusions) if conclusions else {}
        part.experience.begin_with(validations)
        fresh = read(_earlier(kept, mark, at) if kept else None)
        read_at = kept.read_at if kept and validations else at
        now = KeptStanding(terms=terms, mark=mark, read_at=read_at, since=at, standing=fresh)
        _keep(now, place)
        if (concluded := part.experience.conclusions()).keys() != validations.keys():
            _keep(_conclusions(concluded), beside)
        return fresh.standing

    return read_present(part, at, repertoire.demands, recall)


def _earlier(kept: KeptStanding, mark: StandingMark, at: float) -> EarlierStanding | None:
    """What it says still, if campaigns and notices only came since. None: nobody knows of which
    nodes something else is to be said."""
    before = kept.mark
    only_came = (
        before.counted == mark.counted
        and before.campaigns.items() <= mark.campaigns.items()
        and before.notices.items() <= mark.notices.items()
    )
    if not only_came or not kept.is_current(at):
        return None
    return EarlierStanding(
        standing=kept.standing,
        campaigns=mark.campaigns.keys() - before.campaigns.keys(),
        notices=mark.notices.keys() - before.notices.keys(),
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


def _kept(kind: type[T], place: Path) -> T | None:
    """Whatever cannot be read is nothing."""
    try:
        digest, _, text = place.read_text(encoding="utf-8").partition("\n")
        if sha256(text.encode()).hexdigest() == digest:
            return codec.load(kind, text)
    except (OSError, ValueError, TypeError):
        pass
    return None


def _keep(record: object, place: Path) -> None:
    """A home that cannot be written costs time, and no answer."""
    text = codec.dump(record)
    with suppress(OSError, StoreError):
        place.parent.mkdir(parents=True, exist_ok=True)
        data = f"{sha256(text.encode()).hexdigest()}\n{text}".encode()
        write_whole(place, data, StoreError, "where the nodes stand")
