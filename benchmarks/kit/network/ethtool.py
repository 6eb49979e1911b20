"""The counters of `ethtool -S`, from the kernel without that tool.

The requests are those of linux/ethtool.h, each in a buffer to which an `ifreq` points.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from array import array

SIOCETHTOOL = 0x8946  # of linux/sockios.h
GDRVINFO, GSTRINGS, GSTATS = 0x03, 0x1B, 0x1D  # ETHTOOL_ commands of linux/ethtool.h
STATISTICS = 1  # ETH_SS_STATS
NAME_BYTES = 32  # ETH_GSTRING_LEN
INFO_BYTES, COUNT_AT = 196, 180  # struct ethtool_drvinfo, and n_stats in it
ROOM_BYTES = 64 << 10  # for what a driver begins to count between two questions


class Statistics:
    """The counters of one NIC by name. The names are asked for once."""

    def __init__(self, nic: str) -> None:
        self.nic = nic
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.names = self._ask_names()
        except OSError:
            self.close()
            raise

    def counts(self) -> array[int]:
        """Return the counters in the order of `names`; an error if the driver has other ones by
        now."""
        if self._ask_count() != len(self.names):
            raise OSError(errno.ESTALE, "its driver counts other things than before")
        answer = self._ask(struct.pack("=II", GSTATS, len(self.names)), 8 * len(self.names))
        return array("Q", answer[8 : 8 + 8 * len(self.names)])

    def close(self) -> None:
        self._socket.close()

    def _ask_count(self) -> int:
        answer = self._ask(struct.pack("=I", GDRVINFO), INFO_BYTES)
        return int(struct.unpack_from("=I", answer, COUNT_AT)[0])

    def _ask_names(self) -> list[str]:
        count = self._ask_count()
        question = struct.pack("=III", GSTRINGS, STATISTICS, count)
        answer = self._ask(question, NAME_BYTES * count)[len(question) :]
        names = (answer[NAME_BYTES * at : NAME_BYTES * (at + 1)] for at in range(count))
        return [name.partition(b"\0")[0].decode(errors="replace") for name in names]

    def _ask(self, question: bytes, size: int) -> bytes:
        """Send a request. The kernel answers behind it, as long as its answer is now: hence the
        room."""
        buffer = array("B", question + bytes(size + ROOM_BYTES))
        place, _ = buffer.buffer_info()
        fcntl.ioctl(self._socket, SIOCETHTOOL, struct.pack("16sP16x", self.nic.encode(), place))
        return buffer[: len(question) + size].tobytes()
