"""A mixture of experts whose experts are spread over the ranks of a group.

Each token goes to the two experts that a router likes best, and returns: two all-to-alls per layer
on the way forward, two on the way back. Every rank may send `capacity` tokens to each expert;
further ones only pass by (GShard, Lepikhin et al., 2020). So all sizes are known beforehand, no
rank waits for a number from its GPU, and what a rank computes does not depend on how many there
are.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from kit.training.transformers import Llama

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Exchange(torch.autograd.Function):
    """An all-to-all of rows; on the way back the gradients return to the senders of the rows."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: ProcessGroup
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        back = Exchange.apply(gradients[0], ctx.received, ctx.sent, ctx.group)
        return back, None, None, None


class Mixture(nn.Module):
    def __init__(
        self,
        *,
        width: int,
        hidden: int,
        experts: int,
        chosen: int,
        slack: float,
        group: ProcessGroup | None,
    ) -> None:
        super().__init__()
        self.experts, self.chosen, self.slack, self.group = experts, chosen, slack, group
        rank, ranks = (dist.get_rank(group), dist.get_world_size(group)) if group else (0, 1)
        edges = [experts * edge // ranks for edge in range(ranks + 1)]
        self.shares = [end - start for start, end in pairwise(edges)]
        own = slice(edges[rank], edges[rank + 1])
        self.router = nn.Linear(width, experts, bias=False)

        def matrices(inside: int, outside: int) -> nn.Parameter:
            """Draw all matrices and drop the others': every expert is the same on any rank."""
            drawn = torch.randn(experts, inside, outside)[own] * 0.02
            parameter = nn.Parameter(drawn.clone())
            parameter.register_hook(lambda gradient: gradient / ranks)  # the loss is a mean
            return parameter

        self.gate = matrices(width, hidden)
        self.up = matrices(width, hidden)
        self.down = matrices(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)
        likings = self.router(tokens)
        tokens = tokens.to(likings.dtype)  # under autocast half the bytes travel
        scores, experts = likings.float().topk(self.chosen)
        capacity = math.ceil(self.slack * experts.numel() / self.experts)
        slots = places(experts.flatten(), self.experts, capacity)
        copies = tokens.repeat_interleave(self.chosen, dim=0)
        rows = self.experts * capacity
        sent = tokens.new_zeros(rows + 1, tokens.shape[1]).index_copy(0, slots, copies)
        answers = self.answer(sent[:rows], capacity)
        answers = torch.cat((answers, answers.new_zeros(1, answers.shape[1])))  # for the late
        back = answers[slots].unflatten(0, (-1, self.chosen))
        weighted = scores.softmax(-1)[..., None] * back
        return weighted.sum(dim=1).type_as(x).view_as(x)

    def answer(self, rows: Tensor, capacity: int) -> Tensor:
        """Return the experts' answers to `capacity` rows for each of them in turn."""
        if self.group is None:
            return self.compute(rows.unflatten(0, (-1, capacity))).flatten(0, 1)
        own, ranks = self.up.shape[0], len(self.shares)
        sent, received = [share * capacity for share in self.shares], [own * capacity] * ranks
        arrived = Exchange.apply(rows, sent, received, self.group)
        by_expert = arrived.unflatten(0, (ranks, own, capacity)).transpose(0, 1).flatten(1, 2)
        answers = self.compute(by_expert).unflatten(1, (ranks, capacity)).transpose(0, 1)
        return Exchange.apply(answers.flatten(0, 2), received, sent, self.group)

    def compute(self, x: Tensor) -> Tensor:
        """Compute SwiGLU of each expert, all experts of this rank in one batched product."""
        return torch.bmm(F.silu(torch.bmm(x, self.gate)) * torch.bmm(x, self.up), self.down)


def places(experts: Tensor, count: int, capacity: int) -> Tensor:
    """Return a row for each token: the next free one of its expert, or the last row when it is
    full."""
    wants = F.one_hot(experts, count)
    turn = (wants.cumsum(0) * wants).sum(1) - 1
    last = count * capacity
    return torch.where(turn < capacity, experts * capacity + turn, last)


class MoE(Llama):
    """A Llama-like decoder with a mixture of experts in every block."""

    def __init__(
        self,
        *,
        experts: int,
        chosen: int = 2,
        slack: float = 1.25,
        group: ProcessGroup | None = None,
        **shape: Any,
    ) -> None:
        mixture = partial(
            Mixture,
            width=shape["width"],
            hidden=shape["hidden"],
            experts=experts,
            chosen=chosen,
            slack=slack,
            group=group,
        )
        super().__init__(**shape, mlp=mixture)
        kinds = ("gate", "up", "down")
        named = [name for name, _ in self.named_parameters() if name.rpartition(".")[2] in kinds]
        self.own_weights = frozenset(named if group else ())
