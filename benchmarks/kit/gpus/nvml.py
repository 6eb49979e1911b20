"""Facts about GPUs from NVIDIA's driver, read through pynvml: plain functions of a GPU's handle.

A reader returns one value or raises. Nothing here repeats, reports or judges, so that a program may
look once and a collector every second. `read` keeps three things apart: values (0 is one of them),
what this GPU does not support, and what could not be read.

GPUs are numbered by their place on the PCI bus; CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA do the
same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ctypes import byref, c_int, c_void_p, cast
from pathlib import Path
from typing import Any

from kit.gpus.cards import machine_root
from kit.gpus.readings import Handle, NoDriver, Reader, Reading, Unread, Unsupported
from kit.sysfs import number

# What travels with the programs to nodes that lack it. Last: an installed one comes first.
PACKAGES = Path(__file__).parents[2] / "packages"
sys.path.append(str(PACKAGES))
try:
    import pynvml
except ImportError:
    pynvml = None

CALLED = "NVML"
# from the lowest bit of nvmlClocksEventReason... upwards
REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)


ABSENT = (13, 25, 26)  # answers of NVML: no such function, no such version, taken away
MOST_XIDS = 100  # that are read at once
ALL_LINKS = 0xFFFFFFFF  # the scope of a field that is the sum over them
RECOVERY_ACTIONS = {
    0: "none",
    1: "reset the GPU",
    2: "restart the node",
    3: "drain its peers",
    4: "drain and reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "restart the system",
}
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}


def read(gpu: Handle, readers: Mapping[str, Reader]) -> Reading:
    """Call each reader by itself: one that fails takes no other with it."""
    reading = Reading()
    for name, reader in readers.items():
        try:
            value = reader(gpu)
        except (pynvml.NVMLError_NotSupported, Unsupported):
            reading.unsupported.append(name)
        except (
            *(pynvml.NVMLError, Unread, AttributeError, TypeError),  # the last two of an old pynvml
            *(ValueError, LookupError),
        ) as error:
            reading.unread[name] = str(error)
            reading.gone |= isinstance(
                error, (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired)
            )
        else:
            reading.values[name] = _text(value) if isinstance(value, bytes) else value
    return reading


# --- which GPUs there are ------------------------------------------------------------------


def begin() -> None:
    """Initialize NVML. Must come before everything else; may come again."""
    if pynvml is None:
        raise NoDriver(
            f'module "pynvml" is neither installed (pip install nvidia-ml-py) nor in "{PACKAGES}"'
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise NoDriver("libnvidia-ml.so.1 cannot be loaded") from None
    except pynvml.NVMLError as error:
        raise Unread(f"nvmlInit: {error}") from error


def end() -> None:
    """Let go of all GPUs; handles end with it. No GPU can be reset while a process has it open."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def gpus_by_index() -> tuple[dict[int, Handle], dict[int, str]]:
    """Return the GPUs that the driver reaches, and why it does not reach the others. Those that
    this process may not use, as in a job that was given two of eight, are counted and are none."""
    handles: dict[int, Handle] = {}
    refused: dict[int, str] = {}
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise Unread(f"nvmlDeviceGetCount: {error}") from error
    for index in range(count):
        try:
            handles[index] = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError_NoPermission:
            continue
        except pynvml.NVMLError as error:
            refused[index] = str(error)
    if count and not handles and not refused:
        raise Unread(f"NVML lets this process use none of {count} GPUs")
    return handles, refused


def names_for_cuda() -> tuple[list[str], dict[int, str]]:
    """Return the name of each GPU, or of each slice of one, for CUDA_VISIBLE_DEVICES, in CUDA's
    order, and, by place, why some have none."""
    handles, gone = gpus_by_index()
    names: list[str] = []
    unnamed: dict[int, str] = {}
    for index in sorted({*handles, *gone}):
        try:
            if index in gone:
                raise Unread(gone[index])
            names += slices(handles[index]) or [_text(pynvml.nvmlDeviceGetUUID(handles[index]))]
        except (pynvml.NVMLError, Unread) as error:
            unnamed[len(names)] = str(error)
            names.append("")
    return names, unnamed


