"""Verbs that are killed at random moments lose nothing and do nothing twice."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_campaign_that_is_killed_anywhere_ends_as_one_that_was_not():
    """The short form of `scripts/studies/cut-power`, which kills each of four verbs 50 times."""
    words = [sys.executable, str(ROOT / "scripts" / "cut-power"), "--kills", "4", "--seed", "3"]
    done = subprocess.run(
        [*words, "accept"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    killed = re.search(r"killed (\d) of 4 times .* 0 failures", done.stdout)
    assert killed
    assert int(killed[1]) > 0
