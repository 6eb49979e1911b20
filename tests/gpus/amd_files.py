"""The files that Linux's amdgpu shows of a GPU: a healthy MI300X, and what is planted.

The firmware's table is declared here as C would lay it out, by kgd_pp_interface.h, so that its
places are another's reckoning than those of the code under test.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint8, c_uint16, c_uint32, c_uint64
from pathlib import Path

FILES = {
    "vendor": "0x1002",
    "class": "0x120000",
    "product_name": "AMD Instinct MI300X OAM",
    "vbios_version": "113-M3000100-102",
    "current_compute_partition": "SPX",
    "current_memory_partition": "NPS1",
    "mem_info_vram_total": str(192 << 30),
    "pcie_replay_count": "4",
    "current_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_speed": "32.0 GT/s PCIe",
    "max_link_width": "16",
    "pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz",
    "pp_dpm_mclk": "0: 900Mhz *\n1: 1300Mhz",
    "ras/features": "feature mask: 0x1ff",
    "ras/umc_err_count": "ue: 0\nce: 0\nde: 0",
    "ras/gfx_err_count": "ue: 0\nce: 0",
    "ras/xgmi_wafl_err_count": "ue: 0\nce: 7",
    "ras/gpu_vram_bad_pages": "0x01a2b3c4 : 0x00001000 : R",
    "hwmon/hwmon3/name": "amdgpu",
    "hwmon/hwmon3/freq1_input": "132000000",
    "hwmon/hwmon3/freq2_input": "900000000",
    "hwmon/hwmon3/power1_input": "140000000",
    "hwmon/hwmon3/power1_cap": "750000000",
    "hwmon/hwmon3/temp2_label": "junction",
    "hwmon/hwmon3/temp2_input": "41000",
    "hwmon/hwmon3/temp2_crit": "100000",
    "hwmon/hwmon3/temp3_label": "mem",
    "hwmon/hwmon3/temp3_input": "35000",
    "hwmon/hwmon3/temp3_crit": "105000",
}


def layout(revision: int) -> type[ctypes.Structure]:
    """The beginning of gpu_metrics_v1_4 to v1_8, as far as something is read of it."""
    old, with_memory = revision < 6, revision >= 7
    accumulators = ("cycles", "prochot", "power_cap", "socket", "regulator", "memory")
    fields: list[tuple[str, type]] = [
        ("size", c_uint16),
        ("format", c_uint8),
        ("content", c_uint8),
        ("temperatures", c_uint16 * 3),
        ("power", c_uint16),
        ("activity", c_uint16),
        ("memory_activity", c_uint16),
    ]
    fields += [("vcn_activity", c_uint16 * 4)] if old else []
    fields += [("jpeg_activity", c_uint16 * 32)] if revision == 5 else []
    fields += [("max_bandwidth", c_uint64)] if with_memory else []
    fields += [("energy", c_uint64), ("system_clock", c_uint64)]
    fields += [("throttle_status", c_uint32)] if old else [(n, c_uint32) for n in accumulators]
    fields += [("locked", c_uint32), ("pcie_width", c_uint16), ("pcie_speed", c_uint16)]
    fields += [("xgmi_width", c_uint16), ("xgmi_speed", c_uint16)]
    fields += [("gfx_acc", c_uint32), ("memory_acc", c_uint32), ("bandwidth", c_uint64 * 2)]
    fields += [("recoveries", c_uint64), ("replays", c_uint64), ("rollovers", c_uint64)]
    fields += [("naks", c_uint32 * 2)] if revision > 4 else []
    fields += [("xgmi_data", c_uint64 * 16)]
    fields += [("xgmi_status", c_uint16 * 8)] if with_memory else []
    return type(f"Metrics{revision}", (ctypes.Structure,), {"_fields_": fields})


def metrics(revision: int = 7, **planted: int | list[int]) -> bytes:
    """A table in which all values except planted ones are unmeasured: all ones."""
    table = layout(revision).from_buffer_copy(b"\xff" * ctypes.sizeof(layout(revision)))
    table.size, table.format, table.content = ctypes.sizeof(table), 1, revision
    for name, value in planted.items():
        setattr(table, name, tuple(value) if isinstance(value, list) else value)
    return bytes(table)


AT_REST = {
    "activity": 0,
    "pcie_width": 16,
    **dict.fromkeys(("prochot", "power_cap", "socket", "regulator", "memory"), 0),
    "cycles": 1000,
    "xgmi_status": [1, 0xFFFF, 1, 1, 1, 1, 1, 1],  # one of eight is not wired
}


def plant_gpu(folder: Path, **planted: str) -> None:
    """A healthy GPU but for what is planted: `ras/umc_err_count="..."`."""
    for name, text in (FILES | planted).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    (folder / "gpu_metrics").write_bytes(metrics(**AT_REST))
