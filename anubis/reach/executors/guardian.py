"""Guardian of one program and all of its processes: `python -I -S guardian.py`.

One order comes in as a line of JSON on stdin, one outcome goes out as JSON on stdout. Stdin stays
open for as long as somebody wants the answer: its end, however the parent died, ends everything.

It travels to the nodes as text, so it needs the standard library alone and imports nothing of
Anubis. It starts beside every program, so it loads neither pathlib nor typing, which take as long
as all that it does. It knows nothing about benchmarks, and never waits for what cannot be killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import re
import resource
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Literal, NoReturn

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h
ORDER_LIMIT_BYTES = 1 << 20  # an order is a command line and its environment
READ_BYTES = 1 << 16  # what a pipe of Linux holds
OURS = {"ANUBIS_HISTORY", "ANUBIS_EVENTS"}
SECRET_NAME = re.compile(
    r"PASSW|PASSPHRASE|PGPASS|SECRET|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY"
    r"|(^|_)(TOKEN|JWT|PASS)(_|$)",
    re.IGNORECASE,
)
SECRET_URL = re.compile(r"://[^/\s@]*:[^/\s]*@")  # a user's password before the host
POD_VOLUMES = "/volumes/kubernetes.io~empty-dir/"  # below the folder that a kubelet has for a pod
LONGEST_WAIT_S = 3600.0  # the kernel takes no time limit of weeks
KILL_PATIENCE_S = 5.0  # after SIGKILL; what is still there then is stuck in the kernel
# of a server of forks: it answers at once, or after it has waited for those that it killed
ANSWER_PATIENCE_S = {"running": 1.0, "idle": 1.0, "leave": 1.0, "gone": 2 * KILL_PATIENCE_S}
# from its limit to its report: asking who is on the GPUs takes 16, killing 5, forks 10, words 2
REPORT_PATIENCE_S = 35.0
MOST_TIMES_LIMIT = 10.0  # what is still at work then does not only wait for processors
LEAST_WAIT_S = 0.1  # what waits so little more was given enough
MEMORY = "--query-gpu=memory.used,memory.total"  # in MiB
TOOL_PATIENCE_S = 10.0  # a tool of a driver that hangs never answers
DRIVER_MIB, DRIVER_SHARE = 4096, 0.1  # of a GPU's memory that driver and screens may take
INATTENTIVE_S = 5.0  # its parent looks every second, unless something stops it

libc = ctypes.CDLL(None, use_errno=True)


class Head:
    """The first bytes of a stream; more than the limit is a flood."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.kept = bytearray()

    def add(self, data: bytes) -> None:
        self.kept += data[: self.limit + 1 - len(self.kept)]

    @property
    def flooded(self) -> bool:
        return len(self.kept) > self.limit

    def text(self) -> str:
        return self.kept[: self.limit].decode("utf-8", "replace")


