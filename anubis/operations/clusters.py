"""Which cluster a request means, and what the history knows of it."""

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
    """`name`: of the cluster's file."""
    address = ""
    if isinstance(cluster, configs.RayCluster):
        from anubis.reach.executors.ray_link import HERE

        address = f"nodes reached by {cluster.start}" if cluster.start else ray_address(cluster)
        address = socket.gethostname() if address == HERE else address
    return replace(
        named(called(name, cluster)),
        executor=cluster.executor,
        address=address,
        is_chosen=bool(cluster.name),
    )


def called(name: str, cluster: configs.Cluster) -> str:
    """What the history calls it, however it is reached."""
    here = isinstance(cluster, configs.LocalCluster)
    own = socket.gethostname() if here else configs.find("clusters", name).stem
    return cluster.name or own


def named(name: str) -> ClusterIdentity:
    """A cluster that somebody calls so."""
    try:
        return ClusterIdentity(name=name, is_chosen=True)
    except ValueError as error:
        raise UsageError(f"{error}; --cluster takes a file with another name in it") from None


def time_in(
    part: ClusterHistory, caller: Caller, *, is_turn: bool = False, is_kept: bool = False
) -> Time:
    """By which ages in a cluster are told: its turns know whether the clock can be right.
    `is_kept`: something is dated by it, as all is in a turn; what was dated otherwise before is
    dated anew first."""
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
    """What is known of a cluster, which from now on the history knows."""
    # wall clock: says since when it is known, decides nothing
    if sentence := history.clusters.enter(cluster, caller.clock(), nodes):
        caller.remark(sentence)
    return history.of(cluster.name)


def find(
    history: History,
    name: str | None,
    caller: Caller,
    nodes: Collection[str] = (),
    *,
    may_begin: bool = False,
) -> tuple[ClusterHistory, ClusterIdentity | None]:
    """What is known of the cluster that was named, by its file or as the history calls it; else of
    the only one that the history knows, or of this machine. And who it is, for the history to know
    once the request is not refused any more; None: nothing new can be said of it.
    `may_begin`: a name that neither has begins a cluster. Else it is refused."""
    names = history.clusters.names()
    if name is None and names:
        return history.only(), None
    try:
        cluster = _of_file(name or THIS_MACHINE)
    except ConfigError as error:
        if name in names:
            return history.of(str(name)), None
        refusal = refusal_of(name or THIS_MACHINE, names, error)
        if refusal is error or not may_begin:
            raise refusal from None
        cluster = named(str(name))
    if UNNAMED in names:  # what it held without a cluster may be of this one
        return enter(history, cluster, caller, nodes), None
    return history.of(cluster.name), cluster


def _of_file(name: str) -> ClusterIdentity:
    return identify(name, configs.cluster(name))


def refusal_of(name: str, names: Collection[str], error: ConfigError) -> AnubisError:
    """Of a cluster that is not among these, and whose file cannot be read: neither has it, unless
    something else is wrong with the file, or its place was named."""
    if not isinstance(error, UnknownNameError) or configs.is_path(name):
        return error
    return UsageError(unknown(name, names, configs.files_of("clusters")))


def resolve(
    history: History, name: str | None, caller: Caller, nodes: Collection[str] = ()
) -> ClusterHistory:
    """The same, and the history knows it from now on."""
    part, cluster = find(history, name, caller, nodes)
    return enter(history, cluster, caller, nodes) if cluster else part


def look_up(history: History, name: str | None) -> ClusterHistory:
    """The same for those who only look back: nothing is entered."""
    names = history.clusters.names()
    if name is None:
        return history.only()
    if name not in names:
        with suppress(ConfigError):
            name = _of_file(name).name
    if name not in names:
        raise UsageError(unknown(name, names))
    return history.of(name)


def of_import(
    history: History, name: str | None, caller: Caller
) -> tuple[ClusterHistory, ClusterIdentity | None]:
    """As `find` has it, for what is told of nodes that nobody reaches: without a name and with
    nothing known, it waits without a cluster for the first that it belongs to."""
    if name is None or name in history.clusters.names():
        return history.only() if name is None else history.of(name), None
    return find(history, name, caller)


def now_in(name: str | None, caller: Caller) -> float:
    """By the clock of the turns of a cluster, as far as the history knows it; nothing is entered.
    A cluster that it does not know has no turns, so the wall clock is believed."""
    with caller.history() as history, suppress(UsageError):
        return time_in(look_up(history, name), caller).now
    return caller.clock()  # wall clock: there is no other


def refuse_unreachable(cluster: str, name: str | None) -> None:
    """Tests on a cluster that was not named run on this machine, or not at all."""
    if name is None and cluster != identify(THIS_MACHINE, configs.cluster(THIS_MACHINE)).name:
        raise UsageError(
            f'tests have to run on cluster "{cluster}": say with --cluster how its nodes are'
            " reached"
        )


def files_by_name(files: Collection[str]) -> dict[str, str]:
    """The files of clusters, by what the history calls these."""
    return {identify(file, configs.cluster(file)).name: file for file in files}
