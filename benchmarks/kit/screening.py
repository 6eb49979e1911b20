"""Operations that a screen repeats on known numbers, and what it makes of wrong bits."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    Tensors = tuple[torch.Tensor, ...]

TILE = 64  # rows and columns: a multiple of the tiles of matrix units
SEEDS = 2  # sets of numbers, used by turns: the host computes the truth of each once
HOST_EVERY = 4  # turns: the host compares one result in so many
RERUNS = 16  # at most, to see whether something wrong comes back
MOST_PLACES = 256  # that are looked at, of one answer
MOST_NOTED = 8  # wrong places of an operation
MOST_MOVED = 0.2  # more elements that change with their place are the kernel's, not a processor's

# By format: the type, and the largest integers whose sums stay exact in any order. A product of two
# of them is summed 2,048 times within the mantissa of the sum (fp32's for the 16-bit formats).
PRODUCTS = {
    "fp64": ("float64", 1 << 20),
    "fp32": ("float32", 64),
    "tf32": ("float32", 64),
    "fp16": ("float16", 16),
    "bf16": ("bfloat16", 16),
    "int8": ("int8", 127),
}
WAYS = ("nn", "nt", "tn")  # which factor is given transposed
FUNCTIONS = ("exp", "sin", "rsqrt")
INTEGERS = ("multiply_add", "shift_xor", "sort", "scan", "gather", "transpose")
NAMES = (*PRODUCTS, *FUNCTIONS, *INTEGERS)


@dataclass
class Ledger:
    """What a screen has compared on one device, and what was wrong."""

    compared: Counter[str] = field(default_factory=Counter)
    defects: Counter[str] = field(default_factory=Counter)
    seen_once: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # that the screen took

    def add(self, operation: str, sightings: Sequence[Mapping[str, Any]], *, returns: bool) -> None:
        (self.defects if returns else self.seen_once)[operation] += len(sightings)
        noted = self.wrong.setdefault(operation, [])
        noted += [{**seen, "returns": returns} for seen in sightings[: MOST_NOTED - len(noted)]]


@dataclass(frozen=True)
class Operation:
    """An operation on one device. `axes` of its answer move as its inputs do."""

    name: str
    device: torch.device
    draw: Callable[[int, bool], Tensors]  # inputs on the host, by seed: exact, or full mantissas
    run: Callable[..., torch.Tensor]
    truth: Callable[..., torch.Tensor] | None
    move: Callable[[Tensors, int], Tensors]
    axes: tuple[int, ...] = (0, 1)
    cache: dict[Any, Any] = field(default_factory=dict)

    def screen(self, turn: int, ledger: Ledger) -> None:
        if self.truth:
            self._compare_with_truth(turn, ledger)
        self._compare_with_moved(turn, ledger)

    def _compare_with_truth(self, turn: int, ledger: Ledger) -> None:
        inputs, truth, on_host = self._known(turn % SEEDS)
        result = bits(self.run(*inputs))
        ledger.compared[self.name] += result.numel()
        wrong = places(result, truth)
        if not wrong and turn % HOST_EVERY == 0:
            wrong = [(*place, "host") for place in places(result.cpu(), on_host)]
        if wrong:
            self._rerun([(*place, "exact")[:4] for place in wrong], ledger, inputs, on_host)

    def _known(self, seed: int) -> tuple[Tensors, torch.Tensor, torch.Tensor]:
        """Return inputs and truth on the device, and the truth on the host."""
        assert self.truth
        if ("truth", seed) not in self.cache:
            inputs = self.draw(seed, True)
            on_host = bits(self.truth(*inputs))
            there = tuple(part.to(self.device) for part in inputs)
            self.cache["truth", seed] = there, on_host.to(self.device), on_host
        answer: tuple[Tensors, torch.Tensor, torch.Tensor] = self.cache["truth", seed]
        return answer

    def _full(self, seed: int) -> Tensors:
        if ("full", seed) not in self.cache:
            inputs = self.draw(seed, False)
            self.cache["full", seed] = tuple(part.to(self.device) for part in inputs)
        answer: Tensors = self.cache["full", seed]
        return answer

    def _compare_with_moved(self, turn: int, ledger: Ledger) -> None:
        seed = turn % SEEDS
        inputs = self._full(seed)
        results = [self._moved_and_back(inputs, steps) for steps in range(3)]
        if turn == 0:
            ledger.digests[self.name] = digest(results[0])
        first, second, third = results
        differing = (first != second) | (first != third)
        ledger.compared[self.name] += 2 * first.numel()
        check = "moved"
        if not bool(differing.any()) and turn % HOST_EVERY == 0:
            check, results = "host", [result.cpu() for result in results]
            differing = (results[0] != results[1]) | (results[0] != results[2])
        if not bool(differing.any()):
            return
        if float(differing.float().mean()) > MOST_MOVED:
            ledger.left_out[f"{self.name}, moved"] = "its bits change with the place of a tile"
            return
        wrong = [(*place, check) for place in self._odd_places(results, differing)]
        self._rerun(wrong, ledger, inputs, None)

    def _moved_and_back(self, inputs: Tensors, steps: int) -> torch.Tensor:
        import torch

        result = bits(self.run(*self.move(inputs, steps * TILE)))
        return torch.roll(result, [-steps * TILE] * len(self.axes), self.axes)

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
            by = [steps * TILE if axis in self.axes else 0 for axis in (0, 1)]
            place = (row + by[0]) % rows, (column + by[1]) % columns
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
        for _ in range(RERUNS):
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
        ledger.add(self.name, sightings, returns=returned)


# --- the operations ------------------------------------------------------------------------


def operations_on(
    device: torch.device, names: Sequence[str], n: int, terms: int, left_out: dict[str, str]
) -> list[Operation]:
    from kit.arithmetic import lacks

    chosen: list[Operation] = []
    for name in names:
        if name in PRODUCTS:
            if reason := lacks(name, device):
                left_out[name] = reason
            else:
                cache: dict[Any, Any] = {}  # the ways differ in memory, not in numbers
                chosen += [product(name, way, device, n, terms, cache) for way in WAYS]
        elif name in FUNCTIONS:
            chosen.append(function(name, device, n))
        else:
            chosen.append(integer_operation(name, device, n))
    return chosen


def product(
    name: str, way: str, device: torch.device, n: int, terms: int, cache: dict[Any, Any]
) -> Operation:
    """Return a product, each factor as given or transposed in memory."""
    import torch

    kind, largest = PRODUCTS[name]
    dtype = getattr(torch, kind)

    def draw(seed: int, exact: bool) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        shapes = (n, terms), (terms, n)
        if exact or name == "int8":
            low, high = -largest, largest + 1
            numbers = [torch.randint(low, high, shape, generator=generator) for shape in shapes]
            return tuple(part.to(dtype) for part in numbers)
        return tuple(full_mantissas(shape, dtype, seed, generator) for shape in shapes)

    def run(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        left = left.t().contiguous().t() if way == "tn" else left.contiguous()
        right = right.t().contiguous().t() if way == "nt" else right.contiguous()
        return torch._int_mm(left, right) if name == "int8" else torch.mm(left, right)

    def truth(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        exact = torch.mm(left.double(), right.double())  # sums below 2**53
        return exact.to(torch.int32 if name == "int8" else dtype)

    def move(inputs: Tensors, by: int) -> Tensors:
        left, right = inputs
        return torch.roll(left, by, 0), torch.roll(right, by, 1)

    return Operation(f"{name}/{way}", device, draw, run, truth, move, cache=cache)


def function(name: str, device: torch.device, n: int) -> Operation:
    """Return a special function of each element: no exact answer, so only moved and by siblings."""
    import torch

    def draw(seed: int, exact: bool) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        return (torch.rand((n, n), generator=generator) * 8 + 0.01,)

    return Operation(name, device, draw, getattr(torch, name), None, roll_all)


def integer_operation(name: str, device: torch.device, n: int) -> Operation:
    import torch

    run, axes = INTEGER_OPERATIONS[name]

    def draw(seed: int, exact: bool) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        low, high = -(1 << 31), (1 << 31) - 1
        numbers = torch.randint(low, high, (n, n), generator=generator, dtype=torch.int64)
        order = torch.randperm(n, generator=generator)
        return (numbers.to(torch.int32), order) if name == "gather" else (numbers.to(torch.int32),)

    return Operation(name, device, draw, run, run, roll_all if axes == (0, 1) else roll_rows, axes)


def roll_all(inputs: Tensors, by: int) -> Tensors:
    import torch

    return tuple(torch.roll(part, (by, by), (0, 1)) for part in inputs)


def roll_rows(inputs: Tensors, by: int) -> Tensors:
    import torch

    return (torch.roll(inputs[0], by, 0), *inputs[1:])


def sort_rows(numbers: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.sort(numbers, 1).values


def scan_rows(numbers: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.cumsum(numbers, 1, dtype=torch.int64)


def gather_columns(numbers: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.index_select(numbers, 1, order)


INTEGER_OPERATIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "multiply_add": (lambda numbers: numbers * 1664525 + 1013904223, (0, 1)),
    "shift_xor": (lambda numbers: (numbers << 13) ^ (numbers >> 7), (0, 1)),
    "sort": (sort_rows, (0,)),
    "scan": (scan_rows, (0,)),
    "gather": (gather_columns, (0,)),
    "transpose": (lambda numbers: numbers.t().contiguous(), (0, 1)),
}


def full_mantissas(shape: tuple[int, int], dtype: Any, seed: int, generator: Any) -> torch.Tensor:
    """Return numbers of which all bits of the mantissa are used: between -2 and 2, and by turns
    with the lowest bits all set. They come from whole numbers, which every host rounds alike: all
    hosts feed the same bits."""
    import torch

    low, high = -(1 << 51), 1 << 51
    drawn = [torch.randint(low, high, shape, generator=generator) for _ in range(2)]
    numbers = (sum(drawn).double() / (1 << 51)).to(dtype)
    masks = (0, 0x3)  # of the mantissa, by seed
    return (bits(numbers) | masks[seed % len(masks)]).view(dtype)


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


def digest(result: torch.Tensor) -> str:
    return hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16]


def find_odd(digests: Mapping[str, str]) -> tuple[set[str], bool]:
    """Return the devices that differ from the majority, and whether there is one."""
    (usual, votes), *_ = Counter(digests.values()).most_common(1)
    return {name for name, seen in digests.items() if seen != usual}, 2 * votes > len(digests)