def slices(gpu: Handle) -> list[str]:
    """Return the slices of a GPU that is sliced (MIG); CUDA itself would see the first of them
    only."""
    try:
        mode, _ = pynvml.nvmlDeviceGetMigMode(gpu)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return []
    if mode != pynvml.NVML_DEVICE_MIG_ENABLE:
        return []
    names: list[str] = []
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        with suppress(pynvml.NVMLError_NotFound):
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
            names.append(_text(pynvml.nvmlDeviceGetUUID(part)))
    if not names:
        raise Unread("MIG is on, and there is no slice to measure")
    return names


def _text(words: str | bytes) -> str:
    """Decode a text: older bindings give bytes."""
    return words.decode(errors="replace") if isinstance(words, bytes) else words


def find_gpu(properties: Any) -> Handle:
    """Return a GPU, or a slice of one, by torch's properties of it: NVML numbers GPUs in another
    order than CUDA does, and torch gives the UUID without its kind."""
    uuid = str(getattr(properties, "uuid", "without a UUID"))
    for kind in ("GPU", "MIG"):
        try:
            return pynvml.nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}".encode())
        except pynvml.NVMLError as error:
            failure = error
    raise Unread(f"NVML knows no GPU {uuid}: {failure}")


# --- XIDs, as the driver reports them ------------------------------------------------------


def listen_for_xids(gpus: Iterable[Handle]) -> tuple[Any, set[int | None]]:
    """Return a set of events that gets the XIDs of GPUs from now on, and the addresses of those
    that report any; None if none does."""
    listening: set[int | None] = set()
    try:
        events = pynvml.nvmlEventSetCreate()
    except (pynvml.NVMLError, AttributeError):
        return None, listening
    for gpu in gpus:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlDeviceRegisterEvents(gpu, pynvml.nvmlEventTypeXidCriticalError, events)
            listening.add(handle_address(gpu))
    if not listening:
        stop_listening(events)
    return events if listening else None, listening


def read_xids(events: Any) -> list[tuple[int | None, int]]:
    """Return the XIDs since this was last asked, each with the address of its GPU's handle."""
    xids: list[tuple[int | None, int]] = []
    while len(xids) < MOST_XIDS:
        try:
            event = pynvml.nvmlEventSetWait_v2(events, 0)
        except pynvml.NVMLError:  # there are no more, or a GPU was lost
            break
        xids.append((handle_address(event.device), int(event.eventData)))
    return xids


def handle_address(gpu: Handle) -> int | None:
    return cast(gpu, c_void_p).value


def stop_listening(events: Any) -> None:
    with suppress(pynvml.NVMLError):
        pynvml.nvmlEventSetFree(events)


# --- readers of several values, or of structures -------------------------------------------


def ask(names: Sequence[str], *arguments: Any) -> Any:
    """Return the answer of the first of these functions that bindings and driver have: older ones
    are taken away (NVML_ERROR_DEPRECATED), newer ones are not there yet."""
    absent: Exception = Unread("no function is named")
    for name in names:
        try:
            return getattr(pynvml, name)(*arguments)
        except (AttributeError, pynvml.NVMLError) as error:
            if getattr(error, "value", ABSENT[0]) not in ABSENT:
                raise
            absent = error
    raise absent


def reason_bits(gpu: Handle) -> int:
    """Return the reasons that hold the clocks back now, as the driver gives them."""
    kinds = ("Event", "Throttle")
    bits: int = ask([f"nvmlDeviceGetCurrentClocks{kind}Reasons" for kind in kinds], gpu)
    return bits


def reasons(gpu: Handle) -> set[str]:
    return reason_names(reason_bits(gpu))


def reason_names(bits: int) -> set[str]:
    names = {name for place, name in enumerate(REASONS) if bits & 1 << place}
    unknown = bits >> len(REASONS) << len(REASONS)
    return names | ({f"unknown_{unknown:#x}"} if unknown else set())


def busy(held_back: Sequence[set[str]]) -> list[set[str]]:
    return [shown for shown in held_back if "gpu_idle" not in shown]


