"""Hosts that no scheduler has, with a tool of their operator's, as a site may have one. No asserts.

Jobs and cordons are files in a folder of each host's name; a host without one is not there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from anubis.reach.orchestrators.site_commands import run_command
from tests.patience import LIMIT_S

BY_HAND = "memory swap, Jo"
TOOL = """#!/bin/sh
# VERB HOST: jobs, cordoned, cordon (the reason on stdin), release; run HOST PROGRAM: a job.
cd "$(dirname "$0")/hosts/$2" 2>/dev/null || { echo "no host $2"; exit 7; }
case $1 in
jobs) cat job 2>/dev/null || true ;;
cordoned) cat out 2>/dev/null || true ;;
cordon) cat > out ;;
release) rm -f out ;;
run) [ ! -e out ] || { echo "out: $(cat out)"; exit 1; }
  echo "4711 jo" > job; "$3"; code=$?; rm job; exit $code ;;
esac
"""


class SiteHosts:
    """The tool, and an operator at it."""

    name = "the hosts' tool"

    def __init__(
        self,
        folder: Path,
        way: Sequence[str] = (),
        into: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        """`way`: words before a command that lead to {node}; `into`: those to a host, for a job."""
        folder.mkdir()
        self._folder, self._way, self._into = folder, tuple(way), into
        self._tool = folder / "hosts-tool"
        self._tool.write_text(TOOL)
        self._tool.chmod(0o755)
        (folder / "hosts").mkdir()

    def commands(self) -> dict[str, tuple[str, ...]]:
        """Commands as in the orchestrator's file."""
        verbs = ("jobs", "cordoned", "cordon", "release")
        return {verb: (*self._way, str(self._tool), verb, "{node}") for verb in verbs}

    def add(self, node: str) -> None:
        (self._folder / "hosts" / node).mkdir()

    def shown(self, node: str) -> str:
        return self.reason(node) or "takes jobs"

    def reason(self, node: str) -> str:
        return run_command([str(self._tool), "cordoned", node], 10).strip()

    def takes_jobs(self, node: str) -> bool:
        return not self.reason(node)

    def cordon(self, node: str) -> None:
        run_command([str(self._tool), "cordon", node], 10, stdin=BY_HAND)

    def runs_a_job(self, node: str) -> str:
        command = [*self._into(node), str(self._tool), "run", node, "true"]
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S)
        return f"a job on {node} ran" if done.returncode == 0 else ""
