"""Hosts of the test bed, watched: what their agents tell, beside what was planted."""

from __future__ import annotations

import json
import sys
import time

import pytest

from anubis.core.watching.settings import WatchSettings
from anubis.operations.watching import Watching, follow_job
from tests.core.watched import StandIn
from tests.edges.bed import Bed, why_not
from tests.edges.desk import eventually
from tests.edges.watched_job import METRICS, AgentsOfBed, TrainingJob, agents

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
    """As tc says it."""
    shown = bed.run(node, ["tc", "-s", "-j", "qdisc", "show", "dev", "eth0"]).stdout
    return int(json.loads(shown)[0]["backlog"])


def test_the_agent_of_a_host_tells_what_waits_for_its_slow_link_as_tc_does() -> None:
    with Bed(2, "--no-ray", "--proc") as bed, agents(bed) as latest:
        bed.verb("slow-link", "node2", "16kbit", "--way", "up")
        bed.run("node2", [sys.executable, "-c", FLOOD, bed.address_of("node1")])
        most = queued_bytes(bed, "node2")
        assert most > 50_000
        # It drains slowly: what was the mean of the last second is more than what waits by now.
        assert eventually(
            lambda: queued_bytes(bed, "node2") <= latest("node2").get("send_queue", 0) <= most
        )
        assert latest("node1")["send_queue"] == 0


@pytest.mark.long
def test_the_host_whose_process_stands_still_is_named_and_before_that_nobody() -> None:
    # Work and waiting take alike: were all busier in waiting, standing still might pass for a role.
    even = ("--rest", "0.2", "--checkpoint-every", "600")
    with Bed(4, "--no-ray", "--proc") as bed, agents(bed), TrainingJob(bed, *even) as job:
        watching = Watching(
            source=AgentsOfBed(bed),
            model=StandIn(order=METRICS),
            settings=WatchSettings(continuity_s=8, interval_s=1, remark_s=8),
        )
        # Twice as long as shows that all are alike; whoever was never seen so has a role.
        assert named(watching, bed, patience_s=16) == set()
        with job.stopped("node3"):
            assert named(watching, bed, patience_s=30) == {"node3"}


def named(watching: Watching, bed: Bed, patience_s: float) -> set[str]:
    """By the first look that names anybody."""
    end = time.monotonic() + patience_s
    for looked in follow_job("training", bed.nodes, watching):
        if looked.look.suspicions or time.monotonic() > end:
            return {suspicion.node for suspicion in looked.look.suspicions}
    return set()
