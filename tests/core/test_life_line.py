"""The timeline of a node: the place of each mark follows from its times alone."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from anubis.core.history.events import EventRecord, NodeAdded
from anubis.core.history.status import Incident, Repair, Validation
from anubis.core.keep.commands import Cordon, LifeAction, Mode, Stage
from anubis.core.records import Judgement
from anubis.report.history import (
    action_happening,
    event_record_happening,
    incident_happening,
    repair_happening,
    validation_happening,
)
from anubis.report.service_pages import life_line

DAY_S = 86_400.0
BEGIN, NOW = 100 * DAY_S, 104 * DAY_S


def verdict(at, judgement):
    return validation_happening(
        Validation(node="n1", at=at, campaign="c1", judgement=judgement, code="", benchmarks=())
    )


CORDON = Cordon(mode=Mode.ACT, node="n1", code="GEMM", reason="slow")
LIFE = [
    event_record_happening(EventRecord(id="e", at=BEGIN, event=NodeAdded(nodes=("n1",)))),
    verdict(BEGIN + DAY_S, Judgement.HEALTHY),
    incident_happening(
        Incident(node="n1", category="<gpu>", start=BEGIN + DAY_S, end=BEGIN + 3 * DAY_S)
    ),
    repair_happening(Repair(node="n1", start=BEGIN + 2 * DAY_S, action="new fan")),
    action_happening(
        LifeAction(id=7, at=BEGIN + DAY_S, command=CORDON, stage=Stage.DONE, changed_at=NOW)
    ),
    verdict(NOW, Judgement.DEFECTIVE),
]


def marks(drawing):
    svg = ElementTree.fromstring(drawing)
    lanes = [e for e in svg.iter() if "lane" in e.get("class", "").split()]
    return svg, {e.get("class"): e for e in lanes}


def test_each_event_of_a_life_is_drawn_at_its_time_and_until_its_end_or_now():
    svg, drawn = marks(life_line(LIFE, NOW))
    first, last = (float(drawn[f"dot lane {j}"].get("cx")) for j in ("healthy", "defective"))
    day = (last - first) / 3
    kinds = ("event", "incident", "repair", "action")
    event, incident, repair, action = (drawn[f"lane {kind}"] for kind in kinds)
    assert float(action.get("x")) == pytest.approx(first, abs=0.02)
    assert action.get("width") == event.get("width")  # it is no stretch of time
    assert float(event.get("x")) == pytest.approx(first - day, abs=0.02)
    assert float(incident.get("x")) == pytest.approx(first, abs=0.02)
    assert float(incident.get("width")) == pytest.approx(2 * day, abs=0.02)
    assert float(repair.get("width")) == pytest.approx(2 * day, abs=0.02)  # it is not over
    assert len({e.get("y") for e in (event, incident, repair, action)}) == 4
    assert "<gpu>" in "".join(incident.itertext())
    assert svg.get("aria-label") == "6 events since 1970-04-11 00:00 UTC, 2 tests"


def test_days_are_named_below():
    svg, _ = marks(life_line(LIFE, NOW))
    words = {e.text for e in svg.iter("text")}
    assert {"1970-04-12", "1970-04-13", "1970-04-14", "events", "repairs", "tests"} <= words


def test_nothing_is_drawn_of_a_node_to_which_nothing_happened_so_far():
    assert life_line([], NOW) == ""
    assert life_line([verdict(NOW + 1, Judgement.HEALTHY)], NOW) == ""


@pytest.mark.parametrize("age_s", [0.0, 60.0, 5 * 3600.0, 40 * DAY_S, 4000 * DAY_S])
def test_a_life_of_any_length_has_a_few_dates(age_s):
    svg, _ = marks(life_line([verdict(5000 * DAY_S - age_s, Judgement.HEALTHY)], 5000 * DAY_S))
    times = [e for e in svg.iter("text") if (e.text or "").count("-") >= 1]
    assert 1 <= len(times) <= 12
