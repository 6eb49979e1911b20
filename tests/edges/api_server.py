"""A real Kubernetes API server of one's own: etcd and kube-apiserver. It asserts nothing.

`with server(folder) as made: made.core("admin").list_node()`. No scheduler, no kubelet: nodes and
pods are objects that an administrator writes. scripts/build-apiserver makes both programs.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.edges.prometheus_server import free_port
from tests.patience import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "configs" / "kubernetes"
STARTED_S = 90.0
PEOPLE = {"admin": "system:masters", "kubectl": "system:masters", "kubelet": "system:masters"}
ACCOUNT = "system:serviceaccount:anubis:anubis"
# what the client may be asked for in the audit log, as a rule writes it
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}],
}
Document = Mapping[str, Any]


def programs() -> Path:
    """The folder of both programs; they are built if they are missing."""
    script = ROOT / "scripts" / "build-apiserver"
    built = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True)
    return Path(built.stdout.strip())


class Server:
    """A real API server, and clients of it by the name of their user."""

    def __init__(self, url: str, authority: Path, audit: Path, folder: Path) -> None:
        self.url, self.authority, self.audit, self.folder = url, authority, audit, folder

    def kubeconfig(self, user: str, token: str) -> str:
        file = self.folder / f"{user}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        document = {
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        }
        file.write_text(json.dumps(document))
        return str(file)

    def client(self, user: str) -> client.ApiClient:
        settings = client.Configuration(host=self.url)
        settings.ssl_ca_cert = str(self.authority)
        settings.api_key = {"authorization": f"Bearer {user}-token"}
        return client.ApiClient(settings)

    def core(self, user: str) -> Any:
        """Untyped, as are the documents that it is handed."""
        return client.CoreV1Api(self.client(user))


def make_certificates(folder: Path, *addresses: str) -> None:
    """An authority (ca.crt), and a certificate that it signs (tls.crt, tls.key) of this machine and
    of further addresses."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    own = ["-subj", "/CN=authority", "-out", "ca.crt", "-keyout", "ca.key"]
    words = [["req", "-x509", *curve, *own]]
    words += [["req", *curve, "-subj", "/CN=service", "-out", "tls.csr", "-keyout", "tls.key"]]
    names = ["DNS:anubis.anubis.svc", *(f"IP:{at}" for at in ("127.0.0.1", *addresses))]
    (folder / "names").write_text(f"subjectAltName={','.join(names)}\n")
    signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
    words += [["x509", "-req", "-in", "tls.csr", *signing, "-out", "tls.crt", "-days", "2"]]
    for line in words:
        subprocess.run(["openssl", *line], cwd=folder, check=True, capture_output=True)


