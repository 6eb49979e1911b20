"""The rank that failed is named and no other one, under any launcher and any labels of its
lines."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.config import configs
from anubis.core.diagnose.evidence import RankMap
from anubis.core.diagnose.facts import FactKind
from anubis.operations.diagnose import diagnose_job
from anubis.operations.requests import DiagnosisRequest
from anubis.readers.jobs.launcher_words import LauncherWords
from anubis.readers.jobs.training_logs import read_training
from anubis.report.diagnose import headline

HOSTS, PER = 3, 2
NODES = [f"gpu{host}" for host in range(HOSTS)]
RANKS = range(HOSTS * PER)
ADDRESSES = {f"10.0.0.{host}": node for host, node in enumerate(NODES)}
LABELS = {
    "srun -l": lambda rank: f"{rank}: ",
    "mpirun": lambda rank: f"[1,{rank}]<stderr>:",
    "mpiexec -l": lambda rank: f"[{rank}] ",
    "a program's own": lambda rank: f"Rank {rank}: ",
    "a program's, in brackets": lambda rank: f"[RANK {rank}] ",
    "docker compose": lambda rank: f"{NODES[rank // PER]}  | [default{rank % PER}]:",
    "kubectl": lambda rank: f"[pod/{NODES[rank // PER]}/pytorch] [default{rank % PER}]:",
    "prterun": lambda rank: f"[prterun-gpu0-77@1,{rank}]<stdout>: ",
    "pdsh": lambda rank: f"{NODES[rank // PER]}: [default{rank % PER}]:",
    "ray": lambda rank: f"(RayTrainWorker pid={90 + rank}, ip=10.0.0.{rank // PER}) ",
    "milabench": lambda rank: f"llm-nodes.{NODES[rank // PER]} [stderr] [rank{rank}]: ",
    "horovodrun": lambda rank: f"Fri Sep 25 16:52:53 2026[{rank}]<stderr>:",
    "mpirun, dated": lambda rank: f"2026-06-02T16:13:44.884Z: [1,{rank}]<stdout>:",
    "vllm": lambda rank: f"(VllmWorker TP{rank} pid=9) ERROR 09-05 21:05:38 [executor.py:596] ",
    "determined": lambda rank: f"<info>    [2026-12-07 10:43:01] 087c0ee7 [rank={rank}] || ",
    "syslog": lambda rank: f"Sep  5 21:05:38 {NODES[rank // PER]} train[9]: [rank{rank}]: ",
    "kubectl, with times": lambda rank: (
        f"[pod/{NODES[rank // PER]}/pytorch] 2026-09-05T21:05:38.123456789Z [default{rank % PER}]:"
    ),
    "docker compose, with times": lambda rank: (
        f"{NODES[rank // PER]}  | 2026-09-05T21:05:38.123456789Z [default{rank % PER}]:"
    ),
    "pdsh, of pods": lambda rank: (
        f"{NODES[rank // PER]}: 2026-09-05T21:05:38.123456789Z stdout F [rank{rank}]: "
    ),
    "syslog, precise": lambda rank: f"Sep  5 21:05:38.5 {NODES[rank // PER]} a[9]: [rank{rank}]: ",
    "journal": lambda rank: (
        f"2026-09-05T21:05:38.123456+02:00 {NODES[rank // PER]} train[9]: [rank{rank}]: "
    ),
    "ts": lambda rank: f"Sep 05 21:05:38 [rank{rank}]: ",
    "ts, by another format": lambda rank: f"[2026-09-05 21:05:38] [rank{rank}]:",
    "mpirun, with its own times": lambda rank: f"Fri Sep 25 16:52:53 2026[1,{rank}]<stderr>:",
    "lightning": lambda rank: f"[rank: {rank}] ",
}
WORKERS = [
    f"(TrainController pid=7) - (ip=10.0.0.{rank // PER}, pid={90 + rank}) world_rank={rank}"
    for rank in RANKS
]
RAISED = [
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 9, in step',
    "    return row['x']",
    "KeyError: 'x'",
]
CLOSED = "gpu9:7:8 [0] NCCL WARN socketProgress: Connection closed by remote peer {node}<3>"


def diagnosed(folder, lines):
    (folder / "job.out").write_text("\n".join(lines) + "\n")
    return diagnose_job(
        DiagnosisRequest(
            places={"logs": folder / "job.out"}, nodes=tuple(NODES), ranks_per_node=PER
        )
    )


def named(folder, lines):
    culprits = diagnosed(folder, lines).diagnosis.culprits
    return {(whom.rank, whom.node) for whom in culprits}


@pytest.mark.parametrize("launcher", LABELS)
@settings(max_examples=3)
@given(data=st.data())
def test_the_rank_that_raises_is_named_under_any_labels_of_launchers(
    launcher, data, tmp_path_factory
):
    bad = data.draw(st.sampled_from(RANKS))
    victims = data.draw(st.lists(st.sampled_from([r for r in RANKS if r != bad]), unique=True))
    texts = {rank: [CLOSED.format(node=NODES[bad // PER])] for rank in victims} | {bad: RAISED}
    lines = list(WORKERS) if launcher == "ray" else []
    lines += [f"{LABELS[launcher](rank)}ready" for rank in RANKS]
    lines += [f"{LABELS[launcher](rank)}{text}" for rank, said in texts.items() for text in said]
    if launcher == "ray":
        lines = [line for line in lines if "NCCL" not in line]
    assert named(tmp_path_factory.mktemp("job"), lines) == {(bad, NODES[bad // PER])}


ENDS = {
    "srun": "srun: error: {node}: task {rank}: Killed",
    "srun, with a code": "srun: error: {node}: task {rank}: Exited with exit code 1",
    "mpirun": "mpirun noticed that process rank {rank} with PID 0 on node {node} exited on signal 9"
    " (Killed).",
    "mpirun, with a code": "  Process name: [[58342,1],{rank}]\n  Exit code:    1",
}


def end_of(launcher, rank):
    return ENDS[launcher].format(node=NODES[rank // PER], rank=rank).splitlines()


def block(rank, *lines):
    """SGLang labels the first line of what a process writes."""
    return [f"[2026-03-09 00:57:15 TP{rank}] Scheduler hit an exception: {lines[0]}", *lines[1:]]


def test_a_traceback_belongs_to_the_rank_that_its_first_line_names_unless_two_are_mixed(tmp_path):
    assert named(tmp_path, ["ready", *block(3, *RAISED), "ready"]) == {(3, "gpu1")}
    mixed = [
        line for pair in zip(block(3, *RAISED), block(4, *RAISED), strict=True) for line in pair
    ]
    assert named(tmp_path, mixed) == set()


@pytest.mark.parametrize("name", ["Worker_DP1_TP3", "Worker_PP1_TP3"])
def test_a_number_within_one_of_several_copies_or_stages_of_a_model_is_no_rank(name, tmp_path):
    assert named(tmp_path, ["ready", *(f"({name} pid=9) {line}" for line in RAISED)]) == set()


LOST = {
    "Open MPI": "  Remote daemon: [[18619,0],2] on node {node}",
    "Ray": "(raylet) The node with node id: 4f and address: {node} and node name: {node} has been"
    " marked dead because the detector has missed too many heartbeats from it.",
    "Slurm": "srun: error: Node failure on {node}",
}


@pytest.mark.parametrize("launcher", LOST)
def test_a_node_that_its_launcher_lost_is_named(launcher, tmp_path):
    assert named(tmp_path, ["step 3", LOST[launcher].format(node="gpu2")]) == {(None, "gpu2")}


@pytest.mark.parametrize("label", ["[pod/worker-{}/pytorch] ", "worker-{}  | "])
def test_the_container_that_raises_is_named_if_no_rank_is_known(label, tmp_path):
    lines = [label.format(number) + "ready" for number in range(4)]
    lines += [label.format(2) + text for text in RAISED]
    (tmp_path / "job.out").write_text("\n".join(lines))
    view = diagnose_job(DiagnosisRequest(places={"logs": tmp_path / "job.out"}))
    assert [whom.node for whom in view.diagnosis.culprits] == ["worker-2"]


def test_words_of_srun_in_the_log_of_a_rank_are_not_about_that_rank(tmp_path):
    (tmp_path / "rank_0.log").write_text("ready\nsrun: error: gpu1: task 3: Out Of Memory\n")
    traces = {"places": {"logs": tmp_path}, "nodes": tuple(NODES), "ranks_per_node": PER}
    culprits = diagnose_job(DiagnosisRequest(**traces)).diagnosis.culprits
    assert [(whom.rank, whom.node) for whom in culprits] == [(3, "gpu1")]


AFTERWARDS = [
    "srun: Terminating StepId=4711.0",
    "slurmstepd: error: *** STEP 4711.0 ON gpu0 CANCELLED AT 2026-11-28T12:00:00 ***",
    *(f"srun: error: {node}: tasks {2 * n}-{2 * n + 1}: Killed" for n, node in enumerate(NODES)),
]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("launcher", ENDS)
def test_the_process_that_a_launcher_saw_end_first_is_named_and_none_that_it_ended(
    launcher, rank, tmp_path
):
    assert named(tmp_path, [*end_of(launcher, rank), *AFTERWARDS]) == {(rank, NODES[rank // PER])}


@pytest.mark.parametrize("launcher", ENDS)
@pytest.mark.parametrize("why", ["", " DUE TO PREEMPTION", " DUE TO TIME LIMIT"])
def test_a_cancelled_job_names_no_rank_for_any_ends_of_its_processes(why, launcher, tmp_path):
    cancelled = f"slurmstepd: error: *** STEP 1.0 ON gpu0 CANCELLED AT 2026-11-28T12:00:00{why} ***"
    view = diagnosed(tmp_path, ["step 3", cancelled, *end_of(launcher, 4), *AFTERWARDS])
    assert not view.diagnosis.culprits
    assert ("its user or its scheduler ended it" in headline(view)) is bool(why)


def test_a_task_that_is_a_torchrun_is_no_rank(tmp_path):
    lines = [
        "W1128 12:00:00.1 4 torch/distributed/elastic/agent/server/api.py:719] Received 15 death",
        "srun: error: gpu0: task 0: Killed",
    ]
    assert named(tmp_path, lines) == set()


def test_a_launchers_word_about_a_rank_that_reports_another_node_names_none(tmp_path):
    closed = "gpu1:7:8 [0] NCCL WARN socketProgress: Connection closed by remote peer gpu0<3>"
    lines = [closed, "srun: error: gpu1: task 2: Exited with exit code 1"]
    assert (2, "gpu1") not in named(tmp_path, lines)


def test_a_launchers_word_about_an_error_that_several_ranks_wrote_names_none(tmp_path):
    ended = end_of("srun, with a code", 4)
    assert named(tmp_path, [*RAISED, *ended]) == {(4, "gpu2")}
    assert named(tmp_path, [*RAISED, *RAISED, *ended]) == set()


def test_an_error_that_ray_quotes_for_several_ranks_belongs_to_all_of_them(tmp_path):
    every = ",".join(map(str, RANKS))
    quoted = ["Training failed due to worker errors:", f"[Rank {every} Error Snippet]:", *RAISED]
    file = tmp_path / "ray.out"
    file.write_text("\n".join([*WORKERS, *quoted]) + "\n")
    ranks = RankMap(nodes={rank: NODES[rank // PER] for rank in RANKS}, addresses=ADDRESSES)
    evidence = read_training(file, ranks, configs.error_classes())
    assert {event.rank for event in evidence.log} == {*RANKS}
    of_one = [f"{LABELS['ray'](0)}{line}" for line in RAISED]
    again = [f"{LABELS['ray'](3)}KeyError: 'x' [repeated 5x across cluster]"]
    file.write_text("\n".join([*WORKERS, *of_one, *again]) + "\n")
    evidence = read_training(file, ranks, configs.error_classes())
    assert {event.rank for event in evidence.log} <= {None}


def test_a_node_whose_ray_reports_the_death_of_another_process_is_not_named(tmp_path):
    died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    (tmp_path / "gpu0.log").write_text("\n".join([*RAISED[:-1], died]) + "\n")
    view = diagnose_job(
        DiagnosisRequest(places={"logs": tmp_path}, nodes=tuple(NODES), ranks_per_node=PER)
    )
    assert not view.diagnosis.culprits


def test_an_error_on_all_nodes_without_ranks_is_the_fault_of_the_job(tmp_path):
    for node in NODES:
        (tmp_path / f"{node}.log").write_text("\n".join(RAISED) + "\n")
    view = diagnose_job(
        DiagnosisRequest(places={"logs": tmp_path}, nodes=tuple(NODES), ranks_per_node=PER)
    )
    assert view.diagnosis.is_the_job_itself
    assert view.diagnosis.cause.kind is FactKind.SAME_ERROR


@given(st.lists(st.sampled_from([*AFTERWARDS, *(line for of in ENDS for line in end_of(of, 3))])))
def test_at_most_one_process_ended_first_and_none_after_a_cancellation(lines):
    words = LauncherWords(ranks=RankMap())
    at = datetime(2026, 11, 28, tzinfo=UTC).timestamp()
    for line in lines:
        words.hear(line, at)
    assert sum(end.is_first for end in words.exits) <= 1
    ending = next((n for n, line in enumerate(lines) if "Terminating" in line), len(lines))
    ending = min(ending, next((n for n, x in enumerate(lines) if "CANCELLED" in x), len(lines)))
    before = LauncherWords(ranks=RankMap())
    for line in lines[:ending]:
        before.hear(line, at)
    assert words.exits == before.exits
