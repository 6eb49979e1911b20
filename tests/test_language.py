"""Plain English in the places that a reader sees first: names, docstrings, and tests."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_names import python_files

ROOT = Path(__file__).parents[1]
FILES = python_files()
# No verb, and no noun that a function could return.
LINKS = {
    *("about", "above", "after", "against", "among", "and", "as", "at", "because"),
    *("before", "below", "beside", "between", "but", "by", "during", "for", "from"),
    *("how", "if", "in", "into", "like", "nor", "not", "of", "on"),
    *("one", "ones", "or", "over", "per", "since", "so", "than", "that"),
    *("through", "to", "under", "until", "what", "when", "where", "whether", "which"),
    *("while", "who", "whom", "whose", "why", "with", "within", "without"),
}
CONVERTERS = {"as", "from", "to"}  # names such as from_json and as_bytes are common
# other libraries look for these names
CALLBACKS = {"on_response_complete", "on_batch_end", "on_epoch_end", "on_fit_end"}


# A question (which nodes, where it lies) describes a field clearly; a mere link does not.
QUESTIONS = {"how", "if", "not", "one", "what", "when", "where", "whether", "which", "why"}
# cheap looks that save parsing most files
LINK, MERE_LINK = "|".join(LINKS), "|".join(LINKS - QUESTIONS)
LINKED = re.compile(rf':( +#.*)?\n\s+"""\s*({LINK})\b', re.IGNORECASE)
LINKED_FIELD = re.compile(rf'\n +"+\s*({MERE_LINK})\b', re.IGNORECASE)
LINKED_HEAD = re.compile(rf'(\A(#!.*\n)?|class .*\n\s+)"""\s*({MERE_LINK})\b', re.IGNORECASE)
LINKED_NAME = re.compile(rf"\bdef _*({LINK})(_|\b)")


def sources(look: re.Pattern[str]) -> dict[str, str]:
    """The files in which a cheap look finds something, and what is in them."""
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in FILES}
    return {file: text for file, text in texts.items() if look.search(text)}


def parsed(source: str) -> list[ast.AST]:
    """All nodes of the syntax tree that are a function or a class."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]


# Persons where there are only things, and turns of phrase that no native speaker uses.
ODD = re.compile(
    r"\b(tells|hears) of\b|\bnobody (answers|measures|reports|says)\b"
    r"|\bnobody (blamed|is (named|to blame)|obeys|sends|shares)\b|\b(blame|name|judge)s? nobody\b"
    r"|\b(is|are|was|were) told (of|what|who|which|where|when|how)\b"
    r"|\bsays? of (a|the|it|itself|them)\b"
    r"|\b(node|rank|program|device|host|link|process|campaign|test|GPU|NIC|switch)s? who\b",
    re.IGNORECASE,
)


# Words that make a riddle of the name of a test, and what to write instead: subject, verb, object.
RIDDLES = {
    "nobody|nobodys": "no node, no rank, no part",
    "anybody|somebody|everybody|anyone|someone|everyone": "the thing itself, or a person",
    "who|whom|whoever|what|whatever|whichever": "the thing itself, as the subject",
    "where|wherever": "if",
    "however": "any, even if",
    "(is|are|was|were|be)_(told|said|heard)(?!_(apart|from))": "is reported, is stated",
}
RIDDLE = re.compile("|".join(f"(?<=_)({words})(?=_|$)" for words in RIDDLES))
TURNED_ROUND = re.compile(r"test_(of|it|its|how|why)_")  # the subject comes late, or is not named
TEST_NAME = re.compile(r"\bdef (test_\w+)")
# docstrings and comments
EXPLAINED = re.compile(r'^\s*r?"""(.*?)"""|(?:^| ) *# (.*?)$', re.DOTALL | re.MULTILINE)
PERSONS = re.compile(r"\b(nobody|anybody|somebody|everybody|whoever)\b(?!\")", re.IGNORECASE)


def is_riddle(name: str) -> bool:
    return bool(TURNED_ROUND.match(name) or RIDDLE.search(name))


def persons(source: str) -> list[str]:
    """Docstrings and comments in which things are persons."""
    explained = (one or other for one, other in EXPLAINED.findall(source))
    return [text for text in explained if PERSONS.search(text)]


def texts() -> Iterator[Path]:
    """All tracked programs, pages and settings, but neither tests nor recorded results."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        is_read = not name.startswith(("tests/", "docs/results/", "docs/reference/"))
        if (
            is_read
            and (file := ROOT / name).is_file()
            and file.suffix in ("", ".py", ".md", ".yaml")
        ):
            yield file


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in parsed(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def badly_begun(source: str) -> list[str]:
    """Names of functions whose docstring begins with neither a verb nor a noun. The name of a test
    is its sentence; a docstring only adds where its expectation comes from."""
    return [
        function.name
        for function in functions(source)
        if (text := ast.get_docstring(function)) and text.split()[0].lower().strip(",.:;") in LINKS
        if not function.name.startswith("test_")
    ]


def badly_introduced(source: str) -> list[str]:
    """Names of classes, "" for the module, whose docstring begins with a mere link."""
    return [
        getattr(node, "name", "")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef | ast.Module)
        if (text := ast.get_docstring(node))
        if text.split()[0].lower().strip(",.:;") in LINKS - QUESTIONS
    ]