@contextmanager
def running(folder: Path, words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{Path(words[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=folder)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def server(programs: Path, folder: Path) -> Iterator[Server]:
    etcd, peers, port = free_port(), free_port(), free_port()
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(
        "".join(f'{name}-token,{name},{name},"{group}"\n' for name, group in PEOPLE.items())
    )
    (folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT))
    audit = folder / "audit.log"
    certificates = folder / "certificates"
    store = [str(programs / "etcd"), f"--data-dir={folder / 'etcd'}"]
    store += [f"--listen-client-urls=http://127.0.0.1:{etcd}", "--log-level=error"]
    store += [f"--advertise-client-urls=http://127.0.0.1:{etcd}"]
    store += [f"--listen-peer-urls=http://127.0.0.1:{peers}"]
    api = [str(programs / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd}"]
    api += ["--advertise-address=192.0.2.1"]  # unused: else it looks for a default route
    api += ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={certificates}"]
    api += ["--authorization-mode=RBAC", f"--token-auth-file={folder / 'tokens.csv'}"]
    api += ["--service-account-issuer=https://anubis.test", "--endpoint-reconciler-type=none"]
    api += [f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"]
    api += ["--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount"]
    api += ["--allow-privileged=true"]  # as clusters with GPUs need
    api += [f"--audit-policy-file={folder / 'audit.yaml'}", f"--audit-log-path={audit}"]
    with running(folder, store), running(folder, api) as process:
        authority = certificates / "apiserver.crt"
        made = Server(f"https://127.0.0.1:{port}", authority, audit, folder)
        wait_for(made, process)
        yield made


def wait_for(made: Server, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + STARTED_S
    while True:
        try:
            made.core("admin").read_namespace("default", _request_timeout=5)
            client.RbacAuthorizationV1Api(made.client("admin")).read_cluster_role("system:node")
            return
        except Exception as trouble:  # not yet, whatever it says
            if process.poll() is not None or time.monotonic() > end:
                log = (made.folder / "kube-apiserver.log").read_text()[-2000:]
                raise SystemExit(f"kube-apiserver did not start ({trouble}):\n{log}") from None
            time.sleep(0.5)


def send(api: client.ApiClient, method: str, path: str, body: Any = None) -> Any:
    words = api.param_serialize(
        method=method,
        resource_path=path,
        query_params=[],
        header_params={"Accept": "application/json", "Content-Type": "application/json"},
        body=body,
        auth_settings=["BearerToken"],
    )
    reply = api.call_api(*words, _request_timeout=20)
    document = json.loads(reply.response.data)
    if not 200 <= reply.status < 300:
        raise ApiException(status=reply.status, reason=document.get("message"), body=str(document))
    return document


def manifests(pattern: str = "*.yaml") -> Iterator[Document]:
    """Documents of the files of configs/kubernetes/ whose names match."""
    files = sorted(MANIFESTS.glob(pattern), key=lambda file: (file.stem != "rights", file))
    for file in files:  # the rights bring the namespace
        yield from (document for document in yaml.safe_load_all(file.read_text()) if document)


def apply(made: Server, document: Document) -> str:
    """Apply a document of any kind as `kubectl apply` does; return why it was refused."""
    group, _, version = document["apiVersion"].rpartition("/")
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    kinds = send(made.client("admin"), "GET", root)["resources"]
    place = next((k for k in kinds if k["kind"] == document["kind"] and "/" not in k["name"]), None)
    if place is None:
        return f"no kind of {document['apiVersion']} here"
    space = document["metadata"].get("namespace", "default")
    root += f"/namespaces/{space}" if place["namespaced"] else ""
    try:
        kept = send(made.client("admin"), "POST", f"{root}/{place['name']}", body=document)
    except ApiException as refusal:
        return str(refusal.body)
    dropped = sorted(missing(document, kept))
    return f"fields that it does not know: {', '.join(dropped)}" if dropped else ""


def missing(sent: Any, kept: Any, at: str = "") -> Iterator[str]:
    """Fields that were sent and not kept: the server drops those that it does not know."""
    if isinstance(sent, Mapping):
        for key, value in sent.items():
            if key not in kept:
                if value != "":  # an empty text is as good as none
                    yield f"{at}.{key}"
            else:
                yield from missing(value, kept[key], f"{at}.{key}")
    elif isinstance(sent, list):
        for number, (value, other) in enumerate(zip(sent, kept, strict=False)):
            yield from missing(value, other, f"{at}[{number}]")


def config(made: Server) -> client.Configuration:
    settings = client.Configuration(host=made.url)
    settings.ssl_ca_cert = str(made.authority)
    settings.api_key = {"authorization": f"Bearer {account_token(made)}"}
    return settings


def account_token(made: Server) -> str:
    path = "/api/v1/namespaces/anubis/serviceaccounts/anubis/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(send(made.client("admin"), "POST", path, body)["status"]["token"])


H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8"}


def version(made: Server) -> str:
    return str(client.VersionApi(made.client("admin")).get_code().git_version)


def add_node(core: Any, name: str, labels: Mapping[str, str] = H100) -> None:
    core.create_node({"metadata": {"name": name, "labels": labels}})
    ready = {"type": "Ready", "status": "True", "reason": "Posing", "message": "no kubelet"}
    core.patch_node_status(name, {"status": {"conditions": [ready]}})
