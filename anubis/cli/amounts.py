"""Read the values of options: 90m, 24h, 2d; 30m on each node, 8nh in total; node lists; dates."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from anubis.core.amounts import SECONDS, seconds_of
from anubis.core.errors import UsageError
from anubis.text import hostlist

if TYPE_CHECKING:
    from anubis.core.select.selection import Budget

Word = TypeVar("Word", bound=str)

LONGEST_S = 3650 * SECONDS["d"]  # of a job; anything longer is a slip


def node_names(nodes: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hostlist.read(nodes)))


def nodes(text: str | None) -> tuple[str, ...] | None:
    """Names in a node list; None if there is no list."""
    return None if text is None else node_names(text)


def choose_word(option: str, value: str, words: Sequence[Word]) -> Word:
    for word in words:
        if word == value:
            return word
    raise UsageError(f'{option} is "{value}", expected {" or ".join(words)}')


def duration_s(text: str, option: str) -> float:
    seconds = seconds_of(text)
    if not 0 < seconds <= LONGEST_S:
        raise UsageError(f'{option} is "{text}", expected a time such as 90m, 24h or 2d')
    return seconds


def budget(text: str) -> Budget:
    from anubis.core.select.selection import Budget

    try:
        return Budget.from_text(text)
    except ValueError as error:
        raise UsageError(f"--budget is {error}") from None


FIRST = datetime(2000, 1, 1, tzinfo=UTC)  # before the first GPU that computes
LAST = datetime(2100, 1, 1, tzinfo=UTC)  # beyond any work that is planned


def instant(text: str, option: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f'{option} "{text}" is no date: expected one like 2026-11-01 or 2026-11-01T08:00'
            f"{_likely_form(text)}"
        ) from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if not FIRST <= at < LAST:
        raise UsageError(
            f'{option} "{text}" cannot be right: expected a year from {FIRST.year} to'
            f" {LAST.year - 1}"
        )
    return at


def _likely_form(text: str) -> str:
    """A hint at the form that works, if the text is a date as people write it; empty if it is none,
    or if it may be either of two days."""
    days = {day for form in ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y") if (day := _day(text, form))}
    return f"; did you mean {days.pop()}?" if len(days) == 1 else ""


def _day(text: str, form: str) -> str:
    for pattern, written in ((form, "%Y-%m-%d"), (f"{form} %H:%M", "%Y-%m-%dT%H:%M")):
        with suppress(ValueError):
            return datetime.strptime(text.strip(), pattern).strftime(written)
    return ""


def shares(text: str, option: str) -> dict[str, float]:
    """Shares by name, from a text such as gpu=0.7,host=0.3."""
    pairs = [part.partition("=") for part in text.split(",")]
    try:
        return {word.strip(): float(share) for word, _, share in pairs}
    except ValueError:
        raise UsageError(
            f'{option} is "{text}", expected shares such as gpu=0.7,host=0.3'
        ) from None
