"""sdc_screen: its answers are exact, and it separates a lasting defect from a single wrong
answer."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import contract
import kit.screened_operations
import pytest
import sdc_screen
import torch
from kit.block_scaled import Factor
from kit.kernels import cublas_version, describe_kernels
from kit.screened_operations import (
    NAMES,
    PRODUCTS,
    SHAPES,
    WAYS,
    block_product,
    operations_on,
    products,
    vary,
)
from kit.screening import TILE, Ledger, Operation, bits, find_odd, places

CPU = torch.device("cpu")
N = 3 * TILE  # fewer would come back to where they were


def operation(name: str) -> Operation:
    (found,) = [one for one in operations_on(CPU, NAMES, N, N, {}) if one.name == name]
    return found


def screened(planted: Operation, turns: int = 1) -> Ledger:
    ledger = Ledger()
    for turn in range(turns):
        planted.screen(turn, ledger)
    return ledger


# --- the answers are exact -----------------------------------------------------------------

# bits of the sum's mantissa: matrix units add the 16-bit formats in fp32
MANTISSA = {"fp64": 53, "fp32": 24, "tf32": 24, "fp16": 24, "bf16": 24, "fp8": 13, "int8": 31}
OF_A_FACTOR = {"fp64": 53, "fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "fp8": 4, "int8": 8}


@pytest.mark.parametrize("name", PRODUCTS)
def test_no_partial_sum_leaves_the_mantissa_in_any_order(name):
    _, largest = PRODUCTS[name]
    assert largest * largest * max(sdc_screen.TERMS.values()) <= 1 << MANTISSA[name]
    assert largest <= 1 << OF_A_FACTOR[name]


def rounded(exact: Fraction, mantissa: int) -> Fraction:
    """The nearest number with so many bits, the even one of two."""
    if not exact:
        return exact
    scale = Fraction(2) ** (mantissa - 1 - (math.frexp(exact)[1] - 1))
    return Fraction(round(exact * scale)) / scale


@pytest.mark.parametrize("check", ["exact", "one term"])
@pytest.mark.parametrize("name", ["fp64/nn", "fp32/nt", "bf16/tn", "fp16/nn", "int8/nt"])
def test_the_truth_of_a_product_is_that_of_fractions(name, check):
    format_name, _, _ = name.partition("/")
    proofs = operation(name).proofs
    if check not in proofs:
        assert name == "int8/nt"
        return
    (left, right), truth = proofs[check](1)
    for row, column in ((0, 0), (5, 77), (N - 1, N - 1)):
        terms = zip(left[row].tolist(), right[:, column].tolist(), strict=True)
        exact = sum((Fraction(a) * Fraction(b) for a, b in terms), Fraction(0))
        mantissa = MANTISSA["int8"] if name == "int8/nt" else OF_A_FACTOR[format_name]
        assert Fraction(truth[row, column].item()) == rounded(exact, mantissa)


def test_every_screened_operation_on_a_healthy_device_is_right_and_the_odds_are_stated():
    ledger = Ledger()
    torch._C._set_mkldnn_enabled(True)  # whatever tests before this one left
    for one in operations_on(CPU, NAMES, N, N, ledger.left_out):
        one.screen(0, ledger)
    assert (ledger.defects, ledger.seen_once, ledger.wrong) == (Counter(), Counter(), {})
    rounding = {"convolution_input, exact", "convolution_weight, exact"}  # torch's own, in bf16
    # AVX-512 without VNNI saturates sums of 16 bits, AVX2 does not
    may_saturate = {f"int8/{way}, exact" for way in WAYS}
    has_kernels = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    expected = {"tf32", "fp8", "mxfp8", "nvfp4"} | (set() if has_kernels else rounding)
    kept = set() if torch.cpu._is_vnni_supported() else may_saturate
    assert set(ledger.left_out) - kept == expected
    report = contract.Report(frozenset({"agreement", "seen_once"}), frozenset({"seen_once"}))
    sdc_screen.show(report, "cpu", ledger)
    sure = report.notes["fewer_than_one_wrong_in"]["cpu"]
    assert sure["fp32/nn"] == 4 * N * N // 3  # compared twice with the truth and twice moved
    assert sure["exp"] == 2 * N * N // 3


@pytest.mark.parametrize("name", ["fp64", "fp32", "bf16"])
def test_products_of_other_shapes_are_right_and_a_library_that_rounds_by_place_is_not_accused(name):
    """Of 256 rows MKL adds the last ones of fp64 in another order."""
    ledger = Ledger()
    screened = products(name, CPU, 4 * TILE, 4 * TILE)
    assert [one.name.partition("/")[2] for one in screened] == [*WAYS, *SHAPES]
    for one in screened:
        one.screen(0, ledger)
    assert (ledger.defects, ledger.seen_once) == (Counter(), Counter())
    assert {"rounded" in reason for reason in ledger.left_out.values()} <= {True}


@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_products_with_scales_in_blocks_have_the_answer_of_their_documented_layout(
    name, monkeypatch
):
    monkeypatch.syspath_prepend("tests/gpus")
    import fake_blocks

    def documented(*factors, out_dtype, out):
        answer = fake_blocks.multiply(*factors, out=out)
        bits(answer)[70, 5] ^= wrong_bits
        return answer

    monkeypatch.setattr(torch, "_scaled_mm", documented)
    screen = block_product(name, CPU, 2 * 128, 2 * 128)
    for wrong_bits in (0, 1 << 9):
        ledger = screened(screen)
        assert bool(ledger.defects) == bool(wrong_bits)
    assert {seen["check"] for seen in ledger.wrong[f"{name}/nt"]} >= {"exact", "one term", "moved"}
    (left, of_left, right, of_right), _ = screen.proofs["exact"](0)
    sizes = [Factor(name, *part).values().abs() for part in ((left, of_left), (right, of_right))]
    terms = sdc_screen.TERMS["cuda"]
    assert max(part.max() for part in sizes) ** 2 * terms <= 1 << MANTISSA["fp8"]


# --- what is wrong -------------------------------------------------------------------------


def erring(name: str, spoil) -> Operation:
    """The operation of a device on which `spoil` changes every answer's bits."""
    sound = operation(name)

    def run(*inputs):
        answer = sound.run(*inputs)
        spoil(bits(answer))
        return answer

    return replace(sound, run=run)


