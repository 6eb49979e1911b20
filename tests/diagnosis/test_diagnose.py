"""A job's traces on disk, from the request to the answer, the keeper and the next advice."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

import anubis
from anubis.core.diagnose.analyst import JobTrouble
from anubis.core.diagnose.cures import CureLevel
from anubis.core.diagnose.diagnostician import DiagnosisAnswer
from anubis.core.diagnose.evidence import Collector
from anubis.core.errors import ConfigError, UsageError
from anubis.core.fabric import Part
from anubis.core.history.events import (
    EventRecord,
    JobAllocated,
    JobEnded,
    JobStalled,
    JobUnexplained,
    SuspicionRaised,
)
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.life import Life
from anubis.lab.simulation.hangs import HangFault, HangingJob, JobLayout, dump_bytes
from anubis.operations.caller import Caller
from anubis.operations.clusters import resolve
from anubis.operations.diagnose import DiagnosisRequest, diagnose_and_tell, rules
from anubis.operations.diagnose_due import SETTLED_S
from anubis.operations.tell import note
from anubis.report import diagnose as report
from anubis.report.diagnosis_pages import diagnosis_page, sentences
from tests.diagnosis.made_recorders import inspector_files, ras_text, scrape

NOW = 1_790_000_000.0
NODES = ("n0", "n1")


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Dumps of a job in which rank 2, on n1, stopped before a collective."""
    folder = tmp_path / "4711"
    folder.mkdir()
    for rank, made in HangingJob(JobLayout(dp=4), [HangFault(2, 5)]).run().dumps().items():
        (folder / f"dump_{rank}").write_bytes(dump_bytes(made, as_json=False))
    return folder


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    """A caller whose cluster has these nodes."""
    caller = Caller(history_url=f"sqlite:///{tmp_path}/history.db", clock=lambda: NOW)
    with caller.history() as history:
        resolve(history, None, caller).watches.begin(NODES, NOW - 86_400)
    return caller


def request(dumps: Path, **more: object) -> DiagnosisRequest:
    return DiagnosisRequest(
        job="4711",
        nodes=NODES,
        ranks_per_node=2,
        places={"dumps": dumps},
        **more,  # type: ignore[arg-type]
    )


def test_dumps_name_the_rank_its_node_and_the_lightest_cure(dumps: Path, caller: Caller):
    view = anubis.diagnose_job(request(dumps), caller)
    (culprit,) = view.diagnosis.culprits
    assert (culprit.rank, culprit.node) == (2, "n1")
    assert view.diagnosis.trouble is JobTrouble.HUNG
    assert view.diagnosis.cure.level is CureLevel.RESTART
    assert report.headline(view) == "job 4711 hangs: rank 2 on n1"


def test_the_answer_fits_ten_lines_and_names_missing_evidence(dumps: Path, caller: Caller):
    view = anubis.diagnose_job(request(dumps), caller)
    lines = dict(report.ten_lines(view))
    assert len(lines) <= 9  # and the headline
    assert lines["cure"] == "level 2 of 4: restart the processes"
    assert "telemetry (--telemetry)" in lines["not seen"]


@pytest.mark.parametrize(
    ("place", "sentence"),
    [("live", "has no rank that announced itself"), ("logs", "has no text")],
)
def test_a_named_trace_without_evidence_is_reported_first(
    place: str, sentence: str, tmp_path: Path, caller: Caller
):
    (tmp_path / "random.log").write_bytes(random.Random(7).randbytes(100_000))
    view = anubis.diagnose_job(DiagnosisRequest(places={place: tmp_path}), caller)
    first, _, rest = dict(report.ten_lines(view))["not seen"].partition("; ")
    assert sentence in first
    assert rest.startswith("no ")


def test_the_page_shows_waits_between_ranks_and_escapes_their_words(dumps: Path, caller: Caller):
    view = anubis.diagnose_job(request(dumps), caller)
    hostile = replace(view.diagnosis, job="<script>alert(1)</script>")
    page = diagnosis_page(replace(view, diagnosis=hostile))
    assert "Ranks that wait" in page
    assert 'class="absent"' in page
    assert "<script>alert" not in page


def test_a_place_that_cannot_be_read_is_a_sentence_and_the_rest_counts(dumps: Path, caller: Caller):
    places = {"dumps": dumps, "traces": dumps / "none.csv"}
    view = anubis.diagnose_job(replace(request(dumps), places=places), caller)
    assert view.diagnosis.answer is DiagnosisAnswer.NAMED
    assert "none.csv" in view.diagnosis.gaps[Collector.STEPS]


