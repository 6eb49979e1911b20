"""Slurm as the owner of nodes: its tables as they were recorded, and a real one of our own."""

from __future__ import annotations

import getpass
import json
import math
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.errors import OrchestratorError
from anubis.core.keep.keeper_events import SeenJob, SeenWindow
from anubis.core.keep.reasons import reason
from anubis.reach.orchestrators.slurm import (
    COLUMNS,
    SlurmOrchestrator,
    SlurmSettings,
    fleet_seen,
    parse_jobs,
    parse_nodes,
    parse_windows,
)
from anubis.reach.orchestrators.slurm_states import read_state
from tests.edges import slurm_bed
from tests.edges.desk import Desk
from tests.edges.orders import cordon, release
from tests.edges.slurm_bed import SlurmBed
from tests.patience import eventually

SLOW = reason("GEMM.SLOW", "gemm reaches 71 % of its peers")


def row(*cells: str) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, COLUMNS.values(), strict=True))


# --- what the commands print ---------------------------------------------------------------

# by Slurm 22.05, with times as seconds; a node in two partitions, and one whose slurmd is gone
SINFO = "\n".join(
    (
        row("gpu01", "mixed", "h100,ib", "Unknown", "Unknown", "none"),
        row("gpu01", "mixed", "h100,ib", "Unknown", "Unknown", "none"),
        row("gpu02", "idle+drain", "a100", "1795361734", "root", "anubis[GEMM.SLOW]: slow | ü"),
        row("gpu03", "down+not_responding", "(null)", "1795361735", "slurm", "Not responding"),
        row("gpu04", "idle+drain+invalid_reg", "(null)", "1795361736", "root", "Low CPUs"),
        row("gpu05", "allocated+drain", "(null)", "1795361737", "bob", "swap the fan"),
        row("gpu06", "allocated", "(null)", "Unknown", "Unknown", "none"),
    )
)
SQUEUE = (
    "2|PENDING|N/A|N/A||alice|sim\n"
    "1|RUNNING|1795361734|1795365334|gpu01|alice|a|b\n"
    "7|COMPLETING|1795361734|N/A|gpu[01-02]|bob|anubis-test\n"
    "8|RUNNING|1795361734|N/A|gpu06|anubis|anubis-test\n"
    "9|CONFIGURING|1795361734|N/A|gpu04|bob|train\n"
)


def test_recorded_tables_show_states_reasons_and_jobs():
    nodes = {node.name: node for node in parse_nodes(SINFO)}
    assert list(nodes) == ["gpu01", "gpu02", "gpu03", "gpu04", "gpu05", "gpu06"]
    assert (nodes["gpu01"].reason, nodes["gpu01"].reason_by) == ("", "")
    assert nodes["gpu01"].features == {"h100", "ib"}
    drained = nodes["gpu02"]
    assert (drained.state, drained.reason_by, drained.reason_at) == (
        "idle+drain",
        "root",
        1795361734,
    )
    assert drained.reason == "anubis[GEMM.SLOW]: slow | ü"
    jobs, tested = parse_jobs(SQUEUE, "anubis")
    assert tested == {"gpu06"}
    assert jobs == {
        "1": SeenJob(owner="alice", nodes=("gpu01",), started_at=1795361734, ends_by=1795365334),
        "7": SeenJob(owner="bob", nodes=("gpu01", "gpu02"), started_at=1795361734),
        "9": SeenJob(owner="bob", nodes=("gpu04",), started_at=1795361734, has_begun=False),
    }


