"""An operator's desk for a test: a folder, a fresh ANUBIS_HOME and the real command. No asserts.

The programs here answer in milliseconds and know nothing of Anubis but the contract.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from anubis.config import catalog
from anubis.core.records import BenchmarkSpec
from anubis.report.schemas import schemas
from anubis.text import places
from tests.patience import LIMIT_S

ANUBIS = (sys.executable, "-m", "anubis")
ROOT = Path(__file__).parents[2]
MARK = "ANUBIS_TEST_DESK"

FLOW = """#!/bin/sh
# Measures nothing: its speed is what a file says.
for word in "$@"; do
    case $word in
    --describe)
        cat <<'DOCUMENT'
{"schema": "anubis.describe/1", "name": "flow", "version": "1", "summary": "Reads its own speed.",
 "stresses": "nothing", "reveals": "what the file says", "level": "micro", "scope": "node",
 "duration_s": 10, "metrics": [{"name": "speed", "unit": "m/s", "direction": "higher"}],
 "parameters": [{"name": "pace", "type": "str", "default": "", "summary": "the file"}]}
DOCUMENT
        exit ;;
    --pace=*) pace=${word#*=} ;;
    esac
done
cat <<DOCUMENT
{"schema": "anubis.result/1", "benchmark": "flow", "version": "1", "parameters": {"pace": "$pace"},
 "environment": {}, "duration_s": 1.0, "not_applicable": null,
 "series": [{"metric": "speed", "device": "cpu", "samples": [$(cat "$pace")]}]}
DOCUMENT
"""

SPIN = '''
"""Writes a line into a log when it begins, and waits at one of its runs until a gate is there."""
import json, pathlib, sys, time

if "--describe" in sys.argv:
    print(json.dumps({
        "schema": "anubis.describe/1", "name": "spin", "version": "1", "summary": "Keeps a log.",
        "stresses": "nothing", "reveals": "who ran it", "level": "micro", "scope": "node",
        "duration_s": 2.0, "metrics": [{"name": "turns", "unit": "1/s", "direction": "higher"}],
        "parameters": [
            {"name": "log", "type": "str", "default": "", "summary": "the log"},
            {"name": "waits_at", "type": "int", "default": 0, "summary": "the run that waits"},
        ],
    }))
    sys.exit()
given = dict(word[2:].split("=", 1) for word in sys.argv[1:])
log = pathlib.Path(given["log"])
with log.open("a") as file:
    file.write("began\\n")
if len(log.read_text().splitlines()) == int(given["waits_at"]):
    while not log.with_name("gate").exists():
        time.sleep(0.01)
print(json.dumps({
    "schema": "anubis.result/1", "benchmark": "spin", "version": "1",
    "parameters": {**given, "waits_at": int(given["waits_at"])},
    "environment": {}, "duration_s": 1.0, "not_applicable": None,
    "series": [
        {"metric": "turns", "device": "cpu", "samples": [100 + i / 1000 for i in range(900)]},
    ],
}))
'''


PROGRAMS = {"flow.sh": FLOW, "spin.py": SPIN}  # of every desk


@cache
def validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(schemas()[kind])


def check_line(line: dict[str, Any]) -> None:
    validator(line["type"]).validate(line)


Describe = Callable[[Sequence[Path]], list[BenchmarkSpec]]


def described_once() -> Describe:
    """A catalog's way to ask programs for their descriptions that asks each shipped one, and each
    that every desk has, only once."""
    ask, shipped = catalog.describe_all, places.shipped_folder("benchmarks")
    known: dict[str, BenchmarkSpec] = {}

    def key(file: Path) -> str:
        """Return what its description depends on; empty if each test may write another."""
        ours = PROGRAMS.get(file.name, "")
        return str(file) if file.parent == shipped else ours * (file.read_text() == ours)

    def told(files: Sequence[Path]) -> list[BenchmarkSpec]:
        keys = {file: key(file) for file in files}
        unknown = [file for file in files if keys[file] not in known]
        fresh = dict(zip(unknown, ask(unknown), strict=True))
        known.update((keys[file], spec) for file, spec in fresh.items() if keys[file])
        return [fresh[file] if file in fresh else known[keys[file]] for file in files]

    return told


NO_VERDICT = (2, 64)  # exit codes; tests/edges/test_exit_codes.py holds which means what


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """Its stdout as JSON Lines, each as its schema says; anything else in it raises."""
        lines = [json.loads(line) for line in self.out.splitlines()]
        for line in lines:
            check_line(line)
        return lines

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == "verdict"]

    @property
    def summary(self) -> dict[str, Any]:
        return self.lines[-1]


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name, text in PROGRAMS.items():
            self.program(name, text)
        self.pace = folder / "pace"
        self.pace.write_text("100, 101, 99, 100\n")
        self.log = folder / "log"
        self.gate = folder / "gate"
        unchosen = {name: value for name, value in os.environ.items() if name[:7] != "ANUBIS_"}
        self.environment = {
            **unchosen,
            "ANUBIS_HOME": str(self.home),
            "COLUMNS": "80",
            "PYTHONPATH": str(ROOT),
            MARK: str(folder),
        }

    @property
    def history(self) -> Path:
        return self.home / "history.sqlite"

    def program(self, name: str, text: str) -> Path:
        file = self.programs / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    def write(self, name: str, content: str | Mapping[str, object]) -> Path:
        """A file in the folder; what is no text is written as JSON, which is YAML as well."""
        file = self.folder / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    def suite(self, *entries: Mapping[str, object], name: str = "tiny.yaml") -> str:
        return str(self.write(name, {"summary": "for a test", "benchmarks": entries}))

    def flow(self, **more: object) -> dict[str, object]:
        return {
            "benchmark": "flow",
            "parameters": {"pace": str(self.pace)},
            "repeats": 3,
            **more,
        }

    def held_flow(self, **more: object) -> dict[str, object]:
        """It writes into the log when it begins, and waits until the gate is there."""
        wait = f"echo began >> {self.log}; while [ ! -e {self.gate} ]; do sleep 0.1; done"
        described, measures = FLOW.rsplit("cat <<DOCUMENT", 1)
        self.program("flow.sh", f"{described}{wait}\ncat <<DOCUMENT{measures}")
        return self.flow(**more)

    def spin(self, waits_at: int, **more: object) -> dict[str, object]:
        parameters = {"log": str(self.log), "waits_at": waits_at}
        return {"benchmark": "spin", "parameters": parameters, "repeats": 6, **more}

    def fleet(self, name: str = "fleet.yaml", **changes: object) -> str:
        """A simulated cluster without any trouble, but for the changes."""
        untroubled = {"nodes": "n[1-8]", "slow_share": 0.0, "spread": 0.001, "noise": 0.001}
        fleet = {"executor": "simulated", "fleet": {**untroubled, **changes}}
        return str(self.write(name, fleet))

    def run(self, *words: str) -> Done:
        done = subprocess.run(
            [*ANUBIS, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ask(self, verb: str, *words: str) -> Done:
        """`run` with this desk's programs."""
        return self.run(verb, *words, "--benchmarks", str(self.programs))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The same without waiting, in a session of its own as a terminal would have it."""
        interruptible = ["env", "--default-signal=INT"]  # also where a script began the tests
        return subprocess.Popen(
            [*interruptible, *ANUBIS, *words, "--benchmarks", str(self.programs)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def began(self) -> int:
        """Number of times that `spin` was begun."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def alive(self) -> list[int]:
        """Every process that came from this desk and still runs."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                ours = f"{MARK}={self.folder}".encode() in environ.read_bytes().split(b"\0")
                zombie = b") Z " in environ.with_name("stat").read_bytes()
            except OSError:
                continue
            if ours and not zombie:
                found.append(int(environ.parent.name))
        return found


def assert_refused(done: Done, *words: str) -> None:
    assert done.code in NO_VERDICT, done
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("anubis: error: ")
    for word in words:
        assert word in done.err
