"""Reports agree with the assessment: for programs, on a terminal, and in a page of its own."""

from __future__ import annotations

import io
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from anubis.core.judge.judgement import assess
from anubis.core.judge.learning import learn_criteria
from anubis.core.judge.units import units
from anubis.core.records import (
    Assessment,
    BenchmarkSpec,
    Campaign,
    CampaignKind,
    CriteriaSet,
    Criterion,
    CriterionKey,
    Ended,
    Execution,
    Judgement,
    MetricSpec,
    Node,
    NodeVerdict,
    PartVerdict,
    Phase,
    Plan,
    Policy,
    Provenance,
    Readings,
    Remedy,
    Result,
    Series,
    Step,
    Verdict,
    Workload,
)
from anubis.operations.history import view_of
from anubis.report import campaign_page, campaign_screen, jsonl
from anubis.report.campaign_page import facts, omissions, steps
from anubis.report.metric_rows import metric_rows
from anubis.report.view import CampaignView
from tests.patience import LIMIT_S

SKU = "h100-sxm-8x-ndr"
START = 1_795_000_000.0
GEMM = Workload.make("gemm", "1", {"size": 8192})
TRAIN = Workload.make("train_transformer", "2", {"steps": 200})
METRICS = (
    (GEMM, MetricSpec(name="tflops", unit="TFLOP/s", direction="higher"), "tflops:bf16", 640.0),
    (TRAIN, MetricSpec(name="step_s", unit="s", direction="lower"), "step_s", 0.21),
)


def fleet_view(
    names: list[str], *, defective: set[str], lost: set[str] = frozenset(), samples: int = 60
) -> CampaignView:
    """A fleet in which the defective are 20 % slow at gemm and the lost left nothing at all."""
    random = np.random.default_rng(7)
    executions, verdicts, nodes, references = [], [], [], {}
    for workload, _, metric, normal in METRICS:
        references[metric] = np.sort(normal * random.normal(1, 0.006, 400))
        for name in names:
            executions.append(
                _execution(workload, metric, normal, name, random, samples, defective, lost)
            )
            verdicts.append(_verdict(workload, metric, name, defective, lost))
    of_node = defaultdict(list)
    for verdict in verdicts:
        of_node[verdict.participants].append(verdict)
    for name in names:
        worst = min(of_node[name,], key=_badness)
        nodes.append(
            NodeVerdict(
                node=name,
                judgement=worst.judgement,
                code=worst.code,
                reason=worst.reason,
                cause=worst.cause,
            )
        )
    specs = tuple(_spec(workload, metric) for workload, metric, _, _ in METRICS)
    plan = Plan(
        suite="quick",
        nodes=tuple(Node(name=name, sku=SKU) for name in names),
        phases=(Phase(name="single-node micro", entries=()),),
        specs=specs,
    )
    criteria = tuple(
        Criterion(
            key=CriterionKey(sku=SKU, workload=workload, metric=metric, device_kind="cuda"),
            unit=declared.unit,
            direction=declared.direction,
            reference=references[metric],
            alpha=0.95,
            tail=0.05,
            units=len(names),
            healthy=len(names) - len(defective | lost),
            nodes=len(names),
            repeatability=0.9912 if metric != "step_s" else 0.9996,
        )
        for workload, declared, metric, _ in METRICS
    )
    provenance = Provenance(
        suite="quick", anubis="0.1.0", digest="3f9c1a77d2", created_at="2026-11-18T09:30:00Z"
    )
    return CampaignView(
        campaign=Campaign(
            id="c-20261118-0930",
            kind=CampaignKind.ACCEPT,
            plan=plan,
            policy=Policy(),
            executor="ray",
            created_at=START,
            finished_at=START + 754,
        ),
        executions=tuple(executions),
        assessment=Assessment(alone=tuple(sorted(verdicts, key=_badness)), nodes=tuple(nodes)),
        criteria=(CriteriaSet(sku=SKU, criteria=criteria, provenance=provenance),),
    )


