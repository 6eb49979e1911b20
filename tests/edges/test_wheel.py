"""An installed Anubis works without a checkout: the wheel has all that the command needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

import anubis

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"


def run(*argv: str, **changes) -> str:
    return subprocess.run(
        argv, capture_output=True, text=True, check=True, timeout=300, **changes
    ).stdout


BUILD = (str(UV), "build", "--offline", "--no-build-isolation", "--python", sys.executable)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the source archive, and the wheel that was made of it. No network is needed."""
    folder = tmp_path_factory.mktemp("built")
    run(*BUILD, "--quiet", "--out-dir", str(folder), str(ROOT))
    return folder


@pytest.fixture(scope="module")
def site(built, tmp_path_factory) -> Path:
    """A folder in which the wheel, and nothing else, is installed."""
    site = tmp_path_factory.mktemp("wheel") / "site"
    (wheel,) = built.glob("*.whl")
    install = (str(UV), "pip", "install", "--offline", "--quiet", "--no-deps")
    run(*install, "--target", str(site), str(wheel))
    return site


def test_wheel_and_source_archive_are_the_same_bytes_from_any_folder(built, tmp_path):
    """Built here, and from a copy at another place, of another time, for its owner only."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".*_cache", ".venv", ".hypothesis", ".git")
    )
    for path in copy.rglob("*"):
        path.chmod(0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
    run(*BUILD, "--quiet", "--out-dir", str(tmp_path / "there"), str(copy))
    here, there = (sorted(folder.glob("anubis_fleet*")) for folder in (built, tmp_path / "there"))
    assert [file.suffix for file in here] == [".whl", ".gz"]
    assert [file.read_bytes() for file in here] == [file.read_bytes() for file in there]


@pytest.fixture
def apart(site, tmp_path) -> dict:
    environment = {"PYTHONPATH": str(site), "ANUBIS_HOME": str(tmp_path / "home")}
    return {"cwd": tmp_path, "env": os.environ | environment}


@pytest.fixture
def distribution(site) -> Distribution:
    (metadata,) = site.glob("*.dist-info")
    return PathDistribution(metadata)


@pytest.mark.parametrize("folder", ["benchmarks", "criteria", "configs"])
def test_the_wheel_carries_every_shipped_file(site, folder):
    def files(above: Path) -> set[str]:
        programs_and_texts = (file for file in above.rglob("*") if file.suffix != ".pyc")
        return {str(file.relative_to(above)) for file in programs_and_texts if file.is_file()}

    assert files(site / "anubis/_shipped" / folder) == files(ROOT / folder)


def test_the_command_works_without_a_checkout(site, apart):
    where = run(sys.executable, "-c", "import anubis; print(anubis.__file__)", **apart)
    assert where.startswith(str(site))
    command = (str(site / "bin/anubis"),)
    assert anubis.__version__ in run(*command, "--version", **apart)
    assert "train_transformer" in run(*command, "bench", "list", **apart)
    plan = run(*command, "accept", "--cluster", "simulated", "--dry-run", **apart)
    assert "256 nodes" in plan


def test_the_metadata_of_the_distribution_are_right(distribution):
    assert distribution.name == "anubis-fleet"
    assert distribution.version == anubis.__version__
    assert f"version: {anubis.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert distribution.metadata["License-Expression"] == "Apache-2.0"
    licence = distribution.read_text("licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
