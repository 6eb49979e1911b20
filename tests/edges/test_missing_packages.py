"""A function that needs a missing Python package fails with one sentence; all others work."""

from __future__ import annotations

import sys

import pytest

from anubis.core.errors import MissingPackageError
from anubis.models.risk.cox_time import CoxTime
from anubis.store.database import Database
from anubis.text.packages import require_package

RAY = "executor: ray\naddress: 127.0.0.1:1\nnodes: n[1-2]\n"
SSH = "executor: ray\nstart: ssh\nnodes: n[1-2]\n"


@pytest.fixture
def without(monkeypatch):
    """Make Python packages look as if they were not installed."""

    def hide(*names):
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


@pytest.mark.parametrize(
    ("words", "text", "package"),
    [
        (["accept"], RAY, "ray"),
        (["gate", "n1", "--duration", "1h"], RAY, "ray"),
        (["doctor"], SSH, "ray"),
        (["accept"], "executor: local\norchestrator: kubernetes\n", "kubernetes"),
    ],
)
def test_a_verb_names_the_package_that_its_cluster_needs(near, without, words, text, package):
    without(package)
    done = near.run(*words, "--cluster", str(near.write("c.yaml", text)))
    assert done.code == 2
    assert f'needs the Python package "{package}"' in done.err
    assert "pip install 'anubis-fleet" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("torch", lambda: CoxTime.fit(None, 0)),
        ("pycox", lambda: CoxTime.fit(None, 0)),
        ("psycopg", lambda: Database.open("postgresql://me@host/db")),
    ],
)
def test_training_and_databases_name_their_missing_package(without, name, use):
    without(name)
    with pytest.raises(MissingPackageError, match=f'needs the Python package "{name}"'):
        use()


def test_a_simulated_fleet_is_accepted_gated_and_kept_without_torch_and_ray(near, without):
    without("torch", "torchtuples", "pycox", "ray", "kubernetes", "psycopg")
    cluster = near.fleet(nodes="n[1-4]")
    assert near.run("accept", "--suite", "quick", "--cluster", cluster).code == 0
    assert near.run("gate", "n1", "--duration", "1h", "--cluster", cluster).code == 0
    assert near.run("keep", "--cluster", cluster).code == 0


def test_a_missing_package_is_named_with_the_extra_that_installs_it(without):
    without("psycopg")
    with pytest.raises(MissingPackageError, match=r"pip install 'anubis-fleet\[postgresql\]'$"):
        require_package("psycopg", "a test")


def test_an_installed_package_is_not_refused():
    require_package("numpy", "a test")
