"""Text that came from outside, made fit to be kept and to be shown."""

from __future__ import annotations

import json
import re

# What steers a terminal, turns the order of letters round or is not to be seen: Unicode's control
# and format characters, its separators of lines and paragraphs, and halves of characters.
UNSHOWN = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001\U000e0020-\U000e007f"
)
_UNSHOWN = re.compile(f"[{UNSHOWN}]")
_UNSHOWN_IN_LINE = re.compile(rf"[\t\n{UNSHOWN}]")


def shown(text: str) -> str:
    """With each character that would steer the reader's screen written out: `\\u001b`.

    The spelling is JSON's: a line of JSON stays one, and means the same.
    """
    return _UNSHOWN.sub(_written_out, text)


def one_line(text: str) -> str:
    """The same, for a sentence that must not become two lines."""
    return _UNSHOWN_IN_LINE.sub(_written_out, text)


def _written_out(character: re.Match[str]) -> str:
    return json.dumps(character[0])[1:-1]


def storable(text: str) -> str:
    """Without what UTF-8 and databases cannot carry: halves of characters, and zero."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
