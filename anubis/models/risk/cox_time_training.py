"""Trains Cox-Time's network with pycox: the one place that knows pycox, torchtuples and torch.

Their habits to work around: they draw from numpy's and torch's global generators, leave their best
weights in a file of the working folder, take a GPU unasked and print; two threads make a small
network 20 times slower than one; equal durations are sorted in no certain order; they index tensors
in a way that torch warns of. Only their training is used: cox_time.py computes the hazards, and
files.py saves the weights without torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torchtuples
from pycox.models import CoxTime
from pycox.models.cox_time import MLPVanillaCoxTime

from anubis.core.arrays import Flags, Floats, Floats32
from anubis.core.errors import RiskError
from anubis.core.history.status import Times
from anubis.models.risk.determinism import alone
from anubis.models.risk.perceptron import HazardNetwork

HIDDEN = (32, 32)  # as in pycox's example of Cox-Time
DROPOUT = 0.1  # as in pycox's example of Cox-Time
LEARNING_RATE = 0.01  # a third of it was steadier on a known hazard and worse on real failures
EPOCHS = 256  # never reached: training ends when held-out nodes get worse
PATIENCE = 10  # epochs without a better loss of held-out nodes
NETWORKS = 5  # each without a fifth of the nodes: what one learns by chance, the others do not
STEPS_PER_EPOCH = 100  # so batches are larger if there are more incidents
SMALLEST_BATCH = 256  # incidents
VALIDATION_DRAWS = 10  # each incident is compared with so many nodes still at risk


def train(
    x: Floats, clock: Times, observed: Flags, nodes: Sequence[str], seed: int
) -> HazardNetwork:
    """Stack of several networks to be averaged, each from its best epoch on the nodes held out."""
    parts = (held_out(nodes, seed, number) for number in range(NETWORKS))
    telling = [part for part in parts if observed[part].any() and observed[~part].any()]
    if not telling:
        raise RiskError("all incidents are of a few nodes, so that no others can confirm them")
    return HazardNetwork.stack(
        _train_one(x, clock, observed, part, seed * NETWORKS + number)
        for number, part in enumerate(telling)
    )


def _train_one(x: Floats, clock: Times, observed: Flags, held: Flags, seed: int) -> HazardNetwork:
    with alone(seed), TemporaryDirectory() as folder:
        net = MLPVanillaCoxTime(x.shape[1], HIDDEN, batch_norm=True, dropout=DROPOUT)
        model = CoxTime(net, torchtuples.optim.Adam(LEARNING_RATE), device="cpu")
        fit(model, x, clock, observed, held, Path(folder))
        return network_of(net)


def fit(
    model: CoxTime, x: Floats, clock: Times, observed: Flags, held: Flags, folder: Path
) -> None:
    stop = torchtuples.callbacks.EarlyStopping(patience=PATIENCE, file_path=str(folder / "best.pt"))
    batch = max(SMALLEST_BATCH, int(np.count_nonzero(observed & ~held) / STEPS_PER_EPOCH))
    validation = torchtuples.tuplefy(*as_pycox_wants(x, clock, observed, held))
    model.fit(
        *as_pycox_wants(x, clock, observed, ~held),
        batch_size=batch,
        epochs=EPOCHS,
        callbacks=[stop],
        verbose=False,
        val_data=validation.repeat(VALIDATION_DRAWS).cat(),
    )


def held_out(nodes: Sequence[str], seed: int, number: int = 0) -> Flags:
    """Flags of all uptimes of some nodes: one uptime of a node says much about its others. Each
    node is held out of one of the networks."""
    names = np.random.default_rng(seed).permutation(np.unique(nodes))
    return np.isin(np.asarray(nodes), names[number % names.size :: NETWORKS])


def network_of(net: MLPVanillaCoxTime) -> HazardNetwork:
    """Network with the weights, each batch normalisation folded into the layer after it."""
    net.eval()
    first, second, last = net.net.net
    second_weight, second_bias = _fold(first.batch_norm, second.linear)
    last_weight, last_bias = _fold(second.batch_norm, last)
    return HazardNetwork(
        first=_array(first.linear.weight.T),
        first_bias=_array(first.linear.bias),
        second=second_weight,
        second_bias=second_bias,
        last=last_weight,
        last_bias=last_bias,
    )


def _fold(norm: torch.nn.BatchNorm1d, linear: torch.nn.Linear) -> tuple[Floats32, Floats32]:
    weights = norm.state_dict()
    factor = weights["weight"] / torch.sqrt(weights["running_var"] + norm.eps)
    shift = weights["bias"] - weights["running_mean"] * factor
    bias = linear.weight @ shift + (0 if linear.bias is None else linear.bias)
    return _array((linear.weight * factor).T), _array(bias)


def _array(tensor: torch.Tensor) -> Floats32:
    return np.ascontiguousarray(tensor.detach().numpy())


def as_pycox_wants(x: Floats, clock: Times, observed: Flags, rows: Flags) -> tuple[object, object]:
    """Inputs for pycox in a definite order: by time, incidents first, then by status."""
    chosen = np.flatnonzero(rows)
    order = np.lexsort((*x[chosen].T, ~observed[chosen], clock[chosen]))
    kept = chosen[order]
    single = np.float32
    return x[kept].astype(single), (clock[kept].astype(single), observed[kept].astype(single))
