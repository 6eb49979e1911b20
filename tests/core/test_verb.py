"""The options of a verb are the fields of its request, with the values of the command line."""

# no postponed annotations: `verb` reads them
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Annotated

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from anubis.cli import amounts
from anubis.cli.options import Json
from anubis.cli.verb import verb
from anubis.core.errors import UsageError
from anubis.operations.requests import FlagWord, NodeList, Option

BIG, SMALL = FlagWord("big", "--big", "Big."), FlagWord("small", "--small", "Small.")


@dataclass(frozen=True)
class Order:
    nodes: NodeList = None
    over_s: Annotated[float | None, Option(flags=("--over",), least=1.0)] = None
    is_kind: Annotated[bool, Option(flags=("--rude",), help="Not kind.")] = True
    folders: Annotated[Sequence[Path], Option(flags=("--folder", "-f"))] = ()
    size: Annotated[str, Option(words=(BIG, SMALL))] = "small"
    unasked: str = field(default="as it was")


HEARD: list[tuple[Order, bool]] = []


@verb
def order(request: Order, json: Json = False) -> None:
    """Order something."""
    HEARD.append((request, json))


@pytest.fixture
def ask():
    """The record that these words make."""
    app = typer.Typer()
    app.command()(order)
    HEARD.clear()

    def ask(*words: str) -> Order:
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return HEARD[-1][0]

    return ask


def test_an_option_that_is_not_given_keeps_the_default_of_the_record(ask):
    assert ask() == Order()
    assert HEARD[-1][1] is False


def test_each_option_is_in_its_field(ask):
    words = ("n[1-2]", "--over", "2.5", "--rude", "--folder", "a", "-f", "b", "--big", "--json")
    assert ask(*words) == Order(
        nodes=("n1", "n2"), over_s=2.5, is_kind=False, folders=[Path("a"), Path("b")], size="big"
    )
    assert HEARD[-1][1] is True


def test_two_ways_at_once_are_refused(ask):
    with pytest.raises(UsageError, match="--big and --small exclude each other: give one of them"):
        ask("--big", "--small")


def test_a_field_without_an_option_cannot_be_given(ask):
    with pytest.raises(AssertionError, match="No such option"):
        ask("--unasked", "x")


@pytest.mark.parametrize("day", range(1, 32))
@pytest.mark.parametrize(("of_day", "iso"), [("", ""), (" 08:30", "T08:30")])
def test_a_date_as_people_write_it_is_refused_with_the_form_that_works(day, of_day, iso):
    """A day up to 12 may be the month, unless it is the same one."""
    hint = f"did you mean 2026-10-{day:02}{iso}?"
    for text in (f"10/{day}/2026", f"{day}/10/2026", f"{day}.10.2026"):
        with pytest.raises(UsageError, match="is no date: expected one like") as refused:
            amounts.instant(text + of_day, "--at")
        is_clear = "." in text or day > 12 or day == 10
        assert str(refused.value).endswith(hint) == is_clear


@given(st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=14))])))
def test_a_time_of_another_age_is_refused(moment):
    text = moment.isoformat()
    if 2000 < moment.year < 2099:
        assert amounts.instant(text, "--at").replace(tzinfo=moment.tzinfo) == moment
    elif not 1999 <= moment.year <= 2100:
        with pytest.raises(UsageError, match=r'--at "\d.*" cannot be right: expected a year from'):
            amounts.instant(text, "--at")
