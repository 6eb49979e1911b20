"""A saved model answers as before; an incomplete one is refused in one sentence."""

import dataclasses
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

from anubis.core.errors import RiskError
from anubis.models.risk import risk_files
from anubis.models.risk.evaluation import evaluate
from anubis.models.risk.forecast import HOURS
from anubis.models.risk.models import MODELS
from tests.risk.known_hazard import KnownHazard, uptimes

UPTIMES = uptimes(KnownHazard(), nodes=60, seed=3, watched_h=4000)
ORIGIN = risk_files.provenance(UPTIMES, seed=5, choice="because")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "risk.npz"
    risk_files.save(MODELS[-1].fit(UPTIMES, seed=5), ORIGIN, path)
    return path


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.long
def test_a_saved_model_answers_to_the_last_bit_as_it_did(tmp_path, model):
    before, path = model.fit(UPTIMES, seed=5), tmp_path / "deep" / "risk.npz"
    risk_files.save(before, ORIGIN, path)
    after, origin = risk_files.load(path)
    asked = UPTIMES.statuses, HOURS
    assert after.cumulative_hazard(*asked).tobytes() == before.cumulative_hazard(*asked).tobytes()
    assert (after.name, after.covariates) == (model.name, UPTIMES.statuses.covariates)
    assert (origin.incidents, origin.seed) == (int(UPTIMES.observed.sum()), 5)
    assert origin.choice == "because"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.long
def test_a_decision_says_when_its_model_takes_all_nodes_alike(tmp_path, model):
    """Alike is what two nodes get that could not be more different."""
    risk_files.save(model.fit(UPTIMES, seed=5), ORIGIN, tmp_path / "risk.npz")
    asked = risk_files.load_trained(tmp_path / "risk.npz")
    alike = np.ptp(asked.chances_within(UPTIMES.statuses, 720.0)) == 0
    assert (model.name in asked.assumed and "because" in asked.assumed) == alike
    assert bool(asked.assumed) == alike


def test_the_same_model_gives_the_same_bytes_and_other_data_another_digest(tmp_path):
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    for path in (one, two):
        risk_files.save(MODELS[3].fit(UPTIMES, seed=0), ORIGIN, path)
    assert one.read_bytes() == two.read_bytes()
    assert (
        risk_files.digest(dataclasses.replace(UPTIMES, observed=~UPTIMES.observed)) != ORIGIN.data
    )


def test_scores_are_kept_with_the_model(tmp_path):
    scores = evaluate(UPTIMES, MODELS[:2], kinds=("node",), seeds=(0,)).scores
    risk_files.save(
        MODELS[1].fit(UPTIMES, 0), risk_files.provenance(UPTIMES, 0, scores=scores), tmp_path / "x"
    )
    kept = risk_files.load(tmp_path / "x")[1].scores
    assert [(one.model, one.brier) for one in kept] == [(one.model, one.brier) for one in scores]


def test_loading_and_asking_a_network_needs_neither_torch_nor_the_evaluation(network):
    script = (
        "import sys, numpy as np; from pathlib import Path;"
        "from anubis.models.risk import risk_files as files;"
        "from anubis.models.risk.risk_model import forecast;"
        "model, _ = files.load(Path(sys.argv[1]));"
        "forecast(model, files._blank_status(model.covariates)).expected_h();"
        "heavy = {'torch', 'pycox', 'pandas', 'numba', 'scipy', 'anubis.models.risk.evaluation'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(network)], check=True)


class Explosive:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


def rewritten(path, to, head=None, drop=(), **arrays):
    """The file with another head or other arrays."""
    with np.load(path) as file:
        kept = {name: file[name] for name in file.files if name not in drop}
    document = json.loads(kept["head"].tobytes()) | (head or {})
    kept["head"] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    np.savez(to, **(kept | arrays))


def damaged(how, path, to):
    match how:
        case "cut off":
            to.write_bytes(path.read_bytes()[:-200])
        case "a byte changed":
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2] ^= 255
            to.write_bytes(bytes(raw))
        case "empty":
            to.write_bytes(b"")
        case "a pickle":
            to.write_bytes(pickle.dumps(Explosive()))
        case "a pickle inside":
            rewritten(path, to, baseline=np.array([Explosive()], dtype=object))
        case "another schema":
            rewritten(path, to, head={"schema": "anubis.risk/9"})
        case "learned without total up time":
            rewritten(path, to, head={"schema": "anubis.risk/1"})
        case "an unknown model":
            rewritten(path, to, head={"model": "cox-tame"})
        case "a covariate less":
            rewritten(path, to, head={"covariates": ["up_h"]})
        case "an array less":
            rewritten(path, to, drop=("network.last",))
        case "an array cut":
            rewritten(path, to, baseline=np.ones(3))
        case "not a number":
            rewritten(path, to, knots=np.full(126, np.nan))
        case "a word too many":
            rewritten(path, to, head={"colour": "red"})


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ("cut off", "not a complete model file"),
        ("a byte changed", "not a complete model file"),
        ("empty", "not a complete model file"),
        ("a pickle", "not a complete model file"),
        ("a pickle inside", "not a complete model file"),
        ("another schema", 'its schema is "anubis.risk/9", this Anubis reads "anubis.risk/2"'),
        (
            "learned without total up time",
            'its schema is "anubis.risk/1", this Anubis reads "anubis.risk/2"; train it again: ',
        ),
        ("an unknown model", 'unknown risk model "cox-tame"; did you mean "cox-time"?'),
        ("a covariate less", "do not fit each other"),
        ("an array less", "do not fit each other"),
        ("an array cut", "do not fit each other"),
        ("not a number", "do not fit each other"),
        ("a word too many", 'unknown key "colour"'),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(network, tmp_path, how, complaint):
    path = tmp_path / "risk.npz"
    damaged(how, network, path)
    with pytest.raises(RiskError) as refused:
        risk_files.load(path)
    assert complaint in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RiskError, match=r"there is no risk model .*gone.npz"):
        risk_files.load(tmp_path / "gone.npz")
