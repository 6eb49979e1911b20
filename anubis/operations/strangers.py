"""Refuse nodes that a cluster does not have: neither its history nor its file names them."""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from anubis.config import configs
from anubis.core.errors import UsageError
from anubis.core.history.events import EventRecord
from anubis.operations.caller import Caller
from anubis.operations.clusters import cluster_file
from anubis.store.history import ClusterHistory
from anubis.text import hostlist
from anubis.text.hostlist import shorten

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
    close = get_close_matches(strangers[0], there[:MOST_COMPARED], n=1)
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
