"""The log of the events that a campaign's machine received, as JSON lines, so that they can be
replayed.

Each run of a campaign has a file. Its first line says how the machine was built, each further one
is an event, written before the machine receives it; a driver that was killed may leave half a line.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from anubis.core.campaign.state_machine import CampaignEvent, Opening, Witness
from anubis.core.errors import StoreError
from anubis.core.records import Result, canonical
from anubis.store import codec
from anubis.text.files import read_text

Entry = Opening | CampaignEvent
KINDS = {kind.__name__: kind for kind in (Opening, *get_args(CampaignEvent))}


@dataclass(frozen=True, kw_only=True)
class Recording:
    opening: Opening
    events: tuple[CampaignEvent, ...]


@contextmanager
def recording(folder: Path | None, campaign: str) -> Iterator[Witness]:
    """Open a new file in the folder; without a folder nothing is kept."""
    if folder is None:
        yield lambda _: None
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        runs = len(list(folder.glob(f"{campaign}.*.jsonl")))
        file = (folder / f"{campaign}.{runs}.jsonl").open("x", encoding="utf-8", buffering=1)
    except OSError as error:
        raise StoreError(
            f'cannot record events in "{folder}": {error.strerror}; '
            "let $ANUBIS_EVENTS name a folder that can be written, or unset it"
        ) from None

    def keep(entry: Entry) -> None:
        file.write(f"{line(entry)}\n")

    with file:
        yield keep


def line(entry: Entry) -> str:
    return canonical({type(entry).__name__: codec.document(_drop_samples(entry))})


def _drop_samples(entry: Entry) -> Entry:
    """Drop the samples of earlier runs: the history has them, and the machine asks only how those
    runs ended."""
    if not isinstance(entry, Opening):
        return entry
    bare = (dataclasses.replace(execution, result=Result()) for execution in entry.history)
    return dataclasses.replace(entry, history=tuple(bare))


def read(path: Path) -> Recording:
    lines = read_text(path, StoreError, f'events in "{path}"').splitlines(keepends=True)
    complete = [text for text in lines if text.endswith("\n")]
    entries = [parse(text, f'"{path}", line {number}') for number, text in enumerate(complete, 1)]
    if not entries or not isinstance(entries[0], Opening):
        raise StoreError(
            f'"{path}" does not begin with how a campaign opened; expected a file '
            "that a campaign wrote under $ANUBIS_EVENTS"
        )
    events = tuple(event for event in entries[1:] if not isinstance(event, Opening))
    return Recording(opening=entries[0], events=events)


def parse(text: str, where: str) -> Entry:
    """Return the entry in a line, as the inverse of `line`."""
    try:
        ((name, document),) = json.loads(text).items()
        entry: Entry = codec.restore(KINDS[name], document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{where} is no event of a campaign: {error}") from None
    return entry
