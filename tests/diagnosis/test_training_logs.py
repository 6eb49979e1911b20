"""Training logs as events: rank, time and peer of each, and which error followed from which."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from anubis.config import configs
from anubis.core.diagnose import crash, hang, log_facts, slow
from anubis.core.diagnose.analyst import analyse
from anubis.core.diagnose.evidence import Collector, Gravity, RankMap
from anubis.core.diagnose.facts import FactKind, Whom, reason
from anubis.core.errors import EvidenceError
from anubis.readers.jobs import line_shapes
from anubis.readers.jobs.line_shapes import LineShapes, find_shape
from anubis.readers.jobs.ranks import number_ranks
from anubis.readers.jobs.training_logs import read_training

CLASSES = configs.error_classes()
EXCERPTS = Path(__file__).with_name("excerpts.yaml")
FOUR = number_ranks(["n1", "n2"], 2)


def read(path, ranks=FOUR):
    return read_training(path, ranks, CLASSES)


def of_text(tmp_path, text, ranks=FOUR, name="train.log"):
    (tmp_path / name).write_text(text)
    return read(tmp_path / name, ranks)


def raised(kind, line=7, prefix=""):
    lines = ["Traceback (most recent call last):", f'  File "/u/t.py", line {line}, in <module>']
    return "".join(f"{prefix}{text}\n" for text in (*lines, "    step()", kind))


def test_a_traceback_is_one_event_with_the_same_detail_on_all_ranks(tmp_path):
    for rank in range(4):
        error = f"ValueError: row {rank} of /data/{rank}/x.bin at 0x7f{rank}a is bad"
        (tmp_path / f"rank_{rank}.log").write_text(raised(error))
    log = read(tmp_path).log
    assert [(event.rank, event.node, event.code) for event in log] == [
        (0, "n1", "python-error"),
        (1, "n1", "python-error"),
        (2, "n2", "python-error"),
        (3, "n2", "python-error"),
    ]
    assert len({event.detail for event in log}) == 1


def test_an_error_of_gloo_about_another_shape_names_no_rank(tmp_path):
    """Recorded: rank 2 had called another shape, its peers lost their connections to it."""
    (tmp_path / "rank_2.log").write_text(
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "  what():  [enforce fail at /g/gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
        "op.nbytes. 74112 vs 4. Received data size doesn't match expected size.\n"
    )
    for rank in (0, 1, 3):
        words = f"[/g/gloo/transport/tcp/pair.cc:537] Read error [10.0.0.{rank}]:51897: Connection"
        error = f"RuntimeError: {words} reset by peer. This is typically caused by a remote worker"
        (tmp_path / f"rank_{rank}.log").write_text(raised(error))
    evidence = read(tmp_path)
    assert [event.rank for event in evidence.log if event.gravity == "mismatch"] == [2]
    analysis = analyse(reason(evidence, hang.MATCHING_RULES), evidence)
    assert (analysis.is_the_job_itself, analysis.nodes) == (True, ())


def test_the_same_error_in_another_line_has_another_detail(tmp_path):
    (tmp_path / "rank0.log").write_text(raised("ValueError: bad", line=7))
    (tmp_path / "rank1.log").write_text(raised("ValueError: bad", line=8))
    assert len({event.detail for event in read(tmp_path).log}) == 2


def test_lines_of_ranks_that_are_mixed_are_taken_apart(tmp_path):
    pairs = zip(
        raised("KeyError: 'a'", prefix="[rank1]: ").splitlines(),
        raised("torch.OutOfMemoryError: CUDA out of memory.", prefix="[rank2]: ").splitlines(),
        strict=True,
    )
    evidence = of_text(tmp_path, "\n".join(line for pair in pairs for line in pair))
    assert [(event.rank, event.gravity) for event in evidence.log] == [
        (1, Gravity.APPLICATION),
        (2, Gravity.MEMORY),
    ]
    assert evidence.unread == frozenset()


def test_prefixes_and_folders_of_torchrun_give_the_rank_on_the_node(tmp_path):
    for node in ("n1", "n2"):
        for attempt, text in ((0, "KeyError: 'old'"), (1, "KeyError: 'new'")):
            folder = tmp_path / node / "run_x" / f"attempt_{attempt}" / "1"
            folder.mkdir(parents=True)
            (folder / "stderr.log").write_text(raised(text))
    log = read(tmp_path).log
    assert [(event.rank, event.node) for event in log] == [(1, "n1"), (3, "n2")]
    assert all("new" in event.text for event in log)
    (tmp_path / "n2.out").write_text(raised("KeyError: 1", prefix="[default0]:"))
    (event,) = read_training(tmp_path / "n2.out", FOUR, CLASSES).log
    assert (event.rank, event.node) == (2, "n2")


def test_the_first_error_of_a_chain_counts(tmp_path):
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = raised("torch.OutOfMemoryError: CUDA out of memory.") + chain + raised("KeyError: 1")
    (event,) = of_text(tmp_path, text, name="rank0.log").log
    assert event.code == "cuda-out-of-memory"
    text = raised("KeyError: 1") + chain + raised("torch.OutOfMemoryError: CUDA out of memory.")
    (event,) = of_text(tmp_path, text, name="rank0.log").log
    assert event.code == "cuda-out-of-memory"


def test_sequence_numbers_of_the_watchdog_are_the_progress_of_each_rank(tmp_path):
    work = "WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600020"
    text = "".join(
        f"[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught"
        f" collective operation timeout: {work} milliseconds before timing out.\n"
        f"[rank{rank}]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg)"
        f" Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: 8,"
        f" last enqueued NCCL work: {last}, last completed NCCL work: 7.\n"
        for rank, last in ((0, 11), (1, 11), (3, 8))
    )
    evidence = of_text(tmp_path, text)
    assert Collector.PROGRESS in evidence.collectors
    assert [(step.rank, step.enqueued, step.completed) for step in evidence.advances] == [
        (0, 11, 7),
        (1, 11, 7),
        (3, 8, 7),
    ]
    assert {step.members for step in evidence.advances} == {(0, 1, 2, 3)}
    assert {step.operation for step in evidence.advances} == {"ALLREDUCE"}
    assert evidence.log[0].lasted_s == pytest.approx(600.02)


TABLE = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-05-01_10:00:09
  host      : n1.cluster
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 1234)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-05-01_10:00:00
  host      : n2.cluster
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 1235)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 1235
============================================================
"""


