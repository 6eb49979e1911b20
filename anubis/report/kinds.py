"""Several kinds of nodes under one sku: which nodes are of which kind, how sure that is, and what
settles it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from anubis.core.records import NodeKind
from anubis.report.json import json_line
from anubis.text.wording import figure, quantity, share, short_node_list


def kinds_by_sku(kinds: Iterable[NodeKind]) -> list[tuple[str, list[NodeKind]]]:
    ordered = sorted(kinds, key=lambda kind: kind.sku)
    return [(sku, list(of_sku)) for sku, of_sku in groupby(ordered, key=lambda kind: kind.sku)]


def sentence(sku: str, kinds: Sequence[NodeKind]) -> str:
    confidence = min(kind.confidence for kind in kinds)
    return (
        f'sku "{sku}" has {len(kinds)} kinds of nodes (confidence {share(confidence)}); each node '
        "is judged among its own kind. If they are what you bought, give each kind a sku of its "
        'own ("skus" in the cluster\'s file); if not, something slows the nodes of a worse kind'
    )


def description(kind: NodeKind) -> str:
    """Return `gpu-kind-b: 25 nodes, node[076-100]; gemm tflops 322 TFLOP/s`"""
    unit = "" if kind.unit == "1" else f" {kind.unit}"
    return (
        f"{kind.label}: {quantity(len(kind.nodes), 'node')}, {short_node_list(kind.nodes)}; "
        f"{kind.metric} {figure(kind.typical)}{unit}"
    )


def lines(kinds: Iterable[NodeKind]) -> Iterator[str]:
    for kind in kinds:
        yield json_line("kind", replace(kind, confidence=round(kind.confidence, 6)))