class Ends:
    """The first and the last bytes of a stream: how it began, and its last words."""

    def __init__(self, limit: int) -> None:
        self.half = max(1, limit // 2)
        self.head = bytearray()
        self.tail = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        surplus = len(self.tail) - self.half
        if surplus > 0:
            self.left_out += surplus
            del self.tail[:surplus]

    def text(self) -> str:
        gap = b"\n[%d bytes left out]\n" % self.left_out if self.left_out else b""
        return (self.head + gap + self.tail).decode("utf-8", "replace")


class Guard:
    """The program of one order, its streams, and every process that descends from it."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.stdout = Head(order.get("stdout_limit", 1 << 24))
        self.stderr = Ends(order.get("stderr_limit", 1 << 14))
        self.status: int | None = None  # the program's wait status, once it ended
        self.childless = False  # nothing descends from us any more: the kernel's word
        self.unwanted = False
        self.selector = selectors.DefaultSelector()
        self.started_at = time.time()  # wall clock: that of documents
        self.started = time.monotonic()
        self.pid = 0
        self.pipes: list[IO[bytes]] = []
        self.scratch = ""  # a folder that begins and ends with the program

    def run(self) -> dict[str, Any]:
        wakeup = self._listen()
        try:
            self._make_scratch()
            self._start()
        except (OSError, subprocess.SubprocessError) as error:
            return self._outcome(could_not_start=str(error))
        self.selector.register(0, selectors.EVENT_READ, self._handle_stdin)
        self.selector.register(wakeup, selectors.EVENT_READ, self._handle_signal)

        waited_s = self._follow_to_limit()
        timed_out = not self._is_over()
        outlived = set(descendants(os.getpid())) - {self.pid}
        if timed_out:
            signal_all(signal.SIGTERM)
            self._follow(time.monotonic() + self.order.get("grace_s", 2.0), until_childless=True)
        unkillable = self._kill_all() + forked_for(self.order, "gone")
        for pipe in self.pipes:
            self._drain(pipe)
        return self._outcome(
            timed_out=timed_out,
            waited_s=waited_s,
            flooded=self.stdout.flooded,
            killed=self.unwanted and not timed_out,
            left_behind=len(outlived),
            unkillable=unkillable,
        )

    def refuse(self, reason: str) -> dict[str, Any]:
        return self._outcome(could_not_start=reason)

    def clear_away(self) -> None:
        if self.scratch:
            import shutil  # few orders need it

            shutil.rmtree(self.scratch, ignore_errors=True)

    def _make_scratch(self) -> None:
        if scratch := self.order.get("scratch", ""):
            parent = os.path.realpath(os.path.dirname(scratch))
            if trouble := foreign_writers(parent):
                raise OSError(f'no folder in "{parent}" is safe from other users: {trouble}')
            os.mkdir(scratch, 0o700)  # and not into one that somebody else made
            self.scratch = scratch

    def _start(self) -> None:
        parent = os.getpid()

        def prepare_child() -> None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)  # the guardian died before the line above could take effect
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core of 80 GB beside it

        program = subprocess.Popen(
            self.order["argv"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.scratch or self.order.get("cwd"),
            env=add_library(
                {**remove_secrets(os.environ), **self.order.get("env", {})},
                self.order.get("library", ""),
            ),
            start_new_session=True,
            preexec_fn=prepare_child,
        )
        program.returncode = 0  # all reaping is done below: keep Popen from waiting as well
        self.pid = program.pid
        assert program.stdout is not None
        assert program.stderr is not None
        for pipe, keep in ((program.stdout, self.stdout), (program.stderr, self.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, selectors.EVENT_READ, keep)
            self.pipes.append(pipe)

    def _listen(self) -> int:
        """Return a descriptor that becomes readable with each signal of interest."""
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        return readable

    def _is_over(self) -> bool:
        return self.status is not None or self.stdout.flooded or self.unwanted

    def _follow_to_limit(self) -> float:
        """Follow the program to its limit, and return the time that it got beside it: that in which
        others kept it from a processor, up to a bound."""
        more_s, waited_s = 0.0, 0.0
        while True:
            self._follow(self.started + self.order["timeout_s"] + more_s)
            waited_s = granted_s(self.order, os.getpid())
            if self._is_over() or waited_s < more_s + LEAST_WAIT_S:
                return more_s
            more_s = waited_s

    def _follow(self, until: float, until_childless: bool = False) -> None:
        """Read along until the program has ended, is to be ended, or the time is up."""
        while (left := until - time.monotonic()) > 0:
            self._reap()
            over = self.childless if until_childless else self.status is not None
            if over or self.stdout.flooded or self.unwanted:
                return
            for key, _ in self.selector.select(min(left, LONGEST_WAIT_S)):
                if isinstance(key.data, Head | Ends):
                    self._read(key.fileobj, key.data)
                else:
                    key.data(key.fileobj)

    def _read(self, pipe: Any, keep: Head | Ends) -> bool:
        """Take what is there; False at the end of the stream, or when nothing is there now."""
        try:
            data = os.read(pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return False
        keep.add(data)
        if not data:
            self.selector.unregister(pipe)
        return bool(data)

    def _drain(self, pipe: IO[bytes]) -> None:
        """Read what the program wrote just before its end; a pipe holds little, so this is
        bounded."""
        if pipe in self.selector.get_map():
            keep = self.selector.get_key(pipe).data
            deadline = time.monotonic() + 1.0  # a writer out of our reach must not hold us up
            while self._read(pipe, keep) and time.monotonic() < deadline:
                pass

    def _handle_stdin(self, fd: Any) -> None:
        if not os.read(fd, READ_BYTES):
            self.unwanted = True
            self.selector.unregister(fd)

    def _handle_signal(self, fd: Any) -> None:
        with contextlib.suppress(BlockingIOError):
            if any(number != signal.SIGCHLD for number in os.read(fd, READ_BYTES)):
                self.unwanted = True

    def _reap(self) -> None:
        """Bury the dead, adopted orphans too. No children left means no descendants left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.status = ended[1]
        except ChildProcessError:
            self.childless = True

    def _kill_all(self) -> list[int]:
        """Send SIGKILL until the kernel says that no children are left; return the pids that would
        not go."""
        deadline = time.monotonic() + KILL_PATIENCE_S
        pause = 0.001
        while True:
            signal_all(signal.SIGKILL)
            self._reap()
            if self.childless:
                return []
            if time.monotonic() > deadline:
                return descendants(os.getpid())
            time.sleep(pause)
            pause = min(2 * pause, 0.1)

    def _outcome(self, **facts: Any) -> dict[str, Any]:
        code = None if self.status is None else os.waitstatus_to_exitcode(self.status)
        return {
            "exit": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "timed_out": False,
            "waited_s": 0.0,
            "flooded": False,
            "killed": False,
            "left_behind": 0,
            "unkillable": [],
            "could_not_start": "",
            "stdout": "" if self.stdout.flooded else self.stdout.text(),
            "stderr": self.stderr.text(),
            "started_at": self.started_at,
            "duration_s": time.monotonic() - self.started,
            **facts,
        }


def forked_for(
    order: Mapping[str, Any], question: Literal["running", "idle", "leave", "gone"]
) -> list[int]:
    """Return the processes that a server forked for an order (benchmarks/kit/forks.py): those that
    run, or, once those that asked for them have gone, those that it cannot kill. Or those that stay
    with GPUs for the next order: idle, or told to leave."""
    address, _, number = order.get("forks", "").partition(" ")
    if not number:
        return []
    import socket  # few orders need it

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.settimeout(ANSWER_PATIENCE_S[question])
            server.connect(f"\0{address[1:]}")
            server.send(json.dumps({question: number}).encode())
            pids: list[int] = json.loads(server.recv(READ_BYTES) or b"[]")
            return pids
    except (OSError, ValueError):  # it has ended, and they with it
        return []


def descendants(*roots: int) -> list[int]:
    """List every living process below `roots`: a child that double-forked was re-parented to us."""
    children: dict[int, list[int]] = {}
    for pid in map(int, filter(str.isdecimal, names_in("/proc"))):
        with contextlib.suppress(OSError):
            state, parent = content(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:2]
            children.setdefault(int(parent), []).append(-pid if state in (b"Z", b"X") else pid)
    living: list[int] = []
    todo = [*roots]
    while todo:
        for pid in children.get(todo.pop(), []):
            todo.append(abs(pid))  # a thread of a dead leader can still be a parent
            if pid > 0:
                living.append(pid)
    return living


def names_in(folder: str) -> list[str]:
    """List the names in a folder; none if it is not there, as that of a process that has ended."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def content(file: str) -> bytes:
    with open(file, "rb") as opened:
        return opened.read()


def granted_s(order: Mapping[str, Any], root: int) -> float:
    """Return the time beside its limit that the program of an order gets, which runs below
    `root`."""
    most_s: float = order.get("longest_s", 0.0) - order["timeout_s"]
    if most_s <= 0:
        return 0.0
    forked = forked_for(order, "running")
    return min(most_s, kept_waiting_s([*forked, *descendants(root, *forked)]))


def kept_waiting_s(pids: Iterable[int]) -> float:
    """Return how long the thread of these processes that waited longest for a processor did so: by
    the kernel's word, if it keeps such books."""
    waits_ns = [0]
    for pid in pids:
        for thread in names_in(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
                waits_ns.append(int(content(f"/proc/{pid}/task/{thread}/schedstat").split()[1]))
    return max(waits_ns) / 1e9


def signal_all(number: int) -> None:
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def end_below(root: int) -> None:
    """Send SIGKILL to every process below `root`, until none lives or patience ends."""
    deadline = time.monotonic() + KILL_PATIENCE_S
    while (living := descendants(root)) and time.monotonic() < deadline:
        for pid in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def end_with_front(front: int) -> None:
    """End a front that does not answer, because its program stopped it and the guardian, with all
    below it."""
    end_below(front)
    with contextlib.suppress(OSError):
        os.kill(front, signal.SIGKILL)


def foreign_writers(folder: str) -> str:
    """Name the users besides root and this one who could put something else at this real path, in
    one sentence; "" if there are none. Below a folder that only we may enter, nothing matters any
    more."""
    trusted = {0, os.geteuid(), *unmapped_users()}
    place = "/"
    here = os.open(place, os.O_PATH | os.O_DIRECTORY)
    try:
        for name in [*filter(None, folder.split("/")), ""]:
            status = os.fstat(here)
            if status.st_uid not in trusted:
                return f'"{place}" belongs to {user_name(status.st_uid)}'
            is_open = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
            if is_open and not is_of_this_pod(place):
                owners = "any user" if status.st_mode & 0o002 else f"group {status.st_gid}"
                return f'{owners} may change "{place}" (mode {status.st_mode & 0o7777:04o})'
            if not (status.st_mode & 0o011 and name):
                return ""
            place = f"{place.rstrip('/')}/{name}"
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
            below = os.open(name, flags, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    return ""


def is_of_this_pod(place: str) -> bool:
    """True if a kubelet mounted the place for the containers of this pod alone, which may all
    change it: an emptyDir on disk. On the node, only root can reach it."""
    with contextlib.suppress(OSError):
        mounts = os.fsdecode(content("/proc/self/mountinfo")).splitlines()
        for _, _, _, mounted, at, *_ in map(str.split, reversed(mounts)):  # the last is on top
            if at == place:
                return POD_VOLUMES in mounted
    return False


def unmapped_users() -> set[int]:
    """Return the number that stands for all foreign users, root too, in a container without the
    host's users."""
    with contextlib.suppress(OSError, ValueError):
        if content("/proc/self/uid_map").split() != [b"0", b"0", b"4294967295"]:
            return {int(content("/proc/sys/kernel/overflowuid"))}
    return set()


def user_name(number: int) -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(number).pw_name
    return f"user {number}"


class Watched:
    """A guardian, as its parent sees it. Its program may stop it, and the front as well: the front
    is woken, which wakes the guardian. If it stays silent, it is ended."""

    def __init__(self, front: int, order: Mapping[str, Any]) -> None:
        self._front = front
        self._looked_at = time.monotonic()
        limit_s: float = order["timeout_s"] + order.get("grace_s", 2.0)
        self._until = self._looked_at + limit_s + REPORT_PATIENCE_S
        self._order, self._limit_at = order, self._looked_at + order["timeout_s"]
        self.waited_s = 0.0  # the time that the program gets beside its limit, so far

    def is_due(self) -> bool:
        """Return true if a report may still come; to be called every second."""
        now = time.monotonic()
        gap_s, self._looked_at = now - self._looked_at, now
        if gap_s > INATTENTIVE_S:
            self._until += gap_s
            self._limit_at += gap_s
        if now >= self._limit_at + self.waited_s:
            self.waited_s = max(self.waited_s, granted_s(self._order, self._front))
        with contextlib.suppress(OSError):  # it has ended
            if os.waitid(os.P_PID, self._front, os.WSTOPPED | os.WNOHANG):
                os.kill(self._front, signal.SIGCONT)
        return now < self._until + self.waited_s

    def end(self) -> bytes:
        """End the guardian by force, with all below it, and return the report that it owes."""
        end_with_front(self._front)
        facts = {"timed_out": True, "unheard": True, "unkillable": descendants(self._front)}
        return json.dumps(facts).encode()


def remove_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return our own environment as a program may see it: without our history, passwords, tokens
    and keys."""
    return {
        name: value
        for name, value in environment.items()
        if name not in OURS and not SECRET_NAME.search(name) and not SECRET_URL.search(value)
    }


def add_library(environment: Mapping[str, str], library: str) -> dict[str, str]:
    """Add a library to the path of Python modules, after what the operator has on the path."""
    path = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), library)))
    return {**environment, "PYTHONPATH": path} if library else dict(environment)


def read_order() -> dict[str, Any]:
    """Read the first line of stdin byte-exactly: what follows is only watched for its end."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(0, READ_BYTES)
        if not data or len(line) > ORDER_LIMIT_BYTES:
            sys.exit(2)
        line += data
    order: dict[str, Any] = json.loads(line)
    return order


def occupied_by(order: Mapping[str, Any], patience_s: float = 5.0) -> str:
    """Name the processes on the GPUs of this node, in one sentence, or the GPU whose memory is in
    use though no process is named; "" if there are none besides those that stay for this order, or
    no tool says.

    A process that has just ended may be listed a moment longer. In a container the tools may have
    other numbers for those that stay: they leave early, long before anything is refused.
    """
    began = time.monotonic()
    until = began + patience_s
    staying = set(forked_for(order, "idle"))
    while pids := [pid for pid in gpu_processes() if pid not in staying]:
        if staying and time.monotonic() > began + patience_s / 10:
            forked_for(order, "leave")
            until, staying = time.monotonic() + patience_s, set()
        if time.monotonic() > until:
            names = ", ".join(map(owner, pids[:3])) + (" and more" if len(pids) > 3 else "")
            return f"the GPUs here are in use by {names}: the node is left alone"
        time.sleep(0.5)
    while full := full_gpus(ask_nvidia(MEMORY)):
        if time.monotonic() > until:
            return f"{full} in use, by no process that a tool names: the node is left alone"
        time.sleep(0.5)
    return ""


def gpu_processes() -> list[int]:
    """List processes that compute on GPUs, as far as the tools say."""
    root = os.environ.get("ANUBIS_HOST_ROOT", "/")
    return sorted(nvidia_processes() | amd_processes(os.path.join(root, "sys/class/kfd/kfd/proc")))


def nvidia_processes() -> set[int]:
    """Return processes by NVIDIA's tool."""
    return {int(line) for line in ask_nvidia("--query-compute-apps=pid") if line.isdecimal()}


def full_gpus(lines: Sequence[str]) -> str:
    """Name the first GPU with more memory in use than its driver takes; "" if there is none. Beside
    a Grace processor it may be the host's own, as for files that were read."""
    shares_with_host = os.uname().machine == "aarch64"
    for place, line in enumerate([] if shares_with_host else lines):
        used, total = (int(n) if n.isdecimal() else 0 for n in f"{line}, ".split(", ")[:2])
        if used > max(DRIVER_MIB, DRIVER_SHARE * total):
            return f"GPU {place} has {used / 1024:.1f} of {total / 1024:.0f} GiB"
    return ""


def ask_nvidia(query: str) -> list[str]:
    """Return the lines that NVIDIA's tool prints. One that hangs says nothing, and is left
    behind."""
    deadline = time.monotonic() + TOOL_PATIENCE_S
    words = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        tool = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return []
    assert tool.stdout is not None
    with tool.stdout:
        while tool.poll() is None:  # not run(timeout=): that waits for the killed without limit
            if time.monotonic() > deadline:
                tool.kill()
                return []
            time.sleep(0.02)
        return [line.strip() for line in tool.stdout.read().decode(errors="replace").splitlines()]


def amd_processes(processes: str) -> set[int]:
    """Return processes by AMD's compute driver: those that have it open, with queues or memory on a
    GPU."""
    return {
        int(name)
        for name in filter(str.isdecimal, names_in(processes))
        if names_in(f"{processes}/{name}/queues") or holds_memory(f"{processes}/{name}")
    }


def holds_memory(process: str) -> bool:
    """Return true if a number of bytes is above 0; a process that has just ended has none."""
    for name in names_in(process):
        with contextlib.suppress(OSError, ValueError):
            if name.startswith("vram_") and int(content(f"{process}/{name}")) > 0:
                return True
    return False


def owner(pid: int) -> str:
    """Name a process by its number, name and user; one of another name space by the number
    alone."""
    try:
        name = content(f"/proc/{pid}/comm").decode("utf-8", "replace").strip()
        user = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return f"pid {pid}"
    return f"pid {pid} ({name} of {user_name(user)})"


def step_aside() -> None:
    """Go on in a child of our own, so that a parent that kills its direct children misses the
    guardian.

    Ray does so when a worker exits, and Ctrl-C reaches the terminal's process group. When the front
    is killed, the guardian still learns of the parent's death from stdin.
    """
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # of whatever a killed guardian leaves behind
    guardian = os.fork()
    if guardian == 0:
        os.setsid()
        return
    os.closerange(0, 3)
    stand_behind(guardian)


def stand_behind(guardian: int) -> NoReturn:
    """Wake a guardian that its program stopped, and end what is left of one that was killed."""
    status = os.waitpid(guardian, os.WUNTRACED)[1]
    while os.WIFSTOPPED(status):
        os.kill(guardian, signal.SIGCONT)
        status = os.waitpid(guardian, os.WUNTRACED)[1]
    if os.WIFSIGNALED(status):
        end_below(os.getpid())
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def main() -> None:
    step_aside()
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    order = read_order()
    try:
        guard = Guard(order)
        trouble = occupied_by(order) if order.get("vacant_gpus") else ""
        outcome = guard.refuse(trouble) if trouble else guard.run()
        guard.clear_away()
    except Exception as error:
        outcome = {"could_not_start": f"the guardian failed: {error!r}"}
        signal_all(signal.SIGKILL)
    with contextlib.suppress(BrokenPipeError), os.fdopen(1, "w") as out:
        json.dump(outcome, out)


if __name__ == "__main__":
    main()