def test_a_processor_that_always_errs_is_a_defect_with_its_tile_lane_and_bits():
    def spoil(answer):
        answer[TILE + 3, 35] ^= 1 << 4

    ledger = screened(erring("fp32/nn", spoil))
    assert ledger.defects["fp32/nn"]
    assert not ledger.seen_once
    seen = {(tuple(w["tile"]), w["lane"], w["bits"], w["check"]) for w in ledger.wrong["fp32/nn"]}
    assert seen >= {((1, 0), 3, "0x10", "exact"), ((1, 0), 3, "0x10", "moved")}


def test_a_place_that_errs_on_fractions_only_is_found_by_a_sum_of_one_term_and_by_moving():
    def spoil(answer):
        number = answer.view(torch.float32)[9, TILE + 1]
        if number != number.round():
            answer[9, TILE + 1] ^= 1

    seen = {
        (tuple(w["tile"]), w["lane"], w["check"])
        for w in screened(erring("fp32/nt", spoil)).wrong["fp32/nt"]
    }
    assert seen == {((0, 1), 1, "one term"), ((0, 1), 1, "moved")}


def test_a_gpu_that_errs_everywhere_alike_needs_no_sibling_to_be_wrong():
    def spoil(answer):
        numbers = answer.view(torch.float32)
        answer[numbers != numbers.round()] ^= 1

    ledger = screened(erring("fp32/nn", spoil))
    assert {seen["check"] for seen in ledger.wrong["fp32/nn"]} == {"one term"}
    assert ledger.defects["fp32/nn"]


