"""The driver's end of the way to Ray, which runs in a process of its own.

Ray waits without limit for a head that is frozen, and ends its process when the head is gone: so
that process is never ours. Requests go there, answers come back in any order, and an end of it is
an answer, too. Nothing here knows what is asked.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from anubis.core.errors import ExecutorError
from anubis.reach.executors.guardian import foreign_writers

JOIN_DEADLINE_S = 60.0  # a cold disk reads a Python and a Ray
REACH_PATIENCE_S = 5.0  # for a connection to the head
LEAVE_PATIENCE_S = 5.0  # then the process is killed
KNOCK_PATIENCE_S = 5.0  # for the head to answer
PATIENCE_WITH_START_S = 30.0  # a process that loads Ray takes seconds to begin
REFUSED = 3  # the exit code of a knock
KNOCK = "knock"  # what Ray's process is asked instead of a file's number
HERE = "local"  # the address of a Ray that is started on this machine, for this driver alone
LAST_WORDS = 160  # characters of a process's last line, in a sentence about it
LONGEST_PARENT = 20  # letters: a socket's path holds 107, and Ray adds 66 to ours
TOKENS = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}

# Never for a cluster we join: to servers that do not expect them, keep-alives are an offence.
OWN_CLUSTER = {
    "RAY_grpc_client_keepalive_time_ms": "1000",
    "RAY_grpc_client_keepalive_timeout_ms": "2000",
    "RAY_worker_niceness": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # it would take the agent for what the program eats
}

# A silent partition must not go unnoticed for minutes; these are Ray's names for "soon".
HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@dataclass(frozen=True, kw_only=True)
class Join:
    """The first message to Ray's process."""

    address: str
    programs: Path  # what travels to the nodes
    own_address: str
    folder: Path  # of a Ray that is started here


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Ray's records of the nodes, or the reason why there are none."""

    records: Sequence[Mapping[str, Any]] = ()
    free: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by Ray's node id
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class StartAgent:
    node_id: str
    address: str
    gpus: float


@dataclass(frozen=True, kw_only=True)
class AskAgent:
    number: int
    node_id: str
    method: str
    arguments: tuple[object, ...]
    group: str


@dataclass(frozen=True, kw_only=True)
class ListNodes:
    number: int


