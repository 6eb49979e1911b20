"""Windows kept with a suspicion: small, bounded, and the same as those of its telemetry."""

from __future__ import annotations

import base64
import zlib
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from anubis.core.history.events import LONGEST_WINDOWS, SuspicionRaised
from anubis.core.keep.commands import Outcome
from anubis.core.keep.suspicions import KeptSuspicion, kept_suspicions
from anubis.core.watch.findings import Deviation, Look, Sign, Suspicion
from anubis.core.watch.odd_windows import MOST_WINDOWS, OddWindows, pack_windows, unpack_windows
from anubis.core.watch.telemetry import Side
from anubis.core.watch.thresholds import oddness
from anubis.core.watch.watch_settings import WatchSettings
from anubis.models.watch.watch_learning import FEWEST_CONFIRMED, _rank_metrics
from anubis.operations.watch_model import RecordedJobs, _suspected
from anubis.operations.watch_rounds import suspicions_of
from anubis.report.history import event_fields
from tests.watch.test_watch_learning import FACTS, job


@pytest.mark.parametrize(("nodes", "points"), [(4, 900), (64, 1500), (16, 7)])
def test_kept_windows_are_those_of_the_telemetry_in_few_letters_for_any_number_of_nodes(
    nodes, points
):
    telemetry = job(3, nodes=nodes, points=points)
    telemetry.series("gpu_duty")[2, 600:] = 5
    text = pack_windows(telemetry, 600.0, 8)
    windows = unpack_windows(text)
    expected = oddness(telemetry.last(8 * MOST_WINDOWS), 8)
    if not len(expected):
        assert (text, windows) == ("", None)
        return
    assert len(text) < 2000
    assert windows.columns(tuple(FACTS)) == pytest.approx(expected, rel=1e-3)
    assert windows.columns(["ecn", "gpu_duty"])[:, 0].max() == 0
    begin = max(0, points - 8 * MOST_WINDOWS)
    faulty = begin + 8 * np.flatnonzero(windows.faulty(is_confirmed=True))
    assert faulty.tolist() == list(range(begin + 8 * ((600 - begin) // 8), points - 7, 8))
    assert not windows.faulty(is_confirmed=False).any()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"metrics": [], "windows": 0, "first": 0}\n',
        b'{"metrics": ["a"], "windows": 3, "first": 0}\n\0\0',
        b'{"metrics": ["a"], "windows": 1, "first": -1}\n\0\0',
        b'{"metrics": ["a"], "windows": 1, "first": 0}\n\0\x7c',  # infinite
        b"[]\n",
        b"\0" * (64 << 20),  # in 64 KB
    ],
    ids=["empty", "no metric", "too few", "before all", "infinite", "no table", "a bomb"],
)
def test_texts_of_strangers_have_no_windows(data):
    assert unpack_windows(base64.b85encode(zlib.compress(data)).decode()) is None
    assert unpack_windows("nothing {") is None
    with pytest.raises(ValueError, match="letters of windows"):
        SuspicionRaised(
            nodes=("a",), category="gpu", source="x", windows="0" * (LONGEST_WINDOWS + 1)
        )


def suspected(metric, is_confirmed):
    """A suspicion by one metric, whose windows stand out since the fortieth."""
    features = np.random.default_rng(len(metric)).normal(2, 0.1, (80, len(FACTS)))
    features[40:, list(FACTS).index(metric)] += 3
    return OddWindows(metrics=tuple(FACTS), features=features, first=40), is_confirmed


def test_metrics_of_confirmed_suspicions_are_compared_first_and_those_of_refuted_ones_are_not():
    given = tuple(FACTS)
    for real in FACTS:
        (false,) = set(FACTS) - {real}
        ended = [suspected(real, True)] * FEWEST_CONFIRMED + [suspected(false, False)] * 30
        order, why = _rank_metrics(
            RecordedJobs(recordings={}, suspected=ended), given, WatchSettings()
        )
        assert order[0] == real
        assert "40 suspicions whose tests ended" in why
        few = RecordedJobs(recordings={}, suspected=ended[1:])
        assert _rank_metrics(few, given, WatchSettings()) == (given, "as it was given")


def test_a_suspicion_is_raised_with_the_windows_of_its_look():
    telemetry = job(3)
    apart = Deviation(
        sign=Sign.CONTRAST,
        metric="gpu_duty",
        family="gpu",
        since=300.0,
        until=599.0,
        side=Side.LOW,
        value=5.0,
        peers=50.0,
        effect=0.4,
    )
    suspicion = Suspicion(node="n3", since=300.0, deviations=(apart,), mix={"gpu": 1.0})
    look = Look(job="17", nodes=telemetry.nodes, start=0.0, end=599.0, suspicions=(suspicion,))
    part = SimpleNamespace(keeping=SimpleNamespace(suspicions=list))
    (raised,) = suspicions_of(look, telemetry, 8, part, 600.0)
    assert raised.event.windows == pack_windows(telemetry, 300.0, 8) != ""
    (kept,) = kept_suspicions([(raised.id, raised.at, raised.event)], [])
    assert kept.windows == raised.event.windows
    assert "windows" not in event_fields(raised).__dict__


def test_only_windows_of_suspicions_whose_tests_ended_are_learned_from():
    text = pack_windows(job(3), 300.0, 8)
    ends = {Outcome.CONFIRMED: text, Outcome.REFUTED: text, None: text}
    kept = [
        KeptSuspicion(
            id=str(outcome),
            node="a",
            at=0.0,
            source="watch",
            category="gpu",
            outcome=outcome,
            windows=windows,
        )
        for outcome, windows in (*ends.items(), (Outcome.CONFIRMED, ""))
    ]
    part = SimpleNamespace(keeping=SimpleNamespace(suspicions=lambda: kept))
    history = SimpleNamespace(every=lambda: [part])
    caller = SimpleNamespace(history=lambda: nullcontext(history))
    assert [is_confirmed for _, is_confirmed in _suspected(caller)] == [True, False]
