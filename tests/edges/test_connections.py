"""Too many connections: which stay, which are dropped, and which callers are served all the
same."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.errors import UsageError
from anubis.service.connections import ConnectionLimits, Connections, owner_of
from anubis.service.server import protocol_in
from anubis.service.service_settings import ServiceSettings
from tests.patience import LIMIT_S

SMALL = ConnectionLimits(
    most=8, of_strangers=6, of_stranger=2, of_known=4, of_trusted=7, trusted=("10.0.0.1",)
)
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "2001:db8::1", "2001:db8::2", "")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("come", "begin", "rest", "leave", "know")),
        st.integers(0, 30),
        st.sampled_from(ADDRESSES),
    ),
    max_size=120,
)


@given(STEPS)
def test_connection_limits_hold_in_any_order_and_only_idle_ones_make_room(steps):
    held = Connections(SMALL, clock=lambda: 0.0)
    there: dict[int, str] = {}
    busy: set[int] = set()
    known = set()
    for number, (step, pick, address) in enumerate(steps):
        chosen = sorted(there)[pick % len(there)] if there else None
        if step == "come":
            is_local = address == "10.0.0.1"
            before, own = dict(there), owner_of(address)
            is_let_in, goes = held.admit(number, address)
            assert goes not in busy
            if goes is not None:
                assert is_let_in
                del there[goes]
                held.leave(goes)  # as its socket closes
            if is_let_in:
                there[number] = address
            else:
                held.leave(number)
            own_before = [c for c, place in before.items() if owner_of(place) == own]
            if is_local and (len(own_before) < SMALL.of_trusted or {*own_before} - busy):
                assert is_let_in or busy >= before.keys()
        elif step == "know":
            held.know(address)
            known.add(owner_of(address))
        elif chosen is not None and step == "leave":
            held.leave(chosen)
            del there[chosen]
            busy.discard(chosen)
        elif chosen is not None:
            getattr(held, step)(chosen)
            (busy.add if step == "begin" else busy.discard)(chosen)
        owners = [owner_of(place) for place in there.values()]
        strangers = [o for o in owners if o != owner_of("10.0.0.1") and o not in known]
        assert len(held) == len(there) <= SMALL.most
        assert held.strangers == len(strangers) <= SMALL.of_strangers
        assert all(strangers.count(owner) <= SMALL.of_stranger for owner in strangers)


def test_the_dropped_connection_is_idle_and_of_the_address_with_most():
    held = Connections(replace(SMALL, of_strangers=4))
    for connection, address in enumerate(("10.0.0.2", "10.0.0.3", "10.0.0.3", "10.0.0.4")):
        assert held.admit(connection, address) == (True, None)
    assert held.admit("new", "10.0.0.5") == (True, 1)  # the older one of the address with two
    held.begin(3)
    held.rest(3)
    assert held.admit("newer", "10.0.0.6") == (True, 3)  # kept open after its answer
    for connection in (0, 2, "new", "newer"):
        held.begin(connection)
    assert held.admit("too late", "10.0.0.7") == (False, None)
    assert held.admit("from here", "10.0.0.1") == (True, None)
    held.know("10.0.0.7")
    assert held.admit("with a token", "10.0.0.7") == (True, None)
    assert (held.turned_away, held.given_up) == (1, 2)


def test_a_token_is_remembered_for_an_hour():
    now = [0.0]
    held = Connections(replace(SMALL, of_strangers=0), clock=lambda: now[0])
    assert held.admit(1, "10.0.0.2") == (False, None)
    held.know("10.0.0.2")
    assert held.admit(1, "10.0.0.2") == (True, None)
    held.leave(1)
    now[0] = 3600.0
    assert held.admit(1, "10.0.0.2") == (False, None)


def test_a_network_of_ipv6_is_one_owner_and_a_mapped_address_is_its_target():
    assert owner_of("2001:db8:0:1::7") == owner_of("2001:db8:0:1:ffff::1%eth0")
    assert owner_of("2001:db8:0:1::7") != owner_of("2001:db8:0:2::7")
    assert owner_of("::ffff:10.0.0.2") == owner_of("10.0.0.2") != owner_of("10.0.0.3")
    held = Connections(ConnectionLimits(of_strangers=0))
    assert all(held.admit(a, a)[0] for a in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"))
    assert not held.admit("x", "::2")[0]


def test_an_invalid_network_is_refused_in_a_sentence():
    with pytest.raises(UsageError, match="expected an address or a network"):
        ServiceSettings(trusted=("10.1.0.0/99",))


# --- with sockets -------------------------------------------------------------------------


async def hello(scope, receive, send):
    if scope["type"] == "http":
        head = {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"5")],
        }
        await send(head)
        await send({"type": "http.response.body", "body": b"hello"})


@contextmanager
def listening(room):
    held = Connections(room)
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(500)
        config = uvicorn.Config(
            hello, http=protocol_in(held), ws="none", lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([door],), daemon=True)
        thread.start()
        yield door.getsockname()[1], held
        server.should_exit = True
        thread.join(LIMIT_S)


def connect(port, address):
    return socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(address, 0))


def ask(line):
    line.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return rest_of(line, b"hello")


def rest_of(line, end):
    """It may come in pieces."""
    answer = b""
    while not answer.endswith(end) and (piece := line.recv(4096)):
        answer += piece
    return answer


@pytest.fixture
def crowded():
    """A small room that silent sockets of eight addresses have filled."""
    room = ConnectionLimits(
        most=20, of_strangers=15, of_stranger=5, of_known=10, trusted=("127.0.0.1",)
    )
    with listening(replace(room, first_head_s=600.0)) as (port, held), ExitStack() as stack:
        for place in range(200):
            stack.enter_context(connect(port, f"127.0.0.{2 + place % 8}"))
        yield port, held


def test_readers_are_served_beside_any_number_of_silent_sockets(crowded):
    port, held = crowded
    for address in ("127.0.0.1", "127.0.0.99", "127.0.0.2"):
        with connect(port, address) as line:
            assert ask(line).startswith(b"HTTP/1.1 200")
            assert ask(line).endswith(b"hello")  # and kept
    assert len(held) <= held.limits.most


def test_a_refused_connection_gets_the_reason():
    with (
        listening(ConnectionLimits(of_strangers=0, trusted=())) as (port, _),
        connect(port, "127.0.0.2") as line,
    ):
        answer = rest_of(line, b"no such end")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"too many connections" in answer


def test_a_head_that_does_not_come_is_not_waited_for():
    with listening(ConnectionLimits(first_head_s=0.05)) as (port, held):
        for sent in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            with connect(port, "127.0.0.1") as line:
                line.sendall(sent)
                assert line.recv(1) == b""
        assert len(held) == 0
