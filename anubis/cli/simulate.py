"""`anubis risk simulate`: does validation pay on such a cluster, and which policy pays most?"""

from __future__ import annotations

from pathlib import Path

import anubis
from anubis.cli import answer, options
from anubis.cli.page_files import check_page, write_page
from anubis.cli.remarks import show_status
from anubis.cli.terminal import Terminal
from anubis.cli.verb import verb
from anubis.operations.requests import SimulateRequest


@verb
def simulate(
    request: SimulateRequest, json: options.Json = False, html: options.HtmlToo = None
) -> None:
    """Compare validation policies on a simulated cluster: work, incidents, hours spent."""
    from anubis.report import simulate as simulation

    check_page(html)
    study = anubis.simulate(request, Terminal())
    show_status("")
    name = Path(request.scenario).stem
    answer.write_lines((simulation.json_lines if json else simulation.text)(name, study))
    if html:
        write_page(simulation.render(name, study), html)
