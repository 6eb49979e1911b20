"""Programs as children of one process that has loaded torch, which takes each of them 1.5 s less;
or `python -m anubis`, a second less.

    forks.py ADDRESS [MODULE ...]     serves until stdin ends; loads torch unless modules are named
    forks.py NUMBER [MODULE ...]      the same on a socket that listens already

Each program has its own arguments, environment, folder, files and session, as if a shell had
started it, and CUDA begins anew in it. One whose requester ends is killed, and so is what it leaves
behind. Programs for one GPU of several run in turn in a process that stays with that GPU, so that
CUDA and its libraries begin once for all of them; it ends after one that fails or leaves something
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
import tempfile
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

FORKS = "ANUBIS_FORKS"  # for the stand-in: the address, and the order that it belongs to
PYTHON = "ANUBIS_PYTHON"  # the interpreter that it stands for
MOST_BYTES = 1 << 20  # of a request: arguments and environment
BEGUN = b"begun"
PATIENCE_S = 5.0  # with a program that was killed
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h
ONE_GPU = "ANUBIS_GPU"  # in the environment of a program for one GPU of several (contract.py)
OF_ONE_RUN = {FORKS, "ANUBIS_LIMIT_S", "ANUBIS_MEETING", "TMPDIR"}  # no reason for a new process
ENDED_WELL = {0, 3}  # exit codes of the benchmark contract: measured, and not applicable
THREAD_PATIENCE_S = 0.5  # with a thread that is about to end

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


def idle() -> int:
    """Count the processes that stay with GPUs and wait for the next program."""
    address, _, _ = os.environ.get(FORKS, "").partition(" ")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.settimeout(PATIENCE_S)
            server.connect(named(address))
            server.send(b'{"idle": ""}')
            return len(json.loads(server.recv(4096) or b"[]"))
    except OSError:  # programs are started one by one
        return 0


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
        self._residents: dict[int, Resident] = {}
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
                    for pid in {*self._requester_of, *self._residents}:
                        kill(pid)
                    self._requester_of.clear()
                    self._residents.clear()
                    for pid in self._left_behind():
                        kill(pid)
                    return
                if key.fileobj is self._listening:
                    self._hear()
                elif key.fileobj is self._ended:
                    self._ended.recv(4096)
                elif key.fileobj is self._requester_of.get(key.data):
                    kill(key.data)
                elif key.data in self._residents and key.fileobj is self._residents[key.data].line:
                    self._hear_resident(key.data)
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
        elif "idle" in request or "leave" in request:
            idle = [pid for pid in self._residents if pid not in self._requester_of]
            for pid in idle if "leave" in request else ():
                self._dismiss(pid)
            answer(requester, idle)
        else:
            self._start(requester, request, files)
        for file in files:
            os.close(file)

    def _start(self, requester: socket.socket, request: Request, files: list[int]) -> None:
        if ONE_GPU in request["environment"]:
            pid = self._resident_for(requester, request, files)
            with suppress(OSError):  # it has just ended, which is heard like the end of a program
                socket.send_fds(self._residents[pid].line, [json.dumps(request).encode()], files)
        else:
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

    def _resident_for(self, requester: socket.socket, request: Request, files: list[int]) -> int:
        """Return the process that stays with the GPU of this request; begin it if there is none, or
        if another environment was given to it."""
        environment = request["environment"]
        lasting = {name: text for name, text in environment.items() if name not in OF_ONE_RUN}
        begun_as = {"environment": lasting, "core": request["core"]}
        for pid, resident in list(self._residents.items()):
            if pid not in self._requester_of:
                if resident.begun_as == begun_as:
                    return pid
                if resident.gpu == environment[ONE_GPU]:
                    self._dismiss(pid)
        line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        line.setblocking(False)
        pid = os.fork()
        if pid == 0:
            self._forget()
            for end in (requester, line):
                end.close()
            for file in files:  # they come by the line
                os.close(file)
            try:
                stay(far)
            finally:
                os._exit(1)
        far.close()
        self._residents[pid] = Resident(environment[ONE_GPU], begun_as, line)
        self._ready.register(line, selectors.EVENT_READ, pid)
        return pid

    def _hear_resident(self, pid: int) -> None:
        """Hear the exit code of a program, after which the process stays."""
        with suppress(OSError):
            if code := self._residents[pid].line.recv(100):
                self._conclude(pid, code)
                return
        self._dismiss(pid)

    def _dismiss(self, pid: int) -> None:
        """End a process that stays with a GPU, unless it has ended by itself."""
        if pid not in self._requester_of:
            kill(pid)
        resident = self._residents.pop(pid)
        self._ready.unregister(resident.line)
        resident.line.close()

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
            *(resident.line for resident in self._residents.values()),
            *waiting,
        ):
            end.close()

    def _answer(self) -> None:
        """Tell the requesters of all programs that have ended, and end what they left behind."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in self._residents:
                    self._hear_resident(pid)
                self._conclude(pid, str(os.waitstatus_to_exitcode(status)).encode())
        for pid in self._left_behind():
            kill(pid)
        for waiting in list(self._waiting):
            requester, order, until = waiting
            if time.monotonic() > until or order not in self._order_of.values():
                self._tell(requester, order)
                self._waiting.remove(waiting)

    def _conclude(self, pid: int, code: bytes) -> None:
        """Tell the requester of a program that it has ended."""
        self._order_of.pop(pid, None)
        if requester := self._requester_of.pop(pid, None):
            self._ready.unregister(requester)
            with suppress(OSError):
                requester.send(code)
            requester.close()

    def _tell(self, requester: socket.socket, order: str) -> None:
        """Tell which programs of an order run."""
        answer(requester, [pid for pid, of in self._order_of.items() if of == order])

    def _left_behind(self) -> list[int]:
        """List our children that we did not start, once no program runs: a program that runs may
        need them, and nothing says whose they are. Without orders there are none to end."""
        if not self._is_reaper or self._requester_of or not self._has_had_orders:
            return []
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        started = {*self._requester_of, *self._residents}
        return [int(pid) for pid in text.split() if int(pid) not in started]


