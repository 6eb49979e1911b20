"""Chances of each kind of fault given the metrics that deviate, by Minder's published figures.

Table 1 of the paper (NSDI '25) has for each kind of fault how often each family of metrics was
abnormal, in seven months of one company's jobs. It has no joint figures, so families count as
independent; some kinds have few cases, so half a case is added on either side.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

FAMILIES = ("cpu", "gpu", "pfc", "throughput", "disk", "memory")


@dataclass(frozen=True, kw_only=True)
class PublishedFault:
    """A row of the table."""

    share: float  # of all faults, percent
    fires: tuple[float, ...]  # percent of the cases in which each family was abnormal
    cases: int  # the least number that fits all figures of the row

    def likelihood(self, fired: Collection[str]) -> float:
        """Likelihood that just these families are abnormal."""
        chances = [(fires / 100 * self.cases + 0.5) / (self.cases + 1) for fires in self.fires]
        return math.prod(
            chance if family in fired else 1 - chance
            for family, chance in zip(FAMILIES, chances, strict=True)
        )


FAULTS: Mapping[str, PublishedFault] = {
    "ecc": PublishedFault(share=38.9, fires=(80.0, 65.7, 8.6, 45.7, 11.4, 57.1), cases=35),
    "pcie-downgrade": PublishedFault(share=6.6, fires=(0, 8.3, 100, 33.3, 8.3, 0), cases=12),
    # any number fits: use that of another kind with the same share
    "nic-dropout": PublishedFault(share=5.7, fires=(100, 100, 0, 100, 0, 100), cases=8),
    "gpu-drop": PublishedFault(share=2.0, fires=(75.0, 70.0, 5.0, 50.0, 20.0, 55.0), cases=20),
    "nvlink": PublishedFault(share=1.7, fires=(83.3, 50.0, 16.7, 50.0, 0, 66.7), cases=6),
    "optical-cable": PublishedFault(share=0.9, fires=(25.0, 25.0, 0, 25.0, 25.0, 25.0), cases=4),
    "cuda-error": PublishedFault(share=14.6, fires=(61.9, 57.1, 19.0, 33.3, 14.3, 61.9), cases=21),
    "gpu-error": PublishedFault(share=7.7, fires=(50.0, 71.4, 14.3, 42.9, 21.4, 42.8), cases=14),
    "storage": PublishedFault(share=5.7, fires=(57.1, 57.1, 0, 14.3, 0, 14.3), cases=7),
    "unreachable": PublishedFault(share=6.0, fires=(47.4, 63.2, 0, 53.6, 26.3, 15.8), cases=19),
}


def mix_of(fired: Collection[str]) -> Mapping[str, float]:
    """Chance of each kind of fault, given the families that deviate, the likeliest first."""
    weights = {name: kind.share * kind.likelihood(fired) for name, kind in FAULTS.items()}
    total = sum(weights.values())
    likeliest = sorted(weights, key=lambda name: -weights[name])
    return {name: weights[name] / total for name in likeliest}


def mix_by_category(
    faults: Mapping[str, float], categories: Mapping[str, str]
) -> Mapping[str, float]:
    """Chances by the site's categories of incidents. A kind without a category is its own."""
    shares: defaultdict[str, float] = defaultdict(float)
    for name, share in faults.items():
        shares[categories.get(name, name)] += share
    return {name: shares[name] for name in sorted(shares, key=lambda name: (-shares[name], name))}
