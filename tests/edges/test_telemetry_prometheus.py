"""Telemetry from a Prometheus: from a real one, back-filled; and from one with wrong answers."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from watched import StandIn, healthy

from anubis.core.errors import TelemetryError, UsageError
from anubis.core.watch.detector import look
from anubis.core.watch.watch_settings import WatchSettings
from anubis.readers.telemetry.config import PrometheusSettings, shipped_settings
from anubis.readers.telemetry.prometheus import Prometheus
from anubis.readers.telemetry.prometheus_answers import _slow, matrix
from anubis.readers.telemetry.recorded import read_recording, write_recording
from tests.edges.exporters import exported, needs_prometheus, prometheus
from tests.edges.prometheus_server import free_port
from tests.patience import LIMIT_S

SETTINGS = shipped_settings()
NAMES = ("pfc_tx", "cpu_use", "gpu_duty")
END = float(int(time.time()) - 60)
POINTS = 600


def job(name, seed):
    made = healthy(nodes=8, points=POINTS, seed=seed)
    return replace(
        made,
        metrics=SETTINGS.watched_metrics(NAMES),
        nodes=tuple(f"{name}{n}" for n in range(8)),
        start=END - POINTS + 1,
        values=np.round(made.values, 2),
    )


def faulty():
    made = job("faulty", 2)
    made.values[1, 3, 300:] = 3.0  # its process died
    made.values[2, 3, 300:] = 5.0
    return made


def gone():
    """Telemetry with holes of every kind, and no fault."""
    made = job("holes", 3)
    made.values[2, 1, 300:340] = np.nan
    made.values[:, 2, 450:460] = np.nan
    made.values[1, 4, ::50] = np.nan
    return made


def restarting(rises):
    """A counter that began again at zero twice."""
    total = np.cumsum(rises)
    for begun_again in (200, 401):
        total[begun_again:] -= total[begun_again]
    return total


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    half = job("half", 4)
    without = {("cpu_use", node) for node in half.nodes[:4]}
    texts = [
        exported(job("healthy", 1)),
        exported(faulty()),
        exported(gone()),
        exported(half, without=without),
        exported(job("reset", 5), cumulative=restarting),
        exported(job("twice", 6)),
        exported(
            job("twice", 6).last(400),
            node_port=9200,
            without={("gpu_duty", f"twice{n}") for n in range(8)},
        ),
    ]
    families = {}
    for text in texts:
        for line in text.splitlines():
            if line.startswith("# TYPE"):
                family = families.setdefault(line, [])
            elif not line.startswith("#"):
                family.append(line)
    lines = [text for heading, family in families.items() for text in (heading, *family)]
    with prometheus(tmp_path_factory.mktemp("prometheus"), "\n".join([*lines, "# EOF", ""])) as url:
        yield url


def reader(url, names=NAMES, deadline_s=20.0, **how):
    return Prometheus(SETTINGS, names, PrometheusSettings(url=url, deadline_s=deadline_s, **how))


def pull(url, made, **how):
    return reader(url, **how).pull(made.nodes, END, POINTS - 1)


def suspects(telemetry):
    answer = look(telemetry, StandIn(), WatchSettings())
    return [suspicion.node for suspicion in answer.suspicions]


def over_four_seconds(values):
    """The result of `rate` for a counter that rose like this."""
    return np.stack([np.convolve(row, np.ones(4) / 4, "valid") for row in values])


# --- a real one ------------------------------------------------------------------------------


@needs_prometheus
def test_the_same_telemetry_comes_from_a_prometheus_as_from_a_file(live, tmp_path):
    made = job("healthy", 1)
    write_recording(made, tmp_path / "r.parquet")
    recorded = read_recording(tmp_path / "r.parquet", SETTINGS, NAMES).telemetry
    pulled = pull(live, made)
    assert pulled.remarks == ()
    telemetry = pulled.telemetry
    assert (telemetry.step_s, telemetry.start, telemetry.nodes) == (1, made.start, made.nodes)
    np.testing.assert_allclose(telemetry.series("gpu_duty"), recorded.series("gpu_duty"), atol=1e-4)
    for name in ("pfc_tx", "cpu_use"):
        expected = over_four_seconds(recorded.series(name))
        np.testing.assert_allclose(telemetry.series(name)[:, 4:], expected[:, 1:], atol=1e-2)


@needs_prometheus
def test_a_job_of_a_real_prometheus_is_judged_like_its_file(live):
    assert suspects(pull(live, job("healthy", 1)).telemetry) == []
    assert suspects(pull(live, faulty()).telemetry) == ["faulty3"] == suspects(faulty())


@needs_prometheus
def test_no_alarm_comes_out_of_holes(live):
    pulled = pull(live, gone())
    hole = np.isnan(pulled.telemetry.series("gpu_duty")[1])
    assert 36 <= hole.sum() <= 40  # of 40 s: what two scrapes bridge is not missing
    assert not np.isnan(pulled.telemetry.series("cpu_use")[4][4:]).any()
    assert suspects(pulled.telemetry) == []


@needs_prometheus
def test_a_missing_half_of_the_series_is_remarked_and_raises_no_suspicion(live):
    pulled = pull(live, job("half", 4))
    assert pulled.remarks == ('4 of 8 nodes ("half[0-3]") reported no cpu_use',)
    assert suspects(pulled.telemetry) == []


@needs_prometheus
def test_a_counter_that_begins_again_at_zero_is_no_alarm(live):
    pulled = pull(live, job("reset", 5))
    assert np.nanmin(pulled.telemetry.series("pfc_tx")) >= 0
    assert suspects(pulled.telemetry) == []


@needs_prometheus
def test_a_node_scraped_twice_counts_once_with_a_remark(live):
    pulled = pull(live, job("twice", 6))
    assert pulled.remarks[0].startswith('8 of 8 nodes ("twice[0-7]") have pfc_tx from several')
    np.testing.assert_allclose(
        pulled.telemetry.series("cpu_use")[:, 4:],
        over_four_seconds(job("twice", 6).series("cpu_use"))[:, 1:],
        atol=1e-2,
    )


@needs_prometheus
def test_nodes_that_it_does_not_know_are_an_error_and_not_healthy(live):
    with pytest.raises(TelemetryError, match='knows none of the 2 nodes, such as "other1"'):
        reader(live).pull(["other1", "other2"], END, 900)


@needs_prometheus
def test_a_refused_query_is_reported_in_the_words_of_prometheus(live):
    broken = [
        replace(entry, query="sum by ($by) (rate(x{$nodes}[$rate])") for entry in SETTINGS.metrics
    ]
    settings = replace(SETTINGS, metrics=tuple(broken))
    source = Prometheus(settings, ["gpu_duty"], PrometheusSettings(url=live))
    with pytest.raises(TelemetryError, match="parse error: unclosed left parenthesis"):
        source.pull(["healthy1"], END, 900, step_s=1.0)


@contextmanager
def proxy(to, least, *, stalls):
    """A real way in between. Small answers pass; of a larger one only the beginning, and then it
    is cut off, or nothing comes any more."""
    over = threading.Event()

    def forward(client, server):
        with suppress(OSError):
            while part := client.recv(1 << 16):
                server.sendall(part)

    def back(client, server):
        passed = 0
        with client, server, suppress(OSError):
            while passed <= least and (part := server.recv(4096)):
                client.sendall(part)
                passed += len(part)
            if stalls and passed > least:
                over.wait(LIMIT_S)
            for end in (client, server):
                end.shutdown(socket.SHUT_RDWR)

    def accept(door):
        with suppress(OSError):
            while True:
                client, _ = door.accept()
                server = socket.create_connection(("127.0.0.1", int(to.rpartition(":")[2])))
                for pump in (forward, back):
                    threading.Thread(target=pump, args=(client, server), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=accept, args=(door,), daemon=True).start()
        yield f"http://127.0.0.1:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)
        over.set()


@needs_prometheus
def test_an_answer_that_ends_in_the_middle_or_stalls_leaves_its_metric_out(live):
    made = job("healthy", 1)
    with (
        proxy(live, 50_000, stalls=False) as url,
        pytest.raises(TelemetryError, match=r"ended in the middle|ended the connection"),
    ):
        pull(url, made)
    with (
        proxy(live, 50_000, stalls=True) as url,
        pytest.raises(TelemetryError, match=r"no answer within 0\.7 s"),
    ):
        pull(url, made, deadline_s=0.7)


# --- one that answers what it should not ---------------------------------------------------------


CLOCK = (
    200,
    "application/json",
    (b'{"status":"success","data":{"resultType":"scalar","result":[1e9,"1000000000"]}}'),
)


@contextmanager
def answering(answer):
    """`answer` makes status, kind and body of the form that was asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            values = {name: told[0] for name, told in form.items()}
            status, kind, body = CLOCK if values["query"] == "time()" else answer(self, values)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if 300 <= status < 400:
                self.send_header("Location", "https://elsewhere/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def ranged(series, **more):
    """A matrix, as Prometheus writes it: without a space."""
    result = [
        {"metric": {"instance": name, "Hostname": name}, "values": values}
        for name, values in series.items()
    ]
    data = {"resultType": "matrix", "result": result}
    text = json.dumps({"status": "success", "data": data, **more}, separators=(",", ":"))
    return 200, "application/json", text.encode()


def pulled_from(answer, nodes=("n1", "n2"), names=("gpu_duty",), **how):
    with answering(answer) as url:
        return reader(url, names, **how).pull(nodes, 1009.0, 9.0, step_s=1.0)


def always(status, body, kind="application/json"):
    return lambda _handler, _form: (status, kind, body)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (always(200, b"<html>log in</html>"), 'no matrix of samples: "<html>log in</html>"'),
        (always(200, b'{"status":"success"}'), "no matrix"),
        (
            always(
                200, b'{"status":"success","data":{"result":[{"metric":3,"values":[[1,"2"]]}]}}'
            ),
            "no matrix",
        ),
        (always(200, b"[" * 100_000), "no matrix"),
        (always(200, b"\xff\xfe"), "no matrix"),
        (always(401, b"no"), "needs the right token"),
        (always(302, b""), 'sends us on to "https://elsewhere/"'),
        (always(404, b"not found"), "is a path missing"),
        (
            always(422, b'{"status":"error","error":"query would load too many samples"}'),
            "answered 422: query would load too many samples",
        ),
        (always(503, b""), "answered 503: without a word"),
        (always(500, b"\x1b[2J" * 9000), "answered 500"),
    ],
)
def test_an_answer_that_is_none_is_an_error_in_one_sentence(answer, sentence):
    with pytest.raises(TelemetryError) as raised:
        pulled_from(answer)
    assert sentence in str(raised.value)
    assert str(raised.value).startswith("the Prometheus at http://127.0.0.1:")
    assert len(str(raised.value)) < 400


