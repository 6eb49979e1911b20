"""`anubis criteria judge`: judge past campaigns again, by any criteria; run nothing."""

from __future__ import annotations

import anubis
from anubis.cli import options
from anubis.cli.terminal import Terminal
from anubis.cli.verb import verb
from anubis.operations.requests import JudgeRequest


@verb
def judge(request: JudgeRequest, json: options.Json = False, html: options.HtmlToo = None) -> None:
    """Judge past campaigns again, alone or as one, by other criteria, without running anything."""
    from anubis.cli import showing

    forms = options.AnswerForms(json=json, html=html)
    forms.check()
    showing.answer_with(anubis.judge(request, Terminal()), forms)
