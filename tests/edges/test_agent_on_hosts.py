"""Hosts of the test bed, watched: the reports of their agents, beside planted faults."""

from __future__ import annotations

import json
import sys

import pytest

from tests.edges.bed import Bed, why_not
from tests.edges.watched_job import TrainingJob, agents
from tests.patience import eventually

pytestmark = [pytest.mark.testbed, pytest.mark.skipif(bool(why_not()), reason=why_not())]

# More than the link takes at once, from several sockets because each holds only so much.
FLOOD = """
import socket, sys
for _ in range(8):
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(60):
        try:
            sender.sendto(bytes(1000), socket.MSG_DONTWAIT, (sys.argv[1], 9))
        except BlockingIOError:
            break
"""


def queued_bytes(bed: Bed, node: str) -> int:
    """Bytes in the queue, by tc."""
    shown = bed.run(node, ["tc", "-s", "-j", "qdisc", "show", "dev", "eth0"]).stdout
    return int(json.loads(shown)[0]["backlog"])


def test_the_agent_reports_the_queue_of_a_slow_link_as_tc_does() -> None:
    with Bed(2, "--no-ray", "--proc") as bed, agents(bed) as latest:
        bed.verb("slow-link", "node2", "16kbit", "--way", "up")
        bed.run("node2", [sys.executable, "-c", FLOOD, bed.address_of("node1")])
        most = queued_bytes(bed, "node2")
        assert most > 50_000
        # It drains slowly: what was the mean of the last second is more than what waits by now.
        assert eventually(
            lambda: queued_bytes(bed, "node2") <= latest("node2").get("send_queue", 0) <= most
        )
        assert eventually(lambda: latest("node1").get("send_queue") == 0)


@pytest.mark.long
def test_a_host_reports_that_its_process_stopped_and_that_it_works_again() -> None:
    """scripts/studies/show-watch-live plays the looks that follow: beside other work on the
    machine, minutes of a real job are no fact that always holds."""
    with Bed(2, "--no-ray", "--proc") as bed, agents(bed) as latest, TrainingJob(bed) as job:

        def throughput() -> float:  # asking for it takes a part of the host's processor, not this
            return latest("node2").get("tcp_throughput", 0.0)

        assert eventually(lambda: throughput() > 5e6)
        with job.stopped("node2"):
            assert eventually(lambda: throughput() < 1e6)
        assert eventually(lambda: throughput() > 5e6)
