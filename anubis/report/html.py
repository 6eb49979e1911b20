"""A campaign as one HTML file that needs nothing else: no network, no files beside it.

All text is escaped, because node names and reasons come from machines that may be sick. Only the
list of verdicts needs a script.
"""

from __future__ import annotations

from itertools import groupby, islice
from typing import Any

from anubis.core.judge.software import versions
from anubis.core.records import WORST_FIRST, Judgement, NodeVerdict
from anubis.core.text import escape
from anubis.report import kinds
from anubis.report.circumstances import facts, omissions
from anubis.report.distributions import distributions_of, picture_of
from anubis.report.metric_rows import benchmark_labels, metric_rows
from anubis.report.network_page import network_section
from anubis.report.page import page
from anubis.report.view import GLYPH, PARTS_NAMED, CampaignView
from anubis.text import hostlist
from anubis.text.wording import share

LISTED = 10_000  # verdicts that travel in the page, the worst first; a browser copes with these
LARGE_TILES = 40  # fleets up to this size get tiles large enough for a name
NODES_LISTED = 200  # nodes not healthy that are listed one by one
FACT_VALUES = 4  # of a fact with more values than this only their number is shown


def render(view: CampaignView) -> str:
    rows = metric_rows(view)
    plots = [distributions_of(row) for row in rows if not row.is_fact]
    nodes = view.nodes_worst_first()
    return page(
        "report",
        view=view,
        campaign=view.campaign,
        glyph=GLYPH,
        worst_first=WORST_FIRST,
        kinds=kinds.kinds_by_sku(view.kinds),
        kind_sentence=kinds.sentence,
        describe_kind=kinds.description,
        fleet=_fleet(view),
        few=LARGE_TILES,
        parts_named=PARTS_NAMED,
        not_healthy=[node for node in nodes if node.judgement is not Judgement.HEALTHY],
        nodes_listed=NODES_LISTED,
        rows=rows,
        labels=benchmark_labels([row.key for row in rows]),
        plots=plots,
        picture_of=picture_of,
        verdicts=_verdicts(view),
        network=network_section(view.network) if view.network else "",
        software=versions(view.executions, view.campaign.plan),
        healthy=hostlist.compress(view.assessment.named(Judgement.HEALTHY)),
        omissions=omissions(view.executions),
        facts=facts(view.executions),
        fact_values=FACT_VALUES,
    )


def _fleet(view: CampaignView) -> list[tuple[str, list[NodeVerdict]]]:
    """Group nodes by sku, in the order of the plan: neighbours in a rack stay neighbours here."""
    verdicts = {node.node: node for node in view.assessment.nodes}
    nodes = [node for node in view.campaign.plan.nodes if node.name in verdicts]
    nodes.sort(key=lambda node: node.sku)
    return [
        (sku, [verdicts[node.name] for node in group])
        for sku, group in groupby(nodes, key=lambda node: node.sku)
    ]


def _verdicts(view: CampaignView) -> dict[str, Any]:
    """Encode verdicts as rows of numbers into one list of words: a fleet repeats itself a lot."""
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(escape(text), len(words))

    rows = []
    for v in islice(view.assessment.verdicts(), LISTED):
        where = map(word, (", ".join(v.participants), v.benchmark, v.metric, v.device))
        why = map(word, (v.code, v.reason, share(v.similarity)))
        rows.append([*where, WORST_FIRST.index(v.judgement), *why])
    return {
        "words": list(words),
        "rows": rows,
        "judgements": [[j.value, GLYPH[j]] for j in WORST_FIRST],
        "total": len(view.assessment),
    }
