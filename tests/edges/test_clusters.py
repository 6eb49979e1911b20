"""Several clusters in one history: knowledge about one is never taken for that about another."""

from __future__ import annotations

import json
import time
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.core.errors import AnubisError, BusyNodesError, StoreError, UsageError
from anubis.core.history.events import EventRecord, NodeAdded, RepairDone
from anubis.core.history.status import Incident, Repair, Watch
from anubis.core.records import (
    UNNAMED,
    Assessment,
    Campaign,
    CampaignKind,
    ClusterIdentity,
    Judgement,
    Node,
    NodeVerdict,
    Plan,
    Policy,
)
from anubis.operations.caller import NO_CALLER
from anubis.operations.selector import read_past
from anubis.operations.tell import Telling, tell_all
from anubis.report.keep import headline
from anubis.store.history import History
from tests.edges.test_exit_codes import kept

NORTH, SOUTH = ("--cluster", "north.yaml"), ("--cluster", "south.yaml")
OPEN = "node,category,start,end\nn1,gpu,2026-03-01T10:00,\n"


@pytest.fixture
def two(near):
    """A desk with two fleets of eight that have the same names; both were accepted."""
    near.tiny = ("--suite", near.suite(near.flow(repeats=1)))
    for name, seed in (("north.yaml", 1), ("south.yaml", 2)):
        near.fleet(name, seed=seed)
        done = near.ask("accept", "--cluster", name, *near.tiny)
        assert done.code == 0, done.err
    return near


def gate(desk, *where):
    return desk.ask("gate", "n[1-4]", "--duration", "24h", *desk.tiny, "--json", *where)


def told_incident(desk, cluster):
    """Report that n1 of the cluster is in an incident."""
    words = (
        "history",
        "import",
        "incidents",
        str(desk.write("open.csv", OPEN)),
        "--cluster",
        cluster,
    )
    done = desk.run(*words)
    assert done.code == 0, done.err
    return done


def test_a_sweep_of_one_cluster_means_its_own_nodes_only(near):
    tiny = ("--suite", near.suite(near.flow(repeats=1)))
    for name, nodes in (("north.yaml", "n[1-8]"), ("south.yaml", "s[1-3]")):
        fleet = near.fleet(name, nodes=nodes)
        assert near.ask("accept", "--cluster", fleet, *tiny).code == 0
    swept = near.ask("sweep", "--cluster", str(near.folder / "south.yaml"), *tiny, "--json")
    assert swept.code == 0, swept.err
    assert swept.lines[0]["nodes"] == ["s1", "s2", "s3"]


@pytest.mark.long
def test_an_incident_of_a_node_is_none_of_its_namesake_in_another_cluster(two):
    assert "of cluster north" in told_incident(two, "north").out
    north, south = gate(two, *NORTH), gate(two, *SOUTH)
    assert (north.code, north.summary["answer"], north.summary["cluster"]) == (1, "no-go", "north")
    assert (south.code, south.summary["answer"], south.summary["cluster"]) == (0, "go", "south")
    whose = {line["cluster"] for line in two.run("history", "show", "n1", "--json").lines}
    assert whose == {"north", "south"}
    of_south = two.run("history", "show", "n1", "--json", *SOUTH).lines
    assert "incident" not in [line["type"] for line in of_south]


def test_a_pass_or_an_event_in_one_cluster_counts_in_no_other(two):
    upgraded = ("gate", "--plan", "n[1-4]", "--event", "fleet-upgraded", *two.tiny)
    assert two.ask(*upgraded, *NORTH).code == 0
    assert [gate(two, *where).lines[0]["p"] == 1 for where in (NORTH, SOUTH)] == [True, False]
    two.fleet("third.yaml")
    third = gate(two, "--cluster", "third.yaml").lines[0]
    assert third["p"] == 1
    assert any("a defect is presumed" in sentence for sentence in third["assumed"])


