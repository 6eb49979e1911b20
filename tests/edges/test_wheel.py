"""An installed Anubis works without a checkout: the wheel carries what the command needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"


def run(*argv: str, **changes) -> str:
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=300, **changes
    ).stdout


def test_the_wheel_carries_benchmarks_criteria_and_configs(tmp_path):
    build = (str(UV), "build", "--offline", "--no-build-isolation", "--python", sys.executable)
    run(*build, "--wheel", "--quiet", "--out-dir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("anubis-*.whl")
    site = tmp_path / "site"
    run(
        str(UV),
        "pip",
        "install",
        "--offline",
        "--quiet",
        "--no-deps",
        "--target",
        str(site),
        str(wheel),
    )
    apart = {
        "cwd": tmp_path,
        "env": os.environ | {"PYTHONPATH": str(site), "ANUBIS_HOME": str(tmp_path / "home")},
    }
    where = run(sys.executable, "-c", "import anubis; print(anubis.__file__)", **apart)
    assert where.startswith(str(site))
    anubis = [sys.executable, "-m", "anubis"]
    assert "train_transformer" in run(*anubis, "bench", "list", **apart)
    plan = run(*anubis, "accept", "--cluster", "simulated", "--dry-run", **apart)
    assert "256 nodes" in plan