def test_a_host_that_calls_itself_localhost_is_no_node(tmp_path):
    assert of_text(tmp_path, TABLE, RankMap()).ranks.node_of(3) == "n2.cluster"
    unnamed = TABLE.replace("n2.cluster", "localhost")
    assert of_text(tmp_path, unnamed, RankMap()).ranks.node_of(3) == ""


def test_tables_of_torchrun_and_lines_of_srun_give_the_ends_of_processes(tmp_path):
    evidence = of_text(tmp_path, TABLE)
    assert [(end.rank, end.code, end.signal) for end in evidence.exits] == [
        (1, 1, None),
        (3, None, 9),
    ]
    assert evidence.exits[0].at - evidence.exits[1].at == 9
    evidence = of_text(
        tmp_path,
        "srun: error: n2: task 2: Exited with exit code 137\n"
        "srun: error: n1: task 1: Segmentation fault\n"
        "srun: error: n1: task 3: Killed\n",  # no rank of n1
    )
    assert [(end.rank, end.signal) for end in evidence.exits] == [(2, 9), (1, 11)]


def test_lines_of_nccl_give_the_addresses_and_ranks_of_nodes(tmp_path):
    text = (
        "n1:10:20 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
        "n2:11:21 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.2<0>\n"
        "n2:11:21 [0] NCCL INFO comm 0x7f rank 2 nranks 4 cudaDev 0 busId 1000 - Init COMPLETE\n"
        "n2:11:99 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer"
        " 10.0.0.1<53249> with error 12, opcode 0, len 0, vendor err 129\n"
    )
    evidence = of_text(tmp_path, text)
    (event,) = evidence.log
    assert (event.node, event.rank, event.peer) == ("n2", 2, "10.0.0.1")
    assert evidence.ranks.node_named("10.0.0.1") == "n1"


@pytest.mark.parametrize(
    ("line", "peer"),
    [
        ("x: [gloo/transport/tcp/pair.cc:525] Read error [10.0.0.7]:9999: Connection reset", ""),
        ("RuntimeError: Connection closed by peer [10.0.0.7]:1234", "10.0.0.7"),
        ("RuntimeError: Connection closed by peer [fe80::1]:1234", "fe80::1"),
        (
            "a:1:2 [3] socket.h:421 NCCL WARN Net : Connection closed by remote peer n7.c<573>",
            "n7.c",
        ),
        ("a:1:2 [3] NCCL WARN socketProgress: Connection closed by remote peer n7<0>", "n7"),
        (
            "a:1:2 [3] NCCL WARN Call to recv from 10.0.0.7<41> failed : Connection reset by peer",
            "10.0.0.7",
        ),
        (
            "[Rank 0]: Rank 5 failed to pass monitoredBarrier in 30000 ms",
            "rank 5",
        ),
        ("/job:jax_worker/replica:0/task:6", "rank 6"),
        ("5: [DistributedAdam_Allreduce/cond/HorovodAllreduce_grads_0, allreduce.b]", "rank 5"),
    ],
)
def test_a_line_names_its_peer(tmp_path, line, peer):
    (event,) = of_text(tmp_path, line).log
    assert event.gravity is Gravity.DISTRIBUTED
    assert event.peer == (peer or "10.0.0.7")


