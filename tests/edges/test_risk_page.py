"""The pages of `anubis risk`: every point is at its numbers, and nothing comes from elsewhere."""

from __future__ import annotations

import re
from io import StringIO
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from anubis.core.history.attributes import NodeAttributes
from anubis.core.history.logbook import Logbook
from anubis.core.history.status import Instants
from anubis.models.risk.choice import ModelChoice
from anubis.models.risk.evaluation import Evaluation
from anubis.models.risk.forecast import HOURS, Forecast
from anubis.models.risk.score_summary import Accuracy, RiskGroup, Score
from anubis.models.risk.splits import SplitKind
from anubis.report.risk import NodeRisks, show_evaluation
from anubis.report.risk_page import evaluation_page, nodes_page
from anubis.report.svg import Axis

CHOICE = ModelChoice(model="cox", beats_base_rate=True, reason="cox <b>wins</b>")


def scored(model: str, kind: SplitKind, seed: int, groups: dict[float, float]) -> Score:
    return Score(
        model=model,
        split=kind,
        seed=seed,
        uptimes=100,
        incidents=10,
        accuracy=Accuracy(relative=0.8, over_horizon=0.81, on_observed=0.7),
        concordance=0.6,
        brier=0.1,
        slope=1.0,
        groups=tuple(RiskGroup(uptimes=10, predicted=p, found=f) for p, f in groups.items()),
    )


def cards(page: str) -> dict[str, str]:
    """Each picture by the text above it."""
    return dict(re.findall(r"<h3>([^<]*)</h3></figcaption>(<svg.*?</svg>)", page, re.DOTALL))


def dots(picture: str) -> list[tuple[float, float]]:
    found = re.findall(r'<circle class="dot" r="4.5" cx="([\d.]+)" cy="([\d.]+)"', picture)
    return [(float(x), float(y)) for x, y in found]


def line(picture: str, kind: str) -> list[tuple[float, float]]:
    (points,) = re.findall(rf'<polyline class="{kind}" points="([^"]*)"', picture)
    return [(float(x), float(y)) for x, _, y in (each.partition(",") for each in points.split())]


def test_a_right_forecast_is_on_the_line_and_a_low_one_above_it():
    right, double = {0.02: 0.02, 0.05: 0.05, 0.2: 0.2}, {0.02: 0.04, 0.05: 0.1, 0.2: 0.4}
    scores = tuple(
        scored(model, "node", seed, groups)
        for model, groups in (("cox", right), ("cox-time", double))
        for seed in (0, 1)
    )
    found = cards(evaluation_page(Evaluation(scores=scores), CHOICE, "prod"))
    (x0, y0), (x1, y1) = line(found["cox"], "ideal")
    for x, y in dots(found["cox"]):
        assert (y - y0) / (y1 - y0) == pytest.approx((x - x0) / (x1 - x0), abs=0.01)
    above = [y0 + (y1 - y0) * (x - x0) / (x1 - x0) - y for x, y in dots(found["cox-time"])]
    assert min(above) > 10
    assert max(above) == pytest.approx(min(above), abs=0.1)  # twice as many, on logarithmic axes


def test_an_interval_shows_the_spread_of_the_seeds():
    apart = (
        scored("cox", "node", 0, {0.1: 0.09, 0.3: 0.3}),
        scored("cox", "node", 1, {0.1: 0.11, 0.3: 0.3}),
    )
    picture = cards(evaluation_page(Evaluation(scores=apart), CHOICE, "prod"))["cox"]
    lines = re.findall(r'class="interval" points="[\d.]+,([\d.]+) [\d.]+,([\d.]+)"', picture)
    lengths = [float(low) - float(high) for low, high in lines]
    assert lengths[0] > 20
    assert lengths[1] == pytest.approx(0)


def test_equal_chances_for_all_nodes_and_undecided_splits_have_no_picture():
    scores = (
        scored("exponential", "node", 0, {0.1: 0.1}),
        scored("cox", "random", 0, {0.1: 0.1}),
        scored("cox", "time", 0, {0.1: 0.1}),
        scored("cox", "fleet", 0, {0.1: 0.1}),
    )
    page = evaluation_page(Evaluation(scores=scores), CHOICE, "prod")
    assert page.count("<svg") == 2
    assert all(f'<section id="{kind}">' in page for kind in ("random", "node", "time", "fleet"))