def test_an_unreachable_prometheus_is_reported_at_once():
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(TelemetryError, match=f"{url} cannot be reached: Connection refused"):
        reader(url).pull(["n1"], END, 900)


def test_a_prometheus_that_never_answers_is_given_up_after_two_queries():
    asked, given_up = [], threading.Event()

    def stall(_handler, form):
        asked.append(form["query"])
        given_up.wait(LIMIT_S)
        return ranged({})

    names = [entry.metric for entry in SETTINGS.metrics]
    with answering(stall) as url:
        with pytest.raises(TelemetryError, match=r"no answer within 0\.2 s"):
            reader(url, names, deadline_s=0.2, at_once=1).pull(
                ("n1", "n2"), 1009.0, 9.0, step_s=1.0
            )
        given_up.set()
    assert len(asked) == 2


def test_a_prometheus_whose_clock_is_behind_is_remarked_and_no_node_vanishes():
    values = [[999_999_991 + i, "5"] for i in range(10)]
    with answering(lambda *_: ranged({"n1": values})) as url:
        pulled = reader(url, ["gpu_duty"]).pull(["n1"], 1_000_000_100.0, 9.0, step_s=1.0)
    assert "100 s behind ours" in pulled.remarks[0]
    assert not np.isnan(pulled.telemetry.values).any()


