"""Cox-Time against pycox, on published data, and against the formula written out."""

import csv
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from pycox.models.cox_time import MLPVanillaCoxTime

from anubis.core.errors import RiskError
from anubis.core.history.status import Statuses, Uptimes
from anubis.models.risk import cox_time_training
from anubis.models.risk.cox_time import CoxTime
from anubis.models.risk.determinism import alone
from anubis.models.risk.evaluation import score
from anubis.models.risk.perceptron import Scale
from anubis.models.risk.risk_model import learnable
from anubis.models.risk.splits import separate, take
from tests.risk.known_hazard import NO_SIGNAL, KnownHazard, uptimes


def published(file: Path) -> Uptimes:
    with file.open() as lines:
        head, *rows = csv.reader(lines)
    table = np.array([row[:-1] for row in rows], dtype=float)
    statuses = Statuses(
        covariates=tuple(head[:-3]),
        nodes=tuple(map(str, range(len(table)))),
        at=np.zeros(len(table)),
        values=table[:, :-2],
    )
    return Uptimes(statuses=statuses, duration_h=table[:, -2], observed=table[:, -1] == 1)


def assert_those_of_pycox(data: Uptimes) -> None:
    data = take(data, np.arange(len(data)) < 400)
    scale, clock = (
        Scale.from_table(data.statuses.values),
        Scale.from_table(data.duration_h[:, None]),
    )
    x, scaled = scale.apply(data.statuses.values), clock.apply(data.duration_h[:, None])[:, 0]
    model = cox_time_training.fit(x, scaled, data.observed, data.statuses.nodes, 0)
    asked = take(data, np.arange(len(data)) % 40 == 7)
    order = np.lexsort((~data.observed, scaled))  # or pycox miscounts who is at risk at ties
    x, ends, observed = (part[order].astype("float32") for part in (x, scaled, data.observed))
    with alone(0):
        model.compute_baseline_hazards(x, (ends, observed))
        known = model.predict_surv(scale.apply(asked.statuses.values).astype(np.float32))
    ours = CoxTime.around(model.net.network(), data, scale, clock)
    hazard = ours.cumulative_hazard(asked.statuses, np.unique(data.duration_h))
    np.testing.assert_allclose(np.exp(-hazard), known, atol=1e-3)


def test_a_stack_of_networks_computes_and_learns_as_each_network_of_pycox():
    """A step of training and a forecast, with the same weights, and with nothing dropped."""
    rng = np.random.default_rng(0)
    with alone(0):
        nets = [MLPVanillaCoxTime(4, [32, 32], batch_norm=True) for _ in range(3)]
        stack = cox_time_training.NetworkStack(3, 5, rng)
        rows = torch.rand(2, 64, 3, 5)
    for layer in (stack.first, stack.second):
        layer._mask = torch.ones  # nothing is dropped
    for number, net in enumerate(nets):
        load_weights_of_pycox(stack, number, net)
    for inputs in rows:
        out = stack(inputs[..., :-1], inputs[..., -1:])
        own = [net(inputs[:, n, :-1], inputs[:, n, -1:]) for n, net in enumerate(nets)]
        torch.testing.assert_close(out, torch.cat(own, dim=1))
        (out**2).sum().backward()
        for result in own:
            (result**2).sum().backward()
        for number, net in enumerate(nets):
            theirs = net.net.net[0].linear.weight.grad
            torch.testing.assert_close(
                stack.first.weight.grad[number], theirs, atol=1e-4, rtol=1e-4
            )
    stack.eval()
    asked = rows[0, :, 0]
    own = [net.eval()(asked[:, :-1], asked[:, -1:]) for net in nets]
    mean = torch.stack(own).mean(dim=0)
    torch.testing.assert_close(stack(asked[:, :-1], asked[:, -1:]), mean)
    folded = stack.network().relative_risk(asked[:, :-1].numpy(), np.array([0.5]))
    half = torch.full((64, 1), 0.5)
    np.testing.assert_allclose(
        np.log(folded), stack(asked[:, :-1], half).detach().numpy(), atol=1e-4
    )


def load_weights_of_pycox(stack, number, net):
    first, second, last = net.net.net
    with torch.no_grad():
        for ours, theirs in ((stack.first, first), (stack.second, second)):
            ours.weight[number] = theirs.linear.weight
            ours.bias[number, :, 0] = theirs.linear.bias
        stack.last[number] = last.weight


