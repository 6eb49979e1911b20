"""Programs as children of one process that has loaded torch, which takes each of them 1.5 s less;
or `python -m anubis`, a second less.

    forks.py ADDRESS [MODULE ...]     serves until stdin ends; loads torch unless modules are named
    forks.py NUMBER [MODULE ...]      the same on a socket that listens already

Each program has its own arguments, environment, folder, files and session, as if a shell had
started it, and CUDA begins anew in it. One whose requester ends is killed, and so is what it leaves
behind. `forked_python` stands for the interpreter and asks here; torchrun and each_gpu start their
processes by it (PYTHON_EXEC). An address that begins with @ is a name that no file has. Standard
library only, and nothing of kit, so that a program finds its own.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

FORKS = "ANUBIS_FORKS"  # for the stand-in: the address, and the order that it belongs to
PYTHON = "ANUBIS_PYTHON"  # the interpreter that it stands for
MOST_BYTES = 1 << 20  # of a request: arguments and environment
BEGUN = b"begun"
PATIENCE_S = 5.0  # with a program that was killed
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h

Request = dict[str, Any]


def stand_in(arguments: list[str]) -> NoReturn:
    """Be the interpreter for a program: its child in all that matters. Without a server that
    listens it is the interpreter itself."""
    address, _, order = os.environ.get(FORKS, "").partition(" ")
    if order:  # its requester waits for it; the thread of a daemon that starts it may end before
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    words = arguments[1:] if arguments[:1] == ["-u"] else arguments
    try:
        code = ask(address, words, files=(1, 2), order=order)
    except ConnectionError:
        python = os.environ[PYTHON]
        os.execv(python, [python, *arguments])
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def ask(
    address: str,
    argv: list[str],
    files: tuple[int, ...],  # for its stdout and stderr, or stdin as well
    environment: dict[str, str] | None = None,
    folder: str | None = None,
    limit_s: float | None = None,
    order: str = "",
) -> int:
    """Run a program and wait for it: its exit code, or less than 0 by a signal.

    ConnectionError: it was not begun, as there is no server.
    """
    server, _ = begin(address, argv, files, environment, folder, limit_s, order)
    with server:
        return wait(server)


def begin(
    address: str,
    argv: list[str],
    files: tuple[int, ...],
    environment: dict[str, str] | None = None,
    folder: str | None = None,
    limit_s: float | None = None,
    order: str = "",
) -> tuple[socket.socket, int]:
    """Begin a program, which is killed once the socket is closed; the second is its number."""
    request = {
        "order": order,
        "argv": argv,
        "environment": dict(os.environ) if environment is None else environment,
        "folder": folder or os.getcwd(),  # noqa: PTH109 # pathlib takes as long as all the rest
        "cpus": sorted(os.sched_getaffinity(0)),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
    }
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        server.settimeout(limit_s)
        server.connect(named(address))
        if not is_ours(server):
            raise ConnectionError("another user listens there")
        socket.send_fds(server, [json.dumps(request).encode()], files)
        begun, _, pid = server.recv(100).partition(b" ")
        if begun != BEGUN:
            raise ConnectionError("the server ended before the program began")
    except BaseException:
        server.close()
        raise
    return server, int(pid)


def wait(server: socket.socket) -> int:
    """The exit code of a program that has begun."""
    try:
        answer = server.recv(100)
    except ConnectionError:
        answer = b""
    return int(answer) if answer else -signal.SIGKILL  # the server ended, and the program with it


def named(address: str) -> str:
    return f"\0{address[1:]}" if address.startswith("@") else address


def listen(address: str) -> socket.socket:
    """Listen at an address, or, by its number, on a socket that was handed over."""
    if address.isdecimal():
        return socket.socket(fileno=int(address))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(named(address))
    listening.listen(100)
    return listening


class Server:
    """Forks a program for each request; one whose requester has gone is killed with its session."""

    def __init__(self, address: str, is_reaper: bool = False) -> None:
        """`is_reaper`: what programs leave behind comes to this process, and is killed once none of
        them runs."""
        self._is_reaper = is_reaper
        self._requester_of: dict[int, socket.socket] = {}
        self._order_of: dict[int, str] = {}
        self._has_had_orders = False
        self._waiting: list[tuple[socket.socket, str, float]] = []  # for the end of an order
        self._listening = listen(address)
        self._ended, self._wake = socket.socketpair()
        for end in (self._ended, self._wake):
            end.setblocking(False)
        self._ready = selectors.DefaultSelector()

    def serve(self) -> None:
        """Serve until stdin ends."""
        if self._is_reaper:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (self._listening, self._ended, sys.stdin):
            self._ready.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self._ready.select(0.1 if self._waiting else None):
                if key.fileobj is sys.stdin:
                    for pid in self._requester_of:
                        kill(pid)
                    self._requester_of.clear()
                    for pid in self._left_behind():
                        kill(pid)
                    return
                if key.fileobj is self._listening:
                    self._hear()
                elif key.fileobj is self._ended:
                    self._ended.recv(4096)
                elif key.data in self._requester_of:
                    kill(key.data)
            self._answer()

    def _hear(self) -> None:
        requester, _ = self._listening.accept()
        try:
            message, files, _, _ = socket.recv_fds(requester, MOST_BYTES, 3)
            request: Request = json.loads(message)
        except (OSError, ValueError):  # it has gone
            requester.close()
            return
        if not is_ours(requester):
            requester.close()
        elif "running" in request:
            self._tell(requester, request["running"])
        elif "gone" in request:
            self._waiting.append((requester, request["gone"], time.monotonic() + PATIENCE_S))
        else:
            self._start(requester, request, files)
        for file in files:
            os.close(file)

    def _start(self, requester: socket.socket, request: Request, files: list[int]) -> None:
        pid = os.fork()
        if pid == 0:
            self._forget()
            requester.close()
            os._exit(exit_code(request, files))
        self._requester_of[pid] = requester
        self._order_of[pid] = request.get("order", "")
        self._has_had_orders |= bool(self._order_of[pid])
        self._ready.register(requester, selectors.EVENT_READ, pid)
        with suppress(OSError):  # it has gone: its program is killed in the next round
            requester.send(b"%s %d" % (BEGUN, pid))

    def _forget(self) -> None:
        """Close what is the server's and not the program's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._ready.close()
        waiting = (requester for requester, _, _ in self._waiting)
        for end in (
            self._listening,
            self._ended,
            self._wake,
            *self._requester_of.values(),
            *waiting,
        ):
            end.close()

    def _answer(self) -> None:
        """Tell the requesters of all programs that have ended, and end what they left behind."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                self._order_of.pop(pid, None)
                if requester := self._requester_of.pop(pid, None):
                    self._ready.unregister(requester)
                    with suppress(OSError):
                        requester.send(str(os.waitstatus_to_exitcode(status)).encode())
                    requester.close()
        for pid in self._left_behind():
            kill(pid)
        for waiting in list(self._waiting):
            requester, order, until = waiting
            if time.monotonic() > until or order not in self._order_of.values():
                self._tell(requester, order)
                self._waiting.remove(waiting)

    def _tell(self, requester: socket.socket, order: str) -> None:
        """Tell which programs of an order run."""
        pids = [pid for pid, of in self._order_of.items() if of == order]
        with suppress(OSError):
            requester.send(json.dumps(pids).encode())
        requester.close()

    def _left_behind(self) -> list[int]:
        """List our children that we did not start, once no program runs: a program that runs may
        need them, and nothing says whose they are. Without orders there are none to end."""
        if not self._is_reaper or self._requester_of or not self._has_had_orders:
            return []
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return [int(pid) for pid in text.split() if int(pid) not in self._requester_of]


def is_ours(line: socket.socket) -> bool:
    """Return true if the other end is of the same user: everybody sees a name that no file has, and
    may take it once the server has ended."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


