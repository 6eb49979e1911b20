"""The settings of a node that node_config reports, as text, and why some could not be read.

Three things stay apart. A setting that is off, 0 or absent is a text that says so. A setting that a
device does not have is "not supported". What could not be read has no text, but a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NODE = "node"
NOT_SUPPORTED = "not supported"
LONGEST = 800  # characters that are kept of a text


class Hidden(Exception):
    """It is there and could not be read, for a reason that one line can tell."""


@dataclass
class Settings:
    texts: dict[str, dict[str, str]] = field(default_factory=dict)  # by name and device
    unread: dict[str, str] = field(default_factory=dict)  # by name, or `name of device`

    def tell(self, name: str, value: object, device: str = NODE) -> None:
        words = " ".join(str(value).split())
        text = "".join(letter if letter.isprintable() else "?" for letter in words)
        self.texts.setdefault(name, {})[device] = text[:LONGEST]

    def miss(self, name: str, why: object, device: str = NODE) -> None:
        subject = name if device == NODE else f"{name} of {device}"
        self.unread.setdefault(subject, " ".join(str(why).split())[:LONGEST])

    def ask(self, name: str, reader: Callable[[], object], device: str = NODE) -> None:
        """Keep what the reader returns as a setting; if it cannot be read, no other is lost by
        that."""
        try:
            value = reader()
        except (Hidden, OSError, ValueError) as error:
            self.miss(name, error, device)
        else:
            if value is not None:
                self.tell(name, value, device)


def file_text(path: Path) -> str | None:
    """Return the text of a file; None if there is no such file. A file that may not be read is an
    error."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Hidden(f"{path}: {error.strerror}") from error


def expected_text(path: Path) -> str:
    """Return the text of a file that every node has; an error if it is absent."""
    content = file_text(path)
    if content is None:
        raise Hidden(f"{path} does not exist")
    return content


def names_in(folder: Path) -> list[str]:
    """List names in a folder, sorted; nothing if there is no such folder."""
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Hidden(f"{folder}: {error.strerror}") from error