def test_each_recorder_of_nccl_is_read_from_its_named_folder(tmp_path: Path, caller: Caller):
    (tmp_path / "inspector").mkdir()
    for name, text in inspector_files(slow={2: 1.6}).items():
        (tmp_path / "inspector" / name).write_text(text)
    (tmp_path / "ras").write_text(ras_text(launched={5: 649}) * 2)
    (tmp_path / "xpu-timer").write_text(scrape({rank: rank != 5 for rank in range(8)}))
    places = {name: tmp_path / name for name in ("inspector", "ras", "xpu-timer")}
    request = DiagnosisRequest(nodes=("n0", "n1"), ranks_per_node=4, places=places)
    diagnosis = anubis.diagnose_job(request, caller).diagnosis
    assert [(whom.rank, whom.node) for whom in diagnosis.culprits] == [(5, "n1")]
    kinds = {(fact.kind.value, fact.whom.rank) for fact in diagnosis.facts}
    assert kinds == {("absent", 5), ("slow-compute", 2), ("standstill", None)}
    assert diagnosis.gaps[Collector.CALLS] == "no dumps of collectives (--dumps)"
    assert Collector.STEPS not in diagnosis.gaps


def test_without_readable_evidence_the_answer_is_unknown(tmp_path: Path, caller: Caller):
    view = anubis.diagnose_job(request(tmp_path / "nowhere"), caller)
    assert view.diagnosis.answer is DiagnosisAnswer.UNKNOWN
    assert report.headline(view).startswith("job 4711: cannot say")
    assert "cure" not in dict(report.ten_lines(view))


def test_an_unknown_state_says_until_when_steps_rose(tmp_path: Path, caller: Caller):
    now = caller.clock()
    for ago_s, words in ((1200.0, "20 min ago"), (-3600.0, "still to come")):
        dates = (datetime.fromtimestamp(now - ago_s + 10 * step, UTC) for step in range(-3, 1))
        (tmp_path / "a.log").write_text(
            "".join(f"{date:%Y-%m-%d %H:%M:%S} step {step}\n" for step, date in enumerate(dates))
        )
        os.utime(tmp_path / "a.log", (now + 3600, now + 3600))
        view = anubis.diagnose_job(DiagnosisRequest(places={"logs": tmp_path}), caller)
        assert view.diagnosis.answer is DiagnosisAnswer.UNKNOWN
        assert words in dict(report.ten_lines(view))["last seen"]


def test_a_request_without_any_place_is_refused(caller: Caller):
    with pytest.raises(UsageError, match="--dumps"):
        anubis.diagnose_job(DiagnosisRequest(job="4711", nodes=NODES), caller)
    with pytest.raises(UsageError, match=r'no trace is called "dump".*dumps'):
        anubis.diagnose_job(DiagnosisRequest(places={"dump": Path()}), caller)


def test_a_folder_in_place_of_the_id_of_a_job_is_refused_by_name(dumps: Path, caller: Caller):
    with pytest.raises(UsageError, match=r"is a path, expected the id of a job: .*--dumps"):
        anubis.diagnose_job(DiagnosisRequest(job=str(dumps), nodes=NODES), caller)


def test_advice_that_failed_is_not_repeated_and_its_node_is_suspected_once(
    dumps: Path, caller: Caller
):
    first, news = diagnose_and_tell(request(dumps, at=NOW - 600), caller)
    assert (first.diagnosis.cure.level, news) == (CureLevel.RESTART, ("n1",))
    second, news = diagnose_and_tell(request(dumps), caller)
    assert (second.diagnosis.cure.level, news) == (CureLevel.REPLACE, ())
    assert second.diagnosis.cure.replaced == ("n1",)
    with caller.history() as history:
        (suspicion,) = resolve(history, None, caller).keeping.suspicions()
        assert (suspicion.node, suspicion.source) == ("n1", "diagnosis")


def test_a_node_that_left_its_orchestrator_is_known_from_the_keeper(dumps: Path, caller: Caller):
    lives = [
        Life(node="n0", present_at=NOW - 20),
        Life(node="n1", present=False, present_at=NOW - 900),
    ]
    with caller.history() as history, resolve(history, None, caller).keeping.turn("a test") as turn:
        breakers = turn.keeper(KeepingPolicy()).breakers
        keeper = Keeper(KeepingPolicy(), lives, breakers, NOW - 20, NOW - 20)
        turn.end(keeper, turn.news(), NOW - 20)
    view, _ = diagnose_and_tell(request(dumps, at=NOW - 600), caller)
    assert view.evidence.unreachable == {"n1": NOW - 900}
    assert Collector.REACH in view.evidence.collectors
    view, _ = diagnose_and_tell(request(dumps), caller)  # without a look since then
    assert Collector.REACH not in view.evidence.collectors