@dataclass(frozen=True)
class Resident:
    """A process that stays with a GPU, as the server sees it."""

    gpu: str
    begun_as: Request  # environment and limits, which programs that follow must have too
    line: socket.socket


def answer(requester: socket.socket, pids: list[int]) -> None:
    with suppress(OSError):
        requester.send(json.dumps(pids).encode())
    requester.close()


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
    if os.getsid(0) != os.getpid():
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
    code = run(request, files)
    threading._shutdown()  # type: ignore[attr-defined] # as Python does: others may still work
    atexit._run_exitfuncs()
    flush()
    return code


def run(request: Request, files: list[int]) -> int:
    """Run that program to its end, and return its exit code."""
    code: object = 1
    try:
        become(request, files)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    return code or 0


def flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


# --- a process that stays with a GPU ---------------------------------------------------------


def stay(line: socket.socket) -> NoReturn:
    """Run programs in turn as they are asked for, until one fails or leaves something behind."""
    start = Start()
    while True:
        message, files, _, _ = socket.recv_fds(line, MOST_BYTES, 3)
        if not message:
            os._exit(0)
        with suppress(OSError):  # the most memory that a program had is counted from here
            Path("/proc/self/clear_refs").write_text("5")
        code = run(json.loads(message), files)
        flush()
        if code not in ENDED_WELL or not start.is_restored():
            os._exit(code)
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in range(3):  # whoever reads what the program wrote waits for its end
            os.dup2(nothing, file)
        os.close(nothing)
        line.send(str(code).encode())


@dataclass(frozen=True)
class Start:
    """What a program finds that begins: each that follows in the same process is to find it too."""

    path: list[str] = field(default_factory=lambda: [*sys.path])
    modules: frozenset[str] = field(default_factory=lambda: frozenset(sys.modules))
    settings: dict[str, Any] = field(default_factory=lambda: torch_settings())

    def is_restored(self) -> bool:
        """Restore what a program changed. False: a thread or memory of a GPU is left."""
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(THREAD_PATIENCE_S if thread.daemon else None)
        added = tuple(folder + os.sep for folder in {*sys.path} - {*self.path} if folder)
        for name in {*sys.modules} - self.modules:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(added):
                del sys.modules[name]  # another program may have its own of this name
        sys.path[:] = self.path
        tempfile.tempdir = None
        gc.collect()
        try:
            restore_torch(self.settings)
            return threading.active_count() == 1 and not gpu_bytes()
        except RuntimeError:  # an error of a GPU for which the program did not wait
            return False


def torch_settings() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "precision": torch.get_float32_matmul_precision(),
        "benchmark": torch.backends.cudnn.benchmark,
        "allow_tf32": torch.backends.cudnn.allow_tf32,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "seed": torch.initial_seed(),
    }


def restore_torch(settings: dict[str, Any]) -> None:
    """Set torch as it was, and its generators as a process finds them that begins."""
    if not settings:
        return
    import torch

    if torch.get_float32_matmul_precision() != settings["precision"]:
        torch.set_float32_matmul_precision(settings["precision"])
    if torch.backends.cudnn.allow_tf32 != settings["allow_tf32"]:
        torch.backends.cudnn.allow_tf32 = settings["allow_tf32"]
    torch.backends.cudnn.benchmark = settings["benchmark"]
    torch.use_deterministic_algorithms(settings["deterministic"])
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])


def gpu_bytes() -> int:
    """Return what tensors still take of the GPU, once libraries gave back what they had set
    aside."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    torch.cuda.synchronize()
    if clear := getattr(torch._C, "_cuda_clearCublasWorkspaces", None):
        clear()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return int(torch.cuda.memory_allocated())


if __name__ == "__main__":
    server = Server(sys.argv[1], is_reaper=True)  # requests wait while it loads
    sys.path[0] = str(Path(os.__file__).parent)  # what lies beside this file has common names
    load(sys.argv[2:] or ["torch"])
    print("ready", flush=True)
    server.serve()
    os._exit(0)  # to tidy an interpreter with torch takes a second