def test_an_answer_that_trickles_does_not_evade_the_deadline():
    given_up = threading.Event()

    def trickle(handler, _form):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not given_up.wait(0.05):  # it never ends by itself
            handler.wfile.write(b"y")
        return 200, "text/plain", b""

    with answering(trickle) as url:
        with pytest.raises(TelemetryError, match=r"no answer within 0\.3 s"):
            reader(url, ["gpu_duty"], deadline_s=0.3).pull(("n1", "n2"), 1009.0, 9.0, step_s=1.0)
        given_up.set()


def test_a_metric_that_is_refused_is_left_out_and_the_others_are_read():
    def one_fails(_handler, form):
        if "POWER" in form["query"]:
            return 422, "application/json", b'{"status":"error","error":"too many samples"}'
        return ranged({name: [[1000 + i, "5"] for i in range(10)] for name in ("n1", "n2")})

    pulled = pulled_from(one_fails, names=("gpu_duty", "gpu_power"))
    assert pulled.remarks == ("gpu_power is left out: it answered 422: too many samples",)
    assert np.isnan(pulled.telemetry.series("gpu_power")).all()
    assert (pulled.telemetry.series("gpu_duty") == 5).all()


def test_an_answer_that_declares_itself_incomplete_is_not_used():
    partial = ranged({"n1": [[1000, "5"]]}, warnings=["receive series from store-2: timeout"])
    with pytest.raises(TelemetryError, match="not whole: receive series from store-2: timeout"):
        pulled_from(lambda *_: partial)


