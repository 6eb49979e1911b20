"""What the tests of the benchmark programs share: the programs, and a way to run one."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from anubis.report.schemas import schemas
from tests.forked import ForkServer, torch_server
from tests.gpus import node
from tests.patience import LIMIT_S

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAMS = sorted(
    file for file in BENCHMARKS.glob("*.py") if file.name[0] != "_" and file.stem != "contract"
)

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is loaded, as contract.run does
sys.path.insert(0, str(BENCHMARKS))  # formulas are tested in this process, as plain functions


@cache
def published(name: str) -> Draft202012Validator:
    """The document that `anubis schema` prints, closed: our programs report nothing that is not in
    it."""
    return Draft202012Validator({**schemas()[name], "additionalProperties": False})


@dataclass(frozen=True)
class Ran:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """Each that a test looks at is held against its schema."""
        try:
            document: dict[str, Any] = json.loads(self.stdout)
        except ValueError:
            raise AssertionError(f"no document: {self}") from None
        published(document["schema"].split(".")[1].split("/")[0]).validate(document)
        return document

    def samples(self, metric: str) -> list[float]:
        (series,) = [s for s in self.document["series"] if s["metric"] == metric]
        samples: list[float] = series["samples"]
        return samples


Run = Callable[..., Ran]


@dataclass(frozen=True)
class Forks:
    """Programs as children of a process that has loaded torch."""

    server: ForkServer

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str] | None,
        folder: Path,
        limit_s: float = LIMIT_S,
    ) -> Ran:
        return Ran(*self.server.ask(argv, environment, folder, limit_s))


@pytest.fixture(scope="session")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with torch_server(tmp_path_factory) as server:
        yield Forks(server)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, forked: Forks) -> Run:
    """Runs a program as the harness does: a process of its own, from some other folder.

    With flags for the interpreter, or words for the loader of libraries, it is one that was started
    for this program alone.
    """
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    def run(
        program: Path, *arguments: str, env: Mapping[str, str] | None = None, flags: str = ""
    ) -> Ran:
        of_the_loader = [name for name in env or () if name.startswith("LD_")]
        if not flags and not of_the_loader:
            return forked.run([str(program), *arguments], env, elsewhere)
        done = subprocess.run(
            [sys.executable, *flags.split(), str(program), *arguments],
            cwd=elsewhere,
            env=env,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def benchmark_file() -> Callable[[str], Path]:
    return lambda name: BENCHMARKS / f"{name}.py"


@pytest.fixture(scope="session")
def describe(run: Run) -> Callable[[Path], Ran]:
    """A program's description, and on stderr the modules that it loads for that; asked once."""
    return cache(lambda program: run(program, "--describe", flags="-X importtime"))


@pytest.fixture(scope="session")
def smoke(run: Run) -> Callable[[Path], Ran]:
    """A program's smoke run; each happens once, for all the tests that look at it."""
    return cache(lambda program: run(program, "--smoke"))


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver's library that answers as the environment says; see fake_nvml.c."""
    folder = tmp_path_factory.mktemp("driver")
    if not node.build_libraries(folder):
        pytest.skip("gcc is not installed")
    return folder / "libnvidia-ml.so.1"


@pytest.fixture
def gpu_node(tmp_path: Path, nvml_library: Path) -> Callable[[int], node.GpuNode]:
    """A node with so many GPUs that are not there; see tests/gpus."""

    def gpu_node(gpus: int) -> node.GpuNode:
        (tmp_path / "node").mkdir()
        return node.GpuNode(tmp_path / "node", nvml_library.parent, gpus)

    return gpu_node


class SharedMemory:
    """A /dev/shm of its own for the programs of a test, without the memory of other programs. If
    the user may not mount one, tests of what is left are skipped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        mounts = f'mount --rbind "{folder}" /dev/shm'
        self._seen = []
        if folder.is_relative_to("/dev/shm"):  # as all files of the tests: they must be seen in it
            all_files = Path("/dev/shm", folder.relative_to("/dev/shm").parts[0])
            self._seen = [folder / all_files.name]
            self._seen[0].mkdir()
            mounts = f'mount --bind "{all_files}" "{self._seen[0]}" && {mounts}'
        inside = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$0" "$@"']
        allowed = subprocess.run([*inside, "true"], capture_output=True).returncode == 0
        self.inside = inside if allowed else []

    def left(self) -> list[Path]:
        if not self.inside:
            pytest.skip("a /dev/shm of its own takes the right to mount")
        return [file for file in self._folder.iterdir() if file not in self._seen]


@pytest.fixture
def shared_memory(tmp_path: Path) -> SharedMemory:
    folder = tmp_path / "shared-memory"
    folder.mkdir(mode=0o1777)
    return SharedMemory(folder)


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The same in this process, which has loaded torch already; not for ranks of a group."""

    def near(program: Path, *arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", [str(program), *arguments])
        stdout = os.dup(1)  # which a program that measures sets aside for its document
        try:
            with pytest.raises(SystemExit) as end:
                runpy.run_path(str(program), run_name="__main__")
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
        return Ran(int(str(end.value.code)), *capfd.readouterr())

    return near


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "program" in metafunc.fixturenames:
        metafunc.parametrize("program", PROGRAMS, ids=lambda file: file.stem)
