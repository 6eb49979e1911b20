"""The oracle of show-chaos blames what must not be, and nothing else."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest

from tests.conftest import ROOT

DEFECT = "anubis[GEMM.TFLOPS]: slow"


@pytest.fixture
def chaos(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts/studies"))
    yield import_module("chaos_oracle")
    for name in ("chaos_oracle", "chaos_slurm"):
        sys.modules.pop(name, None)


def test_a_node_may_be_drained_after_a_bad_measurement_and_released_after_a_good_one(
    chaos: Any,
) -> None:
    oracle = chaos.Oracle(nodes=100, share=0.05)
    drained = import_module("chaos_slurm").Node(reason=DEFECT)
    oracle.drained("n1", DEFECT, import_module("chaos_slurm").Node())
    assert "n1 is blamed wrongly" in oracle.violations.pop()
    oracle.measured([["n2", "gemm", True]])
    oracle.drained("n2", DEFECT, import_module("chaos_slurm").Node())
    assert oracle.violations == []
    oracle.gated(["n2", "n3"], "go", oracle.known_bad())
    assert "go with n2" in oracle.violations.pop()
    oracle.undrained("n2", drained)
    assert "its last gemm was slow" in oracle.violations.pop()
    oracle.measured([["n2", "gemm", False]])
    oracle.undrained("n2", drained)
    oracle.gated(["n2", "n3"], "go", oracle.known_bad())
    assert oracle.violations == []


def test_the_oracle_allows_the_share_and_the_nodes_accepted_by_a_person(chaos: Any) -> None:
    oracle, node = chaos.Oracle(nodes=40, share=0.05), import_module("chaos_slurm").Node()
    oracle.measured([[f"n{number}", "gemm", True] for number in range(6)])
    for number in range(3):
        oracle.drained(f"n{number}", DEFECT, node)
    assert "3 nodes are out with n2, of 2" in oracle.violations.pop()
    oracle.accepted = 3  # by a person
    oracle.drained("n3", DEFECT, node)
    assert oracle.violations == []


def test_a_person_and_a_maintenance_are_left_alone(chaos: Any) -> None:
    oracle, slurm = chaos.Oracle(nodes=40, share=0.05), import_module("chaos_slurm")
    long_ago = -2 * chaos.GRACE_S
    oracle.by_hand["n1"] = chaos.time.time() + long_ago
    oracle.undrained("n1", slurm.Node(reason="firmware, Jo"))
    oracle.allocated(["n1"])
    oracle.maintained["n2"] = (chaos.time.time() + long_ago, chaos.time.time() + 100)
    oracle.allocated(["n2"])
    assert len(oracle.violations) == 3
