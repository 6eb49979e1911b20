"""Remarks on a campaign that ended: what its policy left out, what ran again, what its criteria do
not show, and which settings are to be made."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

from anubis.core.amounts import HOUR_S
from anubis.core.fabric import natural_key
from anubis.core.judge.equality import ADVISED
from anubis.core.judge.foreign_load import mean_shares
from anubis.core.judge.missing_values import surplus_devices
from anubis.core.records import Judgement, Workload
from anubis.report.view import CampaignView
from anubis.text.wording import quantity, short_node_list

FEWEST_ALIKE = 3  # nodes with the same defect; two may have it by chance
LOADED = 0.1  # of a program's time: nodes that are twice as bad as alpha allows pass then


def remarks_on(view: CampaignView) -> Iterator[str]:
    """Sentences for the person who began the campaign."""
    if view.campaign.policy.stop_early:
        yield from _spared(view)
    yield from _second_looks(view)
    if view.is_by_itself:
        yield from _lax_criteria(view)
    yield from _surplus(view)
    yield from _other_models(view)
    yield from _shared_causes(view)
    yield from _advice(view)


def _spared(view: CampaignView) -> Iterator[str]:
    """A sentence on what a policy that stops early costs."""
    ran = {
        (node, run.step.workload.benchmark)
        for run in view.executions
        for node in run.step.participants
    }
    defective = view.assessment.named(Judgement.DEFECTIVE)
    entries = chain.from_iterable(phase.entries for phase in view.campaign.plan.phases)
    alone = {entry.workload.benchmark for entry in entries if entry.scope == "node"}
    spared = sorted(name for name in alone if any((node, name) not in ran for node in defective))
    if spared:
        yield (
            f"the policy stops early: not every defective node ran {', '.join(spared)}, so whether"
            " these find the same defects is not learned"
        )


def _second_looks(view: CampaignView) -> Iterator[str]:
    """A sentence on what it cost to measure suspects again, and how many are still defective."""
    again = [run for run in view.executions if run.step.turn and len(run.step.participants) == 1]
    if not again:
        return
    nodes = {run.step.participants[0] for run in again}
    defective = nodes.intersection(view.assessment.named(Judgement.DEFECTIVE))
    programs = ", ".join(sorted({run.step.workload.benchmark for run in again}))
    seconds = sum(run.duration_s for run in again)
    yield (
        f"ran again what fell short or failed, with healthy nodes for comparison: "
        f"{programs} on {quantity(len(nodes), 'node')}, {seconds / HOUR_S:.2f} node-hours; "
        f"{len(defective)} of them are defective"
    )


def _lax_criteria(view: CampaignView) -> Iterator[str]:
    """A sentence on criteria that were learned while other programs used the nodes."""
    shares = mean_shares(view.executions)
    loaded = sorted(name for name, share in shares.items() if share >= LOADED)
    if loaded:
        largest = max(shares[name] for name in loaded)
        yield (
            f"other programs may have cost {', '.join(loaded)} up to {largest:.0%} of the time, so"
            " the criteria learned here pass nodes that are as much slower: learn them again while"
            " the nodes are idle"
        )


def _surplus(view: CampaignView) -> Iterator[str]:
    """A sentence on nodes with more hardware than others, which is no defect."""
    alike = defaultdict[str, list[str]](list)
    for node, words in surplus_devices(view.executions, view.campaign.plan).items():
        alike[words].append(node)
    for words, nodes in alike.items():
        have = "has" if len(nodes) == 1 else "have"
        yield f"{short_node_list(nodes)} {have} {words}: no defect, but another kind of node"


def _other_models(view: CampaignView) -> Iterator[str]:
    """Sentences on nodes of one sku whose GPUs are of several models."""
    sku_of = {node.name: node.sku for node in view.campaign.plan.nodes}
    models: defaultdict[tuple[str, Workload], defaultdict[str, set[str]]]
    models = defaultdict(lambda: defaultdict(set))  # each program has its own way to name them
    for run in view.executions:
        if run.result.models and len(run.step.participants) == 1:
            (node,) = run.step.participants
            words = " and ".join(sorted({model for _, model in run.result.models}))
            models[sku_of[node], run.step.workload][words].add(node)
    sentences = dict.fromkeys(
        f"GPUs of {short_node_list(sorted(nodes[words], key=natural_key))} are {words}, and of"
        f" other nodes of sku {sku} {usual}: each is compared with its model, but pairs and groups"
        " of nodes by sku, so give these nodes a sku of their own"
        for (sku, _), nodes in models.items()
        for usual, *rest in [sorted(nodes, key=lambda words: -len(nodes[words]))]
        for words in rest
    )
    yield from sentences


def _shared_causes(view: CampaignView) -> Iterator[str]:
    """Sentences on a defect that most nodes of a sku have, as after an upgrade."""
    sku_of = {node.name: node.sku for node in view.campaign.plan.nodes}
    defects = Counter(
        (sku_of[verdict.node], verdict.cause)
        for verdict in view.assessment.nodes
        if verdict.judgement is Judgement.DEFECTIVE
    )
    sizes = Counter(sku_of.values())
    for (sku, cause), number in defects.items():
        if number >= FEWEST_ALIKE and 2 * number > sizes[sku]:
            yield (
                f"{number} of {sizes[sku]} nodes of sku {sku} have one defect ({cause}): a cause"
                " that they share, such as a driver, a setting or a cap on power, is likelier than"
                " so many faults. If a change is to stay, learn criteria again (anubis accept)"
            )


def _advice(view: CampaignView) -> Iterator[str]:
    """Sentences on settings that are to be made, which make no node defective."""
    advised: dict[str, set[str]] = {}
    for batch in view.assessment.batch_verdicts:
        if batch.code == ADVISED:
            nodes = advised.setdefault(f"{batch.metric} {batch.reason}", set())
            nodes.update(node for (node,) in batch.participants)
    for sentence, nodes in advised.items():
        yield f"to be set on {quantity(len(nodes), 'node')}, no defect: {sentence}"
