"""select, gate and sweep as an operator meets them, with programs that only echo."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anubis.core.errors import UsageError
from anubis.core.history.status import Incident, Job
from anubis.lab.simulation.simulated_fleet import measure
from anubis.operations.caller import Caller
from anubis.operations.selector import read_past
from anubis.reach.executors import simulated
from anubis.reach.executors.local import this_machine
from anubis.report import decision
from anubis.store.history import History
from anubis.text.wording import chance
from tests.edges.desk import FLOW

PULSE = FLOW.replace('"name": "flow"', '"name": "pulse"').replace(
    '"benchmark": "flow"', '"benchmark": "pulse"'
)
WELL, ILL = "50, 51, 49, 50\n", "30, 31, 29, 30\n"
MAPPING = {
    "records": "intervals",
    "node": "node",
    "category": "category",
    "start": "start",
    "end": "end",
    "zone": "UTC",
}


@pytest.fixture
def fit(near):
    """A desk whose node was accepted: flow and pulse measured what they always measure."""
    near.program("pulse.sh", PULSE)
    near.beat = near.write("beat", WELL)
    pulse = {"benchmark": "pulse", "parameters": {"pace": str(near.beat)}, "repeats": 3}
    near.two = near.suite(near.flow(), pulse)
    done = near.ask("accept", "--suite", near.two)
    assert done.code == 0, done.err
    with History.open(str(near.history)) as history:
        near.node = history.only().experience.validations()[0].node
    return near


def gate(desk, *words):
    return desk.ask("gate", desk.node, "--duration", "24h", "--suite", desk.two, "--json", *words)


SWAY = FLOW.replace('$(cat "$pace")', '$(echo >> "$pace"; wc -l < "$pace")')
WRONG = FLOW.replace('"speed"', '"agreement"').replace('"m/s"', '"1"')


def first_gate(desk, *words):
    suite = desk.suite(desk.flow())
    node = this_machine().name
    return desk.ask("gate", node, "--duration", "24h", "--suite", suite, *words)


def just_now(node, category, count=1):
    """Incidents that lasted a millisecond each, a moment ago."""
    now = time.time()
    return [
        Incident(node=node, category=category, start=at, end=at + 0.001)
        for at in (now - 0.002 * (i + 1) for i in range(count))
    ]


def ran(desk):
    """Number of executions in the history."""
    with closing(sqlite3.connect(desk.history)) as raw:
        return raw.execute("SELECT count(*) FROM executions").fetchone()[0]


def import_incidents(desk, told):
    rows = ["node,category,start,end"]
    for one in told:
        times = (datetime.fromtimestamp(at, UTC).isoformat() for at in (one.start, one.end))
        rows.append(",".join([one.node, one.category, *times]))
    file, mapping = desk.write("incidents.csv", "\n".join(rows)), desk.write("how.yaml", MAPPING)
    done = desk.run("history", "import", "incidents", str(file), "--mapping", str(mapping))
    assert done.code == 0, done.err


@pytest.mark.long
def test_after_incidents_a_node_passes_only_by_the_test_that_found_such_before(fit):
    # once, the network was at fault, and pulse found it
    with History.open(str(fit.history)) as history:
        history.only().incidents.add(just_now(fit.node, "network"))
    fit.beat.write_text(ILL)
    assert fit.ask("validate", "--suite", fit.two).code == 1
    refused = gate(fit)
    assert (refused.code, refused.summary["answer"]) == (1, "no-go")
    assert "(PULSE.SPEED)" in refused.summary["unfit"][fit.node]
    fit.beat.write_text(WELL)
    assert fit.ask("validate", "--suite", fit.two).code == 0

    lately = gate(fit)
    assert (lately.code, lately.summary["answer"]) == (0, "go")
    assert [line["type"] for line in lately.lines] == ["decision", "gate"]
    assert lately.lines[0]["action"] == "skip"

    import_incidents(fit, just_now(fit.node, "network", count=3))
    again = gate(fit)
    decision = again.lines[0]
    first = decision["tests"][0]
    assert (first["benchmark"], first["nodes"]) == ("pulse", [fit.node])
    assert "a defect is presumed on" in decision["why"]
    assert {v["benchmark"] for v in again.verdicts} == {t["benchmark"] for t in decision["tests"]}
    assert (again.code, again.summary["answer"]) == (0, "go")

    with History.open(str(fit.history)) as history:
        history.only().incidents.add(just_now(fit.node, "network"))
        assert [d.action.value for d in history.only().decisions.newest()] == [
            "validate",
            "skip",
            "validate",
        ]
    fit.beat.write_text(ILL)
    failed = gate(fit)
    assert (failed.code, failed.summary["defective"]) == (1, [fit.node])


def test_the_first_gate_of_a_machine_learns_normal_values_and_answers(near):
    """A user need not know that criteria come first."""
    done, node = first_gate(near), this_machine().name
    answer = f"go: {node} (cluster {node}), compared with its own repeats only"
    assert (done.code, done.out.splitlines()[0]) == (0, answer)
    assert "no criteria exist for such nodes yet" in done.err
    again = first_gate(near, "--json")
    assert (again.code, again.summary["answer"], again.verdicts) == (0, "go", [])


def test_a_machine_that_lost_a_gpu_or_is_sliced_does_not_pass_by_its_own_repeats(near):
    def local(sku):
        words = {"executor": "local", "name": "site", "sku": sku}
        return "--cluster", str(near.write("site.yaml", words))

    assert first_gate(near, *local("h100-8x")).code == 0
    with History.open(str(near.history)) as history:
        part = history.only()
        part.incidents.add(just_now(part.experience.validations()[0].node, "gpu"))
        before = history.campaigns.newest(9)
    for sku in ("h100-7x", "h100-mig-1g-10gb-56x"):
        done = first_gate(near, *local(sku))
        assert (done.code, done.out) == (2, "")
        assert f'is "{sku}" and was "h100-8x" when it was last measured' in done.err
        with History.open(str(near.history)) as history:
            assert history.campaigns.newest(9) == before
    learned = near.ask("accept", "--suite", near.suite(near.flow()), *local("h100-7x"))
    assert learned.code == 0  # a person said so
    assert 'is "h100-7x" and was "h100-8x"' in learned.err
    assert first_gate(near, *local("h100-7x")).code == 0


def test_an_unsteady_machine_is_shown_a_policy_with_wider_limits_which_works(near):
    near.program("flow.sh", SWAY)
    done = first_gate(near)
    assert done.code == 2
    assert "only 1 of 3 units are alike" in done.out.splitlines()[0]
    assert "a policy with wider limits (--policy shared-machine)" in done.err
    wide = near.write("wide.yaml", {"alpha": 0.2})
    done = first_gate(near, "--policy", str(wide))
    assert done.code == 0, done.out + done.err
    assert "no criteria exist for such nodes yet" in done.err


def test_wrong_answers_never_become_the_normal_of_a_machine(near):
    near.program("flow.sh", WRONG)
    near.pace.write_text("0.5, 0.5, 0.5\n")
    done = first_gate(near, "--why")
    answer = f"no-go: defective: {this_machine().name}"
    assert (done.code, done.out.splitlines()[0]) == (1, answer)
    assert "1 wrong answer" in " ".join(done.out.split())


def test_a_gate_with_a_budget_does_not_learn_by_itself(near):
    done = first_gate(near, "--budget", "1h")
    assert (done.code, "no criteria for" in done.err) == (2, True)


def test_a_gate_that_may_not_test_runs_nothing_and_lists_the_tests_needed(fit):
    with History.open(str(fit.history)) as history:
        history.only().incidents.add(just_now(fit.node, "gpu"))
        before = history.campaigns.newest(9)
    line = gate(fit, "--no-tests", "--on-unknown", "pass").lines[-1]
    assert (line["answer"], line["unknown"]) == ("unknown", [fit.node])
    assert line["needs"]
    assert f"tests would have to run first ({', '.join(line['needs'])}; " in line["why"]
    with History.open(str(fit.history)) as history:
        assert history.campaigns.newest(9) == before
    assert gate(fit).lines[-1]["needs"] == []  # these ran
    assert gate(fit, "--no-tests").lines[-1]["answer"] == "go"


def test_a_no_go_names_each_node_once_with_its_reason(fit):
    words = ("--duration", "24h", "--suite", fit.two)
    with History.open(str(fit.history)) as history:
        history.only().incidents.add(just_now(fit.node, "network"))
    fit.beat.write_text(ILL)
    tested = fit.ask("gate", fit.node, *words)
    assert tested.out.splitlines()[0] == f"no-go: defective: {fit.node}"
    known = fit.ask("gate", fit.node, *words).out.splitlines()[0]
    assert known.startswith(
        f"no-go, and nothing was run: {fit.node}: it was defective in campaign "
    )
    assert known.count(fit.node) == 1
    with History.open(str(fit.history)) as history:
        kept = decision.sentence(history.only().decisions.newest(1)[0])
    assert kept.startswith(f"No-go, whatever the risk: {fit.node}: it was defective in campaign ")


@pytest.fixture
def fleet(near):
    """A desk whose simulated fleet of eight is healthy and was validated just now. Once, the
    network was at fault on `near.ill`, and the program `near.finder` found it, alone."""
    near.program("pulse.sh", PULSE)
    near.two = near.suite(
        near.flow(repeats=1), near.flow(repeats=1) | {"benchmark": "pulse"}, name="two.yaml"
    )
    before = near.ask(
        "accept", "--cluster", near.fleet(slow_share=0.125), "--suite", near.two, "--json"
    )
    (near.ill,) = before.summary["defective"]
    (near.finder,) = {v["benchmark"] for v in before.verdicts if v["verdict"] == "defective"}
    (near.other,) = {"flow", "pulse"} - {near.finder}
    with History.open(str(near.history)) as history:
        history.only().incidents.add(just_now(near.ill, "network"))
    near.well = near.fleet()
    assert near.ask("validate", "--cluster", near.well, "--suite", near.two).code == 0
    return near


ROUGH = "summary: a quarter of the risk may be left\nselection: {p0: 0.3}\n"


def gate_fleet(desk, *words):
    words = ("--duration", "24h", "--cluster", desk.well, "--suite", desk.two, *words)
    return desk.ask("gate", "n[1-8]", *words)


def test_nothing_is_decided_by_a_history_that_a_wrong_path_names(near, monkeypatch):
    absent = near.folder / "hystory.sqlite"
    monkeypatch.setenv("ANUBIS_HISTORY", str(absent))
    for words in (["gate", "n[1-8]", "--duration", "24h"], ["nodes"], ["keep"], ["serve"]):
        done = near.run(*words)
        assert (done.code, done.out) == (64, "")
        assert f'"{absent}", which does not exist' in done.err.splitlines()[0]
    assert not absent.exists()
    begun = near.run("tell", "node-added", "n1", "--cluster", near.fleet())
    assert begun.code == 0, begun.err
    assert f'a new history begins in "{absent}"' in begun.err.splitlines()[0]
    assert near.run("nodes").code != 64


def test_nothing_is_decided_by_an_empty_database(server, monkeypatch):
    remarks, caller = [], Caller()
    caller.remark = remarks.append
    monkeypatch.setenv("ANUBIS_HISTORY", server.new_database())
    with pytest.raises(UsageError, match="which is empty"):
        caller.history()
    with caller.history(begins=True):
        assert [remark[:22] for remark in remarks] == ["a new history begins i"]
    caller.history().close()


def test_a_fleet_that_was_validated_just_now_may_start_and_nothing_runs(fleet):
    before = ran(fleet)
    done = gate_fleet(fleet, "--json")
    assert (done.code, done.summary["answer"]) == (0, "go")
    assert [line["type"] for line in done.lines] == ["decision", "gate"]
    assert done.lines[0]["action"] == "skip"
    assert ran(fleet) == before


def test_if_no_test_is_worth_its_time_the_policy_decides_and_the_risk_is_stated(fleet):
    never = {"summary": "none is bearable", "selection": {"p0": 0, "above_p0": "go"}}
    before = ran(fleet)
    go = gate_fleet(fleet, "--policy", str(fleet.write("go.yaml", never)), "--json")
    remaining = go.lines[0]["remaining"]
    assert remaining > 0
    assert (go.code, go.summary["answer"], go.summary["remaining"]) == (0, "go", remaining)
    assert (
        go.summary["why"]
        == f"go, at a risk of {chance(remaining)}, above the accepted 0: n[1-8] (cluster fleet)"
    )

    del never["selection"]["above_p0"]  # a prolog reads exit codes only
    nobody = gate_fleet(fleet, "--policy", str(fleet.write("nobody.yaml", never)))
    assert (nobody.code, ran(fleet)) == (2, before)
    last = nobody.out.splitlines()[0]
    assert last.startswith("unknown: no test is worth its time at a risk of ")
    assert last.endswith(", above the accepted 0: n[1-8]")

    never["selection"]["above_p0"] = "run"
    anyway = gate_fleet(fleet, "--policy", str(fleet.write("run.yaml", never)), "--json")
    assert (anyway.code, anyway.summary["why"]) == (0, "go: n[1-8] (cluster fleet)")
    assert ran(fleet) == before + 16


def test_a_node_with_an_open_incident_is_never_go_and_gets_no_test(fleet):
    rows = "node,category,start,end\nn3,gpu,2026-03-01,\nn4,fan,2026-03-01,2099-01-01\n"
    done = fleet.run("history", "import", "incidents", str(fleet.write("open.csv", rows)))
    assert (done.code, done.err.count("the node is down until")) == (0, 2)
    before = ran(fleet)
    answer = gate_fleet(fleet)
    assert answer.code == 1
    assert answer.out.startswith(
        'no-go, and nothing was run: n3: its incident "gpu" is not over;'
        ' n4: its incident "fan" is not over'
    )
    where = ("--cluster", fleet.well, "--suite", fleet.two)
    swept = fleet.ask("sweep", "n[3-4]", "--budget", "1nh", *where, "--json")
    assert (swept.code, swept.lines[0]["tests"], ran(fleet)) == (0, [], before)


def test_after_three_incidents_only_that_node_gets_the_tests_of_their_category(fleet):
    node = "n3" if fleet.ill != "n3" else "n4"
    import_incidents(fleet, just_now(node, "network", count=3))
    before = ran(fleet)
    rough = fleet.write("rough.yaml", ROUGH)
    said = gate_fleet(fleet, "--policy", str(rough), "--why").out
    assert f"a defect is presumed on {node}" in said
    assert f"Run: {fleet.finder} on {node} (" in said
    assert f"{fleet.other} on" not in said
    assert said.splitlines()[0] == "go: n[1-8] (cluster fleet)"
    assert ran(fleet) == before + 1
    with History.open(str(fleet.history)) as history:
        (execution,) = history.executions.read(history.campaigns.latest())
    assert (execution.step.workload.benchmark, execution.step.participants) == (
        fleet.finder,
        (node,),
    )
    again = gate_fleet(fleet, "--policy", str(rough), "--json")
    assert again.lines[0]["action"] == "skip"
    assert ran(fleet) == before + 1


def test_the_decision_after_incidents_explains_itself_in_json(fleet):
    node = "n3" if fleet.ill != "n3" else "n4"
    import_incidents(fleet, just_now(node, "network", count=3))
    rough = fleet.write("rough.yaml", ROUGH)
    decision = gate_fleet(fleet, "--policy", str(rough), "--json").lines[0]
    (test,) = decision["tests"]
    assert (test["benchmark"], test["nodes"]) == (fleet.finder, [node])
    assert (decision["drivers"][0]["node"], decision["drivers"][0]["p"]) == (node, 1)
    assert decision["p"] > decision["p0"] >= decision["remaining"]
    assert decision["node_seconds"] == test["duration_s"] > 0
    before = decision["p"] * (1 - decision["covered_before"])
    assert test["drop"] == pytest.approx(before - decision["remaining"])
    assert decision["why"].startswith(
        "On cluster fleet, a job of 24 h on 8 nodes: a defect is presumed on one of them or more"
    )


# --- what lies between nodes, and what a budget leaves open ----------------------------------


@pytest.fixture
def paired(near, monkeypatch):
    """A desk whose simulated fleet of four was accepted by a program for pairs; the path between
    the two nodes of `near.broken` is slow, and `near.ill` is slow with every partner."""
    program = FLOW.replace('"flow"', '"pair"').replace('"scope": "node"', '"scope": "pair"')
    near.program("pair.sh", program.replace('"metrics"', '"needs": {"min_nodes": 2}, "metrics"'))
    near.broken, near.ill = set(), ""

    def slow_between(fleet, planted, step, spec, left):
        found = measure(fleet, planted, step, spec, left)
        slow = near.broken == set(step.participants) or near.ill in step.participants
        return replace(found, values=found.values * 0.5) if slow else found

    monkeypatch.setattr(simulated, "measure", slow_between)
    near.cluster = near.fleet(nodes="n[1-4]")
    entry = near.flow(repeats=1) | {"benchmark": "pair", "groups": "pairs"}
    near.two = near.suite(entry, name="pairs.yaml")
    assert near.ask("accept", "--cluster", near.cluster, "--suite", near.two).code == 0
    return near


def pair_gate(desk, nodes, *words):
    where = ("--cluster", desk.cluster, "--suite", desk.two, "--together")
    return desk.ask("gate", nodes, "--duration", "24h", *where, *words)


def test_a_bad_link_is_no_go_for_a_job_across_it_until_both_ends_pass_again(paired):
    paired.broken = {"n1", "n2"}
    with History.open(str(paired.history)) as history:
        history.only().incidents.add(just_now("n1", "network"))
    first = pair_gate(paired, "n[1-4]", "--json")
    assert (first.code, first.summary["answer"], first.summary["defective"]) == (1, "no-go", [])
    (link,) = first.summary["links"]
    assert (sorted(link["nodes"]), "50% slower than normal" in link["reason"]) == (
        ["n1", "n2"],
        True,
    )

    before = ran(paired)
    again = pair_gate(paired, "n[1-4]").out
    assert again.splitlines()[0].startswith(
        "no-go, and nothing was run: bad between n1, n2: pair was defective in campaign validate-"
    )
    apart = pair_gate(paired, "n[2-4]", "--json")
    assert (apart.code, apart.summary["answer"]) == (0, "go")
    assert ran(paired) == before

    paired.broken = set()
    words = ("--cluster", paired.cluster, "--suite", paired.two)
    assert paired.ask("validate", "n[2-4]", *words).code == 0  # n1 was not there
    assert pair_gate(paired, "n[1-4]").code == 1
    assert paired.ask("validate", *words).code == 0
    assert pair_gate(paired, "n[1-4]").code == 0


def test_a_node_that_is_slow_with_every_other_is_blamed_and_not_its_links(paired):
    paired.ill = "n1"
    with History.open(str(paired.history)) as history:
        history.only().incidents.add(just_now("n1", "network"))
    done = pair_gate(paired, "n[1-4]", "--json").summary
    assert (done["answer"], done["defective"], done["links"]) == ("no-go", ["n1"], [])


# --- other parameters ------------------------------------------------------------------------


COUNTED = FLOW.replace(
    '"summary": "the file"}',
    '"summary": "the file"}, {"name": "samples", "type": "int", "default": 9,'
    ' "summary": "how many", "more_is_stronger": true}',
)


@pytest.mark.parametrize(("passed", "asked", "action"), [(20, 5, "skip"), (5, 20, "validate")])
def test_a_pass_with_more_samples_counts_for_fewer_and_not_the_reverse(near, passed, asked, action):
    near.program("flow.sh", COUNTED)

    def suite(samples):
        parameters = {"pace": str(near.pace), "samples": samples}
        entry = near.flow(repeats=1) | {"parameters": parameters}
        return ("--suite", near.suite(entry, name=f"with{samples}.yaml"))

    where = ("--cluster", near.fleet())
    assert near.ask("accept", *where, *suite(passed)).code == 0
    decided = near.ask(
        *("gate", "n1", "--plan", "--event", "job-allocated", "--duration", "2000h", "--json"),
        *(*where, *suite(asked)),
    ).lines[0]
    assert (decided["action"], decided["covered_before"] > 0.5) == (action, action == "skip")


# --- partners --------------------------------------------------------------------------------


@pytest.fixture
def suspect(paired):
    """The same desk after an incident of n1, with a program for single nodes beside: n2 to n4 are
    proven, n1 is not."""
    entry = paired.flow(repeats=1) | {"benchmark": "pair", "groups": "pairs"}
    paired.two = paired.suite(paired.flow(repeats=1), entry, name="both.yaml")
    words = ("--cluster", paired.cluster, "--suite", paired.two)
    assert paired.ask("accept", *words).code == 0
    with History.open(str(paired.history)) as history:
        history.only().incidents.add(just_now("n1", "network"))
    return paired


def gate_apart(desk, nodes, *words):
    where = ("--cluster", desk.cluster, "--suite", desk.two, "--json")
    return desk.ask("gate", nodes, "--duration", "24h", *where, *words)


def test_a_node_meets_two_proven_partners_in_the_one_campaign_of_its_decision(suspect):
    before = suspect.run("history", "show", "--json").lines
    done = gate_apart(suspect, "n[1-4]")
    assert (done.code, done.summary["answer"]) == (0, "go")
    (decision,) = (line for line in done.lines if line["type"] == "decision")
    assert {test["benchmark"]: test["nodes"] for test in decision["tests"]} == {
        "flow": ["n1"],
        "pair": ["n1"],
    }
    assert decision["partners"] == ["n2", "n3", "n4"]
    with History.open(str(suspect.history)) as history:
        runs = history.executions.read(history.campaigns.latest())
        assert [row.kind for row in history.campaigns.newest(2)] == ["validate", "accept"]
    met = sorted(run.step.participants for run in runs)
    assert met == [("n1",), ("n1", "n2"), ("n1", "n3"), ("n2", "n3")]
    after = suspect.run("history", "show", "--json").lines
    held = {line["node"] for line in after[len(before) :] if line["type"] == "validation"}
    assert held == {"n1", "n2", "n3"}


@pytest.mark.parametrize(("ill", "blamed"), [("n1", ["n1"]), ("n2", ["n2"])])
def test_neither_a_partner_is_blamed_for_the_tested_node_nor_this_for_its_partner(
    suspect, ill, blamed
):
    suspect.ill = ill
    # only pairs are slow: alone each is well
    assert gate_apart(suspect, "n[1-4]").summary["defective"] == blamed


def test_too_few_proven_partners_are_stated_with_the_tests_left_out(suspect):
    with History.open(str(suspect.history)) as history:
        history.only().incidents.add([*just_now("n2", "network"), *just_now("n3", "network")])
    decision = gate_apart(suspect, "n[1-4]").lines[0]
    assert {test["benchmark"] for test in decision["tests"]} == {"flow"}
    (why,) = [sentence for sentence in decision["assumed"] if sentence.startswith("left out")]
    assert why == (
        "left out, because fewer than 2 proven nodes could be their partners: pair; defects that"
        " only they find stay unknown"
    )
    assert gate_apart(suspect, "n1").lines[0]["partners"] == []


def test_proven_nodes_beside_the_job_are_met_when_they_are_named(suspect):
    done = gate_apart(suspect, "n1", "--partners", "n[3-4]")
    assert (done.code, done.summary["answer"]) == (0, "go")
    assert done.lines[0]["partners"] == ["n3", "n4"]
    suspect.ill = "n3"  # a partner that went bad says nothing against the job's node
    with History.open(str(suspect.history)) as history:
        history.only().incidents.add(just_now("n1", "network"))
    again = gate_apart(suspect, "n1", "--partners", "n[2-4]")
    assert (again.summary["answer"], again.summary["defective"]) == ("go", [])


def test_an_added_node_is_to_meet_any_proven_nodes(suspect):
    words = ("n1", "--event", "node-added", "--suite", suspect.two, "--json")
    decision = suspect.ask("gate", "--plan", *words).lines[0]
    assert {test["benchmark"] for test in decision["tests"]} == {"flow", "pair"}
    assert decision["partners"] == ["n2", "n3", "n4"]


def test_a_sweep_that_could_not_measure_is_no_success(near):
    suite = near.suite(near.flow(repeats=1))
    assert near.ask("accept", "--cluster", near.fleet(), "--suite", suite).code == 0
    with History.open(str(near.history)) as history:
        history.only().incidents.add(one for i in range(1, 9) for one in just_now(f"n{i}", "psu"))
    dying = near.fleet(lost_share=0.125)
    done = near.ask("sweep", "--budget", "1nh", "--cluster", dying, "--suite", suite, "--json")
    assert (done.code, len(done.summary["unknown"])) == (2, 1)


def test_a_crash_that_the_other_nodes_do_not_have_is_a_defect_that_its_program_finds(near):
    words = ("--suite", near.suite(near.flow(repeats=1)), "--json")
    assert near.ask("accept", "--cluster", near.fleet(), *words).code == 0
    done = near.ask("validate", "--cluster", near.fleet(crash_share=0.125), *words)
    assert (done.code, len(done.summary["defective"])) == (1, 1)
    with History.open(str(near.history)) as history:
        past = read_past(history.only(), time.time() + 1)
    assert [defect.found_by for defect in past.defects] == [{"flow"}]
    assert past.standing.unfit.keys() == set(done.summary["defective"])


def test_a_budget_too_small_for_the_risk_is_not_go_even_if_all_tests_pass(fleet):
    node = "n3" if fleet.ill != "n3" else "n4"
    import_incidents(fleet, just_now(node, "network", count=3))
    before = ran(fleet)
    none = gate_fleet(fleet, "--budget", "1s", "--json")
    assert (none.code, none.summary["answer"], none.summary["budget_short"]) == (2, "unknown", True)
    assert none.lines[0]["remaining"] > none.lines[0]["p0"]
    assert ran(fleet) == before
    lenient = gate_fleet(fleet, "--budget", "1s", "--on-unknown", "pass", "--json")
    assert (lenient.code, lenient.summary["answer"]) == (0, "go")
    assert len(lenient.summary["unknown"]) == 8
    said = gate_fleet(fleet, "--budget", "1s").out
    assert said.splitlines()[0] == "unknown: the budget leaves too much untested: n[1-8]"

    long = [
        fleet.flow(repeats=9) | {"benchmark": fleet.finder},
        fleet.flow(repeats=1) | {"benchmark": fleet.other},
    ]
    fleet.two = fleet.suite(*long, name="two.yaml")
    half = gate_fleet(fleet, "--budget", "20s", "--json")
    (test,) = half.lines[0]["tests"]
    assert (test["benchmark"], test["nodes"], half.err.count("defective")) == (
        fleet.other,
        [node],
        0,
    )
    assert (half.code, half.summary["answer"], node in half.summary["unknown"]) == (
        2,
        "unknown",
        True,
    )
    assert ran(fleet) == before + 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["gate", "n1", "--duration", "soon"], '--duration is "soon", expected a time such as'),
        (["gate", "n1", "--duration", "8nh"], '--duration is "8nh", expected a time such as'),
        (["gate", "n1", "--duration", "99999d"], '--duration is "99999d", expected a time such as'),
        (["gate", "n1", "--duration", "1h", "--budget", "0nh"], '--budget is "0nh", expected'),
        (["sweep", "n1", "--budget", "0m"], '--budget is "0m", expected node-hours such as 8nh'),
        (["gate", "n1", "--duration", "0h"], '--duration is "0h", expected a time such as'),
        (
            ["gate", "n1", "--duration", "1h", "--on-unknown", "maybe"],
            '--on-unknown is "maybe", expected pass or fail',
        ),
        (["sweep", "--budget", "much"], '--budget is "much", expected node-hours such as 8nh'),
        (["sweep"], "yet: name them, or begin with anubis accept"),
        (["gate", "n1", "--duration", "1h", "--criteria", "/no/criteria"], "/no/criteria"),
        (
            ["gate", "n1", "--plan", "--event", "tock"],
            '--event "tock" is not known; did you mean "tick"?',
        ),
        (
            ["gate", "n1", "--plan", "--event", "job-allocated"],
            "needs the job's --duration, such as 24h",
        ),
        (
            ["gate", "n1", "--plan", "--event", "incident-reported"],
            "needs the incident's --category",
        ),
        (
            ["gate", "n1", "--plan", "--event", "fleet-upgraded", "--upgrade", "lost"],
            '--upgrade is "lost", expected learned or refused',
        ),
    ],
)
def test_options_that_make_no_sense_are_refused_in_one_line(near, words, complaint):
    done = near.run(*words)
    assert done.code == 64
    assert done.out == ""
    assert complaint in done.err
    assert len(done.err.splitlines()) == 1


def test_a_sweep_keeps_its_budget_and_spares_busy_and_broken_nodes(near):
    suite, fleet = near.suite(near.flow(repeats=1)), near.fleet()
    assert near.ask("accept", "--cluster", fleet, "--suite", suite).code == 0
    with History.open(str(near.history)) as history:
        soon = time.time() + 3600
        history.only().incidents.add([Incident(node="n8", category="psu", start=1e9, end=soon)])
        history.only().incidents.add(one for i in range(1, 8) for one in just_now(f"n{i}", "psu"))
        history.only().jobs.add(
            [
                Job(id="1", nodes=("n7",), start=soon - 7200),
                Job(id="2", nodes=("n6",), start=1e9, end=1.1e9),
            ]
        )
    done = near.ask("sweep", "--budget", "0.01nh", "--cluster", fleet, "--suite", suite, "--json")
    assert done.code == 0, done.err
    decision = done.lines[0]
    assert decision["nodes"] == [f"n{i}" for i in range(1, 7)]
    assert 0 < decision["node_seconds"] <= 36
    (test,) = decision["tests"]
    assert set(done.summary["healthy"]) == set(test["nodes"])


def test_a_model_of_risk_that_cannot_be_read_is_no_reason_to_go_on_without_it(fleet):
    (fleet.home / "risk").mkdir()
    (fleet.home / "risk" / "fleet.npz").write_text("broken")
    done = gate_fleet(fleet)
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "not a complete model file; train it again" in done.err


def test_select_only_decides_and_every_event_is_answered(near):
    suite = near.suite(near.flow(repeats=1))
    events = {
        "node-added": [],
        "fleet-upgraded": ["--upgrade", "refused"],
        "job-allocated": ["--duration", "24h"],
        "incident-reported": ["--category", "psu"],
        "tick": ["--budget", "30m"],
    }
    for event, words in events.items():
        done = near.ask(
            "gate", "--plan", "n[1-3]", "--event", event, *words, "--suite", suite, "--json"
        )
        assert done.code == 0, done.err
        (decision,) = done.lines
        assert (decision["event"], decision["nodes"]) == (event, ["n1", "n2", "n3"])
        assert decision["tests"][0]["benchmark"] == "flow"
    with History.open(str(near.history)) as history:
        kept = {each.event: each for each in history.only().decisions.newest()}
        assert [*kept] == [*events][::-1]
        assert kept["fleet-upgraded"].action == "accept"
        assert kept["incident-reported"].category == "psu"
        assert kept["job-allocated"].horizon_s == 24 * 3600
        assert history.campaigns.newest(limit=9) == []


# --- what a node left unanswered -------------------------------------------------------------


@pytest.fixture
def owing(near):
    """A desk whose simulated fleet of eight was accepted; `near.lost` vanished meanwhile, and did
    well in all of another suite since, as all did."""
    near.program("pulse.sh", PULSE)
    near.program("third.sh", PULSE.replace("pulse", "third"))
    entry = near.flow(repeats=1)
    near.two = near.suite(entry, entry | {"benchmark": "pulse"}, name="two.yaml")
    near.third = near.suite(entry | {"benchmark": "third"}, name="third.yaml")
    troubled, near.well = near.fleet("trouble.yaml", lost_share=0.125), near.fleet()
    near.write("trouble.yaml", {**json.loads(Path(troubled).read_text()), "name": "fleet"})
    first = near.ask("accept", "--cluster", troubled, "--suite", near.two, "--json")
    (near.lost,) = first.summary["unknown"]
    later = near.ask("accept", "--cluster", near.well, "--suite", near.third, "--json")
    assert (later.code, len(later.summary["healthy"])) == (0, 8)
    return near


def test_a_node_that_was_lost_is_unknown_to_every_verb_until_it_answers(owing):
    """Other passes since do not matter: a prolog reads exit codes only."""
    where = ("--cluster", owing.well, "--suite", owing.two)
    ask = ("gate", owing.lost, "--duration", "24h", *where)
    for more in ((), ("--suite", owing.third)):
        done = owing.ask(*ask, *more, "--no-tests")
        assert (done.code, "go" in done.out.split()[0]) == (2, False), done.out
        assert f"{owing.lost}: it owes an answer: " in done.out.splitlines()[0]
        assert " since 20" in done.out.splitlines()[0]
        assert "NODE-LOST" in done.out.splitlines()[0]
    line = owing.ask(*ask, "--no-tests", "--json").summary
    assert (line["answer"], list(line["owing"]), line["unknown"]) == (
        "unknown",
        [owing.lost],
        [owing.lost],
    )
    (node,) = owing.run("nodes", owing.lost, "--cluster", owing.well, "--json").lines
    assert (node["judgement"], node["standing"]) == ("unknown", "owing an answer")
    (standing,) = owing.run("history", "standing", owing.lost, "--json").lines
    assert standing["judgement"] == "unknown"
    assert standing["why"] == node["owes"] == line["owing"][owing.lost]
    others = owing.ask("gate", "n[1-8]", "--duration", "24h", *where, "--no-tests", "--json")
    assert (others.code, list(others.summary["owing"])) == (2, [owing.lost])

    swept = owing.ask("sweep", *where, "--json", "--budget", "1nh")
    assert swept.lines[0]["tests"][0]["nodes"] == [owing.lost]
    assert swept.code == 0, swept.out
    assert owing.ask(*ask, "--no-tests").code == 0
    (node,) = owing.run("nodes", owing.lost, "--cluster", owing.well, "--json").lines
    assert (node["judgement"], node["owes"]) == ("healthy", "")


def test_a_node_that_owes_an_answer_is_named_once_beside_one_that_is_out(owing):
    out = "n1" if owing.lost != "n1" else "n2"
    rows = owing.write("open.csv", f"node,category,start,end\n{out},gpu,2026-03-01,\n")
    assert owing.run("history", "import", "incidents", str(rows)).code == 0
    ask = ("gate", f"{out},{owing.lost}", "--duration", "24h", "--cluster", owing.well)
    done = owing.ask(*ask, "--suite", owing.two, "--no-tests", "--json")
    assert done.code == 1
    assert done.summary["why"].count(owing.lost) == 1, done.summary["why"]


def test_a_gate_first_runs_the_tests_that_a_node_owes(owing):
    where = ("--cluster", owing.well, "--suite", owing.two)
    done = owing.ask("gate", owing.lost, "--duration", "1m", *where, "--json")
    assert (done.code, done.summary["answer"], done.summary["owing"]) == (0, "go", {})


def test_a_gate_whose_suite_lacks_the_owed_test_runs_nothing_with_the_reason(owing):
    where = ("--cluster", owing.well, "--suite", owing.third)
    before = ran(owing)
    done = owing.ask("gate", owing.lost, "--duration", "24h", *where)
    assert (done.code, ran(owing)) == (2, before)
    assert done.out.startswith("unknown: no test of this gate answers what is owed (")
    swept = owing.ask("sweep", owing.lost, *where)
    assert swept.code == 2
    assert "unknown still: " in swept.out


def test_an_unknown_node_does_not_hide_a_no_go(fleet):
    """A prolog that takes what is refused for unknown may let the job begin."""
    fleet.write("open.csv", "node,category,start,end\nn3,gpu,2026-03-01T10:00,\n")
    fleet.run("history", "import", "incidents", "open.csv")
    for words in ("gate n3,n99 --duration 1h", "gate n99,n3 --duration 1h --no-tests"):
        done = fleet.run(*words.split())
        assert (done.code, "n3: its incident" in done.out) == (1, True), done.err
    refused = fleet.run("gate", "n1,n99", "--duration", "1h")
    assert (refused.code, 'did you mean "n9' in refused.err) == (64, False)
    assert 'node "n99" is not in cluster "fleet"' in refused.err
    refused = fleet.run("gate", "n01", "--duration", "1h")
    assert 'did you mean "n1"?' in refused.err
