"""The operations that a screen repeats: what they are given, what they do, and what is right.

Two kinds of numbers have answers that are right whatever the order of a sum. Sums of small integers
stay within the mantissa. A sum with one term that is not zero has full mantissas in both factors
and rounds once: the host knows it without a sum, and needs no sibling to know it. Whole numbers,
bits, and moved data have one answer anyway. What has none is compared with itself, moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kit.block_scaled import BLOCKS, Factor
from kit.screening import TILE, Operation, bits

if TYPE_CHECKING:
    import torch

    from kit.screening import Proof, Tensors

# By format: the type, and the largest integers whose sums stay exact in any order. A product of two
# of them is summed 2,048 times within the mantissa of the sum (fp32's for the 16-bit formats, 13
# bits for fp8).
PRODUCTS = {
    "fp64": ("float64", 1 << 20),
    "fp32": ("float32", 64),
    "tf32": ("float32", 64),
    "fp16": ("float16", 16),
    "bf16": ("bfloat16", 16),
    "fp8": ("float8_e4m3fn", 2),
    "int8": ("int8", 127),
}
WAYS = ("nn", "nt", "tn")  # which factor is given transposed
READ_ALONG_THE_SUM = "nt"  # all that the units of fp8 take
SHAPES = ("flat", "tall", "few")  # few rows, few columns, or both, so that libraries part the sums
SLOW_ON_A_CPU = {("fp8", "cpu"): "a CPU multiplies fp8 by software"}
LOW_BITS_OF_TF32 = (1 << 13) - 1  # that fp32 has and tf32 has not
CONVOLUTIONS = ("convolution", "convolution_input", "convolution_weight")
ATTENTION = ("attention", "attention_backward")
FUNCTIONS = ("exp", "sin", "rsqrt", "softmax")
INTEGERS = (
    *("multiply_add", "shift_xor", "sort", "scan", "reduce", "gather", "scatter", "atomics"),
    "transpose",
)
NAMES = (*PRODUCTS, *BLOCKS, *CONVOLUTIONS, *ATTENTION, *FUNCTIONS, *INTEGERS, "philox")


def operations_on(
    device: torch.device, names: Sequence[str], n: int, terms: int, left_out: dict[str, str]
) -> list[Operation]:
    chosen: list[Operation] = []
    for name in names:
        if name in PRODUCTS or name in BLOCKS:
            if reason := reason_against(name, device, n, terms):
                left_out[name] = reason
            elif name in BLOCKS:
                chosen.append(block_product(name, device, n, terms))
            else:
                chosen += products(name, device, n, terms)
        elif name in CONVOLUTIONS:
            chosen.append(convolution(name, device, n))
        elif name in ATTENTION:
            chosen.append(attention(name, device, n))
        elif name in FUNCTIONS:
            chosen.append(function(name, device, n))
        elif name == "philox":
            chosen.append(philox(device, n))
        else:
            chosen.append(integer_operation(name, device, n))
    return chosen


def reason_against(name: str, device: torch.device, n: int, terms: int) -> str:
    from kit.arithmetic import lacks, lacks_product

    of_blocks = lacks_product(name, (n, n, terms)) if name in BLOCKS else ""
    return lacks(name, device) or SLOW_ON_A_CPU.get((name, device.type)) or of_blocks


# --- products ------------------------------------------------------------------------------


def products(name: str, device: torch.device, n: int, terms: int) -> list[Operation]:
    """Return square products by all ways, and one of each other shape."""
    cache: dict[Any, Any] = {}  # the ways differ in memory, not in numbers
    ways = (READ_ALONG_THE_SUM,) if name == "fp8" else WAYS
    square = [product(name, way, way, device, (n, n), terms, cache) for way in ways]
    few = max(3 * TILE, n // 8 // TILE * TILE)
    shapes = ((few, n), (n, few), (few, few)) if few < n else ()
    of_shapes = [
        product(name, shape, ways[0], device, lengths, terms, {})
        for shape, lengths in zip(SHAPES, shapes, strict=bool(shapes))
    ]
    return [*square, *of_shapes]


def product(
    name: str,
    called: str,
    way: str,
    device: torch.device,
    lengths: tuple[int, int],
    terms: int,
    cache: dict[Any, Any],
) -> Operation:
    """Return a product, each factor as given or transposed in memory."""
    import torch

    from kit.arithmetic import kind_of

    _, largest = PRODUCTS[name]
    dtype = getattr(torch, kind_of(name, device))
    kind_out = {"int8": torch.int32, "fp8": torch.bfloat16}.get(name, dtype)
    rows, columns = lengths
    shapes = (rows, terms), (terms, columns)

    def small(seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        return tuple(whole_numbers(shape, largest, generator).to(dtype) for shape in shapes)

    def full(seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        return tuple(full_mantissas(shape, dtype, generator) for shape in shapes)

    def run(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        left = left.t().contiguous().t() if way == "tn" else left.contiguous()
        right = right.t().contiguous().t() if way == "nt" else right.contiguous()
        if name == "fp8":
            scale = torch.ones((), device=left.device)
            return torch._scaled_mm(left, right, scale, scale, out_dtype=kind_out)
        return torch._int_mm(left, right) if name == "int8" else torch.mm(left, right)

    def exact(seed: int) -> tuple[Tensors, torch.Tensor]:
        left, right = small(seed)
        return (left, right), torch.mm(left.double(), right.double()).to(kind_out)

    def single_term(seed: int) -> tuple[Tensors, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        left = numbers_from_1_to_2((rows, terms), dtype, generator)
        factors = numbers_from_1_to_2((1, columns), dtype, generator)
        if name == "tf32":
            left, factors = (
                (bits(part) & ~LOW_BITS_OF_TF32).view(dtype) for part in (left, factors)
            )
        chosen = torch.randint(0, terms, (1, columns), generator=generator)  # each column's term
        right = torch.zeros((terms, columns), dtype=torch.float64)
        right.scatter_(0, chosen, factors.double())
        terms_left = left.double()[:, chosen[0]] * factors.double()  # rounds in fp64, and only once
        return (left, right.to(dtype)), terms_left.to(kind_out)

    def move(inputs: Tensors, by: int) -> Tensors:
        left, right = inputs
        return rolled(left, by, 0), rolled(right, by, 1)

    proofs: dict[str, Proof] = {"exact": exact} | (
        {} if name == "int8" else {"one term": single_term}
    )
    draw = small if name == "int8" else full
    # processors without VNNI add two products of int8 in 16 bits, which saturate
    is_certain = device.type != "cpu" or name != "int8"
    return Operation(
        f"{name}/{called}",
        device,
        draw,
        run,
        move,
        proofs,
        partial(vary, scale_bits=scale_bits(dtype)),
        is_certain=is_certain,
        cache=cache,
    )


def block_product(name: str, device: torch.device, n: int, terms: int) -> Operation:
    """Return a product of factors that share scales in blocks: bytes of numbers and of scales, by
    rows of the left factor and by columns of the right one."""
    import torch

    block, kind = BLOCKS[name]

    def factor(numbers: torch.Tensor, scales: torch.Tensor) -> Tensors:
        codes = pack_fp4(numbers) if name == "nvfp4" else numbers.to(torch.float8_e4m3fn)
        return codes.view(torch.uint8), scales.to(getattr(torch, kind)).view(torch.uint8)

    def powers(generator: Any) -> torch.Tensor:
        return 2.0 ** torch.randint(0, 2, (n, terms // block), generator=generator)

    def full_factor(generator: Any) -> Tensors:
        """Return numbers that are not 0; of nvfp4 the scales have full mantissas as well."""
        if name == "mxfp8":
            numbers = numbers_from_1_to_2((n, terms), torch.float8_e4m3fn, generator)
            return factor(numbers, powers(generator))
        places = torch.randint(1, 8, (n, terms), generator=generator)
        signs = 1 - 2 * torch.randint(0, 2, (n, terms), generator=generator)
        eighths = torch.randint(0, 8, (n, terms // block), generator=generator)
        return factor(signs * places, 1 + eighths / 8)

    def draw(seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        return (*full_factor(generator), *full_factor(generator))

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        left, right = Factor(name, *inputs[:2]), Factor(name, *inputs[2:])
        out = torch.empty((n, n), dtype=torch.bfloat16, device=inputs[0].device)
        scales = left.tiled_scales(), right.tiled_scales()
        torch._scaled_mm(left.numbers, right.numbers.t(), *scales, out_dtype=out.dtype, out=out)
        return out

    def known(inputs: Tensors) -> tuple[Tensors, torch.Tensor]:
        left, right = Factor(name, *inputs[:2]), Factor(name, *inputs[2:])
        return inputs, (left.values() @ right.values().t()).to(torch.bfloat16)

    def exact(seed: int) -> tuple[Tensors, torch.Tensor]:
        """Return factors of -2 to 2: sums within 13 bits, as of fp8."""
        generator = torch.Generator().manual_seed(seed)
        shape, ones = (n, terms), OF_ONE if name == "nvfp4" else 1
        of_both = [
            factor(ones * whole_numbers(shape, 1, generator), powers(generator)) for _ in range(2)
        ]
        return known((*of_both[0], *of_both[1]))

    def single_term(seed: int) -> tuple[Tensors, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        left, (codes, scales) = full_factor(generator), full_factor(generator)
        in_byte = 2 if name == "nvfp4" else 1
        chosen = torch.randint(0, terms, (n, 1), generator=generator)
        kept = codes.gather(1, chosen // in_byte)
        if name == "nvfp4":
            kept = torch.where(chosen % 2 == 0, kept & 15, kept & 240)
        alone = torch.zeros_like(codes).scatter_(1, chosen // in_byte, kept)
        return known((*left, alone, scales))

    proofs: dict[str, Proof] = {"exact": exact, "one term": single_term}
    return Operation(f"{name}/{READ_ALONG_THE_SUM}", device, draw, run, roll_each, proofs)


OF_ONE = 2  # place of the number 1 among the fp4 numbers that are not negative


def pack_fp4(places: torch.Tensor) -> torch.Tensor:
    """Return codes, two in a byte, of fp4 numbers by their places, which are below 0 if they
    are."""
    import torch

    codes = (places.abs() + 8 * (places < 0)).to(torch.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4


# --- convolution and attention -------------------------------------------------------------

SIDE, KERNEL, STRIDE = 16, 3, 2  # a stride leaves libraries no transform, whose sums are not exact
CHANNELS = TILE  # of the images; the answer has n of them
WIDTH = 64  # of a head


def convolution(name: str, device: torch.device, n: int) -> Operation:
    """Return a convolution, or its gradient by images or weights, as rows of channels. With a tile
    of columns an image moves."""
    import torch
    from torch.nn import grad
    from torch.nn.functional import conv2d

    of_images = n // TILE, CHANNELS, SIDE, SIDE
    of_weights = n, CHANNELS, KERNEL, KERNEL
    of_answers = n // TILE, n, SIDE // STRIDE, SIDE // STRIDE
    how = {"stride": STRIDE, "padding": KERNEL // 2}
    shapes, shifts = {
        "convolution": ((of_images, of_weights), (1, 1)),
        "convolution_input": ((of_weights, of_answers), (0, STRIDE**2)),
        "convolution_weight": ((of_images, of_answers), (1, 0)),
    }[name]

    def run(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
            if name == "convolution_weight":
                return grad.conv2d_weight(first, of_weights, second, **how).flatten(1)
            if name == "convolution_input":
                out = grad.conv2d_input(of_images, first, second, **how)
            else:
                out = conv2d(first, second, **how)
        return out.transpose(0, 1).flatten(1)

    def move(inputs: Tensors, by: int) -> Tensors:
        first, second = inputs
        if name == "convolution_weight":
            return first, torch.roll(second, by, 1)
        if name == "convolution_input":
            return first, torch.roll(second, by // TILE, 0)
        return torch.roll(first, by // TILE, 0), torch.roll(second, by, 0)

    def small(seed: int) -> Tensors:
        _, largest = PRODUCTS["bf16"]
        generator = torch.Generator().manual_seed(seed)
        return tuple(
            whole_numbers(shape, largest, generator).to(torch.bfloat16) for shape in shapes
        )

    def full(seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        return tuple(full_mantissas(shape, torch.bfloat16, generator) for shape in shapes)

    def exact(seed: int) -> tuple[Tensors, torch.Tensor]:
        inputs = small(seed)
        return inputs, run(*(part.double() for part in inputs)).to(torch.bfloat16)

    varied = partial(vary, scale_bits=scale_bits(torch.bfloat16))
    return Operation(
        name, device, full, run, move, {"exact": exact}, varied, shifts, is_certain=False
    )


def attention(name: str, device: torch.device, n: int) -> Operation:
    """Return attention over n tokens as the library does it, or its gradients by their formulas,
    of which no kernel adds in an order that changes. With a tile of rows a head moves."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    of_heads = n // TILE, n, WIDTH
    parts = 4 if name == "attention_backward" else 3  # queries, keys, values, and the gradient

    def draw(seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        shapes = [of_heads] * parts
        return tuple(full_mantissas(shape, torch.bfloat16, generator) for shape in shapes)

    def forward(*parts: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(*(part[None] for part in parts)).view(-1, WIDTH)

    def backward(
        queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, gradient: torch.Tensor
    ) -> torch.Tensor:
        scale = WIDTH**-0.5
        weights = torch.softmax(torch.bmm(queries, keys.transpose(1, 2)) * scale, -1)
        of_weights = torch.bmm(gradient, values.transpose(1, 2))
        spread = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
        of_all = (
            torch.bmm(spread, keys),
            torch.bmm(spread.transpose(1, 2), queries),
            torch.bmm(weights.transpose(1, 2), gradient),
        )
        return torch.cat(of_all, -1).view(-1, 3 * WIDTH)

    def move(inputs: Tensors, by: int) -> Tensors:
        return tuple(torch.roll(part, by // TILE, 0) for part in inputs)

    run = backward if name == "attention_backward" else forward
    return Operation(name, device, draw, run, move, vary=vary, shifts=(n // TILE, 0))


# --- functions, whole numbers, moved data --------------------------------------------------


def function(name: str, device: torch.device, n: int) -> Operation:
    """Return a special function of each element, or of rows: no exact answer, so only moved and
    by siblings."""
    import torch

    def draw(seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        return (torch.rand((n, n), generator=generator) * 8 + 0.01,)

    if name == "softmax":
        by_row = partial(torch.softmax, dim=1)
        return Operation(name, device, draw, by_row, roll_rows, vary=vary, shifts=(1, 0))
    return Operation(name, device, draw, getattr(torch, name), roll_all, vary=vary)


def integer_operation(name: str, device: torch.device, n: int) -> Operation:
    import torch

    run, shifts = INTEGER_OPERATIONS[name]

    def draw(seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        low, high = -(1 << 31), (1 << 31) - 1
        numbers = torch.randint(low, high, (n, n), generator=generator, dtype=torch.int64)
        if name in ("gather", "scatter"):
            return numbers.to(torch.int32), torch.randperm(n, generator=generator)
        if name == "atomics":  # several to each place
            return numbers.to(torch.int32), torch.randint(0, n, (n,), generator=generator)
        return (numbers.to(torch.int32),)

    def proof(seed: int) -> tuple[Tensors, torch.Tensor]:
        inputs = draw(seed)
        return inputs, run(*inputs)

    move = roll_all if shifts == (1, 1) else roll_rows
    return Operation(name, device, draw, run, move, {"exact": proof}, shifts=shifts)


def philox(device: torch.device, n: int) -> Operation:
    """Return random numbers by the device's generator: a seed has one answer on each kind of
    GPU. The host's generator is another, and nothing moves: it is repeated."""
    import torch

    def run(seed: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator(device).manual_seed(int(seed))
        low, high = -(1 << 31), (1 << 31) - 1
        return torch.randint(
            low, high, (n, n), generator=generator, device=device, dtype=torch.int32
        )

    return Operation("philox", device, draw_seed, run, stay, shifts=(0, 0))


def draw_seed(seed: int) -> Tensors:
    import torch

    return (torch.tensor(seed),)


def stay(inputs: Tensors, by: int) -> Tensors:
    return inputs


def roll_all(inputs: Tensors, by: int) -> Tensors:
    import torch

    return tuple(torch.roll(part, (by, by), (0, 1)) for part in inputs)


def roll_each(inputs: Tensors, by: int) -> Tensors:
    import torch

    return tuple(torch.roll(part, by, 0) for part in inputs)


def roll_rows(inputs: Tensors, by: int) -> Tensors:
    import torch

    return (torch.roll(inputs[0], by, 0), *inputs[1:])


def rolled(part: torch.Tensor, by: int, axis: int) -> torch.Tensor:
    """Return a factor moved, by its bits: not all formats can be moved as numbers."""
    import torch

    return torch.roll(bits(part), by, axis).view(part.dtype)


def sort_rows(numbers: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.sort(numbers, 1).values


def scan_rows(numbers: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.cumsum(numbers, 1, dtype=torch.int64)


def reduce_rows(numbers: torch.Tensor) -> torch.Tensor:
    """Return the sums of eighths of rows."""
    import torch

    return torch.sum(numbers.view(len(numbers), -1, 8), 2, dtype=torch.int64)


def gather_columns(numbers: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.index_select(numbers, 1, order)


def scatter_columns(numbers: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.zeros_like(numbers).scatter_(1, order.expand_as(numbers), numbers)


def add_columns(numbers: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return columns added to their places, several to one, by what no other may interrupt."""
    import torch

    return torch.zeros_like(numbers).index_add_(1, places, numbers)


def transpose(numbers: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.transpose_copy(numbers, 0, 1)


INTEGER_OPERATIONS: dict[str, tuple[Callable[..., Any], tuple[int, int]]] = {
    "multiply_add": (lambda numbers: numbers * 1664525 + 1013904223, (1, 1)),
    "shift_xor": (lambda numbers: (numbers << 13) ^ (numbers >> 7), (1, 1)),
    "sort": (sort_rows, (1, 0)),
    "scan": (scan_rows, (1, 0)),
    "reduce": (reduce_rows, (1, 0)),
    "gather": (gather_columns, (1, 0)),
    "scatter": (scatter_columns, (1, 0)),
    "atomics": (add_columns, (1, 0)),
    "transpose": (transpose, (1, 1)),
}


# --- numbers -------------------------------------------------------------------------------


def whole_numbers(shape: tuple[int, ...], largest: int, generator: Any) -> torch.Tensor:
    import torch

    return torch.randint(-largest, largest + 1, shape, generator=generator)


def full_mantissas(shape: tuple[int, ...], dtype: torch.dtype, generator: Any) -> torch.Tensor:
    """Return numbers between -2 and 2 of which all bits of the mantissa are used. They come from
    whole numbers, which every host rounds alike: all hosts feed the same bits."""
    import torch

    low, high = -(1 << 51), 1 << 51
    drawn = [torch.randint(low, high, shape, generator=generator) for _ in range(2)]
    return (sum(drawn).double() / (1 << 51)).to(dtype)


# Mantissas that a turn has instead of those that were drawn: the bits of even and of odd columns.
# First, for the digest, those that were drawn.
DRAWN, ONES, EVERY_SECOND, THE_OTHERS = None, -1, 0x5555555555555555, 0x2AAAAAAAAAAAAAAA
PATTERNS = (
    (DRAWN, DRAWN),
    (0, ONES),  # neighbours differ in every bit
    (ONES, ONES),
    (EVERY_SECOND, EVERY_SECOND),
    (THE_OTHERS, EVERY_SECOND),
)
SCALES = (0, 0, 0, 1, -1)  # and of another turn: near the largest number, or below the normal ones
MANTISSA_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3}


def vary(inputs: Tensors, turn: int, scale_bits: tuple[int, int] = (0, 0)) -> Tensors:
    """Return the inputs with other bits, by turns: patterns that toggle every wire or none, and the
    first factor very large or subnormal. The device itself does it, once for all that is compared;
    a wrong bit of that is fed to all of them alike."""
    pattern, scale = PATTERNS[turn % len(PATTERNS)], SCALES[turn // 2 % len(SCALES)]
    varied = tuple(replace_mantissas(part, pattern) for part in inputs)
    large, small = scale_bits
    power = {1: large, -1: -small}.get(scale, 0)
    return (varied[0] * 2.0**power, *varied[1:]) if power else varied


def replace_mantissas(
    numbers: torch.Tensor, pattern: tuple[int | None, int | None]
) -> torch.Tensor:
    import torch

    width = MANTISSA_BITS.get(str(numbers.dtype).removeprefix("torch."))
    if width is None or pattern == (DRAWN, DRAWN):
        return numbers
    mask = (1 << width) - 1
    even, odd = ((chosen or 0) & mask for chosen in pattern)
    words = bits(numbers)
    columns = torch.arange(words.shape[-1], device=words.device) % 2
    return (words & ~mask | torch.where(columns == 1, odd, even).to(words.dtype)).view(
        numbers.dtype
    )


def scale_bits(dtype: torch.dtype) -> tuple[int, int]:
    """Return the powers of two by which a factor between -2 and 2 comes near the largest number,
    with room for 8,192 terms, and below the least normal one; 0 of formats that do not multiply."""
    import torch

    if not dtype.is_floating_point or dtype.itemsize == 1:
        return 0, 0
    largest, least = (int(math.log2(x)) for x in (torch.finfo(dtype).max, torch.finfo(dtype).tiny))
    return max(0, largest - 14), 1 - least


def numbers_from_1_to_2(shape: tuple[int, ...], dtype: torch.dtype, generator: Any) -> torch.Tensor:
    """Return numbers of either sign with the lowest bit set, far from where numbers are cut
    off."""
    import torch

    fractions = torch.randint(0, 1 << 52, shape, generator=generator).double() / (1 << 52)
    signs = 1 - 2 * torch.randint(0, 2, shape, generator=generator)
    return (bits((signs * (1 + fractions)).to(dtype)) | 1).view(dtype)
