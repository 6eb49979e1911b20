"""Verdicts on measurements that no part of the fabric explains: they are unknown.

A bad pair without a cause must never become healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from anubis.core.fabric import Fabric, RailNic, natural_key
from anubis.core.network.localization import Located
from anubis.core.records import Judgement, PartVerdict

NOT_MAPPED, UNEXPLAINED = "NOT-MAPPED", "UNEXPLAINED"
SHOWN = 4  # nodes, devices and sentences


@dataclass(frozen=True, kw_only=True)
class Stray:
    """A measurement of nodes that no flow of the fabric represents."""

    nodes: tuple[str, ...]
    device: str
    code: str
    reason: str  # why it is not healthy; "" if it is
    ends: tuple[RailNic, ...] = ()  # its NICs, if the fabric has them


def unexplained_parts(
    fabric: Fabric, located: Located, strays: Sequence[Stray]
) -> Iterator[PartVerdict]:
    """Yield a verdict for each bad pair on the fabric, and one for each code of strays."""
    shortfalls: dict[tuple[str, ...], float] = {}
    for observation in located.unexplained:
        flow = observation.flow
        nodes = _sort_names((flow.source.node, flow.target.node))
        shortfalls[nodes] = max(shortfalls.get(nodes, 0.0), observation.shortfall)
    for nodes, shortfall in sorted(shortfalls.items(), key=lambda item: -item[1]):
        reason = f"{shortfall:.0%} below normal, and no part of the fabric explains it"
        yield _unknown_verdict([nodes], UNEXPLAINED, reason)
    for code in dict.fromkeys(stray.code for stray in strays):
        alike = [stray for stray in strays if stray.code == code]
        bad = [stray for stray in alike if stray.reason]
        groups = [_sort_names(stray.nodes) for stray in bad or alike]
        if code == NOT_MAPPED:
            yield _unknown_verdict(
                groups, code, _unmapped_reason(fabric, bad or alike), _evidence(alike)
            )
        elif code != UNEXPLAINED or not located.causes:  # a cause slows groups as well
            yield _unknown_verdict(groups, code, bad[0].reason, _evidence(bad))


def _unmapped_reason(fabric: Fabric, strays: Sequence[Stray]) -> str:
    bad = any(stray.reason for stray in strays)
    state = "bad or not judged" if bad else "good, which proves no part of the fabric"
    devices = {stray.device for stray in strays if stray.device}
    of_topology = {nic.device for nic in fabric.nics if nic.node}
    return (
        f"{state}; the topology does not show where {_list_names(devices) or 'that'} is, "
        f"it has {_list_names(of_topology)}"
    )


def _unknown_verdict(
    groups: Sequence[tuple[str, ...]], code: str, reason: str, evidence: Sequence[str] = ()
) -> PartVerdict:
    count = len(set(groups))
    kind = "pairs" if all(len(nodes) == 2 for nodes in groups) else "groups"
    subject = f"path {_ends(groups[0])}" if count == 1 else f"{count:,} {kind} of nodes"
    return PartVerdict(
        nodes=_sort_names({node for nodes in groups for node in nodes}),
        subject=subject,
        judgement=Judgement.UNKNOWN,
        code=code,
        reason=f"{subject}: {reason}",
        evidence=tuple(evidence[:SHOWN]),
    )


def _evidence(strays: Sequence[Stray]) -> list[str]:
    """The reasons, each once with its nodes."""
    groups: dict[str, dict[str, None]] = {}
    for stray in strays:
        groups.setdefault(stray.reason or "good", {})[_ends(stray.nodes)] = None
    return [f"{_list_names(nodes, quote='')}: {reason}" for reason, nodes in groups.items()]


def _sort_names(nodes: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(nodes, key=natural_key))


def _ends(nodes: Collection[str]) -> str:
    more = f" and {len(nodes) - SHOWN:,} more" if len(nodes) > SHOWN else ""
    return " - ".join(_sort_names(nodes)[:SHOWN]) + more


def _list_names(names: Collection[str], quote: str = '"') -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(f"{quote}{name}{quote}" for name in _sort_names(names)[:SHOWN]) + more