def test_a_node_at_work_counts_as_such_even_if_its_job_is_hidden():
    jobs, tested = parse_jobs(SQUEUE, "anubis")
    seen = fleet_seen(5.0, parse_nodes(SINFO), jobs, lambda node: "", tested)
    assert seen.nodes["gpu01"].jobs == ("1", "7")
    assert seen.nodes["gpu03"].jobs == ()
    assert seen.nodes["gpu06"].jobs == (), "there we test, which is nobody's work"
    (unseen,) = seen.nodes["gpu05"].jobs
    assert (seen.jobs[unseen].owner, seen.jobs[unseen].nodes) == ("", ("gpu05",))
    assert [name for name, node in seen.nodes.items() if not node.is_up] == ["gpu03"]
    assert {
        name: node.is_cordoned_by_anubis for name, node in seen.nodes.items() if node.cordon
    } == {
        "gpu02": True,
        "gpu04": False,
        "gpu05": False,
    }, "slurm's own word for a node that does not answer is nobody's cordon"


class Answers(SlurmOrchestrator):
    """Slurm, whose queue grows from one question to the next."""

    def __init__(self, *queues):
        super().__init__(SlurmSettings(kind="slurm"))
        self.queues = list(queues)

    def _run(self, command, *words):
        match command:
            case "squeue":
                return self.queues.pop(0)
            case "sinfo":
                return row("gpu06", "allocated", "(null)", "Unknown", "Unknown", "none")
        return "No reservations in the system\n"


@pytest.mark.parametrize("name", ["train", "anubis-test"])
def test_a_job_that_begins_between_two_questions_is_no_hidden_one(name):
    user = getpass.getuser()
    seen = Answers("", f"8|RUNNING|1795361734|N/A|gpu06|{user}|{name}\n").observe()
    assert list(seen.jobs) == (["8"] if name == "train" else [])
    assert list(Answers("", "").observe().jobs) == ["unseen-gpu06"]


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_nodes, "slurm_load_partitions: odd"),
        (lambda text: parse_jobs(text, "me"), "7|RUNNING"),
        (lambda text: parse_jobs(text, "me"), "7|RUNNING|1|2|gpu[01|x|y"),
        (parse_windows, "ReservationName=a StartTime=2026-11-24T08:00:00 Nodes=n1 Flags=MAINT"),
        (parse_windows, "ReservationName=a StartTime=1 Nodes=n[1 Flags=MAINT"),
    ],
)
def test_a_table_of_another_shape_is_an_error_and_never_an_empty_fleet(parse, text):
    with pytest.raises(OrchestratorError, match=r"printed|node list"):
        parse(text)


# what the versions 22.05 to 25.11 print for a base state or a flag, and the marks of short tables
PRINTED = (
    "idle allocated alloc mixed mix down error unknown unk future futr drain drained draining drng"
    " fail failing failg inval invalid_reg maintenance maint reserved resv blocked block"
    " not_responding reboot_requested reboot_issued reboot reboot^ power_down power_drain"
    " powering_down powered_down power_up powering_up pow_dn pow_up completing comp planned plnd"
    " cloud dynamic_norm dynamic_future external perfctrs npc resume undrain boot"
    " idle* down* idle~ idle# idle! idle% idle$ idle@ idle^ mix- alloc+ drain*"
)


def test_every_word_that_slurm_prints_is_known_in_any_case_and_as_a_list():
    assert not [word for word in PRINTED.split() if read_state(word).strange]
    for word in PRINTED.split():
        assert read_state(word.upper()) == read_state(word)
    assert read_state(["IDLE", "DRAIN"]) == read_state("idle+drain") == read_state("drained")


@pytest.mark.parametrize(
    ("state", "is_up", "is_cordoned", "is_free", "is_maintained"),
    [
        ("idle", True, False, True, False),
        ("idle+planned", True, False, True, False),
        ("idle+maintenance+reserved", True, False, False, True),
        ("maint*", False, False, True, True),
        ("idle+reserved", True, False, False, False),
        ("idle+drain+maintenance", True, True, True, True),
        ("mixed+reboot_requested", True, False, False, False),
        ("down+reboot_issued", False, True, False, False),
        ("idle+powered_down+cloud", False, False, False, False),
        ("idle+not_responding", False, False, True, False),
        ("idle+blocked", True, False, False, False),
        ("allocated+fail", True, True, True, False),
        ("idle+invalid_reg", True, True, True, False),
    ],
)
def test_each_state_of_slurm_has_its_meaning(state, is_up, is_cordoned, is_free, is_maintained):
    shown = read_state(state)
    assert (shown.is_up, shown.keeps_jobs_off, shown.is_free, shown.is_in_maintenance) == (
        *(is_up, is_cordoned, is_free, is_maintained),
    )
    assert bool(shown.means) == (state not in ("idle", "idle+planned"))


