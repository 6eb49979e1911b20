"""Paths between nodes that are bad at present: found faulty, and not passed since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from anubis.core.history.standing import ANY
from anubis.core.history.status import Validation
from anubis.core.history.strength import Strength
from anubis.core.records import Judgement, PartVerdict


def bad_links(
    paths: Mapping[str, Sequence[PartVerdict]],
    validations: Iterable[Validation],
    strength: Strength = ANY,
) -> dict[tuple[str, ...], str]:
    """Nodes that were healthy and did badly together → the reason. `paths`: by campaign.

    A link is bad until its nodes pass that benchmark together in a later campaign.
    """
    well: defaultdict[str, dict[str, Validation]] = defaultdict(dict)
    for validation in validations:
        if validation.judgement is Judgement.HEALTHY:
            well[validation.campaign][validation.node] = validation

    def have_passed(nodes: tuple[str, ...], benchmark: str, since: float, earlier: str) -> bool:
        """Return whether the nodes passed in one later campaign. A bad path in it is a fault of its
        own."""
        return any(
            strength.is_enough(later, earlier, benchmark)
            and all(
                (validation := verdicts.get(node))
                and validation.at > since
                and benchmark in validation.benchmarks
                for node in nodes
            )
            for later, verdicts in well.items()
        )

    links = {}
    for campaign, faulty in paths.items():
        healthy = well.get(campaign, {})
        for path in faulty:
            for benchmark in path.benchmarks if healthy.keys() >= set(path.nodes) else ():
                since = healthy[path.nodes[0]].at
                if not have_passed(path.nodes, benchmark, since, earlier=campaign):
                    links[path.nodes] = f"{benchmark} was defective in campaign {campaign}"
    return links
