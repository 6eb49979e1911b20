"""Settings of the service, checked before it listens."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

from anubis.core.errors import UsageError
from anubis.operations.requests import ServeRequest
from anubis.operations.serve import PodReviewer, read_served_files
from anubis.service.connections import LOCAL, ConnectionLimits

NAME_KEPT_S = 60.0  # of this machine in its domain


@dataclass(frozen=True, kw_only=True)
class ServiceSettings(ServeRequest):
    files: Mapping[str, str] = field(default_factory=dict)  # of the clusters, by name
    most_bytes: int = 1_000_000  # of a body
    body_s: float = 10.0  # for all of a request to arrive
    answer_s: float = 30.0
    pods: PodReviewer | None = None  # None: no pod of Kubernetes is asked about

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise UsageError("--certificate and --private-key belong together: name both files")
        for network in self.trusted:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise UsageError(
                    f'--trusted "{network}": {error}; expected an address or a network such as'
                    " 10.1.0.0/16"
                ) from None

    @classmethod
    def from_request(cls, request: ServeRequest) -> Self:
        """Settings of a request whose files can be read."""
        files = read_served_files(request)
        return cls(**vars(request), files=files.clusters, pods=files.pods)

    @property
    def turns_every_s(self) -> Mapping[str, float]:
        """Interval of the keeper's turns, for each cluster that is kept."""
        return dict.fromkeys(self.files, self.turn_every_s) if self.turn_every_s else {}

    @property
    def connections(self) -> ConnectionLimits:
        return ConnectionLimits(trusted=tuple(self.trusted) or LOCAL)

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def refuse_open(self, has_tokens: bool) -> None:
        """Refuse to serve other machines without a token: their users could not be told apart."""
        if not (self.is_loopback or has_tokens):
            raise UsageError(
                f"--host {self.host} can be reached from other machines, and there is no token: "
                "make one first (anubis token make NAME --scope read), or listen on 127.0.0.1"
            )

    def is_own(self, name: str) -> bool:
        """True if a request for this host may be meant for this service. A hostile page whose own
        name points here sends that name; an address needs no name."""
        name = name.lower()
        if name in {"localhost", socket.gethostname().lower(), *map(str.lower, self.names)}:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name == _full_name(int(time.monotonic() // NAME_KEPT_S))
        return True


@lru_cache(maxsize=1)
def _full_name(span: int) -> str:
    """This machine's name in its domain. A name server may be slow to tell it, while every request
    waits: it is asked once in a `span` of time."""
    return socket.getfqdn().lower()
