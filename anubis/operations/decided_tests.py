"""Carry out the tests of a decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from anubis.core.campaign.planning import MET
from anubis.core.errors import NothingLearnedError
from anubis.core.select.decision import Decision
from anubis.operations.caller import Caller
from anubis.operations.campaigns import carried_out
from anubis.operations.clusters import THIS_MACHINE, refuse_unreachable
from anubis.operations.requests import AcceptRequest, Terms, ValidateRequest
from anubis.store.history import History

if TYPE_CHECKING:
    from anubis.report.view import CampaignResult

FEWEST_PARTNERS = 4  # if one of them turns out to be bad, others remain


@contextmanager
def carried_out_tests(
    decision: Decision,
    terms: Terms,
    caller: Caller,
    name: str = "",
    *,
    leaves_out_busy: bool = False,
    beside: Callable[[History], None] = lambda history: None,
) -> Iterator[CampaignResult | None]:
    """Run the tests in one campaign, in which each node runs its own; yield None if there are none.
    If nothing was learned about such nodes yet, the campaign learns criteria from them. Its nodes
    are released after the block. `leaves_out_busy`: nodes on which work began meanwhile get no
    verdict, and the others do. `beside`: writes what belongs to the campaign."""
    if not decision.tests:
        yield None
        return
    refuse_unreachable(decision.cluster, terms.cluster)
    tests = {test.benchmark: frozenset(test.nodes) for test in decision.tests}
    tested = frozenset().union(*tests.values())
    partners = _choose_partners(decision)
    request = ValidateRequest(
        name=name,
        nodes=list(dict.fromkeys([*(n for n in decision.nodes if n in tested), *partners])),
        cluster=terms.cluster or THIS_MACHINE,
        suite=terms.suite,
        policy=terms.policy,
        benchmarks=terms.benchmarks,
        criteria=terms.criteria,
        tests=tests,
        partners=partners,
        job=terms.job,
        leaves_out_busy=leaves_out_busy,
        repaired=terms.repaired,
    )
    with ExitStack() as until_answered:
        try:
            result = until_answered.enter_context(carried_out(request, caller, beside))
        except NothingLearnedError:
            if terms.criteria or terms.budget:
                raise
            first = _acceptance(request, tested, caller)
            result = until_answered.enter_context(carried_out(first, caller, beside))
        yield result


def _acceptance(request: ValidateRequest, nodes: Collection[str], caller: Caller) -> AcceptRequest:
    """The request as an acceptance: at first there are no criteria, and the user need not know
    that."""
    caller.remark(
        f"no criteria exist for such nodes yet: they run the whole suite {request.suite} now,"
        f" and criteria are learned from them"
    )
    return AcceptRequest(
        nodes=[name for name in request.nodes or () if name in nodes],
        cluster=request.cluster,
        name=request.name,
        job=request.job,
        leaves_out_busy=request.leaves_out_busy,
        repaired=request.repaired,
        is_instead_of_validation=True,
        suite=request.suite,
        policy=request.policy,
        benchmarks=request.benchmarks,
    )


def _choose_partners(decision: Decision) -> list[str]:
    """Partners, as many as the tested nodes need; first those that have nothing else to do."""
    pair_test = {node for test in decision.tests if test.busy > 1 for node in test.nodes}
    idle_first = sorted(decision.partners, key=pair_test.__contains__)
    return idle_first[: max(FEWEST_PARTNERS, MET * len(pair_test))]