def test_with_several_clusters_a_verb_asks_for_one_and_answers_name_it(two):
    for words in (["gate", "n1", "--duration", "1h"], ["gate", "--plan", "n1", "--event", "tick"]):
        done = two.ask(*words, *two.tiny)
        assert (done.code, done.out) == (64, "")
        assert 'the history knows clusters "north", "south": name one with --cluster' in done.err
    assert two.run("history", "clusters").out.split() == ["north", "south"]
    assert "on cluster south, campaign" in two.run("report").out
    assert two.run("report", "--json").summary["cluster"] == "south"
    page = two.folder / "page.html"
    two.run("report", "--html", str(page))
    assert "<dt>cluster</dt><dd>south</dd>" in page.read_text()
    decided = two.ask("gate", "--plan", "n1", "--event", "tick", *two.tiny, "--cluster", "north")
    assert decided.out.splitlines()[0] == "run nothing on n1 (north)"
    unknown = two.run("history", "show", "--cluster", "nort")
    assert (unknown.code, unknown.err.count("\n")) == (64, 1)
    assert 'the history knows no cluster "nort"; did you mean "north"?' in unknown.err


def test_if_no_node_of_a_cluster_is_known_the_answer_names_the_line_for_its_file(near):
    done = near.run(
        "nodes", "--cluster", str(near.write("prod.yaml", "executor: ray\nstart: slurm"))
    )
    assert "none known" in done.out
    assert "no orchestrator shows nodes of cluster prod" in done.err
    assert "(`orchestrator: hosts | kubernetes | slurm`)" in done.err
    assert headline("prod", {}, {}, 0).startswith("0 nodes of cluster prod: none is known, so")


def test_a_model_of_risk_is_asked_for_the_cluster_that_it_was_learned_from(two):
    model = two.home / "risk" / "north.npz"
    model.parent.mkdir()
    model.write_text("broken")
    assert gate(two, *SOUTH).code == 0
    assert str(model) in gate(two, *NORTH).err


def test_a_cluster_that_is_renamed_keeps_all_that_is_known_of_it(two):
    told_incident(two, "north")
    assert two.run("history", "rename", "north", "east").code == 0
    assert two.run("history", "clusters").out.split() == ["east", "south"]
    lines = two.run("history", "show", "n1", "--json", "--cluster", "east").lines
    assert [line["type"] for line in lines] == ["incident", "validation"]
    taken = two.run("history", "rename", "east", "south")
    assert taken.code == 64
    assert 'cluster "south" is in the history already' in taken.err


def test_tests_without_a_named_cluster_are_refused_with_the_option_to_give(near):
    tiny = ("--suite", near.suite(near.flow(repeats=1)))
    assert near.ask("accept", "--cluster", near.fleet(), *tiny).code == 0
    answered = near.ask("gate", "n1", "--duration", "1h", *tiny)
    assert (answered.code, answered.out.splitlines()[0]) == (0, "go: n1 (cluster fleet)")
    near.ask("gate", "--plan", "n1", "--event", "node-added", *tiny)
    refused = near.ask("gate", "n1", "--duration", "24h", *tiny)
    assert refused.code == 64
    assert 'tests have to run on cluster "fleet": say with --cluster' in refused.err


def test_a_cluster_that_was_begun_by_mistake_is_refused_or_can_be_removed_again(fleet):
    before = kept(fleet.history)
    fleet.write("open.csv", OPEN)
    for words in ("import incidents open.csv", "tell repair-done n1", "gate n1 --duration 1h"):
        refused = fleet.run(*words.split(), "--cluster", "fleeet")
        *_, sentence = refused.err.splitlines()
        assert (refused.code, 'knows no cluster "fleeet"' in sentence) == (64, True)
        assert 'did you mean "fleet"? it knows fleet' in sentence
    assert kept(fleet.history) == before
    # nodes that are added may begin one
    assert fleet.run("tell", "node-added", "n[1-3]", "--cluster", "fleeet").code == 0
    assert fleet.run("history", "import", "incidents", "open.csv", "--cluster", "fleeet").code == 0
    assert fleet.run("history", "clusters").out.split() == ["fleet", "fleeet"]
    done = fleet.run("history", "forget-cluster", "fleeet")
    assert (done.code, "0 campaigns, 1 incident, 1 event" in done.out) == (0, True), done.err
    assert [row for row in kept(fleet.history) if "fleeet" in row or row not in before] == []
    # but what was measured is not removed by the way
    refused = fleet.run("history", "forget-cluster", "fleet")
    assert (refused.code, "has 1 campaign" in refused.err) == (64, True), refused.err
    assert kept(fleet.history) == before
    assert fleet.run("history", "forget-cluster", "fleet", "--with-campaigns").code == 0
    assert [row for row in kept(fleet.history) if "fleet" in row] == []
    assert fleet.run("history", "check").code == 0


