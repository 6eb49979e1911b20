"""A campaign as one HTML file that needs nothing else: no network, no files beside it.

All text is escaped, because node names and reasons come from machines that may be sick. Only the
list of verdicts needs a script.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any

from anubis.core.judge.software import versions
from anubis.core.judge.units import latest_executions
from anubis.core.records import WORST_FIRST, Ended, Execution, Judgement, NodeVerdict
from anubis.core.text import escape
from anubis.report import kinds
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


# --- the circumstances of a campaign ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Omission:
    """Executions of one benchmark that left no samples, all for the same reason."""

    benchmark: str
    ended: Ended
    reason: str
    nodes: tuple[str, ...]
    executions: int


def omissions(executions: tuple[Execution, ...]) -> list[Omission]:
    """List what was not measured, most frequent first. A retried step counts by its last
    attempt."""
    alike: defaultdict[tuple[str, Ended, str], list[tuple[str, ...]]] = defaultdict(list)
    for execution in latest_executions(executions):
        if execution.ended is not Ended.MEASURED:
            reason = execution.reason or execution.result.not_applicable
            key = str(execution.step.workload), execution.ended, reason
            # a lost node takes the step down; its partners are not the ones to name
            alike[key].append(execution.lost or execution.step.participants)
    return [
        Omission(
            benchmark=benchmark,
            ended=ended,
            reason=reason,
            nodes=tuple(dict.fromkeys(chain.from_iterable(nodes))),
            executions=len(nodes),
        )
        for (benchmark, ended, reason), nodes in sorted(
            alike.items(), key=lambda item: -len(item[1])
        )
    ]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A fact that the programs reported: its values with their nodes, the most common first."""

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


def facts(executions: tuple[Execution, ...]) -> list[Fact]:
    reported: defaultdict[str, defaultdict[str, dict[str, None]]]
    reported = defaultdict(lambda: defaultdict(dict))
    for execution in executions:
        for name, value in _flat(execution.result.environment):
            # the program that writes the document runs on the first participant
            reported[name][value][execution.step.participants[0]] = None
    return [
        Fact(
            name=name,
            values=tuple(
                (value, tuple(nodes))
                for value, nodes in sorted(values.items(), key=lambda item: -len(item[1]))
            ),
        )
        for name, values in sorted(reported.items())
        if any(value not in nodes for value, nodes in values.items())  # not just its own name
    ]


def _flat(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{name}.")
        elif isinstance(inner, (list, tuple)):
            yield prefix + name, ", ".join(str(part) for part in inner)
        elif inner is not None:
            yield prefix + name, str(inner)
