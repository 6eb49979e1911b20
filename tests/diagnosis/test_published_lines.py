"""Published lines of logs: what a line is comes from its thread, not from a parser."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from anubis.config import configs
from anubis.core.diagnose.evidence import RankMap
from anubis.readers.jobs.kernel_logs import read_kernel
from anubis.readers.jobs.training_logs import read_training

EXCERPTS = yaml.safe_load((Path(__file__).parent / "excerpts.yaml").read_text())
CLASSES = configs.error_classes()
READERS = {"kernel": read_kernel, "training": read_training}
CASES = [(log, entry) for log, entries in EXCERPTS.items() for entry in entries]


def test_there_are_a_hundred_and_fifty_and_each_names_its_source():
    assert len(CASES) >= 150
    assert all(entry["from"] for _, entry in CASES)


@pytest.mark.parametrize(("log", "entry"), CASES, ids=[entry["from"] for _, entry in CASES])
def test_a_published_line_gets_its_class(log, entry, tmp_path):
    file = tmp_path / "n1.log"
    file.write_text(f"[1.0] a line before\n{entry['line']}\n")
    events = READERS[log](file, RankMap(), CLASSES).log
    assert [event.gravity for event in events] == (
        [] if entry["is"] == "nothing" else [entry["is"]]
    )
