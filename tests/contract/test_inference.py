"""Serving a transformer: what is decoded step by step, and how it is counted."""

from __future__ import annotations

import contract
import kit.gpus.ceilings
import kit.timing
import pytest
import torch
from infer_transformer import Serving, state_ceilings
from kit.possession import Seconds
from kit.training.decoding import Decoder
from kit.training.models import model
from kit.training.steps import make_network

CPU = torch.device("cpu")


@pytest.fixture
def network():
    """Heads in groups, several layers, and weights large enough to matter."""
    torch.manual_seed(3)
    shape = model("llama", "tiny")
    network = make_network(shape, CPU, None).eval()
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(std=0.3)
    return network


def test_tokens_one_after_the_other_score_as_all_at_once(network):
    tokens = torch.randint(256, (3, 12))
    with torch.inference_mode():
        truth = network(tokens)
        decoder = Decoder(network, batch=3, places=12)
        steps = [decoder.scores(tokens[:, :5], 0)]
        steps += [decoder.scores(tokens[:, place : place + 1], place) for place in range(5, 12)]
    for step, place in zip(steps, range(4, 12), strict=True):
        assert torch.allclose(step, truth[:, place], atol=1e-4)


@pytest.mark.parametrize("fault", ["forgets", "turns wrongly", "is no number"])
def test_a_wrong_cache_of_keys_shows_in_the_scores(network, fault):
    serving = Serving(network, vocabulary=256, batch=2, prompt=8)
    with torch.inference_mode():
        assert serving.wrong_scores() == 0
        read = serving.prefill

        def spoilt():
            scores = read()
            keys = serving.decoder.kept[0].keys
            if fault == "forgets":
                keys[0, :, 3] = 0
            elif fault == "turns wrongly":
                keys[0] = keys[0].roll(1, dims=-1)
            else:
                keys[1, 0, 0, 0] = float("nan")
            return scores

        serving.prefill = spoilt
        assert serving.wrong_scores() > 0


def test_tokens_of_all_sequences_count(near, benchmark_file, monkeypatch):
    monkeypatch.setattr(
        kit.timing, "seconds_per_call", lambda call, *_: Seconds([(call(), 0.5)[1]])
    )
    words = ("--smoke", "--batches=3", "--prompt=6", "--samples=1")
    ran = near(benchmark_file("infer_transformer"), *words)
    assert ran.exit_code == 0, ran.stderr
    assert ran.samples("prefill_tokens_per_s:fp32/3") == [3 * 6 / 0.5]
    assert ran.samples("decode_tokens_per_s:fp32/3") == [3 / 0.5]
    assert ran.samples("agreement:fp32/3") == [1.0]


@pytest.mark.parametrize("words", ["--prompt=16", "--batches=0", "--size=large"])
def test_parameters_that_the_model_cannot_take_are_refused(near, benchmark_file, words):
    ran = near(benchmark_file("infer_transformer"), "--smoke", words)
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)


def test_the_ceilings_are_arithmetic_for_prompts_and_memory_for_tokens(network):
    serving = Serving(network, vocabulary=256, batch=4, prompt=2)
    serving.format, weights = "bf16", sum(p.numel() for p in network.parameters())
    report = contract.Report(frozenset())
    state_ceilings(report, serving, kit.gpus.ceilings.gpu("NVIDIA H200"))
    stated = report.notes["ceilings"]
    prompts, tokens = (stated[f"{what}_tokens_per_s:bf16/4"] for what in ("prefill", "decode"))
    assert prompts["value"] == pytest.approx(989.4e12 / (2 * weights))
    assert tokens["value"] == pytest.approx(4 * 4800e9 / (2 * weights))
    state_ceilings(report, serving, None)
    assert len(stated) == 2


def test_every_gpu_serves_in_bf16_and_right(run, gpu_node, benchmark_file):
    words = ("--smoke", "--batches=2", "--samples=1")
    ran = run(benchmark_file("infer_transformer"), *words, env=gpu_node(2).environment())
    assert ran.exit_code == 0, ran.stderr
    series = {(s["metric"], s["device"]): s["samples"] for s in ran.document["series"]}
    assert {device for _, device in series} == {"cuda:0", "cuda:1"}
    assert series["agreement:bf16/2", "cuda:1"] == [1.0]
