"""Connections between hosts: the kernel's counts, and hosts that are cut off or on a slow link.

The tables of samples are recorded: a gloo job of four ranks on hosts with real networks, while the
link of the third was cut, while it had 20 Mbit/s, and while all links had 300 Mbit/s but that of
the second, which had 100.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from dataclasses import replace

import pytest

from anubis.core.diagnose import host_connections
from anubis.core.diagnose.analyst import analyse
from anubis.core.diagnose.evidence import Collector, Connection, JobEvidence, RankMap
from anubis.core.diagnose.facts import FactKind, Whom, reason
from anubis.readers.jobs.sockets import (
    SocketWatch,
    address_of,
    parse_answers,
    parse_wires,
    read_sendings,
)

STORE = None  # the launcher of the first host, which is no rank
CUT = """
0 3 24 0 0
0 1 24 0 0
0 STORE 24 0 0
0 2 24 0 0
1 0 24 0 0
1 2 24 24 4
1 3 24 0 0
1 STORE 24 0 0
2 STORE 24 0 0
2 0 24 0 0
2 1 24 0 0
2 3 24 24 5
3 STORE 24 0 0
3 0 24 0 0
3 1 24 0 0
3 2 24 24 4
"""
SHAPED = """
0 1 40 9 0
0 3 40 3 0
0 STORE 40 0 0
0 2 40 0 0
1 STORE 40 0 0
1 0 40 0 0
1 3 40 0 0
1 2 40 23 0
2 0 40 0 0
2 STORE 40 0 0
2 3 40 27 0
2 1 40 30 0
3 0 40 1 0
3 1 40 0 0
3 2 40 28 0
3 STORE 40 0 0
"""
RING_OF_EIGHT = """
7 0 40 19 0
0 7 40 0 0
0 1 40 19 0
1 0 40 0 0
1 2 40 22 0
2 1 40 1 0
2 3 40 31 0
3 2 40 34 0
3 4 40 33 0
4 3 40 32 0
4 5 40 0 0
5 4 40 16 0
5 6 40 2 0
6 5 40 15 0
6 7 40 1 0
7 6 40 3 0
0 2 40 0 0
0 3 40 0 0
"""
STARVED = """
0 1 40 4 0
0 3 40 6 0
1 2 40 6 0
2 1 40 4 0
3 2 40 4 0
3 0 40 0 0
"""
# rank, peer, seconds of the kernel's counts, bytes, seconds in which bytes were on their way
A_THIRD = """
0 3 8.460 80207688 2.420
0 2 8.460 0 0.0
0 1 8.460 14736 4.248
1 3 8.112 0 0.0
1 0 8.112 79697056 7.184
1 2 8.112 14688 3.468
2 3 8.259 14160 1.328
2 0 8.259 0 0.0
2 1 8.259 77324264 6.964
3 0 8.268 14496 2.208
3 1 8.268 0 0.0
3 2 8.268 79088448 2.580
"""


def counted(table: str) -> list[Connection]:
    rows = (line.split() for line in table.split("\n") if line)
    return [
        replace(
            between(int(rank), int(peer), sending=16),
            seen_s=float(seen_s),
            moved_bytes=int(moved),
            busy_s=float(busy_s),
        )
        for rank, peer, seen_s, moved, busy_s in rows
    ]


def recorded(table: str) -> list[Connection]:
    rows = (line.split() for line in table.split("\n") if line)
    return [
        Connection(
            rank=int(rank),
            own=f"10.0.0.{int(rank) + 1}",
            peer=f"10.0.0.{1 if peer == 'STORE' else int(peer) + 1}",
            peer_rank=STORE if peer == "STORE" else int(peer),
            samples=int(samples),
            sending=int(sending),
            resent=int(resent),
        )
        for rank, peer, samples, sending, resent in rows
    ]


def facts(connections, nodes=None):
    evidence = JobEvidence(
        job="",
        at=0.0,
        collectors=frozenset({Collector.CONNECTIONS}),
        ranks=RankMap(nodes={i: f"node{i + 1}" for i in range(4)} if nodes is None else nodes),
        connections=tuple(connections),
        alive=True,
    )
    reasoning = reason(evidence, host_connections.RULES)
    return reasoning.facts, analyse(reasoning, evidence)


def between(rank, peer, *, samples=40, sending=0, resent=0):
    return Connection(
        rank=rank,
        own=f"10.0.0.{rank + 1}",
        peer=f"10.0.0.{peer + 1}",
        peer_rank=peer,
        samples=samples,
        sending=sending,
        resent=resent,
    )


def test_a_host_with_a_cut_link_is_named_and_the_job_hangs():
    told, analysis = facts(recorded(CUT))
    assert analysis.nodes == ("node3",)
    assert analysis.trouble == "hung"
    assert told[0].kind is FactKind.UNREACHABLE
    assert told[0].evidence == (
        "nothing passes between node3 and 2 hosts: the same bytes were sent again 4 times and more"
    )


def test_a_host_with_a_slow_link_is_named():
    (slow,), analysis = facts(recorded(SHAPED))
    assert (slow.kind, slow.whom) == (FactKind.SLOW_NETWORK, Whom(node="node3"))
    assert "wait on the wire 66% of the time and more" in slow.evidence  # 23 and 30 of 40
    assert "beside it at most 11%" in slow.evidence  # 9 and 0 of 40
    assert (analysis.trouble, analysis.nodes) == ("slow", ("node3",))


def test_in_a_ring_of_sound_hosts_bytes_wait_one_way_and_at_a_slow_link_both_ways():
    """Recorded of eight hosts: between two sound ones bytes wait for up to 22 of 40 samples."""
    (slow,), _ = facts(recorded(RING_OF_EIGHT), {rank: f"node{rank + 1}" for rank in range(8)})
    assert slow.whom == Whom(node="node4")


def test_a_link_with_a_third_of_the_usual_rate_is_named_from_counts_of_the_kernel():
    (slow,), analysis = facts(counted(A_THIRD))
    assert (slow.kind, slow.whom) == (FactKind.SLOW_NETWORK, Whom(node="node2"))
    assert "at 11.1 MB/s at most" in slow.evidence  # of 12.5
    assert "beside it at 30.7 MB/s and more" in slow.evidence  # of 37.5
    assert analysis.nodes == ("node2",)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda wire: {"busy_s": 2.5}, id="all links alike"),
        pytest.param(lambda wire: {"busy_s": wire.busy_s / 50}, id="it costs the job nothing"),
        pytest.param(
            lambda wire: {"moved_bytes": wire.moved_bytes // 8}, id="too little to say how fast"
        ),
    ],
)
def test_no_host_is_named_by_rates_that_do_not_matter(change):
    large = [wire for wire in counted(A_THIRD) if wire.moved_bytes > 1_000_000]
    assert facts([replace(wire, **change(wire)) for wire in large])[0] == ()


def test_a_host_without_a_processor_has_no_slow_link():
    assert facts(recorded(STARVED))[0] == ()


def test_hosts_without_names_are_named_by_their_ranks():
    _, analysis = facts(recorded(CUT), nodes={})
    assert analysis.culprits == (Whom(rank=2),)


def test_all_addresses_of_the_first_host_count_as_one_host():
    """Its launcher has its address, and is no rank."""
    store = Connection(rank=2, peer="10.0.0.1", samples=24, sending=24, resent=5)
    silent = [between(1, 0, resent=6), between(0, 3, resent=6), between(1, 2), store]
    assert facts(silent)[1].nodes == ("node1",)


def test_ranks_of_other_machines_are_known_by_their_addresses():
    """Each machine knows the ranks of its own alone."""
    apart = [replace(connection, peer_rank=None) for connection in recorded(CUT)]
    assert facts(apart)[1].nodes == ("node3",)
    apart = [replace(connection, peer_rank=None) for connection in recorded(SHAPED)]
    assert facts(apart)[1].nodes == ("node3",)


def test_either_of_two_hosts_may_be_cut_off():
    (fact,), analysis = facts([between(0, 1, resent=9), between(1, 0), between(2, 3)])
    assert fact.kind is FactKind.DISTRIBUTED_ERROR
    assert set(analysis.nodes) == {"node1", "node2"}


def test_cuts_without_a_common_end_name_no_host():
    told, analysis = facts([between(0, 1, resent=9), between(2, 3, resent=9)])
    assert [fact.kind for fact in told] == [FactKind.DISTRIBUTED_ERROR] * 2
    assert analysis.nodes == ()


def test_bytes_that_had_to_be_sent_twice_are_no_cut():
    assert facts([between(0, 1, resent=3), between(0, 2, resent=2), between(1, 2)])[0] == ()


def test_either_end_of_a_slow_pair_may_be_slow_with_half_the_confidence():
    told, _ = facts([between(0, 1, sending=30), between(1, 2, sending=4), between(2, 0)])
    assert [fact.whom.node for fact in told] == ["node1", "node2"]
    assert {fact.confidence for fact in told} == {host_connections.SLOW_CONFIDENCE / 2}


@pytest.mark.parametrize(
    "connections",
    [
        pytest.param(
            [between(a, b, sending=30) for a in range(4) for b in range(a)], id="all busy"
        ),
        pytest.param(
            [between(a, b, sending=20 if 3 in (a, b) else 12) for a in range(4) for b in range(a)],
            id="not much busier",
        ),
        pytest.param([between(0, 1, sending=30)], id="nobody beside it"),
        pytest.param(
            [between(0, 1, samples=5, sending=5), between(1, 2, samples=5)], id="too few samples"
        ),
        pytest.param([between(0, 1), between(1, 2)], id="idle"),
        pytest.param([], id="none"),
    ],
)
def test_a_wire_is_slow_only_beside_others_that_are_not(connections):
    assert facts(connections)[0] == ()


def test_ranks_of_one_host_have_no_wire_between_them():
    nodes = {0: "node1", 1: "node1", 2: "node2", 3: "node2"}
    inside = [between(0, 1, sending=40, resent=9), between(2, 3, sending=40)]
    assert facts([*inside, between(1, 2)], nodes)[0] == ()


# --- what the kernel tells -------------------------------------------------------------------

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:07E8 00000000:0000 0A 00000000:00000005 00:00000000 00000000     0        0 630 1 0
   1: 0401A8C0:C8A4 0501A8C0:A107 01 00000A28:00000000 01:0000014F 00000006     0        0 4242 1 0
   2: 0401A8C0:C8A5 0501A8C0:A107 01 00000000:00000010 00:00000000 00000000  1000        0 4243 1 0
   3: 0401A8C0:C8A6 0501A8C0:A107 01 00000001:00000000 04:00000100 00000002     0        3 4244 1 0
   x: damaged
"""


