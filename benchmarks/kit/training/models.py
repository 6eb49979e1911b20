"""The models of the training programs: their published shapes, and smaller ones of the same code.

The batches are fixed numbers, never "what fits", so that two GPUs compare. They were chosen for
80 GB. Without torch, because `--describe` asks for the names.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed import ProcessGroup

SIZES = ("published", "reduced", "tiny")


@dataclass(frozen=True, kw_only=True)
class Model:
    code: str  # file and class
    shape: Mapping[str, Any]  # what the class takes, beside `classes` or its like
    data: Literal["pictures", "sequences", "tokens"]
    length: int  # pixels along an edge; vectors or tokens of a sequence
    classes: int  # or the vocabulary
    batch: int  # per rank

    @property
    def spread(self) -> bool:
        """True if it has parts of its own on each rank, so that it must know the group when it is
        made."""
        return self.code == "kit.training.moe:MoE"

    @property
    def causal(self) -> bool:
        return self.data == "tokens" and self.code != "kit.training.transformers:BERT"

    def build(self, group: ProcessGroup | None = None) -> nn.Module:
        file, _, name = self.code.partition(":")
        extent: dict[str, Any] = {"classes": self.classes}
        if self.data == "tokens":
            extent = {"vocabulary": self.classes, "context": self.length}
        if self.spread:
            extent["group"] = group
        network: nn.Module = getattr(importlib.import_module(file), name)(**self.shape, **extent)
        return network


def _sizes(published: Model, reduced: Mapping[str, Any], tiny: Mapping[str, Any]) -> list[Model]:
    """Return the published model, and again with some numbers made smaller."""

    def change(numbers: Mapping[str, Any]) -> Model:
        fields = {**vars(published), **numbers}
        return Model(**fields | {"shape": {**published.shape, **numbers["shape"]}})

    return [published, change(reduced), change(tiny)]


def _cnn(code: str, blocks: tuple[int, ...], **widths: int) -> list[Model]:
    """Return sizes of a network; smaller means narrower and fewer pixels, at the full depth."""
    return _sizes(
        Model(
            code=code,
            shape={"blocks": blocks, **widths},
            data="pictures",
            length=224,
            classes=1000,
            batch=64,
        ),
        {"shape": {k: v // 4 for k, v in widths.items()}, "length": 64, "classes": 100, "batch": 4},
        {"shape": {k: v // 8 for k, v in widths.items()}, "length": 32, "classes": 10, "batch": 2},
    )


def _transformer(code: str, context: int, vocabulary: int, batch: int, **shape: int) -> list[Model]:
    """Return sizes of a network; smaller means fewer layers as well: a sixth of them, then one."""
    small: dict[str, dict[str, int]] = {
        "reduced": {"width": 256, "heads": 4, "groups": 2, "hidden": 512, "experts": 8},
        "tiny": {"width": 32, "heads": 2, "groups": 1, "hidden": 64, "experts": 4},
    }
    smaller = {name: {k: v for k, v in new.items() if k in shape} for name, new in small.items()}
    return _sizes(
        Model(
            code=code, shape=shape, data="tokens", length=context, classes=vocabulary, batch=batch
        ),
        {
            "shape": {**smaller["reduced"], "layers": shape["layers"] // 6},
            "length": 64,
            "classes": 4096,
            "batch": 4,
        },
        {"shape": {**smaller["tiny"], "layers": 1}, "length": 16, "classes": 256, "batch": 2},
    )


CNNS = {
    "resnet50": _cnn("kit.training.resnet:ResNet", (3, 4, 6, 3), width=64),
    "resnet101": _cnn("kit.training.resnet:ResNet", (3, 4, 23, 3), width=64),
    "resnet152": _cnn("kit.training.resnet:ResNet", (3, 8, 36, 3), width=64),
    "densenet169": _cnn("kit.training.densenet:DenseNet", (6, 12, 32, 32), growth=32),
    "densenet201": _cnn("kit.training.densenet:DenseNet", (6, 12, 48, 32), growth=32),
    "vgg11": _cnn("kit.training.vgg:VGG", (1, 1, 2, 2, 2), width=64, hidden=4096),
    "vgg13": _cnn("kit.training.vgg:VGG", (2, 2, 2, 2, 2), width=64, hidden=4096),
    "vgg16": _cnn("kit.training.vgg:VGG", (2, 2, 3, 3, 3), width=64, hidden=4096),
    "vgg19": _cnn("kit.training.vgg:VGG", (2, 2, 4, 4, 4), width=64, hidden=4096),
}

LSTMS = {
    "lstm": _sizes(
        Model(
            code="kit.training.lstm:LSTM",
            shape={"features": 256, "width": 1024, "layers": 8},
            data="sequences",
            length=512,
            classes=100,
            batch=64,
        ),
        {"shape": {"width": 128, "layers": 2}, "length": 32, "batch": 8},
        {"shape": {"features": 8, "width": 16, "layers": 1}, "length": 8, "batch": 2},
    )
}

TRANSFORMERS = {
    "bert_base": _transformer(
        "kit.training.transformers:BERT", 512, 30522, 32, layers=12, width=768, heads=12
    ),
    "bert_large": _transformer(
        "kit.training.transformers:BERT", 512, 30522, 16, layers=24, width=1024, heads=16
    ),
    "gpt2_small": _transformer(
        "kit.training.transformers:GPT2", 1024, 50257, 8, layers=12, width=768, heads=12
    ),
    "gpt2_large": _transformer(
        "kit.training.transformers:GPT2", 1024, 50257, 4, layers=36, width=1280, heads=20
    ),
    # the shape of Llama 3.2 1B
    "llama": _transformer(
        "kit.training.transformers:Llama",
        2048,
        128256,
        2,
        layers=16,
        width=2048,
        heads=32,
        groups=8,
        hidden=8192,
    ),
    "moe": _transformer(
        "kit.training.moe:MoE",
        2048,
        32000,
        4,
        layers=8,
        width=1024,
        heads=16,
        groups=4,
        hidden=1024,
        experts=32,
    ),
}

EVERY = CNNS | LSTMS | TRANSFORMERS


def model(name: str, size: str) -> Model:
    return EVERY[name][SIZES.index(size)]
