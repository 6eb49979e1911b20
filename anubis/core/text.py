"""Make text from outside safe to store and to show."""

from __future__ import annotations

import json
import re

# Characters that control a terminal, reverse the order of letters or are invisible: Unicode's
# control and format characters, its separators of lines and paragraphs, and surrogates.
UNSHOWN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001\U000e0020-\U000e007f"
)
_UNSHOWN = re.compile(f"[{UNSHOWN}]")
_UNSHOWN_IN_LINE = re.compile(rf"[\t\n{UNSHOWN}]")


def escape(text: str) -> str:
    """Escape each character that would control the reader's screen: `\\u001b`.

    The spelling is JSON's, so a line of JSON stays valid, and keeps its meaning.
    """
    return _UNSHOWN.sub(_spell, text)


def escape_line(text: str) -> str:
    """Escape the same characters, and line breaks, for a sentence that must stay on one line."""
    if text.isascii() and text.isprintable():  # as nearly all is, and seen at once
        return text
    return _UNSHOWN_IN_LINE.sub(_spell, text)


def _spell(character: re.Match[str]) -> str:
    return json.dumps(character[0])[1:-1]


def make_storable(text: str) -> str:
    """Replace characters that UTF-8 and databases cannot store: surrogates, and zero."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