def test_nodes_whose_ranks_left_no_file_are_unread(tmp_path):
    (tmp_path / "rank_0.log").write_text("fine\n")
    assert read(tmp_path).unread == {"n2"}


def test_a_log_without_a_word_is_refused(tmp_path):
    with pytest.raises(EvidenceError, match="no text"):
        of_text(tmp_path, "")


def test_rubbish_ends_without_an_event_that_blames(tmp_path):
    """10 KB of letters that the parsers look for, shuffled by a seed."""
    words = [
        b"[rank",
        b"NCCL WARN ",
        b"Traceback (most recent call last)\n",
        b"peer [",
        b"]:",
        b"\n",
    ]
    words += [b'File "', b"\0\0", b"\xff", b"rank : ", b"exitcode : -", b"[PG 1 Rank 9]", b"9" * 40]
    words += [b"last enqueued work: -", b"WorkNCCL(SeqNum=", b"srun: error: n1: task 1: Killed"]
    chance = random.Random(17)
    for case in range(30):
        file = tmp_path / f"{case}.log"
        file.write_bytes(b"".join(chance.choices(words, k=600)))
        for event in read(file, RankMap()).log:
            assert event.gravity is not Gravity.CRITICAL
            assert len(event.text) <= 240


# --- what srun -l writes before each line --------------------------------------------------------


def labelled(texts):
    """Lines as srun -l mixes them: a line of each in turn."""
    blocks = [text.splitlines() for text in texts]
    return "".join(
        f"{task:>2}: {line}\n"
        for lines in zip(*blocks, strict=True)
        for task, line in enumerate(lines)
    )


def test_lines_of_tasks_that_are_ranks_are_their_ranks_words(tmp_path):
    texts = [f"step 1\n{raised(f'ValueError: rank {rank}', line=7 + rank)}" for rank in range(4)]
    log = of_text(tmp_path, labelled(texts)).log
    assert [(event.rank, event.node) for event in log] == [
        (0, "n1"),
        (1, "n1"),
        (2, "n2"),
        (3, "n2"),
    ]
    assert [event.text.partition("rank ")[2][0] for event in log] == list("0123")


def test_a_label_of_a_launcher_on_each_node_gives_the_node_and_the_rank(tmp_path):
    quiet = "[default0]:step 1\n" * 4
    log = of_text(tmp_path, labelled([quiet, raised("ValueError: x", prefix="[default1]:")])).log
    assert [(event.rank, event.node) for event in log] == [(3, "n2")]


def test_an_ambiguous_label_names_no_rank(tmp_path):
    two = labelled([raised("ValueError: x"), raised("ValueError: x")])
    assert {(event.rank, event.node) for event in of_text(tmp_path, two).log} == {(None, "")}


def test_numbers_of_lines_are_no_labels(tmp_path):
    lines = raised("ValueError: x").splitlines() + ["the end"] * 9
    numbered = "".join(f"{number}: {line}\n" for number, line in enumerate(lines))
    assert of_text(tmp_path, numbered).log == ()
    assert of_text(tmp_path, numbered, RankMap()).log == ()


# --- attempts, the launcher's word, and steps ----------------------------------------------------