def shares(held_back: Sequence[set[str]]) -> dict[str, float]:
    """Return, for each reason, the share of the readings that showed it."""
    return {
        name: sum(name in shown for shown in held_back) / len(held_back)
        for name in sorted(set().union(*held_back))
    }


def slowdowns(held_back: Sequence[set[str]]) -> dict[str, float]:
    """Return the shares of the reasons that are a fault; nothing if nothing was read."""
    by_reason = shares(held_back)
    return {name: by_reason.get(name, 0.0) for name in SLOWDOWNS} if held_back else {}


def address(gpu: Handle) -> str:
    """Return the PCI address as the kernel writes it: 0000:3b:00.0."""
    pci = pynvml.nvmlDeviceGetPciInfo(gpu)
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"


def pages_retired(gpu: Handle) -> int:
    """Count retired pages, for both causes: GPUs before row remapping retire pages."""
    causes = (
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    )
    return sum(len(pynvml.nvmlDeviceGetRetiredPages(gpu, cause)) for cause in causes)


def sram_threshold_exceeded(gpu: Handle) -> int:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(gpu, byref(status))
    return status.bThresholdExceeded


def fabric_info(gpu: Handle) -> Any:
    """Return its place in an NVSwitch fabric, with the mask of its health if the driver has one."""
    try:
        fabric = pynvml.c_nvmlGpuFabricInfo_v3_t()
        pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, byref(fabric))
    except (
        AttributeError,
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_ArgumentVersionMismatch,
    ):  # bindings or a driver of before
        fabric = pynvml.c_nvmlGpuFabricInfo_t()
        pynvml.nvmlDeviceGetGpuFabricInfo(gpu, byref(fabric))
    if fabric.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return fabric


def fabric_unready(gpu: Handle) -> bool:
    fabric = fabric_info(gpu)
    return fabric.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED or fabric.status != 0


def fabric_state(gpu: Handle) -> str:
    """Return the state of its registration with the NVSwitch fabric, and whether it went well."""
    fabric = fabric_info(gpu)
    state = FABRIC_STATES.get(fabric.state, f"state {fabric.state}")
    return f"{state}, status {fabric.status}" if fabric.status else state


def fabric_health(aspect: str) -> Reader:
    """Return a reader of one aspect of its health: true if something is wrong."""

    def is_unwell(gpu: Handle) -> bool:
        mask = getattr(fabric_info(gpu), "healthMask", 0)  # of drivers that have one
        name = f"NVML_GPU_FABRIC_HEALTH_MASK_{{}}_{aspect}"
        value = mask >> getattr(pynvml, name.format("SHIFT")) & getattr(
            pynvml, name.format("WIDTH")
        )
        if value == 0:  # each aspect says so
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return (value > 1) if aspect == "INCORRECT_CONFIGURATION" else value == 1

    return is_unwell


def recovery_action(gpu: Handle) -> str:
    """Return what the driver wants to be done before the GPU is right again."""
    (action,) = field_values(gpu, (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0))
    return RECOVERY_ACTIONS.get(action, f"action {action}")


def awaits_reset(gpu: Handle) -> bool:
    """Return whether the driver wants the GPU to be reset, and no program computes on it any more.
    False also if the driver does not say."""
    try:
        wants_reset = "reset" in recovery_action(gpu)
        return wants_reset and not pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    except (pynvml.NVMLError, Unread):
        return False


def fabric_name(gpu: Handle) -> str:
    """Return cluster and clique, within which GPUs of several hosts reach each other; "" if the
    fabric ends at the host."""
    fabric = fabric_info(gpu)
    cluster = bytes(fabric.clusterUuid).hex()
    is_joined = fabric.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED and not fabric.status
    return f"{cluster}.{fabric.cliqueId}" if is_joined and cluster.strip("0") else ""


def pcie_width(gpu: Handle) -> int:
    """Return the PCIe lanes in use. Not supported: the GPU is joined to a Grace processor, its data
    go by NVLink-C2C, and its lanes say nothing (they differ on healthy nodes)."""
    with suppress(AttributeError, pynvml.NVMLError):
        if pynvml.nvmlDeviceGetC2cModeInfoV(gpu).isC2cEnabled:
            raise Unsupported
    return pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu)


