"""Simulated Flight Recorder dumps of jobs that hang: the truth about ranks that hold up a
collective.

Each rank has a list of operations, as a training step with tensor, pipeline, data and expert
parallelism calls them. Its processor launches ahead of its device, which works in order; a
collective ends when all devices of its group are at it, a message when both its ends are. That is
all a fault needs to spread, and nothing in here knows how it is found.
"""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

AHEAD = 6  # operations that a processor launches before its device gets to them


@dataclass(frozen=True)
class Operation:
    group: tuple[int, ...]
    description: str
    kind: str
    sizes: tuple[int, ...] = (1024, 8)
    dtype: str = "BFloat16"
    peer: int | None = None


@dataclass(frozen=True)
class JobLayout:
    tp: int = 1
    pp: int = 1
    dp: int = 2
    experts: bool = False
    microbatches: int = 2
    steps: int = 3

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp

    def place(self, rank: int) -> tuple[int, int, int]:
        """Tensor, data and pipeline rank, in the order of Megatron."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def rank(self, tensor: int, data: int, stage: int) -> int:
        return tensor + self.tp * (data + self.dp * stage)

    def program(self, rank: int) -> list[Operation]:
        tensor, data, stage = self.place(rank)
        of_tensor = tuple(self.rank(t, data, stage) for t in range(self.tp))
        of_data = tuple(self.rank(tensor, d, stage) for d in range(self.dp))
        of_stages = tuple(self.rank(tensor, data, s) for s in range(self.pp))
        of_experts = tuple(self.rank(t, d, stage) for d in range(self.dp) for t in range(self.tp))
        all_ranks = tuple(range(self.world))

        def message(kind: str, peer_stage: int) -> Operation:
            sign = "->" if kind == "send" else "<-"
            name = f"{kind} {stage}{sign}{peer_stage}"
            return Operation(of_stages, "PIPELINE", name, peer=of_stages[peer_stage])

        def work() -> list[Operation]:
            ops = [Operation(of_tensor, "TENSOR", "all_gather_base")] if self.tp > 1 else []
            if self.experts:
                ops += [Operation(of_experts, "EXPERT", "all_to_all", (rank + 100, 8))] * 2
            return ops + ([Operation(of_tensor, "TENSOR", "all_reduce")] if self.tp > 1 else [])

        step: list[Operation] = []
        for _ in range(self.microbatches):
            step += [message("recv", stage - 1)] if stage > 0 else []
            step += work()
            step += [message("send", stage + 1)] if stage < self.pp - 1 else []
        for _ in range(self.microbatches):
            step += [message("recv", stage + 1)] if stage < self.pp - 1 else []
            step += work()
            step += [message("send", stage - 1)] if stage > 0 else []
        step += [Operation(of_data, "DATA", "all_reduce")] * 2 if self.dp > 1 else []
        step += [Operation(all_ranks, "default_pg", "all_reduce", (1,), "Float")]
        return step * self.steps


@dataclass(frozen=True)
class HangFault:
    """`stops`: the processor launches no more. `sticks`: the device never finishes an operation
    that it has taken part in. `calls`: it calls something else."""

    rank: int
    at: int  # which of its operations
    kind: str = "stops"
    called: Operation | None = None


@dataclass
class SimulatedRank:
    program: list[Operation]
    stops: int
    sticks: int | None = None
    device: int = 0  # operations that it has finished

    @property
    def launched(self) -> int:
        return min(self.device + AHEAD, self.stops, len(self.program))

    @property
    def is_over(self) -> bool:
        return self.device >= self.launched

    def next(self) -> Operation:
        return self.program[self.device]


@dataclass
class HangingJob:
    layout: JobLayout
    faults: Sequence[HangFault] = ()
    ranks: list[SimulatedRank] = field(default_factory=list)

    def run(self) -> HangingJob:
        for number in range(self.layout.world):
            program = self.layout.program(number)
            rank = SimulatedRank(program, stops=len(program))
            for fault in self.faults:
                if fault.rank == number and fault.kind == "stops":
                    rank.stops = fault.at
                elif fault.rank == number and fault.kind == "sticks":
                    rank.sticks = fault.at
                elif fault.rank == number and fault.called:
                    program[fault.at] = fault.called
            self.ranks.append(rank)
        while any(self._advance(number) for number in range(len(self.ranks))):
            pass
        return self

    def _is_at(self, number: int) -> bool:
        return not self.ranks[number].is_over

    def _advance(self, number: int) -> bool:
        rank = self.ranks[number]
        if rank.is_over or rank.sticks == rank.device:
            return False
        op = rank.next()
        if op.peer is not None:
            both = [number, op.peer]
            peer_rank = self.ranks[op.peer]
            if peer_rank.is_over or peer_rank.next().peer != number:
                return False
            ready = peer_rank.next().kind[:4] != op.kind[:4]
        else:
            both = list(op.group)
            ready = all(
                self._is_at(member) and _are_same(self.ranks[member].next(), op) for member in both
            )
        if not ready:
            return False
        for member in both:
            if self.ranks[member].sticks != self.ranks[member].device:
                self.ranks[member].device += 1  # else it took part, and stays
        return True

    def dumps(self, seed: int = 0, missing: Sequence[int] = ()) -> dict[int, dict[str, Any]]:
        """Dumps of the recorders of all ranks, with a memory of a length drawn by the seed."""
        dice = random.Random(seed)
        keeps = dice.choice((0, 3, 50))
        names: dict[tuple[str, tuple[int, ...]], str] = {}
        for rank in self.ranks:
            for op in rank.program:
                names.setdefault((op.description, op.group), str(len(names)))
        return {
            number: self._dump(number, names, keeps)
            for number in range(len(self.ranks))
            if number not in missing
        }

    def _dump(self, number: int, names: dict[Any, str], keeps: int) -> dict[str, Any]:
        rank = self.ranks[number]
        groups = list(dict.fromkeys((op.description, op.group) for op in rank.program))
        numbers = {group: index * 2 for index, group in enumerate(groups)}  # of this rank alone
        counts: Counter[Any] = Counter()
        status = {
            str(numbers[group]): {
                "last_enqueued_collective": 0,
                "last_started_collective": -1,
                "last_completed_collective": 0,
            }
            for group in groups
        }
        entries = []
        for index, op in enumerate(rank.program[: rank.launched]):
            group = op.description, op.group
            is_pair = op.peer is not None
            counts[group, is_pair] += 1
            counts_of = status[str(numbers[group])]
            counts_of["last_enqueued_collective"] = counts[group, is_pair]
            if index < rank.device:
                counts_of["last_completed_collective"] = counts[group, is_pair]
            if index >= rank.device - keeps:
                entries.append(
                    {
                        "record_id": index,
                        "pg_id": numbers[group],
                        "process_group": (names[group], op.description),
                        "collective_seq_id": counts[group, False],
                        "p2p_seq_id": counts[group, True],
                        "op_id": index,
                        "profiling_name": f"nccl:{op.kind}",
                        "time_created_ns": 1_700_000_000_000_000_000 + index * 1_000_000 + number,
                        "input_sizes": [list(op.sizes)],
                        "input_dtypes": [op.dtype],
                        "state": "completed" if index < rank.device else "scheduled",
                        "retired": index < rank.device,
                        "is_p2p": is_pair,
                    }
                )
        config = {
            names[group]: {"name": names[group], "desc": group[0], "ranks": str(list(group[1]))}
            for group in groups
        }
        return {"version": "2.9", "pg_config": config, "pg_status": status, "entries": entries}


def _are_same(op: Operation, called: Operation) -> bool:
    """Return whether two calls fit: ranks of experts exchange as much as they have."""
    plain = replace(op, sizes=()) if op.kind == "all_to_all" else op
    return plain == (replace(called, sizes=()) if called.kind == "all_to_all" else called)


def dump_bytes(dump: dict[str, Any], as_json: bool) -> bytes:
    return json.dumps(dump).encode() if as_json else pickle.dumps(dump, protocol=2)