def _badness(verdict):
    return [Judgement.DEFECTIVE, Judgement.UNKNOWN, Judgement.HEALTHY].index(verdict.judgement)


def _spec(workload, metric):
    return BenchmarkSpec(
        name=workload.benchmark,
        version=workload.version,
        summary="",
        stresses="",
        reveals="",
        level="micro",
        scope="node",
        duration_s=5,
        metrics=(metric,),
    )


def _execution(workload, metric, normal, name, random, samples, defective, lost):
    step = Step(
        id=f"{workload}/{name}",
        workload=workload,
        participants=(name,),
        phase=0,
        repeat=0,
        timeout_s=60,
        exclusive=True,
    )
    if name in lost:
        return Execution(
            step=step, attempt=1, ended=Ended.LOST, final=True, lost=(name,), reason="node is gone"
        )
    slow = 0.8 if name in defective and workload is GEMM else 1.0
    measured = normal * slow * random.normal(1, 0.003) * random.normal(1, 0.004, samples)
    return Execution(
        step=step,
        attempt=1,
        ended=Ended.MEASURED,
        final=True,
        started_at=START,
        duration_s=5.0,
        result=Result(
            series=Readings.pack([Series(metric=metric, device="cuda:0", samples=measured)]),
            environment={
                "hostname": name,
                "torch": "2.13.0",
                "driver": "570.86" if name in defective else "570.124",
                "gpu": {"name": "NVIDIA H100 80GB HBM3", "count": 8},
            },
        ),
    )


def _verdict(workload, metric, name, defective, lost):
    about = {
        "participants": (name,),
        "benchmark": workload.benchmark,
        "parameters": workload.parameters,
    }
    if name in lost:
        return Verdict(
            **about,
            judgement=Judgement.UNKNOWN,
            code="NODE-LOST",
            reason=f"lost while {workload} ran: no answer for 12 s",
            cause="lost during the campaign",
        )
    about |= {"metric": metric, "device": "cuda:0", "alpha": 0.95}
    if name in defective and workload is GEMM:
        return Verdict(
            **about,
            judgement=Judgement.DEFECTIVE,
            code="GEMM.TFLOPS.BF16",
            similarity=0.801,
            reason=f"{workload} {metric} on cuda:0: similarity 0.801 is not above alpha 0.950",
            cause=f"{metric} slower than normal",
        )
    return Verdict(
        **about,
        judgement=Judgement.HEALTHY,
        code="OK",
        similarity=0.9918,
        reason="every metric meets its criterion",
    )


def small_view() -> CampaignView:
    return fleet_view(["n01", "n02", "n03", "n04"], defective={"n03"}, lost={"n02"})


def large_view(nodes: int = 3000) -> CampaignView:
    names = [f"rack{i // 36:02d}-n{i % 36:02d}" for i in range(nodes)]
    return fleet_view(names, defective=set(names[7::101]), lost=set(names[11::450]), samples=12)


def test_nodes_with_the_same_fault_are_one_group_worst_and_largest_first():
    groups = large_view().causes
    assert [(group.code, len(group.nodes)) for group in groups] == [
        ("GEMM.TFLOPS.BF16", len(range(7, 3000, 101))),
        ("NODE-LOST", len(range(11, 3000, 450))),
    ]
    text = shown(large_view())
    assert "30      ✗ tflops:bf16 slower than normal" in text
    assert "7       ? lost during the campaign" in text
    assert "what is wrong with them" not in shown(small_view())


# --- for programs --------------------------------------------------------------------------


