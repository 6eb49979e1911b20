"""The processes of a node's GPUs begin each series at one moment, and wait for none for ever."""

from __future__ import annotations

import threading

import pytest
from kit.together import Meeting, Starts, hold_meeting

from tests.patience import LIMIT_S


def test_all_begin_when_the_last_is_ready_and_not_before():
    meeting = Meeting({"a", "b", "c"}, began=0.0)
    for name, now in (("b", 3.0), ("a", 4.0)):
        meeting.note_ready(name, now)
        assert meeting.to_start(now) == set()
    meeting.note_ready("c", 9.0)
    assert meeting.to_start(9.0) == {"a", "b", "c"}
    assert meeting.to_start(9.0) == set()
    assert not meeting.left


@pytest.mark.parametrize(("first_after_s", "patience_s"), [(3.0, 10.0), (60.0, 60.0)])
def test_a_silent_one_leaves_after_as_long_again_as_the_first_took(first_after_s, patience_s):
    meeting = Meeting({"a", "b", "c"}, began=0.0)
    meeting.note_ready("a", first_after_s)
    meeting.note_ready("b", first_after_s + 1)
    end = first_after_s + patience_s
    assert meeting.to_start(end - 0.1) == set()
    assert meeting.to_start(end) == {"a", "b"}
    assert meeting.left == {"c": f"silent {patience_s:.0f} s after the first was ready"}
    meeting.note_ready("a", end + 1)
    meeting.note_ready("b", end + 2)  # no one waits for the silent node any more
    assert meeting.to_start(end + 2) == {"a", "b"}
    meeting.note_ready("c", end + 3)  # and it does not wait
    assert meeting.to_start(end + 3) == {"c"}


def test_one_that_ends_is_not_waited_for_and_is_no_silent_one():
    meeting = Meeting({"a", "b"}, began=0.0)
    meeting.note_ready("a", 1.0)
    meeting.leave("b")
    assert meeting.to_start(1.0) == {"a"}
    assert not meeting.left
    meeting.leave("a")
    assert meeting.to_start(99.0) == set()


def test_processes_at_real_sockets_begin_at_one_moment_though_one_never_comes():
    moments: dict[str, list[float]] = {"a": [], "b": [], "ends": []}
    rounds = {"a": 3, "b": 3, "ends": 1}

    def take_part(name: str, address: str) -> None:
        starts = Starts()
        moments[name] += [starts.wait(name, address) for _ in range(rounds[name])]
        starts.leave()

    with hold_meeting([*moments, "never"], least_patience_s=0.1) as (address, meeting):
        threads = [threading.Thread(target=take_part, args=(name, address)) for name in moments]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
    assert len(moments["a"]) == 3
    assert moments["a"] == moments["b"] == sorted(moments["a"])
    assert moments["ends"] == moments["a"][:1]
    assert meeting.left.keys() == {"never"}
    assert Starts().wait("a", address) > moments["a"][-1]  # the meeting is over
