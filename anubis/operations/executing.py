"""The way to the nodes of a cluster, open for as long as a block runs; nothing runs on after it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager

from anubis import catalog, config, hostlist
from anubis.core.errors import UsageError
from anubis.core.fabric import Fabric
from anubis.executors.base import Executor
from anubis.hostlist import shortened
from anubis.operations.caller import Caller


@contextmanager
def executor_of(
    cluster: config.Cluster,
    programs: catalog.Catalog,
    caller: Caller,
    *,
    used: Collection[str],
    nodes: Sequence[str] | None = None,
    missing_is_fine: bool = False,
    fabric: Fabric | None = None,
) -> Iterator[Executor]:
    """`used`: the benchmarks that will run. `fabric`: what a fleet in memory is wired with."""
    requested = nodes or ()
    with closing(_open(cluster, programs, caller, used, requested, fabric)) as executor:
        if not missing_is_fine:
            _refuse_absent(requested, [node.name for node in executor.nodes()])
        yield executor


def _refuse_absent(requested: Sequence[str], present: Sequence[str]) -> None:
    names = set(present)
    absent = [name for name in requested if name not in names]
    if absent:
        raise UsageError(
            f'node "{shortened(absent)}" is not in the cluster, which has {shortened(present)}'
        )


def _open(
    cluster: config.Cluster,
    programs: catalog.Catalog,
    caller: Caller,
    used: Collection[str],
    requested: Sequence[str],
    fabric: Fabric | None,
) -> Executor:
    match cluster:
        case config.LocalCluster():
            from anubis.executors.local import LocalExecutor, this_machine

            return LocalExecutor(
                this_machine(cluster.sku), programs.programs, catalog.parse_result, cluster.settings
            )
        case config.RayCluster():
            from anubis.executors.ray_cluster import RayExecutor

            return RayExecutor(
                _address(cluster, caller),
                programs.programs,
                catalog.parse_result,
                names=requested or (hostlist.expand(cluster.nodes) if cluster.nodes else ()),
                sku=cluster.sku,
                skus=hostlist.labels(cluster.skus),
                settings=cluster.settings,
            )
        case config.SimulatedCluster():
            from anubis.executors.simulated import SimulatedExecutor

            # trouble is planted where the campaign looks
            specs = {name: spec for name, spec in programs.specs.items() if name in used}
            return SimulatedExecutor(cluster.fleet, specs, fabric, requested)


def _address(cluster: config.RayCluster, caller: Caller) -> str | None:
    address = ray_address(cluster)
    if address is None:
        caller.remark("no address is given, nor RAY_ADDRESS: Ray is started on this machine alone")
    return address


def ray_address(cluster: config.RayCluster) -> str | None:
    return cluster.address or os.environ.get("RAY_ADDRESS") or None