FAILED = (
    "E1123 21:00:17.821000 2622 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
    "(exitcode: 1) local_rank: {rank} (pid: 2694) of binary: /usr/bin/python\n"
)
CLOSING = (
    "W1123 21:00:17.750000 2622 torch/distributed/elastic/multiprocessing/api.py:1028] Sending "
    "process 2692 closing signal SIGTERM\n"
)
REPORT = """Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/v/torch/distributed/launcher/api.py", line 374, in launch_agent
    result = agent.run()
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-23_21:02:24
  host      : n1
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 5116)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 5116
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_21:02:23
  host      : n1
  rank      : {rank} (local_rank: {rank})
  exitcode  : 1 (pid: 5117)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


def blamed(evidence):
    rules = (*log_facts.RULES, *hang.MATCHING_RULES)
    return {whom.rank for whom in analyse(reason(evidence, rules), evidence).culprits}


def test_the_process_that_its_launcher_saw_fail_first_is_named_and_not_those_it_ended(tmp_path):
    """As torchrun of PyTorch 2.13 wrote it; the logs of its ranks are lost."""
    evidence = of_text(tmp_path, CLOSING + FAILED.format(rank=1) + REPORT.format(rank=1))
    assert [(end.rank, end.code, end.signal, end.is_first) for end in evidence.exits] == [
        (0, None, 9, False),
        (1, 1, None, True),
    ]
    assert blamed(evidence) == {1}


def test_a_rank_that_failed_first_by_its_launcher_is_a_victim_if_it_blamed_another(tmp_path):
    closed = "RuntimeError: Connection closed by peer [10.0.0.9]:4711. This is typically caused by"
    text = raised(closed, prefix="[rank1]: ") + FAILED.format(rank=1) + REPORT.format(rank=1)
    assert blamed(of_text(tmp_path, text)) == set()


def test_a_step_of_slurm_is_no_step_of_training(tmp_path):
    cancelled = "STEP 4711.0 ON n1 CANCELLED AT 2026-11-30T22:21:04 DUE TO TIME LIMIT ***\n"
    assert of_text(tmp_path, f"slurmstepd: error: *** {cancelled}").progress == ()


def test_a_rank_that_was_killed_after_it_had_blamed_another_is_a_victim(tmp_path):
    killed = "srun: error: n2: task 3: Killed\n"
    (tmp_path / "rank_3.log").write_text(raised("RuntimeError: Connection closed by peer [::1]:4"))
    (tmp_path / "slurm-4.out").write_text("srun: error: n1: task 1: Killed\n" + killed)
    assert blamed(read(tmp_path)) == {1}


def test_among_undated_errors_the_launcher_decides_which_came_first(tmp_path):
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}.log").write_text(raised(f"KeyError: {'ab'[rank]}", line=rank))
    assert blamed(read(tmp_path)) == set()
    (tmp_path / "launcher.log").write_text(REPORT.format(rank=1))
    assert blamed(read(tmp_path)) == {1}


def test_errors_of_an_earlier_attempt_do_not_count_in_the_last_one(tmp_path):
    """torchrun --max-restarts=1 without a log folder: rank 1 raised, then rank 2."""
    first = raised("KeyError: 'a'", prefix="[rank1]: ") + CLOSING + FAILED.format(rank=1)
    again = "2026-11-23 21:00:22 step 0\n"
    evidence = of_text(tmp_path, first + again)
    assert (evidence.log, blamed(evidence)) == ((), set())
    last = raised("KeyError: 'b'", prefix="[rank2]: ") + CLOSING + FAILED.format(rank=2)
    assert blamed(of_text(tmp_path, first + again + last + REPORT.format(rank=2))) == {2}
    assert blamed(of_text(tmp_path, first + REPORT.format(rank=1))) == {1}


def test_dated_words_of_an_earlier_attempt_count_in_no_file(tmp_path):
    (tmp_path / "launcher.log").write_text(FAILED.format(rank=1) + "2026-11-23 21:00:22 step 0\n")
    (tmp_path / "rank_1.log").write_text("2026-11-23 21:00:16 step 3\n" + raised("KeyError: 'a'"))
    os.utime(tmp_path / "launcher.log", (1795470000, 1795470000))
    evidence = read(tmp_path)
    assert evidence.log == ()


@pytest.mark.parametrize(
    ("lines", "rise"),
    [
        (["{} step 1/99", "{} step 2/99", "{} step 5/99"], (1, 5)),
        (["{} | Iteration: 10", "{} | Iteration: 20", "{} | Iteration: 30"], (10, 30)),
        (['{} {{"global_step": 7}}', '{} {{"global_step": 8}}', '{} {{"global_step": 9}}'], (7, 9)),
        (["{} step 1", "{} step 2"], (1, 1)),  # too few
        (["{} step 9", "{} step 9", "{} step 9"], (9, 9)),
        (["{} step 7", "{} step 8", "{} step 9", "{} step 0"], (0, 0)),  # begun anew
        (["{} footstep 1", "{} footstep 2", "{} footstep 3"], None),
        (["step 1", "step 2", "step 3"], None),
    ],
)
def test_steps_in_a_log_are_progress_with_the_times_of_their_lines(tmp_path, lines, rise):
    text = "".join(
        line.format(f"2026-11-23 21:00:{5 * place:02}") + "\n" for place, line in enumerate(lines)
    )
    told = of_text(tmp_path, text).progress
    assert [(step.before, step.after) for step in told] == ([rise] if rise else [])
    if rise and rise[0] < rise[1]:
        assert (told[0].until - told[0].since, told[0].vouches_s) == (10.0, 15.0)


@pytest.mark.parametrize(
    "say",
    [
        "Schritt {} von 99: Verlust 2,1",
        "étape {}/99 perte 2.1",
        "paso {} pérdida 2.1",
        "passo {}: perda 2.1",
        "Шаг {} потери 2.1",
        "ステップ {} 損失 2.1",
        "第 {} 步 损失 2.1",
        "第{}步",
        "步数:{}",
        "| num_updates={}, lr=0.1",
    ],
)
def test_steps_are_counted_in_the_words_of_the_site(say, tmp_path):
    (progress,) = of_text(tmp_path, dated_steps(range(5), say)).progress
    assert (progress.before, progress.after) == (0, 4)


@pytest.mark.parametrize("say", ["第 {} 轮", "Fußstapfen {}", "footsteps_{}x", "compass {}"])
def test_other_words_with_numbers_are_no_steps(say, tmp_path):
    assert of_text(tmp_path, dated_steps(range(5), say)).progress == ()


@pytest.mark.parametrize(
    "beginning",
    [
        "INFO 05-01 13:{:02}:00 [trainer.py:12] ",
        "(Worker pid=7, ip=10.0.0.1) INFO 05-01 13:{:02}:00.250 [trainer.py:12] ",
        "May  1 13:{:02}:00.250 n1 python[7]: ",
    ],
)
def test_a_label_that_is_split_off_still_dates_its_line(beginning, tmp_path):
    text = "".join(f"{beginning.format(at)}step {at}\n" for at in range(5))
    (tmp_path / "train.log").write_text(text)
    os.utime(tmp_path / "train.log", (END, END))
    (progress,) = read(tmp_path / "train.log").progress
    assert (progress.after, progress.until - progress.since) == (4, 240.0)


def paced(lengths_s, *, pause_s=0.0):
    """Steps of these lengths up to the end, in whole seconds, with a pause after each hundred."""
    at, lines = END, []
    for number, length_s in reversed(list(enumerate(lengths_s))):
        lines.append(f"{datetime.fromtimestamp(int(at), UTC):%Y-%m-%d %H:%M:%S} step {number}")
        at -= length_s + (pause_s if number % 100 == 0 else 0.0)
    return "\n".join(reversed(lines)) + "\n"


@pytest.mark.parametrize(
    ("lengths_s", "pause_s", "later_s", "words"),
    [
        ([2] * 300 + [7] * 90, 0, 1, "steps follow each other 3.5 times slower"),
        ([2] * 300 + [7] * 90, 10, 1, "steps follow each other 2.8 times slower"),
        ([2] * 300 + [7] * 90, 0, 900, None),  # it stands still now
        ([7] * 90 + [2] * 300, 0, 1, None),
        ([2] * 390, 90, 1, None),
        ([2] * 300 + [2.5] * 90, 0, 1, None),
        ([2] * 380 + [7] * 10, 0, 1, None),  # not for long
        ([0.2] * 300 + [0.7] * 90, 0, 0.5, None),  # too short for stamps of whole seconds
        ([2] * 20 + [7] * 10, 0, 1, None),  # too few
    ],
)
def test_a_job_whose_steps_take_longer_for_good_is_slow_and_no_rank_is_named(
    lengths_s, pause_s, later_s, words, tmp_path
):
    (tmp_path / "rank_0.log").write_text(paced(lengths_s, pause_s=pause_s))
    os.utime(tmp_path / "rank_0.log", (END, END))
    evidence = replace(read(tmp_path), at=END + later_s)
    facts = reason(evidence, slow.RULES).facts
    assert [(fact.kind, fact.whom) for fact in facts] == (
        [(FactKind.SLOWED, Whom())] if words else []
    )
    assert not words or facts[0].evidence.startswith(words)


def test_the_rank_that_stopped_counting_gives_the_progress_of_the_job(tmp_path):
    for rank, seconds in ((0, (1, 2, 3)), (1, (1, 2, 40))):
        lines = [f"2026-11-23 21:00:{at:02} step {at}\n" for at in seconds]
        (tmp_path / f"rank_{rank}.log").write_text("".join(lines))
    (progress,) = read(tmp_path).progress
    assert progress.after == 3


def test_reports_of_the_scheduler_about_tasks_and_nodes_are_taken_as_facts(tmp_path):
    file = tmp_path / "slurm-17.out"
    file.write_text(
        "srun: error: n1: tasks 0-1,3: Out Of Memory\n2026-02-14T05:03:41 step 9\n"
        "srun: error: Node failure on n2\n"
    )
    ranks = RankMap(nodes={0: "n1", 1: "n1", 2: "n2", 3: "n1"}, addresses={"n1": "n1", "n2": "n2"})
    evidence = read_training(file, ranks, CLASSES)
    assert [(ended.rank, ended.signal) for ended in evidence.exits] == [(0, 9), (1, 9), (3, 9)]
    assert list(evidence.unreachable) == ["n2"]
    assert Collector.REACH in evidence.collectors


BEGAN = 1_790_000_000.0


def dated_steps(numbers, say="step {}", *, every_s=10.0):
    lines = (
        f"{datetime.fromtimestamp(BEGAN + every_s * n, UTC):%Y-%m-%d %H:%M:%S} {say.format(n)}"
        for n in numbers
    )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "say",
    [
        "heartbeat, step {}: no rank answers",
        "still waiting for rank 3, iteration {}",
        "watchdog iteration {}: no progress since step 7",
        "retry iteration {}: the store timed out",
        "poll step {}: 7 of 8 ranks ready",
        "health check step {} ok",
        "exporter: scrape step {} done",
    ],
)
def test_counts_while_a_job_waits_are_no_steps(say, tmp_path):
    steps = dated_steps(range(5))
    (progress,) = of_text(tmp_path, steps + dated_steps(range(5, 60), say)).progress
    assert (progress.after, progress.until) == (4, BEGAN + 40)


@pytest.mark.parametrize("gap_s", [60.0, 2000.0, 2200.0, 1e5])
def test_the_log_of_a_run_before_says_nothing_of_the_run_now(gap_s, tmp_path):
    """A rank may have ended as its job began, up to half an hour before the others notice."""
    before, now = tmp_path / "slurm-1.out", tmp_path / "slurm-2.out"
    before.write_text(raised("KeyError: 1", prefix="[rank2]: "))
    os.utime(before, (BEGAN - gap_s, BEGAN - gap_s))
    now.write_text(dated_steps(range(5)))
    evidence = read(tmp_path)
    assert bool(evidence.log) == (gap_s <= crash.WAITED_S + crash.AROUND_S)
    assert evidence.progress
    now.write_text("no time is in this file\n")
    os.utime(now, (BEGAN + 2e5, BEGAN + 2e5))
    assert not read(tmp_path).log  # it is more than a day younger


@pytest.mark.parametrize(("steps", "is_error"), [(700, False), (60, True), (0, True)])
def test_an_error_that_its_rank_outlived_ended_nothing(tmp_path, steps, is_error):
    """A few lines after it show nothing: a buffer is written when the process ends."""
    lines = [raised("OSError: retrying")]
    for step in range(steps):
        lines.append(f"2026-05-01 10:{step // 60:02}:{step % 60:02} step {step} {'loss ' * 18}\n")
    (tmp_path / "rank1.log").write_text("".join(lines))
    (event,) = read(tmp_path).log
    assert (event.gravity is Gravity.APPLICATION) == is_error


END = datetime(2026, 5, 1, 13, 20, tzinfo=UTC).timestamp()


def hours_of_steps(count=200, before=20):
    """Steps once a minute, of which some come before ten o'clock."""
    for step in range(-before, count):
        at = f"2026-05-01 {10 + step // 60:02}:{step % 60:02}:00"
        yield f"{at} iteration {500 + step:8d}/   90000 | {'loss ' * 18}\n"  # as Megatron's


