"""What must hold in show-chaos, whoever lies: judged by what Slurm was asked, what tests measured
and what the service answered. It has no code of the keeper, and reads nothing that the keeper keeps
but what people are shown.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos_slurm import Node

OURS = re.compile(r"anubis\[([^\]\s]+)\]: ")
WITHOUT_DEFECT = ("SPARE", "UNPROVEN")
NEVER = -math.inf
# what was told so recently may be unknown to a turn, or to a test, that began before: turns over
# 10,000 nodes took 140 s beside other work, and give their orders at their end
GRACE_S = 300.0


def code_of(reason: str) -> str:
    match = OURS.match(reason)
    return match[1] if match else ""


@dataclass
class Oracle:
    """The book of what was told, measured and ordered."""

    nodes: int
    share: float  # of the fleet that may be out
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.slow_at: dict[str, dict[str, float]] = defaultdict(dict)  # by node and benchmark
        self.good_at: dict[str, dict[str, float]] = defaultdict(dict)
        self.repaired_at: dict[str, float] = defaultdict(lambda: NEVER)
        self.repair_begun: set[str] = set()
        self.open_since: dict[str, float] = {}  # incidents that were told, and not their end
        self.alerted: set[str] = set()  # ever
        self.drained_ever: set[str] = set()
        self.by_hand: dict[str, float] = {}
        self.maintained: dict[str, tuple[float, float]] = {}
        self.out: dict[str, str] = {}  # nodes that Slurm keeps from jobs in our name: the code
        self.accepted = 0
        self._closed_at = NEVER
        self.most_out = 0

    def blame(self, sentence: str) -> None:
        with self.lock:
            self.violations.append(f"{time.strftime('%H:%M:%S', time.gmtime())} {sentence}")

    # --- what is told ------------------------------------------------------------------------

    def tell_incidents(self, nodes: Collection[str], *, is_answered: bool) -> None:
        """An alert may be kept although its answer is lost."""
        with self.lock:
            self.alerted.update(nodes)
            for node in nodes if is_answered else ():
                self.open_since.setdefault(node, time.time())

    def tell_end(self, node: str) -> None:
        with self.lock:
            self.open_since.pop(node, None)

    def tell_repair(self, node: str, *, is_done: bool) -> None:
        with self.lock:
            if is_done:
                self.repaired_at[node] = time.time()
            self.repair_begun.add(node)

    def tell_closed(self) -> None:
        """A person accepts what is out at the turn that reads it."""
        with self.lock:
            self._closed_at, self.accepted = time.time(), len(self.counted())

    # --- what Slurm is asked for -------------------------------------------------------------

    def drained(self, name: str, reason: str, node: Node) -> None:
        with self.lock:
            self.counts["drains"] += 1
            code = code_of(reason)
            if not code:
                self.blame(f"{name} is drained without a code: {reason}")
            if node.reason and not OURS.match(node.reason) and self._is_old(self.by_hand, name):
                self.blame(f'{name} is drained over a person\'s "{node.reason}"')
            if self._is_maintained(name):
                self.blame(f"{name} is drained during its maintenance")
            if code == "INCIDENT" and name not in self.alerted:
                self.blame(f"{name} is drained for an incident that was never told")
            if code == "REPAIR" and name not in self.repair_begun:
                self.blame(f"{name} is drained for a repair that was never told")
            if self._is_defect(code) and not self._was_slow(name):
                self.blame(f"{name} is blamed wrongly: {reason}")
            self.out[name] = code
            self.drained_ever.add(name)
            self._check_share(name)

    def _is_defect(self, code: str) -> bool:
        return code not in (*WITHOUT_DEFECT, "INCIDENT", "REPAIR")

    def _was_slow(self, name: str) -> bool:
        return any(at > self.repaired_at[name] for at in self.slow_at[name].values())

    def counted(self) -> list[str]:
        return [name for name, code in self.out.items() if code not in WITHOUT_DEFECT]

    def _check_share(self, name: str) -> None:
        out = len(self.counted())
        self.most_out = max(self.most_out, out)
        if time.time() - self._closed_at < GRACE_S:
            self.accepted = max(self.accepted, out)
        self.accepted = min(self.accepted, out)
        limit = max(1, math.floor(self.share * self.nodes)) + self.accepted
        if out > limit and self.out[name] not in WITHOUT_DEFECT:
            self.blame(f"{out} nodes are out with {name}, of {limit}")

    def undrained(self, name: str, node: Node) -> None:
        with self.lock:
            self.counts["releases"] += 1
            if node.reason and not OURS.match(node.reason) and self._is_old(self.by_hand, name):
                self.blame(f'{name} is released from a person\'s "{node.reason}"')
            if unmet := self._unmet(name):
                self.blame(f"{name} is released although {unmet}: it was {node.reason}")
            self.out.pop(name, None)

    def _unmet(self, name: str) -> str:
        """The reason why a node is not good; empty if it is."""
        good = self.good_at[name]
        for benchmark, at in self.slow_at[name].items():
            if at >= good.get(benchmark, NEVER):
                return f"its last {benchmark} was slow"
        if self._is_old(self.repaired_at, name) and self.repaired_at[name] > max(
            good.values(), default=NEVER
        ):
            return "its repair is not proven"
        if self._is_old(self.open_since, name):
            return "its incident is open"
        return ""

    def _is_old(self, reported: dict[str, float], name: str, for_s: float = GRACE_S) -> bool:
        return name in reported and time.time() - reported[name] > for_s

    def _is_maintained(self, name: str) -> bool:
        begin, end = self.maintained.get(name, (math.inf, NEVER))
        return begin + GRACE_S < time.time() < end

    # --- tests -------------------------------------------------------------------------------

    def allocated(self, names: Collection[str]) -> None:
        with self.lock:
            self.counts["test jobs"] += 1
            for name in names:
                if self._is_maintained(name):
                    self.blame(f"{name} is tested during its maintenance")
                if self._is_old(self.by_hand, name):
                    self.blame(f"{name} is tested although a person keeps it")

    def measured(self, rows: Sequence[Sequence[Any]]) -> None:
        with self.lock:
            self.counts["measurements"] += len(rows)
            for name, benchmark, is_slow in rows:
                (self.slow_at if is_slow else self.good_at)[name][benchmark] = time.time()

    # --- answers -----------------------------------------------------------------------------

    def known_bad(self) -> frozenset[str]:
        """Nodes of which the history must know by now that they are not good."""
        with self.lock:
            broken = {n for n, code in self.out.items() if code not in WITHOUT_DEFECT}
            return frozenset(broken | self.open_since.keys())

    def gated(self, names: Collection[str], answer: str, before: frozenset[str]) -> None:
        """`before`: what was known to be bad when the gate was asked."""
        with self.lock:
            self.counts[f"gates: {answer}"] += 1
            bad = before & self.known_bad() & {*names}
            if answer == "go" and bad:
                self.blame(f"a gate says go with {min(bad)}, which is known to be bad")
            if answer == "no-go" and not {*names} & (before | self.ever_bad() | {*self.maintained}):
                self.blame(f"a gate says no-go to {sorted(names)[:3]}, which were never bad")

    def ever_bad(self) -> set[str]:
        with self.lock:
            reported = self.alerted | self.repair_begun | self.by_hand.keys() | self.drained_ever
            return reported | {name for name, at in self.slow_at.items() if at}
