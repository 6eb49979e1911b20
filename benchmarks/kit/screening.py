"""A screen of operations on known numbers: what it compares, and what it makes of wrong bits.

Which operations there are: kit/screened_operations.py.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from ctypes import string_at
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kit.arithmetic import refusal

if TYPE_CHECKING:
    import torch

    Tensors = tuple[torch.Tensor, ...]
    Proof = Callable[[int], tuple[Tensors, torch.Tensor]]

TILE = 64  # rows and columns: a multiple of the tiles of matrix units
SEEDS = 2  # sets of numbers, used by turns: the host computes the truth of each once
HOST_EVERY = 4  # turns: the host compares one result in so many
RERUNS = 16  # at most, to see whether something wrong comes back
RERUNS_AFTER_RESTS = 4  # if it came after a rest, another rest goes before each
MOST_PLACES = 256  # that are looked at, of one answer
MOST_NOTED = 8  # wrong places of an operation
MOST_WRONG = 0.2  # of all elements; more of them are the kernel's choice, not a processor's fault
# A library may add in another order at the edges of an answer. Whole rows or columns differ then,
# by what 2,048 terms round to; of 16-bit numbers, whose sums are wider, few by their last bit.
ROUNDED = 512  # units of the last bit of a typical sum
FILLED = 0.2  # of the rows and columns that differ at all


@dataclass
class Ledger:
    """What a screen has compared on one device, and what was wrong."""

    compared: Counter[str] = field(default_factory=Counter)
    defects: Counter[str] = field(default_factory=Counter)
    seen_once: Counter[str] = field(default_factory=Counter)
    by_moving: Counter[str] = field(default_factory=Counter)  # defects that nothing else showed
    came_once: int = 0  # how often that happened, whatever the number of wrong elements
    wrong: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # that the screen took
    turns: int = 0
    rest: Callable[[], None] = lambda: None
    rests: int = 0
    has_rested: bool = False  # just before what is computed now
    clock: str = ""  # that was chosen

    def take_rest(self) -> None:
        self.rest()
        self.rests += 1
        self.has_rested = True

    def add(self, operation: str, sightings: Sequence[Mapping[str, Any]], *, returns: bool) -> None:
        (self.defects if returns else self.seen_once)[operation] += len(sightings)
        self.came_once += not returns
        noted = self.wrong.setdefault(operation, [])
        when = {"after_rest": True} if self.has_rested else {}
        when |= {"clock": self.clock} if self.clock not in ("", "as_set") else {}
        noted += [
            {**seen, **when, "returns": returns} for seen in sightings[: MOST_NOTED - len(noted)]
        ]


def keep_bits(inputs: Tensors, turn: int) -> Tensors:
    return inputs


@dataclass(frozen=True)
class Operation:
    """An operation on one device.

    `proofs` give inputs whose right answer the host knows, and that answer, by seed. Without
    `is_certain` a library may choose a kernel that does not keep sums exact. Its answer moves by
    `shifts` rows and columns for each that its inputs move.
    """

    name: str
    device: torch.device
    draw: Callable[[int], Tensors]  # inputs with full mantissas, on the host, by seed
    run: Callable[..., torch.Tensor]  # the answer has rows and columns
    move: Callable[[Tensors, int], Tensors]
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    vary: Callable[[Tensors, int], Tensors] = keep_bits  # of the inputs, by the turn
    shifts: tuple[int, int] = (1, 1)
    is_certain: bool = True
    cache: dict[Any, Any] = field(default_factory=dict)

    def screen(self, turn: int, ledger: Ledger) -> None:
        """Do all checks once; what a library has no kernel for is left out."""
        if self.name in ledger.left_out:
            return
        try:
            self._screen(turn, ledger)
        except RuntimeError as error:
            if turn or not (reason := refusal(error)):
                raise
            ledger.left_out[self.name] = reason

    def _screen(self, turn: int, ledger: Ledger) -> None:
        for check in self.proofs:
            self._compare_with_truth(check, turn, ledger)
        self._compare_with_moved(turn, ledger)

    def _compare_with_truth(self, check: str, turn: int, ledger: Ledger) -> None:
        inputs, truth, on_host = self._known(check, turn % SEEDS)
        result = bits(self.run(*inputs))
        wrong = places(result, truth)
        if wrong and not self.is_certain and share_of(result != truth) > MOST_WRONG:
            ledger.left_out[f"{self.name}, {check}"] = "its kernel does not keep sums exact"
            return
        ledger.compared[self.name] += result.numel()
        if not wrong and turn % HOST_EVERY == 0:
            check, wrong = "host", places(result.cpu(), on_host)
        if wrong:
            self._rerun([(*place, check) for place in wrong], ledger, inputs, on_host)

    def _known(self, check: str, seed: int) -> tuple[Tensors, torch.Tensor, torch.Tensor]:
        """Return inputs and truth on the device, and the truth on the host."""
        if (check, seed) not in self.cache:
            inputs, truth = self.proofs[check](seed)
            there = tuple(part.to(self.device) for part in inputs)
            self.cache[check, seed] = there, bits(truth).to(self.device), bits(truth)
        answer: tuple[Tensors, torch.Tensor, torch.Tensor] = self.cache[check, seed]
        return answer

    def _full(self, seed: int) -> Tensors:
        if ("full", seed) not in self.cache:
            inputs = self.draw(seed)
            self.cache["full", seed] = tuple(part.to(self.device) for part in inputs)
        answer: Tensors = self.cache["full", seed]
        return answer

    def _compare_with_moved(self, turn: int, ledger: Ledger) -> None:
        inputs = self.vary(self._full(turn % SEEDS), turn)
        results = [self._moved_and_back(inputs, steps) for steps in range(3)]
        if turn == 0:
            ledger.digests[self.name] = digest(results[0])
        first, second, third = results
        differing = (first != second) | (first != third)
        check = "moved"
        if not bool(differing.any()) and turn % HOST_EVERY == 0:
            check, results = "host", [result.cpu() for result in results]
            differing = (results[0] != results[1]) | (results[0] != results[2])
        if not bool(differing.any()):
            ledger.compared[self.name] += 2 * first.numel()
            return
        if share_of(differing) > MOST_WRONG:
            ledger.left_out[f"{self.name}, moved"] = PLACED
            return
        if may_be_rounding([result.view(self.run(*inputs).dtype) for result in results], differing):
            ledger.left_out[f"{self.name}, moved"] = "its sums are rounded otherwise at some places"
            return
        ledger.compared[self.name] += 2 * first.numel()
        wrong = [(*place, check) for place in self._odd_places(results, differing)]
        self._rerun(wrong, ledger, inputs, None)

    def _moved_and_back(self, inputs: Tensors, steps: int) -> torch.Tensor:
        import torch

        result = bits(self.run(*self.move(inputs, steps * TILE)))
        return torch.roll(result, [-by for by in self._shift(steps)], (0, 1))

    def _shift(self, steps: int) -> tuple[int, int]:
        """Return the rows and columns by which so many tiles move the answer."""
        rows, columns = self.shifts
        return steps * TILE * rows, steps * TILE * columns

    def _odd_places(
        self, results: Sequence[torch.Tensor], differing: torch.Tensor
    ) -> list[tuple[int, int, int]]:
        """Return where the odd result of three was computed, and the bits that it has wrong."""
        rows, columns = differing.shape
        odd = []
        where = differing.nonzero()[:MOST_PLACES]
        there = [result[where[:, 0], where[:, 1]].tolist() for result in results]
        for (row, column), *values in zip(where.tolist(), *there, strict=True):
            steps = next((i for i in range(3) if values.count(values[i]) == 1), 0)
            usual = values[(steps + 1) % 3]
            down, right = self._shift(steps)
            place = (row + down) % rows, (column + right) % columns
            odd.append((*place, values[steps] ^ usual))
        return odd

    def _rerun(
        self,
        wrong: Sequence[tuple[int, int, int, str]],
        ledger: Ledger,
        inputs: Tensors,
        truth: torch.Tensor | None,
    ) -> None:
        """Compute the same numbers again: what comes back is a defect."""
        returned = False
        for _ in range(RERUNS_AFTER_RESTS if ledger.has_rested else RERUNS):
            if ledger.has_rested:
                ledger.take_rest()
            if truth is None:
                results = [self._moved_and_back(inputs, steps).cpu() for steps in range(3)]
                differs = (results[0] != results[1]) | (results[0] != results[2])
                again = {p[:2] for p in self._odd_places(results, differs)}
            else:
                again = {p[:2] for p in places(bits(self.run(*inputs)).cpu(), truth)}
            returned = any(place[:2] in again for place in wrong)
            if returned:
                break
        sightings = [
            {
                "check": check,
                "tile": [row // TILE, column // TILE],
                "lane": column % 32,
                "bits": f"{mask & (1 << 64) - 1:#x}",
            }
            for row, column, mask, check in wrong
        ]
        if truth is None and returned:
            ledger.by_moving[self.name] += len(sightings)
        ledger.add(self.name, sightings, returns=returned)


PLACED = "its bits change with the place of a tile"

# --- comparing -----------------------------------------------------------------------------


def bits(numbers: torch.Tensor) -> torch.Tensor:
    """Return the same memory as integers: a NaN equals itself, and -0 is not 0."""
    import torch

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return numbers.contiguous().view(integers[numbers.element_size()])


def places(result: torch.Tensor, truth: torch.Tensor) -> list[tuple[int, int, int]]:
    """Return rows, columns and wrong bits of what differs, as far as they are looked at."""
    differing = result != truth
    if not bool(differing.any()):
        return []
    where = differing.nonzero()[:MOST_PLACES]
    masks = (result ^ truth)[where[:, 0], where[:, 1]].tolist()
    return [(row, column, mask) for (row, column), mask in zip(where.tolist(), masks, strict=True)]


def may_be_rounding(answers: Sequence[torch.Tensor], differing: torch.Tensor) -> bool:
    """Return whether the same sums in another order would explain what differs."""
    import torch

    first, *moved = answers
    if not first.is_floating_point():
        return False
    if first.itemsize == 2:
        steps = [(bits(first).int() - bits(answer).int()).abs().max() for answer in moved]
        return bool(max(steps) <= 1)
    rows, columns = (int(differing.any(axis).sum()) for axis in (1, 0))
    count = int(differing.sum())
    unit = torch.finfo(first.dtype).eps * float(first.double().square().mean().sqrt())
    furthest = max(float((first - answer).abs().max()) for answer in moved)
    return count > max(TILE, FILLED * rows * columns) and furthest <= ROUNDED * unit


def share_of(differing: torch.Tensor) -> float:
    return float(differing.float().mean())


def digest(result: torch.Tensor) -> str:
    there = result.cpu().contiguous()
    return hashlib.sha256(string_at(there.data_ptr(), there.nbytes)).hexdigest()[:16]


def find_odd(digests: Mapping[str, str]) -> tuple[set[str], bool]:
    """Return the devices that differ from the majority, and whether there is one."""
    (usual, votes), *_ = Counter(digests.values()).most_common(1)
    return {name for name, seen in digests.items() if seen != usual}, 2 * votes > len(digests)
