"""A fabric while it is being read: anything odd becomes a finding, never an exception."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from anubis.core.fabric import Cable, Fabric, Link, Nic, Remark, Switch, rail_of


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The fabric that a source describes, and everything odd about it."""

    fabric: Fabric
    findings: tuple[Remark, ...] = ()


class Draft:
    def __init__(self) -> None:
        self.findings: list[Remark] = []
        self._switches: dict[str, str] = {}
        self._guids: dict[str, str] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._nics: list[Nic] = []
        self._rail_nics: set[tuple[str, str]] = set()
        self._again: dict[tuple[str, str], int] = {}  # the last number of a further NIC
        self._cables: dict[tuple[str, str], list[Cable]] = {}
        self._above: dict[str, set[str]] = {}

    def find(self, kind: str, sentence: str, line: int = 0) -> None:
        self.findings.append(Remark(kind=kind, sentence=sentence, line=line))

    def switch(
        self, id: str, name: str = "", guid: str = "", addresses: tuple[str, ...] = ()
    ) -> None:
        """Add a switch; a later name does not replace the first one."""
        self._switches[id] = self._switches.get(id) or name
        self._guids[id] = self._guids.get(id) or guid
        self._addresses[id] = self._addresses.get(id) or addresses

    def has_switch(self, id: str) -> bool:
        return id in self._switches

    def _free_again(self, node: str, rail: str) -> int:
        """Return the number of a further NIC of that name, the second or later."""
        again = self._again.get((node, rail), 1) + 1
        while (node, f"{rail}/{again}") in self._rail_nics:
            again += 1
        self._again[node, rail] = again
        return again

    def nic(
        self,
        *,
        node: str,
        device: str,
        switch: str,
        id: str = "",
        port: str = "",
        gbit_s: float | None = None,
        guid: str = "",
        lid: int = 0,
        line: int = 0,
    ) -> None:
        """Add a NIC. One without a node is kept: it shows that the port is taken, and is never
        measured."""
        self.switch(switch)
        rail = rail_of(device)
        if node and (node, rail) in self._rail_nics:
            again = self._free_again(node, rail)
            several_nics = f'NICs called "{device}"' if device else "NICs without a name"
            self.find(
                "same-device",
                f"{node} has several {several_nics}: this one is taken for rail {rail}/{again}",
                line,
            )
            rail = f"{rail}/{again}"
        if node:
            self._rail_nics.add((node, rail))
        self._nics.append(
            Nic(
                id=id or f"{node}/{rail}",
                node=node,
                device=device,
                rail=rail,
                switch=switch,
                port=port,
                gbit_s=gbit_s,
                guid=guid,
                lid=lid,
            )
        )

    def cable(
        self,
        a: str,
        b: str,
        *,
        ports: tuple[str, str] = ("", ""),
        gbit_s: float | None = None,
        line: int = 0,
    ) -> None:
        self.switch(a)
        self.switch(b)
        if a == b:
            self.find("loop", f"{self._switches[a] or a} is cabled to itself: left out", line)
        elif a < b:
            cable = Cable(port_a=ports[0], port_b=ports[1], gbit_s=gbit_s)
            self._cables.setdefault((a, b), []).append(cable)
        else:
            self.cable(b, a, ports=(ports[1], ports[0]), gbit_s=gbit_s, line=line)

    def uplink(self, low: str, high: str, *, gbit_s: float | None = None, line: int = 0) -> None:
        """Add a cable with a known upper end: the one further from the nodes."""
        self.cable(low, high, gbit_s=gbit_s, line=line)
        if low != high:
            self._above.setdefault(low, set()).add(high)

    def survey(self, *, is_outline: bool = False) -> Survey:
        """The fabric as drawn. `is_outline`: its source shows no planes and rails."""
        if not self._nics:
            self.find("empty", "no NIC of any node was found")
        tier = self._tiers()
        return Survey(
            fabric=Fabric(
                switches=tuple(
                    Switch(
                        id=id,
                        name=name,
                        tier=tier.get(id, 0),
                        guid=self._guids[id],
                        addresses=self._addresses[id],
                    )
                    for id, name in self._names().items()
                ),
                links=tuple(
                    Link(a=a, b=b, cables=tuple(cables))
                    for (a, b), cables in sorted(self._cables.items())
                ),
                nics=tuple(self._unique(self._nics)),
                is_outline=is_outline,
            ),
            findings=tuple(self.findings),
        )

    def _tiers(self) -> dict[str, int]:
        """Return tiers, each one more than the highest below. Empty if the source does not say, or
        names a circle: Fabric then counts tiers itself."""
        if not self._above:
            return {}
        tier = dict.fromkeys(self._switches, 1)
        for _ in self._switches:
            higher = {
                high: tier[low] + 1
                for low, highs in self._above.items()
                for high in highs
                if tier[high] <= tier[low]
            }
            if not higher:
                return tier
            tier.update(higher)
        self.find("circle", "the switches are said to be above each other in a circle")
        return {}

    def _names(self) -> dict[str, str]:
        """Return the names of the switches; with the id if several have the same name."""
        names = {id: name or id for id, name in self._switches.items()}
        count = Counter(names.values())
        for name, times in count.items():
            if times > 1:
                self.find("same-name", f'{times} switches are called "{name}"')
        return {id: name if count[name] == 1 else f"{name} ({id})" for id, name in names.items()}

    @staticmethod
    def _unique(nics: list[Nic]) -> list[Nic]:
        """Give NICs different ids, whatever the source calls them."""
        seen: Counter[str] = Counter()
        unique = []
        for nic in nics:
            seen[nic.id] += 1
            again = seen[nic.id]
            unique.append(nic if again == 1 else replace(nic, id=f"{nic.id}#{again}"))
        return unique
