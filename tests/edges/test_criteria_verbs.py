"""`anubis criteria show` and `diff`, and learning from many campaigns or without some nodes."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from anubis.config import catalog
from anubis.core.records import Judgement, MetricAlpha, Verdict
from anubis.operations.yaml_edits import add_alphas, line_of
from anubis.store.campaigns import CAMPAIGNS
from anubis.store.history import History
from tests.edges.desk import NO_VERDICT, ROOT, Desk, Done
from tests.edges.stamps import stamp

pytestmark = pytest.mark.long

NODES = 8
SAMPLES = 16


def accept(desk: Desk, *words: str, **fleet: object) -> Done:
    cluster, suite = desk.fleet(**fleet), desk.suite(desk.flow(repeats=1))
    done = desk.ask("accept", "--json", "--cluster", cluster, "--suite", suite, *words)
    assert done.out, done.err
    return done


def learned(desk: Desk) -> Path:
    (file,) = (desk.home / "criteria" / "tiny").glob("*.json")
    return file


def changed(desk: Desk, name: str, **changes: object) -> str:
    """Criteria that were learned, with its one criterion changed; `scale` is for its reference."""
    document = json.loads(learned(desk).read_text())
    scale = float(str(changes.pop("scale", 1)))
    for each in document["criteria"]:
        each.update(changes)
        each["reference"] = [value * scale for value in each["reference"]]
    return str(desk.write(name, document))


def criteria_in(desk: Desk, folder: str) -> list[dict[str, object]]:
    return [
        each
        for file in (desk.folder / folder).rglob("*.json")
        for each in json.loads(file.read_text())["criteria"]
    ]


# --- show ----------------------------------------------------------------------------------


def test_criteria_show_lists_the_criteria_that_accept_learned(near):
    accept(near, slow_share=0.125)
    done = near.run("criteria", "show", "--json")
    (line,) = done.lines
    assert done.code == 0
    assert (line["benchmark"], line["metric"], line["unit"]) == ("flow", "speed", "m/s")
    assert (line["units"], line["healthy"], line["set_aside"]) == (NODES, NODES - 1, 1)
    assert line["refusal"] is None
    assert 0.99 < line["repeatability"] < 1

    table = near.run("criteria", "show")
    assert table.code == 0
    assert "flow speed" in table.out
    assert f"1/{NODES}" in table.out
    assert max(len(row) for row in table.out.splitlines()) <= 80


def test_show_puts_the_least_repeatable_first_and_names_the_refusal(near):
    accept(near)
    document = json.loads(learned(near).read_text())
    (one,) = document["criteria"]
    document["criteria"] = [
        one,
        {**one, "metric": "poor", "repeatability": 0.7, "refusal": "not repeatable enough"},
        {**one, "metric": "none", "repeatability": None},
    ]
    file = str(near.write("three.json", document))
    order = [line["metric"] for line in near.run("criteria", "show", file, "--json").lines]
    assert order == ["none", "poor", "speed"]
    table = near.run("criteria", "show", file).out
    assert "3 criteria, 1 of them refused" in table
    (note,) = re.findall(r"flow poor \((\d)\)", table)
    assert f"({note}) not used for judging: not repeatable enough" in table


def test_criteria_show_names_the_alpha_in_use_and_warns_of_a_loose_one(near):
    accept(near)
    for alpha, proposed, whose in (
        (0.95, 0.98, "policy"),
        (0.98, 0.98, "own"),
        (0.95, 0.9, "policy"),
        (0.95, None, "policy"),
    ):
        file = changed(near, "mine.json", alpha=alpha, proposed_alpha=proposed)
        (line,) = near.run("criteria", "show", file, "--json").lines
        assert (line["alpha"], line["proposed_alpha"]) == (alpha, proposed)
        assert line["alpha_applied"] == whose
        table = near.run("criteria", "show", file).out
        assert (f"{alpha:.3f} own " in table) == (whose == "own")
        assert ("more often" in table) == (proposed == 0.9)


def test_criteria_with_one_limit_each_judge(near):
    accept(near)
    file = changed(near, "old.json", tail=0.2)
    document = json.loads(Path(file).read_text())
    for criterion in document["criteria"]:
        for later in ("typical_alpha", "slow_steps", "stalls"):
            del criterion[later]
    near.write("old.json", document)
    (line,) = near.run("criteria", "show", file, "--json").lines
    assert (line["tail"], line["typical_alpha"], line["slow_steps"]) == (0.2, None, [])
    assert (
        near.run("criteria", "judge", "--criteria", file).code
        == near.run("criteria", "judge").code
        == 0
    )


def test_criteria_show_without_any_criteria_names_the_way_to_learn_them(near):
    done = near.run("criteria", "show")
    assert done.code == 2
    assert "learn them with anubis accept" in done.err


# --- diff ----------------------------------------------------------------------------------


def test_equal_criteria_change_no_verdict(near):
    accept(near)
    file = str(learned(near))
    done = near.run("criteria", "diff", file, file)
    assert (done.code, done.out) == (0, "nothing changed\n")
    (summary,) = near.run("criteria", "diff", file, file, "--json").lines
    assert (summary["criteria_moved"], summary["nodes_changed"]) == (0, 0)


def test_a_reference_that_rose_by_a_tenth_makes_all_but_the_lost_node_defective(near):
    accept(near, lost_share=0.125)
    higher = changed(near, "higher.json", scale=1.1)
    done = near.run("criteria", "diff", str(learned(near)), higher, "--json")
    assert done.code == 1
    (moved,) = [line for line in done.lines if line["type"] == "criterion-change"]
    before, after = moved["moved"]["median"]
    assert after / before == pytest.approx(1.1)
    assert moved["reference_similarity"] == pytest.approx(1 / 1.1, abs=0.005)
    nodes = [line for line in done.lines if line["type"] == "node-change"]
    assert [(n["before"], n["after"]) for n in nodes] == [("healthy", "defective")] * (NODES - 1)
    assert done.summary["nodes_changed"] == done.summary["verdicts_changed"] == NODES - 1

    table = near.run("criteria", "diff", str(learned(near)), higher)
    assert table.code == 1
    assert "+10.00%" in table.out
    assert "the verdicts of 7 nodes" in table.out
    assert max(len(row) for row in table.out.splitlines()) <= 80


def test_a_node_that_was_lost_after_its_last_step_is_no_healthy_one_before(near):
    campaign = accept(near).summary["campaign"]
    lost = Verdict(
        participants=("n1",),
        benchmark="",
        judgement=Judgement.UNKNOWN,
        code="NODE-LOST",
        reason="it no longer answers",
    )
    with History.open(f"sqlite:///{near.history}") as history:
        found, said = history.campaigns.get(campaign), history.assessments.find(campaign)
        told = replace(said, alone=(lost, *said.alone))
        history.assessments.conclude(campaign, told, found.criteria, finished_at=found.finished_at)
    higher = changed(near, "higher.json", scale=1.1)
    done = near.run("criteria", "diff", str(learned(near)), higher, "--json")
    before = {n["node"]: n["before"] for n in done.lines if n["type"] == "node-change"}
    assert before == {f"n{i}": "unknown" if i == 1 else "healthy" for i in range(1, NODES + 1)}


def test_the_campaign_that_is_judged_can_be_chosen(near):
    """In the first a node is 20 % slow; by a limit of 0.7 it no longer is."""
    first = accept(near, slow_share=0.125).summary["campaign"]
    second = accept(near).summary["campaign"]
    loose = changed(near, "loose.json", alpha=0.7)
    words = ("criteria", "diff", str(learned(near)), loose, "--json")
    assert near.run(*words).summary["nodes_changed"] == 0
    assert near.run(*words, "--campaign", second).summary["nodes_changed"] == 0
    (node,) = [
        line
        for line in near.run(*words, "--campaign", first).lines
        if line["type"] == "node-change"
    ]
    assert (node["before"], node["after"]) == ("defective", "healthy")


def test_a_newly_refused_criterion_makes_all_nodes_unknown(near):
    accept(near)
    refusing = changed(near, "refusing.json", refusal="not repeatable enough")
    done = near.run("criteria", "diff", str(learned(near)), refusing)
    assert done.code == 1
    assert re.search(r"refused +no +\(1\)", done.out)
    assert "(1) not repeatable enough" in done.out
    assert f"the verdicts of {NODES} nodes" in done.out


def test_criteria_can_be_compared_without_any_campaign(near):
    accept(near)
    other = changed(near, "other.json", units=9)
    near.history.unlink()
    done = near.run("criteria", "diff", str(learned(near)), other)
    assert done.code == 1
    assert "no campaign has finished yet" in done.err


@pytest.mark.parametrize("words", [("absent.json",), ("--campaign", "nope")])
def test_files_that_cannot_be_compared_are_an_error_and_no_difference(near, words):
    accept(near)
    file = str(learned(near))
    paths = (file,) if words[0] == "absent.json" else (file, file)
    done = near.run("criteria", "diff", *paths, *words)
    assert done.code in NO_VERDICT
    assert not done.out
    assert words[-1] in done.err


# --- learning from many --------------------------------------------------------------------


def test_since_pools_measurements_of_all_campaigns_of_the_suite(near):
    accept(near, seed=1)
    accept(near, seed=2)
    near.ask("accept", "--suite", near.suite(near.flow(), name="other.yaml"))
    accept(near, seed=3)
    assert near.run("criteria", "learn", "--out", "one").code == 0
    done = near.run("criteria", "learn", "--since", "2023-11-14", "--out", "pooled")
    assert done.code == 0
    assert "learning from 3 campaigns of suite tiny" in done.err
    ((one,), (pooled,)) = criteria_in(near, "one"), criteria_in(near, "pooled")
    assert one["units"] == pooled["units"] == NODES
    assert len(one["reference"]) == SAMPLES
    assert len(pooled["reference"]) == 3 * SAMPLES


def test_since_leaves_out_earlier_campaigns_and_former_entries_of_the_suite(near):
    accept(near, sku="old", nodes="m[1-8]")
    with closing(sqlite3.connect(near.history)) as raw, raw:
        raw.execute("UPDATE campaigns SET created_at = 1.7e9")  # 2023
        stamp(raw, CAMPAIGNS)
    assert near.ask("accept", "--suite", near.suite(near.flow())).code == 0  # another cluster
    for _ in range(2):
        accept(near, sku="new")
    assert (
        "from 2 campaigns"
        in near.run("criteria", "learn", "--since", "2024-01-01", "--out", "two").err
    )
    assert len(list((near.folder / "two").rglob("*.json"))) == 1, "the old kind is not in it"
    assert (
        "from 3 campaigns"
        in near.run("criteria", "learn", "--since", "2023-01-01", "--out", "all").err
    )
    assert len(list((near.folder / "all").rglob("*.json"))) == 2

    near.pace = near.write("another-pace", "50, 51, 49, 50")
    accept(near, sku="new")
    assert (
        "from 4 campaigns"
        in near.run("criteria", "learn", "--since", "2023-01-01", "--out", "now").err
    )
    (only,) = criteria_in(near, "now")
    assert only["parameters"] == {"pace": str(near.pace)}


def test_measurements_under_another_sku_are_left_out(near):
    accept(near, sku="before")
    accept(near, sku="now")
    done = near.run("criteria", "learn", "--since", "2023-01-01", "--out", "now")
    assert "n[1-8] had another sku before: measurements under that sku are left out" in done.err
    (only,) = criteria_in(near, "now")
    assert (only["units"], len(only["reference"])) == (NODES, SAMPLES)


def test_a_named_campaign_is_the_last_of_those_that_are_pooled(near):
    names = [accept(near, seed=seed).summary["campaign"] for seed in (1, 2, 3)]
    words = ("criteria", "learn", "--since", "2023-01-01", "--out", "some", "--campaign")
    said = near.run(*words, names[1]).err
    assert f"{names[0]}, {names[1]}" in said
    assert names[2] not in said


def test_a_campaign_that_was_cut_short_teaches_nothing(near):
    first = accept(near, seed=1).summary["campaign"]
    with History.open(f"sqlite:///{near.history}") as history:
        history.campaigns.begin(
            replace(history.campaigns.get(first), id="cut-short", finished_at=None)
        )
    accept(near, seed=2)
    said = near.run("criteria", "learn", "--since", "2023-01-01", "--out", "some").err
    assert "from 2 campaigns" in said
    assert "cut-short" not in said


def test_an_excluded_node_teaches_nothing(near):
    slow = accept(near, slow_share=0.125).summary["defective"][0]
    assert near.run("criteria", "learn", "--out", "all").code == 0
    assert near.run("criteria", "learn", "--exclude", slow, "--out", "rest").code == 0
    ((everyone,), (rest,)) = criteria_in(near, "all"), criteria_in(near, "rest")
    assert (everyone["units"], everyone["healthy"]) == (NODES, NODES - 1)
    assert (rest["units"], rest["healthy"]) == (NODES - 1, NODES - 1)


def test_impossible_sources_of_learning_are_one_clear_error(near):
    accept(near)
    for words, said in (
        (("--since", "tomorrow"), '"tomorrow" is no date: expected one like 2026-11-01'),
        (("--since", ""), "is no date"),
        (("--since", "2023-11-31"), "is no date"),
        (("--since", "2099-01-01"), "which is before --since 2099-01-01 00:00 UTC"),
        (("--exclude", "n[1-2],m1"), 'node "m1" is in none of the campaigns to learn from'),
        (("--exclude", "n[1"), "brackets do not match"),
        (("--exclude", "n[1-8]"), "nothing to learn from without the excluded nodes"),
    ):
        done = near.run("criteria", "learn", "--out", "none", *words)
        assert done.code in NO_VERDICT
        assert not done.out
        assert said in done.err
        assert done.err.count("\n") == 1
        assert not (near.folder / "none").exists()


def test_a_reason_that_many_metrics_share_is_shown_once(near):
    other = near.flow(repeats=1, parameters={"pace": str(near.write("other", "50, 51"))})
    suite = near.suite(near.flow(repeats=1), other)
    assert near.ask("accept", "--cluster", near.fleet(), "--suite", suite).code == 0
    done = near.run("criteria", "learn", "--out", "few", "--exclude", "n[3-8]")
    assert "2 criteria, 2 of them refused" in done.err
    assert done.err.count("learned from 2 of the 3 units it takes") == 1


def test_learning_sets_out_from_the_criteria_of_before(near):
    accept(near)
    words = ("criteria", "learn", "--out", "again", "--criteria")
    assert near.run(*words, str(learned(near))).code == 0
    assert (near.folder / "again" / "tiny" / learned(near).name).read_bytes() == learned(
        near
    ).read_bytes()
    done = near.run(*words, "gone.json")
    assert (done.code, done.out) == (64, "")
    assert 'cannot read criteria "gone.json"' in done.err


# --- where they lie ------------------------------------------------------------------------


def test_criteria_of_another_suite_replace_none(near):
    accept(near)
    assert near.run("criteria", "learn", "--out", "all").code == 0
    other = near.suite(near.flow(parameters={"pace": "another"}, repeats=1), name="other.yaml")
    assert near.ask("accept", "--cluster", near.fleet(), "--suite", other).code == 0
    assert near.run("criteria", "learn", "--out", "all").code == 0
    files = sorted(
        str(file.relative_to(near.folder)) for file in (near.folder / "all").rglob("*.*")
    )
    assert files == ["all/other/simulated.json", "all/tiny/simulated.json"]
    told = near.run("criteria", "show", "all", "--json").lines
    assert [line["suite"] for line in told] == ["other", "tiny"]
    assert near.run("criteria", "diff", "all", "all").code == 0
    assert near.run("criteria", "judge", "--criteria", "all").code == 0
    near.suite(near.flow(repeats=1), name="third.yaml")
    words = ("--cluster", near.fleet(), "--suite", "third.yaml", "--criteria", "all")
    refused = near.ask("validate", *words)
    assert refused.code == 64
    assert 'have none for suite "third", only for other, tiny' in " ".join(refused.err.split())


def test_criteria_in_the_working_folder_are_judged_by_until_this_home_has_its_own(near):
    accept(near)
    words = ("--cluster", near.fleet(), "--suite", str(near.folder / "tiny.yaml"))
    assert near.run("criteria", "learn").code == 0
    shutil.rmtree(near.home / "criteria")
    assert near.ask("validate", *words).code == 0
    (here,) = (near.folder / "criteria" / "tiny").glob("*.json")
    here.write_text(here.read_text().replace('"alpha": 0.95', '"alpha": 0.999999'))
    assert near.ask("validate", *words).code != 0
    accept(near)
    assert near.ask("validate", *words).code == 0


def test_the_simulated_fleet_can_be_validated_before_anything_was_learned(near):
    nodes = "node[0001-0003,0247]"
    done = near.run("validate", nodes, "--cluster", "simulated", "--json")
    assert done.code == 1, done.err
    bad = {(line["node"], line["reason"]) for line in done.verdicts if line["code"] != "OK"}
    assert bad == {("node0247", "7 of 8 GPUs are there")}  # as README shows it
    assert {verdict["verdict"] for verdict in done.verdicts} <= {"healthy", "defective"}


def test_criteria_for_other_kinds_of_nodes_are_not_enough_to_begin(near):
    cluster = near.fleet(sku="mine")
    done = near.run("validate", "--cluster", cluster, "--suite", "quick")
    assert (done.code, done.out) == (2, "")
    sentence = 'no criteria for sku "mine" in suite "quick" yet'
    assert sentence in " ".join(done.err.split())
    assert "anubis accept --suite quick" in " ".join(done.err.split())


def test_shipped_criteria_are_learned_byte_for_byte_from_the_simulated_fleet(
    tmp_path, monkeypatch, told
):
    """The short suite for the bytes; of the long one the next test sees that nothing is absent."""
    monkeypatch.setenv("ANUBIS_HOME", "")  # the script has one of its own
    monkeypatch.setattr(catalog, "describe_all", told)
    runpy.run_path(str(ROOT / "scripts/make-criteria"))["main"](tmp_path, ("quick",))
    (made,) = tmp_path.rglob("*.json")
    shipped = ROOT / "criteria" / made.relative_to(tmp_path)
    assert shipped.read_bytes() == made.read_bytes(), "run: .venv/bin/python scripts/make-criteria"


def test_every_metric_of_the_long_suite_is_judged_by_shipped_criteria_and_none_is_left_over(near):
    """After a repair as well: right answers of its longer screen need no norm, and a score of all
    metrics together has a verdict only if it falls short."""
    words = ("--cluster", "simulated", "--suite", "delivery", "--repaired", "--json")
    done = near.run("validate", "node[0001-0002]", *words)
    assert done.code == 0, done.err
    screened = [(v["node"], v["device"]) for v in done.verdicts if v["benchmark"] == "sdc_screen"]
    assert len(screened) == 2 * len(set(screened)) == 2 * 2 * 8
    criteria = json.loads((ROOT / "criteria/delivery/simulated.json").read_text())["criteria"]
    shipped = {(criterion["benchmark"], criterion["metric"]) for criterion in criteria}
    shipped = {key for key in shipped if not key[1].startswith("together:")}
    judged = {(line["benchmark"], line["metric"]) for line in done.verdicts}
    assert shipped == {key for key in judged if key[0] != "node_config"}  # judged by the majority


# --- several kinds of nodes ----------------------------------------------------------------


def kinds_in(done: Done) -> dict[str, list[str]]:
    return {line["label"]: line["nodes"] for line in done.lines if line["type"] == "kind"}


def test_kinds_under_one_sku_are_named_everywhere_until_they_have_labels(near):
    names = [f"n{number}" for number in range(1, 41)]
    planted = {"simulated-kind-a": names[:30], "simulated-kind-b": names[30:]}
    found = accept(near, nodes="n[1-40]", fast_share=0.25)
    assert (found.code, kinds_in(found)) == (0, planted)
    page = near.folder / "page.html"
    table = near.run("report", "--html", str(page)).out
    for text in (table, page.read_text(), near.run("criteria", "show").out):
        assert "n[31-40]" in text
        assert "simulated-kind-b" in text
    assert "(confidence 0.999)" in " ".join(table.split())
    files = sorted(near.home.glob("criteria/tiny/*.json"))
    assert [file.name for file in files] == ["simulated-kind-a.json", "simulated-kind-b.json"]

    validate = ("validate", "--json", "--suite", str(near.folder / "tiny.yaml"), "--cluster")
    assert near.ask(*validate, near.fleet(nodes="n[1-40]", fast_share=0.25)).code == 0
    labels = {"simulated-kind-a": "n[1-30]", "simulated-kind-b": "n[31-40]"}
    labelled = near.fleet(nodes="n[1-40]", fast_share=0.25, skus=labels)
    assert near.ask(*validate, labelled).code == 0
    settled = accept(near, nodes="n[1-40]", fast_share=0.25, skus=labels)
    assert (settled.code, kinds_in(settled)) == (0, {})
    assert sorted(near.home.glob("criteria/tiny/*.json")) == files


def test_below_20_nodes_a_remark_states_that_kinds_cannot_be_seen(near):
    found = accept(near, nodes="n[1-12]", fast_share=0.25)
    assert (found.code, kinds_in(found)) == (0, {})
    table = " ".join(near.run("report").out.split())
    assert "3 of 12 nodes are better than normal by more than the limit" in table
    assert "cannot be seen below 20 nodes" in table


# --- adopting an alpha ---------------------------------------------------------------------


def test_a_proposed_alpha_is_adopted_as_a_diff_to_review(near):
    """A fleet that is even to a thousandth could separate 2 % from normal; the policy asks for
    5 %."""
    fleet = {"nodes": "n[1-40]", "slow_share": 0.05, "slow_by": 0.02}
    assert accept(near, **fleet).code == 0
    folder = str(near.home / "criteria")
    policy = near.write("mine.yaml", "# ours\nsummary: strict enough\nalpha: 0.95  # as all\n")
    adopt = ("criteria", "adopt", folder, "--policy", str(policy))
    shown = near.run(*adopt)
    assert shown.code == 0, shown.err
    proposed = json.loads(learned(near).read_text())["criteria"][0]["proposed_alpha"]
    cut = int(proposed * 1000) / 1000
    line = f'  - {{benchmark: "flow", metric: "speed", alpha: {cut:g}}}'
    assert [row for row in shown.out.splitlines() if row[:1] == "+"][1:] == [
        "+",
        "+alphas:",
        f"+{line}",
    ]
    assert "the verdicts of 2 nodes and 2 parts change" in shown.out
    assert policy.read_text().count("\n") == 3  # nothing is written without --write

    assert near.run(*adopt, "--write", str(policy)).code == 0
    assert policy.read_text().endswith(f"alpha: 0.95  # as all\n\nalphas:\n{line}\n")
    assert "nothing to adopt" in near.run(*adopt).out
    near.run("criteria", "learn", "--policy", str(policy), "--out", "next")
    assert [criterion["alpha"] for criterion in criteria_in(near, "next")] == [cut]
    judged = near.run("criteria", "judge", "--criteria", str(near.folder / "next"))
    assert judged.code == 1
    assert "38 healthy · 2 defective" in judged.out


def test_adopting_takes_only_the_metrics_that_are_named_and_never_overwrites(near):
    accept(near, nodes="n[1-40]")
    folder = str(near.home / "criteria")
    none = near.run("criteria", "adopt", folder, "--metric", "gemm *", "--json")
    assert [line["type"] for line in none.lines] == ["changes"]
    (rule, *_) = near.run("criteria", "adopt", folder, "--metric", "fl* speed", "--json").lines
    assert (rule["type"], rule["benchmark"], rule["metric"]) == ("adoption", "flow", "speed")
    other = near.write("other.yaml", "summary: not the one to change\n")
    refused = near.run("criteria", "adopt", folder, "--write", str(other))
    assert refused.code == 64
    assert "exists; name another file" in refused.err


def test_an_alpha_that_fits_no_metric_is_refused(near):
    policy = near.write("mine.yaml", {"alphas": [{"benchmark": "flo", "alpha": 0.9}]})
    suite = near.suite(near.flow())
    done = near.ask("accept", "--suite", suite, "--policy", str(policy), "--cluster", near.fleet())
    assert done.code == 64
    assert 'the policy has an alpha for "flo *", which fits no metric' in done.err


rules = st.lists(
    st.builds(
        MetricAlpha,
        benchmark=st.sampled_from(["gemm", "train_*"]),
        metric=st.sampled_from(["rate", "tflops:*", "*"]),
        alpha=st.sampled_from([0.9, 0.95, 0.999]),
    ),
    max_size=4,
    unique_by=lambda rule: (rule.benchmark, rule.metric),
)


@given(rules, rules, st.sampled_from(["", "retries: 2\n", "\n# more\nretries: 2\n"]))
def test_new_alphas_in_the_text_of_a_policy_keep_all_other_lines(old, new, after):
    text = "# ours\nalpha: 0.9  # as all\n"
    text += "alphas: # few\n" + "\n".join(map(line_of, old)) + "\n" if old else ""
    changed = add_alphas(text + after, new)
    replaced = {(rule.benchmark, rule.metric) for rule in new}
    kept = [rule for rule in old if (rule.benchmark, rule.metric) not in replaced]
    document = yaml.safe_load(changed)
    assert [MetricAlpha(**row) for row in document.pop("alphas") or []] == kept + new
    assert document == {"alpha": 0.9} | (yaml.safe_load(after) or {})
    for comment in ("# ours", "# as all", "# few" * bool(old), "# more" * ("more" in after)):
        assert comment in changed
