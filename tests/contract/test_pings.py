"""Pings between agents: real datagrams, counted in windows, refused without the token."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from telemetry import pinger
from telemetry.nic_addresses import Nic, addresses_v6, nics_here
from telemetry.page import AgentServer
from telemetry.ping_packets import ANSWER, PING, SIZE, Packet, pack, unpack
from telemetry.pinger import Pinger, PlanError, read_plan

from tests.patience import LIMIT_S, eventually

TOKEN = "a token of the site"


Make = Callable[..., Pinger]


@pytest.fixture
def made() -> Iterator[Make]:
    """Make a pinger at an address of this machine."""
    with ExitStack() as opened:

        def make(node: str, address: str, token: str = TOKEN) -> Pinger:
            opened_here = Pinger(node, token, 0, {"eth0": Nic("lo", address)})
            opened.callback(opened_here.close)
            return opened_here

        yield make


def plan(*targets: tuple[str, str, int], every_s: float = 0.02, window_s: float = 0.2):
    flows = [
        {
            "source": ["a", "0"],
            "target": [name, "0"],
            "device": "eth0",
            "address": address,
            "port": port,
        }
        for name, address, port in targets
    ]
    return {"window_s": window_s, "every_s": every_s, "flows": flows}


def turns(*pingers: Pinger, until) -> None:  # type: ignore[no-untyped-def]
    """Let these take turns until something is so."""
    before = {pinger: time.monotonic() for pinger in pingers}

    def turn() -> bool:
        before.update({pinger: pinger.take_turn(before[pinger]) for pinger in pingers})
        return bool(until())

    assert eventually(turn)


def flow(at: Pinger) -> dict:  # type: ignore[type-arg]
    return at.report()["flows"][0]  # type: ignore[no-any-return]


def test_pings_go_by_ipv6_if_a_nic_has_no_other_address(tmp_path, made):
    table = tmp_path / "proc/net/if_inet6"
    table.parent.mkdir(parents=True)
    table.write_text(
        "fe80000000000000021320fffe000001 02 40 20 80     eth9\n"  # of its link only
        "20010db8000000000000000000000009 02 40 00 40     eth9\n"  # not yet checked
        "20010db8000000000000000000000007 02 40 00 80     eth9\n"
    )
    assert addresses_v6(tmp_path) == {"eth9": "2001:db8::7"}
    if not socket.has_ipv6 or not (Path("/proc/net/if_inet6")).exists():
        pytest.skip("this machine has no IPv6")
    a, b = made("a", "::1"), made("b", "::1")
    a.take_plan(plan(("b", "::1", b.port)))
    turns(a, b, until=lambda: flow(a)["answered"] > 2)
    assert flow(a)["best_us"] > 0


def test_a_ping_is_answered_and_lost_pings_are_counted(monkeypatch, made):
    monkeypatch.setattr(pinger, "LATE_S", 0.3)
    a, b = made("a", "127.0.0.1"), made("b", "127.0.0.2")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.3", 0))
        a.take_plan(plan(("b", "127.0.0.2", b.port), ("c", "127.0.0.3", deaf.getsockname()[1])))
        turns(a, b, until=lambda: flow(a)["answered"] > 4 and a.lost > 4 and a.report()["lost"])
    report = a.report()
    answered, silent = report["flows"]
    assert answered["best_us"] > 0
    assert (silent["answered"], silent["best_us"]) == (0, None)
    assert all(number == silent["flow"] and got == 0 for _, number, _, got in report["lost"])
    a.take_plan(plan(("b", "127.0.0.2", b.port)))
    assert flow(a)["answered"] >= answered["answered"]  # its counts went on


def test_a_stranger_gets_no_answer_and_gives_none(made):
    a, b, other = made("a", "127.0.0.1"), made("b", "127.0.0.2"), made("a", "127.0.0.3", "wrong")
    other.take_plan(plan(("b", "127.0.0.2", b.port)))
    a.take_plan(plan(("b", "127.0.0.2", b.port)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.4", 0))
        stranger.setblocking(False)
        for text in (b"", b"x" * SIZE, pack(Packet(PING, b"session!", 1), b"wrong")):
            stranger.sendto(text, ("127.0.0.2", b.port))
        turns(a, b, other, until=lambda: flow(a)["answered"] > 2 and other.sent > 2)
        with pytest.raises(BlockingIOError):
            stranger.recv(99)
    assert flow(other)["answered"] == 0


def test_a_packet_is_read_with_its_token_only_and_an_answer_is_no_longer_than_its_ping():
    packet = Packet(ANSWER, b"session!", 7, 1234)
    data = pack(packet, b"token")
    assert unpack(data, b"token") == packet
    assert len(data) == SIZE == len(pack(Packet(PING, b"session!", 0), b"token"))
    assert unpack(data, b"another") is None
    assert all(
        unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], b"token") is None
        for at in range(SIZE)
    )


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        plan(every_s=0.0),
        plan(every_s=float("nan")),
        plan(window_s=1e9),
        plan(("b", "example.org", 1)),
        plan(("b", "127.0.0.2", 0)),
        plan(*(("b", "127.0.0.2", port) for port in range(1, 99))),
        plan(("b", "127.0.0.2", 1)) | {"flows": [{"source": "a"}]},
    ],
)
def test_a_plan_that_is_none_or_asks_for_too_much_is_refused(document):
    with pytest.raises(PlanError):
        read_plan(document, {"eth0"})


def test_after_a_step_of_the_clock_old_counts_are_forgotten(monkeypatch, made):
    a, b = made("a", "127.0.0.1"), made("b", "127.0.0.2")
    a.take_plan(plan(("b", "127.0.0.2", b.port)))
    turns(a, b, until=lambda: flow(a)["answered"])
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 1e6)
    turns(a, until=lambda: flow(a)["answered"] and a._index() * 0.2 > now() + 9e5)
    assert len(a.report()["asleep"]) <= pinger.KEPT_S / 0.2  # and not eleven days of them
    monkeypatch.setattr(time, "time", lambda: now() - 1e6)
    turns(a, until=lambda: a.report()["last"] * 0.2 < now() - 9e5)
    assert a.report()["first"] * 0.2 < now() - 9e5
    assert not a.report()["lost"]


@pytest.fixture
def server(made: Make) -> Iterator[tuple[str, Pinger]]:
    a = made("a", "127.0.0.1")
    opened = AgentServer(("127.0.0.1", 0), tuple, lambda since: iter(()), TOKEN, a)
    threading.Thread(target=opened.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{opened.server_address[1]}/pings", a
    opened.shutdown()
    opened.server_close()


def asked(url: str, body: bytes | None, token: str = TOKEN) -> tuple[int, str]:
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_a_plan_comes_by_http_with_the_token_only(server):
    url, a = server
    body = json.dumps(plan(("b", "127.0.0.2", 9))).encode()
    assert asked(url, body, "wrong")[0] == 401
    assert not a.report()["flows"]
    assert asked(url, b"[1]")[0] == asked(url, b"\xff")[0] == asked(url, b"[" * 99999)[0] == 400
    status, text = asked(url, body)
    assert (status, json.loads(text)["flows"][0]["target"]) == (200, ["b", "0"])
    assert json.loads(asked(url, None)[1])["flows"] == json.loads(text)["flows"]
    assert asked(url.replace("/pings", "/metrics"), body)[0] == 405


def test_the_addresses_of_this_machine_are_those_of_its_interfaces(tmp_path):
    names = {name for _, name in socket.if_nameindex()} - {"lo"}
    found = nics_here(tmp_path)
    assert set(found) <= names
    assert all(socket.inet_aton(nic.address) for nic in found.values())
