"""The ranks that make a job slow, by the times of its steps: on made traces, and on real ones."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anubis.core.diagnose import slow
from anubis.core.diagnose.evidence import (
    Collector,
    JobEvidence,
    ProcessState,
    Pulse,
    RankMap,
)
from anubis.core.diagnose.facts import FactKind, reason
from anubis.core.errors import EvidenceError
from anubis.readers.jobs import scheduling
from anubis.readers.jobs.kineto import parse_step_table, parse_trace, read_step_table, read_traces

HEADER = "dp_rank,stage,rank,step,optype,start_ts,duration"


def table(dp: int, pp: int, steps: int, slow_down: dict[tuple[int, int], float], seed: int) -> str:
    """Steps of pipelines side by side: the slowest stage of one holds up the whole of it, and the
    slowest pipeline all, at the reduction of gradients. The last stage always works more."""
    dice = random.Random(seed)
    lines = [HEADER]
    for step in range(steps):
        own = {
            (data, stage): (1.0 if stage < pp - 1 else 1.6)
            * slow_down.get((data, stage), 1.0)
            * dice.uniform(0.98, 1.02)
            for data in range(dp)
            for stage in range(pp)
        }
        ends = {data: max(own[data, stage] for stage in range(pp)) for data in range(dp)}
        for (data, stage), work in own.items():
            wait = ends[data] - work
            spans = (
                ("forward-recv", 0.0, wait),
                ("forward-compute", wait, work),
                ("grads-reduce-scatter", ends[data], max(ends.values()) - ends[data] + 0.1),
            )
            for name, start, duration in spans:
                rank = stage * dp + data
                lines.append(f"{data},{stage},{rank},{step},{name},{start},{duration}")
    return "\n".join(lines)


def named(evidence: JobEvidence, kind: FactKind = FactKind.SLOW_COMPUTE) -> list[int | None]:
    facts = reason(evidence, slow.RULES).facts
    return [fact.whom.rank for fact in facts if fact.kind is kind]


def windows(evidence: JobEvidence) -> Iterator[JobEvidence]:
    """Any 3 steps in a row, any 10, and all."""
    numbers = sorted({step.step for step in evidence.steps})
    for count in (3, 10, len(numbers)):
        for start in range(len(numbers) - count + 1):
            some = set(numbers[start : start + count])
            yield replace(
                evidence, steps=tuple(step for step in evidence.steps if step.step in some)
            )


@pytest.mark.parametrize("seed", range(6))
def test_a_worker_that_computes_slowly_is_named_and_its_pipeline_is_not(seed: int):
    dice = random.Random(seed)
    dp, pp = dice.choice(((4, 4), (2, 4), (8, 1), (4, 2)))
    data, stage = dice.randrange(dp), dice.randrange(pp)
    made = table(dp, pp, 4, {(data, stage): 2.0}, seed)
    assert named(parse_step_table(made, "made")) == [stage * dp + data], f"seed {seed}"


def test_a_stage_that_works_more_on_all_its_workers_is_no_fault():
    made = table(4, 4, 4, {(data, 1): 1.5 for data in range(4)}, seed=1)
    assert named(parse_step_table(made, "made")) == []


def test_less_than_a_fifth_more_work_is_no_fault():
    assert named(parse_step_table(table(4, 2, 4, {(0, 1): 1.12}, seed=1), "made")) == []


def test_two_steps_are_too_few_to_name_a_rank():
    assert named(parse_step_table(table(4, 2, 2, {(0, 1): 2.0}, seed=1), "made")) == []


def test_one_slow_step_of_five_is_no_fault():
    first, rest = table(4, 2, 1, {(0, 0): 3.0}, seed=1), table(4, 2, 5, {}, seed=2)
    later = [line for line in rest.splitlines()[1:] if line.split(",")[3] != "0"]
    assert named(parse_step_table("\n".join([first, *later]), "made")) == []


@pytest.mark.twin("test_a_worker_that_computes_slowly_is_named_and_its_pipeline_is_not")
@pytest.mark.parametrize(("trial", "ranks"), [("AR", [0]), ("ST", [])])
def test_exactly_the_slow_worker_of_real_traces_is_named_in_any_steps(
    real: Callable[[str], Path], trial: str, ranks: list[int]
):
    path = real(f"runtime/collectives/straggler-{trial}-first-steps.csv.gz")
    assert {tuple(named(window)) for window in windows(read_step_table(path))} == {tuple(ranks)}


def sound(dp: int, steps: int, seed: int, spread: float, untraced: float) -> str:
    """Ranks that work alike, but for chance. Rank 0 also does untraced work, such as writing its
    log, and all wait for it."""
    dice = random.Random(seed)
    lines = [HEADER]
    for step in range(steps):
        work = [dice.lognormvariate(0.0, spread) for _ in range(dp)]
        ready = [own + (untraced if rank == 0 else 0.0) for rank, own in enumerate(work)]
        for rank, own in enumerate(work):
            wait = max(ready) - ready[rank] + 0.05
            for name, start, took in (
                ("forward-compute", 0.0, own),
                ("grads-reduce-scatter", ready[rank], wait),
            ):
                lines.append(f"{rank},0,{rank},{step},{name},{start},{took}")
    return "\n".join(lines)


@pytest.mark.parametrize(("spread", "untraced"), [(0.02, 0.5), (0.1, 0.3), (0.3, 0.5)])
def test_a_sound_trace_names_no_rank_in_any_steps(spread: float, untraced: float):
    for seed, dp in enumerate((2, 3, 4, 8, 16, 32)):
        made = parse_step_table(sound(dp, 24, seed, spread, untraced), "made")
        assert {tuple(named(window)) for window in windows(made)} == {()}, f"seed {seed}, {dp}"


def test_a_trace_without_spans_of_work_names_no_rank_and_states_the_gap():
    rows = table(4, 1, 6, {(2, 0): 2.0}, seed=3).splitlines()
    made = parse_step_table("\n".join(row for row in rows if "compute" not in row), "made")
    assert named(made) == []
    assert "no spans of computation" in made.gaps[Collector.STEPS]


def kept_waiting(*shares: float | None, stages: dict[int, int] | None = None) -> JobEvidence:
    return JobEvidence(
        job="",
        at=0.0,
        collectors=frozenset({Collector.PROCESSES}),
        ranks=RankMap(stages=stages or {}),
        processes=tuple(
            ProcessState(rank=rank, pulse=Pulse.ANSWERS, waits=share)
            for rank, share in enumerate(shares)
        ),
    )


@pytest.mark.parametrize(
    ("shares", "ranks"),
    [
        pytest.param((0.07, 0.09, 0.69, 0.08), [2], id="as measured with a tenth of a processor"),
        pytest.param((0.5, 0.55, 0.95, 0.6), [], id="all wait"),
        pytest.param((0.62, 0.3, 0.3), [], id="as seen beside other load on two processors"),
        pytest.param((0.01, 0.02, 0.2), [], id="not for long"),
        pytest.param((0.9,), [], id="no peers"),
        pytest.param((None, 0.05, 0.9), [2], id="one that nobody looked at"),
        pytest.param((0.9, 0.05), [0], id="one peer"),
    ],
)
def test_a_rank_whose_program_waits_for_a_processor_is_named(
    shares: tuple[float | None, ...], ranks: list[int]
):
    assert named(kept_waiting(*shares)) == ranks


def test_a_rank_that_works_while_all_others_rest_is_not_short_of_processors():
    """As seen of a rank that wrote a checkpoint on a busy machine: the others wanted none."""
    seen = kept_waiting(0.36, 0.04, 0.04)
    resting = (replace(state, rests_s=27.0 if state.rank else 0.0) for state in seen.processes)
    assert named(replace(seen, processes=tuple(resting))) == []


def test_only_ranks_of_the_same_stage_are_peers_in_waiting():
    stages = {0: 0, 1: 0, 2: 1, 3: 1}
    assert named(kept_waiting(0.05, 0.06, 0.6, 0.62, stages=stages)) == []


def test_a_process_waits_as_long_as_its_threads_do_since_the_oldest_sample(monkeypatch):
    rows = iter([(1.0, 0.5, 9.0), (2.0, 0.6, 9.1), (4.0, 1.5, 14.0), (12.0, 2.5, 15.0)])
    clock = iter([100.0, 104.0, 110.0, 120.0])

    def scheduled(_):
        return scheduling._Scheduled(*row) if (row := next(rows, None)) else None

    monkeypatch.setattr(scheduling, "_scheduled", scheduled)
    monkeypatch.setattr(scheduling.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(scheduling, "_work_of", lambda _: None)
    watch = scheduling.ProcessorWatch()
    watch.sample({5: 1})
    watch.sample({5: 1})
    assert watch.share(5) is None  # 4 s are too few
    assert watch.waited_before(5, 80.0, 0.1) == pytest.approx(0.4 / 20)
    assert watch.waited_before(5, 95.0, 0.1) is None
    assert watch.waited_before(5, 0.0, 0.0) is None  # nothing tells when it joined
    watch.sample({5: 1})
    assert watch.share(5) == pytest.approx(0.3)  # 3 s of 10
    assert (watch.work_waits(5), watch.work_ran(5)) == pytest.approx((0.1, 0.5))
    watch.sample({5: 1})
    watch.sample({5: 1})  # it is gone
    assert watch.share(5) == pytest.approx(0.55)
    assert watch.share(6) is None


@pytest.mark.parametrize(("waited_s", "is_active"), [(60.0, True), (2.0, False)])
def test_a_program_that_wants_a_processor_and_gets_none_does_not_rest(waited_s, is_active):
    """As seen of a healthy job at a load of 197: it was told to hang."""
    before = scheduling._Work(at=0.0, ran_s=0.0, waited_s=0.0, sleeps=0, moved_bytes=0)
    after = replace(before, at=84.0, ran_s=0.1, waited_s=waited_s, sleeps=4)
    assert after.is_active_since(before) == is_active


def test_the_kernel_counts_for_each_thread_of_a_process_and_some_only_communicate():
    ready, done = threading.Barrier(3), threading.Event()

    def burn(name: str) -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        ready.wait()
        done.wait()

    for name in ("gloo_tcp_loop", "pt_autograd_0"):
        threading.Thread(target=burn, args=(name,)).start()
    ready.wait()

    def sums() -> tuple[float, float]:
        """Seconds that all threads waited, and that all but one ran, each read by itself."""
        rows = [
            ((task / "comm").read_text(), *map(int, (task / "schedstat").read_text().split()))
            for task in Path("/proc/self/task").iterdir()
        ]
        ran = sum(ran for name, ran, _, _ in rows if not name.startswith("gloo"))
        return sum(waited for _, _, waited, _ in rows) / 1e9, ran / 1e9

    before, counted, after = sums(), scheduling._scheduled(os.getpid()), sums()
    done.set()
    assert counted
    assert before[0] <= counted.waited_s <= after[0]
    assert before[1] <= counted.work_ran_s <= after[1]
    assert counted.work_waited_s <= counted.waited_s
    assert scheduling._scheduled(2**22 + 1) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEADER, "no steps"),
        (f"{HEADER}\n0,0,0,1,x,nan,1", 'start_ts is "nan"'),
        (f"{HEADER}\n0,0,0,1,x,1,-1", 'duration is "-1"'),
        (f"{HEADER}\n0,0,0,1,x,1,1e400", "expected seconds"),
        (f"{HEADER}\n0,0,-4,1,x,1,1", 'rank is "-4"'),
        (f"{HEADER}\n0,0,0,one,x,1,1", 'step is "one"'),
        (f"{HEADER}\n0,0", "line 2: rank"),
    ],
)
def test_a_table_that_is_none_is_refused_in_a_sentence(text: str, message: str):
    with pytest.raises(EvidenceError, match=message):
        parse_step_table(text, "steps.csv")


# --- traces of a profiler ------------------------------------------------------------------------


def trace(rank: int, work_us: float, step_us: float, name: str = "gloo:all_reduce") -> str:
    """Steps of work, and one collective in which the rank waits for the end of the step."""
    events: list[dict[str, object]] = [{"ph": "M", "name": "process_name"}, {"ph": "X", "ts": 1}]
    for number in range(4):
        start = number * step_us
        step = {"ph": "X", "name": f"ProfilerStep#{number}", "ts": start, "dur": step_us}
        wait = {"ph": "X", "name": name, "ts": start + work_us, "dur": step_us - work_us}
        events += [step, wait, {"ph": "X", "name": "aten::mm", "ts": start, "dur": work_us}]
    return json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events})


@pytest.mark.parametrize("name", ["gloo:all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"])
def test_profiles_of_ranks_name_the_slow_one(name: str, tmp_path: Path):
    for rank, work_us in enumerate((5e5, 5e5, 9e5, 5e5)):
        (tmp_path / f"rank{rank}.pt.trace.json").write_text(trace(rank, work_us, 1e6, name))
    assert named(read_traces(tmp_path)) == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[" * 5000 + "]" * 5000, "is no JSON"),
        ("[]", "no list of traceEvents"),
        ('{"traceEvents": []}', "states a rank"),
        ('{"traceEvents": [], "distributedInfo": {"rank": "0"}}', "states a rank"),
    ],
)
def test_a_profile_that_is_none_is_refused_in_a_sentence(text: str, message: str):
    with pytest.raises(EvidenceError, match=message):
        parse_trace(text, "trace")


def test_odd_events_of_a_profile_are_passed_over(tmp_path: Path):
    odd = [3, {"ph": "X"}, {"ph": "X", "name": 3}, {"ph": "X", "name": "ProfilerStep#1", "ts": "a"}]
    text = json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": odd})
    assert parse_trace(text, "trace").spans == {}
    with pytest.raises(EvidenceError, match="no traces"):
        read_traces(tmp_path)


def pipelined(rank: int, ranks: int, *, lists_groups: bool) -> str:
    """The second half of the ranks are a stage with more to do."""
    made = json.loads(trace(rank, 9e5 if 2 * rank >= ranks else 5e5, 1e6, "nccl:all_reduce"))
    made["traceEvents"].append({"ph": "X", "name": "nccl:recv 1<-0", "ts": 10, "dur": 5})
    half = ranks // 2
    pipeline = {"pg_desc": "mesh_pp", "pg_name": "7", "ranks": [rank % half, rank % half + half]}
    made["distributedInfo"]["pg_config"] = [pipeline] if lists_groups else []
    return json.dumps(made)


@pytest.mark.parametrize("lists_groups", [False, True])
def test_a_stage_that_has_more_to_do_is_not_slow(lists_groups: bool, tmp_path: Path):
    for rank in range(6):
        text = pipelined(rank, 6, lists_groups=lists_groups)
        (tmp_path / f"rank{rank}.json").write_text(text)
    evidence = read_traces(tmp_path)
    assert evidence.ranks.stages == (dict(enumerate([0, 0, 0, 1, 1, 1])) if lists_groups else {})
    assert named(evidence) == []
    why = evidence.gaps.get(Collector.STEPS, "")
    assert ("states no stages" in why) is not lists_groups


def test_half_of_the_ranks_are_not_slow(tmp_path: Path):
    for rank in range(4):
        (tmp_path / f"rank{rank}.json").write_text(trace(rank, 9e5 if rank > 1 else 5e5, 1e6))
    assert named(read_traces(tmp_path)) == []


DENSE = ("gemm_qkv", "gemm_out", "gemm_dgrad", "gemm_wgrad", "flash_fwd", "flash_bwd", "norm")
EXPERTS = ("grouped_gemm", "permute")
PERSISTENT = [132, 1, 1]  # the same grid, whatever the data
STEP_US = 7e4


def on_gpu(rank: int, changes: dict[str, tuple[float, int, float]], seed: int) -> str:
    """Four steps: kernels, each with its own factor, calls and size, and a reduction."""
    dice, events = random.Random(f"{seed} {rank}"), list[dict[str, object]]()
    for step in range(4):
        start = step * STEP_US
        whole = {"ph": "X", "name": f"ProfilerStep#{step}", "ts": start, "dur": STEP_US}
        at = start
        for name in (*DENSE, *EXPERTS):
            factor, calls, size = changes.get(name, (1.0, 1, 1.0))
            grid = PERSISTENT if "gemm" in name else [round(640 * size), 1, 1]
            for _ in range(calls):
                took = 5e3 * factor * size * dice.gauss(1, 0.02)
                kernel = {"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": took}
                events.append({**kernel, "args": {"grid": grid}})
                at += took
        reduction = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16"}
        events += [whole, {**reduction, "ts": at, "dur": start + 0.99 * STEP_US - at}]
    return json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events})


EVERY = (*DENSE, *EXPERTS)


@pytest.mark.parametrize(
    ("changes", "slow_ones", "maybe"),
    [
        pytest.param({}, [], [], id="all alike"),
        pytest.param(dict.fromkeys(EVERY, (1.2, 1, 1.0)), [2], [], id="a GPU that is slow"),
        pytest.param(dict.fromkeys(EVERY, (1.1, 1, 1.0)), [], [], id="a little slower than most"),
        pytest.param(dict.fromkeys(EVERY[:7], (1.25, 1, 1.0)), [2], [], id="most kernels are slow"),
        pytest.param(dict.fromkeys(DENSE[:2], (1.0, 3, 1.0)), [], [], id="more calls"),
        pytest.param(dict.fromkeys(EXPERTS, (2.5, 1, 1.0)), [], [2], id="popular experts"),
        pytest.param(dict.fromkeys(EVERY, (1.0, 1, 1.4)), [], [2], id="longer sequences"),
    ],
)
def test_kernels_show_whether_a_rank_is_slow_or_has_more_to_do(changes, slow_ones, maybe, tmp_path):
    for seed in range(3):
        for rank in range(6):
            text = on_gpu(rank, changes if rank == 2 else {}, seed)
            (tmp_path / f"rank{rank}.json").write_text(text)
        evidence = read_traces(tmp_path)
        assert named(evidence) == slow_ones, f"seed {seed}"
        assert named(evidence, FactKind.MAY_BE_SLOW) == maybe, f"seed {seed}"


def test_data_of_another_length_in_each_step_make_no_rank_slow(tmp_path):
    """Without grids, only the change from step to step shows it."""
    for seed in range(20):
        dice = random.Random(seed)
        for rank in range(8):
            made = json.loads(on_gpu(rank, {}, seed))
            sizes = [dice.uniform(0.6, 1.4) for _ in range(4)]
            for event in made["traceEvents"]:
                event.pop("args", None)
                if event["name"] in EVERY:
                    event["dur"] *= sizes[int(event["ts"] // STEP_US)]
            (tmp_path / f"rank{rank}.json").write_text(json.dumps(made))
        assert named(read_traces(tmp_path)) == [], f"seed {seed}"
