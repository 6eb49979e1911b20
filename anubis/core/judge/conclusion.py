"""A campaign's verdicts on the parts between nodes: on a fabric or, without one, on paths.

Computed once, when a campaign is judged, and kept with its assessment; reports only show it.
"""

from __future__ import annotations

from dataclasses import replace

from anubis.core.judge.faulty_paths import faulty_paths
from anubis.core.network.attribution import part_verdicts
from anubis.core.network.traffic import observe_traffic
from anubis.core.records import Assessment, Plan


def complete(assessment: Assessment, plan: Plan) -> Assessment:
    """Add the verdicts on parts to an assessment that was stored before there were any."""
    if plan.fabric is None:
        parts = faulty_paths(assessment.alone, assessment.nodes)
    else:
        traffic = observe_traffic(plan.fabric, assessment.alone, assessment.rulings)
        parts = part_verdicts(plan.fabric, traffic, plan.counters)
    return replace(assessment, parts=(*plan.wiring, *parts))