def test_a_kernel_that_keeps_no_sums_exact_is_left_out_and_no_defect():
    def spoil(answer):
        answer += 1

    ledger = screened(erring("convolution", spoil))
    assert (ledger.defects, ledger.seen_once) == (Counter(), Counter())
    assert ledger.left_out == {"convolution, exact": "its kernel does not keep sums exact"}


def test_an_operation_that_the_libraries_refuse_is_left_out_and_one_that_fails_ends_the_screen():
    def fail(words: str) -> Ledger:
        def run(*inputs):
            raise RuntimeError(f"CUDA error: {words}\nCompile with ...")

        return screened(replace(operation("int8/nn"), run=run), turns=2)

    ledger = fail("CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`")
    assert ledger.left_out.keys() == {"int8/nn"}
    assert not ledger.compared
    with pytest.raises(RuntimeError, match="uncorrectable"):
        fail("uncorrectable ECC error encountered")


def test_a_wrong_answer_that_does_not_return_was_seen_once():
    left = [1]

    def spoil(answer):
        if left:
            left.pop()
            answer[7, 7] ^= 1

    ledger = screened(erring("sort", spoil))
    assert (ledger.defects, ledger.seen_once) == (Counter(), Counter({"sort": 1}))
    assert ledger.wrong["sort"][0]["returns"] is False


@pytest.mark.parametrize("rest_s", [0.0, 1e-9])
def test_a_gpu_that_errs_as_it_leaves_idle_is_a_defect_that_rests_find(rest_s):
    is_idle: list[bool] = []

    def spoil(answer):
        if is_idle:
            answer[7, 7] ^= 1
            is_idle.clear()

    ledger = Ledger(rest=lambda: is_idle.append(True))
    sdc_screen.screen([erring("sort", spoil)], ledger, seconds=0.0, rest_s=rest_s)
    assert ledger.defects == (Counter({"sort": 1}) if rest_s else Counter())
    assert ledger.turns == 1
    assert [seen["after_rest"] for seen in ledger.wrong.get("sort", [])] == [True] * bool(rest_s)


def test_a_kernel_whose_bits_depend_on_the_place_of_a_tile_is_not_compared_so():
    def spoil(answer):
        answer += torch.arange(N, dtype=answer.dtype)[:, None]

    ledger = screened(erring("exp", spoil))
    assert (ledger.defects, ledger.seen_once) == (Counter(), Counter())
    assert ledger.left_out == {"exp, moved": "its bits change with the place of a tile"}


def test_a_nan_and_a_negative_zero_are_wrong_bits():
    truth = bits(torch.zeros(TILE, TILE))
    answer = torch.zeros(TILE, TILE)
    answer[1, 2], answer[3, 4] = float("nan"), -0.0
    assert [place[:2] for place in places(bits(answer), truth)] == [(1, 2), (3, 4)]


# --- siblings ------------------------------------------------------------------------------


def agreements(*digests: str, kinds: str = "") -> dict[str, float]:
    report = contract.Report(frozenset({"agreement"}))
    report.notes["digests"] = {f"cuda:{i}": {"fp32/nn": d} for i, d in enumerate(digests)}
    report.notes["computed_by"] = {f"cuda:{i}": kind for i, kind in enumerate(kinds)}
    sdc_screen.compare_siblings(report)
    return {series["device"]: series["samples"][0] for series in report.series}


def test_the_gpu_that_differs_from_most_is_wrong():
    assert agreements("a", "a", "b", "a") == {"cuda:0": 1, "cuda:1": 1, "cuda:2": 0.5, "cuda:3": 1}


def test_bits_that_move_on_most_gpus_alike_are_those_of_the_library_and_on_one_gpu_its_own():
    def agreement_of(*moving: int) -> list[float]:
        report = contract.Report(frozenset({"agreement"}))
        names = [f"cuda:{number}" for number in range(4)]
        report.notes["digests"] = {name: {"fp32/nn": "a"} for name in names}
        report.notes["wrong_by_moving"] = {names[number]: ["fp32/nn"] for number in moving}
        for number, name in enumerate(names):
            report.add("agreement:fp32/nn", name, [0.5 if number in moving else 1.0])
        sdc_screen.compare_siblings(report)
        return [s["samples"][0] for s in report.series if "siblings" not in s["metric"]]

    assert agreement_of(0, 1, 2) == agreement_of(0, 1, 2, 3) == [1.0] * 4
    assert agreement_of(2) == [1.0, 1.0, 0.5, 1.0]
    assert agreement_of(1, 2) == [1.0, 0.5, 0.5, 1.0]


