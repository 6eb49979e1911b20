"""Count connections, and choose which one closes if there are too many.

Opening connections costs nothing, so no address may close the service to others by having many.
Each address has a share. All strangers together leave room for addresses that are trusted or
presented a token lately. Connections that ask for nothing close first. This module knows neither
sockets nor HTTP.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from anubis.core.amounts import HOUR_S

KNOWN_S = HOUR_S  # after an address last presented a token
MOST_KNOWN = 10_000  # addresses
LOCAL = ("127.0.0.0/8", "::1/128")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
C = TypeVar("C")  # a connection


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Limits on simultaneous connections, by kind of address."""

    most: int = 500
    of_strangers: int = 400  # of all of them together
    of_stranger: int = 50  # of one address
    of_known: int = 250  # of one that presented a token lately
    of_trusted: int = 450  # a proxy on this machine forwards everybody's requests
    trusted: tuple[str, ...] = LOCAL  # networks
    first_head_s: float = 5.0  # for the head of the first request to arrive
    idle_s: float = 10.0  # for the head of the next one
    taken_s: float = 300.0  # for a request to be answered and the answer to be taken

    def limit(self, *, is_trusted: bool, is_known: bool) -> int:
        return self.of_trusted if is_trusted else self.of_known if is_known else self.of_stranger


@dataclass
class _Owner(Generic[C]):
    """An address and its connections."""

    is_stranger: bool
    limit: int
    busy: dict[C, None] = field(default_factory=dict)
    answered: dict[C, None] = field(default_factory=dict)  # kept open, the oldest first
    silent: dict[C, None] = field(default_factory=dict)  # sent no complete head so far

    @property
    def count(self) -> int:
        return len(self.busy) + len(self.answered) + len(self.silent)

    def drop(self, connection: C) -> None:
        for place in (self.busy, self.answered, self.silent):
            place.pop(connection, None)

    @property
    def idle(self) -> C | None:
        """The connection to close first."""
        return next(iter(self.answered or self.silent), None)


class Connections(Generic[C]):
    def __init__(
        self, limits: ConnectionLimits | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits or ConnectionLimits()
        self._clock = clock
        self._trusted: Sequence[Network] = [
            ipaddress.ip_network(network) for network in self.limits.trusted
        ]
        self._owners: dict[str, _Owner[C]] = {}
        self._owner_of: dict[C, str] = {}
        self._known: dict[str, float] = {}  # when an address last presented a token
        self.strangers = 0  # their connections
        self.turned_away = 0
        self.given_up = 0  # closed to make room for others

    def __len__(self) -> int:
        return len(self._owner_of)

    def admit(self, connection: C, address: str) -> tuple[bool, C | None]:
        """Return whether the connection is let in, and which other one must close for it."""
        name = owner_of(address)
        owner = self._owners.get(name) or self._new(name)
        goes, is_full = None, True
        if owner.count >= owner.limit:
            goes = owner.idle
        elif owner.is_stranger and self.strangers >= self.limits.of_strangers:
            goes = self._first_to_go(only_strangers=True)
        elif len(self) >= self.limits.most:
            goes = self._first_to_go(only_strangers=False)
        else:
            is_full = False
        if is_full and goes is None:
            self.turned_away += 1
            return False, None
        if goes is not None:
            self.given_up += 1
            self.leave(goes)
        self._owners[name] = owner
        self._owner_of[connection] = name
        owner.silent[connection] = None
        self.strangers += owner.is_stranger
        return True, goes

    def begin(self, connection: C) -> None:
        """Note that the connection sent the head of a request."""
        if owner := self._find_owner(connection):
            owner.drop(connection)
            owner.busy[connection] = None

    def rest(self, connection: C) -> None:
        """Note that the connection was answered and may ask again."""
        if owner := self._find_owner(connection):
            owner.drop(connection)
            owner.answered[connection] = None

    def leave(self, connection: C) -> None:
        if (owner := self._find_owner(connection)) is None:
            return
        name = self._owner_of.pop(connection)
        owner.drop(connection)
        self.strangers -= owner.is_stranger
        if not owner.count:
            del self._owners[name]

    def know(self, address: str) -> None:
        """Note that the address presented a valid token."""
        name = owner_of(address)
        self._known.pop(name, None)
        self._known[name] = self._clock()  # at the end
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        owner = self._owners.get(name)
        if owner and owner.is_stranger:
            self.strangers -= owner.count
            owner.is_stranger, owner.limit = False, self.limits.of_known

    def _find_owner(self, connection: C) -> _Owner[C] | None:
        """Owner of the connection; None if the connection was closed or refused."""
        name = self._owner_of.get(connection)
        return None if name is None else self._owners[name]

    def _new(self, name: str) -> _Owner[C]:
        is_trusted = self._is_trusted(name)
        is_known = self._clock() - self._known.get(name, float("-inf")) < KNOWN_S
        return _Owner(
            is_stranger=not (is_trusted or is_known),
            limit=self.limits.limit(is_trusted=is_trusted, is_known=is_known),
        )

    def _is_trusted(self, name: str) -> bool:
        network = _network(name)
        return network is not None and any(
            network.version == trusted.version and network.subnet_of(trusted)  # type: ignore[arg-type] # mypy pairs the versions
            for trusted in self._trusted
        )

    def _first_to_go(self, *, only_strangers: bool) -> C | None:
        """The connection to close first: a stranger's before others, then one of the address with
        most connections, then one that was answered before one that has asked for nothing so
        far."""
        owners = [
            owner
            for owner in self._owners.values()
            if (owner.answered or owner.silent) and (owner.is_stranger or not only_strangers)
        ]
        if not owners:
            return None
        first = max(owners, key=lambda o: (o.is_stranger, o.count, bool(o.answered)))
        return first.idle


def owner_of(address: str) -> str:
    """The network that counts as one owner, because one owner can use all of it: of IPv6 a /64."""
    network = _network(address)
    return str(network) if network else address


def _network(text: str) -> Network | None:
    try:
        network = ipaddress.ip_network(text.partition("%")[0], strict=False)
    except ValueError:
        return None
    if isinstance(network, ipaddress.IPv4Network):
        return network
    mapped = network.network_address.ipv4_mapped
    if mapped:
        return ipaddress.ip_network(mapped)
    if network.network_address.is_loopback or network.prefixlen <= 64:
        return network
    return network.supernet(new_prefix=64)
