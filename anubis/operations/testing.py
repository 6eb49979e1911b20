"""Carries a decision out: one campaign for the nodes that run the same tests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from anubis.core.choosing.decision import Decision
from anubis.operations.caller import Caller
from anubis.operations.campaigns import CampaignResult, WallClock, run_campaign
from anubis.operations.preparing import CampaignRequest


def carry_out_tests(
    decision: Decision,
    tests: CampaignRequest,
    caller: Caller,
    *,
    history_url: str | None,
    clock: WallClock,
) -> tuple[CampaignResult, ...]:
    results = []
    for chosen, nodes in _nodes_by_tests(decision).items():
        request = replace(tests, nodes=tuple(nodes), chosen=chosen)
        results.append(run_campaign(request, caller, history_url=history_url, clock=clock))
        caller.concluded(results[-1].view)
    return tuple(results)


def _nodes_by_tests(decision: Decision) -> dict[frozenset[str], list[str]]:
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for test in decision.tests:
        for node in test.nodes:
            tests[node].add(test.benchmark)
    groups: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for node in decision.nodes:
        if tests[node]:
            groups[frozenset(tests[node])].append(node)
    return groups