def test_each_event_of_a_batch_is_kept_or_refused_alone(fleet):
    def told(cluster, kind, *nodes):
        event = NodeAdded(nodes=nodes) if kind == "added" else RepairDone(nodes=nodes)
        return Telling(event=event, cluster=cluster)

    with History.open(str(fleet.history)) as history:
        before = {part.cluster: part.event_records.all() for part in history.every()}
        batch = [
            told(None, "repaired", "n1"),
            told("fleet", "repaired", "n9"),
            told("south", "repaired", "s1"),
            told("fleet", "added", "n9"),
            told("south", "added", "s1", "s2"),
            told("fleet", "repaired", "n1", "n9"),
            told("south", "repaired", "s2"),
            told("south", "repaired", "n1"),
            told("no name", "added", "n1"),
        ]
        answers = tell_all(batch, history, NO_CALLER)
        kept_ones = [not isinstance(answer, AnubisError) for answer in answers]
        assert kept_ones == [True, False, False, True, True, True, True, False, False]
        event_records = {part.cluster: len(part.event_records.all()) for part in history.every()}
        assert (before, event_records) == ({"fleet": []}, {"fleet": 3, "south": 2})


# --- the history ---------------------------------------------------------------------------


@pytest.fixture
def history(tmp_path):
    with History.open(str(tmp_path / "history.sqlite")) as opened:
        yield opened


def ray(name, address, *, is_chosen=False):
    return ClusterIdentity(name=name, executor="ray", address=address, is_chosen=is_chosen)


def test_nodes_of_one_name_in_two_clusters_are_held_at_the_same_time(history):
    north, south = history.cluster("north").holds, history.cluster("south").holds
    with north.hold(["n1"], "a campaign", time.time), south.hold(["n1"], "another", time.time):
        assert [hold.holder for hold in north.current(time.time())] == ["a campaign"]
        with pytest.raises(
            BusyNodesError, match='node "n1" of cluster "north" is held by a campaign'
        ):
            north.hold(["n1"], "a third", time.time).__enter__()


def test_one_cluster_name_at_two_addresses_is_refused_unless_it_was_chosen(history):
    assert history.clusters.enter(ray("ray", "10.0.0.1:6379"), 1.0) == ""
    with pytest.raises(StoreError, match=r'"ray" was reached by ray at 10\.0\.0\.1.*"name: ray"'):
        history.clusters.enter(ray("ray", "10.0.0.2:6379"), 2.0)
    assert history.clusters.enter(ray("ray", "10.0.0.2:6379", is_chosen=True), 3.0) == ""
    assert history.clusters.enter(ray("ray", "10.0.0.2:6379"), 4.0) == ""