def test_few_lines_show_that_a_rank_outlived_an_error_if_their_steps_took_hours(tmp_path):
    """16 KiB and more are in no buffer; a dated error needs a minute and ten steps."""
    early, late = "".join(hours_of_steps(0)), "".join(hours_of_steps(before=0))
    stamped = "2026-05-01 10:00:01,123 ERROR the shard cannot be read\n"
    few = late[: late.index("10:30")].rpartition("\n")[0]
    for name, text in {
        "rank0.log": early + raised("OSError: retrying") + late,
        "rank1.log": early + raised("OSError: retrying") + few,
        "rank2.log": early + stamped + raised("OSError: retrying") + few,
    }.items():
        (tmp_path / "job" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "job" / name).write_text(text)
        os.utime(tmp_path / "job" / name, times=(END, END))
    log = read(tmp_path / "job").log
    assert [(event.rank, event.gravity) for event in log] == [
        (0, Gravity.NOTE),
        (1, Gravity.APPLICATION),
        (2, Gravity.NOTE),
    ]


def test_an_error_in_a_file_that_was_written_long_before_the_last_steps_ended_nothing(tmp_path):
    """As of torchrun with a file for each stream: the error has no date of its own."""
    folder = tmp_path / "run_1/attempt_0/0"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("".join(hours_of_steps()))
    (folder / "stderr.log").write_text(raised("OSError: retrying"))
    os.utime(folder / "stdout.log", times=(END, END))
    for written_at, gravity in ((END - 7200, Gravity.NOTE), (END, Gravity.APPLICATION)):
        os.utime(folder / "stderr.log", times=(written_at, written_at))
        (event,) = read(tmp_path).log
        assert event.gravity is gravity