def pcie_lanes_missing(gpu: Handle) -> int:
    """Return the lanes that it lacks of those that card and slot could have; unlike the generation,
    they are kept when idle. NVML knows the card: a slot with fewer lanes is known to the kernel."""
    now, possible = pcie_width(gpu), pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)
    place = (machine_root() / "sys/bus/pci/devices" / address(gpu)).resolve()
    of_slot = number(place.parent / "max_link_width") or possible
    return max(0, min(possible, of_slot) - now)


def temperature_c(gpu: Handle) -> int:
    names = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
    return ask(names, gpu, pynvml.NVML_TEMPERATURE_GPU)


def memory_temperature_c(gpu: Handle) -> int:
    (celsius,) = field_values(gpu, (pynvml.NVML_FI_DEV_MEMORY_TEMP, 0))
    return celsius


def instant_power_w(gpu: Handle) -> float:
    """Return the power of this moment; the usual reading is the mean over a second."""
    (mw,) = field_values(gpu, (pynvml.NVML_FI_DEV_POWER_INSTANT, 0))
    return mw / 1e3


def thermal_margin_c(gpu: Handle) -> int:
    """Return the degrees that are left; older drivers name the temperature of a slowdown only."""
    try:
        return max(0, pynvml.nvmlDeviceGetMarginTemperature(gpu))
    except (AttributeError, pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
        pass
    slowdown = pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    limit = c_int(pynvml.nvmlDeviceGetTemperatureThreshold(gpu, slowdown)).value
    if limit <= 0:  # as of GPUs whose limits are degrees above a target
        raise Unread(f"the driver says that it slows down at {limit} degrees")
    return max(0, limit - temperature_c(gpu))


def links(gpu: Handle) -> list[bool]:
    """Return, for each NVLink that the GPU has, whether it is up."""
    states: list[bool] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(bool(pynvml.nvmlDeviceGetNvLinkState(gpu, link)))
        except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotSupported):
            if not states:
                raise
            break
    return states


def used_links(gpu: Handle) -> list[bool]:
    """Return the links; an error if none is up, as on a card without a bridge, so that only some
    can be missed."""
    states = links(gpu)
    if not any(states):
        raise Unread("no link is up, as on a card without a bridge")
    return states


def nvlinks_inactive(gpu: Handle) -> int:
    """Return the links that are down, if all end at switches. Not supported: some end at GPUs, as
    by a bridge, and how many of them a bridge joins only siblings show."""
    states = used_links(gpu)
    ends = {
        pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, link)
        for link, is_up in enumerate(states)
        if is_up
    }
    if pynvml.NVML_NVLINK_DEVICE_TYPE_GPU in ends:
        raise Unsupported
    return states.count(False)


def nvlink_errors(kind: str) -> Reader:
    """Return a reader of the errors of all links that are up, since the counter was cleared."""

    def errors(gpu: Handle) -> int:
        counter = getattr(pynvml, f"NVML_NVLINK_ERROR_DL_{kind}")
        up = [link for link, is_up in enumerate(links(gpu)) if is_up]
        return sum(pynvml.nvmlDeviceGetNvLinkErrorCounter(gpu, link, counter) for link in up)

    return errors


def nvlink_count(name: str) -> Reader:
    """Return a reader of a counter that every link has from NVLink 5 on, over all that are up."""
    return lambda gpu: sum(read_each_link(gpu, f"NVML_FI_DEV_NVLINK_COUNT_{name}"))


