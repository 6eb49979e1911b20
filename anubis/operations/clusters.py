"""Find the cluster that a request means, and what the history knows of it."""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from anubis.config import configs
from anubis.core.clock import Time
from anubis.core.errors import AnubisError, ConfigError, UnknownNameError, UsageError
from anubis.core.records import UNNAMED, ClusterIdentity
from anubis.operations.caller import Caller
from anubis.operations.executors import ray_address
from anubis.store.clusters import unknown
from anubis.store.history import ClusterHistory, History

THIS_MACHINE = "local"  # its file


def identify(name: str, cluster: configs.Cluster) -> ClusterIdentity:
    """Identity of a cluster; `name` is that of its file."""
    address = ""
    if isinstance(cluster, configs.RayCluster):
        from anubis.reach.executors.ray_link import HERE

        address = f"nodes reached by {cluster.start}" if cluster.start else ray_address(cluster)
        address = socket.gethostname() if address == HERE else address
    return replace(
        identity_of(name_in_history(name, cluster)),
        executor=cluster.executor,
        address=address,
        is_chosen=bool(cluster.name),
    )


def cluster_file(part: ClusterHistory, name: str | None) -> configs.Cluster | None:
    """The cluster's file; None if there is none, or it cannot be read, so that nothing runs there.
    `name`: as the request says it."""
    with suppress(ConfigError):
        is_here = name is None and part.cluster == identify_here().name
        return configs.cluster(name or (THIS_MACHINE if is_here else part.cluster))
    return None


def identify_here() -> ClusterIdentity:
    """This machine, as a cluster."""
    return identify(THIS_MACHINE, configs.cluster(THIS_MACHINE))


def name_in_history(name: str, cluster: configs.Cluster) -> str:
    """Name of the cluster in the history, however its nodes are reached."""
    here = isinstance(cluster, configs.LocalCluster)
    own = socket.gethostname() if here else configs.find("clusters", name).stem
    return cluster.name or own


def identity_of(name: str) -> ClusterIdentity:
    """Identity of a cluster with the given name."""
    try:
        return ClusterIdentity(name=name, is_chosen=True)
    except ValueError as error:
        raise UsageError(f"{error}; --cluster takes a file with another name in it") from None


def time_in(
    part: ClusterHistory, caller: Caller, *, is_turn: bool = False, is_kept: bool = False
) -> Time:
    """Time by which ages in a cluster are computed; its turns know if the clock can be right.
    `is_kept`: something is dated by this time, as everything is in a turn; so what was dated
    otherwise before is corrected first."""
    reading = caller.reading()
    time = part.keeping.time(reading, is_turn=is_turn)
    if time.correction and (is_turn or is_kept):
        part.keeping.set_right(reading)
        time = part.keeping.time(reading, is_turn=is_turn)
    if not time.doubt:
        return time
    return replace(time, doubt=f"the clock of {part.cluster} is in doubt: {time.doubt}")


def enter(
    history: History, cluster: ClusterIdentity, caller: Caller, nodes: Collection[str] = ()
) -> ClusterHistory:
    """Enter a cluster into the history, and return what is known of it."""
    # wall clock: only the time since which it is known, decides nothing
    if sentence := history.clusters.enter(cluster, caller.clock(), nodes):
        caller.remark(sentence)
    return history.cluster(cluster.name)


def find(
    history: History,
    name: str | None,
    caller: Caller,
    nodes: Collection[str] = (),
    *,
    may_begin: bool = False,
) -> tuple[ClusterHistory, ClusterIdentity | None]:
    """Find a cluster by its file or by its name in the history; without a name, the only one that
    the history knows, or this machine. Return what is known of it, and its identity for the history
    to enter once the request is accepted; None if there is nothing to enter. `may_begin`: an
    unknown name begins a cluster; otherwise it is refused."""
    names = history.clusters.names()
    if name is None and names:
        return history.only(), None
    try:
        cluster = _identity_in_file(name or THIS_MACHINE)
    except ConfigError as error:
        if name in names:
            return history.cluster(str(name)), None
        refusal = refusal_of(name or THIS_MACHINE, names, error)
        if refusal is error or not may_begin:
            raise refusal from None
        cluster = identity_of(str(name))
    if UNNAMED in names:  # records without a cluster may belong to this one
        return enter(history, cluster, caller, nodes), None
    return history.cluster(cluster.name), cluster


def _identity_in_file(name: str) -> ClusterIdentity:
    return identify(name, configs.cluster(name))


def refusal_of(name: str, names: Collection[str], error: ConfigError) -> AnubisError:
    """Error for a cluster that is neither among these nor in a readable file. If the file exists
    but is wrong, or was named by a path, its own error is returned."""
    if not isinstance(error, UnknownNameError) or configs.is_path(name):
        return error
    sentence = unknown(name, names, configs.files_of("clusters"))
    return UsageError(sentence + configs.hint_of_file_here(name))


def resolve(
    history: History, name: str | None, caller: Caller, nodes: Collection[str] = ()
) -> ClusterHistory:
    """Find a cluster as `find` does, and enter it into the history."""
    part, cluster = find(history, name, caller, nodes)
    return enter(history, cluster, caller, nodes) if cluster else part


def look_up(history: History, name: str | None) -> ClusterHistory:
    """Find a cluster for reading only: nothing is entered."""
    names = history.clusters.names()
    if name is None:
        return history.only()
    if name not in names:
        with suppress(ConfigError):
            name = _identity_in_file(name).name
    if name not in names:
        raise UsageError(unknown(name, names))
    return history.cluster(name)


def find_for_import(
    history: History, name: str | None, caller: Caller
) -> tuple[ClusterHistory, ClusterIdentity | None]:
    """Find a cluster for reports that contact no node. Without a name, and with nothing
    known, they wait without a cluster for the first one that they belong to."""
    if name is None or name in history.clusters.names():
        return history.only() if name is None else history.cluster(name), None
    return find(history, name, caller)


def now_in(name: str | None, caller: Caller) -> float:
    """Time by the clock of a cluster's turns; nothing is entered. A cluster that the history does
    not know has no turns, so the wall clock is used."""
    with caller.history() as history, suppress(UsageError):
        return time_in(look_up(history, name), caller).now
    return caller.clock()  # wall clock: there is no other


def refuse_unreachable(cluster: str, name: str | None) -> None:
    """Refuse tests on a cluster that was not named, unless it is this machine."""
    if name is None and cluster != identify_here().name:
        raise UsageError(
            f'tests have to run on cluster "{cluster}": say with --cluster how its nodes are'
            " reached"
        )


def files_by_name(files: Collection[str]) -> dict[str, str]:
    """Files of clusters by the clusters' names in the history."""
    return {identify(file, configs.cluster(file)).name: file for file in files}