@given(st.lists(st.text("abcdefgh_", max_size=9), max_size=3))
def test_an_unknown_state_of_slurm_is_never_taken_as_free(words):
    shown = read_state("+".join(words))
    assert shown.is_free is False
    assert "a state that anubis does not know" in shown.means


def test_a_node_that_is_down_without_a_reason_is_reported_so():
    (node,) = parse_nodes(row("gpu07", "down", "(null)", "Unknown", "Unknown", "none"))
    assert node.cordon == "down; slurm has no reason for it"


RESERVATIONS = (  # by Slurm 22.05, with times as seconds
    "ReservationName=fix1 StartTime=1000 EndTime=4600 Duration=01:00:00 Nodes=gpu[01-02] NodeCnt=2"
    " Features=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES Users=root State=ACTIVE\n"
    "ReservationName=team StartTime=1000 EndTime=9000 Nodes=gpu03 Flags=SPEC_NODES State=ACTIVE"
    " Comment=Flags=MAINT is not set\n"
    "ReservationName=gone StartTime=1000 EndTime=4600 Nodes=(null) Flags=MAINT State=ACTIVE\n"
)


def test_a_reservation_for_maintenance_is_a_window_and_no_other_is():
    windows = parse_windows(RESERVATIONS)
    fix = SeenWindow(
        nodes=("gpu01", "gpu02"), begin=1000, end=4600, reason="slurm's reservation fix1"
    )
    assert windows == {"reservation fix1": fix}
    assert parse_windows("No reservations in the system\n") == {}
    seen = fleet_seen(2000.0, parse_nodes(SINFO), {}, lambda node: "", windows=windows)
    assert seen.windows == windows


def test_a_node_in_a_hidden_reservation_is_still_in_maintenance():
    shown = row("gpu01", "idle+maintenance+reserved", "(null)", "Unknown", "Unknown", "none")
    seen = fleet_seen(2000.0, parse_nodes(shown), {}, lambda node: "")
    (window,) = seen.windows.values()
    assert (window.nodes, window.begin, window.end) == (("gpu01",), 2000.0, math.inf)