def test_every_verdict_is_one_json_object_and_the_last_line_sums_them_up():
    view = small_view()
    *verdicts, summary = [json.loads(line) for line in jsonl.lines(view)]

    assert len(verdicts) == len(view.assessment) == 8
    assert {v["type"] for v in verdicts} == {"verdict"}
    assert verdicts[0] == {
        "type": "verdict",
        "schema": "anubis.verdict/1",
        "node": "n03",
        "participants": ["n03"],
        "device": "cuda:0",
        "benchmark": "gemm",
        "metric": "tflops:bf16",
        "verdict": "defective",
        "code": "GEMM.TFLOPS.BF16",
        "similarity": 0.801,
        "alpha": 0.95,
        "reason": "gemm@1 tflops:bf16 on cuda:0: similarity 0.801 is not above alpha 0.950",
        "cause": "tflops:bf16 slower than normal",
        "action": None,
    }
    assert summary == {
        "type": "summary",
        "schema": "anubis.summary/1",
        "campaign": "c-20261118-0930",
        "cluster": "unnamed",
        "judgement": "defective",
        "headline": "2 healthy · 1 defective · 1 unknown",
        "healthy": ["n01", "n04"],
        "defective": ["n03"],
        "unknown": ["n02"],
        "not_applicable": [],
        "defective_parts": [],
        "unknown_parts": [],
        "causes": [
            {
                "judgement": "defective",
                "code": "GEMM.TFLOPS.BF16",
                "cause": "tflops:bf16 slower than normal",
                "nodes": ["n03"],
            },
            {
                "judgement": "unknown",
                "code": "NODE-LOST",
                "cause": "lost during the campaign",
                "nodes": ["n02"],
            },
        ],
        "caveat": "nothing was measured again, so a run that is slow by chance looks like a slow"
        " node",
        "duration_s": 754.0,
    }


def test_a_group_is_named_by_its_members_and_absent_values_are_null():
    group = Verdict(
        participants=("a", "b"),
        benchmark="collective",
        judgement=Judgement.NOT_APPLICABLE,
        code="NOT-APPLICABLE",
        reason="needs nccl",
        similarity=float("nan"),
    )
    view = replace(small_view(), assessment=Assessment(alone=(group,), nodes=()))
    first = next(jsonl.lines(view))
    assert "NaN" not in first
    document = json.loads(first)
    assert document["node"] == "a,b"
    assert document["verdict"] == "not-applicable"
    assert [document[key] for key in ("device", "metric", "similarity", "alpha")] == [None] * 4


def test_a_path_is_one_part_in_json_with_its_further_ends_side_by_side():
    path = PartVerdict(
        nodes=("n1", "n2", "n3"),
        benchmarks=("ring",),
        subject="path between n1, n2 and n3",
        judgement=Judgement.DEFECTIVE,
        code="NETWORK.PATH",
        reason="ring: slow",
    )
    view = replace(small_view(), assessment=Assessment(alone=(), nodes=(), parts=(path,)))
    part, summary = map(json.loads, jsonl.lines(view))
    assert part["parts"] == [{"kind": "path", "name": "n1", "other": "n2,n3"}]
    assert part["code"] == "NETWORK.PATH"
    assert summary["defective_parts"] == ["path between n1, n2 and n3"]


def test_a_page_that_names_two_of_four_parts_says_that_there_are_more():
    pairs = [("n1", "n2"), ("n3", "n4"), ("n5", "n6"), ("n7", "n8")]
    paths = tuple(
        PartVerdict(
            nodes=pair,
            benchmarks=("ring",),
            subject=f"path between {pair[0]} and {pair[1]}",
            judgement=Judgement.DEFECTIVE,
            code="NETWORK.PATH",
            reason="ring: slow",
        )
        for pair in pairs
    )
    for parts, more in ((paths, True), (paths[:2], False)):
        assessment = Assessment(alone=(), nodes=(), parts=parts)
        page = campaign_page.render(replace(small_view(), assessment=assessment))
        head = page[page.index("<h1") : page.index("</h1>")]
        assert [path.subject in head for path in paths] == [True, True, False, False]
        assert ("and 2 more defective" in head) is more


def test_a_campaign_that_was_cut_short_lasted_until_its_last_execution_ended():
    view = small_view()
    late = replace(view.executions[0], started_at=START + 90, duration_s=10.0)
    unfinished = replace(view.campaign, finished_at=None)
    assert replace(view, campaign=unfinished, executions=(late,)).duration_s == 100.0


# --- the numbers behind tables and plots ---------------------------------------------------


