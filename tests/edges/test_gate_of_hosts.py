"""The gate before a job on a real small cluster: hosts with Ray, and programs that only echo."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from anubis.core.past.status import Incident
from anubis.store.history import History
from tests.edges.bed import Bed, why_not

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.ray,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

ECHO = """#!/bin/sh
# Measures nothing: its speed is what a file of this host says, or 100.
if [ "$1" = --describe ]; then
  echo '{"schema": "anubis.describe/1", "name": "NAME", "version": "1", "summary": "echoes",
    "stresses": "nothing", "reveals": "what a file says", "level": "micro", "scope": "node",
    "duration_s": 1, "metrics": [{"name": "rate", "unit": "1/s", "direction": "higher"}]}'
else
  echo '{"schema": "anubis.result/1", "benchmark": "NAME", "version": "1", "parameters": {},
    "series": [{"metric": "rate", "device": "cpu", "samples": ['\
$(cat FOLDER/NAME.$(hostname) 2>/dev/null || echo 100, 101)']}]}'
fi
"""
MAPPING = "{records: intervals, node: node, category: category, start: start, end: end, zone: UTC}"


class Site:
    """The files of one operator, and `anubis` as a command in the driver's host."""

    def __init__(self, folder: Path, bed: Bed) -> None:
        self.folder, self.bed = folder, bed
        self.home = folder / "home"
        programs = folder / "programs"
        programs.mkdir()
        for name in ("flow", "pulse"):
            file = programs / f"{name}.sh"
            file.write_text(ECHO.replace("NAME", name).replace("FOLDER", str(folder)))
            file.chmod(0o755)
        entries = "{benchmark: flow, repeats: 2}, {benchmark: pulse, repeats: 2}"
        (folder / "two.yaml").write_text(f"{{summary: two, benchmarks: [{entries}]}}")
        (folder / "how.yaml").write_text(MAPPING)

    def anubis(self, *words: str) -> tuple[int, list[dict]]:
        """The exit code, and what it said in JSON."""
        command = ["env", f"ANUBIS_HOME={self.home}", sys.executable, "-m", "anubis", *words]
        done = self.bed.run("driver", [*command, "--json"], check=False, timeout=180)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def ask(self, *words: str) -> tuple[int, list[dict]]:
        where = ("--cluster=ray", f"--suite={self.folder}/two.yaml")
        return self.anubis(*words, *where, f"--benchmarks={self.folder}/programs")

    def campaigns(self) -> list[str]:
        with self.history() as history:
            return [row.id for row in history.campaigns.newest(limit=99)]

    def history(self) -> History:
        return History.open(str(self.home / "history.sqlite"))


def test_incidents_on_one_host_have_it_alone_tested_by_what_found_their_category(tmp_path):
    with Bed(3) as bed:
        site = Site(tmp_path, bed)
        slow = tmp_path / "pulse.node2"
        slow.write_text("50, 51")
        code, told = site.ask("accept")
        assert (code, told[-1]["defective"]) == (1, ["node2"])
        with site.history() as history:
            now = time.time()
            history.only().incidents.add(
                [Incident(node="node2", category="network", start=now, end=now)]
            )
        slow.unlink()
        assert site.ask("validate")[0] == 0

        before = site.campaigns()
        code, told = site.ask("gate", "node[1-3]", "--duration=24h")
        assert (code, told[-1]["answer"], told[0]["action"]) == (0, "go", "skip")
        assert site.campaigns() == before

        rows = [
            f"node3,network,{spelled(at)},{spelled(at + 0.001)}"
            for at in (time.time() - i for i in (0.1, 0.2, 0.3))
        ]
        file = tmp_path / "incidents.csv"
        file.write_text("\n".join(["node,category,start,end", *rows]))
        code, told = site.anubis("import", "incidents", str(file), f"--mapping={tmp_path}/how.yaml")
        assert (code, told[0]["new"]) == (0, 3)

        code, (decision, *verdicts, gate) = site.ask("gate", "node[1-3]", "--duration=24h")
        (test,) = decision["tests"]
        assert (test["benchmark"], test["nodes"]) == ("pulse", ["node3"])
        assert "a defect is presumed on node3" in decision["why"]
        assert {v["node"] for v in verdicts if v["type"] == "verdict"} == {"node3"}
        assert (code, gate["answer"]) == (0, "go")
        (campaign,) = set(site.campaigns()) - set(before)
        with site.history() as history:
            measured = history.executions.of(campaign)
        assert {(e.step.workload.benchmark, e.step.participants) for e in measured} == {
            ("pulse", ("node3",))
        }


def spelled(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
