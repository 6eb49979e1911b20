"""No test depends on the pace of the machine: it waits for facts, and by the one long limit."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.patience import LIMIT_S

TESTS = Path(__file__).parent
FILES = sorted(file for file in TESTS.rglob("*.py") if "hostile" not in file.parts)
WAITS = {"communicate", "join", "result", "run", "urlopen", "wait", "Barrier"}
CLOCKS = {"monotonic", "perf_counter", "process_time", "time"}
# cheap looks that save parsing files in which a rule cannot find anything
GIVEN = re.compile(r"timeout\s*=\s*[\d.]|\b(join|result|wait)\(\s*[\d.]")
CLOCKED = re.compile(rf"\.({'|'.join(CLOCKS)})\(")


def limits(tree: ast.AST) -> Iterator[ast.expr]:
    """Seconds handed to what waits for a process or an answer. Less than one is a pause."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        given = [word.value for word in call.keywords if word.arg == "timeout"]
        if name in {"join", "result", "wait"}:
            given += call.args[:1]
        for limit in given:
            if name in WAITS and isinstance(limit, ast.Constant) and is_short(limit.value):
                yield limit


def is_short(limit_s: object) -> bool:
    return isinstance(limit_s, int | float) and 1 <= limit_s < LIMIT_S


def timings(tree: ast.AST) -> Iterator[ast.expr]:
    """Assertions about how long something took."""
    for claim in ast.walk(tree):
        if isinstance(claim, ast.Assert):
            differences = (part for part in ast.walk(claim.test) if isinstance(part, ast.BinOp))
            yield from (each for each in differences if is_lapse(each))


def is_lapse(difference: ast.BinOp) -> bool:
    calls = [part for part in (difference.left, difference.right) if isinstance(part, ast.Call)]
    clocks = [call for call in calls if getattr(call.func, "attr", "") in CLOCKS]
    return isinstance(difference.op, ast.Sub) and bool(clocks)


def found_by(rule: Callable[[ast.AST], Iterator[ast.expr]], sign: re.Pattern[str]) -> list[str]:
    texts = {file.relative_to(TESTS): file.read_text() for file in FILES}
    return [
        f"tests/{file}:{each.lineno}: {ast.unparse(each)}"
        for file, text in texts.items()
        if sign.search(text)
        for each in rule(ast.parse(text))
    ]


def test_each_wait_has_the_one_long_limit():
    assert found_by(limits, GIVEN) == [], "take tests.patience.LIMIT_S: a busy machine is slow"


def test_no_test_asserts_a_duration():
    assert found_by(timings, CLOCKED) == [], "wait for a fact, hand in a clock, or count"
