"""Start verbs in processes of their own: they survive the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from anubis.operations.requests import KeepRequest
from anubis.text import places


def begin(words: Sequence[str], history_url: str, name: str) -> subprocess.Popen[bytes]:
    """Start `anubis` with these words. Its answer and its remarks go to files of this name."""
    folder = places.home() / "service"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / f"{name}.jsonl").open("wb") as out, (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "anubis", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            env={**os.environ, "ANUBIS_HISTORY": history_url},
            start_new_session=True,  # it continues when the starting process ends
        )


def keep_words(request: KeepRequest) -> list[str]:
    """Words of an `anubis keep` that keeps the same cluster."""
    words = ["keep", "--json"]
    words += ["--keeping", request.keeping] if request.keeping else []
    words += ["--cluster", request.cluster] if request.cluster else []
    words += ["--service", request.service] if request.service else []
    for folder in request.benchmarks:
        words += ["--benchmarks", str(folder)]
    return words
