"""The record by which a file of this folder declares, as `NOTIFIER`, a way to tell people: settings
that can send. Keys of files, the reference and the values of `notifier:` are derived from it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from anubis.core.errors import ConfigError
from anubis.core.keep.messages import KeeperMessage, MessageStep, Topic
from anubis.reach import notifiers

LONGEST_SECRET = 4096  # letters; a larger file is something else


@dataclass(frozen=True, kw_only=True)
class NotifierSettings(ABC):
    """A file under configs/notifiers/."""

    summary: str = ""
    """What it is for, in one line."""
    topics: tuple[Topic, ...] = tuple(Topic)
    """What to report: drain, release, requeue, repair, swap, ticket, breaker, suspect, diagnosis,
    attention (a person is needed for a node) and keeper-stopped. Default: all."""
    proposals: bool = False
    """Whether to report also what is only proposed."""
    endings: bool = True
    """Whether to report also that something ended: a node is given back, a repair is proven, a
    suspicion is over."""

    def wants(self, message: KeeperMessage) -> bool:
        is_wanted = self.proposals or message.step is not MessageStep.PROPOSED
        return message.topic in self.topics and is_wanted and (self.endings or not message.ends)

    @abstractmethod
    def check(self) -> None:
        """Raise a ConfigError if a message could not even be tried, as when a secret is absent."""

    @abstractmethod
    def send(self, message: KeeperMessage, cluster: str) -> None:
        """Send a message, or raise a NotifyError. A message may be sent again, with the same
        identity."""


@cache
def notifier_kinds() -> Mapping[str, type[NotifierSettings]]:
    """All ways, by the names of their files."""
    kinds = {}
    for module in iter_modules(notifiers.__path__):
        declared = getattr(import_module(f"{notifiers.__name__}.{module.name}"), "NOTIFIER", None)
        if declared is not None:
            kinds[module.name] = declared
    return kinds


def resolve_secret(stated: str, key: str) -> str:
    """Return what `env:NAME` or `file:PATH` means; any other text means itself."""
    kind, _, place = stated.partition(":")
    if kind == "env":
        if not (value := os.environ.get(place, "").strip()):
            raise ConfigError(f'{key}: the environment variable "{place}" is not set')
        return value
    if kind == "file":
        try:
            with Path(place).open(encoding="utf-8") as file:
                value = file.read(LONGEST_SECRET).strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(f'{key}: cannot read "{place}": {reason}') from None
        if not value:
            raise ConfigError(f'{key}: "{place}" is empty')
        return value
    return stated
