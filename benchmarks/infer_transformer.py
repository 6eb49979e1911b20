"""A Llama-like decoder serves prompts: reading them (prefill), and then token after token (decode).

Reading a prompt is bound by arithmetic, as training is; a token is bound by how fast all weights
come out of memory, and at small batches by the launches of kernels. What is decoded step by step
must score the next token as the network does on all tokens at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import contract
from kit.each_gpu import GPUS, each_gpu
from kit.gpus import ceilings
from kit.training.models import SIZES, model

if TYPE_CHECKING:
    from torch import Tensor, nn

BATCHES = {"cuda": "1,32", "cpu": "1,4"}
FORMATS = {2: "bf16", 4: "fp32"}  # by the bytes of a weight
TOLERANCE = {"bf16": 0.05, "fp32": 1e-3}  # of the largest score

BENCHMARK = contract.Benchmark(
    name="infer_transformer",
    version="1",
    summary="Prefill and decode of a transformer, on each device by itself.",
    stresses="matrix units (prefill), memory bandwidth and kernel launches (decode)",
    reveals="slow memory under a real load, a slow host, throttling, wrong arithmetic",
    level="end-to-end",
    duration_s=20.0,
    packages=("torch",),
    metrics=(
        contract.higher(
            "prefill_tokens_per_s",
            "1/s",
            "tokens of prompts read, by sequences at once",
            ceiling="the dense rate of the format over two operations per weight",
        ),
        contract.higher(
            "decode_tokens_per_s",
            "1/s",
            "tokens written after the prompts, by sequences at once",
            ceiling="memory bandwidth over the bytes of the weights, times the sequences",
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        GPUS,
        contract.Parameter(
            "size",
            "auto",
            f'of the model: {", ".join(SIZES)}; "auto": published, on a CPU reduced',
            smoke="tiny",
        ),
        contract.Parameter(
            "batches",
            "auto",
            f'sequences at once; "auto": {BATCHES["cuda"]} on a GPU, {BATCHES["cpu"]} on a CPU',
            more_is_stronger=True,
        ),
        contract.Parameter(
            "prompt", 0, "tokens of a prompt; 0: a quarter of the model's context", at_least=0
        ),
        contract.Parameter(
            "samples",
            20,
            "timed batches of calls",
            smoke=3,
            at_least=1,
            counts=("prefill_tokens_per_s", "decode_tokens_per_s"),
            more_is_stronger=True,
        ),
    ),
)


def measure(report: contract.Report, size: str, batches: str, prompt: int, samples: int) -> None:
    import torch
    from kit.timing import devices
    from kit.training.steps import make_network

    if size not in ("auto", *SIZES):
        raise contract.BadParameter(f'size cannot be "{size}": use auto, {", ".join(SIZES)}')
    for device in devices():
        automatic = "published" if device.type == "cuda" else "reduced"
        shape = model("llama", automatic if size == "auto" else size)
        length = prompt or shape.length // 4
        if length >= shape.length:
            raise contract.BadParameter(
                f'prompt cannot be "{prompt}": the model takes {shape.length} tokens with the next'
            )
        words = BATCHES[device.type] if batches == "auto" else batches
        report.note(prompt=length, **{f"llama_{k}": v for k, v in shape.shape.items()})
        with torch.inference_mode():
            network = halve(make_network(shape, device, None)).eval()
            for batch in contract.sizes("batches", words):
                serve(report, Serving(network, shape.classes, batch, length), samples)


def halve(network: nn.Module) -> nn.Module:
    """Return weights as they are served: in bf16 on a GPU. What turns the heads stays as it is."""
    import torch

    for parameter in network.parameters():
        if parameter.device.type == "cuda":
            parameter.data = parameter.data.to(torch.bfloat16)
    return network


def serve(report: contract.Report, serving: Serving, samples: int) -> None:
    import torch
    from kit.gpus.gpu_watch import watch_gpu
    from kit.timing import seconds_per_call

    device, name = serving.tokens.device, f"{serving.format}/{serving.batch}"
    for metric, call, tokens in (
        (f"prefill_tokens_per_s:{name}", serving.prefill, serving.batch * serving.prompt),
        (f"decode_tokens_per_s:{name}", serving.decode, serving.batch),
    ):
        with watch_gpu(report.notes, device, metric):
            seconds = seconds_per_call(call, device, samples)
        report.add(metric, str(device), [tokens / s for s in seconds], seconds.taken)
    report.add(f"agreement:{name}", str(device), contract.agreement(serving.wrong_scores()))
    if device.type == "cuda":
        card = ceilings.gpu_of(torch.cuda.get_device_properties(device))
        state_ceilings(report, serving, card)


class Serving:
    """A batch of prompts, each with its next token."""

    def __init__(self, network: nn.Module, vocabulary: int, batch: int, prompt: int) -> None:
        import torch
        from kit.training.decoding import Decoder

        self.network, self.batch, self.prompt = network, batch, prompt
        self.decoder = Decoder(network, batch, prompt + 1)
        weight = network.tokens.weight
        self.format = FORMATS[weight.dtype.itemsize]
        generator = torch.Generator(weight.device).manual_seed(batch)
        shape = (batch, prompt + 1)
        self.tokens = torch.randint(vocabulary, shape, generator=generator, device=weight.device)

    def prefill(self) -> Tensor:
        return self.decoder.scores(self.tokens[:, :-1], 0)

    def decode(self) -> Tensor:
        """Do the step after the prompts, which can be done again and again."""
        return self.decoder.scores(self.tokens[:, -1:], self.prompt)

    def wrong_scores(self) -> int:
        """Count scores of the first sequence that differ from the network's on all tokens at once,
        and scores of the others that are not numbers."""
        self.prefill()
        scores = self.decode()
        truth = self.network(self.tokens[:1])[0, -1].float()
        far = (scores[0].float() - truth).abs() > TOLERANCE[self.format] * truth.abs().max()
        return int((far | ~scores[0].isfinite()).sum() + (~scores[1:].isfinite()).sum())


def state_ceilings(report: contract.Report, serving: Serving, card: ceilings.Gpu | None) -> None:
    name = f"{serving.format}/{serving.batch}"
    weights = sum(parameter.numel() for parameter in serving.network.parameters())
    if card and serving.format in card.tflops:
        reading = card.tflops[serving.format] * 1e12 / (2 * weights)
        report.ceiling(f"prefill_tokens_per_s:{name}", reading, source=card.source)
        writing = serving.batch * card.hbm_gbps * 1e9 / (2 * weights)
        report.ceiling(f"decode_tokens_per_s:{name}", writing, source=card.source)


if __name__ == "__main__":
    contract.run(BENCHMARK, each_gpu(measure))
