"""The person at the terminal, as operations know who asks."""

from __future__ import annotations

from anubis.cli import showing
from anubis.operations.caller import Caller


class Terminal(Caller):
    """Remarks and progress go to stderr; Ctrl-C is how a person stops anything."""

    def remark(self, sentence: str) -> None:
        showing.passing("")
        showing.say(sentence)

    def doing(self, sentence: str) -> None:
        showing.passing(sentence)
