"""NVML through ctypes: a node has the driver's library, not always the Python bindings.

What does not answer is an `Unread` with NVML's own code; nothing here turns it into a number.
"""

from __future__ import annotations

import ctypes
from functools import cache

LIBRARY = "libnvidia-ml.so.1"

NOT_SUPPORTED, INSUFFICIENT_SIZE, LOST, RESET_REQUIRED = 3, 7, 15, 16  # nvml.h, nvmlReturn_t

# bits of nvmlDeviceGetCurrentClocksThrottleReasons (nvml.h, nvmlClocksEventReason...)
REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


class Unread(Exception):
    """It could not be read, for a reason that one line can tell."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code  # what NVML answered; None where it did not get so far


def names(bits: int) -> set[str]:
    known = {name for bit, name in REASONS.items() if bits & bit}
    unknown = bits & ~sum(REASONS)
    return known | ({f"unknown_{unknown:#x}"} if unknown else set())


class Nvml:
    def __init__(self, library: str) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise Unread(f"{library} cannot be loaded: {error}") from error
        self.ask("nvmlInitWithFlags", 0)

    def ask(self, function: str, *arguments: object, fine: int = 0) -> None:
        """`fine` is a code that is an answer too."""
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise Unread(f"NVML has no {function}") from None
        if code not in (0, fine):
            raise Unread(f"{function} answers {code}", code)

    def number(self, function: str, *arguments: object) -> int:
        answer = ctypes.c_ulonglong()  # zero above the 32 bits that most of them write
        self.ask(function, *arguments, ctypes.byref(answer))
        return answer.value

    def text(self, function: str, *arguments: object) -> str:
        answer = ctypes.create_string_buffer(96)
        self.ask(function, *arguments, answer, len(answer))
        return answer.value.decode(errors="replace")


nvml = cache(Nvml)