def test_half_an_answer_makes_no_half_of_a_job_vanish():
    """Of three questions about a metric one fails: its nodes did not go silent."""
    nodes = tuple(f"n{number}" for number in range(600))

    def fails_for_some(_handler, form):
        if "POWER" in form["query"] and "n1|" in form["query"]:
            return 503, "text/plain", b"busy"
        return ranged({node: [[1000 + i, "5"] for i in range(10)] for node in nodes})

    with answering(fails_for_some) as url:
        source = reader(url, ["gpu_duty", "gpu_power"])
        pulled = source.pull(nodes, 1009.0, 899.0, step_s=1.0)
    assert pulled.remarks == ('gpu_power is left out: it answered 503: "busy"',)
    assert np.isnan(pulled.telemetry.series("gpu_power")).all()
    assert (pulled.telemetry.series("gpu_duty")[:, -10:] == 5).all()


def test_a_remark_on_promql_is_no_partial_answer():
    values = [[1000 + i, "5"] for i in range(10)]
    remark = 'PromQL info: metric might not be a counter: "node_ethtool_transmitted_prio3_pause"'
    pulled = pulled_from(lambda *_: ranged({"n1": values, "n2": values}, warnings=[remark]))
    assert pulled.remarks == ()
    assert (pulled.telemetry.series("gpu_duty") == 5).all()


def test_a_metric_whose_scrapes_cannot_be_counted_is_left_out_alone():
    def refuses(_handler, form):
        if "POWER" in form["query"]:
            return 422, "application/json", b'{"status":"error","error":"too many samples"}'
        if "count_over_time" in form["query"]:
            result = [{"metric": {}, "value": [1009, "120"]}]
            data = {"resultType": "vector", "result": result}
            return 200, "application/json", json.dumps({"status": "success", "data": data}).encode()
        return ranged({name: [[1000 + i, "5"] for i in range(10)] for name in ("n1", "n2")})

    with answering(refuses) as url:
        pulled = reader(url, ["gpu_duty", "gpu_power"]).pull(["n1", "n2"], 1009.0, 9.0)
    assert pulled.telemetry.step_s == 1
    assert pulled.remarks == ("gpu_power is left out: it answered 422: too many samples",)


