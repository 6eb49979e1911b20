"""Samples this node once a second, for nodes without node_exporter and dcgm-exporter.

    python3 benchmarks/telemetry [--listen ADDRESS:PORT] [--record FILE] …

Standard library and pynvml only. It keeps the last 20 minutes, shows them to `anubis watch` and a
Prometheus (`page.py`), and judges nothing. Each source is asked in a thread of its own,
since a driver or a disk may hang: the others go on without it.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import NoReturn, Protocol

from kit.background import begin
from kit.gpus.cards import machine_root
from kit.sysfs import text

from telemetry.event_feed import EventFeed
from telemetry.gpu_source import Gpus
from telemetry.host_source import FileSystems, Host
from telemetry.kernel_lines import BOOT_ID, DEVICE
from telemetry.line_sender import LineSender
from telemetry.network_source import Network, Pauses
from telemetry.nic_addresses import nics_here
from telemetry.page import AgentServer, Looks
from telemetry.pinger import Pinger
from telemetry.queue_source import SendQueues
from telemetry.ring import Ring
from telemetry.sources import Line, Place, Sampled, labels

STEP_S = 1.0  # the watch compares nodes second by second
PATIENCE_S = 0.8  # with all sources together
AT = "127.0.0.1:9841"
TRIED_AGAIN_AFTER_S = 60.0  # a file that could not be written
EARLY = 0.05  # of a step: a sleep may end a moment too soon
STACK_BYTES = 256 << 10  # of a thread, instead of 8 MiB: the agent is small
MISUSED, NOT_NOW = 64, 2  # exit codes: other words help, or a port that is free again
PRIVATE = 0o077  # a recording describes a site: others may not read it
SOURCES = {
    "host": Host,
    "disks": FileSystems,
    "network": Network,
    "queues": SendQueues,
    "pauses": Pauses,
    "gpus": Gpus,
}


class Source(Protocol):
    def read(self, now: float) -> Sampled: ...


class Questioner:
    """A thread that asks one source. An answer after the deadline is thrown away."""

    def __init__(self, name: str, source: Source) -> None:
        self.name, self._source = name, source
        self._pending: Future[Sampled] | None = None
        self._asked_at = 0.0
        self._latest = Sampled()
        self.reason = "not asked yet"  # why there is no answer; empty: there is

    def ask(self, now: float) -> None:
        if self._pending is None or self._pending.done():
            self._asked_at = now
            self._pending = begin(lambda: self._source.read(now))

    def answer(self, now: float, deadline: float) -> Sampled:
        assert self._pending is not None
        try:
            if self._asked_at != now:
                raise TimeoutError
            self._latest = self._pending.result(max(0.0, deadline - time.monotonic()))
            self.reason = ""
            return self._latest
        except TimeoutError:
            self.reason = f"no answer for {time.monotonic() - self._asked_at:.0f} s"
        except Exception as error:  # of one source, which must not take the others with it
            self.reason = f"{type(error).__name__}: {error}"
        metrics = self._latest.values.keys() | self._latest.absent.keys() or {self.name}
        return Sampled(absent=dict.fromkeys(metrics, self.reason))

    def lines(self) -> Iterable[Line]:
        return () if self.reason else self._latest.lines()


class Recording:
    """A file that grows by a line each second; a full disk is reported once, and tried again."""

    def __init__(self, path: Path) -> None:
        self._path, self._again = path, 0.0
        self._metrics: list[str] | None = None  # of the last heading
        self.works = True

    def write(self, ring: Ring, line: str, now: float) -> None:
        if now < self._again:
            return
        text = line if self._metrics == ring.metrics else f"\n{ring.heading()}\n{line}"
        try:
            with self._path.open("a") as file:
                file.write(f"{text}\n")
        except OSError as error:
            self._fail(error, now)
        else:
            self.works, self._metrics = True, list(ring.metrics)

    def _fail(self, error: OSError, now: float) -> None:
        if self.works:
            say(f'"{self._path}" cannot be written, and is tried again: {error.strerror}')
        self.works, self._metrics, self._again = False, None, now + TRIED_AGAIN_AFTER_S


class Agent:
    def __init__(self, ring: Ring, sources: Mapping[str, Source], file: Path | None) -> None:
        self.ring = ring
        self.pinger: Pinger | None = None
        self.feed: EventFeed | None = None
        self._questioners = [Questioner(name, source) for name, source in sources.items()]
        self._recording = Recording(file) if file else None
        self._samples = self._missed = 0

    def run(self, moments: Iterator[tuple[float, int]]) -> NoReturn:
        for moment, missed in moments:
            self._missed += missed
            self.sample(moment, time.monotonic())
        raise AssertionError("moments never end")

    def sample(self, moment: float, now: float) -> None:
        for questioner in self._questioners:
            questioner.ask(now)
        deadline = now + PATIENCE_S
        answers = [questioner.answer(now, deadline) for questioner in self._questioners]
        line = self.ring.add(moment, answers)
        self._samples += 1
        if self._recording:
            self._recording.write(self.ring, line, now)

    def lines(self) -> Iterator[Line]:
        for questioner in self._questioners:
            yield from questioner.lines()
            where = labels(source=questioner.name)
            yield Line("anubis_agent_source_answers", where, not questioner.reason)
        yield Line("anubis_agent_samples_total", "", self._samples)
        yield Line("anubis_agent_samples_missed_total", "", self._missed)
        yield Line("anubis_agent_cpu_seconds_total", "", time.process_time())
        if self.pinger:
            yield from self.pinger.lines()
        if self.feed:
            yield from self.feed.lines()
        if self._recording:
            yield Line("anubis_agent_recording", "", self._recording.works)


def moments_of(
    step_s: float, clock: Callable[[], float], sleep: Callable[[float], object]
) -> Iterator[tuple[float, int]]:
    """Yield each full second of the clock, as it really was, and how many were missed before it.

    All nodes of a job so sample at the same moments, and no delay adds up.
    """
    before = math.floor(clock() / step_s + EARLY)
    while True:
        due = math.floor(clock() / step_s + EARLY) + 1
        sleep(max(0.0, due * step_s - clock()))
        moment = clock()
        passed = math.floor(moment / step_s + EARLY)
        yield round(moment, 3), max(0, passed - before - 1)
        before = passed


def main() -> None:
    chosen = options().parse_args()
    os.umask(os.umask(PRIVATE) | PRIVATE)
    threading.stack_size(STACK_BYTES)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    root = machine_root()
    place = Place(root, chosen.proc or root / "proc", chosen.node)
    sources = {name: source(place) for name, source in SOURCES.items()}
    gpus = sources["gpus"]
    signal.signal(signal.SIGUSR1, lambda *_: setattr(gpus, "wants_rest", True))
    agent = Agent(Ring(chosen.node, STEP_S), sources, chosen.record)
    agent.feed = open_feed(chosen, place)
    if agent.feed and isinstance(gpus, Gpus):
        gpus.note = agent.feed.note
    token = token_in(chosen.token_file) if chosen.token_file else ""
    agent.pinger = pinger = open_pinger(chosen, token, root)
    server = open_server(chosen.listen, agent, token, pinger, looks_of(chosen, token))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    greet(server)
    agent.run(moments_of(STEP_S, time.time, time.sleep))


def options() -> argparse.ArgumentParser:
    """Return the parser of options; `anubis agent --help` explains each."""
    parser = argparse.ArgumentParser(
        prog="anubis agent",
        description="Sample this node once a second, for nodes without exporters.",
    )
    parser.add_argument("--listen", metavar="ADDRESS:PORT", default=AT)
    parser.add_argument("--token-file", metavar="FILE", type=Path)
    parser.add_argument("--record", metavar="FILE", type=Path)
    parser.add_argument("--node", metavar="NAME", default=os.uname().nodename)
    parser.add_argument("--pings", metavar="PORT", type=int)
    parser.add_argument("--live", metavar="FOLDER")
    parser.add_argument("--proc", metavar="FOLDER", type=Path)
    parser.add_argument("--tell", metavar="URL")
    parser.add_argument("--tell-token-file", metavar="FILE", type=Path)
    parser.add_argument("--cluster", metavar="NAME")
    parser.add_argument("--kernel-log", metavar="FILE", type=Path)
    return parser


def token_in(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        fail(f'the token file "{file}" cannot be read: {reason.lower()}')
    return token or fail(f'the token file "{file}" is empty: it should hold a token')


def open_pinger(chosen: argparse.Namespace, token: str, root: Path) -> Pinger | None:
    """Begin to answer pings, if that is asked for. What to ping comes over HTTP."""
    if chosen.pings is None:
        return None
    if not token:
        fail("--pings needs --token-file: pings and plans are signed with the token")
    try:
        pinger = Pinger(chosen.node, token, chosen.pings, nics_here(root))
    except (OSError, OverflowError) as error:
        reason = str(getattr(error, "strerror", None) or error).lower()
        fail(
            f"cannot answer pings at port {chosen.pings}: {reason}; name another with --pings",
            NOT_NOW,
        )
    threading.Thread(target=pinger.run, daemon=True, name="pings").start()
    return pinger


def open_feed(chosen: argparse.Namespace, place: Place) -> EventFeed | None:
    """Begin to tell the service what the kernel and NVML say, if that is asked for."""
    if chosen.tell is None:
        return None
    if not chosen.tell.startswith(("http://", "https://")):
        fail(f'--tell "{chosen.tell}": expected the address of anubis serve, such as https://HOST')
    if not chosen.tell_token_file:
        fail("--tell needs --tell-token-file: the service takes no events without a token")
    about = {"node": chosen.node, "boot": text(place.proc / BOOT_ID) or f"{time.time():.0f}"}
    about |= {"cluster": chosen.cluster} if chosen.cluster else {}
    sender = LineSender(chosen.tell, token_in(chosen.tell_token_file), about, say)
    feed = EventFeed(sender, chosen.kernel_log or place.root / DEVICE)
    feed.begin()
    return feed


def looks_of(chosen: argparse.Namespace, token: str) -> Looks | None:
    """Prepare to look at jobs, if that is asked for. Only then its code takes memory."""
    if chosen.live is None:
        return None
    from telemetry.job_look import PLACE, JobLooks

    if not token:
        fail("--live needs --token-file: what a job does is shown to holders of the token only")
    if not (chosen.live.startswith("/") and PLACE in chosen.live):
        fail(f'--live "{chosen.live}": expected a path such as /run/anubis/{PLACE}')
    return JobLooks(chosen.node, chosen.live, chosen.proc or Path("/proc"))


def open_server(
    where: str, agent: Agent, token: str, pinger: Pinger | None = None, looks: Looks | None = None
) -> AgentServer:
    address, _, port = where.rpartition(":")
    if not (address and port.isdecimal() and int(port) < 1 << 16):
        fail(f'--listen "{where}": expected ADDRESS:PORT, such as {AT}')
    try:
        at = address.strip("[]"), int(port)
        return AgentServer(at, agent.lines, agent.ring.lines_since, token, pinger, looks)
    except OSError as error:
        reason = str(error.strerror).lower()
        fail(
            f"cannot listen on {where}: {reason}; name another ADDRESS:PORT with --listen", NOT_NOW
        )


def greet(server: AgentServer) -> None:
    address, port, *_ = server.server_address
    readers = "with the token" if server.token else "without a token"
    say(f"whoever reaches http://{address}:{port}/metrics may read it {readers}")


def say(sentence: str) -> None:
    print(f"anubis agent: {sentence}", file=sys.stderr, flush=True)


def fail(sentence: str, code: int = MISUSED) -> NoReturn:
    say(f"error: {sentence}")
    sys.exit(code)


if __name__ == "__main__":
    main()
