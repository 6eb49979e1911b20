"""Start verbs in processes of their own: they survive the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

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


def keep_words(
    cluster: str | None, keeping: str | None, benchmarks: Iterable[Path], service: str
) -> list[str]:
    """Words of an `anubis keep` that keeps the same cluster."""
    words = ["keep", "--json"]
    words += ["--keeping", keeping] if keeping else []
    words += ["--cluster", cluster] if cluster else []
    words += ["--service", service] if service else []
    return [*words, *(word for folder in benchmarks for word in ("--benchmarks", str(folder)))]
