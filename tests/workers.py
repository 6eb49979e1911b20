"""Workers of pytest-xdist as forks of one process that has collected the tests: once, and not in
each of them, which took a worker 14 s.

    tests/workers.py ADDRESS ARGUMENTS...   the process; the arguments are those of pytest
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

KIT = Path(__file__).parents[1] / "benchmarks/kit"
sys.path.append(str(KIT))  # not before the tests of pytest, some of which share a name

import forks  # noqa: E402
import pytest  # noqa: E402

# Stands for the interpreter: `python -u -c LINE`, as execnet starts a worker.
STAND_IN = """#!{python} -IS
import sys
sys.path.insert(0, {here!r})
from forks import ask
sys.exit(ask({address!r}, sys.argv[-1:], files=(0, 1, 2)))
"""


set_by_tests: dict[str, str] = {}  # in the environment, when they were collected
places_of_tests: list[str] = []  # where to import from, likewise
until_over: int | None = None  # in a worker: a file that ends once all workers have ended


class Workers:
    """The process, from the first worker to the last."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._folder = TemporaryDirectory(prefix="workers-")
        address = f"{self._folder.name}/address"
        self.python = Path(self._folder.name, "python")
        self.python.write_text(
            STAND_IN.format(python=sys.executable, here=str(KIT), address=address)
        )
        self.python.chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, __file__, address, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout
        self.ready = bool(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


def work(request: dict, files: list[int]) -> int:
    """Work as `python -c` does, with all tests loaded."""
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.environ.clear()
    os.environ.update(set_by_tests | request["environment"])
    os.chdir(request["folder"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.argv = ["-c"]
    exec(request["argv"][0], {"__name__": "__main__"})
    return 0


def main() -> None:
    address, *arguments = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked for the workers ends them
    answer = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    environment, places = dict(os.environ), set(sys.path)
    code = pytest.main([*arguments, "-n0", "--collect-only", "-q", "-p", "no:cacheprovider"])
    if code:  # what failed halfway is loaded all the same, and would pass as a file without tests
        sys.exit(int(code))
    set_by_tests.update(set(os.environ.items()) - set(environment.items()))
    as_tests_see_it = sys.modules["tests.workers"]
    as_tests_see_it.places_of_tests += [place for place in sys.path if place not in places]
    as_tests_see_it.until_over, _ = os.pipe()  # of which each worker inherits the other end
    forks.exit_code = work
    server = forks.Server(address)
    os.write(answer, b"ready\n")
    os.close(answer)
    server.serve()


if __name__ == "__main__":
    main()
    os._exit(0)
