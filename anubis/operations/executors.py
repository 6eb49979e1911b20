"""Open the executor of a cluster for the length of a block; nothing runs on after it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anubis.config import catalog, configs
from anubis.core.errors import UsageError
from anubis.core.fabric import Fabric
from anubis.operations.caller import Caller
from anubis.reach.executors.start_settings import start_ways
from anubis.text import hostlist
from anubis.text.hostlist import shorten
from anubis.text.packages import require_package
from anubis.text.wording import quantity

if TYPE_CHECKING:
    from anubis.reach.executors.executor import Executor
    from anubis.reach.executors.ray_start import StartedRay
    from anubis.reach.executors.start_settings import RayStart


@contextmanager
def executor_of(
    cluster: configs.Cluster,
    programs: catalog.Catalog,
    caller: Caller,
    *,
    used: Collection[str],
    nodes: Sequence[str] | None = None,
    missing_is_fine: bool = False,
    fabric: Fabric | None = None,
) -> Iterator[Executor]:
    """Executor of a cluster. `used`: the benchmarks that will run. `fabric`: the wiring of a fleet
    in memory."""
    requested = nodes or ()
    with ExitStack() as until_all_has_ended:
        opened = _open(
            cluster, programs, caller, used, requested, fabric, missing_is_fine, until_all_has_ended
        )
        executor = until_all_has_ended.enter_context(closing(opened))
        if not missing_is_fine:
            refuse_absent(requested, [node.name for node in executor.nodes()])
        yield executor


def refuse_absent(requested: Sequence[str], present: Sequence[str]) -> None:
    names = set(present)
    absent = [name for name in requested if name not in names]
    if absent:
        raise UsageError(
            f'node "{shorten(absent)}" is not in the cluster, which has {shorten(present)}'
        )


def _open(
    cluster: configs.Cluster,
    programs: catalog.Catalog,
    caller: Caller,
    used: Collection[str],
    requested: Sequence[str],
    fabric: Fabric | None,
    missing_is_fine: bool,
    until_all_has_ended: ExitStack,
) -> Executor:
    match cluster:
        case configs.LocalCluster():
            from anubis.reach.executors.local import LocalExecutor, this_machine

            return LocalExecutor(
                this_machine(cluster.sku), programs.programs, catalog.parse_result, cluster.settings
            )
        case configs.RayCluster():
            return _open_ray(
                cluster, programs, caller, requested, missing_is_fine, until_all_has_ended
            )
        case configs.SimulatedCluster():
            from anubis.reach.executors.simulated import SimulatedExecutor

            # trouble is planted only in programs that the campaign runs
            specs = {name: spec for name, spec in programs.specs.items() if name in used}
            return SimulatedExecutor(cluster.fleet, specs, fabric, requested)


def _open_ray(
    cluster: configs.RayCluster,
    programs: catalog.Catalog,
    caller: Caller,
    requested: Sequence[str],
    missing_is_fine: bool,
    until_all_has_ended: ExitStack,
) -> Executor:
    require_package("ray", f'cluster "{cluster.name}"')
    from anubis.reach.executors.ray_cluster import RayExecutor

    way, started = cluster.way, None
    address = "" if way else ray_address(cluster)
    token = None if way else _token(cluster)
    names = requested or (hostlist.expand(cluster.nodes) if cluster.nodes else ())
    skus = hostlist.labels(cluster.skus)
    if way:
        started = until_all_has_ended.enter_context(_bring_up(way, names, caller))
        address, token = started.address, started.token
    executor = RayExecutor(
        address,
        programs.programs,
        catalog.parse_result,
        names=names,
        sku=cluster.sku,
        skus=skus,
        settings=cluster.settings,
        token=token,
        missing_is_fine=missing_is_fine,
        started=started,
    )
    is_open = executor.is_open
    if is_open:
        caller.remark(
            "this ray cluster is open: anyone who reaches its ports can run commands on its"
            " nodes as the user who started it; docs/security.md says how to close it"
        )
    elif is_open is None:
        caller.remark(
            "whether this ray cluster is open to strangers is unknown: its head did not answer a"
            " request without a token; docs/security.md says how to close it"
        )
    return executor


def _bring_up(
    way: RayStart, names: Sequence[str], caller: Caller
) -> AbstractContextManager[StartedRay]:
    from anubis.reach.executors.ray_start import StartedRay

    if not names:
        raise UsageError(
            f"no nodes are named, and `start: {way.by}` starts Ray only on named nodes: name"
            " them, or write `nodes:` or `orchestrator:` into the cluster's file"
        )
    ways = ways_to(names, way)
    caller.doing(f"bringing up Ray on {quantity(len(names), 'node')}")
    return closing(StartedRay(way, ways))


def ray_address(cluster: configs.RayCluster) -> str:
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    if not address:
        raise UsageError(
            "which ray cluster? RAY_ADDRESS is not set and the cluster's file has no `address:`;"
            " give HOST:PORT of its head, or `local` to start Ray on this machine and test it alone"
        )
    return address


def _token(cluster: configs.RayCluster) -> Path | None:
    if not cluster.token:
        return None
    path = Path(cluster.token).expanduser()
    if not path.is_file():
        raise UsageError(f'there is no token in "{path}", which the cluster\'s file names')
    return path.absolute()


# --- ways to nodes -----------------------------------------------------------------------------
# To start Ray: by the cluster's file, or by another way if that one starts nothing.


def ways_to(names: Sequence[str], way: RayStart) -> dict[str, RayStart]:
    """Settings for reaching each node. A drained node without a job stays so: another way disturbs
    no job there."""
    if not way.drained_by:
        return dict.fromkeys(names, way)
    refused_nodes = start_ways()[way.by].refused_nodes
    refused = refused_nodes() if refused_nodes else frozenset()
    past = replace(way, by=way.drained_by[0], options=way.drained_by[1:])
    return {name: past if name in refused else way for name in names}
