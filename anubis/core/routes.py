"""The forwarding tables of a fabric: the port through which each switch sends to each NIC.

A port is a number, as in InfiniBand. The tables of thousands of switches are kept as one text, so
that they fit into a plan.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

NOWHERE = 0  # the port of a switch itself


@dataclass(frozen=True, kw_only=True)
class Routes:
    switches: tuple[str, ...]  # ids: the rows
    nics: tuple[str, ...]  # ids: the columns
    packed: str  # the port of each row and column, compressed
    source: str = ""  # the source, in words
    as_of: float | None = None  # the time of the tables, in seconds since 1970

    @classmethod
    def from_ports(
        cls, ports: Mapping[str, Mapping[str, int]], source: str = "", as_of: float | None = None
    ) -> Self:
        """Make routes from a mapping of switch to NIC to port; a missing entry leads nowhere."""
        nics = {nic: None for to in ports.values() for nic in to}
        column = {nic: number for number, nic in enumerate(nics)}
        table = np.full((len(ports), len(nics)), NOWHERE, dtype=np.uint16)
        for row, to in enumerate(ports.values()):
            table[row, [column[nic] for nic in to]] = list(to.values())
        packed = base64.b85encode(zlib.compress(table.tobytes())).decode()
        return cls(
            switches=tuple(ports), nics=tuple(nics), packed=packed, source=source, as_of=as_of
        )

    def port(self, switch: str, nic: str) -> int:
        """The port through which a switch sends to this NIC; NOWHERE if that is unknown."""
        row, column = self._row.get(switch), self._column.get(nic)
        return NOWHERE if row is None or column is None else int(self._table[row, column])

    def nics_by(self, switch: str, port: str) -> Iterator[str]:
        """Yield the NICs to which a switch sends through this port."""
        row = self._row.get(switch)
        if row is not None and port.isdigit():
            for column in np.flatnonzero(self._table[row] == int(port)).tolist():
                yield self.nics[column]

    @cached_property
    def _table(self) -> npt.NDArray[np.uint16]:
        raw = zlib.decompress(base64.b85decode(self.packed))
        return np.frombuffer(raw, dtype=np.uint16).reshape(len(self.switches), len(self.nics))

    @cached_property
    def _row(self) -> dict[str, int]:
        return {switch: number for number, switch in enumerate(self.switches)}

    @cached_property
    def _column(self) -> dict[str, int]:
        return {nic: number for number, nic in enumerate(self.nics)}
