"""The pings of the agents on nodes: what each counted, and what each is to ping from now on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anubis.core.errors import TelemetryError
from anubis.core.fabric import Fabric, RailNic, rail_of
from anubis.core.network.ping_mesh import PingMesh
from anubis.core.network.ping_results import PingCount, PingedFlow, PingReport
from anubis.text.files import json_value

PINGS = "/pings"
FORM = 1  # raised when answers of older agents can no longer be read


@dataclass(frozen=True, kw_only=True)
class AgentPings:
    """The answer of one agent."""

    port: int  # at which it answers pings
    addresses: Mapping[str, str]  # of its NICs, by the names of their devices
    window_s: float  # 0: it pings no other so far
    report: PingReport
    targets: Mapping[RailNic, tuple[str, int]]  # address and port of those that it pings

    def nic(self, rail: str) -> tuple[str, str] | None:
        """The device and the address of its NIC on a rail; of its only one, whatever the rail."""
        devices = sorted(self.addresses)
        device = next((d for d in devices if rail in (d, rail_of(d))), None)
        if device is None and len(set(self.addresses.values())) == 1:
            device = devices[0]
        return None if device is None else (device, self.addresses[device])


def read_pings(node: str, body: bytes) -> AgentPings:
    """Read the answer of the agent on a node. It speaks of that node only, whatever it says."""
    try:
        document = json_value(body.decode())
        if document["pings"] != FORM:
            raise TelemetryError("its pings are of another version: use the same on both sides")
        return _agent_pings(node, document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise TelemetryError("its answer about pings cannot be read") from None


def _agent_pings(node: str, document: Any) -> AgentPings:
    lost: dict[int, dict[int, PingCount]] = {}
    for window, flow, sent, answered in document["lost"]:
        if not 0 <= answered <= sent or sent == 0:
            raise ValueError
        lost.setdefault(int(flow), {})[int(window)] = PingCount(int(sent), int(answered))
    flows, targets = [], {}
    for flow in document["flows"]:
        target = RailNic(*map(str, flow["target"]))
        targets[target] = str(flow["address"]), int(flow["port"])
        best_us = flow["best_us"]
        flows.append(
            PingedFlow(
                ends=(RailNic(node, str(flow["source"][1])), target),
                since=int(flow["since"]),
                was_answered=int(flow["answered"]) > 0,
                lost=lost.get(int(flow["flow"]), {}),
                best_us=None if best_us is None else float(best_us),
            )
        )
    report = PingReport(
        first=int(document["first"]),
        last=int(document["last"]),
        asleep=frozenset(map(int, document["asleep"])),
        flows=tuple(flows),
    )
    window_s = float(document["window_s"])
    if not (math.isfinite(window_s) and window_s >= 0):
        raise ValueError
    addresses = {str(device): str(address) for device, address in document["addresses"].items()}
    return AgentPings(
        port=int(document["port"]),
        addresses=addresses,
        window_s=window_s,
        report=report,
        targets=targets,
    )


def plans(
    fabric: Fabric, mesh: PingMesh, answers: Mapping[str, AgentPings]
) -> tuple[dict[str, bytes], int]:
    """The plan of pings of each agent that answered, and the number of flows that lack an address
    at either end, or have one of IPv4 at one end and of IPv6 at the other.
    An agent that does not answer now is pinged where others have pinged it."""
    pinged_at = {
        target: place for answer in answers.values() for target, place in answer.targets.items()
    }
    of_node: dict[str, list[dict[str, Any]]] = {node: [] for node in answers}
    lacking = 0
    for source, target in mesh.flows:
        near = _place(fabric, source, answers)
        far = answers.get(target.node)
        there = _place(fabric, target, answers)
        place = (there[1], far.port) if far and there else pinged_at.get(target)
        if near is None or place is None or (":" in near[1]) != (":" in place[0]):  # IPv6
            lacking += 1
            continue
        of_node[source.node].append(
            {
                "source": source,
                "target": target,
                "device": near[0],
                "address": place[0],
                "port": place[1],
            }
        )
    return {node: _plan(mesh, flows) for node, flows in of_node.items()}, lacking


def _place(
    fabric: Fabric, rail_nic: RailNic, answers: Mapping[str, AgentPings]
) -> tuple[str, str] | None:
    """The device and address of a NIC: by the name of its device, else by its rail."""
    answer, nic = answers.get(rail_nic.node), fabric.nic(*rail_nic)
    if answer is None or nic is None:
        return None
    if address := answer.addresses.get(nic.device):
        return nic.device, address
    return answer.nic(rail_nic.rail)


def _plan(mesh: PingMesh, flows: Sequence[Mapping[str, Any]]) -> bytes:
    document = {"window_s": mesh.window_s, "every_s": mesh.every_s, "flows": flows}
    return json.dumps(document).encode()
