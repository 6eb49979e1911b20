"""A small GPT-2-shaped training loop, device by device: forward, backward, AdamW, every step timed.

The tokens are drawn at random once: no disk, no tokenizer, nothing but the machine to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import contract

if TYPE_CHECKING:
    import torch
    from _model import Shape

BENCHMARK = contract.Benchmark(
    name="train_transformer",
    version="1",
    summary="Trains a small GPT-2-shaped transformer.",
    stresses="matrix units, memory, kernel launches and the host together",
    reveals="what micro-benchmarks miss: jitter, slow hosts, throttling under a mixed load",
    level="end-to-end",
    scope="node",
    duration_s=8.0,
    metrics=(
        contract.Metric(
            "samples_per_s", "1/s", "higher", summary="sequences trained on per second, per step"
        ),
        contract.AGREEMENT,
    ),
    parameters=(
        contract.Parameter("steps", 30, "timed steps", smoke=3, at_least=1),
        contract.Parameter("warmup", 0, "steps to drop after the first few", at_least=0),
        contract.Parameter("batch", 8, "sequences per step", smoke=2, at_least=1),
        contract.Parameter("layers", 0, "0: 12 on a GPU, 2 on a CPU", smoke=1, at_least=0),
        contract.Parameter(
            "width", 0, "a multiple of 64; 0: 768 on a GPU, 256 on a CPU", smoke=64, at_least=0
        ),
        contract.Parameter(
            "context", 0, "tokens per sequence; 0: 1024 on a GPU, 64 on a CPU", smoke=16, at_least=0
        ),
    ),
)


def measure(
    report: contract.Report,
    steps: int,
    warmup: int,
    batch: int,
    layers: int,
    width: int,
    context: int,
) -> None:
    from _model import Shape
    from _timing import devices, time_calls

    if width % 64:
        raise contract.BadParameter(f'width cannot be "{width}": heads are 64 wide, use a multiple')
    for device in devices():
        cuda = device.type == "cuda"
        shape = Shape(
            layers=layers or (12 if cuda else 2),
            width=width or (768 if cuda else 256),
            context=context or (1024 if cuda else 64),
            vocabulary=50304 if cuda else 4096,
        )
        report.note(layers=shape.layers, width=shape.width, context=shape.context)
        training = Training(shape, batch, device)
        seconds = time_calls(training.step, device, samples=warmup + steps, calls=1)[warmup:]
        report.add("samples_per_s", str(device), [batch / s for s in seconds])
        report.add("agreement", str(device), contract.agreement(int(training.not_finite)))


class Training:
    """bf16 with fp32 weights on a GPU, fp32 on a CPU. Counts the steps whose loss is no number."""

    def __init__(self, shape: Shape, batch: int, device: torch.device) -> None:
        import torch
        from _model import LanguageModel

        torch.manual_seed(0)
        cuda = device.type == "cuda"
        self.model = LanguageModel(shape).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)
        self.precision = torch.autocast(device.type, dtype=torch.bfloat16, enabled=cuda)
        self.tokens = torch.randint(shape.vocabulary, (batch, shape.context + 1), device=device)
        self.not_finite = torch.zeros((), dtype=torch.int64, device=device)

    def step(self) -> None:
        with self.precision:
            loss = self.model(self.tokens)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.not_finite += ~loss.detach().isfinite()  # stays on the device: nobody waits for it


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
