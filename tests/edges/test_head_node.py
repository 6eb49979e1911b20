"""The units of systemd, and the script that makes a checkout the service of a head node."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer.main
import yaml

from anubis.cli.main import app

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "configs" / "systemd").glob("*.service"))
needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd is not installed"
)


def install(root: Path, *words: Path | str) -> subprocess.CompletedProcess[str]:
    words = (ROOT / "scripts" / "install-service", "--root", root, *words)
    return subprocess.run(words, capture_output=True, text=True)


def started_by(unit: str) -> list[str]:
    (line,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    return shlex.split(line.removeprefix("ExecStart="))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_verb_with_options_that_exist(unit):
    program, verb, *words = started_by(unit.read_text())
    assert program == "/opt/anubis/bin/anubis"
    typer.main.get_command(app).commands[verb].make_context(verb, words)


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_one_that_systemd_takes_and_rates_as_closed(unit, tmp_path):
    made = tmp_path / unit.name
    made.write_text(unit.read_text().replace("/opt/anubis/bin/anubis", "/bin/true"))
    verified = subprocess.run(["systemd-analyze", "verify", made], capture_output=True, text=True)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=25", made]
    assert subprocess.run(words, capture_output=True).returncode == 0  # of 100; 79 without


def test_a_checkout_becomes_a_service_and_the_file_of_the_cluster_stays_when_it_is_renewed(
    tmp_path,
):
    cluster = tmp_path / "prod.yaml"
    cluster.write_text("executor: local\n")
    done = install(tmp_path / "root", cluster)
    assert done.returncode == 0, done.stderr
    unit = tmp_path / "root" / "etc/systemd/system/anubis.service"
    program, *words = started_by(unit.read_text())
    assert program == str(ROOT / ".venv/bin/anubis")
    assert words == ["serve", "--cluster", "/etc/anubis/cluster.yaml"]
    kept = tmp_path / "root" / "etc/anubis/cluster.yaml"
    assert yaml.safe_load(kept.read_text()) == {"executor": "local", "name": "prod"}
    assert "stays as it is" not in install(tmp_path / "root", cluster).stderr
    unit.write_text("of an older release")
    cluster.write_text("executor: ray\n")
    again = install(tmp_path / "root", "--user", "slurm", cluster)
    assert "is there and stays as it is" in again.stderr
    assert yaml.safe_load(kept.read_text()) == {"executor": "local", "name": "prod"}
    assert started_by(unit.read_text())[0] == program
    assert "\nUser=slurm\n" in unit.read_text()


def test_a_cluster_that_says_its_name_keeps_it(tmp_path):
    cluster = tmp_path / "prod.yaml"
    cluster.write_text("executor: local\nname: other\n")
    install(tmp_path / "root", cluster)
    assert (tmp_path / "root/etc/anubis/cluster.yaml").read_text() == cluster.read_text()


def test_without_the_file_of_a_cluster_nothing_is_installed(tmp_path):
    done = install(tmp_path / "root", "nowhere.yaml")
    assert done.returncode == 2
    assert 'there is no file "nowhere.yaml"' in done.stderr
    assert not (tmp_path / "root").exists()
