"""What NCCL Inspector, RAS and xpu_timer write, made: of jobs whose truth is known.

Shapes of lines are those of NVIDIA/nccl (ext-profiler/inspector/README.md v4.0;
src/ras/client_support.cc of 2.28 and the guide's page on RAS) and of
intelligent-machine-learning/dlrover (xpu_timer, its tests' scrapes). The numbers are made.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping

START_US = 1_790_000_000_000_000
WORLD = "0x7f8c496ae9f661"


def inspector_files(
    ranks: int = 8,
    *,
    slow: Mapping[int, float] | None = None,
    calls: int = 40,
    groups: Mapping[str, Iterable[int]] | None = None,
    wires: Mapping[str, float] | None = None,
    seed: int = 1,
    lost: float = 0.0,
) -> dict[str, str]:
    """Files by name. All ranks work, meet in one AllReduce, and go on; `groups` meet in an
    AllGather in the middle of it, which takes `wires` times as long to exchange. `lost`: the share
    of lines that were never written."""
    dice = random.Random(seed)
    lines: dict[int, list[str]] = {rank: [] for rank in range(ranks)}
    now = 0.0
    for call in range(calls):
        work = {
            rank: 0.1 * (slow or {}).get(rank, 1.0) * dice.uniform(0.98, 1.02)
            for rank in range(ranks)
        }
        arrived = {rank: now + 0.4 * work[rank] for rank in work}
        for name, members in (groups or {}).items():
            group = list(members)
            end = max(arrived[rank] for rank in group) + 0.01 * (wires or {}).get(name, 1.0)
            for place, rank in enumerate(group):
                took = end - arrived[rank]
                header = name, place, len(group)
                lines[rank].append(_line(header, rank, "AllGather", call, took, end))
                arrived[rank] = end
        arrived = {rank: arrived[rank] + 0.6 * work[rank] for rank in work}
        now = max(arrived.values()) + 0.01
        for rank in work:
            took = now - arrived[rank]
            lines[rank].append(_line((WORLD, rank, ranks), rank, "AllReduce", call, took, now))
    return {
        f"n{rank // 4}-pid{1000 + rank}.log": "".join(
            line for line in written if dice.random() >= lost
        )
        for rank, written in lines.items()
    }


def _line(
    header: tuple[str, int, int], rank: int, operation: str, number: int, took: float, end: float
) -> str:
    name, place, size = header
    line = {
        "header": {"id": name, "rank": place, "n_ranks": size, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": START_US + round(end * 1e6),
            "hostname": f"n{rank // 4}",
            "pid": 1000 + rank,
        },
        "coll_perf": {
            "coll": operation,
            "coll_sn": number,
            "coll_msg_size_bytes": 1 << 24,
            "coll_exec_time_us": round(took * 1e6),
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 277.21,
            "coll_busbw_gbs": 485.11,
        },
    }
    return json.dumps(line) + "\n"


# --- RAS -----------------------------------------------------------------------------------


def ras_text(
    *,
    size: int = 8,
    launched: Mapping[int, int] | None = None,
    missing: Iterable[int] = (),
    most: int = 650,
    is_old: bool = False,
) -> str:
    """`launched`: ranks behind the rest, which launched `most`. `is_old`: as 2.24 wrote."""
    gone, behind = sorted(missing), dict(launched or {})
    state = ",".join([*(["INCOMPLETE"] if gone else []), *(["MISMATCH"] if behind else [])])
    state = state or "OK"
    errors = ""
    if gone:
        many = "s" if len(gone) > 1 else ""
        names = (
            f"  The missing rank{many}: {','.join(map(str, gone))}\n"
            if is_old
            else "".join(f"  Rank {rank} -- {_place(rank)}\n" for rank in gone)
        )
        processes = "".join(
            f"  Process {1000 + rank} on node 10.0.0.{rank // 4} managing GPU {rank % 4}\n"
            for rank in gone
        )
        errors = (
            f"INCOMPLETE\n  Missing communicator data from {len(gone)} job process{many and 'es'}\n"
            f"{processes}\n#0-0 (cf264af53edbe986) INCOMPLETE\n"
            f"  Missing communicator data from {len(gone)} rank{many}\n{names}\n"
        )
    warnings = ""
    if behind:
        what = "collective" if is_old else "AllReduce"
        rest = size - len(gone) - len(behind)
        single = "".join(
            f"  Rank {rank} has launched up to operation {count} -- {_place(rank)}\n"
            for rank, count in sorted(behind.items())
        )
        warnings = (
            "#0-0 (cf264af53edbe986) MISMATCH\n"
            f"  Communicator ranks have different {what} operation counts\n"
            f"  {rest} ranks have launched up to operation {most}\n{single}\n"
        )
    told = size - len(gone)
    return f"""NCCL version 2.28.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      {size // 4}          4            1         {size:2}       {size:2}

Communicators... (0.08s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         {size // 4}         4        {size:2}        {told:2}   RUNNING  {state}

Errors
======

{errors}Warnings
========

{warnings}"""


def _place(rank: int) -> str:
    return f"GPU {rank % 4} managed by process {1000 + rank} on node 10.0.0.{rank // 4}"


def ras_json(
    groups: Iterable[tuple[str, Mapping[int, Mapping[str, int]]]],
    *,
    missing: Iterable[int] = (),
    taken: str = "2026-11-23 05:00:00",
    is_spoilt: bool = False,
) -> str:
    """Communicators, by name: rank of the job → function → how many it launched. `missing`: ranks
    of the job that do not answer, members of the first. `is_spoilt`: as 2.28.9 wrote it."""
    communicators = []
    for number, (name, members) in enumerate(groups):
        order = sorted({*members, *(missing if number == 0 else ())})
        gone = [rank for rank in order if rank not in members]
        communicators.append(
            {
                "hash": f"0x{name}",
                "secondary_hash": "0x2cd6d618b4a75a5a:0xe6854f9ece96c663",
                "size": len(order),
                "ranks_count": len(members),
                "missing_ranks_count": len(gone),
                "ranks": [
                    {
                        **_process(order, rank),
                        "status": {
                            "init_state": 0,
                            "async_error": 0,
                            "finalize_called": False,
                            "destroy_flag": False,
                            "abort_flag": False,
                        },
                        "collective_counts": {"Broadcast": 0, "Reduce": 0, **members[rank]},
                    }
                    for rank in sorted(members)
                ],
                "missing_ranks": [
                    {
                        **_process(order, rank),
                        "status": {"unresponsive": True, "considered_dead": False},
                    }
                    for rank in gone
                ],
            }
        )
    document = {
        "nccl_version": "2.28.9",
        "cuda_runtime_version": 12090,
        "cuda_driver_version": 13000,
        "timestamp": taken,
        "communicators_count": len(communicators),
        "communicators": communicators,
        "ras": {"collection_time_sec": 0.08, "timeouts_count": 0},
    }
    text = json.dumps(document, indent=2) + "\n"
    return text.replace('"nvml_dev": 3,', '"nvml_dev": 3') if is_spoilt else text


def _process(order: list[int], rank: int) -> dict[str, object]:
    return {
        "rank": order.index(rank),
        "host": f"10.0.0.{rank // 4}",
        "pid": 1000 + rank,
        "cuda_dev": rank % 4,
        "nvml_dev": rank % 4,
    }


# --- xpu_timer -----------------------------------------------------------------------------


def scrape(hung: Mapping[int, bool]) -> str:
    labels = 'ip="10.0.0.1",job_name="j",local_rank="{0}",pod_name="j-worker-0",rank="{0}"'
    latencies = "".join(
        f'XPU_TIMER_MM_KERNEL_AVG_LATENCY{{dtype="bf16",level="7",operation="Matmul",'
        f"{labels.format(rank)}}} 19063\n"
        for rank in hung
    )
    flags = "".join(
        f"XPU_TIMER_COMMON_HANG{{{labels.format(rank)}}} {int(is_hung)}\n"
        for rank, is_hung in hung.items()
    )
    return (
        "# HELP exposer_scrapes_total Number of times metrics were scraped\n"
        "exposer_scrapes_total 6174\n"
        f"# TYPE XPU_TIMER_MM_KERNEL_AVG_LATENCY gauge\n{latencies}"
        f"# TYPE XPU_TIMER_COMMON_HANG gauge\n{flags}"
    )