# --- a real one ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmBed]:
    if reason := slurm_bed.why_not():
        pytest.skip(reason)
    with (
        SlurmBed(["node1", "node2", "node3"], features="h100") as bed,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("SLURM_CONF", str(bed.conf))
        yield bed


@pytest.fixture
def orchestrator(slurm: SlurmBed) -> Iterator[SlurmOrchestrator]:
    settings = SlurmSettings(kind="slurm", partition="gpu", features={"h100": "h100-sxm-8x"})
    yield SlurmOrchestrator(settings)
    slurm.run("scancel", "--full", "--user=root")
    for node in slurm.nodes:
        slurm.run("scontrol", "update", f"nodename={node}", "state=undrain", check=False)
    assert eventually(slurm.is_up)


def test_slurm_shows_its_nodes_and_jobs_as_its_json_does(slurm, orchestrator):
    job = slurm.submit("--nodelist=node1", "--time=60")
    assert eventually(lambda: orchestrator.observe().nodes["node1"].jobs == (job,))
    seen = orchestrator.observe()
    shown = json.loads(slurm.run("squeue", "--json").stdout)["jobs"]
    (theirs,) = (entry for entry in shown if entry["job_state"] == "RUNNING")
    assert seen.jobs == {
        str(theirs["job_id"]): SeenJob(
            owner=theirs["user_name"],
            nodes=(theirs["nodes"],),
            started_at=theirs["start_time"],
            ends_by=theirs["end_time"],
        )
    }
    shown_nodes = {name: (node.sku, node.is_up, node.cordon) for name, node in seen.nodes.items()}
    assert shown_nodes == dict.fromkeys(slurm.nodes, ("h100-sxm-8x", True, ""))


def test_a_node_is_drained_with_our_reason_and_let_in_again(slurm, orchestrator):
    cordon(orchestrator, "node2", SLOW)
    cordon(orchestrator, "node2", SLOW)
    assert (slurm.state("node2"), slurm.reason("node2")) == ("idle+drain", SLOW)
    seen = orchestrator.observe().nodes["node2"]
    assert (seen.cordon, seen.is_cordoned_by_anubis, seen.cordoned_by) == (SLOW, True, "root")
    assert seen.cordoned_at is not None
    cordon(orchestrator, "node2", reason("SPARE", 'kept "ready", as a spare'))
    assert slurm.reason("node2") == 'anubis[SPARE]: kept "ready", as a spare'
    release(orchestrator, "node2")
    release(orchestrator, "node2")
    assert "drain" not in slurm.state("node2")
    assert orchestrator.observe().nodes["node2"].cordon == ""


def test_a_reason_that_ends_in_a_quotation_is_confirmed(slurm, orchestrator):
    cordon(orchestrator, "node2", reason("INCIDENT", 'no test since its incident "gpu"'))
    release(orchestrator, "node2")
    assert "drain" not in slurm.state("node2")


def test_a_job_is_put_back_without_a_node_and_no_other_job_is(slurm, orchestrator):
    job = slurm.submit("--exclude=node2,node3", "--requeue")
    fixed = slurm.submit("--nodelist=node2", "--no-requeue")
    jobs = {job: ["node1"], fixed: ["node2"]}
    eventually(lambda: orchestrator.observe().jobs.keys() >= jobs.keys())
    assert orchestrator.requeue({job: ["node2"]}) == {}, "it is not there, so it goes on"
    assert job in orchestrator.observe().jobs
    refused = orchestrator.requeue({**jobs, "7; true": ["node1"]})
    assert refused.keys() == {fixed, "7; true"}
    assert fixed in orchestrator.observe().jobs
    # its nodes may be excluded while it still ends there
    shown = slurm.run("scontrol", "show", "job", job).stdout
    assert "ExcNodeList=node1,node2,node3" in shown

    def waits() -> bool:
        shown = slurm.run("scontrol", "show", "job", job).stdout
        return "JobState=PENDING" in shown and "Restarts=1" in shown

    assert eventually(waits)
    assert orchestrator.requeue({job: ["node1"]}) == {}, "it waits, and is not put back again"
    assert "Restarts=1" in slurm.run("scontrol", "show", "job", job).stdout
    slurm.run("scancel", job, fixed)


def test_a_node_that_is_down_stays_down_when_its_drain_is_taken_back(slurm, orchestrator):
    for state in ("down", "drain"):
        slurm.run("scontrol", "update", "nodename=node2", f"state={state}", f"reason={SLOW}")
    release(orchestrator, "node2")
    assert "down" in slurm.state("node2")
    assert "drain" not in slurm.state("node2")
    slurm.run("scontrol", "update", "nodename=node2", "state=resume")


@contextmanager
def instead_of(program: str, text: str, folder: Path) -> Iterator[None]:
    """Put a program of ours before one of Slurm's."""
    (folder / program).write_text(text)
    (folder / program).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        yield


def test_many_nodes_take_one_command_of_slurm_for_each_reason_and_one_refusal_is_its_own(
    slurm, orchestrator, tmp_path
):
    slurm.run("scontrol", "update", "nodename=node3", "state=drain", "reason=swap the fan")
    asked, real = tmp_path / "asked", shutil.which("scontrol")
    counts = f'#!/bin/sh\necho "$*" >> {asked}\nexec {real} "$@"\n'
    with instead_of("scontrol", counts, tmp_path):
        reasons = dict.fromkeys(("node1", "node2", "node3", "node9"), SLOW)
        refused = orchestrator.cordon(reasons)
        assert sorted(refused) == ["node3", "node9"]
        assert 'the reason "swap the fan"' in refused["node3"]
        assert [slurm.reason(node) for node in slurm.nodes] == [SLOW, SLOW, "swap the fan"]
        assert sorted(orchestrator.release(["node1", "node2", "node3"])) == ["node3"]
    assert ["drain" in slurm.state(node) for node in slurm.nodes] == [False, False, True]
    assert asked.read_text().splitlines() == [
        f"update nodename=node1,node2 state=drain reason={SLOW}",
        "update nodename=node1,node2 state=undrain",
    ]


def test_if_slurm_refuses_a_list_each_node_gets_a_command_of_its_own(slurm, orchestrator, tmp_path):
    real = shutil.which("scontrol")
    picky = f'#!/bin/sh\ncase "$*" in *node2*) echo no >&2; exit 1;; esac\nexec {real} "$@"\n'
    with instead_of("scontrol", picky, tmp_path):
        refused = orchestrator.cordon(dict.fromkeys(slurm.nodes, SLOW))
    assert list(refused) == ["node2"]
    assert refused["node2"].endswith(": no")
    assert [slurm.reason(node) for node in slurm.nodes] == [SLOW, "none", SLOW]


def test_slurm_is_not_trusted_to_have_obeyed(slurm, orchestrator, tmp_path):
    trouble = pytest.raises(
        OrchestratorError, match=r'slurm was asked to drain "node2".* shows idle'
    )
    with instead_of("scontrol", "#!/bin/sh\n", tmp_path), trouble:
        cordon(orchestrator, "node2", SLOW)


def test_somebodys_reason_stays_as_it_is(slurm, orchestrator):
    slurm.run("scontrol", "update", "nodename=node3", "state=drain", "reason=swap the fan")
    with pytest.raises(OrchestratorError, match='by root with the reason "swap the fan"'):
        cordon(orchestrator, "node3", SLOW)
    with pytest.raises(OrchestratorError, match="anubis leaves it as it is"):
        release(orchestrator, "node3")
    assert (slurm.state("node3"), slurm.reason("node3")) == ("idle+drain", "swap the fan")


def test_a_maintenance_of_slurm_is_seen_and_left_alone(slurm, orchestrator):
    planned = "reservationname=fans starttime=now duration=60 user=root flags=maint nodes=node3"
    slurm.run("scontrol", "create", "reservation", *planned.split())
    try:
        seen = orchestrator.observe()
        window = seen.windows["reservation fans"]
        assert (window.nodes, window.end - window.begin) == (("node3",), 3600.0)
        assert window.begin <= seen.at < window.end
        assert eventually(lambda: "maintenance" in slurm.state("node3"))
        assert not orchestrator.observe().nodes["node3"].is_free
        with pytest.raises(OrchestratorError, match="anubis leaves a maintenance alone"):
            cordon(orchestrator, "node3", SLOW)
    finally:
        slurm.run("scontrol", "delete", "reservation", "fans")
    assert eventually(lambda: orchestrator.observe().nodes["node3"].is_free)
    assert orchestrator.observe().windows == {}


def test_a_node_that_slurm_lacks_and_a_controller_that_is_gone_are_named(
    slurm, orchestrator, tmp_path, monkeypatch
):
    with pytest.raises(OrchestratorError, match="node9"):
        cordon(orchestrator, "node9", SLOW)
    elsewhere = tmp_path / "slurm.conf"
    elsewhere.write_text(slurm.conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #"))
    monkeypatch.setenv("SLURM_CONF", str(elsewhere))
    short = SlurmOrchestrator(SlurmSettings(kind="slurm", deadline_s=0.5))
    with pytest.raises(OrchestratorError, match=r"squeue .*: (no answer within 0.5 s|.*contact)"):
        short.observe()


def test_a_machine_without_slurm_commands_is_one_sentence_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    advice = r'"squeue" could not be started: .*; until squeue answers on this machine, .* install'
    with pytest.raises(OrchestratorError, match=advice):
        SlurmOrchestrator(SlurmSettings(kind="slurm")).observe()


def test_nodes_are_listed_with_jobs_and_the_author_of_their_cordon(slurm, orchestrator, near: Desk):
    owned = {"executor": "local", "name": "prod", "orchestrator": {"kind": "slurm"}}
    cluster = str(near.write("prod.yaml", owned))
    job = slurm.submit("--nodelist=node1")
    cordon(orchestrator, "node2", SLOW)
    slurm.run("scontrol", "update", "nodename=node3", "state=drain", "reason=swap the fan")
    assert eventually(lambda: orchestrator.observe().nodes["node1"].jobs == (job,))
    done = near.run("nodes", "--cluster", cluster)
    first, *_ = done.out.splitlines()
    assert first == (
        "3 nodes of cluster prod: 1 drained by anubis, 1 kept from jobs by others, 1 at work"
    )
    assert max(map(len, done.out.splitlines()[1:])) <= 80
    assert f"job {job} of" in done.out
    rows = re.findall(r"^node\d", done.out, re.M)
    assert rows == ["node2", "node3", "node1"], "what needs a person comes first"
    lines = near.run("nodes", "node[1,3]", "--cluster", cluster, "--json").lines
    assert [(line["node"], line["standing"], line["reason"]) for line in lines] == [
        ("node1", "at work", ""),
        ("node3", "kept from jobs by others", "swap the fan"),
    ]
    assert [entry["id"] for entry in lines[0]["jobs"]] == [job]
    unknown = near.run("nodes", "node7", "--cluster", cluster)
    assert (unknown.code, unknown.out) == (64, "")
    assert 'has no node "node7"' in unknown.err


# --- whose work is on the nodes ------------------------------------------------------------


def test_a_named_node_with_a_foreign_job_is_refused_and_with_our_own_is_not(
    slurm, orchestrator, near: Desk, monkeypatch
):
    monkeypatch.setattr(socket, "gethostname", lambda: "node3")
    cluster = str(near.write("prod.yaml", {"executor": "local", "orchestrator": {"kind": "slurm"}}))
    job = slurm.submit("--nodelist=node3")
    assert eventually(lambda: orchestrator.observe().nodes["node3"].jobs == (job,))
    suite = near.suite(near.flow())
    refused = near.ask("accept", "node3", "--suite", suite, "--cluster", cluster)
    assert (refused.code, refused.out) == (2, "")
    whose = f"job {job} of {getpass.getuser()} runs there since"
    assert f'node "node3" is left alone: {whose}' in refused.err
    unnamed = near.ask("accept", "--suite", suite, "--cluster", cluster)
    assert (unnamed.code, unnamed.out) == (2, "")
    assert f"node3 left out: {whose}" in unnamed.err
    assert "every one of these nodes is left alone" in unnamed.err
    swept = near.ask("sweep", "node3", "--budget", "1h", "--suite", suite, "--cluster", cluster)
    assert (swept.code, swept.out) == (2, "")
    assert f"node3 left out: {whose}" in swept.err
    gated = near.ask("gate", "node3", "--duration", "1h", "--suite", suite, "--cluster", cluster)
    assert (gated.code, gated.out) == (2, "")
    assert f'node "node3" is left alone: {whose}' in gated.err
    monkeypatch.setenv("SLURM_JOB_ID", job)
    assert near.ask("accept", "node3", "--suite", suite, "--cluster", cluster).code == 0