def test_samples_out_of_order_twice_and_not_a_number_are_put_right():
    values = [[1003, "3"], [1000, "0"], [1001, "NaN"], [1002, "+Inf"], [1003, "4"], [5, "9"]]
    pulled = pulled_from(lambda *_: ranged({"n1:9100": values, "n9": [[1000, "1"]], "n2": []}))
    assert pulled.telemetry.series("gpu_duty")[0][:5].tolist()[:4] == [0, 0, 4, 4]
    assert np.isnan(pulled.telemetry.series("gpu_duty")[1]).all()
    assert pulled.remarks == ('1 of 2 nodes ("n2") reported nothing at all',)


def test_names_with_a_domain_or_a_port_are_the_nodes():
    values = [[1000 + i, "5"] for i in range(10)]
    pulled = pulled_from(lambda *_: ranged({"n1.site:9100": values, "n2": values}))
    assert pulled.remarks == ()


def test_questions_ask_for_the_nodes_with_the_token_and_are_never_too_large(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    asked = []

    def keep(handler, form):
        asked.append((handler.headers["Authorization"], handler.headers["X-Scope-OrgID"], form))
        return ranged({"n1": [[float(form["start"]), "5"]]})

    nodes = [f"n{number}" for number in range(100)]
    with answering(keep) as url:
        how = {"token_file": str(tmp_path / "token"), "headers": {"X-Scope-OrgID": "a"}}
        reader(url, ["gpu_duty"], **how).pull(nodes, 30_000.0, 30_000.0, step_s=1.0)
    assert {(token, tenant) for token, tenant, _ in asked} == {("Bearer secret", "a")}
    for _, _, form in asked:
        points = float(form["end"]) - float(form["start"]) + 1
        assert points <= 11_000
        assert points * form["query"].count("|") <= 250_000
    assert 'Hostname=~"(?:n' in asked[0][2]["query"]
    assert "[2000ms]" in asked[0][2]["query"]


def test_a_missing_or_empty_token_and_strange_nodes_are_refused_before_anything_is_asked(tmp_path):
    url = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(TelemetryError, match="holds no token"):
        reader(url, token_file=str(tmp_path / "empty")).now()
    with pytest.raises(TelemetryError, match="cannot read token_file"):
        reader(url, token_file=str(tmp_path / "none")).now()
    with pytest.raises(UsageError, match="is not a node name"):
        reader(url).pull(['n1"} or up{x="'], END, 900)
    with pytest.raises(UsageError, match="no Prometheus is configured"):
        Prometheus(SETTINGS)


texts = st.text(st.characters(codec="utf-8"), max_size=8)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        texts,
        st.lists(st.tuples(st.integers(0, 2000), st.floats().map(str)), max_size=4).map(list),
        max_size=4,
    )
)
def test_the_fast_reading_of_an_answer_is_the_plain_one(series):
    from anubis.text.fetching import HttpAnswer

    _, kind, body = ranged({name: [list(pair) for pair in pairs] for name, pairs in series.items()})
    fast = matrix(HttpAnswer(status=200, kind=kind, body=body), "instance")
    plain = _slow(body, "instance")
    assert fast.names == plain.names
    for name in ("counts", "times", "values"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_spoilt_answer_is_read_or_refused_in_a_sentence(data):
    from anubis.text.fetching import HttpAnswer

    values = [[1000 + i, "5.5"] for i in range(3)]
    _, kind, body = ranged({"n1": values, "n2": values})
    at = data.draw(st.integers(0, len(body)))
    cut = data.draw(st.integers(0, 30))
    spoilt = body[:at] + data.draw(st.binary(max_size=9)) + body[at + cut :]
    with suppress(TelemetryError):
        answer = matrix(HttpAnswer(status=200, kind=kind, body=spoilt), "instance")
        assert len(answer.times) == len(answer.values) == answer.counts.sum()