def test_texts_on_a_page_are_escaped_and_no_resource_is_loaded():
    left_out = ("cox by node, seed 0: <script>alert(1)</script>",)
    scores = (scored("cox", "node", 0, {0.1: 0.1}),)
    page = evaluation_page(Evaluation(scores=scores, left_out=left_out), CHOICE, "prod")
    assert "cox &lt;b&gt;wins&lt;/b&gt;" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="', page)


def test_a_group_without_an_incident_is_on_the_edge():
    scores = (scored("cox", "node", 0, {0.001: 0.0, 0.1: 0.1}),)
    picture = cards(evaluation_page(Evaluation(scores=scores), CHOICE, "prod"))["cox"]
    (_, bottom), _ = line(picture, "ideal")
    assert dots(picture)[0][1] == pytest.approx(bottom)


def test_the_curves_rise_as_the_chances_do_and_the_most_at_risk_have_names():
    nodes = [f"node{number}" for number in range(9)]
    rates = np.array([1, 9, 2, 8, 3, 7, 4, 6, 5]) * 1e-4
    forecast = Forecast(hours=HOURS, hazard=np.outer(rates, HOURS))
    statuses = Logbook.from_records([]).statuses(Instants.now(nodes, 0.0))
    attributes = tuple(NodeAttributes(node=node) for node in nodes)
    risks = NodeRisks(
        cluster="prod",
        statuses=statuses,
        forecast=forecast,
        model="cox",
        choice="because",
        attributes=attributes,
    )
    page = nodes_page(risks)
    expected, likeliest = 45e-4 * 24, 1 - np.exp(-9e-4 * 24)
    (headline,) = re.findall("<h1>(.*)</h1>", page)
    assert f"{expected:.2g} incidents are expected within a day on 9 nodes" in headline
    assert f"the likeliest is on node1, with a chance of {likeliest:.2%}" in headline
    assert re.findall(r'class="named"[^>]*>(\w+)<', page) == [f"node{n}" for n in (1, 3, 5, 7, 8)]
    heights = {
        name: [float(pair.partition(",")[2]) for pair in points.split()]
        for points, name in re.findall(r'points="([^"]*)"><title>(\w+)</title>', page)
    }
    assert heights.keys() == set(nodes)
    bottom = heights["node1"][0]
    chances = 1 - np.exp(-rates * HOURS[-1])
    for node, chance in zip(nodes, chances, strict=True):
        risen = (bottom - heights[node][-1]) / (bottom - heights["node1"][-1])
        assert risen == pytest.approx(chance / chances.max(), abs=0.01)


@pytest.mark.parametrize(("begin", "end"), [(0.0, 0.8), (0.0, 100.0), (0.002, 0.5), (0.05, 1.0)])
def test_an_axis_has_a_few_ticks_from_end_to_end(begin, end):
    axis = Axis(title="", begin=begin, end=end, spelled=str, logarithmic=begin > 0)
    assert 3 <= len(axis.ticks) <= 10
    shares = [axis.share(tick) for tick in axis.ticks]
    assert shares[0] == pytest.approx(0)
    assert shares[-1] == pytest.approx(1)
    assert all(left < right for left, right in pairwise(shares))
    assert axis.share(begin / 10) == 0  # what lies below begins with it


@pytest.mark.parametrize(("width", "spread"), [(80, False), (120, True)])
def test_the_table_fits_a_terminal_and_has_the_spread_if_there_is_room(width, spread):
    kinds: tuple[SplitKind, ...] = ("random", "node", "time")
    scores = tuple(
        scored("exponential-per-count", kind, seed, {0.1: 0.1}) for kind in kinds for seed in (0, 1)
    )
    console = Console(file=StringIO(), width=width, highlight=False)
    show_evaluation(Evaluation(scores=scores), CHOICE, console)
    shown = console.file.getvalue()
    assert "exponential-per-count" in shown
    assert "0.1000" in shown
    assert "…" not in shown
    assert ("±" in shown) is spread
