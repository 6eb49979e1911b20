"""Trains Cox-Time's networks with pycox, all side by side: the one place that knows pycox,
torchtuples and torch.

pycox compares each incident with one uptime that was still at risk at its time, again and again:

    loss = mean over incidents of log(1 + exp(g(other, t) - g(own, t)))

It trains what it takes for one network. That is a stack of small ones here, because each step of a
single one costs pycox ten times what it computes.

Their habits to work around: they draw from numpy's and torch's global generators, take a GPU
unasked and print; two threads make a small network 20 times slower than one. Only their training is
used: cox_time.py computes the hazards, and risk_files.py saves the weights without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torchtuples
from pycox.models import CoxTime
from torch import Tensor
from torch.nn import Parameter, functional
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset, Sampler

from anubis.core.arrays import Flags, Floats, Ints
from anubis.core.errors import RiskError
from anubis.core.history.status import Times
from anubis.models.risk.determinism import alone
from anubis.models.risk.perceptron import LAYERS, HazardNetwork

HIDDEN = 32  # cells of each of two layers, as in pycox's example of Cox-Time
DROPOUT = 0.1  # as in pycox's example of Cox-Time
MASKS = 8  # times as many drawn cells as a layer needs: each step takes a random stretch of them
LEARNING_RATE = 0.01  # at first; it falls to nothing along half a cosine
EPOCHS = 12  # at a rate that stays, twice as many were needed, and chance decided which was best
NETWORKS = 5  # each without a fifth of the nodes: what one learns by chance, the others do not
BATCH = 256  # incidents
STEPS = (5, 50)  # of an epoch, at least and at most: of more incidents, each epoch takes others
VALIDATION_DRAWS = 10  # each held-out incident is compared with so many nodes still at risk
VALIDATION_PAIRS = 8192  # at most, the same at each epoch: so chance stops nothing


def train(
    x: Floats, clock: Times, observed: Flags, nodes: Sequence[str], seed: int
) -> HazardNetwork:
    """Stack of several networks to be averaged, each from its best epoch on the nodes held out."""
    network: HazardNetwork = fit(x, clock, observed, nodes, seed).net.network()
    return network


def fit(x: Floats, clock: Times, observed: Flags, nodes: Sequence[str], seed: int) -> CoxTime:
    """Trained model of pycox, around a stack of networks."""
    parts = held_out(nodes, seed)
    telling = [part for part in parts if observed[part].any() and observed[~part].any()]
    if not telling:
        raise RiskError("all incidents are of a few nodes, so that no others can confirm them")
    rng = np.random.default_rng(seed)
    table = torch.from_numpy(np.column_stack([x, clock]).astype(np.float32))
    learned, held = (
        IncidentPairs(
            table, [IncidentsAtRisk.from_uptimes(clock, observed, part) for part in chosen], rng
        )
        for chosen in ([~part for part in telling], telling)
    )
    with alone(seed):
        stack = NetworkStack(len(telling), table.shape[1], rng)
        return _fit(stack, learned, held, rng)


def _fit(
    stack: NetworkStack, learned: IncidentPairs, held: IncidentPairs, rng: np.random.Generator
) -> CoxTime:
    adam = torch.optim.Adam(stack.parameters(), LEARNING_RATE, fused=True)
    model = CoxTime(stack, torchtuples.optim.OptimWrap(adam), device="cpu")
    batches = DataLoader(learned, batch_size=None, sampler=Batches(len(learned), rng))
    callbacks = [Annealing(adam, len(batches)), BestEpochs(stack, held[validated(len(held))])]
    model.fit_dataloader(batches, EPOCHS, callbacks, verbose=False)
    stack.eval()
    return model


def validated(incidents: int) -> Ints:
    """Numbers of the held-out incidents to compare: each several times or, of very many, evenly
    from the shortest uptime to the longest."""
    count = min(VALIDATION_DRAWS * incidents, VALIDATION_PAIRS)
    if incidents <= count:
        return np.arange(count)
    return np.linspace(0, incidents, count, endpoint=False).astype(np.int64)


def held_out(nodes: Sequence[str], seed: int) -> Iterator[Flags]:
    """Flags of all uptimes of some nodes, for each network: one uptime of a node says much about
    its others. Each node is held out of one of the networks."""
    names, node = np.unique(np.asarray(nodes), return_inverse=True)
    drawn = np.random.default_rng(seed).permutation(names.size)
    for number in range(NETWORKS):
        yield np.isin(node, drawn[number % names.size :: NETWORKS])


# --- what is compared ------------------------------------------------------------------------


@dataclass(frozen=True)
class IncidentsAtRisk:
    """Incidents of some uptimes, and the uptimes that were at risk at their times."""

    rows: Ints  # of all these uptimes, the shortest first
    own: Ints  # the row of each incident
    first: Ints  # the place in `rows` of the first uptime that is as long

    @classmethod
    def from_uptimes(cls, clock: Times, observed: Flags, chosen: Flags) -> IncidentsAtRisk:
        rows = np.flatnonzero(chosen)
        rows = rows[np.argsort(clock[rows], kind="stable")]
        own = rows[observed[rows]]
        return cls(rows, own, np.searchsorted(clock[rows], clock[own], side="left"))

    def pairs(self, numbers: Ints, rng: np.random.Generator) -> Ints:
        """Rows of these incidents, and for each of them a row that is still at risk."""
        first = self.first[numbers]
        controls = first + (rng.random(first.size) * (self.rows.size - first)).astype(np.int64)
        return np.stack([self.own[numbers], self.rows[controls]])


Inputs = tuple[Tensor, Tensor]  # covariates and time
Compared = tuple[Inputs, tuple[Inputs]]  # of incidents; of the others


class IncidentPairs(Dataset[object]):
    """What pycox compares, for all networks at once: rows, networks, covariates and the time."""

    def __init__(
        self, table: Tensor, incidents: Sequence[IncidentsAtRisk], rng: np.random.Generator
    ) -> None:
        self._table, self._incidents, self._rng = table, incidents, rng

    def __len__(self) -> int:
        return max(incidents.own.size for incidents in self._incidents)

    def __getitem__(self, numbers: Ints) -> Compared:
        """Inputs of incidents and of the others. A network with fewer of them begins again."""
        drawn = [part.pairs(numbers % part.own.size, self._rng) for part in self._incidents]
        own, control = self._table[torch.from_numpy(np.stack(drawn, axis=-1))]
        clock = own[..., -1:]
        pairs: Compared = torchtuples.tuplefy((own[..., :-1], clock), ((control[..., :-1], clock),))
        return pairs


class Batches(Sampler[Ints]):
    """Numbers of incidents in a new order at each epoch, cut into equal batches."""

    def __init__(self, incidents: int, rng: np.random.Generator) -> None:
        self._incidents, self._rng = incidents, rng
        self._batch = min(incidents, BATCH)
        self._steps = int(np.clip(-(-incidents // self._batch), *STEPS))

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Ints]:
        order = self._rng.permutation(self._incidents)
        return iter(np.resize(order, (self._steps, self._batch)))


class Annealing(torchtuples.callbacks.Callback):  # type: ignore[misc] # torchtuples has no types
    def __init__(self, adam: torch.optim.Adam, steps: int) -> None:
        self._schedule = CosineAnnealingLR(adam, EPOCHS * steps)

    def on_batch_end(self) -> None:
        self._schedule.step()


class BestEpochs(torchtuples.callbacks.Callback):  # type: ignore[misc] # torchtuples has no types
    """Keeps each network as it was when it predicted its held-out nodes best."""

    def __init__(self, stack: NetworkStack, held: Compared) -> None:
        self._stack = stack
        self._own, (self._control,) = held
        self._kept = {name: values.clone() for name, values in stack.state_dict().items()}
        self._best = np.full(stack.networks, np.inf)

    def on_epoch_end(self) -> None:
        loss = self._loss()
        better = loss < self._best
        self._best[better] = loss[better]
        for name, values in self._stack.state_dict().items():
            self._kept[name][better] = values[better]

    def on_fit_end(self) -> None:
        self._stack.load_state_dict(self._kept)

    def _loss(self) -> Floats:
        self._stack.eval()
        with torch.no_grad():
            gained = self._stack(*self._own) - self._stack(*self._control)
        self._stack.train()
        losses: Floats = functional.softplus(-gained).mean(dim=0).numpy()
        return losses


# --- the networks ----------------------------------------------------------------------------


class NetworkStack(torch.nn.Module):
    """Several networks like pycox's MLPVanillaCoxTime, side by side."""

    def __init__(self, networks: int, inputs: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.networks = networks
        self.first = Layer(networks, inputs, rng)
        self.second = Layer(networks, HIDDEN, rng)
        self.last = Parameter(_even(networks, 1, HIDDEN))

    def forward(self, covariates: Tensor, clock: Tensor) -> Tensor:
        """g of each network for rows of its own. For rows that are the same for all, as pycox
        gives them when it predicts, the mean."""
        inputs = torch.cat([covariates, clock], dim=-1)
        if inputs.dim() == 3:
            return self._evaluate(inputs.permute(1, 2, 0))
        return self._evaluate(inputs.T.expand(self.networks, -1, -1)).mean(1, keepdim=True)

    def _evaluate(self, inputs: Tensor) -> Tensor:
        """A row for each row. The inputs are networks, columns, rows."""
        logs: Tensor = (self.last @ self.second(self.first(inputs)))[:, 0]
        return logs.T

    def network(self) -> HazardNetwork:
        """The same without the scaling, which is folded into the layer after it."""
        first, second = self.first, self.second
        with torch.no_grad():
            by_second, second_bias = first.fold_into(second.weight, second.bias)
            by_last, last_bias = second.fold_into(self.last, torch.zeros(1))
        weights = (layer.transpose(1, 2) for layer in (first.weight, by_second, by_last))
        biases = (layer[..., 0] for layer in (first.bias, second_bias, last_bias))
        layers = (layer for pair in zip(weights, biases, strict=True) for layer in pair)
        arrays = (np.ascontiguousarray(layer.detach().numpy()) for layer in layers)
        return HazardNetwork(**dict(zip(LAYERS, arrays, strict=True)))


class Layer(torch.nn.Module):
    """Linear, then what is positive, then scaled to mean 0 and spread 1; a tenth is dropped."""

    mean: Tensor
    variance: Tensor

    def __init__(self, networks: int, inputs: int, rng: np.random.Generator) -> None:
        super().__init__()
        self._rng = rng
        self._masks = torch.empty(0)
        # weights after He and others (2015), so that what is positive keeps its spread
        self.weight = Parameter(torch.randn(networks, HIDDEN, inputs) * (2 / inputs) ** 0.5)
        self.bias = Parameter(_even(networks, HIDDEN, inputs)[..., :1])
        self.factor = Parameter(torch.ones(networks, HIDDEN, 1))
        self.shift = Parameter(torch.zeros(networks, HIDDEN, 1))
        self.register_buffer("mean", torch.zeros(networks, HIDDEN, 1))
        self.register_buffer("variance", torch.ones(networks, HIDDEN, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        positive = functional.relu(torch.baddbmm(self.bias, self.weight, inputs))
        if not self.training:
            return torch.addcmul(self._offset(), positive, self._scale())
        scaled = functional.batch_norm(
            positive.view(1, self.mean.numel(), -1),
            self.mean.view(-1),
            self.variance.view(-1),
            self.factor.view(-1),
            self.shift.view(-1),
            training=True,
        )
        return scaled.view(positive.shape) * self._mask(positive.shape)

    def _mask(self, shape: torch.Size) -> Tensor:
        """Factors 0, or so large that the mean is 1. New ones cost as much as all else."""
        if self._masks.numel() < 2 * shape.numel():
            drawn = self._rng.random(MASKS * shape.numel(), np.float32) >= DROPOUT
            self._masks = torch.from_numpy(drawn) / (1 - DROPOUT)
        begin = self._rng.integers(self._masks.numel() - shape.numel())
        return self._masks[begin : begin + shape.numel()].view(shape)

    def _scale(self) -> Tensor:
        return self.factor / torch.sqrt(self.variance + 1e-5)  # as torch's batch_norm does

    def _offset(self) -> Tensor:
        return self.shift - self.mean * self._scale()

    def fold_into(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return weight * self._scale().transpose(1, 2), bias + weight @ self._offset()


def _even(networks: int, outputs: int, inputs: int) -> Tensor:
    """Weights as torch draws them: small ones, or what was never learned would tell nodes apart."""
    reach = inputs**-0.5
    return torch.empty(networks, outputs, inputs).uniform_(-reach, reach)