def kill(pid: int) -> None:
    """Kill a program with its session; it has none of its own yet if its requester went at once."""
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)  # its end was not waited for, so the number is still its own


def load(modules: list[str]) -> None:
    """Load what programs would load, each for itself."""
    for module in modules:
        load_torch() if module == "torch" else importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or to look for garbage would copy all of it into each program


def load_torch() -> None:
    """Load torch. If that began CUDA, which no fork can use, programs load torch themselves."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, at load: as contract.run does
    import torch
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    # for a line of a log that is never read, torchrun looks through all modules, hundreds of times
    dynamic_rendezvous.get_method_name = lambda depth=2: ""
    dynamic_rendezvous.construct_and_record_rdzv_event = lambda **event: None
    if torch.cuda.is_initialized():
        sys.exit("loading torch began CUDA")


def become(request: Request, files: list[int]) -> None:
    """Be that program: what Python does between its start and the program's first line."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # with the server
    os.sched_setaffinity(0, request["cpus"])
    resource.setrlimit(resource.RLIMIT_CORE, request["core"])
    if len(files) == 2:
        files = [os.open(os.devnull, os.O_RDONLY), *files]
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    # as Python does at its start: whether a file can be sought is found out only once
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ.pop("ANUBIS_LAUNCHER", None)  # a rank's parent is the server, whoever launched it
    os.chdir(request["folder"])
    program, *arguments = request["argv"]
    sys.argv = [program, *arguments]
    if program == "-m":
        sys.argv = arguments
        sys.path[0] = request["folder"]
    else:
        sys.path[0] = str(Path(program).resolve().parent)
    sys.path[1:1] = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if "PYTHONPATH" in os.environ:  # as Python does at its start
        sys.modules.pop("sitecustomize", None)
        with suppress(ImportError):
            import sitecustomize  # noqa: F401
    torch = sys.modules.get("torch")
    if torch and (threads := os.environ.get("OMP_NUM_THREADS")):
        torch.set_num_threads(int(threads))
    if program == "-m":
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")


def exit_code(request: Request, files: list[int]) -> int:
    """The exit code of that program. What is left of the interpreter (a second to tidy) is left."""
    code: object = 1
    try:
        become(request, files)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined] # as Python does: others may still work
    atexit._run_exitfuncs()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code or 0


if __name__ == "__main__":
    server = Server(sys.argv[1], is_reaper=True)  # requests wait while it loads
    sys.path[0] = str(Path(os.__file__).parent)  # what lies beside this file has common names
    load(sys.argv[2:] or ["torch"])
    print("ready", flush=True)
    server.serve()
    os._exit(0)  # to tidy an interpreter with torch takes a second