def test_the_median_of_the_healthy_leaves_the_defective_and_the_lost_out():
    rows = {row.key.metric: row for row in metric_rows(small_view())}
    gemm = rows["tflops:bf16"]
    healthy = [u.samples for u in gemm.measured if u.participants[0] in {"n01", "n04"}]
    assert gemm.median_of_healthy == np.median([np.median(s) for s in healthy])
    assert (gemm.defective, gemm.judged, gemm.unit) == (1, 3, "TFLOP/s")
    assert rows["step_s"].defective == 0


def test_repeats_of_one_device_are_pooled_and_a_missing_criterion_is_stated():
    view = small_view()
    again = replace(view.executions[0], step=replace(view.executions[0].step, id="again", repeat=1))
    rows = metric_rows(replace(view, executions=(*view.executions, again), criteria=()))
    gemm = next(row for row in rows if row.key.metric == "tflops:bf16")
    assert [len(unit.samples) for unit in gemm.measured] == [120, 60, 60]
    assert gemm.refusal == "no criterion to judge it by"
    assert (gemm.unit, gemm.direction) == ("TFLOP/s", "higher")


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 1000])
def test_a_curve_keeps_both_ends_and_its_corners_are_on_the_distribution(count):
    samples = np.sort(np.random.default_rng(count).random(count))
    corners = steps(samples)
    assert len(corners) == 1 + 2 * min(count, 32)
    assert (corners[0], corners[-1]) == ((samples[0], 0.0), (samples[-1], 1.0))
    for sample, level in corners[2::2]:
        assert level == pytest.approx(np.mean(samples <= sample))


def test_a_retried_failure_is_listed_by_its_last_attempt_only():
    first = replace(small_view().executions[0], ended=Ended.FAILED, final=False, reason="no route")
    last = replace(first, attempt=2, final=True, reason="still no route")
    assert [o.reason for o in omissions((first, last))] == ["still no route"]


def test_a_loss_is_listed_for_the_lost_node_and_not_for_its_partners():
    lost = next(e for e in small_view().executions if e.ended is Ended.LOST)
    group = replace(lost, step=replace(lost.step, participants=("n01", "n02", "n03")))
    assert [o.nodes for o in omissions((group,))] == [("n02",)]


def test_differing_facts_of_nodes_are_listed_and_names_of_the_node_are_not():
    told = {fact.name: dict(fact.values) for fact in facts(small_view().executions)}
    assert told["driver"] == {"570.124": ("n01", "n04"), "570.86": ("n03",)}
    assert told["gpu.count"] == {"8": ("n01", "n03", "n04")}
    assert "hostname" not in told


def test_the_verdicts_of_the_real_judge_find_their_curves():
    view = fleet_view([f"n{i}" for i in range(8)], defective={"n3"}, lost={"n6"})
    plan, policy = view.campaign.plan, view.campaign.policy
    measured = units(view.executions, plan)
    criteria = learn_criteria(measured, policy, suite="quick", anubis="0.1.0", created_at="today")
    judged = assess(measured, view.executions, plan, criteria, {"n6": "no answer for 12 s"})
    rows = metric_rows(replace(view, criteria=criteria, assessment=judged))
    assert {
        row.key.metric: [row.measured[i].participants for i in row.having(Judgement.DEFECTIVE)]
        for row in rows
    } == {"tflops:bf16": [("n3",)], "step_s": []}
    assert all(np.isfinite(row.similarities).all() for row in rows)


def test_a_verdict_on_one_node_of_a_group_is_not_counted_beside_the_group():
    view = small_view()
    blamed = replace(view.assessment.alone[0], participants=("n01",), device="")
    verdicts = (blamed, *view.assessment.alone)
    rows = metric_rows(replace(view, assessment=replace(view.assessment, alone=verdicts)))
    assert {row.key.metric: (row.defective, row.judged) for row in rows} == {
        "tflops:bf16": (1, 3),
        "step_s": (0, 3),
    }


# --- on a terminal -------------------------------------------------------------------------


