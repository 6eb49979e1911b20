"""Looks at the ranks of single machines, kept as files: the ranks of a job on several machines are
asked on each of them, and diagnosed from the files."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from anubis.core.errors import EvidenceError
from anubis.readers.jobs.live import LiveLook
from anubis.text.files import json_value, read_text, write_whole
from anubis.text.reading import read

SUFFIX = ".look"
MOST_FILES = 65_536
TOGETHER_S = 120.0  # looks of one question are not further apart


def write_look(look: LiveLook, folder: Path) -> Path:
    """Write a look into a file that is named after this machine."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise EvidenceError(f'cannot make "{folder}": {cause.strerror}') from None
    file = folder / f"{socket.gethostname()}{SUFFIX}"
    packed = gzip.compress(json.dumps(asdict(look)).encode(), mtime=0)
    write_whole(file, packed, EvidenceError, "the answers of this machine's ranks")
    return file


def look_files(place: Path) -> list[Path]:
    """List the files of looks; none if the place is neither such a file nor a folder of them."""
    if place.suffix == SUFFIX:
        return [place]
    try:
        return sorted(place.glob(f"*{SUFFIX}"))[:MOST_FILES]
    except OSError as cause:
        raise EvidenceError(f'cannot read "{place}": {cause.strerror}') from None


def read_looks(files: Sequence[Path]) -> list[LiveLook]:
    """Read looks that were taken at one time; files of an earlier request do not count."""
    looks = [read_look(file) for file in files]
    newest = max((look.at for look in looks), default=0.0)
    return [look for look in looks if newest - look.at <= TOGETHER_S]


def read_look(file: Path) -> LiveLook:
    text = read_text(file, EvidenceError)
    try:
        document = json_value(text)
    except ValueError as cause:
        raise EvidenceError(f'"{file}" is no look at ranks: {cause}') from None
    return read(document, LiveLook, f'"{file}"', EvidenceError)