@dataclass(frozen=True, kw_only=True)
class Echo:
    """What comes back at once, after all requests before it."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Dismiss:
    node_id: str


Request = StartAgent | AskAgent | ListNodes | Echo | Dismiss


@dataclass(frozen=True, kw_only=True)
class Answer:
    number: int
    value: Any = None
    trouble: str = ""  # it could not do it
    gone: bool = False  # and will never answer again


Hearer = Callable[[Answer], None]


@dataclass
class RayLink:
    """The link to Ray's process. `hear` is called from a thread with what is to be done in the
    caller's own.

    `own_address`: the head that we started ourselves, for this driver alone.
    """

    address: str
    programs: Path
    hear: Callable[[Callable[[], None]], None]
    token: Path | None = None
    own_address: str = ""
    broken: str = ""  # why nothing can be asked any more
    joined: Joined = field(default_factory=Joined)
    _awaited: dict[int, Hearer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.address != HERE:
            reach(self.address)
        self._numbers = count()
        self._answered = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="anubis-ray-", dir=safe_place(LONGEST_PARENT)))
        self._log = self._folder / "log"
        settings = environment(self.address, self.token, self._folder)
        settings |= OWN_CLUSTER if self.own_address else {}
        self.shows_token = settings.get("RAY_AUTH_MODE", "").lower() == "token"
        self._answers_strangers: bool | None = None
        if self.shows_token and self.address != HERE and not self.own_address:
            self._answers_strangers = answers_a_stranger(self.address)
            if self._answers_strangers:  # a driver with a token refuses agents that have none
                settings, self.shows_token = drop_token(settings), False
        near, far = socket.socketpair()
        with far, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "anubis.reach.executors.ray_process", str(far.fileno())],
                env=settings,
                pass_fds=(far.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,  # Ray prints the news of its cluster there
                stderr=log,
                start_new_session=True,  # what a terminal or scheduler sends is meant for us
            )
        self._pipe = Connection(near.detach())
        join = Join(
            address=self.address,
            programs=self.programs,
            folder=self._folder / "r",
            own_address=self.own_address or os.environ.get("ANUBIS_NODE_IP", ""),
        )
        self._tell(join)
        threading.Thread(target=self._listen, daemon=True).start()

    def join(self) -> None:
        """Wait until Ray has joined the cluster, but not for ever."""
        if self._answered.wait(JOIN_DEADLINE_S) and not self.broken:
            return
        where = f'the ray cluster at "{self.address}"'
        if self.address == HERE:
            where = "a ray cluster on this machine"
        why = (
            self.broken
            or f"something listens there, but Ray could not join in {JOIN_DEADLINE_S:g} s"
        )
        raise ExecutorError(f"{where} cannot be used: {why}; {self._advice()}")

    def _advice(self) -> str:
        if "InvalidAuthToken" not in self._log.read_text(errors="replace"):
            return "see that its head runs and answers: ray status"
        if self.shows_token:
            return "it has another token than the one that was shown"
        return (
            "it asks for a token: name the file with it as `token:` in the cluster's file, or set"
            " RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
        )

    def is_open(self) -> bool | None:
        """Return true if the cluster takes commands without a token, and None if that is not known:
        Ray finds the address by itself, as with "auto", or the head does not answer."""
        if not self.shows_token:
            return True
        if self.address == HERE:  # our own, which has a token
            return False
        if self._answers_strangers is None:
            self._answers_strangers = answers_a_stranger(self.address)
        return self._answers_strangers

    def start_agent(self, node_id: str, address: str, gpus: float) -> None:
        self._tell(StartAgent(node_id=node_id, address=address, gpus=gpus))

    def ask(
        self, hearer: Hearer, node_id: str, method: str, *arguments: object, group: str
    ) -> None:
        number = self._expect(hearer)
        self._tell(
            AskAgent(
                number=number, node_id=node_id, method=method, arguments=arguments, group=group
            )
        )

    def list_nodes(self, hearer: Hearer) -> None:
        """Ask for Ray's records of the nodes, as they are now."""
        self._tell(ListNodes(number=self._expect(hearer)))

    def echo(self, hearer: Hearer) -> None:
        self._tell(Echo(number=self._expect(hearer)))

    def dismiss(self, node_id: str) -> None:
        self._tell(Dismiss(node_id=node_id))

    def close(self) -> None:
        """End the job, and with it every agent; what does not end by itself is ended."""
        self._pipe.close() if self._process.poll() is not None else self._hang_up()
        try:
            self._process.wait(LEAVE_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _hang_up(self) -> None:
        """Close the pipe for writing, which tells Ray's process to leave."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def _expect(self, hearer: Hearer) -> int:
        number = next(self._numbers)
        self._awaited[number] = hearer
        return number

    def _tell(self, request: Join | Request) -> None:
        with suppress(OSError):  # its end is heard by `_listen`
            self._pipe.send(request)

    def _listen(self) -> None:
        try:
            while True:
                self._take(self._pipe.recv())
        except (EOFError, OSError):
            self.broken = self.broken or self._last_words()
            self._answered.set()
            self.hear(lambda: None)  # whoever waits for an answer looks up

    def _take(self, message: Joined | Answer) -> None:
        if isinstance(message, Answer):
            hearer = self._awaited.pop(message.number)
            self.hear(lambda: hearer(message))
        else:
            self.joined, self.broken = message, message.trouble
            self._answered.set()

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        text = ""
        with suppress(FileNotFoundError):  # whoever closes the link removes its folder meanwhile
            text = self._log.read_text(errors="replace")
        spoken = [line.strip() for line in text.split("\n") if line.strip()]
        words = f': "{spoken[-1][-LAST_WORDS:]}"' if spoken else ""
        return f"Ray ended its process here, as it does a minute after it lost its head{words}"


def safe_place(longest: int = 4096) -> str:
    """Return the folder of temporary files, or /tmp if that path is too long; an error if other
    users could exchange ours there."""
    try:
        place = os.path.realpath(tempfile.gettempdir())
    except OSError as error:
        raise ExecutorError(f"no place for temporary files: {error.strerror}; set TMPDIR") from None
    place = place if len(place) <= longest else "/tmp"
    if trouble := foreign_writers(place):
        raise ExecutorError(
            f'no file in "{place}" is safe from other users: {trouble}; give it the sticky'
            " bit (chmod +t), or set TMPDIR to a folder that only you may change"
        )
    return place


def environment(address: str, token: Path | None, folder: Path) -> dict[str, str]:
    """Return the environment of Ray's process. A Ray of our own has a token of its own: by default
    Ray would leave one in the user's home, which changes how every later Ray starts there."""
    settings = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    if address == HERE:
        token = folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        settings |= OWN_CLUSTER
    if token:
        settings.pop("RAY_AUTH_TOKEN", None)
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    elif has_token(settings):  # heads started here ask for it
        settings.setdefault("RAY_AUTH_MODE", "token")
    return settings


def has_token(settings: Mapping[str, str]) -> bool:
    """Return true if there is a token in one of the places where Ray looks."""
    in_home = Path.home() / ".ray" / "auth_token"
    return not settings.keys().isdisjoint(TOKENS) or in_home.exists()


def drop_token(settings: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Ray shows no token, and asks for none."""
    rest = {name: text for name, text in settings.items() if name not in TOKENS}
    return {**rest, "RAY_AUTH_MODE": "disabled"}


def answers_a_stranger(address: str) -> bool | None:
    """Return whether a head accepts a request without a token; None if it gives no answer, or if
    Ray finds the address by itself."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return None
    knock = [sys.executable, "-m", "anubis.reach.executors.ray_process", KNOCK, address]
    settings = drop_token(os.environ)
    try:
        call(host, int(port))  # before Ray does, which knocks for a quarter of a minute
        ended = subprocess.run(
            knock, env=settings, capture_output=True, timeout=PATIENCE_WITH_START_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {0: True, REFUSED: False}.get(ended.returncode)


def reach(address: str) -> None:
    """Try the address before Ray does, which tries for a minute."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return  # "auto" and the like: Ray's to resolve
    try:
        call(host, int(port))
    except OSError as error:
        raise ExecutorError(
            f'no ray cluster answers at "{address}" ({error}); '
            f'start one there with "ray start --head --port={port}"'
        ) from None


def call(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=REACH_PATIENCE_S).close()
