"""The counters that `ethtool -S` prints, asked of the kernel without that tool.

The requests are those of linux/ethtool.h, each in a buffer to which an `ifreq` points.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array

SIOCETHTOOL = 0x8946
GDRVINFO, GSTRINGS, GSTATS = 0x03, 0x1B, 0x1D
STATISTICS = 1  # ETH_SS_STATS
NAME_BYTES = 32
INFO_BYTES, COUNT_AT = 196, 180  # struct ethtool_drvinfo, and n_stats in it


class Statistics:
    """Of one NIC: its counters by name. The names are asked for once."""

    def __init__(self, nic: str) -> None:
        self.nic = nic
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.names = self._ask_names()
        except OSError:
            self.close()
            raise

    def counts(self) -> array[int]:
        """In the order of `names`."""
        buffer = bytearray(8 + 8 * len(self.names))
        struct.pack_into("=II", buffer, 0, GSTATS, len(self.names))
        self._ask(buffer)
        return array("Q", buffer[8:])

    def close(self) -> None:
        self._socket.close()

    def _ask_names(self) -> list[str]:
        info = bytearray(INFO_BYTES)
        struct.pack_into("=I", info, 0, GDRVINFO)
        self._ask(info)
        (count,) = struct.unpack_from("=I", info, COUNT_AT)
        strings = bytearray(12 + NAME_BYTES * count)
        struct.pack_into("=III", strings, 0, GSTRINGS, STATISTICS, count)
        self._ask(strings)
        names = (strings[at : at + NAME_BYTES] for at in range(12, len(strings), NAME_BYTES))
        return [name.partition(b"\0")[0].decode(errors="replace") for name in names]

    def _ask(self, buffer: bytearray) -> None:
        """The kernel answers in the buffer itself."""
        request = array("B", buffer)
        place, _ = request.buffer_info()
        fcntl.ioctl(self._socket, SIOCETHTOOL, struct.pack("16sP16x", self.nic.encode(), place))
        buffer[:] = request.tobytes()
