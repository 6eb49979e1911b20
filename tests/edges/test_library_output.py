"""Output of a library below Python is no part of an answer."""

from __future__ import annotations

import os

from anubis.operations.library_output import silence_libraries


def test_output_of_a_library_to_stdout_is_discarded_and_later_output_is_not(capfd):
    os.write(1, b"before ")
    with silence_libraries():
        os.write(1, b"debug")
    os.write(1, b"after")
    assert capfd.readouterr().out == "before after"