def ecc_errors(kind: str, period: str) -> Reader:
    def errors(gpu: Handle) -> int:
        error = getattr(pynvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
        return pynvml.nvmlDeviceGetTotalEccErrors(gpu, error, getattr(pynvml, f"NVML_{period}_ECC"))

    return errors


def pcie_bytes_per_s(way: str) -> Reader:
    """Return a reader of the rate over the last 20 ms."""

    def read_rate(gpu: Handle) -> int:
        counter = getattr(pynvml, f"NVML_PCIE_UTIL_{way}_BYTES")
        return 1000 * pynvml.nvmlDeviceGetPcieThroughput(gpu, counter)

    return read_rate


def field_values(gpu: Handle, *questions: tuple[int, int]) -> list[int]:
    """Return the values of fields, each with its scope; the first that has none is an error."""
    answers = pynvml.nvmlDeviceGetFieldValues(gpu, list(questions))
    for answer in answers:
        if answer.nvmlReturn:
            raise pynvml.NVMLError(answer.nvmlReturn)
    return [number_in(answer) for answer in answers]


def number_in(answer: Any) -> int:
    """Return a whole number by the type that the driver gives with it."""
    kinds = {
        pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: answer.value.uiVal,
        pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: answer.value.ulVal,
        pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: answer.value.sllVal,
        pynvml.NVML_VALUE_TYPE_SIGNED_INT: answer.value.siVal,
        pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: answer.value.usVal,
    }
    return int(kinds.get(answer.valueType, answer.value.ullVal))


def nvlink_bytes(gpu: Handle) -> int:
    """Return the bytes that all links have carried, both ways, since the driver was loaded."""
    ways = (
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ALL_LINKS),
        (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ALL_LINKS),
    )
    try:
        return 1024 * sum(field_values(gpu, *ways))
    except pynvml.NVMLError_NotSupported:
        names = ("NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES", "NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES")
        return sum(sum(read_each_link(gpu, name)) for name in names)


def read_each_link(gpu: Handle, name: str) -> list[int]:
    """Return a field of every link that is up, by its name in the bindings."""
    up = [link for link, is_up in enumerate(links(gpu)) if is_up]
    return field_values(gpu, *((getattr(pynvml, name), link) for link in up)) if up else []


def nvlink_gbps(gpu: Handle) -> float:
    """Return the rate of all links that are up together, one way."""
    try:
        speeds = read_each_link(gpu, "NVML_FI_DEV_NVLINK_GET_SPEED")
    except (AttributeError, pynvml.NVMLError_NotSupported):
        (speed,) = field_values(gpu, (pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0))
        speeds = [speed] * sum(links(gpu))
    return sum(speeds) / 1e3


DATA_CENTRE, VIRTUAL = "data centre", "virtual"
GPU_KINDS = {  # by nvml.h, nvmlBrandType_t; 14 is what A100, L4, H100 and later ones answer
    DATA_CENTRE: (2, 14),
    "workstation": (1, 3, 12, 13),
    "consumer": (5, 6, 15, 16),
    VIRTUAL: (4, 7, 8, 9, 10, 11, 18),
}
COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")


def compute_mode(gpu: Handle) -> str:
    mode = pynvml.nvmlDeviceGetComputeMode(gpu)
    return COMPUTE_MODES[mode] if mode < len(COMPUTE_MODES) else f"mode {mode}"


def applications_clock(gpu: Handle) -> str:
    """Return the clocks that were set for computing, and for memory."""
    sm = pynvml.nvmlDeviceGetApplicationsClock(gpu, pynvml.NVML_CLOCK_SM)
    return (
        f"{sm} MHz, memory {pynvml.nvmlDeviceGetApplicationsClock(gpu, pynvml.NVML_CLOCK_MEM)} MHz"
    )


def gpu_kind(gpu: Handle) -> str:
    """Return what the GPU is made for; a slice of one that a hypervisor lends is virtual."""
    try:
        if pynvml.nvmlDeviceGetVirtualizationMode(gpu) == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU:
            return VIRTUAL
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        pass  # no hypervisor
    brand = pynvml.nvmlDeviceGetBrand(gpu)
    return next((kind for kind, brands in GPU_KINDS.items() if brand in brands), f"brand {brand}")


def ecc_enabled(gpu: Handle) -> bool:
    """Return whether the memory is checked; an error if that is for the owner to choose."""
    is_on: bool = bool(pynvml.nvmlDeviceGetEccMode(gpu)[0])
    if not is_on and (kind := gpu_kind(gpu)) != DATA_CENTRE:
        raise Unread(f"it is off, as its owner may choose ({kind})")
    return is_on


