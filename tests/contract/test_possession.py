"""What other programs may have cost a sample, against traces whose truth is known."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest
from kit.possession import (
    HUM,
    LEAST,
    Account,
    Possession,
    Seconds,
    Threads,
    own_seconds,
    read_account,
    shares_taken,
    throttled_seconds,
)

ZERO = Account(at=0, busy_s=0, stolen_s=0, own_s=0, throttled_s=0, processors=8)


def after(seconds: float, **changes: float) -> Account:
    """The account of a machine on which this program kept one processor busy."""
    return replace(ZERO, **({"at": seconds, "busy_s": seconds, "own_s": seconds} | changes))


def test_a_program_alone_lost_nothing_to_others_for_any_waits_among_its_threads():
    assert shares_taken([1.0, 1.0], [0.9, 0.9], ZERO, after(2.0)) == [0, 0]


def test_waiting_while_others_ran_is_charged_to_them_for_each_sample():
    """Two of four seconds on one processor: its own were idle in the quarter that HUM forgives."""
    spent = after(4.0, busy_s=4.0 + HUM * 8 * 4)
    assert shares_taken([2.0, 2.0], [0.5, 0.0], ZERO, spent) == [0.25, 0]


def test_no_more_is_due_to_others_than_they_ran():
    spent = after(4.0, busy_s=4.5)
    assert shares_taken([2.0, 2.0], [1.0, 1.0], ZERO, spent) == [0.125, 0.125]


def test_a_quota_is_the_hosts_own():
    busy = {"busy_s": 4.0 + 0.5}
    assert shares_taken([4.0], [2.0], ZERO, after(4.0, throttled_s=2.0, **busy)) == [0]
    assert shares_taken([4.0], [2.0], ZERO, after(4.0, throttled_s=1.8, **busy)) == [0.05]


def test_others_on_processors_that_a_quota_kept_from_a_program_cost_it_nothing():
    """Two threads on all of two processors, a quarter of the time; others have them otherwise."""
    spent = after(4.0, busy_s=8.0, own_s=2.0, throttled_s=6.0)
    begin, end = replace(ZERO, processors=2), replace(spent, processors=2)
    assert shares_taken([2.0, 2.0], [3.0, 3.0], begin, end) == [0, 0]
    unlimited = replace(end, throttled_s=0.0)
    assert shares_taken([2.0, 2.0], [3.0, 3.0], begin, unlimited) == [1.0, 1.0]


def test_others_on_other_processors_take_memory_bandwidth_but_not_from_a_gpu():
    """A quarter of eight processors beyond what daemons take, twice."""
    spent = after(1.0, busy_s=1.0 + (0.25 + HUM) * 8)
    assert shares_taken([1.0], [0.0], ZERO, spent) == [0.5]
    assert shares_taken([1.0], [0.0], ZERO, spent, needs_host_memory=False) == [0]


def test_time_that_a_hypervisor_gave_to_other_guests_counts_as_theirs():
    spent = after(1.0, stolen_s=(0.25 + HUM) * 8)
    assert shares_taken([1.0], [0.0], ZERO, spent) == [0.5]


def test_shares_are_bounded_and_small_ones_are_nothing():
    crowded = after(1.0, busy_s=9.0)
    assert shares_taken([1.0, 0.0], [5.0, 0.0], ZERO, crowded) == [1.0, 0.0]
    spent = after(1.0, busy_s=1.1)
    assert shares_taken([1.0], [0.9 * LEAST], ZERO, spent) == [0]


@pytest.mark.parametrize(
    ("given", "waits_s", "taken"),
    [
        ((0.1, 0.2, 0.3), (0.0, 0.05, 0.05), [0, 0, 0]),
        ((1.0, 2.0, 3.4), (0.5, 0.5, 0.5), [0.5, 0.5, 0.5]),
    ],
    ids=["the GPU lags behind", "the GPU waits for its work"],
)
def test_a_wait_of_its_thread_costs_a_gpu_time_only_if_it_was_idle(given, waits_s, taken):
    """Samples last a second each; `given`: when the thread had given all of each."""
    waited_s = [sum(waits_s[:i]) for i in range(4)]
    seen = Possession(Threads(), ended=[0.0, *given], waited_s=waited_s)
    seen.before, seen.after = ZERO, after(3.0, busy_s=5.0)
    assert seen.seconds_on_gpu([1.0, 1.0, 1.0]).taken == taken


def test_the_first_samples_are_dropped_with_their_shares():
    seconds = Seconds([3.0, 2.0, 1.0], [0.3, 0.2, 0.1]).drop_first(1).divide(2)
    assert (seconds, seconds.taken) == ([1.0, 0.5], [0.2, 0.1])


# --- what the kernel says ----------------------------------------------------------------------


def process(proc, pid, parent, ticks, name="python"):
    (proc / str(pid)).mkdir(parents=True)
    numbers = " ".join(["0"] * 9)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {numbers} {ticks} 0 0 0 20 0")


def test_all_processes_below_one_are_the_programs_own(tmp_path):
    ticks = os.sysconf("SC_CLK_TCK")
    process(tmp_path, 10, 1, 1 * ticks)
    process(tmp_path, 12, 11, 4 * ticks, name="a) R 1 (b")
    process(tmp_path, 11, 10, 2 * ticks)
    process(tmp_path, 13, 1, 8 * ticks)
    (tmp_path / "14").mkdir()  # it has just ended
    assert own_seconds(tmp_path, 10) == 7
    assert own_seconds(tmp_path, 99) == 0


@pytest.mark.parametrize(
    ("controllers", "folder", "line"),
    [("", "", "throttled_usec 1500000"), ("cpu", "cpu/", "throttled_time 1500000000")],
)
def test_the_quota_of_any_group_around_counts(tmp_path, controllers, folder, line):
    groups, proc = tmp_path / "groups", tmp_path / "proc"
    (groups / f"{folder}job/step").mkdir(parents=True)
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text(f"7:memory:/elsewhere\n3:{controllers}:/job/step\n")
    (groups / f"{folder}job/cpu.stat").write_text(f"nr_periods 3\n{line}\n")
    (groups / f"{folder}job/step/cpu.stat").write_text("nr_periods 0\n")
    (tmp_path / "cpu.stat").write_text(f"{line.partition(' ')[0]} 99000000000\n")
    assert throttled_seconds(proc, groups) == 1.5


def test_a_kernel_that_says_nothing_has_taken_nothing(tmp_path):
    nothing = read_account(tmp_path, tmp_path)
    assert (nothing.busy_s, nothing.own_s, nothing.throttled_s) == (0, 0, 0)
    assert shares_taken([1.0], [0.0], nothing, nothing) == [0]


def test_threads_that_share_a_processor_are_seen_to_wait():
    """The kernel's own count, of this process: a thread that waits is seen by its number."""
    cpu, over = min(os.sched_getaffinity(0)), threading.Event()
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        other = threading.Thread(target=lambda: [None for _ in iter(over.is_set, True)])
        other.start()
        with Possession(Threads.all()) as possession:
            possession.stamp()
            while not possession.threads.waited_s() > possession.waited_s[0]:
                pass
            possession.stamp()
        over.set()
        other.join()
    finally:
        os.sched_setaffinity(0, allowed)
    assert possession.waits_s[0] > 0
    assert len(possession.seconds_on_host()) == 1
