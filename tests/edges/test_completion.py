"""Words that a shell offers to complete a command line."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def complete(desk) -> Callable[[str], list[str]]:
    """Words that fish offers for the last one of a line: its own way to ask is the simplest."""

    def ask(line: str) -> list[str]:
        asked = {"_ANUBIS_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        desk.environment |= asked | {"_TYPER_COMPLETE_ARGS": line}
        offers = desk.run().out.splitlines()
        return [name for offer in offers if (name := offer.partition("\t")[0])]

    return ask


def test_a_shell_completes_files_by_their_names_and_begins_no_history(desk, complete):
    assert complete("anubis validate --suite qu") == ["quick"]
    assert complete("anubis gate n") == []
    assert not list(desk.folder.rglob("history.sqlite"))


def test_a_shell_completes_the_last_node_of_a_list_and_the_clusters_of_the_history(desk, complete):
    fleet = desk.fleet()
    assert desk.ask("accept", "--cluster", fleet, "--suite", desk.suite(desk.flow())).code == 0
    assert complete("anubis gate n1,n") == [f"n1,n{number}" for number in range(1, 9)]
    assert complete("anubis history show --cluster fl") == ["fleet"]
