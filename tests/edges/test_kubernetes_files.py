"""Files that an operator applies to a Kubernetes cluster.

scripts/studies/try-kubernetes applies them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import jsonschema
import pytest
import typer.main
import yaml

import anubis
from anubis.cli.main import app
from anubis.config import configs
from anubis.report.json import json_line
from anubis.service.requests import GateBody, read_request
from tests.edges.test_service_tls import make as make_certificate

ROOT = Path(__file__).parents[2]
make_manifests = SimpleNamespace(**run_path(str(ROOT / "scripts" / "make-manifests")))
FOLDER = ROOT / "configs" / "kubernetes"
CHART = ROOT / "charts" / "anubis"
FILES = sorted(FOLDER.glob("*.yaml"))
DOCUMENTS = [(file.name, d) for file in FILES for d in yaml.safe_load_all(file.read_text())]


def named(kind: str) -> set[str]:
    return {d["metadata"]["name"] for _, d in DOCUMENTS if d["kind"] == kind}


def pods() -> list[dict]:
    return [d["spec"]["template"]["spec"] for _, d in DOCUMENTS if "template" in d.get("spec", {})]


def own_pods() -> list[dict]:
    """Pods except those of an operator's own jobs, which only show the place of the gate."""
    documents = [d for _, d in DOCUMENTS if d["kind"] != "Job"]
    return [d["spec"]["template"]["spec"] for d in documents if "template" in d.get("spec", {})]


def containers() -> list[dict]:
    return [c for pod in pods() for c in (*pod["containers"], *pod.get("initContainers", ()))]


def part(kind: str, name: str) -> dict:
    return next(d for _, d in DOCUMENTS if (d["kind"], d["metadata"]["name"]) == (kind, name))


def test_everything_but_an_operators_own_jobs_is_in_the_namespace_of_anubis():
    """Pods there are no work: a worker of ours on a node must not keep it from being measured."""
    for file, document in DOCUMENTS:
        if document["kind"] in ("DaemonSet", "Deployment", "Service"):
            assert document["metadata"]["namespace"] == "anubis", file


def test_mounts_and_accounts_of_a_pod_are_in_the_files_or_in_their_comments():
    comments = "".join(file.read_text() for file in FILES)
    for pod in pods():
        for volume in pod.get("volumes", ()):
            if "configMap" in volume:
                assert volume["configMap"]["name"] in named("ConfigMap")
            if "secret" in volume:
                assert f"create secret generic {volume['secret']['secretName']} " in comments
        if account := pod.get("serviceAccountName"):
            assert account in named("ServiceAccount")
        inside = (*pod["containers"], *pod.get("initContainers", ()))
        mounted = {m["name"] for c in inside for m in c.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}


@pytest.mark.parametrize("pod", own_pods(), ids=str)
def test_a_pod_has_no_right_that_it_does_not_need(pod):
    """What the strictest of Kubernetes' own standards asks, but the network of the agent's node."""
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod.get("automountServiceAccountToken") is False or "serviceAccountName" in pod
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"].keys() == {"requests", "limits"}
    for container in pod["containers"]:
        assert {"startupProbe", "livenessProbe"} <= container.keys()


def test_selectors_match_the_pods_of_the_service_or_of_the_agent():
    made = [d["spec"] for _, d in DOCUMENTS if d["kind"] in ("Deployment", "DaemonSet")]
    labels = [spec["template"]["metadata"]["labels"] for spec in made]
    assert [spec["selector"]["matchLabels"] for spec in made] == labels
    service = part("Deployment", "anubis")["spec"]["template"]["metadata"]["labels"]
    assert part("Service", "anubis")["spec"]["selector"] == service
    assert part("NetworkPolicy", "anubis")["spec"]["podSelector"] == {"matchLabels": service}


def test_the_network_policy_admits_the_ports_of_service_and_cluster():
    cluster = yaml.safe_load(part("ConfigMap", "anubis-clusters")["data"]["prod.yaml"])
    first, _, last = cluster["ports"].partition("-")
    rules = part("NetworkPolicy", "anubis")["spec"]["ingress"]
    ports = [(port["port"], port.get("endPort")) for rule in rules for port in rule["ports"]]
    (served,) = part("Service", "anubis")["spec"]["ports"]
    assert ports == [(served["port"], None), (int(first), int(last))]


def test_the_cluster_of_the_files_is_one_that_anubis_reads(tmp_path):
    file = tmp_path / "prod.yaml"
    file.write_text(part("ConfigMap", "anubis-clusters")["data"]["prod.yaml"])
    cluster = configs.cluster(str(file))
    assert isinstance(cluster, configs.RayCluster)
    assert cluster.orchestrator is not None
    assert cluster.name == "prod"


