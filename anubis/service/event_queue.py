"""Keep waiting events together: a commit takes longer than an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anyio import CapacityLimiter, to_thread

from anubis.core.errors import AnubisError, StoreError
from anubis.operations.tell import Receipt, Telling, tell_all
from anubis.service.requester import Requester

EventAnswer = Receipt | AnubisError


@dataclass
class QueuedEvent:
    telling: Telling
    requester: Requester
    answer: EventAnswer | None = field(default=None)


class EventQueue:
    def __init__(self, writer: CapacityLimiter) -> None:
        self._writer = writer
        self._waiting: list[QueuedEvent] = []

    async def tell(self, telling: Telling, requester: Requester) -> Receipt:
        """Keep an event and return its receipt; the first to get the writer keeps all that wait."""
        letter = QueuedEvent(telling, requester)
        self._waiting.append(letter)
        async with self._writer:
            if letter.answer is None:
                letters, self._waiting = self._waiting, []
                await to_thread.run_sync(_tell, letters)
        if isinstance(letter.answer, Receipt):
            return letter.answer
        assert letter.answer is not None
        raise letter.answer


def _tell(letters: Sequence[QueuedEvent]) -> None:
    try:
        _tell_together(letters)
    except StoreError as error:
        if len(letters) == 1:
            letters[0].answer = error
            return
        for letter in letters:  # one of them may be at fault
            _tell([letter])


def _tell_together(letters: Sequence[QueuedEvent]) -> None:
    first = letters[0].requester
    tellings = [letter.telling for letter in letters]
    for letter, answer in zip(letters, tell_all(tellings, first.history(), first), strict=True):
        letter.answer = answer
