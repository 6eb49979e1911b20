"""A driver that ends halfway loses nothing that was measured, leaves nothing running, and
`--resume` does the rest and only the rest."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anubis.core.history.events import IncidentReported
from anubis.core.records import Judgement
from anubis.operations.caller import Caller
from anubis.operations.nodes import nodes
from anubis.operations.tell import Telling, tell
from anubis.store.history import History
from tests.edges.desk import Desk
from tests.edges.test_report import Markup
from tests.patience import LIMIT_S, eventually

STEPS = 6
WAITS_AT = 4


def measured(history: Path) -> list[str]:
    """The steps with samples, as another program than ours reads the history."""
    with sqlite3.connect(history) as connection:
        rows = connection.execute("SELECT step FROM executions WHERE ended = 'measured'").fetchall()
    return sorted(step for (step,) in rows)


def integrity(history: Path) -> str:
    with sqlite3.connect(history) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def halfway(desk: Desk) -> subprocess.Popen[str]:
    """A driver whose fourth step of six is running, and will not end by itself."""
    driver = desk.start("accept", "--suite", desk.suite(desk.spin(WAITS_AT)))
    assert eventually(lambda: desk.began() == WAITS_AT), driver.communicate()
    return driver


def assert_resume_does_the_rest(desk: Desk, *words: str) -> None:
    """Three steps were kept and the fourth was begun: it, and two more, are left."""
    assert len(measured(desk.history)) == WAITS_AT - 1
    desk.gate.touch()
    done = desk.run("accept", "--resume", "--json", *words)
    assert done.code == 0, done.err
    steps = measured(desk.history)
    assert len(steps) == len(set(steps)) == STEPS
    assert desk.began() == STEPS + 1
    assert integrity(desk.history) == "ok"
    assert done.summary["healthy"]


def test_a_killed_campaign_is_no_result_and_resume_with_the_same_programs_does_the_rest(desk):
    driver = halfway(desk)
    driver.kill()
    driver.communicate()
    assert eventually(lambda: not desk.alive())
    with sqlite3.connect(desk.history) as connection:
        (name,) = connection.execute("SELECT id FROM campaigns").fetchone()
    for verb in ("report", "judge", "learn"):
        done = desk.run(verb, "--campaign", name)
        assert (done.code, done.out) == (64, "")
        assert f"anubis accept --resume --campaign {name}" in done.err
    file = desk.programs / "spin.py"
    first = file.read_text()
    file.write_text(first.replace('"version": "1"', '"version": "2"'))
    done = desk.run("accept", "--resume")
    assert (done.code, done.out) == (64, "")
    assert 'benchmark "spin" is no longer the one' in done.err
    assert desk.began() == WAITS_AT
    file.write_text(first)
    caller = Caller(history_url=str(desk.history))
    fell = IncidentReported(nodes=(socket.gethostname(),), category="xid-79")
    tell(Telling(event=fell), caller)
    assert_resume_does_the_rest(desk)
    (node,) = nodes(caller=caller)
    assert node.judgement is Judgement.UNKNOWN, "what passed began before the incident"


def test_a_terminated_campaign_writes_its_page_so_far_and_its_last_line_says_how_to_go_on(desk):
    suite = desk.suite(desk.spin(WAITS_AT))
    driver = desk.start("accept", "--suite", suite, "--html", "so-far.html")
    assert eventually(lambda: desk.began() == WAITS_AT), driver.communicate()
    driver.send_signal(signal.SIGTERM)
    out, err = driver.communicate()
    assert (driver.returncode, out) == (130, "")
    assert "what is known so far: so-far.html" in err
    words = words_to_go_on(err)
    assert eventually(lambda: not desk.alive())  # what was killed takes a moment to be gone
    page = Markup((desk.folder / "so-far.html").read_text()).text
    assert "incomplete: the campaign was interrupted" in page
    assert page.index("incomplete") < page.index("0 healthy")
    assert "signature" not in page
    assert "may go into service" not in page
    assert_resume_does_the_rest(desk, *words[1:], "--html", "so-far.html")
    assert "incomplete" not in (desk.folder / "so-far.html").read_text()


def test_a_second_driver_and_a_second_campaign_on_its_node_are_refused_and_leave_nothing(desk):
    driver = halfway(desk)
    done = desk.run("accept", "--resume")
    assert done.code == 2
    assert f"being driven by process {driver.pid}" in done.err
    done = desk.ask("accept", "--suite", desk.suite(desk.spin(0)))
    assert (done.code, done.out) == (2, "")
    (line,) = [text for text in done.err.splitlines() if "error" in text]
    held = (
        rf'node ".*" is held by campaign "accept-.*" \(process {driver.pid} on .*\) since 20\d\d-'
    )
    assert re.search(held, line)
    assert desk.began() == WAITS_AT
    shown = desk.run("history", "show", "--json").lines
    assert [(each["type"], each["owner"].split()[1]) for each in shown] == [
        ("hold", str(driver.pid))
    ]
    desk.gate.touch()
    assert "1 healthy" in driver.communicate()[0]
    assert desk.began() == STEPS
    with History.open(str(desk.history)) as history:
        assert len(history.campaigns.newest(9)) == 1
        assert history.only().holds.current(time.time()) == []


HASTY = """
import os, time
wall = time.time
time.time = lambda: wall() + (3600 if os.path.exists("gate") else 0)
from anubis.cli import progress
from anubis.cli.main import main
from anubis.core.campaign import state_machine
progress.LONG_GAP_S = 2.0
state_machine.INATTENTIVE_S = 2.0
state_machine.CampaignMachine.__init__.__kwdefaults__["silence_s"] = 0.5
main()
"""  # the wall clock jumps by an hour when the gate is there, and patience is short


@pytest.mark.long
def test_a_driver_suspended_past_all_limits_while_its_clock_was_set_loses_no_node(desk):
    suite = desk.suite(desk.held_flow(timeout_s=3))
    words = ["accept", "--suite", suite, "--benchmarks", str(desk.programs)]
    driver = subprocess.Popen(
        [sys.executable, "-c", HASTY, *words],
        cwd=desk.folder,
        env=desk.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert eventually(desk.began)
    driver.send_signal(signal.SIGSTOP)
    desk.gate.touch()
    time.sleep(5)
    driver.send_signal(signal.SIGCONT)
    out, err = driver.communicate()
    assert (driver.returncode, "1 healthy" in out) == (0, True), out
    assert "did not look for" in err
    assert "no word of" not in err


def words_to_go_on(err: str) -> list[str]:
    """The command in the last line, without its name and its verb."""
    (last,) = [line for line in err.splitlines() if line.startswith("anubis: error: ")]
    assert "interrupted" in last
    assert err.rstrip().endswith(last)
    words = last.partition("anubis accept ")[2].split()
    assert words[0] == "--resume"
    return words


def test_a_ctrl_c_is_an_interrupt_and_no_verdict(desk):
    driver = halfway(desk)
    os.killpg(driver.pid, signal.SIGINT)  # a terminal sends it to all in the foreground
    out, err = driver.communicate()
    assert (driver.returncode, out) == (130, "")
    words_to_go_on(err)
    assert len(measured(desk.history)) == WAITS_AT - 1
    assert eventually(lambda: not desk.alive())


def test_an_interrupt_before_anything_runs_is_no_verdict(desk):
    """A FIFO holds a program while it describes itself, and the driver with it."""
    fifo = desk.folder / "fifo"
    os.mkfifo(fifo)
    desk.program("held.sh", f"#!/bin/sh\ntouch {desk.gate}\ncat {fifo}\n")
    driver = desk.start("bench", "list")
    assert eventually(desk.gate.exists)
    driver.send_signal(signal.SIGINT)
    fifo.write_text("")  # opens once the program reads, and lets it end
    out, err = driver.communicate(timeout=LIMIT_S)
    assert (driver.returncode, out) == (130, "")
    assert err == "anubis: error: interrupted\n"


@pytest.fixture
def small_disk(desk: Desk) -> Iterator[Path]:
    """ANUBIS_HOME on a disk of two megabytes."""
    with disk_of("2m", desk.home) as disk:
        yield disk


@pytest.fixture
def full_shelf(near: Desk) -> Iterator[Path]:
    """A disk for reports alone, on which none has room."""
    with disk_of("8k", near.home / "reports") as disk:
        yield disk


@contextmanager
def disk_of(size: str, folder: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 1024)
        except OSError:
            return filler


def test_a_full_disk_is_one_clear_error_and_the_history_stays_whole(desk, small_disk):
    driver = halfway(desk)
    filler = fill(small_disk)
    desk.gate.touch()
    out, err = driver.communicate()
    assert driver.returncode == 2
    assert not out
    (last,) = [line for line in err.splitlines() if "error" in line]
    assert last.startswith(f'anubis: error: history "{desk.history}": ')
    assert "full" in last
    assert "free some space" in last
    assert "anubis accept --resume --campaign" in last
    assert "Traceback" not in err
    assert eventually(lambda: not desk.alive())  # what was killed takes a moment to be gone

    done = desk.run("accept", "--resume")
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert "free some space" in done.err

    filler.unlink()
    assert integrity(desk.history) == "ok"
    kept = measured(desk.history)
    assert WAITS_AT - 1 <= len(kept) < STEPS
    begun = desk.began()
    done = desk.run("accept", "--resume", "--json")
    assert done.code == 0, done.err
    assert len(measured(desk.history)) == STEPS
    assert set(kept) < set(measured(desk.history))
    assert desk.began() == begun + STEPS - len(kept)
    assert integrity(desk.history) == "ok"


def test_a_report_that_finds_no_room_does_not_cost_the_verdict(near, full_shelf):
    done = near.ask("accept", "--json", "--suite", near.suite(near.flow()))
    assert done.code == 0
    assert done.summary["healthy"]
    assert "cannot write the report" in done.err
    asked = near.run("report", "--html", str(full_shelf / "report.html"))
    assert asked.code == 2
    assert asked.err.startswith("anubis: error: cannot write the report")