def test_established_connections_are_read_and_probes_of_a_full_reader_are_no_resending():
    first, second, third = parse_wires(TABLE.splitlines())
    assert (first.unacknowledged, first.unread, first.resent, first.inode) == (2600, 0, 6, 4242)
    assert (second.unacknowledged, second.unread, second.resent) == (0, 16, 0)
    assert (third.unacknowledged, third.resent) == (0, 0)
    assert address_of(first.here) == "192.168.1.4"


def test_addresses_are_those_of_the_kernel_s_own_byte_order():
    assert address_of("0100007F:0016") == "127.0.0.1"
    assert address_of("0000000000000000FFFF00000100007F:0016") == "127.0.0.1"
    assert address_of("00000000000000000000000001000000:0016") == "::1"
    assert address_of("B80D01200000000067452301EFCDAB89:0016") == "2001:db8::123:4567:89ab:cdef"


def test_the_kernel_counts_the_bytes_that_the_other_end_has():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
        server.accept()[0] as theirs,
    ):
        inode = os.fstat(ours.fileno()).st_ino
        before = read_sendings()
        if inode not in before:
            pytest.skip("this kernel does not say how long connections were busy")
        ours.sendall(b"x" * 30_000)
        received = len(theirs.recv(30_000, socket.MSG_WAITALL))
        after = read_sendings()
    assert received == 30_000
    assert after[inode].acknowledged_bytes - before[inode].acknowledged_bytes == received


