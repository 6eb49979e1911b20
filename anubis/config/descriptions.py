"""Cache the descriptions of a folder's programs until any file in or below that folder changes.

A program may import its neighbours and modules of folders beside it, so all of them count. Only
programs that read nothing else when they describe themselves belong here: the shipped ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from anubis.core.errors import ConfigError
from anubis.text import places
from anubis.text.files import write_whole


def load(digest: str) -> dict[str, str]:
    """Cached descriptions by file name; empty if unreadable or made of other files."""
    try:
        document = json.loads(places.descriptions().read_text(encoding="utf-8"))
        return dict(document["texts"]) if document["by"] == digest else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def keep(digest: str, texts: Mapping[str, str]) -> None:
    """Write the whole cache or nothing. If the home cannot be written, only time is lost."""
    data = json.dumps({"by": digest, "texts": texts}).encode()
    with suppress(ConfigError):
        write_whole(places.descriptions(), data, ConfigError, "the descriptions of programs")


def digest_of(folder: Path) -> str:
    checksum = sha256(sys.version.encode())
    for file in sorted(folder.rglob("*.py")):
        content, place = file.read_bytes(), file.relative_to(folder)
        checksum.update(f"\n{place} {len(content)}\n".encode() + content)
    return checksum.hexdigest()
