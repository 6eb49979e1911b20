"""BERT, GPT-2 and a Llama-like decoder: one attention, three arrangements around it.

No dropout, so that a loss repeats. Weights begin normally distributed with deviation 0.02, as in
all three papers; every model's output matrix is its embedding, transposed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Rotary(nn.Module):
    """A rotation of each pair (x[i], x[i + width/2]) of a head by position * base^(-2i/width)."""

    def __init__(self, context: int, head_width: int, base: float = 500_000.0) -> None:
        super().__init__()
        pairs = torch.arange(0, head_width, 2, dtype=torch.float32) / head_width
        angles = torch.arange(context, dtype=torch.float32)[:, None] * base**-pairs
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Turn `x`, which has the shape (batch, head, position, head width)."""
        length = x.shape[-2]
        cos, sin = self.cos[:length], self.sin[:length]
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned.type_as(x)


class Attention(nn.Module):
    """Attention in which groups of heads share keys and values, if there are fewer of these
    (GQA)."""

    def __init__(
        self,
        width: int,
        heads: int,
        groups: int,
        *,
        bias: bool,
        causal: bool,
        rotary: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.head_width = heads, groups, width // heads
        self.causal = causal
        self.rotary = rotary or nn.Identity()
        self.qkv = nn.Linear(width, (heads + 2 * groups) * self.head_width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.groups, self.groups), dim=1)
        shared = self.heads // self.groups
        attended = F.scaled_dot_product_attention(
            self.rotary(q),
            self.rotary(k).repeat_interleave(shared, dim=1),
            v.repeat_interleave(shared, dim=1),
            is_causal=self.causal,
        )
        return self.out(attended.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, width: int, approximate: str) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate=self.approximate))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class PostNorm(nn.Module):
    """BERT's block: a norm after each sum."""

    def __init__(self, attention: nn.Module, mlp: nn.Module, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.attention, self.attention_norm = attention, norm()
        self.mlp, self.mlp_norm = mlp, norm()

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x))
        return self.mlp_norm(x + self.mlp(x))


class PreNorm(PostNorm):
    """GPT-2's and Llama's block: a norm before each part."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class BERT(nn.Module):
    """A network that predicts the token at every place, as BERT's masked language model does at the
    masked."""

    def __init__(
        self, *, layers: int, width: int, heads: int, context: int, vocabulary: int
    ) -> None:
        super().__init__()

        def norm() -> nn.Module:
            return nn.LayerNorm(width, eps=1e-12)

        def block() -> nn.Module:
            attention = Attention(width, heads, heads, bias=True, causal=False)
            return PostNorm(attention, MLP(width, "none"), norm)

        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.segments = nn.Embedding(2, width)
        self.norm = norm()
        self.blocks = nn.Sequential(*(block() for _ in range(layers)))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), norm())
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.apply(initialize)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = self.blocks(self.norm(x + self.segments.weight[0]))
        return F.linear(self.transform(x), self.tokens.weight, self.bias)


class GPT2(nn.Module):
    def __init__(
        self, *, layers: int, width: int, heads: int, context: int, vocabulary: int
    ) -> None:
        super().__init__()

        def block() -> nn.Module:
            attention = Attention(width, heads, heads, bias=True, causal=True)
            return PreNorm(attention, MLP(width, "tanh"), lambda: nn.LayerNorm(width))

        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(block() for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.apply(initialize)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


class Llama(nn.Module):
    """A network with rotary positions, grouped queries and RMSNorm; `mlp` makes the rest of each
    block."""

    def __init__(
        self,
        *,
        layers: int,
        width: int,
        heads: int,
        groups: int,
        context: int,
        vocabulary: int,
        hidden: int,
        mlp: Callable[[], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        rotary = Rotary(context, width // heads)
        mlp = mlp or (lambda: SwiGLU(width, hidden))

        def block() -> nn.Module:
            attention = Attention(width, heads, groups, bias=False, causal=True, rotary=rotary)
            return PreNorm(attention, mlp(), lambda: nn.RMSNorm(width, eps=1e-5))

        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(block() for _ in range(layers)))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.apply(initialize)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.norm(self.blocks(self.tokens(tokens))), self.tokens.weight)
