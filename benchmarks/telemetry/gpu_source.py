"""Telemetry of a node's GPUs by NVML. A GPU that is gone reports nothing any more, never 0.

The driver is let go of when a GPU has gone, on a signal, and when it asks for the reset of a GPU on
which nothing runs: no GPU can be reset while a process has it open, and one that was reset is known
in a new session only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kit.gpus import nvml
from kit.gpus.cards import amd_cards
from kit.gpus.gpu_profile import Profile
from kit.gpus.readings import Handle, Unread

from telemetry.sources import Line, Place, Rates, Sampled, labels, total

TRIED_AGAIN_AFTER_S = 30.0  # a driver that was not there, a GPU that it did not reach
REST_S = 600.0  # for somebody who resets GPUs
RESTING = "the agent lets go of GPUs, as it was told to (SIGUSR1)"
RESET = "the agent lets go of GPUs, so that GPU {} can be reset, as its driver asks"
AMD = "of AMD's GPUs no telemetry is read"
UNSUPPORTED = "not supported by this GPU"
MIB = 1 << 20  # the unit of memory in DCGM
LANE_BYTES_PER_S = 985e6  # one way in generation 3; each generation doubles it
SUMS = {  # metrics, of the parts that they add up
    "gpu_fp": ("gpu_fp64", "gpu_fp32", "gpu_fp16"),
    "pcie_throughput": ("pcie_tx", "pcie_rx"),
    "nvlink_throughput": ("nvlink_tx", "nvlink_rx"),
}
METRICS = (
    *("gpu_memory", "gpu_duty", "gpu_power", "gpu_temperature", "gpu_clock", "gpu_graphics"),
    *("gpu_sm", "gpu_tensor", "gpu_memory_bandwidth", *SUMS, "pcie_use"),
)
EXPORTED = {  # what dcgm-exporter calls it, and its unit in ours
    "gpu_memory": ("DCGM_FI_DEV_FB_USED", MIB),
    "gpu_duty": ("DCGM_FI_DEV_GPU_UTIL", 1),
    "gpu_power": ("DCGM_FI_DEV_POWER_USAGE", 1),
    "gpu_temperature": ("DCGM_FI_DEV_GPU_TEMP", 1),
    "gpu_clock": ("DCGM_FI_DEV_SM_CLOCK", 1),
    "clock_reasons": ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1),  # bits, as NVML has them
    "gpu_graphics": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 100),
    "gpu_sm": ("DCGM_FI_PROF_SM_ACTIVE", 100),
    "gpu_tensor": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 100),
    "gpu_memory_bandwidth": ("DCGM_FI_PROF_DRAM_ACTIVE", 100),
    "gpu_fp64": ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", 100),
    "gpu_fp32": ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 100),
    "gpu_fp16": ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 100),
    "pcie_tx": ("DCGM_FI_PROF_PCIE_TX_BYTES", 1),
    "pcie_rx": ("DCGM_FI_PROF_PCIE_RX_BYTES", 1),
    "pcie_generation": ("DCGM_FI_DEV_PCIE_LINK_GEN", 1),
    "pcie_width": ("DCGM_FI_DEV_PCIE_LINK_WIDTH", 1),
    "nvlink_throughput": ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1e6),
}
# counters of errors since the driver was loaded, as dcgm-exporter calls them; a GPU without one has
# no line, and never a 0
ERRORS_EXPORTED = {
    "ecc_correctable": "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "ecc_uncorrectable": "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "rows_remapped:correctable": "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "rows_remapped:uncorrectable": "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "pcie_replays": "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "nvlink_errors:crc_flit": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "nvlink_errors:crc_data": "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "nvlink_errors:replay": "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "nvlink_errors:recovery": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
}
COUNTERS = {name: nvml.ERRORS[name] for name in ERRORS_EXPORTED}
# states in which a GPU cannot be used as it is, and the values without news
STATES = {
    "recovery_action": nvml.recovery_action,
    "row_remap_failure": nvml.CONDITION["row_remap_failure"],
}
QUIET = (nvml.RECOVERY_ACTIONS[0], 0)
ASKED_EVERY_S = 5.0  # two calls a GPU
COUNTED_EVERY_S = 15.0  # each NVLink is asked by itself, 18 times four calls
Values = dict[str, float | None]


class Gpu:
    """A GPU that the driver reached once; it is missed while it is not reached."""

    def __init__(self, index: int) -> None:
        self.index, self._rates = index, Rates()
        self._handle: Handle = None
        self._profile: Profile | None = None
        self.uuid = self.unprofiled = ""
        self._errors: Values = {}
        self._counted_at = float("-inf")
        self._ever: set[str] = set()  # told
        self.reasons: dict[str, str] = {}  # why something is not told
        self.is_gone = self.awaits_reset = False
        self.xids: Counter[int] = Counter()  # since the agent began
        self.last_xid: int | None = None  # 0: none; None: the driver reports none
        self.place = ""  # on the PCI bus
        self._states: dict[str, Any] = {}
        self._asked_at = float("-inf")

    def note_xid(self, number: int) -> None:
        self.xids[number] += 1
        self.last_xid = number

    def take(self, handle: Handle) -> None:
        self._handle, self.is_gone, self._counted_at = handle, False, float("-inf")
        self.uuid = nvml.read(handle, nvml.UUID).values.get("uuid", "")
        self.place = nvml.read(handle, {"place": nvml.address}).values.get("place", self.place)
        try:
            self._profile, self.unprofiled = Profile(handle), ""
        except Unread as reason:
            self._profile, self.unprofiled = None, str(reason)

    def read(self, now: float) -> Values:
        """Return its values now; None for one that it reported before and does not now."""
        if self._handle is None:
            return dict.fromkeys(self._ever)
        reading = nvml.read(self._handle, nvml.LOAD)
        self.is_gone = reading.gone
        values: Values = dict(reading.values)
        if not reading.gone:
            values |= self._read_profile() | self._count_errors(now)
            if "pcie_tx" not in values:
                values |= self._traffic(now)
        self.reasons = dict.fromkeys(reading.unsupported, UNSUPPORTED) | reading.unread
        values |= {
            metric: total(values, parts) for metric, parts in SUMS.items() if parts[0] in values
        }
        values |= bus_use(values)
        self._ever |= values.keys()
        return {metric: values.get(metric) for metric in self._ever}

    def new_states(self, now: float) -> Iterator[tuple[str, str]]:
        """Yield the states that NVML reports now and did not before."""
        if self._handle is None or now < self._asked_at + ASKED_EVERY_S:
            return
        self._asked_at = now
        for name, value in nvml.read(self._handle, STATES).values.items():
            if value not in QUIET and value != self._states.get(name):
                words = name.replace("_", " ")
                yield name, f"NVML: GPU {self.place}: {words}: {value}"
            self._states[name] = value

    @property
    def is_reached(self) -> bool:
        return self._handle is not None

    @property
    def address(self) -> int | None:
        return nvml.handle_address(self._handle) if self.is_reached else None

    def let_go(self) -> None:
        self._handle = self._profile = None
        self.is_gone = self.awaits_reset = False
        self.unprofiled, self.reasons = "", {}

    def _read_profile(self) -> Values:
        if self._profile is None:
            return {}
        try:
            return dict(self._profile.read())
        except nvml.pynvml.NVMLError:
            return {}

    def _count_errors(self, now: float) -> Values:
        if now >= self._counted_at + COUNTED_EVERY_S:
            self._counted_at = now
            self._errors = dict(nvml.read(self._handle, COUNTERS).values)
            self.awaits_reset = nvml.awaits_reset(self._handle)
        return self._errors

    def _traffic(self, now: float) -> Values:
        values: Values = dict(nvml.read(self._handle, nvml.TRAFFIC).values)
        if "nvlink_bytes" in values:
            carried = values.pop("nvlink_bytes")
            values["nvlink_throughput"] = self._rates.rise("nvlink", carried, now)
        return values


def bus_use(values: Values) -> Values:
    """Return the used share of what its PCIe link carries at its present speed and width."""
    throughput, generation, width = (
        values.get(name) for name in ("pcie_throughput", "pcie_generation", "pcie_width")
    )
    if throughput is None or not generation or not width:
        return {}
    limit = 2 * LANE_BYTES_PER_S * 2 ** (generation - 3) * width
    return {"pcie_use": 100 * throughput / limit}


class Gpus:
    def __init__(self, place: Place) -> None:
        self._place, self._gpus = place, dict[int, Gpu]()
        self._reason, self._again = "", float("-inf")
        self._has_driver = False
        self._events: Any = None  # of XIDs
        self.wants_rest = False  # told by a signal
        self._is_resting = False
        self.note: Callable[[str, str], None] = lambda id, text: None  # of an event, at once

    def read(self, now: float) -> Sampled:
        if self.wants_rest:  # told again meanwhile, it goes on at once
            self.wants_rest = False
            self._rest(now, "" if self._is_resting else RESTING)
        if now >= self._again:
            self._look(now)
        self._note_xids()
        values = {gpu: gpu.read(now) for gpu in self._gpus.values()}
        for gpu in self._gpus.values():
            for name, text in gpu.new_states(now):
                self.note(f"{name}-{gpu.index}", text)
        if self._has_driver and any(gpu.is_gone for gpu in values):
            self._look(now)  # at once: the others go on in a new session
        if waiting := [gpu.index for gpu in values if gpu.awaits_reset]:
            self._rest(now, RESET.format(", ".join(map(str, waiting))))
        sampled = Sampled()
        for gpu, readings in values.items():
            for metric in (metric for metric in METRICS if metric in readings):
                sampled.add(metric, str(gpu.index), readings[metric])
        for metric in METRICS:
            if metric not in sampled.values:
                sampled.absent[metric] = self._reason_of(metric)
        sampled.lines = lambda: lines_of(self._place.node, values)
        return sampled

    def _rest(self, now: float, reason: str) -> None:
        """Let go of all GPUs for a while; without a reason, only until they are looked for again,
        at once."""
        self._is_resting, self._reason = bool(reason), reason
        self._again = now + REST_S if reason else float("-inf")
        self._let_go()

    def _note_xids(self) -> None:
        by_address = {gpu.address: gpu for gpu in self._gpus.values()}
        for address, number in nvml.read_xids(self._events) if self._events else ():
            if address in by_address:
                gpu = by_address[address]
                gpu.note_xid(number)
                place = gpu.place.removesuffix(".0")
                line = f"NVRM: Xid (PCI:{place}): {number}, as NVML reports it"
                self.note(f"xid-{number}-{gpu.index}", line)

    def _let_go(self) -> None:
        if self._events:
            self._note_xids()
            nvml.stop_listening(self._events)
            self._events = None
        for gpu in self._gpus.values():
            gpu.let_go()
        if self._has_driver:
            nvml.end()
        self._has_driver = False

    def _reason_of(self, metric: str) -> str:
        for gpu in self._gpus.values():
            if reason := gpu.reasons.get(metric) or gpu.unprofiled:
                return reason
        is_reached = any(gpu.is_reached for gpu in self._gpus.values())
        return UNSUPPORTED if is_reached else self._reason or UNSUPPORTED

    def _look(self, now: float) -> None:
        """Begin anew with the GPUs that the driver reaches by now; those that are gone stay missed.
        With all of them there is no need to look again."""
        self._let_go()
        self._is_resting = False
        self._again = now + TRIED_AGAIN_AFTER_S
        try:
            nvml.begin()
            self._has_driver = True
            handles, refused = nvml.gpus_by_index()
        except Unread as reason:
            self._reason = AMD if amd_cards(self._place.root) else str(reason)
            return
        for index, handle in handles.items():
            self._gpus.setdefault(index, Gpu(index)).take(handle)
        self._events, listening = nvml.listen_for_xids(handles.values())
        for gpu in self._gpus.values():
            if gpu.address in listening:
                gpu.last_xid = gpu.last_xid or 0
        self._reason = "; ".join(f"GPU {index}: {why}" for index, why in refused.items())
        if handles and not refused and handles.keys() == self._gpus.keys():
            self._again = float("inf")


def lines_of(node: str, values: dict[Gpu, Values]) -> Iterator[Line]:
    for gpu, readings in values.items():
        where = labels(gpu=str(gpu.index), UUID=gpu.uuid, Hostname=node)
        for metric, (name, unit) in EXPORTED.items():
            value = readings.get(metric)
            if value is not None:
                yield Line(name, where, value / unit)
        for metric, name in ERRORS_EXPORTED.items():
            if (value := readings.get(metric)) is not None:
                yield Line(name, where, value)
        if gpu.last_xid or (gpu.last_xid == 0 and gpu.is_reached):
            yield Line("DCGM_FI_DEV_XID_ERRORS", where, gpu.last_xid)
        for number, count in sorted(gpu.xids.items()):
            yield Line("anubis_agent_xids_total", f"{where},{labels(xid=str(number))}", count)
