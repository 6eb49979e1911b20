"""Each study of scripts/studies runs in its small form, so that no figure of docs/results rots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.edges import bed
from tests.forked import ForkServer, torch_server

STUDIES = sorted(file for file in (ROOT / "scripts/studies").glob("[a-z]*") if not file.suffix)
LACKING = 69  # a study's exit code on a machine that lacks what it needs
LIMIT_S = 600.0
# what most of them would load beside torch, each for itself: more than half of their processor time
LOADED = (
    *("pandas", "scipy.stats", "scipy.spatial", "sklearn.svm"),
    *("sklearn.cluster", "sklearn.neighbors", "pycox.models", "torchtuples", "requests"),
    *("tests.warm_verbs", "anubis.models.risk.risk_learning", "anubis.service.server"),
)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    folder = tmp_path_factory.mktemp("studies")
    with torch_server(tmp_path_factory) as torch, ForkServer(folder, *LOADED, within=torch) as both:
        yield both


def is_here(thing: str) -> bool:
    """Check whether this machine has it, asked without the study's own function."""
    if thing == "root":
        return os.getuid() == 0
    if thing == "network namespaces":
        return not bed.why_not()
    places = [*os.environ["PATH"].split(os.pathsep), "/usr/sbin", "/sbin", "/usr/bin"]
    return any(Path(place, thing).exists() for place in places)


@pytest.mark.long
@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_study_runs_in_its_small_form(study: Path, studies: ForkServer, tmp_path: Path) -> None:
    code, stdout, stderr = studies.ask([str(study), "--smoke"], None, tmp_path, LIMIT_S)
    if code == LACKING:
        missing = stderr.strip().partition("this machine lacks ")[2].split(", ")
        assert not [thing for thing in missing if is_here(thing)], stderr
        pytest.skip(stderr.strip())
    assert code == 0, stdout + stderr
    assert stdout.strip()


STUDY = """\
import sys, time
sys.path.insert(0, {studies!r})
import study
from tempfile import TemporaryDirectory
study.new_parser(None).parse_args()
with TemporaryDirectory(dir=".") as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_study_that_sigterm_ends_leaves_no_folder(tmp_path: Path) -> None:
    code = STUDY.format(studies=str(ROOT / "scripts/studies"))
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        folder = tmp_path / process.stdout.readline().strip()
        assert folder.is_dir()
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM
    assert not folder.exists()
