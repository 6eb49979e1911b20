"""Tell people over HTTP: a message as the JSON that a receiver expects, signed, one request each.

What the receiver gets is a form in the settings: nested values in whose texts `{sentence}` and
other names are replaced. Nothing in it is executed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from anubis import __version__
from anubis.core.amounts import HOUR_S
from anubis.core.errors import ConfigError, FetchError, NotifyError
from anubis.core.keep.messages import KeeperMessage
from anubis.core.text import escape_line
from anubis.reach.notifiers.notifier import NotifierSettings, resolve_secret
from anubis.text.fetching import HttpQuestion, fetch

NAME = re.compile(r"\{([a-z_]+)\}")
FACTS = ("sentence", "topic", "subject", "cluster", "step", "time", "key", "thread")
ENDS, OTHERWISE = "ends", "otherwise"  # in a table of words, beside the topics
NOT_YET = frozenset({408, 425, 429})  # the receiver asks to be tried later
MOST_BYTES = 1 << 20  # of an answer, of which only the status is read
LONGEST_SHOWN = 1000  # letters of a sentence: some receivers refuse long fields


@dataclass(frozen=True, kw_only=True)
class WebhookSettings(NotifierSettings):
    """One POST of JSON for each message.

    The texts of `url`, `headers`, `credentials` and `secret` may be `env:NAME` or `file:PATH`: the
    value is then read from that environment variable or file whenever it is needed, and kept
    nowhere.
    """

    notifier: Literal["webhook"]
    url: str
    """The address: https, or http to this machine."""
    body: Mapping[str, Any]
    """What is sent. In its texts {sentence}, {topic}, {subject}, {cluster}, {step}, {time}, {key}
    and {thread} are replaced, and the names under `words` and `credentials`. {key} is the same
    whenever a message is sent again; {thread} is the same for what begins and what ends one
    thing."""
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """More names, each with its word by topic; `ends` for messages that end something, `otherwise`
    for the rest."""
    escapes: Mapping[str, str] = field(default_factory=dict)
    """Letters that the receiver would read as its own signs, and what to write for them."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of the request, such as Authorization."""
    credentials: Mapping[str, str] = field(default_factory=dict)
    """More names for the body, such as the key of a service."""
    secret: str = ""
    """Signs the request. The header X-Anubis-Signature has the HMAC with SHA-256 of the header
    X-Anubis-Timestamp, a full stop and the body. Default: requests are not signed."""
    deadline_s: float = 10.0
    """How long one request may take."""

    def __post_init__(self) -> None:
        if not 0 < self.deadline_s <= 60:
            raise ValueError(f'"deadline_s" is {self.deadline_s:g}, expected up to 60')
        if self.secret and not self.secret.startswith(("env:", "file:")):
            raise ValueError('"secret" is written out, expected env:NAME or file:PATH')
        for name, table in self.words.items():
            if OTHERWISE not in table:
                raise ValueError(f'"words" has "{name}" without "{OTHERWISE}"')
        if long := [letter for letter in self.escapes if len(letter) != 1]:
            raise ValueError(f'"escapes" has "{long[0]}", expected single letters')
        names = {*FACTS, *self.words, *self.credentials}
        if unknown := sorted(set(NAME.findall(json.dumps(self.body))) - names):
            raise ValueError(
                f'"body" has {{{unknown[0]}}}, expected one of {", ".join(sorted(names))}'
            )

    def check(self) -> None:
        self._address()
        for name, value in {**self.headers, **self.credentials, "secret": self.secret}.items():
            resolve_secret(value, name)

    def send(self, message: KeeperMessage, cluster: str) -> None:
        try:
            url, question = self._address(), self._question(message, cluster)
        except ConfigError as error:
            raise NotifyError(str(error), is_refusal=False) from None
        host = urlsplit(url).hostname
        try:
            answer = fetch(question)
        except FetchError as error:
            raise NotifyError(f"{host}: {error}", is_refusal=False) from None
        if not 200 <= answer.status < 300:
            is_refusal = 300 <= answer.status < 500 and answer.status not in NOT_YET
            raise NotifyError(
                f"{host} answered {answer.status}",
                is_refusal=is_refusal,
                pause_s=_pause(answer.retry_after),
            )

    def _address(self) -> str:
        url = resolve_secret(self.url, "url")
        parts = urlsplit(url)
        is_near = parts.scheme == "http" and _is_this_machine(parts.hostname or "")
        if not parts.hostname or not (parts.scheme == "https" or is_near):
            raise ConfigError("url: expected https://…, or http://… to this machine")
        return url

    def _question(self, message: KeeperMessage, cluster: str) -> HttpQuestion:
        names = self._names(message, cluster)
        body = json.dumps(_fill(self.body, names), ensure_ascii=False).encode(errors="replace")
        # wall clock: the receiver compares it with its own
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": f"anubis/{__version__}",
            "Idempotency-Key": message.identity(cluster),
            "X-Anubis-Timestamp": timestamp,
            **{name: resolve_secret(value, name) for name, value in self.headers.items()},
        }
        if self.secret:
            secret = resolve_secret(self.secret, "secret").encode()
            signed = hmac.new(secret, f"{timestamp}.".encode() + body, hashlib.sha256)
            headers["X-Anubis-Signature"] = f"sha256={signed.hexdigest()}"
        return HttpQuestion(
            url=self._address(),
            deadline_s=self.deadline_s,
            body=body,
            headers=headers,
            most_bytes=MOST_BYTES,
        )

    def _names(self, message: KeeperMessage, cluster: str) -> dict[str, str]:
        facts = {
            "sentence": message.sentence[:LONGEST_SHOWN],
            "topic": message.topic.value,
            "subject": message.subject,
            "cluster": cluster,
            "step": message.step.value,
            "time": _time(message.at),
            "key": message.identity(cluster),
            "thread": message.thread(cluster),
        }
        letters = str.maketrans(dict(self.escapes))
        shown = {name: escape_line(text).translate(letters) for name, text in facts.items()}
        kind = ENDS if message.ends else message.topic.value
        words = {name: table.get(kind, table[OTHERWISE]) for name, table in self.words.items()}
        secrets = {name: resolve_secret(value, name) for name, value in self.credentials.items()}
        return {**shown, **words, **secrets}


NOTIFIER = WebhookSettings


def _fill(value: Any, names: Mapping[str, str]) -> Any:
    """Replace the names in all texts, once: what replaces a name is not looked at again."""
    if isinstance(value, str):
        return NAME.sub(lambda match: names[match[1]], value)
    if isinstance(value, Mapping):
        return {key: _fill(inner, names) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(inner, names) for inner in value]
    return value


def _time(at: float) -> str:
    """The time as ISO 8601; empty if a wrong clock gave one that no calendar has."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


def _pause(retry_after: str) -> float | None:
    """Seconds that the receiver asks for, up to an hour; None if it names none that is plain."""
    return min(float(retry_after), HOUR_S) if re.fullmatch(r"\d{1,9}", retry_after) else None


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
