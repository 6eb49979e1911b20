"""A process that has loaded what programs need, and programs as its children: kit/forks.py.

No asserts.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from tests import workers
from tests.patience import LIMIT_S

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from kit import forks

STAND_IN = """#!{python} -IS
import os, signal, sys
sys.path.insert(0, {here!r})
from forks import begin, wait
words = sys.argv[2:] if sys.argv[1] == "-u" else sys.argv[1:]
server, pid = begin({address!r}, words, files=(1, 2))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = wait(server)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


_begun: list[subprocess.Popen[str] | Started] = []  # which outlive their caller


def common_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder for what all workers share; without workers, for this process alone."""
    base = factory.getbasetemp()
    folder = (base.parent if workers.until_over else base) / name
    folder.mkdir(exist_ok=True)
    return folder


class Started:
    """A program that was forked, by the words of `subprocess.Popen`."""

    def __init__(
        self, address: str, argv: list[str], environment: dict[str, str], folder: str
    ) -> None:
        ends = [os.pipe() for _ in range(3)]
        theirs = (ends[0][0], ends[1][1], ends[2][1])
        try:
            self._server, self.pid = forks.begin(address, argv, theirs, environment, folder)
        finally:
            for end in theirs:
                os.close(end)
        self.stdin = os.fdopen(ends[0][1], "w")
        self.stdout, self.stderr = os.fdopen(ends[1][0]), os.fdopen(ends[2][0])
        self.returncode: int | None = None

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.communicate()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def wait(self, timeout: float = LIMIT_S) -> int:
        if self.returncode is None:
            self._server.settimeout(timeout)
            self.returncode = forks.wait(self._server)
            self._server.close()
        return self.returncode

    def communicate(self, text: str = "", timeout: float = LIMIT_S) -> tuple[str, str]:
        """Return all that it writes; it may end before it reads the text."""
        with suppress(BrokenPipeError), self.stdin as stdin:
            stdin.write(text)
        with self.stdout, self.stderr, ThreadPoolExecutor(1) as beside:
            err = beside.submit(self.stderr.read)
            out = self.stdout.read()
            self.wait(timeout)
            return out, err.result()


class ForkServer:
    def __init__(
        self,
        folder: Path,
        *modules: str,
        is_shared: bool = False,
        within: ForkServer | None = None,
    ) -> None:
        """Load these modules; torch if none is named. `is_shared`: the first worker that needs it
        in this folder starts it for all, and it ends with the last of them. `within`: what that one
        has loaded is there already."""
        self._modules = modules
        self._within = within
        self._until_over = workers.until_over if is_shared else None
        self._folder = folder
        self._address = f"{folder}/address"
        self._stand_in = folder / "python"
        self._server: subprocess.Popen[str] | Started | None = None

    def __enter__(self) -> ForkServer:
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not Path(self._address).exists():
                self._start()
        return self

    def _start(self) -> None:
        here = str(Path(forks.__file__).parent)
        self._stand_in.write_text(
            STAND_IN.format(python=sys.executable, here=here, address=self._address)
        )
        self._stand_in.chmod(0o755)
        argv = [forks.__file__, self._address, *self._modules]
        self._server = (
            self._within.start(argv, None, self._folder)
            if self._within
            else subprocess.Popen(
                [sys.executable, *argv],
                stdin=self._until_over or subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        assert self._server.stdout
        self._server.stdout.readline()
        _begun.append(self._server)

    def __exit__(self, *_: object) -> None:
        if self._server and not self._until_over:
            self._server.communicate()

    @property
    def python(self) -> str:
        """A command in place of the interpreter, with another process id than its program."""
        return str(self._stand_in)

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str] | None, folder: Path
    ) -> Started:
        """Start a program without waiting for it."""
        given = dict(os.environ if environment is None else environment)
        return Started(self._address, list(argv), given, str(folder))

    def ask(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str] | None,
        folder: Path,
        limit_s: float = LIMIT_S,
    ) -> tuple[int, str, str]:
        """Its exit code, stdout and stderr."""
        given = dict(os.environ if environment is None else environment)
        given["PYTHON_EXEC"] = str(self._stand_in)  # by which torchrun starts ranks
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            files = (out.fileno(), err.fileno())
            code = forks.ask(self._address, list(argv), files, given, str(folder), limit_s)
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()


def torch_server(factory: pytest.TempPathFactory) -> ForkServer:
    """The one that has loaded torch; torch._dynamo is more than half of what a rank of a small
    training costs, and no rank shares it; torch.distributed.run is what each launcher loads."""
    folder = common_folder(factory, "forks")
    modules = ("torch", "torch._dynamo", "torch.distributed.run")
    return ForkServer(folder, *modules, is_shared=True)
