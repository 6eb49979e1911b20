"""The reason that a node shows while Anubis keeps it from jobs: how all others tell whose it is."""

from __future__ import annotations

import re

from anubis.core.text import one_line

LONGEST = 200
SPARE = "SPARE"  # the code of a node that is well, and kept from jobs as a spare
UNPROVEN = "UNPROVEN"  # of a new node that nothing is held against
NO_DEFECT = (SPARE, UNPROVEN)
REPAIR = "REPAIR"  # of a repair that goes on, or is not proven, where no defect was found
INCIDENT = "INCIDENT"  # of one that is not over, or after which nothing was proven
_OURS = re.compile(r"anubis\[([^\]\s]+)\]: ")


def reason(code: str, sentence: str) -> str:
    """`anubis[CODE]: sentence`, short enough for every orchestrator."""
    text = f"anubis[{code}]: {one_line(' '.join(sentence.split()))}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def is_ours(text: str) -> bool:
    return _OURS.match(text) is not None


def code_of(reason: str) -> str:
    """Of a reason that is ours."""
    match = _OURS.match(reason)
    return match[1] if match else ""


def sentence_of(reason: str) -> str:
    return _OURS.sub("", reason, count=1)
