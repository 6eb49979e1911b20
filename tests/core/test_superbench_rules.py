"""Patterns of rules: they match as Python's own engine does, in linear time for any pattern."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anubis.readers.superbench.rules import Pattern

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        ".",
        r"\d",
        r"\w",
        r"\S",
        "[ab]",
        "[^a]",
        "[a-c1]",
        "^",
        "$",
        r"\.",
        "(?:)",
        r"[^\d]",
    ]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{2,}"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda parts: f"({parts[0]}|{parts[1]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=200)
@given(PATTERNS, st.text("ab1.c", max_size=7))
def test_a_pattern_matches_as_python_does(pattern: str, name: str):
    assert Pattern(pattern).search(name) == bool(re.search(pattern, name))


def test_a_pattern_that_takes_python_for_ever_takes_no_time():
    for hostile in (r"(a+)+b", r"(a|a)*b", r".*.*.*.*.*.*.*.*b", r"(a{1,20}){1,20}b"):
        pattern = Pattern(hostile)
        assert not pattern.search("a" * 3000)
        assert pattern.search("a" * 3000 + "b")
        assert len(pattern._steps) < 3000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (r"(?=a)b", "looks around or back"),
        (r"(a)\1", "looks around or back"),
        (r"\bgemm", "looks around or back"),
        (r"(?i)gemm", "has flags"),
        (r"(?i:gemm)", "looks around or back"),
        ("(a{1000}){1000}", "is too large"),
        ("(", "is not a pattern"),
        ("(" * 5000, "is not a pattern"),
        ("a{99999999999999999999}", "is not a pattern"),
    ],
)
def test_a_pattern_that_needs_backtracking_is_refused(text: str, why: str):
    with pytest.raises(ValueError, match=why):
        Pattern(text)