def cuda_version(_: Handle) -> str:
    version = pynvml.nvmlSystemGetCudaDriverVersion()
    return f"{version // 1000}.{version % 1000 // 10}"


# --- what can be read, by name -------------------------------------------------------------

DRIVER: dict[str, Reader] = {  # of the node: the handle is not used
    "nvml_version": lambda _: pynvml.nvmlSystemGetNVMLVersion(),
    "driver_version": lambda _: pynvml.nvmlSystemGetDriverVersion(),
    "cuda_driver_version": cuda_version,
}

FABRIC: dict[str, Reader] = {  # NVLink between hosts
    "fabric": fabric_name,
    "nvlink_bytes": nvlink_bytes,
    "nvlink_gbps": nvlink_gbps,
}

UUID: dict[str, Reader] = {"uuid": lambda gpu: pynvml.nvmlDeviceGetUUID(gpu)}

HELD_BACK: dict[str, Reader] = {"throttled": reasons}

STATE: dict[str, Reader] = {  # differs from second to second
    "sm_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "memory_mhz": lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
    "power_w": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "power_instant_w": instant_power_w,
    "temperature_c": temperature_c,
    "memory_temperature_c": memory_temperature_c,
    "pcie_generation": lambda gpu: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_width": lambda gpu: pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "reasons": reasons,
}

COUNTERS: dict[str, Reader] = {  # since they were cleared: only a rise counts
    "pcie_replays": lambda gpu: pynvml.nvmlDeviceGetPcieReplayCounter(gpu),
    "nvlink_errors:replay": nvlink_errors("REPLAY"),
    "nvlink_errors:recovery": nvlink_errors("RECOVERY"),
    "nvlink_errors:crc_flit": nvlink_errors("CRC_FLIT"),
    "nvlink_errors:crc_data": nvlink_errors("CRC_DATA"),
    "nvlink_errors:malformed_packets": nvlink_count("MALFORMED_PACKET_ERRORS"),
    "nvlink_errors:buffer_overruns": nvlink_count("BUFFER_OVERRUN_ERRORS"),
    "nvlink_errors:received": nvlink_count("RCV_ERRORS"),
    "nvlink_errors:received_remote": nvlink_count("RCV_REMOTE_ERRORS"),
    "nvlink_errors:integrity": nvlink_count("LOCAL_LINK_INTEGRITY_ERRORS"),
    "nvlink_errors:recovery_failed": nvlink_count("LINK_RECOVERY_FAILED_EVENTS"),
    "nvlink_symbols:effective": nvlink_count("EFFECTIVE_ERRORS"),
    "nvlink_symbols:symbol": nvlink_count("SYMBOL_ERRORS"),
}

ERRORS: dict[str, Reader] = COUNTERS | {  # what a load may bring to light
    "ecc_correctable": ecc_errors("CORRECTED", "VOLATILE"),
    "ecc_uncorrectable": ecc_errors("UNCORRECTED", "VOLATILE"),
    "rows_remapped:correctable": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[0],
    "rows_remapped:uncorrectable": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[1],
}