def badly_described(source: str) -> list[str]:
    """Names of fields of records whose description begins with a preposition or the like."""
    bodies = (node.body for node in parsed(source) if isinstance(node, ast.ClassDef))
    pairs = (pair for body in bodies for pair in itertools.pairwise(body))
    return [
        ast.unparse(field.target)
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        if text.value.value.split()[0].lower().strip(",.:;") in LINKS - QUESTIONS
    ]


def badly_named(source: str) -> set[str]:
    """Names of functions, but not of properties, that begin with a preposition or the like."""
    return {
        function.name
        for function in functions(source)
        if (word := function.name.strip("_").split("_")[0]) in LINKS - CONVERTERS
        or (word in CONVERTERS and "_" not in function.name.strip("_"))
        if not any("property" in ast.unparse(mark) for mark in function.decorator_list)
    }


def test_a_docstring_begins_with_a_verb_or_the_noun_returned():
    sources = {file: file.read_text() for file in (*FILES, *(ROOT / "tests").rglob("*.py"))}
    linked = {file: source for file, source in sources.items() if LINKED.search(source)}
    begun = {str(file.relative_to(ROOT)): badly_begun(source) for file, source in linked.items()}
    assert not {file: names for file, names in begun.items() if names}


def test_the_introduction_of_a_module_or_a_class_begins_with_no_mere_link():
    begun = {file: badly_introduced(text) for file, text in sources(LINKED_HEAD).items()}
    assert not {file: names for file, names in begun.items() if names}


def test_the_description_of_a_field_begins_with_no_mere_link():
    begun = {file: badly_described(text) for file, text in sources(LINKED_FIELD).items()}
    assert not {file: names for file, names in begun.items() if names}


def test_the_name_of_a_function_is_a_verb_or_the_noun_returned():
    named = {file: badly_named(text) for file, text in sources(LINKED_NAME).items()}
    found = set().union(*named.values())
    assert not found - CALLBACKS, {file: n for file, n in named.items() if n}


def test_things_are_no_persons():
    assert ODD.search("no agent: nobody reports gpu_use")
    assert ODD.search("Nodes who are slow are told of it")
    assert ODD.search("the rule blames nobody")
    odd = {file: ODD.findall(file.read_text(errors="replace")) for file in texts()}
    assert not {str(file.relative_to(ROOT)): found for file, found in odd.items() if found}


def test_names_of_tests_have_a_subject_and_their_docstrings_no_persons_for_things():
    tests = {
        str(file.relative_to(ROOT)): file.read_text() for file in (ROOT / "tests").rglob("*.py")
    }
    named = {file: [*filter(is_riddle, TEST_NAME.findall(text))] for file, text in tests.items()}
    assert not {file: names for file, names in named.items() if names}, f"write: {RIDDLES}"
    tests.pop("tests/test_language.py")  # which has examples
    odd = {file: persons(text) for file, text in tests.items()}
    assert not {file: found for file, found in odd.items() if found}


@pytest.mark.parametrize(
    "name",
    [
        "test_a_time_out_on_all_ranks_blames_nobody",
        "test_what_did_not_help_is_not_tried_again",
        "test_where_routes_are_known_pairs_cross_the_link",
        "test_of_two_processes_one_sends",
        "test_a_missing_right_is_told_with_its_file",
    ],
)
def test_a_riddle_in_the_name_of_a_test_is_seen(name):
    assert is_riddle(name)
    assert not is_riddle("test_two_nodes_whose_flows_are_alike_cannot_be_told_apart")


def test_a_person_for_a_thing_in_an_explanation_is_seen():
    source = (
        'def f():\n    """Nobody answers."""\n    x = "nobody"  # whoever asks\n    g()  # well\n'
    )
    assert persons(source) == ["Nobody answers.", "whoever asks"]


@pytest.mark.parametrize("docstring", ["What it is.", "of a node", "Whether n1 runs", "By name."])
def test_a_docstring_without_verb_and_noun_is_seen(docstring):
    source = f'def f():\n    """{docstring}"""'
    assert LINKED.search(source)
    assert badly_begun(source) == ["f"]


@pytest.mark.parametrize(
    "source", ['#!x\n"""Of it."""', 'class A(B):\n    """In it."""', '"""By it"""']
)
def test_a_module_or_a_class_introduced_by_a_mere_link_is_seen(source):
    assert LINKED_HEAD.search(source)
    assert len(badly_introduced(source)) == 1


@pytest.mark.parametrize("text", ["Of a job.", "That it has.", "Whose they are.", "By host: it."])
def test_a_field_described_by_a_mere_link_is_seen(text):
    source = f'class A:\n    x: int = 0\n    """{text}"""\n    y: int'
    assert LINKED_FIELD.search(source)
    assert badly_described(source) == ["x"]


@pytest.mark.parametrize("name", ["of", "_by_name", "within", "who_may_go", "as_", "not_placed"])
def test_a_name_without_verb_and_noun_is_seen(name):
    assert LINKED_NAME.search(f"def {name}(): ...")
    assert badly_named(f"def {name}(): ...") == {name}


def test_verbs_and_nouns_pass():
    source = (
        'def nodes_by_rail():\n    """Return the nodes."""\ndef from_json():\n    """A node."""'
    )
    assert not badly_begun(source)
    assert not badly_named(source)
