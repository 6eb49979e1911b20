"""The GPU or place of a host that computes other numbers: by majority and by swapping."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from anubis.core.judge.wrong_numbers import (
    Answers,
    GpuRun,
    Screens,
    chance_of_one,
    find_culprits,
    judge_wrong_numbers,
    name_wrong_bits,
    right_digests,
    runs_to_see_again,
)
from anubis.core.records import Ended, Execution, Judgement, Result, Step, Verdict, Workload

WORKLOAD = Workload.make("sdc_screen", "1", {})
OPERATIONS = ("fp32/nn", "bf16/nt", "exp")


def programs(rng, *, liar_is_place, always, nodes=3, gpus=4, places=2, runs=6):
    """Runs of all GPUs, each at a random place of its node, with one liar: the liar, and the
    answers of each run."""
    home = rng.choice([f"node{n}" for n in range(nodes)])
    liar = (
        home,
        f"numa{rng.randrange(places)}" if liar_is_place else f"cuda:{rng.randrange(gpus)}",
    )
    spoilt = rng.sample(OPERATIONS, rng.randint(1, 3))
    rate = 1.0 if always else rng.choice([0.2, 0.5, 0.8])
    answers = []
    for run in range(runs):
        for node in (f"node{n}" for n in range(nodes)):
            for gpu in (f"cuda:{g}" for g in range(gpus)):
                gpu_run = GpuRun(node, gpu, f"numa{rng.randrange(places)}", run)
                lies = liar == (node, gpu_run.place if liar_is_place else gpu)
                wrong = lies and rng.random() < rate
                digests = {
                    f"H100: {name}": f"{rng.random()}" if wrong and name in spoilt else name
                    for name in OPERATIONS
                }
                answers.append(Answers(gpu_run=gpu_run, workload=WORKLOAD, digests=digests))
    return liar, answers


def suspects_that_explain_all(wrong):
    """The naive truth of one liar: GPUs and places that took part in every wrong run."""
    gpus = set.intersection(*({(m.node, m.gpu)} for m in wrong))
    places = set.intersection(*({(m.node, m.place)} for m in wrong))
    return gpus | places


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("liar_is_place", [True, False])
def test_the_part_named_for_one_liar_is_the_only_one_that_explains_all(liar_is_place, always):
    rng = random.Random(f"{liar_is_place}{always}")
    named_of_knowable = [0, 0]
    for _ in range(150):
        liar, answers = programs(rng, liar_is_place=liar_is_place, always=always)
        right = right_digests(answers)
        assert right == {f"H100: {name}": name for name in OPERATIONS}
        wrong = [
            a.gpu_run for a in answers if any(right[q] != digest for q, digest in a.digests.items())
        ]
        culprits = find_culprits([a.gpu_run for a in answers], wrong)
        named = {(c.node, c.gpu or c.place) for c in culprits if not c.is_open}
        assert named <= {liar}
        assert {gpu_run for c in culprits for gpu_run in c.gpu_runs} == set(wrong)
        if wrong and suspects_that_explain_all(wrong) == {liar}:
            named_of_knowable[1] += 1
            named_of_knowable[0] += named == {liar}
    named, knowable = named_of_knowable
    assert knowable > 75
    assert named == knowable or (
        liar_is_place and not always
    )  # half of its GPUs must be seen there
    assert named > 0.5 * knowable


def test_two_sick_gpus_of_one_place_do_not_make_the_place_sick():
    met = [
        GpuRun("n", f"cuda:{g}", f"numa{(g // 4 + run) % 2}", run)
        for run in (0, 1)
        for g in range(8)
    ]
    wrong = [gpu_run for gpu_run in met if gpu_run.gpu in ("cuda:0", "cuda:1")]
    named = {(culprit.gpu, culprit.place) for culprit in find_culprits(met, wrong)}
    assert named == {("cuda:0", ""), ("cuda:1", "")}


def test_a_gpu_fed_from_only_one_place_cannot_be_told_from_that_place():
    met = [GpuRun("n", "cuda:0", "numa0", run) for run in range(4)]
    (culprit,) = find_culprits([*met, GpuRun("n", "cuda:1", "numa1", 0)], met)
    assert culprit.is_open


@pytest.mark.parametrize(
    ("digests", "right"),
    [
        (["a", "a", "b"], "a"),
        (["a", "b"], None),  # of two it is unknown which is right
        (["a", "a", "b", "b"], None),
        (["a", "a"], "nothing to compare"),
    ],
)
def test_the_right_digest_is_that_of_most_gpus_of_a_kind(digests, right):
    answers = [
        Answers(gpu_run=GpuRun("n", str(gpu), "p", 0), workload=WORKLOAD, digests={"q": digest})
        for gpu, digest in enumerate(digests)
    ]
    expected = {} if right == "nothing to compare" else {"q": right}
    assert right_digests(answers) == expected
    assert right_digests(answers * 3) == expected  # a GPU has one vote, however often it ran


def kernels_of(rng, nodes):
    """Digests of healthy nodes, some with other libraries than most, which nothing in `computed_by`
    names: the bits follow from the library."""
    other = rng.sample(range(nodes), rng.randint(0, nodes))
    return {f"n{n}": rng.choice(["b", "c"]) if n in other else "a" for n in range(nodes)}


def test_healthy_nodes_with_other_kernels_are_never_accused_and_a_liar_among_them_still_is():
    rng = random.Random(5)
    accused = seen = 0
    for turn in range(300):
        libraries, gpus = kernels_of(rng, rng.randint(1, 7)), rng.randint(1, 4)
        liar = (rng.choice([*libraries]), "cuda:0") if turn % 2 and gpus > 2 else None
        answers = [
            run_of(node, gpus=gpus, digest=library, liar=liar, run=run, place=f"numa{run % 2}")
            for node, library in libraries.items()
            for run in range(4)
        ]
        verdicts = judge_wrong_numbers(answers)
        named = {(v.participants[0], v.device) for v in verdicts if v.judgement == "defective"}
        assert named <= {liar}
        seen += liar is not None
        accused += len(named)
        most = max(map([*libraries.values()].count, libraries.values()))
        if not liar and most * 2 > len(libraries) and len(libraries) * gpus > 2:
            usual = max(libraries.values(), key=[*libraries.values()].count)
            unlike = {node for node, library in libraries.items() if library != usual}
            assert {v.participants[0] for v in verdicts} == unlike
    assert accused > seen / 2  # the others have no majority to be compared with


def test_an_error_as_frequent_as_before_is_seen_again_with_95_percent():
    """Of errors at a steady rate, k in n runs and none in m, all k fall into the first n by chance
    with (n / (n + m)) ** k."""
    for seen in (1, 2, 3, 8):
        for runs in (1, 4, 30):
            more = runs_to_see_again(seen, runs)
            assert (runs / (runs + more)) ** seen <= 0.05 + 1e-9
            assert (runs / (runs + more - 1)) ** seen > 0.05


def run_of(node, odd=(), place="numa0", kind="H100", gpus=2, digest="usual", liar=None, run=0):
    digests = {
        (gpu := f"cuda:{number}"): {
            "exp": f"odd{run}" if (node, gpu) == liar else "odd" if number in odd else digest
        }
        for number in range(gpus)
    }
    notes = {
        "digests": digests,
        "places": dict.fromkeys(digests, place),
        "computed_by": dict.fromkeys(digests, kind),
    }
    step = Step(
        id=f"{node} {place} {odd}",
        workload=WORKLOAD,
        participants=(node,),
        phase=0,
        repeat=1,
        timeout_s=9.0,
        exclusive=True,
    )
    result = Result(environment=notes)
    return Execution(step=step, attempt=1, ended=Ended.MEASURED, final=True, result=result)


WELL = [run_of("n0"), run_of("n1")]


@pytest.mark.parametrize(
    ("runs", "device", "judgement", "code", "words"),
    [
        (
            [run_of("n2", odd=[1]), run_of("n2", odd=[1], place="numa1")],
            "cuda:1",
            Judgement.DEFECTIVE,
            "SDC_SCREEN.DIGEST.GPU",
            "cuda:1 computes other numbers than most GPUs of its kind in 2 of 2 runs, at 2 places",
        ),
        (
            [run_of("n2", odd=[0, 1]), run_of("n2", place="numa1")],
            "node",
            Judgement.DEFECTIVE,
            "SDC_SCREEN.DIGEST.HOST",
            "processors or memory at numa0: 2 GPUs compute other numbers",
        ),
        (
            [run_of("n2", odd=[1]), run_of("n2", odd=[1])],
            "cuda:1",
            Judgement.DEFECTIVE,
            "SDC_SCREEN.DIGEST.GPU_OR_HOST",
            "GPUs of its kind in 2 of 2 runs; feed it from another NUMA node to see",
        ),
        (
            [run_of("n2", odd=[1]), run_of("n2")],
            "cuda:1",
            Judgement.UNKNOWN,
            "SEEN-ONCE",
            "in 1 of 2 runs; 38 more runs show it again with 95 %",
        ),
    ],
)
def test_a_verdict_about_wrong_numbers_has_the_part_the_counts_and_the_next_step(
    runs, device, judgement, code, words
):
    (verdict,) = judge_wrong_numbers([*WELL, *runs])
    assert (verdict.participants, verdict.device) == (("n2",), device)
    assert (verdict.judgement, verdict.code) == (judgement, code)
    assert words in verdict.reason


def test_gpus_of_another_kind_do_not_vote_and_without_a_majority_none_is_right():
    others = [run_of(node, odd=[0, 1], kind="H200") for node in ("n3", "n4")]
    assert judge_wrong_numbers([*WELL, *others]) == []
    split = judge_wrong_numbers([*WELL, run_of("n3", odd=[0, 1]), run_of("n4", odd=[0, 1])])
    assert {(v.participants[0], v.judgement, v.code) for v in split} == {
        (f"n{number}", Judgement.UNKNOWN, "NO-MAJORITY") for number in (0, 1, 3, 4)
    }


# --- what came once, beside the fleet ---------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "seconds", "of_others", "others_s", "gpus"),
    [(1, 30, 0, 210, 8), (2, 30, 0, 7170, 240), (3, 60, 5, 900, 16), (4, 600, 9, 600, 2)],
)
def test_the_chance_of_one_gpu_is_a_binomial_tail_times_the_gpus(
    times, seconds, of_others, others_s, gpus
):
    total, share = times + of_others, seconds / (seconds + others_s)
    tail = sum(
        math.comb(total, count) * share**count * (1 - share) ** (total - count)
        for count in range(times, total + 1)
    )
    found = chance_of_one(times, seconds, of_others, others_s, gpus)
    assert found == pytest.approx(min(1, gpus * tail))


def test_a_program_that_notes_a_billion_errors_ends_no_judgement():
    assert chance_of_one(10**9, 30.0, 10**9, 270.0, 10) == 0.0


@pytest.mark.parametrize(
    ("times", "of_others", "expected"),
    [
        (1, 0, "wrong (bits 0x8, tile 1,2, lane 5) once in 30 s, the others 0 in 270 s; it counts"),
        (3, 0, "3 times in 30 s, the others 0 in 270 s: too often for chance in 10 GPUs; it"),
        (2, 12, "2 times in 30 s, the others 12 in 270 s; it counts as gone after 570 s without"),
    ],
)
def test_an_error_that_came_once_is_stated_beside_those_of_the_other_gpus(
    times, of_others, expected
):
    place = {"bits": "0x8", "tile": [1, 2], "lane": 5, "returns": False}
    runs = [run_of(f"n{number}", gpus=1) for number in range(10)]
    for number, run in enumerate(runs):
        came = times if number == 0 else of_others if number == 1 else 0
        notes = {"screened_s": {"cuda:0": 30.0}, "came_once": {"cuda:0": came}}
        wrong = {"wrong": {"cuda:0": {"sort": [place]}}} if number == 0 else {}
        environment = {**run.result.environment, **notes, **wrong}
        runs[number] = replace(run, result=replace(run.result, environment=environment))
    verdict = Verdict(
        participants=("n0",),
        benchmark="sdc_screen",
        parameters="",
        metric="seen_once:sort",
        device="cuda:0",
        judgement=Judgement.DEFECTIVE,
        code="SDC_SCREEN.SEEN_ONCE.SORT",
        reason="1 above 0",
    )
    (told,) = name_wrong_bits([verdict], runs)
    assert expected in told.reason
    assert len(told.reason) <= 200
    earlier = [
        (
            "n0",
            {"screened_s": {"cuda:0": 60}, "came_once": {"cuda:0": 2}, "uuids": {"cuda:0": "a"}},
        ),
        ("n1", {"screened_s": {"cuda:0": 9_000}}),
    ]
    runs[0].result.environment["uuids"] = {"cuda:0": "a"}
    (told,) = name_wrong_bits([verdict], runs, Screens.from_notes(earlier))
    assert f"{times + 2} times in 90 s, the others {of_others} in 9270 s" in told.reason
    assert "too often for chance in 10 GPUs with earlier runs" in told.reason
    assert "counts as gone after 570 s" in told.reason  # of this campaign's own seconds
    assert len(told.reason) <= 200
    runs[0].result.environment["uuids"] = {"cuda:0": "of the GPU that replaced it"}
    (told,) = name_wrong_bits([verdict], runs, Screens.from_notes(earlier))
    often = f"{times} times" if times > 1 else "once"
    assert f"{often} in 30 s, the others {of_others} in 9270 s" in told.reason
    earlier[0][1]["uuids"]["cuda:0"] = "of the GPU that replaced it"  # at another place before
    earlier[0][1].update({fact: {"cuda:7": v["cuda:0"]} for fact, v in earlier[0][1].items()})
    (told,) = name_wrong_bits([verdict], runs, Screens.from_notes(earlier))
    assert f"{times + 2} times in 90 s" in told.reason
    del runs[0].result.environment["uuids"]
    runs[3].result.environment.update(
        screened_s={"cuda:0": "soon", "cuda:1": float("nan"), "cuda:2": -1.0},
        came_once={"cuda:0": 10**400, "cuda:1": None},
    )
    (told,) = name_wrong_bits([verdict], runs)
    assert told.reason.replace("240 s", "270 s").replace(" 9 GPUs", " 10 GPUs").find(expected) >= 0
