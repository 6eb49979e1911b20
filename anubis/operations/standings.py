"""Where the nodes of a cluster stood when the keeper looked last, kept until anything changes of
what that is made of: most turns bring nothing new of it, and it is most of what a turn reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from anubis import places
from anubis.core.errors import StoreError
from anubis.core.past import standing as rules
from anubis.core.past.standing import Standing
from anubis.descriptions import digest_of
from anubis.files import write_whole
from anubis.operations.deciding import Repertoire
from anubis.selector import LastingStanding, Present, read_present
from anubis.store import codec
from anubis.store.history import ClusterHistory

LONGEST_S = 3600.0  # then all of it is read again, whatever is the same


@dataclass(frozen=True, kw_only=True)
class KeptStanding:
    mark: str  # of all that it is made of
    since: float
    until: float
    standing: Standing


def present_of(part: ClusterHistory, at: float, repertoire: Repertoire) -> Present:
    """Where nodes stand now, with what is told of them."""

    def recall(read: Callable[[], LastingStanding]) -> Standing:
        required = repr(repertoire.demands)
        sources = (
            part.experience.standing_mark(),
            required,
            digest_of(Path(rules.__file__).parent),
        )
        mark = sha256(repr(sources).encode()).hexdigest()
        kept = _kept(part.cluster)
        if kept and kept.mark == mark and kept.since <= at < kept.until:
            return kept.standing
        fresh = read()
        until = min(fresh.until, at + LONGEST_S)
        _keep(part.cluster, KeptStanding(mark=mark, since=at, until=until, standing=fresh.standing))
        return fresh.standing

    return read_present(part, at, repertoire.demands, recall)


def _kept(cluster: str) -> KeptStanding | None:
    """Whatever cannot be read is nothing."""
    try:
        digest, _, text = places.standing_file(cluster).read_text(encoding="utf-8").partition("\n")
        if sha256(text.encode()).hexdigest() == digest:
            return codec.load(KeptStanding, text)
    except (OSError, ValueError, TypeError):
        pass
    return None


def _keep(cluster: str, standing: KeptStanding) -> None:
    """A home that cannot be written costs time, and no answer."""
    text, place = codec.dump(standing), places.standing_file(cluster)
    with suppress(OSError, StoreError):
        place.parent.mkdir(parents=True, exist_ok=True)
        data = f"{sha256(text.encode()).hexdigest()}\n{text}".encode()
        write_whole(place, data, StoreError, "where the nodes stand")
