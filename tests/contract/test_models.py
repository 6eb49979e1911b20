"""The models: as large as published, and computing what numpy computes from their weights."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import contract
import numpy as np
import pytest
import torch
from kit.training.densenet import DenseLayer
from kit.training.models import CNNS, EVERY, SIZES, model
from kit.training.moe import Mixture, places
from kit.training.operations import operations
from kit.training.resnet import Bottleneck
from kit.training.transformers import SwiGLU, initialize
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

pytestmark = pytest.mark.long

META = torch.device("meta")

# weights, and 1e9 multiplications with 224 pixels, as in torchvision's table of its models
CNN_TABLE = {
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51),
    "densenet169": (14_149_480, 3.36),
    "densenet201": (20_013_928, 4.29),
    "vgg11": (132_863_336, 7.61),
    "vgg13": (133_047_848, 11.31),
    "vgg16": (138_357_544, 15.47),
    "vgg19": (143_667_240, 19.63),
}
# of the published checkpoints: BertForMaskedLM, GPT2LMHeadModel, Llama 3.2 1B
TRANSFORMER_TABLE = {
    "bert_base": 109_514_298,
    "bert_large": 335_174_458,
    "gpt2_small": 124_439_808,
    "gpt2_large": 774_030_080,
    "llama": 1_235_814_400,
}


@cache
def built(name: str, size: str = "published") -> torch.nn.Module:
    with META:
        return model(name, size).build()


def weights_of(name: str, size: str = "published") -> int:
    return sum(parameter.numel() for parameter in built(name, size).parameters())


@pytest.mark.parametrize("name", CNN_TABLE)
def test_a_cnn_has_the_published_weights_and_multiplications(name):
    weights, billions = CNN_TABLE[name]
    assert weights_of(name) == weights
    picture = torch.empty(1, 3, 224, 224, device=META)
    with FlopCounterMode(display=False) as counter:
        assert built(name)(picture).shape == (1, 1000)
    assert counter.get_total_flops() / 2e9 == pytest.approx(billions, abs=0.005)


@pytest.mark.parametrize("name", TRANSFORMER_TABLE)
def test_a_transformer_has_the_published_weights(name):
    assert weights_of(name) == TRANSFORMER_TABLE[name]


def test_lstm_and_mixture_have_the_weights_of_their_formulas():
    gates = [4 * 1024 * (inside + 1024 + 2) for inside in (256, *[1024] * 7)]
    assert weights_of("lstm") == sum(gates) + 1024 * 100 + 100
    attention = 2 * 1024 * 1024 + 2 * 1024 * 256  # q and out; k and v of a quarter of the heads
    block = attention + 32 * 3 * 1024 * 1024 + 32 * 1024 + 2 * 1024
    assert weights_of("moe") == 8 * block + 32000 * 1024 + 1024


def test_every_published_model_is_in_one_of_the_tables():
    assert {*CNN_TABLE, *TRANSFORMER_TABLE, "lstm", "moe"} == set(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_smaller_sizes_are_smaller_in_every_way(name):
    published, reduced, tiny = (model(name, size) for size in SIZES)
    for large, small in ((published, reduced), (reduced, tiny)):
        assert small.length < large.length
        assert small.batch * small.length < large.batch * large.length
    weights = [weights_of(name, size) for size in SIZES]
    assert all(larger > 2 * smaller for larger, smaller in pairwise(weights))


def test_an_unknown_model_is_refused_with_those_there_are():
    assert contract.choose("models", "vgg11, resnet50", CNNS) == ["vgg11", "resnet50"]
    for text in ("", "vgg12", "gpt2_small"):
        with pytest.raises(contract.BadParameter, match="use resnet50, resnet101"):
            contract.choose("models", text, CNNS)


# --- how much arithmetic a step needs ------------------------------------------------------


def test_a_cnn_needs_thrice_its_forward_less_the_gradient_of_the_pictures():
    forward, first = 4_089_184_256, 112 * 112 * 64 * 3 * 7 * 7
    assert operations(model("resnet50", "published"), 4) == 2 * (3 * forward - first)


def test_gpt2_needs_six_operations_per_weight_and_token_and_half_a_square_of_scores():
    layers, width, length, vocabulary = 12, 768, 1024, 50257
    matrices = layers * 12 * width * width + vocabulary * width
    scores = layers * 2 * width * length * (length + 1) / 2
    assert operations(model("gpt2_small", "published"), 2) == 6 * (length * matrices + scores)


def test_bert_looks_both_ways_and_needs_the_whole_square():
    layers, width, length, vocabulary = 12, 768, 512, 30522
    matrices = layers * 12 * width * width + width * width + vocabulary * width
    scores = layers * 2 * width * length * length
    assert operations(model("bert_base", "published"), 1) == 6 * (length * matrices + scores)


def test_an_lstm_needs_its_matrices_at_every_vector():
    widths = [(256, 1024), *[(1024, 1024)] * 7]
    matrices = sum(4 * 1024 * (inside + own) for inside, own in widths)
    truth = 6 * 512 * matrices - 2 * 512 * 4 * 1024 * 256  # the inputs need no gradient
    # the first state is zero, so torch need not multiply by it backward; the head is small
    assert operations(model("lstm", "published"), 2) == pytest.approx(truth, rel=3e-3)


# --- what they compute, against numpy ------------------------------------------------------


def a(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy().astype(np.float64)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def linear(x, layer: nn.Linear):
    return x @ a(layer.weight).T + (0 if layer.bias is None else a(layer.bias))


def layer_norm(x, norm: nn.LayerNorm):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + norm.eps)
    return scaled * a(norm.weight) + a(norm.bias)


def rms_norm(x, norm: nn.RMSNorm):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + norm.eps) * a(norm.weight)


def gelu(x, approximate: str):
    """GELU by the error function or by tanh, from torch's own in fp64: elementwise, so no
    structure."""
    return a(nn.functional.gelu(torch.from_numpy(x), approximate=approximate))


def rotated(x):
    """Each pair of a head as one complex number, turned by its place."""
    length, width = x.shape
    half = width // 2
    speeds = 500_000.0 ** (-np.arange(half) / half)
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * np.outer(np.arange(length), speeds))
    return np.concatenate((turned.real, turned.imag), axis=1)


def attention(x, layer, turn=lambda head: head):
    """Attention of a sequence, head by head, score by score."""
    length, width = x.shape
    heads, groups, size = layer.heads, layer.groups, layer.head_width
    q, k, v = np.split(linear(x, layer.qkv), [heads * size, (heads + groups) * size], axis=1)
    out = np.zeros((length, width))
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        group = head // (heads // groups)
        shared = slice(group * size, (group + 1) * size)
        scores = turn(q[:, own]) @ turn(k[:, shared]).T / np.sqrt(size)
        if layer.causal:
            scores[np.triu_indices(length, 1)] = -np.inf
        out[:, own] = softmax(scores) @ v[:, shared]
    return linear(out, layer.out)


def tokens_for(network, length=9):
    torch.manual_seed(1)
    network.apply(lambda module: [nn.init.normal_(p, std=0.3) for p in module.parameters(False)])
    return torch.randint(50, (2, length))


SMALL = {"layers": 2, "width": 24, "context": 12, "vocabulary": 50}


def test_gpt2_agrees_with_numpy():
    from kit.training.transformers import GPT2

    network = GPT2(heads=3, **SMALL)
    tokens = tokens_for(network)
    for sequence, out in zip(tokens, a(network(tokens)), strict=True):
        x = a(network.tokens.weight)[sequence] + a(network.positions.weight)[: len(sequence)]
        for block in network.blocks:
            x = x + attention(layer_norm(x, block.attention_norm), block.attention)
            inner = linear(layer_norm(x, block.mlp_norm), block.mlp.up)
            x = x + linear(gelu(inner, "tanh"), block.mlp.down)
        truth = layer_norm(x, network.norm) @ a(network.tokens.weight).T
        assert out == pytest.approx(truth, rel=1e-3, abs=1e-3)


def test_bert_agrees_with_numpy():
    from kit.training.transformers import BERT

    network = BERT(heads=3, **SMALL)
    tokens = tokens_for(network)
    for sequence, out in zip(tokens, a(network(tokens)), strict=True):
        x = a(network.tokens.weight)[sequence] + a(network.positions.weight)[: len(sequence)]
        x = layer_norm(x + a(network.segments.weight)[0], network.norm)
        for block in network.blocks:
            x = layer_norm(x + attention(x, block.attention), block.attention_norm)
            inner = gelu(linear(x, block.mlp.up), "none")
            x = layer_norm(x + linear(inner, block.mlp.down), block.mlp_norm)
        dense, _, norm = network.transform
        x = layer_norm(gelu(linear(x, dense), "none"), norm)
        truth = x @ a(network.tokens.weight).T + a(network.bias)
        assert out == pytest.approx(truth, rel=1e-3, abs=1e-3)


def swiglu(x, mlp: SwiGLU):
    gate = linear(x, mlp.gate)
    return linear(gate * sigmoid(gate) * linear(x, mlp.up), mlp.down)


def test_llama_agrees_with_numpy():
    from kit.training.transformers import Llama

    network = Llama(heads=6, groups=2, hidden=40, **SMALL)
    tokens = tokens_for(network)
    for sequence, out in zip(tokens, a(network(tokens)), strict=True):
        x = a(network.tokens.weight)[sequence]
        for block in network.blocks:
            x = x + attention(rms_norm(x, block.attention_norm), block.attention, rotated)
            x = x + swiglu(rms_norm(x, block.mlp_norm), block.mlp)
        truth = rms_norm(x, network.norm) @ a(network.tokens.weight).T
        assert out == pytest.approx(truth, rel=1e-3, abs=1e-3)


def mixture(slack: float) -> Mixture:
    torch.manual_seed(2)
    shape = {"width": 8, "hidden": 12, "experts": 5, "chosen": 2}
    made = Mixture(**shape, slack=slack, group=None)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def test_a_mixture_gives_each_token_its_two_best_experts_by_weight():
    made, x = mixture(slack=5), torch.randn(3, 7, 8)
    gate, up, down = a(made.gate), a(made.up), a(made.down)
    for token, out in zip(a(x.flatten(0, 1)), a(made(x).flatten(0, 1)), strict=True):
        likings = linear(token, made.router)
        best = np.argsort(-likings)[:2]
        truth = np.zeros(8)
        for weight, expert in zip(softmax(likings[best]), best, strict=True):
            inner = token @ gate[expert]
            truth += weight * ((inner * sigmoid(inner) * (token @ up[expert])) @ down[expert])
        assert out == pytest.approx(truth, rel=1e-4, abs=1e-5)


def test_tokens_beyond_an_experts_capacity_pass_by():
    made = mixture(slack=1)
    nn.init.zeros_(made.router.weight)
    made.router.weight.data[3] = made.router.weight.data[1] = 1.0  # all want experts 1 and 3
    out = made(torch.rand(1, 20, 8))[0]
    capacity = 20 * 2 // 5
    assert (out != 0).any(dim=1).tolist() == [True] * capacity + [False] * (20 - capacity)


def test_each_token_gets_the_next_free_place_of_its_expert():
    experts = torch.tensor([2, 0, 2, 2, 1, 0])
    assert places(experts, count=3, capacity=2).tolist() == [4, 0, 5, 6, 2, 1]  # 6: no place


def test_lstm_agrees_with_numpy():
    from kit.training.lstm import LSTM

    network = LSTM(features=3, width=5, layers=2, classes=4)
    x = torch.randn(2, 6, 3)
    layers = network.layers
    for sequence, out in zip(a(x), a(network(x)), strict=True):
        for layer in range(2):
            hidden, cell, seen = np.zeros(5), np.zeros(5), []
            w, u, b, c = (
                a(getattr(layers, f"{kind}_l{layer}"))
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            for vector in sequence:
                i, f, g, o = np.split(w @ vector + b + u @ hidden + c, 4)
                cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                hidden = sigmoid(o) * np.tanh(cell)
                seen.append(hidden)
            sequence = np.array(seen)
        assert out == pytest.approx(linear(sequence[-1], network.head), rel=1e-4, abs=1e-5)


def convolve(x, layer: nn.Conv2d):
    """Batch, channel, row, column; by the sum that defines it."""
    (pad, _), (step, _), weights = layer.padding, layer.stride, a(layer.weight)
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, weights.shape[2:], axis=(2, 3))
    out = np.einsum("bcyxij,ocij->boyx", windows[:, :, ::step, ::step], weights)
    return out if layer.bias is None else out + a(layer.bias)[:, None, None]


def batch_norm(x, norm: nn.BatchNorm2d):
    mean, variance = (f(x, axis=(0, 2, 3), keepdims=True) for f in (np.mean, np.var))
    scaled = (x - mean) / np.sqrt(variance + norm.eps)
    return scaled * a(norm.weight)[:, None, None] + a(norm.bias)[:, None, None]


def relu(x):
    return np.maximum(x, 0)


@pytest.mark.parametrize(("inside", "stride"), [(16, 1), (8, 2)])
def test_a_bottleneck_of_resnet_agrees_with_numpy(inside, stride):
    block, x = Bottleneck(inside, 4, stride), torch.randn(3, inside, 6, 6)
    y = a(x)
    for part in (block.narrow, block.middle):
        y = relu(batch_norm(convolve(y, part[0]), part[1]))
    y = batch_norm(convolve(y, block.widen[0]), block.widen[1])
    short = a(x)
    if stride == 2:
        short = batch_norm(convolve(short, block.shortcut[0]), block.shortcut[1])
    assert a(block(x)) == pytest.approx(relu(y + short), rel=1e-3, abs=1e-4)


def test_a_layer_of_densenet_adds_channels_to_those_it_got():
    layer, x = DenseLayer(6, 4), torch.randn(3, 6, 5, 5)
    y = a(x)
    for part in (layer.narrow, layer.grow):
        y = convolve(relu(batch_norm(y, part[0])), part[2])
    truth = np.concatenate((a(x), y), axis=1)
    assert a(layer(x)) == pytest.approx(truth, rel=1e-3, abs=1e-4)


def test_vgg_agrees_with_numpy():
    from kit.training.vgg import VGG

    network = VGG(blocks=(1, 2), width=4, hidden=16, classes=3)
    x = torch.randn(2, 3, 28, 28)  # 7 by 7 after two poolings, as 224 after five
    y = a(x)
    for layer in network.features:
        if isinstance(layer, nn.Conv2d):
            y = relu(convolve(y, layer))
        elif isinstance(layer, nn.MaxPool2d):
            batch, channels, rows, columns = y.shape
            y = y.reshape(batch, channels, rows // 2, 2, columns // 2, 2).max(axis=(3, 5))
    y = y.reshape(2, -1)
    first, _, second, _, third = network.classifier
    truth = linear(relu(linear(relu(linear(y, first)), second)), third)
    assert a(network(x)) == pytest.approx(truth, rel=1e-3, abs=1e-3)


def test_transformers_begin_with_small_normal_weights_and_no_bias():
    torch.manual_seed(0)
    layer = nn.Linear(200, 200)
    initialize(layer)
    assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.02)
    assert not layer.bias.detach().any()