def test_times_without_a_zone_are_those_of_the_zone_that_the_policy_names(
    tmp_path: Path, caller: Caller
):
    """13:20 in Berlin, in summer, is 11:20 UTC."""
    (tmp_path / "n1.log").write_text(
        "2026-09-21T13:20:00 n1 kernel: NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off\n"
    )
    at = {}
    for zone in ("UTC", "Europe/Berlin", "Europe/Berlim"):
        policy = tmp_path / "zone.yaml"
        policy.write_text(yaml.safe_dump({"zone": zone}))
        ask = DiagnosisRequest(
            nodes=NODES, places={"kernel": tmp_path / "n1.log"}, policy=str(policy)
        )
        if zone == "Europe/Berlim":
            with pytest.raises(ConfigError, match=r"Berlim.*no time zone"):
                anubis.diagnose_job(ask, caller)
            continue
        (event,) = anubis.diagnose_job(ask, caller).evidence.log
        at[zone] = event.at
    assert at["UTC"] == datetime(2026, 9, 21, 13, 20, tzinfo=UTC).timestamp()
    assert at["UTC"] - at["Europe/Berlin"] == 7200


def test_the_reason_why_a_rank_refused_questions_is_reported(tmp_path: Path, caller: Caller):
    for rank in (3, 5):
        (tmp_path / f"{rank}.refused").write_text("others may enter /tmp/\x1b[31mx\n")
    view = anubis.diagnose_job(DiagnosisRequest(nodes=NODES, places={"live": tmp_path}), caller)
    gap = view.diagnosis.gaps[Collector.PROCESSES]
    assert gap.startswith("rank 3 could not be asked: others may enter /tmp/")
    assert gap.endswith(", nor could 1 of the others")
    assert "\x1b" not in gap


# --- in the keeper's turn -----------------------------------------------------------------------


def keeping_with(tmp_path: Path) -> anubis.Keeping:
    """A policy with the folder of dumps of each job."""
    policy = tmp_path / "diagnosis.yaml"
    policy.write_text(
        yaml.safe_dump({"places": {"dumps": f"{tmp_path}/{{job}}"}, "ranks_per_node": 2})
    )
    keeping = anubis.keeping_of(anubis.KeepRequest())
    changed = replace(keeping.policy, diagnose=str(policy))
    return replace(keeping, chosen=replace(keeping.chosen, policy=changed))


def end_job(id: str, caller: Caller, ended_at: float) -> None:
    with caller.history() as history:
        part = resolve(history, None, caller)
        begins = JobAllocated(nodes=NODES, duration_s=3600.0, job=id)
        note([EventRecord(id=f"{id} a", at=NOW - 3000, event=begins)], part)
        note([EventRecord(id=f"{id} z", at=ended_at, event=JobEnded(nodes=NODES, job=id))], part)


def test_a_job_that_ended_is_diagnosed_once(dumps: Path, tmp_path: Path, caller: Caller):
    end_job("4711", caller, NOW - SETTLED_S - 1)
    end_job("without-traces", caller, NOW - SETTLED_S - 1)
    end_job("just-now", caller, NOW)
    keeping, begun = keeping_with(tmp_path), []
    anubis.diagnose_due(keeping, caller, lambda: begun.append(1))
    assert begun == [1]
    diagnoses = {made.past.job: made.past for made in anubis.diagnose_due(keeping, caller)}
    assert diagnoses.keys() == {"4711", "without-traces"}
    assert (diagnoses["4711"].nodes, diagnoses["4711"].level) == (("n1",), CureLevel.RESTART)
    assert diagnoses["without-traces"].headline.startswith("job without-traces: cannot say")
    anubis.diagnose_due(keeping, caller, lambda: begun.append(2))
    assert begun == [1]  # nothing is due


def begin_job(id: str, caller: Caller) -> None:
    begins = JobAllocated(nodes=NODES, duration_s=3600.0, job=id)
    with caller.history() as history:
        note([EventRecord(id=id, at=NOW - 3000, event=begins)], resolve(history, None, caller))