def shown(view: CampaignView, **how) -> str:
    screen = io.StringIO()
    campaign_screen.render(view, Console(file=screen, width=80, **how))
    return screen.getvalue()


def test_the_terminal_says_the_headline_and_names_the_worst_node_first():
    text = shown(small_view())
    assert "2 healthy · 1 defective · 1 unknown" in text
    assert text.index("n03") < text.index("n02") < text.index("n01")
    assert "GEMM.TFLOPS.BF16" in text
    assert re.search(r"gemm *\n +tflops:bf16 +TFLOP/s +6\d\d\.\d +0\.991 +0\.950 +1/3", text)


def test_the_name_of_a_large_message_is_on_one_line(monkeypatch):
    name = "busbw_gbps:all_reduce/268435456"
    speed = MetricSpec(name="busbw_gbps", unit="TFLOP/s", direction="higher")
    monkeypatch.setitem(globals(), "METRICS", ((GEMM, speed, name, 640.0),))
    assert f"  {name} " in shown(small_view())


def test_only_metrics_with_defects_are_shown_of_thousands(monkeypatch):
    monkeypatch.setattr(campaign_screen, "METRICS", 1)
    text = shown(replace(small_view(), criteria=()))
    assert "tflops:bf16" in text
    assert "step_s" not in text
    assert "and 1 more (0 with defects, 1 not judged): --html has all" in text


def test_no_line_is_wider_than_the_terminal_and_a_pipe_gets_no_colour_codes():
    text = shown(large_view(200))
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" in shown(small_view(), force_terminal=True, color_system="standard")


def test_a_large_fleet_is_shown_by_its_unhealthy_nodes_and_a_count_of_the_rest():
    view = large_view()
    unhealthy = [n for n in view.assessment.nodes if n.judgement is not Judgement.HEALTHY]
    healthy = len(view.assessment.nodes) - len(unhealthy)
    text = shown(view)
    assert f"{healthy:,} healthy nodes are not listed" in text
    assert len(unhealthy) <= 40
    assert all(node.node in text for node in unhealthy)
    assert len(text.splitlines()) < 120


def test_a_fleet_with_more_bad_nodes_than_a_screen_counts_those_left_out():
    names = [f"n{i:03d}" for i in range(100)]
    text = shown(fleet_view(names, defective=set(names[:70])))
    assert "and 30 more that are not healthy" in text
    assert "30 healthy nodes are not listed" in text


def test_a_campaign_that_keeps_no_setting_is_shown_without_its_site():
    kept = small_view()
    campaign = replace(kept.campaign, kind=CampaignKind.ACCEPT, setting="")
    view = view_of(campaign, kept.executions, kept.assessment, kept.criteria)
    assert (view.site, view.by, view.reckoning) == ("", "", None)


def test_a_node_name_with_brackets_is_a_name_and_not_markup():
    assert "[red]n[01]" in shown(fleet_view(["[red]n[01]"], defective=set()))


def test_a_limit_that_is_too_tight_for_the_healthy_is_remarked_beneath_the_table():
    view = small_view()
    (known,) = view.criteria
    loose = replace(known.criteria[1], proposed_alpha=0.9164)
    view = replace(view, criteria=(replace(known, criteria=(known.criteria[0], loose)),))
    said = "healthy units vary widely: alpha 0.916 would suit them"
    assert said in shown(view)
    assert said in campaign_page.render(view)
    barely = replace(loose, proposed_alpha=0.94996)  # 0.950 would read as if nothing were wrong
    view = replace(view, criteria=(replace(known, criteria=(known.criteria[0], barely)),))
    assert "alpha 0.949 would suit them; at 0.95 some" in " ".join(shown(view).split())
    fits = replace(loose, proposed_alpha=0.9632)
    view = replace(view, criteria=(replace(known, criteria=(known.criteria[0], fits)),))
    assert "scatter" not in shown(view)


