"""The conclusion of a look. Missing data give no all-clear."""

from dataclasses import replace

import numpy as np

from anubis.core.watch.detector import look
from anubis.core.watch.findings import LookAnswer, conclude
from anubis.core.watch.watch_settings import WatchSettings
from tests.core.watched import StandIn, healthy


def concluded(telemetry):
    settings = WatchSettings()
    seen = look(telemetry, StandIn(), settings)
    return conclude(seen, telemetry, continuity_s=settings.continuity_s)


def silenced(telemetry, nodes=slice(None), points=slice(None)):
    values = telemetry.values.copy()
    values[:, nodes, points] = np.nan
    return replace(telemetry, values=values)


def test_if_all_nodes_reported_all_the_time_the_answer_is_that_none_stands_out():
    assert concluded(healthy()).answer is LookAnswer.NO_NODE


def test_a_node_that_is_named_is_the_answer():
    telemetry = healthy()
    telemetry.values[1, 3, 500:] = 2.0
    assert concluded(telemetry).answer is LookAnswer.NAMED


def test_data_shorter_than_the_continuity_gives_no_all_clear():
    conclusion = concluded(healthy(points=200))
    assert conclusion.answer is LookAnswer.UNKNOWN
    assert "for 200 s at a stretch" in conclusion.why
    assert "after 240 s" in conclusion.why


def test_three_nodes_give_no_all_clear():
    conclusion = concluded(healthy(nodes=3))
    assert conclusion.answer is LookAnswer.UNKNOWN
    assert "at least 4 are needed" in conclusion.why


def test_telemetry_that_stopped_gives_no_all_clear():
    conclusion = concluded(silenced(healthy(), points=slice(600, None)))
    assert (conclusion.answer, conclusion.why) == (
        LookAnswer.UNKNOWN,
        "most nodes reported nothing in the last 300 s",
    )


def test_short_stretches_between_holes_give_no_all_clear():
    holes = [point for point in range(900) if point % 230 < 20]
    assert concluded(silenced(healthy(), points=holes)).answer is LookAnswer.UNKNOWN


def test_a_node_that_never_reported_is_not_cleared():
    conclusion = concluded(silenced(healthy(), nodes=[2]))
    assert (conclusion.answer, conclusion.unseen) == (LookAnswer.UNKNOWN, ("n2",))
