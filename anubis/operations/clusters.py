"""Find the cluster that a request means, and what the history knows of it; refuse nodes that the
cluster does not have, as neither its history nor its file names them."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches

from anubis.config import configs
from anubis.core.clock import Time
from anubis.core.errors import AnubisError, ConfigError, UnknownNameError, UsageError
from anubis.core.history.events import EventRecord
from anubis.core.records import UNNAMED, ClusterIdentity
from anubis.operations.caller import Caller
from anubis.operations.executors import ray_address
from anubis.store.clusters import unknown
from anubis.store.history import ClusterHistory, History
from anubis.text import hostlist
from anubis.text.hostlist import HostNames, shorten
from anubis.text.wording import names as join_names

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
    if is_kept:
        part.keeping.keep_reading(reading)
    if not time.doubt:
        return time
    return replace(time, doubt=f"the clock of {part.cluster} is in doubt: {time.doubt}")


def running_time(part: ClusterHistory, caller: Caller) -> Callable[[], Time]:
    """The time of a turn, which goes on while the turn waits to be alone: what others keep
    meanwhile must not seem to lie in its future."""
    asked_s = caller.uptime()[1]
    time = time_in(part, caller, is_turn=True)
    return lambda: replace(time, now=time.now + caller.uptime()[1] - asked_s)


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
        return history.only(names), None
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


def resolve(history: History, name: str | None, caller: Caller) -> ClusterHistory:
    """Find a cluster as `find` does, and enter it into the history."""
    part, cluster = find(history, name, caller)
    return enter(history, cluster, caller) if cluster else part


def look_up(history: History, name: str | None) -> ClusterHistory:
    """Find a cluster for reading only: nothing is entered."""
    names = history.clusters.names()
    if name is None:
        return history.only(names)
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
    with caller.history(begins=True) as history, suppress(UsageError):
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


MOST_COMPARED = 20_000  # names, for the likeliest one


def refuse_strangers(
    part: ClusterHistory, nodes: Collection[str], name: str | None, *, may_be_reached: bool = False
) -> None:
    """Refuse unknown nodes. `name`: the cluster's name in the request. `may_be_reached`: tests may
    follow, so if the file lists no nodes, the executor finds out which there are."""
    rest = strangers_among(part, nodes, name)
    if not rest:
        return
    if may_be_reached and isinstance(cluster_file(part, name), configs.RayCluster):
        return
    raise UsageError(no_such_node(rest, part, name))


def has_nodes(part: ClusterHistory, name: str | None) -> bool:
    """Return whether the history or the cluster's file names any node."""
    return bool(part.node_names.all() or _listed_nodes(cluster_file(part, name)))


def strangers_among(
    part: ClusterHistory, nodes: Collection[str], name: str | None
) -> Sequence[str]:
    in_history = part.node_names.find(nodes)
    rest = [node for node in nodes if node not in in_history]
    if not rest:
        return ()
    listed = {*_listed_nodes(cluster_file(part, name))}
    return [node for node in rest if node not in listed]


def find_own_names(
    part: ClusterHistory, strangers: Collection[str], name: str | None, caller: Caller
) -> dict[str, str]:
    """Names of the cluster's nodes that a monitor calls otherwise, by the monitor's names. What is
    wrong with a node must not get lost for a domain; a remark says what was understood."""
    if not strangers:
        return {}
    hosts = HostNames([*part.node_names.all(), *_listed_nodes(cluster_file(part, name))])
    own = {stranger: node for stranger in strangers if (node := hosts.find(stranger))}
    if own:
        both = [f"{stranger} is {node}" for stranger, node in own.items()]
        caller.remark(f'by the names of cluster "{part.cluster}": {join_names(both)}')
    return own


def no_such_node(strangers: Sequence[str], part: ClusterHistory, name: str | None) -> str:
    """A sentence that refuses them, with the cluster's nodes, the likely name and what to do."""
    listed, in_history = _listed_nodes(cluster_file(part, name)), part.node_names.all()
    there = list(dict.fromkeys([*listed, *in_history]))
    if not in_history:
        has = f", whose file lists {shorten(listed)}" if listed else ""
        return (
            f'node "{shorten(strangers)}": nothing is known yet of cluster "{part.cluster}"{has};'
            " begin with anubis accept, or with anubis tell node-added NODES"
        )
    zeros = re.compile(r"(?<!\d)0+(?=\d)")  # node1 means node0001
    alike = {zeros.sub("", node): node for node in there}.get(zeros.sub("", strangers[0]))
    same = HostNames(there).find(strangers[0]) or alike
    close = [same] if same else get_close_matches(strangers[0], there[:MOST_COMPARED], n=1)
    likely = f'; did you mean "{close[0]}"?' if close else ""
    return (
        f'node "{shorten(strangers)}" is not in cluster "{part.cluster}", which has'
        f" {shorten(there)}{likely} (report a new one with node-added)"
    )


def drop_strangers(
    event_records: Sequence[EventRecord], part: ClusterHistory, name: str | None, caller: Caller
) -> list[EventRecord]:
    """Event records on nodes that the cluster has; a remark names the others."""
    nodes = list(
        dict.fromkeys(node for event_record in event_records for node in event_record.event.nodes)
    )
    strangers = strangers_among(part, nodes, name)
    if strangers:
        caller.remark(f"not reported to the keeper: {no_such_node(strangers, part, name)}")
    return [
        event_record
        for event_record in event_records
        if not {*event_record.event.nodes} & {*strangers}
    ]


def refuse_partners_of_themselves(nodes: Collection[str], partners: Collection[str]) -> None:
    if own := [node for node in partners if node in nodes]:
        raise UsageError(
            f'node "{shorten(own)}" cannot be its own partner: --partners takes other nodes'
        )


def _listed_nodes(cluster: configs.Cluster | None) -> Sequence[str]:
    """Nodes that the cluster's file lists."""
    match cluster:
        case configs.LocalCluster():
            return [socket.gethostname()]
        case configs.SimulatedCluster():
            return hostlist.expand(cluster.fleet.nodes)
        case configs.RayCluster(nodes=nodes) if nodes:
            return hostlist.expand(nodes)
        case _:
            return ()
