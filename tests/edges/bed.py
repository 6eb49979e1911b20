"""A test bed for a test: `scripts/testbed up` on entry, `down` on exit. It asserts nothing.

Name and network are its own, so that beds of several test runs live side by side.
"""

from __future__ import annotations

import ctypes
import ipaddress
import itertools
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from types import TracebackType
from typing import Any, TypeVar

from tests.patience import LIMIT_S

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "testbed"
CLONE_NEWNET = 0x40000000  # of the kernel
_numbers = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)
Outcome = TypeVar("Outcome")


def why_not() -> str:
    """The reason why this machine can have no test bed; "" if it can."""
    if os.geteuid() != 0:
        return "the test bed needs root"
    missing = [tool for tool in ("ip", "tc", "nsenter", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"the test bed needs {', '.join(missing)}: apt-get install iproute2 util-linux"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return f"the test bed needs namespaces: {tried.stderr.strip()}" if tried.returncode else ""


repeats: list[float] = []  # the load of the machine when a run of this test was repeated


def tried(
    run: Callable[[], Outcome], as_planted: Callable[[Outcome], bool], tries: int = 3
) -> Outcome:
    """The outcome of a run, repeated if it is not as planted. Other work on the machine slows a
    host for a while, and it is blamed beside the planted one; a planted fault is there in every
    run. The end of the tests lists repeated runs.
    """
    for _ in range(tries - 1):
        if as_planted(outcome := run()):
            return outcome
        repeats.append(os.getloadavg()[0])
    return run()


def free_subnet(number: int) -> str:
    """A subnet that no route here has: a bed whose tests were killed leaves its routes behind."""
    taken = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    nets = (f"10.{232 + number % 16}.{(os.getpid() + i) % 256}.0/24" for i in range(256))
    return next(net for net in nets if net not in taken)


def _enter(network: int) -> None:
    if _libc.setns(network, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Bed:
    """`with Bed(3, "--slow-cpu", "node2:0.5") as bed: bed.run("driver", ["anubis", ...])`"""

    def __init__(self, nodes: int, *options: str) -> None:
        number = next(_numbers)
        self.nodes = tuple(f"node{index}" for index in range(1, nodes + 1))
        self.name = f"t{os.getpid()}-{number}"
        self.subnet = free_subnet(number)
        self.planted = Path(gettempdir(), f"planted-{self.name}")  # is there while a fault is
        self._options = options

    def __enter__(self) -> Bed:
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.verb("down")

    def command(self, verb: str, *arguments: str, argv: Sequence[str] = ()) -> list[str]:
        command = [sys.executable, str(SCRIPT), verb, *arguments, "--name", self.name]
        return [*command, "--", *argv] if argv else command

    def verb(
        self,
        verb: str,
        *arguments: str,
        argv: Sequence[str] = (),
        timeout: float = LIMIT_S,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Any verb of the script. An exit code other than 0 fails the test with what it said."""
        return completed(self.command(verb, *arguments, argv=argv), timeout, check)

    @contextmanager
    def fault(self, plant: Sequence[str], undo: Sequence[str]) -> Iterator[None]:
        """Plant a fault by one of the script's verbs, and at the end the one that takes it back."""
        self.verb(*plant)
        self.planted.touch()
        try:
            yield
        finally:
            self.planted.unlink(missing_ok=True)  # of faults at once, one has done it
            self.verb(*undo)

    def words_into(self, host: str) -> tuple[str, ...]:
        """Words to put before a command, for a host or "driver": those of the script's `exec` and
        `driver`, without a Python that starts for each command."""
        script = read_script()
        bed = script["load"](self.name)
        there = script["environment"](bed, host)
        dropped = (f"--unset={name}" for name in os.environ.keys() - there.keys())
        own = (f"{name}={value}" for name, value in there.items() - os.environ.items())
        return (*script["inside"](bed, host), *dropped, *own)

    def address_of(self, host: str) -> str:
        place = -2 if host == "driver" else int(host.removeprefix("node"))
        return str(ipaddress.ip_network(self.subnet)[place])

    @contextmanager
    def network_of(self, host: str) -> Iterator[None]:
        """Use a host's network for what this thread connects to and starts in the block."""
        holder = Path(tempfile.gettempdir(), f"testbed-{self.name}", f"{host}.pid").read_text()
        with Path("/proc/thread-self/ns/net").open() as here:
            with Path("/proc", holder.strip(), "ns", "net").open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())

    def up(self, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        arguments = (str(len(self.nodes)), "--subnet", self.subnet, *self._options)
        return self.verb("up", *arguments, check=check)

    def run(
        self, host: str, argv: Sequence[str], *, timeout: float = LIMIT_S, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a host, or in "driver", and wait for it."""
        return completed([*self.words_into(host), *argv], timeout, check)

    def run_with_fault(
        self, argv: Sequence[str], plant: Sequence[str], undo: Sequence[str], *, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run Anubis in "driver"; the fault is planted when its first phase begins, so that a host
        short of CPU has not to start its agent with so little of it."""
        driver = self.start("driver", argv)
        assert driver.stderr is not None
        told = ""
        for line in driver.stderr:
            told += line
            if line.startswith("phase"):
                break
        with self.fault(plant, undo):
            stdout, stderr = driver.communicate(timeout=timeout)
        return subprocess.CompletedProcess(argv, driver.returncode, stdout, told + stderr)

    def start(self, host: str, argv: Sequence[str]) -> subprocess.Popen[str]:
        """The same without waiting. `down` ends it, but a caller had better do so first."""
        return subprocess.Popen(
            [*self.words_into(host), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@cache
def read_script() -> dict[str, Any]:
    """Names of the script, to call its functions in this process."""
    return runpy.run_path(str(SCRIPT))


def completed(
    command: Sequence[str], timeout: float, check: bool
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        said = f"{done.stdout}\n{done.stderr}"
        raise AssertionError(f"{' '.join(command)} exited with {done.returncode}:\n{said}")
    return done


def network_of(bed: Bed, host: str) -> str:
    return bed.run(host, ["readlink", "/proc/self/ns/net"]).stdout.strip()


def output(*argv: str) -> list[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


def traces(bed: Bed, networks: set[str]) -> list[str]:
    """Traces that the machine still shows of a bed, asked without the script."""
    places = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").iterdir(), Path(gettempdir())]
    mine = [place / f"testbed-{bed.name}" for place in places]
    found = [str(path) for path in mine if path.exists()]
    found += [line for line in output("ip", "route") if bed.subnet in line]
    links = ("node", "bridge", "driver", "leaf", "spine")
    found += [line for line in output("ip", "-br", "link") if line.startswith(links)]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            lives_there = str((process / "ns/net").readlink()) in networks
            environment = (process / "environ").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if lives_there or f"testbed-{bed.name}/".encode() in environment:
            found.append(process.name)
    return found