def test_records_without_a_cluster_go_to_the_first_cluster_with_their_nodes(
    history,
):
    before = history.only()
    before.incidents.add([Incident(node="n1", category="gpu", start=1.0)])
    before.watches.add([Watch(node="n1", since=0.0)])
    assert (before.cluster, history.clusters.names()) == (UNNAMED, [UNNAMED])
    stranger = history.clusters.enter(ray("other", "10.0.0.9:1"), 1.0, ["m1", "m2"])
    assert stranger == 'cluster "other" is new to this history, which knows "unnamed"'
    adopted = history.clusters.enter(ray("prod", "10.0.0.1:1"), 2.0, ["n1", "n2"])
    assert 'is now of cluster "prod"' in adopted
    assert history.clusters.names() == ["other", "prod"]
    assert [incident.node for incident in history.cluster("prod").incidents.all()] == ["n1"]
    assert history.cluster("other").incidents.all() == []
    with pytest.raises(UsageError, match='knows clusters "other", "prod": name one'):
        history.only()


EXAMPLES = count()
happenings = st.lists(
    st.tuples(
        st.sampled_from(["north", "south"]),
        st.sampled_from(["incident", "repair", "event_record", "campaign"]),
        st.sampled_from(["n1", "n2"]),
        st.integers(1, 50),
    ),
    max_size=12,
)


def happen(history, cluster, kind, node, at):
    part = history.cluster(cluster)
    match kind:
        case "incident":
            part.incidents.add([Incident(node=node, category="gpu", start=at, end=at + 1.0)])
        case "repair":
            part.repairs.add([Repair(node=node, start=at, end=at + 1.0)])
        case "event_record":
            part.event_records.add(
                EventRecord(id=f"{node}-{at}", at=at, event=NodeAdded(nodes=(node,)))
            )
        case _:
            campaign = Campaign(
                id=f"{cluster}-{node}-{at}",
                cluster=cluster,
                kind=CampaignKind.VALIDATE,
                plan=Plan(suite="", nodes=(Node(name=node, sku=""),), phases=(), specs=()),
                policy=Policy(),
                executor="ray",
                created_at=at,
            )
            bad = Judgement.DEFECTIVE if at % 3 == 0 else Judgement.HEALTHY
            verdict = NodeVerdict(node=node, judgement=bad, code="OK", reason="")
            history.campaigns.begin(campaign)
            history.assessments.conclude(
                campaign.id, Assessment(alone=(), nodes=(verdict,)), (), finished_at=at
            )


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    with History.open(str(tmp_path_factory.mktemp("lasting") / "history.sqlite")) as opened:
        yield opened


@settings(max_examples=25)
@given(happened=happenings)
def test_events_in_one_cluster_change_nothing_known_of_another(lasting, happened):
    """A third cluster with the same events as the first, and none of the others."""
    example = next(EXAMPLES)
    for number, (cluster, kind, node, at) in enumerate(happened):
        happen(lasting, f"{cluster}{example}", kind, node, at + number / 100)
        if cluster == "north":
            happen(lasting, f"alone{example}", kind, node, at + number / 100)
    known = []
    for cluster in ("north", "alone"):
        past = read_past(lasting.cluster(f"{cluster}{example}"), 100.0)
        unfit = {node: why.replace(cluster, "") for node, why in past.standing.unfit.items()}
        passed = (past.standing.passed, past.standing.down, unfit, past.logbook.nodes)
        known.append((passed, past.defects, past.categories))
    assert known[0] == known[1]


def test_an_import_is_taken_back_from_its_own_cluster_only(two):
    for cluster in ("north", "south"):
        told_incident(two, cluster)
    listed = two.run("history", "imports", "--json").lines
    assert [(line["cluster"], line["new"]) for line in listed] == [("south", 1), ("north", 1)]
    assert two.run("history", "forget", "--import", "1").code == 0
    assert [gate(two, *where).code for where in (NORTH, SOUTH)] == [0, 1]


@pytest.mark.parametrize("name", ["a b", "../up", "", UNNAMED, "-x"])
def test_a_name_that_is_no_word_cannot_name_a_cluster(near, name):
    file = near.write("prod.yaml", json.dumps({"executor": "simulated", "name": name or "é"}))
    done = near.ask("accept", "--cluster", str(file), "--suite", near.suite(near.flow()))
    assert (done.code, done.err.count("\n")) == (64, 1)
    assert "cannot name a cluster, expected letters, digits, dots and dashes" in done.err