@pytest.mark.parametrize(
    ("stalls", "said"),
    [
        (0.25, "samples that are half as good show only if they are 25% of all"),
        (1.0, "samples that are half as good do not show"),
        (0.06, ""),
    ],
)
def test_a_metric_that_hides_stalls_says_from_which_on_they_show(stalls, said):
    view = small_view()
    (known,) = view.criteria
    limits = {"proposed_alpha": 0.96, "shows": 0.05, "repeats": 1}
    noisy = replace(known.criteria[1], **limits, stalls=stalls)
    view = replace(view, criteria=(replace(known, criteria=(known.criteria[0], noisy)),))
    assert said in " ".join(shown(view).split())
    assert ("half as good" in shown(view)) == bool(said)


def test_the_reason_of_a_refused_criterion_is_beneath_the_table():
    view = small_view()
    (known,) = view.criteria
    refused = replace(known.criteria[1], refusal="repeatability 0.91 is below alpha 0.95")
    view = replace(view, criteria=(replace(known, criteria=(known.criteria[0], refused)),))
    assert "step_s (1)" in shown(view)
    assert "(1) not judged: repeatability 0.91 is below alpha 0.95" in shown(view)
    assert "not judged: repeatability 0.91 is below alpha 0.95" in campaign_page.render(view)


def test_nothing_measured_at_all_still_makes_every_report():
    view = small_view()
    empty = replace(view, executions=(), criteria=(), assessment=Assessment(alone=(), nodes=()))
    assert "0 healthy · 0 defective · 0 unknown" in shown(empty)
    assert len(list(jsonl.lines(empty))) == 1
    assert "<svg" not in campaign_page.render(empty)


# --- as a page -----------------------------------------------------------------------------


