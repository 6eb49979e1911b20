"""Which paths between nodes are bad to this day: found faulty, and not passed since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from anubis.core.past.status import Validation
from anubis.core.records import Judgement, PartVerdict


def bad_links(
    paths: Mapping[str, Sequence[PartVerdict]], validations: Iterable[Validation]
) -> dict[tuple[str, ...], str]:
    """Nodes that were healthy and did badly together, and why; `paths` stand by their campaigns.

    A link is bad until its nodes pass that benchmark together in a later campaign.
    """
    well: defaultdict[str, dict[str, Validation]] = defaultdict(dict)
    for validation in validations:
        if validation.judgement is Judgement.HEALTHY:
            well[validation.campaign][validation.node] = validation
    faults = {
        (campaign, path.nodes, benchmark): None
        for campaign, faulty in paths.items()
        for path in faulty
        for benchmark in path.benchmarks
    }

    def is_passed_in(campaign: str, nodes: tuple[str, ...], benchmark: str, since: float) -> bool:
        return (campaign, nodes, benchmark) not in faults and all(
            (validation := well[campaign].get(node))
            and validation.at > since
            and benchmark in validation.benchmarks
            for node in nodes
        )

    links = {}
    for campaign, nodes, benchmark in faults:
        if well.get(campaign, {}).keys() >= set(nodes):
            since = well[campaign][nodes[0]].at
            if not any(is_passed_in(later, nodes, benchmark, since) for later in well):
                links[nodes] = f"{benchmark} was defective in campaign {campaign}"
    return links
