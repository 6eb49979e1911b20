"""Slurm's topology.conf and topology.yaml: trees of switches, and blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from anubis.core.errors import HostlistError, TopologyError, did_you_mean
from anubis.readers.topology.draft import Draft, Survey
from anubis.text import hostlist
from anubis.text.reading import read

ABOVE_BLOCKS = "above-all-blocks"
KEYS = {"switchname", "switch", "switches", "nodes", "linkspeed", "blockname", "blocksizes"}
WORD = re.compile(r"\b(\w++)\s*+=\s*+(\S+)")


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A switch or a block, and what is under it, as lists of names."""

    name: str
    nodes: str = ""
    below: str = ""
    block: bool = False
    line: int = 0


def parse_conf(text: str) -> Survey:
    draft = Draft()
    entries = []
    expected = set(KEYS)
    for line, row in _lines(text):
        words = {key.casefold(): value.strip('"') for key, value in WORD.findall(row)}
        name = words.get("switchname") or words.get("switch") or words.get("blockname")
        for word in sorted(words.keys() - expected):
            draft.find("unknown-key", f'unknown key "{word}"; {did_you_mean(word, KEYS)}', line)
        expected |= words.keys()  # a slip of whoever wrote all lines is told once
        if name:
            entries.append(
                _Entry(
                    name=name,
                    nodes=words.get("nodes", ""),
                    below=words.get("switches", ""),
                    block="blockname" in words,
                    line=line,
                )
            )
        elif "blocksizes" not in words:
            draft.find("unreadable", f'names no switch: "{row.strip()[:60]}"', line)
    return _survey(entries, draft)


def _lines(text: str) -> Iterable[tuple[int, str]]:
    """Yield lines without comments; one that ends in a backslash is continued on the next."""
    begun, first = "", 0
    for number, line in enumerate(text.split("\n"), start=1):
        kept = line.partition("#")[0].rstrip()
        first = first if begun else number
        begun += kept.removesuffix("\\")
        if not kept.endswith("\\"):
            if begun.strip():
                yield first, begun
            begun = ""
    if begun.strip():
        yield first, begun


@dataclass(frozen=True, kw_only=True)
class _SwitchItem:
    switch: str
    children: str = ""
    nodes: str = ""
    linkspeed: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class _Tree:
    switches: tuple[_SwitchItem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _BlockItem:
    block: str
    nodes: str = ""


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    block_sizes: tuple[int, ...] = ()
    blocks: tuple[_BlockItem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Topology:
    topology: str
    cluster_default: bool = False
    tree: _Tree | None = None
    block: _Blocks | None = None
    flat: bool = False


@dataclass(frozen=True, kw_only=True)
class _File:
    topologies: tuple[_Topology, ...] = field(default_factory=tuple)


def parse_yaml(document: object, where: str) -> Survey:
    """Return the topology that is the cluster's default, or the first one."""
    topologies = read({"topologies": document}, _File, where, TopologyError).topologies
    draft = Draft()
    if not topologies:
        raise TopologyError(f"{where} holds no topology")
    defaults = (topology for topology in topologies if topology.cluster_default)
    chosen = next(defaults, topologies[0])
    if len(topologies) > 1:
        rest = ", ".join(topology.topology for topology in topologies if topology is not chosen)
        draft.find("others", f'"{chosen.topology}" is taken; there are also: {rest}')
    if chosen.flat or not (chosen.tree or chosen.block):
        raise TopologyError(f'{where}: topology "{chosen.topology}" names no switches')
    entries = [
        _Entry(name=item.switch, nodes=item.nodes, below=item.children)
        for item in (chosen.tree.switches if chosen.tree else ())
    ]
    entries += [
        _Entry(name=item.block, nodes=item.nodes, block=True)
        for item in (chosen.block.blocks if chosen.block else ())
    ]
    return _survey(entries, draft)


def _survey(entries: list[_Entry], draft: Draft) -> Survey:
    for entry in entries:
        if draft.has_switch(entry.name):
            draft.find("twice", f'"{entry.name}" is described again', entry.line)
        draft.switch(entry.name)
    placed: dict[str, str] = {}
    for entry in entries:
        for node in _names(entry.nodes, entry, draft):
            if node in placed:
                sentence = f"{node} is already under {placed[node]}: not also under {entry.name}"
                draft.find("node-twice", sentence, entry.line)
                continue
            placed[node] = entry.name
            draft.nic(node=node, device="", switch=entry.name, line=entry.line)
        for below in _names(entry.below, entry, draft):
            if not draft.has_switch(below):
                sentence = f'"{below}", which is under {entry.name}, is not described'
                draft.find("unknown-switch", sentence, entry.line)
            draft.uplink(below, entry.name, line=entry.line)
    blocks = [entry.name for entry in entries if entry.block]
    if len(blocks) > 1:
        for block in blocks:
            draft.uplink(block, ABOVE_BLOCKS)
        draft.find("blocks", "the file does not say what joins the blocks: one switch is assumed")
    return draft.survey(is_outline=True)


def _names(text: str, entry: _Entry, draft: Draft) -> list[str]:
    try:
        return hostlist.expand(text) if text else []
    except HostlistError as error:
        draft.find("unreadable", f"{entry.name}: {error}", entry.line)
        return []