@pytest.mark.parametrize("level", ["INFO", "WARNING", "ERROR"])
@pytest.mark.parametrize("ago_s", [600, 14_400])
@pytest.mark.parametrize("rest", ["", "{at} process group has not been destroyed\n"])
def test_an_error_is_not_of_the_time_of_its_ranks_last_line_hours_before(
    level, ago_s, rest, tmp_path
):
    """As of ranks that write nothing from their start to their end: only rank 0 counts steps."""
    at = datetime.fromtimestamp(END, UTC)
    start = datetime.fromtimestamp(END - ago_s, UTC)
    steps = "".join(f"{datetime.fromtimestamp(END - n, UTC)} step {999 - n}\n" for n in range(400))
    (tmp_path / "rank_0.log").write_text("".join(reversed(steps.splitlines(keepends=True))))
    text = f"{start} {level} no tensorboard\n" + raised("KeyError: 1") + rest.format(at=at)
    (tmp_path / "rank_3.log").write_text(text)
    (tmp_path / "rank_1.log").write_text(
        f"{at} a:1:2 [3] NCCL WARN socketProgress: Connection closed by remote peer n2<0>\n"
    )
    for file in tmp_path.iterdir():
        os.utime(file, times=(END, END))
    evidence = read(tmp_path)
    (event,) = (event for event in evidence.log if event.rank == 3)
    assert (event.gravity, event.at, event.by) == (Gravity.APPLICATION, None, END)
    assert blamed(evidence) == {3}


