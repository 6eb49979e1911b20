"""What pair_torch measures, by plain sockets: most campaigns on a bed of hosts need no torch to be
loaded fifty times, and one real one is enough (tests/contract/test_network.py)."""

from __future__ import annotations

STREAM = """
import json, os, socket, sys, time

if "--describe" in sys.argv:
    print(json.dumps({
        "schema": "anubis.describe/1", "name": "pair_stream", "version": "1",
        "summary": "Bandwidth between two nodes.", "stresses": "the path between two nodes",
        "reveals": "a slow link", "level": "micro", "scope": "pair", "duration_s": 3.0,
        "launcher": "torchrun", "needs": {"min_nodes": 2},
        "metrics": [{"name": "bandwidth_gbps", "unit": "GB/s", "direction": "higher"}],
        "parameters": [],
    }))
    sys.exit()

SIZE = 2_000_000
rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

def partner():
    if rank == 0:
        with socket.create_server(place) as server:
            server.settimeout(60)
            return server.accept()[0]
    for _ in range(600):
        try:
            return socket.create_connection(place, timeout=60)
        except OSError:
            time.sleep(0.1)
    sys.exit("there is nobody")

def seconds(sender):
    began, left = time.monotonic(), SIZE
    if rank == sender:
        peer.sendall(bytes(SIZE))
        assert peer.recv(1) == b"!"  # all of it is there
    else:
        while left:
            left -= len(peer.recv(min(left, 1 << 16))) or sys.exit("it has gone")
        peer.sendall(b"!")
    return time.monotonic() - began

with partner() as peer:
    rates = {
        way: [SIZE / seconds(sender) / 1e9 for _ in range(6)][1:]
        for sender, way in enumerate(("forth", "back"))
    }
if rank == 0:
    print(json.dumps({
        "schema": "anubis.result/1", "benchmark": "pair_stream", "version": "1", "parameters": {},
        "environment": {}, "duration_s": 1.0, "not_applicable": None,
        "series": [
            {"metric": f"bandwidth_gbps:{way}/{SIZE}", "device": "cpu-cpu", "samples": samples}
            for way, samples in rates.items()
        ],
    }))
"""
