"""A Llama-like decoder as it is served: prompts at once, then one token after the other.

Keys and values of earlier tokens are kept, so that a new token costs one row of each product. It
multiplies by the weights of the network that training has; that network, on all tokens at once and
without a memory, must come to the same scores.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from kit.training.transformers import Attention, Llama, Rotary


class Kept:
    """Keys and values of one layer, for all places that a sequence may have."""

    def __init__(self, attention: Attention, batch: int, places: int, like: Tensor) -> None:
        shape = (batch, attention.groups, places, attention.head_width)
        self.keys, self.values = like.new_zeros(shape), like.new_zeros(shape)

    def add(self, keys: Tensor, values: Tensor, begin: int) -> tuple[Tensor, Tensor]:
        """Return all keys and values so far, with these after the first `begin`."""
        end = begin + keys.shape[2]
        self.keys[:, :, begin:end], self.values[:, :, begin:end] = keys, values
        return self.keys[:, :, :end], self.values[:, :, :end]


class Decoder:
    def __init__(self, network: Llama, batch: int, places: int) -> None:
        self.network = network
        weight = network.tokens.weight
        self.kept = [Kept(block.attention, batch, places, weight) for block in network.blocks]

    def scores(self, tokens: Tensor, begin: int) -> Tensor:
        """Return the scores of the next token after these, which begin at place `begin`."""
        x = self.network.tokens(tokens)
        for block, kept in zip(self.network.blocks, self.kept, strict=True):
            x = x + attend(block.attention, block.attention_norm(x), kept, begin)
            x = x + block.mlp(block.mlp_norm(x))
        return F.linear(self.network.norm(x[:, -1]), self.network.tokens.weight)


def attend(layer: Attention, x: Tensor, kept: Kept, begin: int) -> Tensor:
    parts = layer.qkv(x).unflatten(-1, (-1, layer.head_width)).transpose(1, 2)
    q, k, v = parts.split((layer.heads, layer.groups, layer.groups), dim=1)
    keys, values = kept.add(turn(layer.rotary, k, begin), v, begin)
    shared = layer.heads // layer.groups
    out = F.scaled_dot_product_attention(
        turn(layer.rotary, q, begin),
        keys.repeat_interleave(shared, dim=1),
        values.repeat_interleave(shared, dim=1),
        is_causal=x.shape[1] > 1,  # a single token looks at all before it
    )
    return layer.out(out.transpose(1, 2).flatten(-2))


def turn(rotary: Rotary, x: Tensor, begin: int) -> Tensor:
    """Turn heads as the network does, for places from `begin` on."""
    places = slice(begin, begin + x.shape[-2])
    cos, sin = rotary.cos[places], rotary.sin[places]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).type_as(x)