@pytest.mark.long
def test_chances_of_made_uptimes_are_those_of_pycox_within_a_thousandth():
    assert_those_of_pycox(learnable(uptimes(KnownHazard(), nodes=40, seed=5)))


@pytest.mark.twin("test_chances_of_made_uptimes_are_those_of_pycox_within_a_thousandth")
@pytest.mark.parametrize("name", ["metabric", "support"])
@pytest.mark.long
def test_chances_are_those_of_pycox_within_a_thousandth(real, name):
    assert_those_of_pycox(learnable(published(real(f"survival/{name}.csv"))))


@pytest.mark.twin("test_the_network_comes_close_to_the_truth_and_leaves_the_exponentials_behind")
@pytest.mark.long
def test_concordance_on_published_data_is_the_published_one(real):
    """For an untuned Cox-Time, the mean of five folds; here of three of them.
    scripts/studies/show-risk takes all five, and the larger published data as well."""
    data = learnable(published(real("survival/metabric.csv")))
    fold = np.random.default_rng(0).permutation(len(data)) % 5
    parts = [separate(data, fold == one) for one in range(3)]
    found = [score(CoxTime.fit(train, 0), "random", 0, test).concordance for train, test in parts]
    assert np.mean(found) == pytest.approx(0.655, abs=0.02)


@pytest.mark.long
def test_with_few_incidents_the_formula_written_out_gives_the_same():
    data = uptimes(KnownHazard(), nodes=30, seed=1)
    x = Scale.from_table(data.statuses.values).apply(data.statuses.values)
    model = CoxTime.fit(data, seed=0)
    t, d = data.duration_h, data.observed
    total = np.zeros(len(data))
    for at in np.unique(t[d]):
        risk = model.network.relative_risk(x, model.clock.apply(np.array([[at]]))[0])[:, 0]
        total += np.sum(d & (t == at)) / risk[t >= at].sum() * risk
    found = model.cumulative_hazard(data.statuses, np.array([0.0, t[d].max()]))[:, 1]
    np.testing.assert_allclose(np.exp(-found), np.exp(-total), atol=1e-3)


def test_training_leaves_the_global_generators_threads_and_folder_as_they_were(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    np.random.seed(7)
    expected = torch.rand(1), np.random.random()
    torch.manual_seed(7)
    np.random.seed(7)
    threads = torch.get_num_threads()
    CoxTime.fit(uptimes(KnownHazard(), nodes=20, seed=2), seed=0)
    assert (torch.rand(1), np.random.random()) == expected
    assert torch.get_num_threads() == threads
    assert not list(tmp_path.iterdir())


def test_early_stopping_watches_nodes_that_were_not_trained_on():
    names = [f"n{i % 10}" for i in range(100)]
    parts = list(cox_time_training.held_out(names, seed=0))
    assert np.array_equal(np.sum(parts, axis=0), np.ones(100))  # each is held out once
    for held in parts:
        inside = {name for name, out in zip(names, held, strict=True) if out}
        assert len(inside) == 2
        assert inside.isdisjoint(name for name, out in zip(names, held, strict=True) if not out)


@pytest.mark.parametrize("incidents", [3, 1_000, 8_192, 8_193, 30_000])
def test_early_stopping_looks_at_long_uptimes_as_at_short_ones(incidents):
    """Incidents are sorted by the length of their uptimes."""
    numbers = cox_time_training.validated(incidents) % incidents
    counts = np.histogram(numbers, bins=3, range=(0, incidents))[0]
    assert counts.min() >= counts.max() / 2
    assert numbers.size == min(10 * incidents, 8_192)


@pytest.mark.long
def test_training_ends_before_the_network_learns_chance():
    """All nodes have one rate; watching the nodes it is trained on, it would say twice as much."""
    spread = []
    for seed in range(2):
        data = uptimes(NO_SIGNAL, nodes=60, seed=seed)
        hazard = CoxTime.fit(data, seed).cumulative_hazard(data.statuses, np.array([0.0, 720.0]))
        spread.append(np.log(hazard[:, 1]).std())
    assert np.mean(spread) < 0.2


def test_too_few_incidents_are_refused_with_their_number():
    data = uptimes(KnownHazard(), nodes=30, seed=1)
    few = dataclasses.replace(data, observed=data.observed & (np.arange(len(data)) < 20))
    with pytest.raises(RiskError, match="uptimes ended in an incident, expected at least 30"):
        CoxTime.fit(few, seed=0)
