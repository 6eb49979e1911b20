"""Programs as children of one process that has loaded torch, which takes each of them 1.5 s less;
or `python -m anubis`, a second less.

`ForkServer` starts that process and runs programs by it: each with its own arguments, environment,
folder, files and session, as if it had been started by a shell. The ranks of a torchrun program
come from there as well (PYTHON_EXEC). What depends on the life of a process (who dies with whom,
what it loads) is not to be seen here: such tests start the program themselves. No asserts.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 1 << 20  # of a request: arguments and environment

# Stands for the interpreter: `PYTHON_EXEC [-u] program arguments`.
STAND_IN = """#!{python} -IS
import sys
sys.path.insert(0, {here!r})
from forks import ask
arguments = sys.argv[2:] if sys.argv[1] == "-u" else sys.argv[1:]
code = ask({address!r}, arguments, files=(1, 2))
if code < 0:
    import os, signal
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def ask(
    address: str,
    argv: list[str],
    files: tuple[int, ...],  # for its stdout and stderr, or stdin as well
    environment: dict[str, str] | None = None,
    folder: str | None = None,
    limit_s: float | None = None,
) -> int:
    """Run a program and wait for it: its exit code, or less than 0 by a signal."""
    request = {
        "argv": argv,
        "environment": dict(os.environ) if environment is None else environment,
        "folder": folder or os.getcwd(),  # noqa: PTH109 # pathlib takes as long as all the rest
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        server.settimeout(limit_s)
        server.connect(address)
        socket.send_fds(server, [json.dumps(request).encode()], files)
        return int(server.recv(100))


class Server:
    """Forks a program for each request; one whose requester has gone is killed with its session."""

    def __init__(self, address: str) -> None:
        self._requester_of: dict[int, socket.socket] = {}
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(address)
        self._listening.listen(100)
        self._ended, wake = socket.socketpair()
        for end in (self._ended, wake):
            end.setblocking(False)
        self._wake = wake
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._ready = selectors.DefaultSelector()
        for source in (self._listening, self._ended, sys.stdin):
            self._ready.register(source, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until stdin ends."""
        while True:
            for key, _ in self._ready.select():
                if key.fileobj is sys.stdin:
                    for pid in self._requester_of:
                        kill(pid)
                    return
                if key.fileobj is self._listening:
                    self._start()
                elif key.fileobj is self._ended:
                    self._ended.recv(4096)
                elif key.data in self._requester_of:
                    kill(key.data)
            self._answer()

    def _start(self) -> None:
        requester, _ = self._listening.accept()
        message, files, _, _ = socket.recv_fds(requester, MOST_BYTES, 3)
        pid = os.fork()
        if pid == 0:
            self._forget()
            requester.close()
            os._exit(exit_code(json.loads(message), files))
        for file in files:
            os.close(file)
        self._requester_of[pid] = requester
        self._ready.register(requester, selectors.EVENT_READ, pid)

    def _forget(self) -> None:
        """Nothing of the server is the program's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._ready.close()
        for end in (self._listening, self._ended, self._wake, *self._requester_of.values()):
            end.close()

    def _answer(self) -> None:
        """Tell the requesters of all programs that have ended."""
        while self._requester_of:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            requester = self._requester_of.pop(pid)
            self._ready.unregister(requester)
            with suppress(BrokenPipeError):
                requester.send(str(os.waitstatus_to_exitcode(status)).encode())
            requester.close()


def kill(pid: int) -> None:
    """With its session; it is not in one of its own yet where its requester went at once."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(pid, signal.SIGKILL)  # nobody has waited for it, so the number is still its own


def load(modules: list[str]) -> None:
    """What the programs would load, each for itself."""
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or to look for garbage would copy all of it into each program


def load_torch() -> None:
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous as pair_test

    # for a line of a log that nobody reads, torchrun looks through all modules, hundreds of times
    pair_test.get_method_name = lambda depth=2: ""
    pair_test.construct_and_record_rdzv_event = lambda **event: None


def become(request: dict, files: list[int]) -> None:
    """Be that program: what Python does between its start and the program's first line."""
    os.setsid()
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


def exit_code(request: dict, files: list[int]) -> int:
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
    if sys.argv[2:]:
        load(sys.argv[2:])
    else:
        load_torch()
    server = Server(sys.argv[1])
    print("ready", flush=True)
    server.serve()
    os._exit(0)  # to tidy an interpreter with torch takes a second
