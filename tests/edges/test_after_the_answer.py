"""Once an answer is given, nothing that follows changes the exit code; and a bug is not hidden."""

from __future__ import annotations

import pytest

from anubis.core.errors import ExecutorError
from anubis.reach.executors.simulated import SimulatedExecutor

STANDS = "the answer above is valid; what followed it failed"


def fail_at_the_end(monkeypatch, error: BaseException) -> None:
    def close(_executor: SimulatedExecutor) -> None:
        raise error

    monkeypatch.setattr(SimulatedExecutor, "close", close)


def accept(near, **changes):
    suite = near.suite({"benchmark": "gemm"})
    return near.run("accept", "--cluster", near.fleet(**changes), "--suite", suite, "--json")


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ExecutorError("the head of ray is gone"), f"{STANDS}: the head of ray is gone"),
        (BrokenPipeError(32, "Broken pipe"), f"{STANDS}: [Errno 32] Broken pipe"),
        (KeyboardInterrupt(), ""),
    ],
)
def test_trouble_while_nodes_are_released_is_one_sentence_and_keeps_the_exit_code(
    near, monkeypatch, error, sentence
):
    fail_at_the_end(monkeypatch, error)
    done = accept(near)
    assert (done.code, len(done.summary["healthy"])) == (0, 8)
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_a_bug_after_the_answer_is_shown_and_the_answer_remains(near, monkeypatch):
    fail_at_the_end(monkeypatch, TypeError("an agent is no number"))
    done = accept(near, slow_share=0.2)
    assert (done.code, bool(done.summary["defective"])) == (1, True)
    assert "Traceback" in done.err
    assert f"{STANDS} by a bug in Anubis: please report the lines above" in done.err


def test_before_an_answer_a_bug_is_no_verdict(near, monkeypatch):
    def break_down(*_: object) -> None:
        raise TypeError("an agent is no number")

    monkeypatch.setattr(SimulatedExecutor, "wait", break_down)
    done = accept(near)
    assert (done.code, done.out) == (2, "")
    assert "this is a bug in Anubis, and no verdict" in done.err
