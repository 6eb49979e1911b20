"""`anubis risk`: how likely each node's next incident is, how far that can be trusted, and whether
validation pays on a simulated cluster."""

from __future__ import annotations

from pathlib import Path

import typer

import anubis
from anubis.cli import answer, options
from anubis.cli.answer import check_page, write_page
from anubis.cli.streams import say, show_status
from anubis.cli.terminal import Terminal
from anubis.cli.verb import verb
from anubis.operations.requests import (
    EvaluateRiskRequest,
    RiskRequest,
    SimulateRequest,
    TrainRiskRequest,
)

app = typer.Typer(
    name="risk",
    help="Estimate each node's next incident. Compare policies of validation.",
    no_args_is_help=True,
)


@app.command(
    help="Train a risk model from the history: the kind that is best on other nodes "
    "and at later times."
)
@verb
def train(request: TrainRiskRequest) -> None:
    learned = anubis.train_risk(request, Terminal())
    show_status("")
    origin = learned.provenance
    say(
        f"learned from {origin.uptimes:,} uptimes of cluster {learned.cluster}, of which"
        f" {origin.incidents:,} ended in an incident"
    )
    say(origin.choice)
    print(f"{learned.model.name} {learned.file}")


@app.command(help="Compare the risk models on nodes and times that they were not trained on.")
@verb
def evaluate(
    request: EvaluateRiskRequest, json: options.Json = False, html: options.HtmlToo = None
) -> None:
    from anubis.report import risk, risk_page

    check_page(html)
    comparison = anubis.evaluate_risk(request, Terminal())
    compared, choice = comparison.evaluation, comparison.choice
    show_status("")
    say(f"compared on the history of cluster {comparison.cluster}")
    if html:
        write_page(risk_page.evaluation_page(compared, choice, comparison.cluster), html)
    if json:
        answer.write_lines(risk.evaluation_lines(compared, choice, comparison.cluster))
    else:
        risk.show_evaluation(compared, choice, answer.screen())


@app.command(help="How likely an incident is on each node within a day, a week and a month.")
@verb
def show(request: RiskRequest, json: options.Json = False, html: options.HtmlToo = None) -> None:
    from anubis.report import risk, risk_page

    risks = anubis.foresee(request, Terminal())
    if html:
        write_page(risk_page.nodes_page(risks), html)
    if json:
        answer.write_lines(risk.node_lines(risks))
        return
    risk.show_nodes(risks, answer.screen())
    say(f"cluster {risks.cluster}, {risks.model}: {risks.choice}")


@app.command()
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