class Markup(HTMLParser):
    """The tags of a page with their attributes, and the text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._code = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._code = tag in {"script", "style"}

    def handle_endtag(self, tag):
        self._code = self._code and tag not in {"script", "style"}

    def handle_data(self, data):
        if not self._code:
            self.text += data


def test_the_page_refers_to_nothing_outside_itself_and_forbids_it_too():
    page = campaign_page.render(small_view())
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    assert "url(" not in page
    tags = Markup(page).tags
    assert not [tag for tag, attributes in tags if "src" in attributes or tag == "link"]
    assert {a["href"] for _, a in tags if "href" in a} == {"#verdicts"}
    policy = next(a["content"] for _, a in tags if "http-equiv" in a)
    assert policy.startswith("default-src 'none';")


def test_a_hostile_name_or_reason_stays_text():
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'"
    view = fleet_view(["n01", hostile], defective={hostile})
    first, *rest = view.assessment.alone
    verdicts = (replace(first, reason=hostile, code=hostile), *rest)
    view = replace(view, assessment=replace(view.assessment, alone=verdicts))
    harmless, page = Markup(campaign_page.render(small_view())), Markup(campaign_page.render(view))
    count = [tag for tag, _ in page.tags].count
    assert count("script") == [tag for tag, _ in harmless.tags].count("script")
    assert count("img") == 0
    assert not [name for _, attributes in page.tags for name in attributes if name == "onerror"]
    assert hostile in page.text


def test_the_page_lists_every_node_with_its_verdict_and_omissions():
    page = Markup(campaign_page.render(small_view()))
    tiles = {a["data-node"]: a for _, a in page.tags if "data-node" in a}
    assert {name: tile["class"] for name, tile in tiles.items()} == {
        "n01": "t healthy",
        "n02": "t unknown",
        "n03": "t defective",
        "n04": "t healthy",
    }
    assert "similarity 0.801 is not above alpha" in tiles["n03"]["aria-label"]
    assert "node is gone" in page.text
    assert "570.86" in page.text


def test_three_thousand_nodes_fit_in_a_page_of_two_megabytes():
    page = campaign_page.render(large_view())
    assert page.count("data-node=") == 3000
    assert len(page) < 2e6


def test_importing_the_reports_loads_no_library_for_showing():
    code = (
        "import sys\n"
        "from anubis.report import campaign_page, campaign_screen, jsonl\n"
        "print([m for m in ('rich', 'jinja2') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_the_first_sentence_states_which_nodes_may_be_used():
    sentence = "2 of 4 nodes may go into service; 1 must stay out until repaired and tested again; "
    further = (
        "1 must be tested again before any use; the fabric between the nodes was not measured."
    )
    assert small_view().sentence == sentence + further
    assert fleet_view(["n01"], defective=set()).sentence == "1 of 1 node may go into service."
    assert sentence in Markup(campaign_page.render(small_view())).text


def test_an_instruction_is_listed_once_for_all_nodes_that_need_it():
    remedies = (
        Remedy(codes=("GEMM.*",), action="reset the GPU", evidence="its serial number"),
        Remedy(codes=("NODE-LOST",), action="look at the console"),
    )
    view = fleet_view(["n1", "n2", "n3", "n4"], defective={"n1", "n3"}, lost={"n4"})
    assert view.instructions == []
    view = replace(view, campaign=replace(view.campaign, policy=Policy(remedies=remedies)))
    shown_instructions = [
        (instruction.action, instruction.evidence, instruction.subjects)
        for instruction in view.instructions
    ]
    assert shown_instructions == [
        ("reset the GPU", ("its serial number",), ("n1", "n3")),
        ("look at the console", (), ("n4",)),
    ]
    assert re.search(r"reset the GPU +n\[1,3\]", shown(view))
    assert "its serial number" in Markup(campaign_page.render(view)).text
    verdicts = [json.loads(line) for line in jsonl.lines(view)]
    assert {v.get("action") for v in verdicts if v.get("node") == "n1"} == {"reset the GPU", None}


@pytest.mark.parametrize("kind", [CampaignKind.ACCEPT, CampaignKind.VALIDATE])
def test_an_acceptance_ends_with_the_list_of_healthy_nodes_and_room_to_sign(kind):
    view = replace(small_view(), site="Hall 3", by="ada@login1")
    page = Markup(
        campaign_page.render(replace(view, campaign=replace(view.campaign, kind=kind)))
    ).text
    assert "n[01,04]" in page
    assert all(fact in page for fact in ("Hall 3", "ada@login1", "3f9c1a77d2"))
    assert ("signature" in page) is (kind is CampaignKind.ACCEPT)
    assert ("may go into service" in page) is (kind is CampaignKind.ACCEPT)


def test_wide_tables_of_the_page_scroll_by_keyboard_and_have_names():
    tags = Markup(campaign_page.render(small_view())).tags
    wide = [attributes for _, attributes in tags if attributes.get("class") == "wide"]
    assert wide
    assert all(area["tabindex"] == "0" and area["aria-label"] for area in wide)


def test_every_page_gets_its_frame_and_its_scrolling_areas_from_one_place():
    templates = list(Path(campaign_page.__file__).with_name("templates").glob("*.j2"))
    assert {file.name for file in templates if "<!doctype" in file.read_text()} == {"page.html.j2"}
    scrolling = {file.name for file in templates if 'class="wide"' in file.read_text()}
    assert scrolling == {"table.html.j2"}


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("make", [small_view, pytest.param(large_view, marks=pytest.mark.long)])
def test_a_browser_lists_the_verdicts_without_complaint(make, tmp_path: Path):
    page = tmp_path / "report.html"
    page.write_text(campaign_page.render(make()), encoding="utf-8")
    run = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *("--disable-sync", "--enable-logging=stderr", "--virtual-time-budget=10000"),
            *("--window-size=1280,4000", f"--user-data-dir={tmp_path / 'profile'}"),
            *("--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    complaints = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    assert run.stdout.count('<td><span class="badge defective">✗ defective</span></td>') > 0


def test_the_check_of_pages_counts_sheets_in_english():
    script = Path(__file__).parents[2] / "scripts/studies/check-pages"
    describe_sheets = runpy.run_path(str(script))["describe_sheets"]
    assert describe_sheets([0.2]) == "1 sheet"
    assert describe_sheets([0.9, 0.625, 0.1]) == "3 sheets, the emptiest but the last 62% full"