def test_an_announced_error_is_outlived_if_others_write_on_in_its_file(tmp_path):
    start = datetime.fromtimestamp(END - 600, UTC)
    text = f"[rank1]: {start} ERROR sample 17\n" + raised("KeyError: 1", prefix="[rank1]: ")
    times = (datetime.fromtimestamp(END - 590 + 10 * step, UTC) for step in range(60))
    lines = (f"[rank0]: {at} step {step}\n" for step, at in enumerate(times))
    (tmp_path / "job.log").write_text(text + "".join(lines))
    os.utime(tmp_path / "job.log", times=(END, END))
    (event,) = read(tmp_path / "job.log").log
    assert event.gravity is Gravity.NOTE


@pytest.mark.parametrize(
    ("names", "node"),
    [
        (("n1/rank0.log", "n1/rank1.log", "n2/rank0.log", "n2/rank1.log"), "n2"),
        (("n1/rank0.log", "n1/rank1.log", "n1/rank2.log", "n1/rank3.log"), "n2"),
        (("slurm-71_0.out", "slurm-71_1.out", "slurm-71_2.out", "slurm-71_3.out"), "n2"),
        (("n1_0.out", "n1_1.out", "n2_2.out", "n2_3.out"), "n2"),
        (("slurm-71.out", "slurm-72.out", "slurm-73.out", "slurm-74.out"), ""),
    ],
)
def test_numbers_in_names_of_files_are_ranks_of_the_job_or_of_the_node(tmp_path, names, node):
    """The third file is of rank 2; as ranks of each node, collected on one, and as Slurm's."""
    for place, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(raised("KeyError: 1") if place == 2 else "step 1\n")
    (event,) = read(tmp_path).log
    assert (event.rank, event.node) == ((2, node) if node else (None, ""))


def test_a_number_that_is_in_several_folders_names_no_rank_but_its_folder(tmp_path):
    for place, name in enumerate(("a/r/attempt_0/0", "b/r/attempt_0/0", "b/r/attempt_0/1")):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "stderr.log").write_text(raised("KeyError: 1") if place == 1 else "go\n")
    (event,) = read(tmp_path, RankMap()).log
    assert (event.rank, event.node) == (None, "b")


def test_a_log_that_was_rotated_is_one_log(tmp_path):
    lines = [*hours_of_steps(0), *raised("OSError: retrying").splitlines(True), *hours_of_steps()]
    whole = tmp_path / "whole" / "rank_1.log"
    whole.parent.mkdir()
    whole.write_text("".join(lines))
    cut = tmp_path / "cut" / "rank_1.log"
    cut.parent.mkdir()
    for name, part in (("", lines[90:]), (".1", lines[21:90]), (".2", lines[:21])):
        cut.with_name(cut.name + name).write_text("".join(part))
    for log in (whole, cut):
        os.utime(log, (END, END))
    of_whole, of_parts = read(whole.parent), read(cut.parent)
    assert (of_parts.log, of_parts.progress) == (of_whole.log, of_whole.progress)
    assert [event.gravity for event in of_parts.log] == [Gravity.NOTE]


def test_steps_that_are_younger_than_their_file_show_no_progress(tmp_path):
    """Their clock is wrong: the job may have stopped when its file was last changed."""
    log = tmp_path / "rank_0.log"
    log.write_text("".join(hours_of_steps()))
    for changed_at, rises in ((END, True), (END - 7200, False)):
        os.utime(log, (changed_at, changed_at))
        (rise,) = read(tmp_path).progress
        assert (rise.after > rise.before) == rises


