"""The requester as the caller of operations: a token by its name, and the service's open
history."""

from __future__ import annotations

import logging
import time

from anubis.core.history.events import KeptEvent
from anubis.core.text import escape_line
from anubis.operations.caller import Caller
from anubis.operations.tokens import TokenScope
from anubis.service.problems import Refused
from anubis.store.database import Database
from anubis.store.history import ClusterHistory, History

LOG = logging.getLogger("anubis.service")


class OpenHistory(History):
    """A history that stays open after an operation and remembers what was read of clusters, so that
    the next operation reads only what has changed."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.dialect = database.dialect
        self._parts: dict[str, ClusterHistory] = {}

    def cluster(self, cluster: str) -> ClusterHistory:
        return self._parts.setdefault(cluster, super().cluster(cluster))

    def close(self) -> None:
        pass

    def close_at_last(self) -> None:
        self._database.close()


class Requester(Caller):
    def __init__(self, history: OpenHistory, token: str, scopes: tuple[str, ...]) -> None:
        self._history = history
        self.token = token  # by its name; empty if there is none
        self._scopes = scopes

    clock = staticmethod(time.time)

    def name(self) -> str:
        return self.token or "anubis serve"

    def history(self, *, begins: bool = False) -> History:
        return self._history

    def remark(self, sentence: str) -> None:
        LOG.info("%s: %s", self.name(), escape_line(sentence))

    def require(self, *scopes: TokenScope) -> None:
        """Refuse unless the requester has one of these scopes."""
        if not set(scopes) & {*self._scopes}:
            raise Refused(403, lacks(self.token, scopes[0]))

    def require_for(self, event: KeptEvent) -> None:
        if event.token_scope not in self._scopes:
            raise Refused(403, f"{event.kind}: {lacks(self.token, event.token_scope)}")


def lacks(token: str, scope: str) -> str:
    if token:
        return (
            f'token "{token}" has no scope "{scope}": make one that has (anubis token make NAME'
            f" --scope {scope})"
        )
    return (
        f'without a token, all users of this machine may read, and none may "{scope}": make one '
        f"(anubis token make NAME --scope {scope})"
    )
