"""Pages and documents that take long to make: tickets and spares, risk, the fabric."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from dataclasses import replace
from statistics import median

import pytest

from anubis.core.diagnose.cures import CurePolicy, PastDiagnosis
from anubis.core.diagnose.diagnostician import diagnose
from anubis.core.diagnose.evidence import Collector, Gravity, JobEvidence, LogEvent
from anubis.core.history.events import Debt, EventRecord, SuspicionRaised
from anubis.core.history.status import Incident, Watch
from anubis.core.keep.commands import CloseTicket, EndSuspicion, Mode, OpenTicket, Outcome
from anubis.core.keep.keeper import Keeper
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.life import DefectFound, Life, OpenIncident
from anubis.core.records import CampaignKind, Judgement, Policy, Remedy
from anubis.core.watch.rounds import KeptLook
from anubis.operations import risk
from anubis.operations.diagnose import details_of, kept_of, rules
from anubis.operations.requests import TrainRiskRequest
from anubis.operations.risk import train_risk
from anubis.operations.tell import note
from anubis.operations.watch_rounds import look_at_job, view_of
from anubis.report import service_pages
from anubis.report.diagnose import DiagnosisView
from anubis.report.diagnosis_pages import shown_again
from anubis.report.fleet import CampaignGlance
from anubis.report.risk_page import risk_page
from anubis.report.watch import lines
from anubis.report.watch_page import render
from anubis.service.problems import Refused
from anubis.service.requester import Requester
from anubis.service.service_settings import ServiceSettings
from anubis.service.slow_pages import Overview, Overviews, Question
from anubis.store.keeping import KeptBy, News
from anubis.store.looks import LookDetails
from anubis.text import places
from tests.core.watched import START
from tests.edges.executions import campaign
from tests.edges.test_watch_rounds import falling, watching
from tests.edges.visitor import Visitor, house_of, items, page, problem
from tests.patience import LIMIT_S

NOW = 1_790_000_000.0
CODE, REASON = "GEMM.TFLOPS", "gemm: tflops 12 % below normal"


def keep(history, lives, commands=(), policy=None):
    """Keep a cluster as a turn of the keeper leaves it."""
    policy = policy or KeepingPolicy()
    with history.keeping.turn("a test") as turn:
        keeper = Keeper(policy, lives)
        turn.keep_by(KeptBy(name="ours", policy=policy, said_by="a test", since=NOW))
        turn.keep(commands, NOW)
        turn.end(keeper, News(event_records=(), conclusions=()), NOW)


def text_of(html):
    return " ".join(re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", html, flags=re.S).split())


def defect(node, at=NOW):
    return DefectFound(code=CODE, reason=REASON, campaign=f"c-{node}", at=at)


def ticket(node, mode=Mode.ACT):
    return OpenTicket(
        mode=mode, ticket=f"{node}/c", node=node, code=CODE, reason=REASON, campaign=f"c-{node}"
    )


@pytest.fixture
def kept(near):
    """A cluster: of eight nodes one is broken, one repaired, one in repair; one is a spare, one is
    next, and a person has one; one is in an incident, one was. A ticket of a ninth was closed."""
    house = house_of(str(near.history))
    cordoned = {"cordon": "anubis[X]: x", "cordoned_by_anubis": True}
    lives = [
        Life(node="n1", sku="h100", defect=defect("n1"), ticket="n1/c", **cordoned),
        Life(
            node="n2",
            sku="h100",
            defect=defect("n2"),
            ticket="n2/c",
            repair_done_at=NOW,
            **cordoned,
        ).add_debt(Debt.REPAIR, NOW),
        Life(node="n3", sku="h100", repair_begun_at=NOW - 60, **cordoned),
        Life(node="n4", sku="h100", is_reserve=True, proven_at=NOW - 86_400, **cordoned),
        Life(node="n5", sku="h100"),
        Life(node="n6", sku="h100", cordon="Jo: firmware"),
    ]
    lives += [
        Life(node="n7", sku="h100", incidents=(OpenIncident(category="XID", at=NOW),), **cordoned),
        Life(node="n8", sku="h100").add_debt(Debt.INCIDENT, NOW, "XID"),
    ]
    closed = CloseTicket(mode=Mode.ACT, ticket="n9/c", node="n9", campaign="c-proof")
    history = house.history.only()
    policy = KeepingPolicy(spares={"h100": 2})
    keep(history, lives, [ticket("n1"), ticket("n2", Mode.PROPOSE), ticket("n9"), closed], policy)
    yield Visitor(house)
    house.history.close_at_last()


def test_each_node_that_is_out_has_its_code_and_next_step(kept):
    tickets = {line["node"]: line for line in items(kept.ask("/v1/tickets"))}
    assert {node: line["awaits"] for node, line in tickets.items()} == {
        "n1": "repair",
        "n2": "proof",
        "n3": "end-of-repair",
        "n7": "end-of-incident",
        "n8": "test",
        "n9": None,
    }
    assert (tickets["n1"]["code"], tickets["n1"]["campaign"]) == (CODE, "c-n1")
    assert "throttling" in tickets["n1"]["action"]  # the policy's remedy for the code
    assert (tickets["n7"]["code"], tickets["n7"]["opened_at"]) == ("INCIDENT", NOW)
    assert [node for node, line in tickets.items() if line["proposed"]] == ["n2"]
    assert (tickets["n9"]["closed_at"], tickets["n9"]["closed_by"]) == (NOW, "c-proof")
    elsewhere = problem(kept.ask("/v1/tickets?cluster=elsewhere"), 400)
    assert 'the history knows no cluster "elsewhere"; it knows' in elsewhere


def test_a_remedy_is_of_the_policy_that_judged_the_node_or_else_of_the_keepers(empty):
    home = places.home() / "configs" / "policies"
    (home / "remedies").mkdir(parents=True)
    (home / "site.yaml").write_text("summary: ours\nremedies: [default, site]\n")
    (home / "remedies" / "site.yaml").write_text(
        f"remedies: [{{codes: [{CODE}, INCIDENT], action: call the vendor}}]\n"
    )
    history = empty.house.history.only()
    judged = Policy(remedies=(Remedy(codes=(CODE,), action="clean its fans"),))
    empty.house.history.campaigns.begin(campaign("c-n1", policy=judged))
    incident = OpenIncident(category="XID", at=NOW)
    lives = [Life(node=node, defect=defect(node)) for node in ("n1", "n2")]
    keep(
        history,
        [*lives, Life(node="n3", incidents=(incident,))],
        policy=KeepingPolicy(selection="site"),
    )
    actions = {line["node"]: line["action"] for line in items(empty.ask("/v1/tickets"))}
    assert actions == {"n1": "clean its fans", "n2": "call the vendor", "n3": "call the vendor"}


def test_the_page_lists_spares_as_wanted_ready_and_next(kept):
    (spares,) = items(kept.ask("/v1/spares"))
    ready = [(spare["node"], spare["since"]) for spare in spares["ready"]]
    assert (spares["target"], ready) == (2, [("n4", NOW - 86_400)])
    assert (spares["next"], spares["free"]) == (["n5"], 1)
    text = text_of(page(kept, "/tickets"))
    for sentence in (
        "4 out of service 1 to be taken out 1 of 2 spares ready",
        f"{CODE} : {REASON} found by c-n1",
        "Repair n1, then report it: anubis tell repair-done NODE.",
        "h100 lacks 1 spare: n5 comes next.",
        "Kept from jobs by a person, and left alone: n6.",
        "proven by n9",
    ):
        assert sentence in text


def test_wanted_spares_of_unknown_hardware_are_reported_as_lacking(visitor):
    history = visitor.house.history.only()
    keep(history, [Life(node="n1"), Life(node="n2")], [], KeepingPolicy(spares={"h100": 2}))
    (spares,) = items(visitor.ask("/v1/spares"))
    assert (spares["sku"], spares["target"], spares["ready"], spares["free"]) == ("h100", 2, [], 0)
    assert "no orchestrator shows which hardware" in spares["note"]
    assert "h100 lacks 2 spares: no orchestrator shows" in text_of(page(visitor, "/tickets"))
    wanted = 'anubis_keeper_spares{cluster="fleet",sku="h100",which="wanted"} 2.0'
    visitor.house.board._renew()
    assert wanted in visitor.ask("/metrics").text


def test_a_cluster_without_a_keeper_has_no_tickets_and_the_page_states_why(visitor):
    text = text_of(page(visitor, "/tickets"))
    assert "0 out of service no spares wanted" in text
    assert "This cluster is not kept, so it has no tickets and no spares" in text


def test_a_ticket_names_the_slow_devices_and_drift_the_shares_of_the_others(
    near,
):
    """One of eight nodes is slow: all its devices are. How near is read without samples."""
    suite = near.suite(near.flow(repeats=1))
    cluster = near.fleet(nodes="n[1-8]", slow_share=0.125, seed=3)
    assert near.ask("accept", "--cluster", cluster, "--suite", suite).code == 1
    assert near.ask("keep", "--cluster", cluster).code == 1
    house = house_of(str(near.history), suite=suite, benchmarks=(near.programs,))
    history, visitor = house.history.only(), Visitor(house)
    campaign = house.history.campaigns.latest()
    kept = house.history.assessments.find(campaign)
    assert "7 healthy 1 defective" in text_of(page(visitor, f"/campaigns/{campaign}"))
    compared = [v for v in kept.verdicts() if v.alpha is not None and v.similarity is not None]
    for node in ("", "n1", "n5"):
        shares = history.experience.limit_shares(0.0, node)
        own = [v for v in compared if not node or v.participants == (node,)]
        expected = [(1 - v.similarity) / (1 - v.alpha) for v in own]
        assert expected
        assert sorted(s for test in shares for s in test.shares) == pytest.approx(sorted(expected))
    assert history.experience.limit_shares(NOW * 2) == []
    assert "95th percentile" in page(visitor, "/drift")
    assert "median device of n5" in page(visitor, f"/drift/{history.cluster}/n5")
    problem(visitor.ask(f"/drift/{history.cluster}/n99"), 404)
    every = [(1 - v.similarity) / (1 - v.alpha) for v in compared]
    gauge = (
        rf'anubis_limit_share{{benchmark="flow",.*metric="{compared[0].metric}",unit="middle"}} '
    )
    (share,) = re.findall(rf"^{gauge}(\S+)$", visitor.ask("/metrics").text, re.M)
    assert float(share) == pytest.approx(median(every))
    (line,) = items(visitor.ask("/v1/tickets"))
    shown = text_of(page(visitor, f"/nodes/{history.cluster}/{line['node']}"))
    assert f"{line['node']} defective {line['reason']} ({line['code']})" in shown
    assert f"last test flow ran: {line['code']}" in shown
    house.history.close_at_last()
    bad = [v for v in near.run("report", "--json").verdicts if v["verdict"] == "defective"]
    assert line["node"] == bad[0]["node"]
    assert line["devices"] == [verdict["device"] for verdict in bad]
    assert line["awaits"] == "repair"


@pytest.mark.parametrize("kind", [CampaignKind.ACCEPT, CampaignKind.SCAN])
@pytest.mark.parametrize("whole", service_pages.SHOWN)
def test_the_headline_of_a_campaign_has_its_judgement_for_any_findings(kind, whole):
    """A scan may find a bad link and no bad node."""
    row = CampaignGlance(
        campaign="c1",
        cluster="lab",
        kind=kind,
        suite="quick",
        nodes=4,
        created_at=NOW,
        finished_at=NOW,
        judgement=whole,
        executions={},
    )
    for found in ({}, {Judgement.HEALTHY: 4}, {Judgement.HEALTHY: 2, Judgement.DEFECTIVE: 2}):
        (headline,) = re.findall("<h1>(.*?)</h1>", service_pages.campaign(row, 0, found, NOW), re.S)
        words = text_of(headline)
        assert whole.value in words
        assert all(f"{number} {judgement.value}" in words for judgement, number in found.items())
        assert ("the whole" in words) == (bool(found) and whole not in found)


# --- risk -------------------------------------------------------------------------------------


def test_the_risk_page_without_a_model_states_that_nodes_cannot_be_ranked(visitor):
    assert items(visitor.ask("/v1/risk")) == []
    text = text_of(page(visitor, "/risk"))
    assert "no incident is known and no model is trained, so a chance of" in text
    assert "incidents assumed within" in text
    assert "anubis risk train" in text
    history, now = visitor.house.history.only(), time.time()
    history.watches.add([Watch(node="n1", since=now - 300 * 86_400)])
    past = Incident(node="n1", category="gpu", start=now - 86_400, end=now - 80_000)
    history.incidents.add([past])
    visitor.house.overviews._kept.clear()
    text = text_of(page(visitor, "/risk"))
    assert "no model is trained, so every node counts with the base rate of all" in text
    assert "incidents expected within" in text


def test_the_chances_that_the_risk_page_states_add_up_to_its_headline(visitor, monkeypatch):
    as_it_is = risk.read_past
    (fleet,) = risk.risk_at_a_glance(caller=Requester(visitor.house.history, "", ()))
    for owing in (0, 1, 2, fleet.total - 1):  # the last: the middle node owes an answer too
        owes = {f"n{number}": () for number in range(1, owing + 1)}

        def read_past(*words, owes=owes):
            past = as_it_is(*words)
            return replace(past, standing=replace(past.standing, owes=owes))

        monkeypatch.setattr(risk, "read_past", read_past)
        glances = risk.risk_at_a_glance(caller=Requester(visitor.house.history, "", ()))
        text = text_of(risk_page(glances, 0.0))
        headline = re.search(r"([\d.]+) incidents assumed .* among ([\d,]+) node", text)
        expected, total = headline.groups()
        chance = float(re.search(r"a chance of ([\d.]+)% is assumed", text)[1]) / 100
        stated = re.search(r"(\d+) nodes? owes? .* with 100% in place of that", text)
        counted = int(stated[1]) if stated else 0
        assert counted == owing
        assert float(expected) == pytest.approx(owing + (int(total) - owing) * chance, abs=0.06)
    (glance,) = glances
    learned = replace(glance, cluster="other", is_assumed=False)
    text = text_of(risk_page([glance, learned], 0.0))
    assert re.search(r"([\d.]+) of them assumed", text)[1] == expected


def test_with_a_model_each_node_has_its_chance_and_its_causes(visitor):
    """Incidents on n1 alone, every ten days: that is what makes it likelier than others."""
    history, now = visitor.house.history.only(), time.time()
    history.watches.add(Watch(node=f"n{n}", since=now - 300 * 86_400) for n in range(1, 9))
    starts = [now - day * 86_400 for day in range(10, 300, 10)]
    history.incidents.add(
        [Incident(node="n1", category="gpu", start=s, end=s + 60) for s in starts]
    )
    asked = TrainRiskRequest(model="exponential-per-count")
    train_risk(asked, visitor.house.overviews._question.requester)
    os.utime(places.risk_file(history.cluster), (now + 9_000, now + 9_000))  # copied, restored
    first, *others = items(visitor.ask("/v1/risk"))
    assert first["node"] == "n1"
    assert first["p"] > 5 * others[0]["p"]
    assert now <= first["trained_at"] < now + 9_000
    (carrier,) = first["carried_by"]
    assert carrier["about"] == "incidents"
    assert carrier["p_without"] == pytest.approx(others[0]["p"], rel=0.5)
    text = text_of(page(visitor, "/risk"))
    assert re.search(r"among 8 nodes likeliest on n1 , [\d.]+% 1 node carries half of that", text)
    assert "29 incidents, the last 10 days ago" in text
    assert "Why this one: chosen by name." in text
    places.risk_file(history.cluster).write_bytes(b"gone bad")
    visitor.house.overviews._kept.clear()
    assert "the trained model cannot be used" in text_of(page(visitor, "/risk"))


# --- looks at running jobs ----------------------------------------------------------------------


def test_a_job_that_is_watched_has_its_suspects_with_their_evidence_and_the_page_of_its_look(
    visitor,
):
    assert "No job was looked at" in text_of(page(visitor, "/looks"))
    by = watching(falling())
    nodes = by.source.telemetry.nodes
    seen = look_at_job("17/4", nodes, by, until=START + 900)
    view = view_of(seen, by, cluster="lab", ended=False)
    looks = visitor.house.history.only().looks
    details = LookDetails(job="17/4", lines="\n".join(lines(view)), page=render([view]), stream=b"")
    looks.write(KeptLook(job="17/4", at=START + 900, nodes=len(nodes), suspects=1), details)
    looks.write(KeptLook(job="18", at=START, nodes=4, trouble="<nobody> answers"))
    visitor.house.overviews._kept.clear()
    kept = {line["job"]: line for line in items(visitor.ask("/v1/looks"))}
    assert (kept["17/4"]["suspects"], kept["18"]["trouble"]) == (1, "<nobody> answers")
    text = text_of(page(visitor, "/looks"))
    for sentence in (
        "1 suspected 2 running jobs watched 1 could not be examined",
        "job 17/4: n3 is unlike its 7 peers since",
        "cpu_use 2 %, peers 40",
        "left its peers by more than is usual in this job",
        "50%, no test yet",
        "could not be examined : &lt;nobody&gt; answers",
    ):
        assert sentence in text
    cluster = kept["17/4"]["cluster"]
    assert f'href="/looks/{cluster}/17%2F4"' in page(visitor, "/looks")
    assert "n3 against its peers over time" in page(visitor, f"/looks/{cluster}/17%2F4")
    assert visitor.ask(f"/looks/{cluster}/18").status_code == 404
    assert visitor.ask("/v1/looks/nowhere/17").status_code == 404


# --- diagnoses ----------------------------------------------------------------------------------


def broken(job, node, at):
    """The view of a diagnosis: a GPU of that node fell off the bus."""
    event = LogEvent(
        collector=Collector.KERNEL_LOG,
        code="xid-79",
        gravity=Gravity.CRITICAL,
        text="<GPU> has fallen off the bus",
        node=node,
        at=at,
    )
    evidence = JobEvidence(
        job=job, at=at, collectors=frozenset({Collector.KERNEL_LOG}), log=(event,)
    )
    diagnosis = diagnose(evidence, rules(), CurePolicy())
    return DiagnosisView(diagnosis=diagnosis, evidence=evidence, cluster="lab")


def test_a_diagnosis_is_shown_with_the_result_of_the_test_of_its_suspect(visitor):
    assert "No job was diagnosed" in text_of(page(visitor, "/diagnoses"))
    part, now = visitor.house.history.only(), round(time.time(), 3)
    for job, node, at in (("17/4", "n1", now - 7200), ("18", "n2", now - 3600), ("20", "n1", now)):
        view = broken(job, node, at)
        part.diagnoses.write(kept_of(view), details_of(view))
        raised = SuspicionRaised(nodes=(node,), category="gpu", source="diagnosis")
        note([EventRecord(id=f"diagnosis {node} {at}", at=at, event=raised)], part)
    part.diagnoses.write(PastDiagnosis(job="19", at=now, level=0, code="", headline="nothing"))
    refuted = EndSuspicion(
        id=f"diagnosis n1 {now - 7200}", node="n1", outcome=Outcome.REFUTED, reason=""
    )
    with part.keeping.turn("a test") as turn:
        turn.keep([refuted], now - 60)
    visitor.house.overviews._kept.clear()
    diagnosed = {line["job"]: line for line in items(visitor.ask("/v1/diagnoses"))}
    assert {job: line["outcomes"] for job, line in diagnosed.items()} == {
        "17/4": {"n1": "refuted"},
        "18": {"n2": "open"},
        "20": {"n1": "open"},
    }
    cluster = part.cluster
    html = page(visitor, "/diagnoses")
    text = text_of(html)
    for sentence in (
        "3 jobs in trouble 0 confirmed by a test 1 refuted",
        "Whether 1 other job ended well is unknown",
        "diagnosis: of its suspicions of gpu, tests confirmed 0 and refuted 1; the next is",
        "a test cleared n1",
        "not tested yet: n2",
    ):
        assert sentence in text
    place = f"{cluster}/{now - 7200:.3f}/17%2F4"
    assert f'href="/diagnoses/{place}"' in html
    alone = page(visitor, f"/diagnoses/{place}")
    assert "was it right a test cleared n1" in text_of(alone)
    assert "&lt;GPU&gt; has fallen off the bus" in alone
    assert "job 18" in shown_again({"title": "job 18", "lines": []})  # by an earlier release
    *facts, answer, last = items(visitor.ask(f"/v1/diagnoses/{place}"))
    assert [line["type"] for line in (*facts, answer, last)] == ["fact", "diagnosis", "diagnosed"]
    assert (answer["nodes"], last["outcomes"]) == (["n1"], {"n1": "refuted"})
    for nowhere in ("lab/soon/18", f"nowhere/{now}/18", f"{cluster}/{now - 1}/18"):
        assert visitor.ask(f"/diagnoses/{nowhere}").status_code == 404


# --- the fabric -------------------------------------------------------------------------------


def test_an_unmeasured_fabric_is_never_shown_as_good(visitor):
    (fabric,) = items(visitor.ask("/v1/fabric"))
    assert (fabric["measured_at"], fabric["links"]) == (None, [])
    html = page(visitor, "/fabric")
    header = html.partition("<header>")[2].partition("</header>")[0]
    assert "1 cluster never measured" in text_of(header)
    assert "healthy" not in header
    assert "anubis scan --topology FILE" in header


@pytest.mark.long
def test_the_fabric_page_shows_the_time_of_measurement_and_suspected_parts(near):
    cluster = near.fleet(nodes="node[01-64]", faults=["dead leaf"], devices=1)
    near.run("scan", "--cluster", cluster, "--topology", "example")
    house = house_of(str(near.history))
    visitor = Visitor(house)
    (fabric,) = items(visitor.ask("/v1/fabric"))
    html, scan = page(visitor, "/fabric"), page(visitor, f"/campaigns/{fabric['campaign']}")
    first = page(visitor, "/")
    house.history.close_at_last()
    report = near.run("report", "--json").lines
    parts = [line["subject"] for line in report if line["type"] == "part"]
    assert [suspect["subject"] for suspect in fabric["suspects"]] == parts
    (crossed,) = [line for line in report if line["type"] == "crossed"]
    measured = [(link["measured"], link["every"]) for link in fabric["links"][1:]]
    assert measured == [(tier["crossed"], tier["links"]) for tier in crossed["tiers"]]
    assert f"{len(parts)} defective" in text_of(html)
    assert '<svg class="fabric"' in html
    assert f"{parts[0]} defective, by its newest scan" in text_of(first)
    (heading,) = re.findall("<h1>(.*?)</h1>", scan, re.S)
    assert text_of(heading).startswith(f"{parts[0]} defective")


# --- when it is found out ---------------------------------------------------------------------


def overview(at):
    return Overview(at=at, page=f"page {at}", documents={})


def overviews():
    question = Question(history_url="", settings=ServiceSettings())
    return Overviews(question, in_process=True)


def test_simultaneous_requests_share_one_answer_which_is_kept_for_a_while():
    asked = []

    def ask(question):
        asked.append(question)
        return overview(len(asked))

    async def several():
        kept = overviews()
        together = await asyncio.gather(*(kept.read(ask) for _ in range(20)))
        later = await kept.read(ask)
        kept._kept[ask] = replace(kept._kept[ask], until=0.0)
        renewed = await kept.read(ask)
        return {answer.at for answer in [*together, later]}, renewed.at

    assert asyncio.run(several()) == ({1}, 2)


def test_an_overview_that_takes_too_long_is_stated_or_shown_as_before(monkeypatch):
    from anubis.service import slow_pages as module

    gate = threading.Event()

    def ask(question):
        gate.wait(LIMIT_S)
        return overview(1)

    async def impatient():
        kept = overviews()
        monkeypatch.setattr(module, "PATIENCE_S", 0.01)
        with pytest.raises(Refused, match="longer than usual"):
            await kept.read(ask)
        kept._kept[ask] = module._Kept(overview=overview(7), until=0.0)
        shown = await kept.read(ask)
        gate.set()
        return shown.at

    assert asyncio.run(impatient()) == 7
