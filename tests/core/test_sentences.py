"""The sentence and the cause of each fault, in the words that a person would use."""

from __future__ import annotations

import re

import pytest

from anubis.core.judge.sentences import metric_words, node_sentence
from tests.core.planted_faults import FAULTS

OF_FAULT = {"argvalues": FAULTS, "ids": lambda fault: fault.planted}


@pytest.mark.parametrize("fault", **OF_FAULT)
def test_the_sentence_of_a_fault_has_the_part_the_amount_and_the_comparison(fault):
    assert fault.found.reason == fault.reason
    assert len(fault.reason) <= 160  # a drain reason has 200 characters, with code and owner


@pytest.mark.parametrize("fault", **OF_FAULT)
def test_nodes_with_the_same_fault_have_the_same_cause(fault):
    assert fault.found.cause == fault.cause
    assert not re.search(r"\bn\d|cuda:|mlx5|\d%|instead", fault.cause)


GPUS = [f"cuda:{number}" for number in range(8)]
REASON = "matrix products 20% slower than normal on cuda:6: 571 instead of 720 TFLOP/s"


@pytest.mark.parametrize(
    ("bad", "measured", "further", "place", "end"),
    [
        (["cuda:6"], ["cuda:6"], 0, "cuda:6", ""),
        (["cuda:6"], GPUS, 0, "cuda:6 (1 of 8 GPUs)", ""),
        (["cuda:1", "cuda:6"], GPUS, 1, "2 of 8 GPUs (worst cuda:6)", "; 1 more metric as well"),
        (GPUS, GPUS, 3, "all 8 GPUs (worst cuda:6)", "; 3 more metrics as well"),
        (["cuda:6", "cpu"], [*GPUS, "cpu"], 0, "cuda:6 (1 of 8 GPUs)", ""),
    ],
)
def test_the_sentence_of_a_node_names_its_devices_and_their_number(
    bad, measured, further, place, end
):
    whole = node_sentence(REASON, "cuda:6", bad, measured, further)
    assert whole == REASON.replace("cuda:6", place) + end


def test_our_programs_have_words_for_their_metrics_and_foreign_ones_have_none():
    assert metric_words("nccl_tests", "algbw_gbps:all_gather") == "collectives (all_gather)"
    assert metric_words("gemm", "agreement") == metric_words("mine", "tflops") == ""
