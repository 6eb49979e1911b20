"""The events of a campaign, recorded while it runs and replayed on request."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from anubis.core.campaign.state_machine import Finish, Record, replay
from anubis.core.errors import StoreError
from anubis.store import codec, event_log
from anubis.store.history import History
from tests.edges.desk import ROOT, Desk
from tests.forked import ForkServer


def test_a_recorded_campaign_replays_to_the_executions_that_the_history_has(
    near: Desk, monkeypatch: pytest.MonkeyPatch, verbs: ForkServer
) -> None:
    monkeypatch.setenv("ANUBIS_EVENTS", str(near.folder / "events"))
    suite = near.suite({"benchmark": "flow"})
    near.ask("accept", "--cluster", near.fleet(slow_share=0.2), "--suite", suite)
    (file,) = (near.folder / "events").glob("*.jsonl")
    recording = event_log.read(file)
    commands = [c for _, answer in replay(recording.opening, recording.events) for c in answer]
    assert isinstance(commands[-1], Finish)
    again = [command.execution for command in commands if isinstance(command, Record)]
    with History.open(f"sqlite:///{near.history}") as history:
        kept = history.executions.read(recording.opening.campaign)
    assert Counter(map(codec.dump, again)) == Counter(map(codec.dump, kept))
    assert len(again) == 8 + 8  # two were slow; of so few nodes all others are measured again, too

    file.write_text(file.read_text() + '{"Measured": {"st')  # the driver was killed here
    script = [str(ROOT / "scripts/studies/replay-events"), str(file)]
    code, shown, err = verbs.ask([*script, "n3"], None, near.folder)
    assert code == 0, err
    assert "→ Launch" in shown
    assert "→ Record" in shown
    assert all("n3" in text for text in shown.splitlines())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "does not begin with how a campaign opened"),
        ('{"TimePassed": {"at": 1.0}}\n', "does not begin with how a campaign opened"),
        ('{"Launch": {}}\n', "line 1 is no event of a campaign: 'Launch'"),
        ("nonsense\n", "line 1 is no event of a campaign"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text(text)
    with pytest.raises(StoreError, match=sentence):
        event_log.read(file)


def test_a_folder_that_cannot_be_written_is_reported_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match="let \\$ANUBIS_EVENTS name a folder"),
        event_log.recording(tmp_path / "file", "c1"),
    ):
        pass
