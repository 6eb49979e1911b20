"""One word, one meaning: what the public names of the product say."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
# the options of the command line are named after what they choose: `Cluster`, `Suite`, `Policy`
NAMED_AFTER = {"anubis/cli/options.py"}


def public_types(file: Path) -> set[str]:
    """The classes and the aliases of types that a module defines for others."""
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.add(node.targets[0].id)
    return {name for name in names if name[0].isupper() and not name.isupper()}


def test_no_public_name_of_a_type_has_two_meanings():
    homes = defaultdict(list)
    for file in sorted((ROOT / "anubis").rglob("*.py")):
        where = str(file.relative_to(ROOT))
        if where not in NAMED_AFTER:
            for name in public_types(file):
                homes[name].append(where)
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def names_of_kinds(file: Path) -> list[str]:
    """Comparisons with the name of a kind of campaign, and with the word that a history keeps."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if ast.unparse(side).startswith("CampaignKind.") or ast.unparse(side).endswith(".verb")
    ]


def test_campaigns_are_asked_for_facts_and_never_for_the_name_of_their_kind():
    for file in (ROOT / "anubis").rglob("*.py"):
        if file != ROOT / "anubis/core/records.py":  # where the facts are
            assert not names_of_kinds(file), file
