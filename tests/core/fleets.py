"""Small plans for tests: nodes, specs and suites in a line each."""

from __future__ import annotations

from collections.abc import Sequence

from anubis.core.campaign.planning import plan
from anubis.core.fabric import Fabric, rename_nodes
from anubis.core.records import (
    BenchmarkSpec,
    MetricSpec,
    Needs,
    Node,
    ParameterSpec,
    Plan,
    Suite,
    SuiteEntry,
)
from tests.core.made_fabrics import FatTree


def spec(name: str, **changes: object) -> BenchmarkSpec:
    facts = {
        "name": name,
        "version": "1",
        "summary": "",
        "stresses": "",
        "reveals": "",
        "level": "micro",
        "scope": "node",
        "duration_s": 10.0,
        "metrics": (MetricSpec(name="rate", unit="GB/s", direction="higher"),),
    }
    return BenchmarkSpec(**(facts | changes))


SPECS = {
    each.name: each
    for each in (
        spec("compute", parameters=(ParameterSpec(name="size", type="int", default=64),)),
        spec("probe", exclusive=False),
        spec("glance", exclusive=False, duration_s=1.0),
        spec("train", level="end-to-end"),
        spec(
            "count",
            metrics=tuple(
                MetricSpec(name=name, unit="1", direction="higher")
                for name in ("gpus", "ports_active")
            ),
        ),
        spec("collective", scope="group"),
        spec("pair", scope="pair", needs=Needs(min_nodes=2)),
        spec("train_together", scope="group", level="end-to-end", needs=Needs(min_nodes=2)),
    )
}


def nodes(count: int, sku: str = "h100") -> list[Node]:
    return [Node(name=f"n{i}", sku=sku) for i in range(count)]


def entry(benchmark: str, **changes: object) -> SuiteEntry:
    return SuiteEntry(benchmark=benchmark, **changes)


def small_plan(
    count: int,
    entries: Sequence[SuiteEntry],
    fabric: Fabric | None = None,
    *,
    stop_early: bool = False,
) -> Plan:
    suite = Suite(name="test", summary="", benchmarks=tuple(entries))
    return plan(suite, nodes(count), SPECS, fabric, stop_early=stop_early)


def small_fabric(count: int, per_leaf: int = 2, spines: int = 1, rails: int = 1) -> Fabric:
    """Leaves with so many of the nodes each, under spines."""
    tree = FatTree(nodes=count, nodes_per_leaf=per_leaf, spines=spines, rails=rails).fabric()
    return rename_nodes(tree, {name: f"n{i}" for i, name in enumerate(tree.nodes)})