def test_the_image_has_a_fixed_base_and_the_user_that_the_pods_run_as():
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    contexts = [pod["securityContext"] for pod in pods() if "securityContext" in pod]
    users = {context["runAsUser"] for context in contexts}
    assert {context["seccompProfile"]["type"] for context in contexts} == {"RuntimeDefault"}
    assert users == {int(re.findall(r"^USER (\d+)$", text, re.MULTILINE)[-1])} == {10001}


def test_the_image_is_built_of_the_content_of_the_wheel_only():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], *project["project"]["license-files"]}
    needed |= {"README.md", "hatch_build.py", "pyproject.toml", "requirements.lock"}
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == needed


def test_the_image_is_healthy_unless_it_serves_and_does_not_answer(tmp_path):
    (written,) = re.findall(
        r"^HEALTHCHECK .* CMD (\[.+\])$", (ROOT / "Dockerfile").read_text(), re.M
    )
    first = tmp_path / "cmdline"  # of the container's first process
    words = json.loads(written.replace("/proc/1/cmdline", str(first)))

    def is_healthy(*command: str) -> bool:
        first.write_text("\0".join(["python", "anubis", *command, ""]))
        proxied = {**os.environ, "http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run([sys.executable, *words[1:]], env=proxied, capture_output=True)
        return done.returncode == 0

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

    assert words[0] == "python"
    assert is_healthy("agent")
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as service:
        port = str(service.server_port)
        serving = threading.Thread(target=service.serve_forever)
        serving.start()
        assert is_healthy("serve", "--port", port)
        assert is_healthy("serve", f"--port={port}")
        assert not is_healthy("serve", "--port", port, "--certificate=x")  # HTTPS is asked for
        service.shutdown()
        serving.join()
    assert not is_healthy("serve", "--port", port)


def test_the_installer_of_the_image_is_locked_by_hashes():
    """As the Dockerfile and scripts/setup take it out of the lock."""
    words = ["sed", "-n", r"/^uv==/,/[^\\]$/p", ROOT / "requirements.lock"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[2] in (ROOT / "Dockerfile").read_text()
    assert words[2] in (ROOT / "scripts" / "setup").read_text()
    assert len(shown) > 1
    assert all(line.lstrip().startswith("--hash=sha256:") for line in shown[1:])


def commands() -> list[str]:
    texts = [file.read_text().replace("\\\n#", " ") for file in FILES]
    lines = {line for text in texts for line in text.splitlines()}
    typed = {m[1] for line in lines if (m := re.search(r"(?:-- |exec |^ *)(anubis .*)$", line))}
    started = [[*c.get("command", ()), *c.get("args", ())] for c in containers()]
    return sorted(typed | {shlex.join(words) for words in started if words[:1] == ["anubis"]})


@pytest.mark.parametrize("line", commands())
def test_every_command_of_anubis_in_them_is_one_that_its_verb_takes(line):
    words = shlex.split(line)[1:]
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context("anubis", words)


# --- the chart ----------------------------------------------------------------------------


def test_the_files_are_made_of_the_chart_as_it_is():
    made = [file for file in FILES if file.name in {t.name for t in CHART.glob("templates/*")}]
    assert len(made) > 4
    for file in made:
        assert file.read_text().splitlines()[0] == make_manifests.first_line(), file.name


def test_the_chart_is_of_this_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == anubis.__version__
    assert chart["version"] == re.sub(r"(?<=\d)(a|b|rc)(?=\d)", r"-\1", anubis.__version__)


def test_each_value_of_the_chart_is_documented_and_checked_and_no_other_is_taken():
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load(text)
    jsonschema.validate(values, schema)
    for name, table in values.items():
        known = schema["properties"][name]
        if isinstance(table, dict):
            assert set(known["properties"]) == set(table)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({**values, name: {**table, "mistyped": 1}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**values, "mistyped": 1}, schema)
    for block in re.split(r"\n\n", text)[1:]:
        assert block.startswith("# ") or "\n  # " in block, block


RENDERED = {
    "as it is": (),
    "measures nothing": ("measure.enabled=false",),
    "PostgreSQL, a claim of one's own": ("history.secret=db", "storage.claim=mine"),
    "HTTPS": ("tls.certManager=true", "service.names={anubis.example.com}"),
    "other names": ("cluster.name=east", "image.pullSecrets={registry}", "agent.enabled=true"),
}


@pytest.mark.skipif(not shutil.which("helm"), reason="helm is not installed")
@pytest.mark.parametrize("values", RENDERED.values(), ids=RENDERED)
def test_helm_renders_files_that_anubis_reads(values, tmp_path):
    documents = list(yaml.safe_load_all(make_manifests.render(*values)))
    (table,) = [d["data"] for d in documents if d["kind"] == "ConfigMap"]
    for name, text in table.items():
        (tmp_path / name).write_text(text)
        assert configs.cluster(str(tmp_path / name)).orchestrator is not None
    assert "claim" not in str(values) or "PersistentVolumeClaim" not in {
        d["kind"] for d in documents
    }


@pytest.mark.skipif(not shutil.which("helm"), reason="helm is not installed")
def test_helm_renders_the_files():
    for name, text in make_manifests.files_in(
        make_manifests.render(*make_manifests.VALUES)
    ).items():
        assert (FOLDER / name).read_text() == f"{make_manifests.first_line()}\n{text}"


# --- the gate -----------------------------------------------------------------------------


class Gate:
    """Answers as the service does, or not at all."""

    def __init__(self) -> None:
        self.answer, self.pause_s, self.status = "go", 0.0, 200
        self.requests: list[tuple[str, dict]] = []

    def handler(self) -> type[BaseHTTPRequestHandler]:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                gate.requests.append((self.headers["Authorization"], body))
                time.sleep(gate.pause_s)
                text = json_line("gate", {"answer": gate.answer, "nodes": body["nodes"]}).encode()
                self.send_response(gate.status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                with suppress(OSError):  # who asked has gone
                    self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def gate():
    gate = Gate()
    server = ThreadingHTTPServer(("127.0.0.1", 0), gate.handler())
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    gate.server = server
    gate.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield gate
    server.shutdown()
    thread.join()
    server.server_close()


def ask(url: str, **choice: str) -> subprocess.CompletedProcess[str]:
    """The container as it runs, with the env of the job in the file."""
    pod = part("Job", "example-with-gate")["spec"]["template"]["spec"]
    container = pod["initContainers"][0]
    env = {line["name"]: line.get("value", "node007") for line in container["env"]}
    env |= {"ANUBIS": url, "TOKEN": "the-token", "DEADLINE_S": "5"} | choice
    return subprocess.run(
        container["command"], env=env | {"PATH": os.environ["PATH"]}, capture_output=True, text=True
    )


needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


@needs_curl
def test_a_job_begins_if_the_gate_says_go(gate):
    done = ask(gate.url, WHEN_SILENT="wait", WHEN_UNKNOWN="wait")
    assert (done.returncode, done.stdout) == (0, "anubis: go: node007\n")
    [(token, body)] = gate.requests
    assert token == "Bearer the-token"
    request = read_request(json.dumps(body).encode(), "application/json", GateBody)
    assert request == GateBody(nodes=["node007"], duration_s=86400.0, cluster="prod")


@needs_curl
def test_a_job_never_begins_if_the_gate_says_no_go(gate):
    gate.answer = "no-go"
    done = ask(gate.url, WHEN_SILENT="start", WHEN_UNKNOWN="start")
    assert done.returncode == 1
    assert done.stdout.startswith("anubis: no-go: node007: ")


@needs_curl
@pytest.mark.parametrize(("choice", "code"), [("start", 0), ("wait", 1)])
def test_the_answer_to_an_unknown_node_is_a_choice(gate, choice, code):
    gate.answer = "unknown"
    opposite = "wait" if choice == "start" else "start"
    done = ask(gate.url, WHEN_UNKNOWN=choice, WHEN_SILENT=opposite)
    assert done.returncode == code
    assert f"does not know node007 well enough, so the job is told to {choice}" in done.stdout


@needs_curl
@pytest.mark.parametrize(("choice", "code"), [("start", 0), ("wait", 1)])
@pytest.mark.parametrize("trouble", ["dead", "slow", "error"])
def test_the_answer_to_a_silent_service_is_a_choice(gate, choice, code, trouble):
    opposite = "wait" if choice == "start" else "start"
    limits = {"WHEN_SILENT": choice, "WHEN_UNKNOWN": opposite, "DEADLINE_S": "5"}
    url = gate.url
    if trouble == "dead":
        url = "http://127.0.0.1:1"
    elif trouble == "slow":
        gate.pause_s, limits["DEADLINE_S"] = 0.8, "0.3"
    else:
        gate.answer, gate.status = "nothing", 503
    done = ask(url, **limits)
    assert done.returncode == code
    assert f"so the job is told to {choice}" in done.stdout


@needs_curl
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_a_gate_trusts_the_authority_that_it_was_given_and_no_other(gate, tmp_path):
    file, key = make_certificate(tmp_path, "127.0.0.1")
    other, _ = make_certificate(tmp_path, "127.0.0.2")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    gate.server.socket = context.wrap_socket(gate.server.socket, server_side=True)
    url = gate.url.replace("http:", "https:")
    trusting = ask(url, AUTHORITY=file.read_text().strip(), WHEN_SILENT="wait")
    assert (trusting.returncode, trusting.stdout) == (0, "anubis: go: node007\n")
    assert ask(url, AUTHORITY=other.read_text(), WHEN_SILENT="wait").returncode == 1


def test_the_file_of_the_gate_equals_the_container_that_the_service_adds():
    assert (FOLDER / "gate.yaml").read_text() == make_manifests.gate_file()