def test_an_error_before_steps_of_its_rank_is_blamed_only_if_something_ended(tmp_path):
    """The steps may have been in a buffer until the rank ended."""
    steps = "".join(f"step {step}\n" for step in range(20))
    (tmp_path / "rank_1.log").write_text(raised("OSError: retrying") + steps)
    assert blamed(read(tmp_path)) == set()
    (tmp_path / "rank_2.log").write_text(
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:71] Read error\n"
    )
    assert blamed(read(tmp_path)) == {1}
    (tmp_path / "rank_3.log").write_text(raised("KeyError: 1"))
    assert blamed(read(tmp_path)) == {3}


def test_a_traceback_among_many_others_has_the_date_of_the_line_before_it(tmp_path):
    lines = [f"[rank{rank}]: 2026-05-01 10:00:00 step 5 loss 2\n" for rank in range(4)]
    traces = [raised("KeyError: 1", prefix=f"[rank{k}]: ").splitlines() for k in range(4)]
    lines += [f"{line}\n" for of_all in zip(*traces, strict=True) for line in of_all]
    log = of_text(tmp_path, "".join(lines)).log
    at = datetime(2026, 5, 1, 10, tzinfo=UTC).timestamp()
    assert [event.at for event in log] == [at] * 4


def test_the_last_error_of_a_rank_counts_even_if_it_outlived_many(tmp_path):
    steps = "".join(f"2026-05-01 10:00:00 step {step} {'loss ' * 18}\n" for step in range(700))
    text = f"{raised('OSError: retrying')}{steps}" * 25
    (tmp_path / "rank1.log").write_text(text + raised("KeyError: 1"))
    log = read(tmp_path).log
    assert [event.text[:11] for event in log if event.gravity is Gravity.APPLICATION] == [
        "KeyError: 1"
    ]


def test_a_log_whose_clock_is_ahead_of_its_last_write_is_read(tmp_path):
    """Its times are those of a zone east of here."""
    log = tmp_path / "rank_2.log"
    log.write_text("2026-11-29 09:00:00 start\n" + raised("ValueError: bad"))
    at = datetime(2026, 11, 29, 1, 5, tzinfo=UTC).timestamp()
    os.utime(log, (at, at))
    assert [event.rank for event in read(tmp_path).log] == [2]


LAUNCHERS_LINES = (
    "srun: error: n3: tasks 1,3: Exited with exit code 7",
    "srun: error: Node failure on n2",
    "mpirun noticed that process rank 2 with PID 71 on node n2 exited on signal 9 (Killed).",
    "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
    "  Process name: [[5531,1],2]",
    "  Exit code:    17",
    "(worker pid=211, ip=10.0.0.2) loss 2 [repeated 7x across cluster]",
)


def test_lines_alike_but_for_digits_are_read_as_each_line_by_itself(tmp_path, monkeypatch):
    """Naive: all words and all classes are sought in each line."""
    rows = tuple(row for row in CLASSES.classes if row.mark and row.log == "training")

    def look_closely(self, line):
        return replace(find_shape(line, CLASSES), is_usual=False, rows=rows)

    texts = [row["line"] for row in yaml.safe_load(EXCERPTS.read_text())["training"]]
    void = (line_shapes.FAILED, line_shapes.RESTARTS)  # what stands before is of an earlier run
    texts = [text for text in texts if not any(words in text for words in void)]
    texts += ["Traceback (most recent call last):", "OSError: shard 7 of 12", "    main()"]
    texts += ["2026-11-29 01:02:03 step 7", "2026-11-29 01:02:43,5 iteration 12 retry 3"]
    prefixes = ("", "[rank{}]: ", "[rank{}]: ", "{}: ", "(W pid={}) ", "[0] [default{}]: ")
    for seed, (kinds, own) in enumerate([(texts, prefixes)] * 3 + [(LAUNCHERS_LINES, ("",))]):
        dice = random.Random(seed)
        lines = [dice.choice(own).format(dice.randrange(4)) + text for text in (*kinds, *kinds) * 2]
        dice.shuffle(lines)
        lines = [redraw_digits(line, dice) for line in lines]
        lines += [f"2026-11-29 02:00:{number:02} step {number}" for number in range(20)]
        lines += ["srun: error: n2: task 2: Killed", "RuntimeError: error code is 507035"]
        fast = of_text(tmp_path, "\n".join(lines))
        with monkeypatch.context() as patched:
            patched.setattr(LineShapes, "shape_of", look_closely)
            assert read(tmp_path / "train.log") == fast
        assert len(fast.log) > 20 or kinds == LAUNCHERS_LINES
        assert len(fast.exits) > 3 or kinds == texts
        assert fast.progress


def redraw_digits(line, dice):
    return re.sub(
        r"\d", lambda digit: digit[0] if dice.random() < 0.7 else dice.choice("123"), line
    )