def test_gpus_of_two_kinds_are_no_siblings():
    assert agreements("a", "a", "b", kinds="XXY") == {"cuda:0": 1, "cuda:1": 1}


def test_settings_that_change_the_kernels_of_a_library_are_listed_beside_the_digests(monkeypatch):
    usual = describe_kernels(CPU)
    for name in ("MKL_CBWR", "ONEDNN_MAX_CPU_ISA", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "AVX2")
        assert f"{name}=AVX2" in describe_kernels(CPU) != usual
        monkeypatch.delenv(name)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert "77 threads" in describe_kernels(CPU)
    assert cublas_version("0.1") == "unknown"


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_host_draws_the_same_full_mantissas_by_whole_numbers(kind):
    drawn = kit.screened_operations.full_mantissas((3, 5), kind, torch.Generator().manual_seed(9))
    generator, bound = torch.Generator().manual_seed(9), 1 << 51
    first, second = (torch.randint(-bound, bound, (3, 5), generator=generator) for _ in range(2))
    expected = [
        (a + b) / bound
        for a, b in zip(first.view(-1).tolist(), second.view(-1).tolist(), strict=True)
    ]
    rounded = torch.tensor(expected, dtype=torch.float64).to(kind)
    assert torch.equal(bits(drawn), bits(rounded.view(3, 5)))


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_turns_feed_all_bits_of_the_mantissa_none_and_numbers_near_both_ends(kind):
    drawn = kit.screened_operations.full_mantissas((4, 64), kind, torch.Generator().manual_seed(1))
    scales = kit.screened_operations.scale_bits(kind)
    turns = [vary((drawn, drawn), turn, scales) for turn in range(10)]
    assert torch.equal(bits(turns[0][0]), bits(drawn))  # by which digests are comparable
    fractions = [torch.frexp(second.double().abs())[0] for _, second in turns]
    epsilon = torch.finfo(kind).eps / 2
    assert set(fractions[1][:, ::2].unique().tolist()) == {0.5}
    assert set(fractions[1][:, 1::2].unique().tolist()) == {1 - epsilon}
    assert set(fractions[2].unique().tolist()) == {1 - epsilon}
    assert len({fraction.double().numpy().tobytes() for fraction in fractions[:5]}) == 5
    largest = max(first.double().abs().max().item() for first, _ in turns)
    assert torch.finfo(kind).max / 2**15 < largest < torch.finfo(kind).max / 2**12
    assert any(0 < first.double().abs().max() < torch.finfo(kind).tiny for first, _ in turns)


@pytest.mark.parametrize("digests", [("a",), ("a", "b"), ("a", "b", "c"), ("a", "a", "b", "b")])
def test_without_a_majority_of_digests_no_gpu_is_accused(digests):
    assert agreements(*digests) == {}
    assert len(digests) == 1 or not find_odd(dict(enumerate(digests)))[1]


def test_planted_processors_of_gpus_that_are_not_there_belong_to_tiles(monkeypatch):
    monkeypatch.syspath_prepend("tests/gpus")
    import fake_sms

    fault = fake_sms.Fault(sms=frozenset({5}), keeps=1)
    numbers = torch.zeros(4 * fake_sms.TILE, 8 * fake_sms.TILE)
    fake_sms.FAULTS[0] = [fault]
    try:
        fake_sms.spoil("mm", 0, numbers)
        fake_sms.spoil("exp", 0, SimpleNamespace())
    finally:
        fake_sms.FAULTS.clear()
    hit = (numbers != 0).nonzero() // fake_sms.TILE
    assert {tuple(place) for place in hit.tolist()} == {(0, 5), (2, 5)}  # of 16, row by row