def test_a_running_job_reported_as_stalled_is_diagnosed_once(
    dumps: Path, tmp_path: Path, caller: Caller
):
    begin_job("4711", caller)
    keeping = keeping_with(tmp_path)
    assert anubis.diagnose_due(keeping, caller) == ()
    for minute in (20, 10):
        stalled = JobStalled(nodes=(), job="4711")
        anubis.tell(anubis.Telling(event=stalled, at=NOW - 60 * minute), caller)
        (made,) = anubis.diagnose_due(keeping, caller)
        assert (made.past.at, made.past.nodes) == (NOW - 1200, ("n1",))
        assert made.outcomes == {"n1": "open"}
    end = JobEnded(nodes=(), job="4711")
    anubis.tell(anubis.Telling(event=end, at=NOW - SETTLED_S - 1), caller)
    _, again = anubis.diagnose_due(keeping, caller)
    assert again.past.level == CureLevel.RESTART  # what was advised just now was not in vain


def test_a_running_job_whose_logs_are_silent_stands_still(tmp_path: Path, caller: Caller):
    """Two jobs write nothing, one of them to a log that it never began."""
    for id, silent_s in (("4711", 700), ("4712", 500)):
        begin_job(id, caller)
        log = tmp_path / "logs" / id / "rank0.log"
        log.parent.mkdir(parents=True)
        log.write_text("step 1\n")
        os.utime(log, (NOW - silent_s, NOW - silent_s))
    begin_job("4713", caller)
    watched = SuspicionRaised(nodes=("n1",), category="network", source="watch")
    anubis.tell(anubis.Telling(event=watched, at=NOW - 800), caller)
    policy = tmp_path / "diagnosis.yaml"
    policy.write_text(yaml.safe_dump({"places": {"logs": f"{tmp_path}/logs/{{job}}"}}))
    keeping = anubis.keeping_of(anubis.KeepRequest())
    changed = replace(keeping.policy, diagnose=str(policy))
    keeping = replace(keeping, chosen=replace(keeping.chosen, policy=changed))
    for _ in range(2):
        (made,) = anubis.diagnose_due(keeping, caller)
        assert (made.past.job, made.past.at) == ("4711", NOW - 700)
        hangs = "job 4711 hangs, and no culprit can be named; n1 is suspected (watch)"
        assert made.past.headline == hangs
        (sentence,) = sentences([made])
        assert sentence == f"diagnosis: {made.past.headline} (try again)"
    end = JobEnded(nodes=(), job="4711")
    anubis.tell(anubis.Telling(event=end, at=NOW - SETTLED_S - 1), caller)
    anubis.diagnose_due(keeping, caller)
    with caller.history() as history:
        (kept,) = resolve(history, None, caller).event_records.read_kind(JobUnexplained)
    assert (kept.event.nodes, kept.event.reason) == (NODES, hangs)


def test_a_policy_that_says_nothing_of_diagnosis_diagnoses_nothing(caller: Caller):
    end_job("4711", caller, NOW - SETTLED_S - 1)
    assert anubis.diagnose_due(anubis.keeping_of(anubis.KeepRequest()), caller) == ()


# --- rules --------------------------------------------------------------------------------------


def test_rules_declare_kinds_that_some_rule_or_collector_can_meet():
    """A rule whose needs nothing can give would never be asked."""
    met = {kind for rule in rules() for kind in rule.gives} | set(Collector)
    for rule in rules():
        assert rule.needs <= met, rule.name
        assert rule.needs, rule.name


def test_counters_after_the_crash_make_a_link_that_went_down_likelier(dumps: Path, caller: Caller):
    fabric, counters = dumps.parent / "fabric.yaml", dumps.parent / "counters.csv"
    fabric.write_text(
        'racks:\n  - {nodes: "n[0-1]", leaves: l1}\n  - {nodes: "n[2-3]", leaves: l2}\n'
        'links:\n  - {below: "l[1-2]", above: s1}\n'
    )
    counters.write_text(
        "name,port,counter,value\n"
        + "".join(f"n{number},1,link_downed,{3 * (number == 1)}\n" for number in range(4))
    )
    asked = request(dumps, counters=(counters,))
    with pytest.raises(UsageError, match="--topology"):
        anubis.diagnose_job(asked, caller)
    hints = anubis.diagnose_job(replace(asked, topology=str(fabric)), caller).evidence.hints
    assert hints[Part("node", "n1")] == max(hints.values()) > 1
