"""A real Prometheus in the network of its caller. No asserts about Anubis."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.patience import LIMIT_S, eventually


def free_port() -> int:
    with socket.socket() as knock:
        knock.bind(("127.0.0.1", 0))
        return int(knock.getsockname()[1])


@contextmanager
def running(
    folder: Path,
    settings: Mapping[str, object],
    *,
    port: int | None = None,
    options: Sequence[str] = (),
) -> Iterator[str]:
    """Its address, once it answers. The folder gets its settings and its log, and has or gets its
    blocks under `tsdb`."""
    (folder / "prometheus.yaml").write_text(json.dumps(settings))  # which YAML reads as well
    url, log = f"http://127.0.0.1:{port or free_port()}", folder / "prometheus.log"
    words = ["prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=tsdb"]
    words += [f"--web.listen-address={url[7:]}", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(words, cwd=folder, stdout=file, stderr=file)
        try:
            eventually(lambda: process.poll() is not None or answers(url))
            if process.poll() is not None or not answers(url):
                raise AssertionError(f"Prometheus did not come up:\n{log.read_text()[-2000:]}")
            yield url
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/-/ready", timeout=LIMIT_S):
            return True
    except OSError:
        return False
