"""The reason of a drain or cordon, written so that Anubis recognises its own when it reads them."""

from __future__ import annotations

import re

from anubis.core.text import escape_line

LONGEST = 200  # letters: the shortest limit of an orchestrator
SPARE = "SPARE"  # a healthy node, kept from jobs as a spare
UNPROVEN = "UNPROVEN"  # a new node without known problems
SUSPECTED = "SUSPECTED"  # a node that a test has to clear first, by the policy
LOST = "NODE-LOST"  # what campaigns call a node that does not answer; it returns unproven
HELD = (UNPROVEN, SUSPECTED, LOST)  # within the shares that defects leave
NO_DEFECT = (SPARE, *HELD)
REPAIR = "REPAIR"  # a repair under way, or unproven, without a defect found
INCIDENT = "INCIDENT"  # an open incident, or one without a later proof
_OURS = re.compile(r"anubis\[([^\]\s]+)\]: ")


def reason(code: str, sentence: str) -> str:
    """Text `anubis[CODE]: sentence`, short enough for every orchestrator."""
    text = f"anubis[{code}]: {escape_line(' '.join(sentence.split()))}"
    if text.endswith('"'):  # scontrol takes a quotation mark at the end away
        text += "."
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def is_ours(text: str) -> bool:
    return _OURS.match(text) is not None


def code_of(reason: str) -> str:
    """Code of a reason by Anubis; empty: another reason."""
    match = _OURS.match(reason)
    return match[1] if match else ""


def sentence_of(reason: str) -> str:
    return _OURS.sub("", reason, count=1)