@pytest.mark.parametrize("size", [0, 7, 16, 40, 100, 200])
def test_an_answer_of_the_kernel_that_is_cut_short_is_no_count(size):
    whole = struct.pack("=IHHII", 300, 20, 2, 1, 0) + bytes(72) + struct.pack("=HH", 212, 2)
    assert list(parse_answers([(whole + bytes(208))[:size]])) == []


def test_bytes_that_a_peer_s_program_leaves_unread_are_not_on_the_wire():
    """Between two real processes."""
    reader = """
import socket, sys
with socket.socket() as server:
    server.bind(("127.0.0.1", 0)); server.listen()
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    print("accepted", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", reader], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as peer:
        assert peer.stdout is not None
        with socket.create_connection(("127.0.0.1", int(peer.stdout.readline()))) as ours:
            assert peer.stdout.readline() == "accepted\n"
            ours.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                while True:  # until nothing more goes in
                    ours.send(b"x" * 65536)
            watch = SocketWatch()
            watch.sample({0: os.getpid(), 1: peer.pid, 2: 2**22 + 1})
            connections = {(wire.rank, wire.peer_rank): wire for wire in watch.connections()}
            assert connections.keys() == {(0, 1), (1, 0)}
            there = connections[0, 1]
            assert (there.peer, there.samples, there.sending, there.resent) == (
                "127.0.0.1",
                1,
                0,
                0,
            )
        peer.communicate()


@pytest.mark.parametrize("is_rank", [False, True])
def test_bytes_that_a_rank_receives_from_a_process_that_is_no_rank_count_as_loaded(is_rank):
    """Between two real processes: a download, or traffic of the job."""
    sender = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(b"x" * 1000)
    sys.stdin.readline()
    connection.sendall(b"x" * 300_000)
    sys.stdin.read()
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = [sys.executable, "-c", sender, str(server.getsockname()[1])]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True) as peer:
            ours, _ = server.accept()
            with ours:
                if not read_sendings():
                    pytest.skip("this kernel does not say what connections received")
                watch, ranks = SocketWatch(), {0: os.getpid()} | ({1: peer.pid} if is_rank else {})
                ours.recv(1000, socket.MSG_WAITALL)
                watch.sample(ranks)
                print(file=peer.stdin, flush=True)
                ours.recv(300_000, socket.MSG_WAITALL)
                watch.sample(ranks)
                assert watch.loaded_bytes(0) == (0 if is_rank else 300_000)
                peer.communicate()
