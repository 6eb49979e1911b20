"""`anubis accept`, `validate`, `scan` and `locate`: measure nodes, or the network between them."""

from __future__ import annotations

from typing import Annotated

import typer

from anubis.cli.options import AnswerForms, Beginning
from anubis.cli.verb import verb
from anubis.operations.requests import (
    AcceptRequest,
    CampaignRequest,
    LocateRequest,
    ScanRequest,
    ValidateRequest,
)


@verb
def accept(request: AcceptRequest, forms: AnswerForms, beginning: Beginning) -> None:
    """Accept a new cluster: run, learn criteria from this run, judge, report."""
    _carry_out(request, forms, beginning)


@verb
def validate(request: ValidateRequest, forms: AnswerForms, beginning: Beginning) -> None:
    """Validate nodes: run, and judge by criteria learned earlier."""
    _carry_out(request, forms, beginning)


@verb
def scan(
    request: ScanRequest,
    forms: AnswerForms,
    beginning: Beginning,
    draw: Annotated[
        bool,
        typer.Option(
            "--draw",
            help="Measure nothing: draw the fabric, list its anomalies, and which of the named "
            "nodes are missing in it.",
        ),
    ] = False,
) -> None:
    """Scan the network: pairs of nodes at every distance, and the part at fault by name."""
    if draw:
        from anubis.cli import topology

        topology.draw(request, forms)
        return
    _carry_out(request, forms, beginning)


@verb
def locate(request: LocateRequest, forms: AnswerForms, beginning: Beginning) -> None:
    """Locate why a job fails or is slow: test pods, leaves and halves until one part is left."""
    _carry_out(request, forms, beginning)


def _carry_out(request: CampaignRequest, forms: AnswerForms, beginning: Beginning) -> None:
    from anubis.cli import campaigns

    campaigns.carry_out(request, forms, beginning)
