"""The doors of the agents on nodes: many are asked side by side, each within its deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from anubis.core.errors import TelemetryError, UsageError
from anubis.readers.telemetry.config import AgentSettings
from anubis.readers.telemetry.fetching import HttpQuestion, fetch
from anubis.text import files
from anubis.text.hostlist import is_name

T = TypeVar("T")
AT_ONCE = 32  # agents, each by a thread
MOST_BYTES = 8 << 20  # of one answer: 20 minutes of all metrics are half a MiB


class AgentDoors:
    def __init__(self, place: AgentSettings) -> None:
        self._place = place

    def ask_all(
        self,
        nodes: Iterable[str],
        path: str,
        read: Callable[[bytes], T],
        bodies: Mapping[str, bytes] | None = None,
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Return what was read of the answers, and why there is none of the other nodes. `bodies`:
        by node, what is sent."""
        headers = self._headers()
        answers, reasons = {}, {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            pending = {
                node: pool.submit(self._ask, node, path, read, headers, (bodies or {}).get(node))
                for node in nodes
            }
            for node, future in pending.items():
                try:
                    answers[node] = future.result()
                except TelemetryError as cause:
                    reasons[node] = str(cause)
        return answers, reasons

    def _ask(
        self,
        node: str,
        path: str,
        read: Callable[[bytes], T],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> T:
        if not is_name(node):
            raise UsageError(f'"{node}" is not a node name')
        answer = fetch(
            HttpQuestion(
                url=f"http://{node}:{self._place.port}{path}",
                deadline_s=self._place.deadline_s,
                body=body,
                headers=headers,
                most_bytes=MOST_BYTES,
            )
        )
        if answer.status == 401:
            raise TelemetryError("it wants another token")
        if answer.status != 200:
            raise TelemetryError(f"it answered {answer.status}")
        return read(answer.body)

    def _headers(self) -> dict[str, str]:
        if not self._place.token_file:
            return {}
        named = f'token_file "{self._place.token_file}"'
        token = files.read_text(Path(self._place.token_file), TelemetryError, named, 1 << 16)
        return {"Authorization": f"Bearer {token.strip()}"}
