"""No text from outside controls a terminal: it is escaped, and its JSON means the same."""

from __future__ import annotations

import io
import json
import re
import sys
import unicodedata

import pytest

from anubis.cli.streams import Outlet
from anubis.core.text import escape, escape_line, make_storable
from tests.edges.desk import FLOW, Desk

HOSTILE = "\x1b[2J\u202e\x9b31m\ud800"


def test_control_and_hidden_characters_are_escaped_and_all_others_stay():
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    text = "".join(c for c in text if unicodedata.category(c) != "Cn")  # of a later Unicode
    unshown = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not unshown & set(escape("".join(sorted(unshown - {"\n", "\t"}))))
    assert escape("".join(c for c in text if c not in unshown)) == "".join(
        c for c in text if c not in unshown
    )
    assert escape("a\n\tb") == "a\n\tb"
    assert escape_line("a\nb") == r"a\nb"


def test_a_line_of_json_that_is_shown_means_the_same():
    document = {"reason": f"a{HOSTILE}\U000e0001b"}
    line = escape(json.dumps(document, ensure_ascii=False))
    assert line.isprintable()
    assert json.loads(line) == document


def test_characters_that_utf8_cannot_carry_are_replaced():
    assert make_storable("a\0\ud800b").encode() == "a\ufffd?b".encode()


def test_a_terminal_gets_nothing_that_steers_it_unless_it_is_ours():
    written = io.BytesIO()
    outlet = Outlet(written, encoding="utf-8")
    outlet.write("x\x1b[2J\u202e\n")
    outlet.write_styled("\x1b[1mbold\x1b[0m\n")
    outlet.flush()
    assert written.getvalue() == b"x\\u001b[2J\\u202e\n\x1b[1mbold\x1b[0m\n"


@pytest.mark.long
def test_the_last_words_of_a_program_steer_neither_the_terminal_nor_a_page(desk: Desk):
    words = r"printf '\033[2J\342\200\256gone\n' >&2; exit 7"
    desk.program("flow.sh", FLOW.replace("cat <<DOCUMENT", f"{words}\ncat <<DOCUMENT"))
    done = desk.ask("accept", "--suite", desk.suite(desk.flow()), "--html", str(desk.folder / "p"))
    text = done.out + done.err + (desk.folder / "p").read_text()
    assert r"\u001b[2J\u202egone" in text
    assert re.sub(r"\S", "", escape(text)) == re.sub(r"\S", "", text)
    assert escape(text) == text


def test_a_name_in_an_error_steers_no_terminal(desk: Desk):
    done = desk.run("criteria", "judge", "--campaign", "x\x1b[2J\u202e")
    assert r"x\u001b[2J\u202e" in done.err
    assert escape(done.err) == done.err