CONDITION: dict[str, Reader] = {  # errors, states and sizes
    "gpu_memory_gb": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).total / 1e9,
    "ecc_enabled": ecc_enabled,
    "ecc_correctable:volatile": ecc_errors("CORRECTED", "VOLATILE"),
    "ecc_correctable:aggregate": ecc_errors("CORRECTED", "AGGREGATE"),
    "ecc_uncorrectable:volatile": ecc_errors("UNCORRECTED", "VOLATILE"),
    "ecc_uncorrectable:aggregate": ecc_errors("UNCORRECTED", "AGGREGATE"),
    "sram_threshold_exceeded": sram_threshold_exceeded,
    "rows_remapped:correctable": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[0],
    "rows_remapped:uncorrectable": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[1],
    "row_remap_pending": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[2],
    "row_remap_failure": lambda gpu: pynvml.nvmlDeviceGetRemappedRows(gpu)[3],
    "pages_retired": pages_retired,
    "page_retirement_pending": lambda gpu: pynvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu),
    "pcie_max_generation": lambda gpu: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "pcie_width": pcie_width,
    "pcie_lanes_missing": pcie_lanes_missing,
    "nvlinks": lambda gpu: sum(used_links(gpu)),
    "nvlinks_inactive": nvlinks_inactive,
    "fabric_unready": fabric_unready,
    "fabric_unhealthy:degraded_bandwidth": fabric_health("DEGRADED_BW"),
    "fabric_unhealthy:route_recovery": fabric_health("ROUTE_RECOVERY"),
    "fabric_unhealthy:route": fabric_health("ROUTE_UNHEALTHY"),
    "fabric_unhealthy:access_timeout_recovery": fabric_health("ACCESS_TIMEOUT_RECOVERY"),
    "fabric_unhealthy:configuration": fabric_health("INCORRECT_CONFIGURATION"),
    "recovery_needed": lambda gpu: recovery_action(gpu) != RECOVERY_ACTIONS[0],
    "clock_max_mhz:sm": lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(gpu, pynvml.NVML_CLOCK_SM),
    "clock_max_mhz:memory": lambda gpu: pynvml.nvmlDeviceGetMaxClockInfo(
        gpu, pynvml.NVML_CLOCK_MEM
    ),
    "power_cap_w": lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "thermal_margin_c": thermal_margin_c,
}

SETTINGS: dict[str, Reader] = {  # what somebody chose, or installed
    "gpu_model": lambda gpu: pynvml.nvmlDeviceGetName(gpu),
    "gpu_kind": gpu_kind,
    "vbios": lambda gpu: pynvml.nvmlDeviceGetVbiosVersion(gpu),
    "inforom": lambda gpu: pynvml.nvmlDeviceGetInforomImageVersion(gpu),
    "persistence_mode": lambda gpu: pynvml.nvmlDeviceGetPersistenceMode(gpu),
    "ecc_mode": lambda gpu: pynvml.nvmlDeviceGetEccMode(gpu)[0],
    "ecc_pending_mode": lambda gpu: pynvml.nvmlDeviceGetEccMode(gpu)[1],
    "mig_mode": lambda gpu: pynvml.nvmlDeviceGetMigMode(gpu)[0],
    "compute_mode": compute_mode,
    "power_limit_w": lambda gpu: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3,
    "applications_clock": applications_clock,
}

LOAD: dict[str, Reader] = {  # what a GPU does now, as telemetry calls it
    "gpu_memory": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "gpu_duty": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "gpu_power": STATE["power_w"],
    "gpu_temperature": temperature_c,
    "gpu_clock": STATE["sm_mhz"],
    "clock_reasons": reason_bits,
    "pcie_generation": STATE["pcie_generation"],
    "pcie_width": STATE["pcie_width"],
}

TRAFFIC: dict[str, Reader] = {  # each PCIe reading takes 20 ms
    "pcie_tx": pcie_bytes_per_s("TX"),
    "pcie_rx": pcie_bytes_per_s("RX"),
    "nvlink_bytes": nvlink_bytes,
}

BY_SIBLINGS = {"nvlinks_inactive": "nvlinks"}  # what is missing of what GPUs like it have

IDENTITY: dict[str, Reader] = {  # explains a number and is no metric
    "model": lambda gpu: pynvml.nvmlDeviceGetName(gpu),
    "address": address,
    "vbios": lambda gpu: pynvml.nvmlDeviceGetVbiosVersion(gpu),
    "pcie_generation_now": lambda gpu: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "power_default_w": lambda gpu: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1e3,
    "sm_mhz_now": STATE["sm_mhz"],
    "temperature_c": temperature_c,
    "mig_mode": lambda gpu: pynvml.nvmlDeviceGetMigMode(gpu)[0],
    "fabric_state": fabric_state,
    "nvlink_fabric": lambda gpu: fabric_name(gpu) or "of this host",
    "recovery_action": recovery_action,
    "persistence_mode": lambda gpu: pynvml.nvmlDeviceGetPersistenceMode(gpu),
}
