"""People get a message about each action of the keeper, and only one, even if their server fails
meanwhile."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from dataclasses import replace

import pytest
import yaml

from anubis.config import configs
from anubis.core.diagnose.diagnostician import DiagnosisAnswer
from anubis.core.errors import ConfigError, OrchestratorError, Stopped
from anubis.core.history.events import EventRecord, IncidentReported, SuspicionRaised
from anubis.core.keep.commands import Mode
from anubis.core.keep.messages import LONGEST_PAUSE_S, KeeperMessage, MessageStep, Topic
from anubis.operations.caller import Caller
from anubis.operations.diagnose import DiagnosisRequest, diagnose_and_tell
from anubis.operations.keep import keep
from anubis.operations.notify import deliver, messages_of
from anubis.reach.notifiers.webhook import WebhookSettings
from anubis.store.history import History
from tests.edges.test_keeping import ACT, Site
from tests.edges.webhook_receiver import Receiver

SECRET = "the-secret-of-this-site"
NOW = 1.7e9
NEWS = KeeperMessage(
    key="action 7 ordered",
    at=NOW,
    topic=Topic.DRAIN,
    subject="n3",
    sentence="keep n3 from jobs (GEMM.TFLOPS)",
    step=MessageStep.ORDERED,
)


def webhook(url, **more):
    body = {"text": "{sentence}", "key": "{key}", "thread": "{thread}", "topic": "{topic}"}
    return WebhookSettings(notifier="webhook", url=url, body=body, **more)


class Clock(Caller):
    """At a time that we set, with the remarks that were made."""

    def __init__(self, url):
        self.now, self.remarks = NOW, []
        super().__init__(history_url=url, clock=lambda: self.now)

    def remark(self, sentence):
        self.remarks.append(sentence)


@pytest.fixture
def part(tmp_path):
    url = str(tmp_path / "history.sqlite")
    with History.open(url) as history:
        part = history.cluster("mine")
        part.caller = Clock(url)
        yield part


def send(part, notifier, after=0.0):
    part.caller.now += after
    deliver(part, notifier, part.caller)


@pytest.mark.parametrize(
    "trouble",
    [[503, 500], [500, (429, ("Retry-After", "90"))], ["lost", 503], ["hang"], [404], [(302,)]],
    ids=str,
)
def test_a_receiver_that_fails_hangs_or_refuses_has_it_exactly_once_in_the_end(part, trouble):
    receiver = Receiver(*trouble)
    with receiver.listening():
        notifier = webhook(receiver.url, deadline_s=0.5 if "hang" in trouble else 60.0)
        part.messages.post([NEWS, NEWS])
        part.messages.post([replace(NEWS, sentence="told again")])
        send(part, notifier)
        for _ in trouble:
            send(part, notifier)
            assert len(receiver.requests) <= len(trouble), "it pauses before it tries again"
            send(part, notifier, after=LONGEST_PAUSE_S)
        send(part, notifier, after=LONGEST_PAUSE_S)
    keys = {headers["Idempotency-Key"] for headers, _ in receiver.requests}
    assert len(keys) == 1
    assert len(receiver.requests) == len(trouble) + 1
    assert receiver.taken == {keys.pop(): 1 + trouble.count("lost")}
    assert part.messages.waiting() == []
    assert json.loads(receiver.requests[-1][1])["text"] == NEWS.sentence


def test_the_receivers_own_pause_counts_and_grows_no_longer_than_an_hour(part):
    receiver = Receiver((429, ("Retry-After", "600")), (503, ("Retry-After", "9" * 9)))
    with receiver.listening():
        notifier = webhook(receiver.url)
        part.messages.post([NEWS])
        for after, count in ((0.0, 1), (599.0, 1), (2.0, 2), (3599.0, 2), (2.0, 3)):
            send(part, notifier, after)
            assert len(receiver.requests) == count


def test_a_refused_message_delays_no_other_and_an_unanswered_one_does(part):
    other = replace(NEWS, key="action 8 ordered", at=NOW + 1, sentence="second")
    for answer, at_once in ((400, 2), (503, 1)):
        receiver = Receiver(answer)
        with receiver.listening():
            notifier = webhook(receiver.url)
            suffixed = [replace(m, key=f"{m.key} {answer}") for m in (NEWS, other)]
            part.messages.post(suffixed)
            send(part, notifier)
            assert len(receiver.requests) == at_once
            send(part, notifier, after=LONGEST_PAUSE_S)
            assert len(receiver.requests) == 3
    assert part.messages.waiting() == []


def test_a_process_that_is_killed_while_it_sends_loses_nothing_and_the_key_stays(part, monkeypatch):
    receiver = Receiver()

    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    with receiver.listening():
        notifier = webhook(receiver.url)
        part.messages.post([NEWS])
        with monkeypatch.context() as patch:
            patch.setattr(part.messages, "end", kill)  # received, and then no note of it
            with pytest.raises(Killed):
                send(part, notifier)
        send(part, notifier)
        assert len(receiver.requests) == 1, "another process may be sending it"
        send(part, notifier, after=LONGEST_PAUSE_S)
    first, second = receiver.requests
    assert first[0]["Idempotency-Key"] == second[0]["Idempotency-Key"]
    assert part.messages.waiting() == []


@pytest.mark.parametrize("at", [1e12, -1e14, 1e300])
def test_a_time_that_no_calendar_has_stops_no_message(part, at):
    receiver = Receiver()
    with receiver.listening():
        notifier = webhook(receiver.url)
        part.messages.post([replace(NEWS, at=at)])
        send(part, replace(notifier, body={**notifier.body, "time": "{time}"}))
    (request,) = receiver.requests
    assert json.loads(request[1])["time"] == ""


def test_one_of_two_processes_sends_a_message(part):
    part.messages.post([NEWS])
    (mine,), (theirs,) = part.messages.due(NOW), part.messages.due(NOW)
    assert part.messages.take(mine, NOW + 30)
    assert not part.messages.take(theirs, NOW + 30)


def test_after_a_week_it_is_given_up_and_a_wrong_clock_delays_nothing(part):
    receiver = Receiver(*[500] * 99)
    with receiver.listening():
        notifier = webhook(receiver.url)
        part.messages.post([NEWS])
        send(part, notifier)
        send(part, notifier, after=-90 * 86_400.0)
        assert len(receiver.requests) == 2, "the date of the next try is no date"
        send(part, notifier, after=96 * 86_400.0)
        assert part.messages.waiting()
        send(part, notifier, after=2 * 86_400.0)
    assert part.messages.waiting() == []
    assert "given up" in part.caller.remarks[-1]


def test_a_message_is_signed_by_a_secret_that_is_stored_nowhere(part, monkeypatch, tmp_path):
    monkeypatch.setenv("ANUBIS_TEST_SECRET", SECRET)
    (tmp_path / "key").write_text("routing-key\n")
    receiver = Receiver(400)
    with receiver.listening():
        notifier = webhook(
            receiver.url,
            secret="env:ANUBIS_TEST_SECRET",
            headers={"Authorization": "env:ANUBIS_TEST_SECRET"},
            credentials={"routing": f"file:{tmp_path / 'key'}"},
        )
        notifier = replace(notifier, body={**notifier.body, "routing": "{routing}"})
        part.messages.post([NEWS])
        send(part, notifier)
    headers, body = receiver.requests[0]
    signed = f"{headers['X-Anubis-Timestamp']}.".encode() + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Anubis-Signature"] == f"sha256={expected}"
    assert headers["Authorization"] == SECRET
    assert json.loads(body)["routing"] == "routing-key"
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("history*"))
    told = "".join(part.caller.remarks).encode()
    assert b"n3" in kept
    for secret in (SECRET.encode(), b"routing-key", b"/hook"):
        assert secret not in kept + told


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"url": "http://example.com/x"}, "https"),
        ({"url": "file:/nowhere"}, "nowhere"),
        ({"url": "env:ANUBIS_NOT_SET"}, "ANUBIS_NOT_SET"),
        ({"secret": "written out"}, "secret"),
        ({"body": {"a": ["{no_such_name}"]}}, "no_such_name"),
        ({"words": {"sign": {"drain": "x"}}}, "otherwise"),
        ({"topics": ["drains"]}, "topics"),
        ({"notifier": "pigeon"}, "webhook"),
    ],
    ids=str,
)
def test_an_impossible_notifier_is_refused_with_the_reason(tmp_path, keys, complaint):
    file = tmp_path / "ours.yaml"
    stated = {"notifier": "webhook", "url": "https://example.com", "body": {"a": "{sentence}"}}
    file.write_text(yaml.safe_dump({**stated, **keys}))
    with pytest.raises(ConfigError, match=complaint):
        configs.notifier(str(file)).check()


SHIPPED = sorted(configs.files_of("notifiers"))


@pytest.mark.parametrize("name", SHIPPED)
def test_each_shipped_notifier_states_the_event_and_executes_nothing(name, part, monkeypatch):
    """Words of strangers stay words: no name is replaced in them, no sign of the receiver's is
    left."""
    nasty = '<!channel> {key} & "quoted"\n@here'
    receiver = Receiver()
    with receiver.listening():
        shipped = configs.notifier(name)
        stated = [shipped.url, *shipped.headers.values(), *shipped.credentials.values()]
        for text in (text for text in stated if text.startswith("env:")):
            monkeypatch.setenv(text.removeprefix("env:"), "x")
        notifier = replace(shipped, url=receiver.url)
        begins = replace(NEWS, topic=Topic.TICKET, sentence=nasty, subject="t-1")
        ended = replace(begins, key="action 9 ordered", at=NOW + 1, ends=True)
        out = replace(NEWS, key="action 10 ordered", at=NOW + 2)
        part.messages.post(
            [begins, ended, out, replace(out, key="x", at=NOW + 3, step=MessageStep.PROPOSED)]
        )
        send(part, notifier)
    bodies = [body.decode() for _, body in receiver.requests]
    wanted = [m for m in (begins, ended, out) if notifier.wants(m)]
    assert len(bodies) == len(wanted) > 0
    assert all(json.loads(body) for body in bodies)
    if name == "slack":
        assert "&lt;!channel&gt; {key} &amp; " in json.loads(bodies[0])["text"]
    for body, message in zip(bodies, wanted, strict=True):
        shown = body.count(message.identity("mine"))
        assert shown <= 1, "the key is where the form has it, not where a stranger wrote {key}"


# --- fed by the keeper ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def accepted(tmp_path_factory, told):
    with Site.accepted(tmp_path_factory.mktemp("site"), told) as site:
        return site


@pytest.fixture
def site(accepted, tmp_path, monkeypatch, told):
    return accepted.copied(tmp_path / "home", monkeypatch, slow_share=0.125)


def turn(site, notifier, **modes):
    site.later(100)
    keeping = replace(site.keeping(notify="plain", **modes), notifier=notifier)
    return keep(keeping, site.caller)


def told_of(receiver):
    return Counter(json.loads(body)["topic"] for _, body in receiver.requests)


def test_a_drain_a_swap_and_a_ticket_are_sent_once_though_the_receiver_fails_twice(site):
    receiver = Receiver(500, 503)
    with receiver.listening():
        notifier = webhook(receiver.url)
        turn(site, notifier, **ACT, ticket=Mode.ACT)
        assert len(receiver.requests) == 1, "it stops at an answer that is none"
        for _ in range(4):
            turn(site, notifier, **ACT, ticket=Mode.ACT)
        assert told_of(receiver) == {"ticket": 3, "drain": 1}, "two tries were in vain"
        assert set(receiver.taken.values()) == {1}
        before = len(receiver.requests)
        site.tell(SuspicionRaised(nodes=("n1",), category="gpu", source="us", reason="hot"))
        turn(site, notifier, **ACT)
        texts = [json.loads(body)["text"] for _, body in receiver.requests[before:]]
        assert "n1 is suspected (gpu): hot" in texts
        mix = {"ecc": 0.4, "unreachable": 0.35, "optical-cable": 0.2, "storage": 0.05}
        raised = SuspicionRaised(
            nodes=("n2",), category="ecc", source="watch", mix=mix, reason="it lags"
        )
        record = EventRecord(id="s", at=1.0, event=raised)
        (message,) = messages_of((), [record])
        assert message.sentence == (
            "n2 is suspected: it lags; likeliest faults: ecc 40%, unreachable 35%,"
            " optical-cable 20%, others 5%"
        )


def test_no_message_is_sent_unless_a_notifier_is_switched_on(site):
    fleet = site.keep(**ACT)
    assert fleet.actions
    with History.open(site.history) as history:
        assert history.only().messages.waiting() == []


def test_proposals_are_sent_on_request(site):
    receiver = Receiver()
    with receiver.listening():
        turn(site, webhook(receiver.url))
        assert receiver.requests == []
        site.tell(IncidentReported(nodes=("n2",), category="gpu"))
        turn(site, webhook(receiver.url, proposals=True))
    assert told_of(receiver) == {"drain": 1}
    assert json.loads(receiver.requests[0][1])["text"].startswith("keep n2 from jobs")


def fail(site, notifier):
    for _ in range(3):
        with pytest.raises(OrchestratorError):
            turn(site, notifier)


def test_repeated_failures_and_an_absent_keeper_are_reported(site, monkeypatch):
    receiver = Receiver()
    with receiver.listening():
        notifier = webhook(receiver.url, topics=(Topic.STOPPED,))
        turn(site, notifier)

        def deaf():
            raise OrchestratorError("sinfo does not answer")

        with monkeypatch.context() as patch:
            patch.setattr(site.owner, "observe", deaf)
            fail(site, notifier)
            assert receiver.requests == [], "one slow answer is no outage"
            site.later(700)
            fail(site, notifier)
        site.later(2 * 3600)
        turn(site, notifier)
    texts = [json.loads(body)["text"] for _, body in receiver.requests]
    assert len(texts) == 2
    assert texts[0].endswith("a turn failed: sinfo does not answer")
    assert "no turn was taken from" in texts[1]


def test_neither_a_clock_that_jumps_nor_another_service_that_took_over_is_a_keeper_that_stopped(
    site,
):
    receiver = Receiver()
    with receiver.listening():
        notifier = webhook(receiver.url, topics=(Topic.STOPPED,))
        turn(site, notifier)
        site.off_s = 3 * 3600.0
        turn(site, notifier)
        site.off_s = 0.0
        with History.open(site.history) as history:
            lock = history.acting_lock()
            assert lock.has()
            keeping = replace(site.keeping(notify="plain"), notifier=notifier, service="gone")
            with pytest.raises(Stopped, match="acts now"):
                keep(keeping, site.caller)
            lock.give_back()
        turn(site, notifier)
    assert receiver.requests == []


def test_a_diagnosis_is_sent_in_the_next_turn(site, tmp_path):
    receiver = Receiver()
    dumps = tmp_path / "scrape"
    dumps.write_text('XPU_TIMER_COMMON_HANG{rank="0"} 1\nXPU_TIMER_COMMON_HANG{rank="1"} 1\n')
    with receiver.listening():
        notifier = webhook(receiver.url, topics=(Topic.DIAGNOSIS,))
        turn(site, notifier)
        request = DiagnosisRequest(
            job="4711", nodes=("n1", "n2"), ranks_per_node=1, cluster=site.cluster,
            at=site.wall_clock(),
            places={"xpu-timer": dumps},
        )  # fmt: skip
        for later_s in (0, 60):  # while it stands still, and after its end
            diagnose_and_tell(replace(request, at=request.at + later_s), site.caller)
        (tmp_path / "empty").mkdir()
        nothing = replace(request, job="4712", places={"logs": tmp_path / "empty"})
        view, _ = diagnose_and_tell(nothing, site.caller)
        assert view.diagnosis.answer is DiagnosisAnswer.UNKNOWN
        turn(site, notifier)
        turn(site, notifier)
    assert [json.loads(body)["text"] for _, body in receiver.requests] == [
        "job 4711 hangs, and no culprit can be named"
    ]
