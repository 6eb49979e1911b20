"""The result of a simulation: on a screen, for programs, and as one HTML page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anubis.lab.study.scenario import IncidentSource, PolicyName
from anubis.lab.study.trials import SeedMean, Study, estimate
from anubis.report.json import json_line
from anubis.report.page import page
from anubis.report.simulation_pictures import pictures
from anubis.text.wording import quantity

POLICIES: dict[PolicyName, str] = {
    "absence": "no validation",
    "full set": "all benchmarks at every allocation and after every incident",
    "cron": "all benchmarks on nodes whose last validation is too old",
    "random": "random benchmarks, for as much time as the Selector spends",
    "selector": "Algorithm 1, by risk and cost",
    "with watch": "the Selector, and the watch names nodes of running jobs",
    "with diagnosis": "these two, and a diagnosis names what a job fails of",
    "whole loop": "all three; a search by groups, and a proof of every repair",
    "ideal": "every defect is known and costs no validation",
}


@dataclass(frozen=True)
class _Column:
    figure: str
    title: str
    scale: float = 1.0
    digits: int = 1
    help: str = ""


COLUMNS = (
    _Column("utilization", "work %", 100, 1, "node time spent on jobs, of all node time"),
    _Column("goodput", "kept %", 100, 1, "work that was not lost to incidents"),
    _Column("lost_h", "lost h", 1, 2, "work per node that faults undid or slowed away"),
    _Column("stalled_h", "stalled h", 1, 2, "per node, in jobs that hang or are searched"),
    _Column("validation_h", "validation h", 1, 2, "per node"),
    _Column("mtbi_h", "MTBI h", 1, 1, "node-hours in service per incident"),
    _Column("work_per_hit_h", "work/hit h", 1, 1, "node-hours of work per interrupted job"),
    _Column("incidents", "incidents", 1, 2, "per node"),
    _Column("found", "found", 1, 2, "defects per node, repaired before they became incidents"),
    _Column("repair_h", "repair h", 1, 1, "per node"),
    _Column("restarts", "restarts", 1, 2, "of jobs, per node, after a fault"),
    _Column("alarms", "false alarms", 1, 3, "sound nodes tested or taken out, per node"),
    _Column("wait_h", "wait h", 1, 1, "from the submission of a job to its first work"),
    _Column("held_up_h", "held up h", 1, 2, "of a finished job between its first work and its end"),
)
INCIDENTS: dict[IncidentSource, str] = {
    "rates": "",
    "model": "; incidents are drawn from a trained risk model",
    "history": "; incidents happen as they were recorded",
}
OTHERS: tuple[PolicyName, ...] = ("absence", "full set")  # that the Selector is compared with
LOST = ("lost_h", "stalled_h", "validation_h", "repair_h")
ONLY_ON_THE_PAGE = {  # a terminal is narrow
    *("repair_h", "wait_h", "held_up_h", "restarts", "alarms")
}
OF_THE_RESPONSE = {"lost_h", "stalled_h", "restarts", "alarms"}  # if faults have to be found

TOO_FEW = "too few seeds"


def interval(
    value: SeedMean, scale: float = 1.0, digits: int = 1, *, is_difference: bool = False
) -> str:
    """Return `12.3 ± 0.4`; a dash if there was nothing to count. An amount whose interval is wider
    than itself is not shown: more seeds have to run first. A difference may be 0."""
    if not math.isfinite(value.mean):
        return "-"
    mean = f"{value.mean * scale:,.{digits}f}"
    if not math.isfinite(value.margin):
        return mean
    margin = f"{value.margin * scale:,.{digits}f}"
    return f"{mean} ± {margin}" if is_difference or value.is_known else TOO_FEW


def text(name: str, study: Study) -> Iterator[str]:
    """Yield the whole answer, line by line."""
    scenario = study.scenario
    yield f"{name}: {scenario.summary}"
    yield _setting(study)
    yield from textwrap.wrap(knowledge(study), 78)
    yield ""
    shown = [column for column in _columns(study) if column.figure not in ONLY_ON_THE_PAGE]
    yield from _align([["", *(column.title for column in shown)], *_rows(study, shown)])
    legend = "; ".join(f"{column.title}: {column.help}" for column in shown)
    yield from textwrap.wrap(legend, 78, initial_indent="  ", subsequent_indent="  ")
    sweeps = list(_catches(study))
    if sweeps:
        yield ""
        yield "if benchmarks find only a part of what they could (the model's main assumption):"
        yield from _align([["catch", "", "work %", "validation h", "MTBI h"], *sweeps])
    p0s = list(_p0s(study))
    if p0s:
        yield ""
        yield "the Selector by the risk p0 that it accepts, and what it gains in % of node time:"
        head = ["p0", "work %", "validation h", "MTBI h", "over absence", "over full set"]
        yield from _align([head, *p0s])
    yield ""
    yield from findings(study)


def knowledge(study: Study) -> str:
    """State what the Selector knows, which decides what its figures are worth."""
    scenario = study.scenario
    if "selector" not in scenario.policies:
        return ""
    risk = "knows the true risk of every node"
    if study.risk != "truth":
        risk = f"asks {study.risk}, a model that learned from the past, for the risk of every node"
    defects = quantity(scenario.known_defects, "past defect")
    return f"The Selector {risk}. It has learned from {defects} what each benchmark finds."


def findings(study: Study) -> Iterator[str]:
    """Yield what the numbers say, in sentences."""
    if not {"selector", *OTHERS} <= set(study.scenario.policies):
        return
    of_each = [study.estimates(study.trial(policy)) for policy in ("selector", *OTHERS)]
    selector, absence, full = ({k: v.mean for k, v in figures.items()} for figures in of_each)
    unknown = {name for figures in of_each for name, v in figures.items() if not v.is_known}
    if "validation_h" in unknown:
        yield "Too few seeds ran to say how much time for validation the Selector saves."
    elif full["validation_h"]:
        saved = 1 - selector["validation_h"] / full["validation_h"]
        yield f"The Selector spends {saved:.1%} less time on validation than the full set."
    if "mtbi_h" in unknown:
        yield "Too few seeds ran to compare its mean time between incidents."
    elif math.isfinite(selector["mtbi_h"]):
        over = f"{selector['mtbi_h'] / absence['mtbi_h']:.1f} times that of absence"
        if math.isfinite(full["mtbi_h"]):
            over += f" and {selector['mtbi_h'] / full['mtbi_h']:.1%} of the full set's"
        yield f"Its mean time between incidents is {over}."
    if "utilization" in unknown:
        yield "Too few seeds ran to compare the share of time in which nodes work."
    else:
        yield (
            f"Nodes work {selector['utilization']:.1%} of the time with it, "
            f"{full['utilization']:.1%} with the full set,"
            f" {absence['utilization']:.1%} with absence."
        )
    if study.scenario.response is not None:
        yield from lost_hours(study)
    if study.scenario.sweep.p0:
        yield stops_paying(study)


def lost_hours(study: Study) -> Iterator[str]:
    """Yield what each policy loses of a node's time, and what that saves."""
    lost = {
        policy: sum(study.estimates(study.trial(policy))[name].mean for name in LOST)
        for policy in study.scenario.policies
    }
    yield (
        f"With absence a node loses {lost['absence']:,.1f} h: work that faults undid or slowed"
        " away, jobs that stand still, tests and repair."
    )
    for policy in [policy for policy in lost if policy not in ("absence", "ideal")]:
        share = lost[policy] / lost["absence"] - 1 if lost["absence"] else 0.0
        yield f"With {policy} it loses {lost[policy]:,.1f} h ({share:+.0%})."


def stops_paying(study: Study) -> str:
    """Say up to which p0 the Selector does better than no validation."""
    if study.scenario.seeds == 1:
        return "One seed does not show whether the Selector pays: a gain may be chance."
    tried = _tried_values(study)
    gains = [estimate(study.gains("absence", p0)) for p0 in tried]
    paying = [p0 for p0, gain in zip(tried, gains, strict=True) if gain.low > 0]
    if not paying:
        return "The Selector pays at no p0 that was tried: its gain may be chance."
    best = tried[max(range(len(tried)), key=lambda place: gains[place].mean)]
    beyond = [p0 for p0 in tried if p0 > max(paying)]
    end = f"and no longer at {beyond[0]:g}" if beyond else "the largest that was tried"
    return f"The Selector pays up to p0 = {max(paying):g}, {end}; it pays most at {best:g}."


@dataclass(frozen=True, kw_only=True)
class RunLine:
    figures: Mapping[str, float | None]
    """Hours are per node; null: a time between incidents that never came."""


@dataclass(frozen=True, kw_only=True)
class PolicyLine:
    policy: str
    catch: float
    p0: float | Literal["job"]
    figures: Mapping[str, Sequence[float | None]]
    """The mean of each figure over seeds, and its margin."""


@dataclass(frozen=True, kw_only=True)
class SimulationLine:
    name: str
    nodes: int
    days: float
    seeds: int
    risk: str
    known_defects: int
    knowledge: str
    findings: Sequence[str]


def json_lines(name: str, study: Study) -> Iterator[str]:
    """Yield a record for each run, one for each policy with its intervals, and a summary at the
    end."""
    for trial in study.trials():
        yield json_line("run", trial, RunLine(figures=study.result(trial).figures))
    for trial in study.first_trials():
        means = PolicyLine(
            policy=trial.policy,
            catch=trial.catch,
            p0=trial.p0,
            figures={name: _pair(value) for name, value in study.estimates(trial).items()},
        )
        yield json_line("policy", means)
    summary = SimulationLine(
        name=name,
        nodes=study.scenario.nodes,
        days=study.scenario.days,
        seeds=study.scenario.seeds,
        risk=study.risk,
        known_defects=study.scenario.known_defects,
        knowledge=knowledge(study),
        findings=list(findings(study)),
    )
    yield json_line("simulation", summary)


def render(name: str, study: Study) -> str:
    return page(
        "simulation",
        name=name,
        scenario=study.scenario,
        setting=_setting(study),
        knowledge=knowledge(study),
        findings=list(findings(study)),
        policies=[(policy, POLICIES[policy]) for policy in study.scenario.policies],
        columns=_columns(study),
        rows=_rows(study, _columns(study)),
        catches=list(_catches(study)),
        p0s=list(_p0s(study)),
        pictures=pictures(study, _tried_values(study)),
    )


# --- numbers -------------------------------------------------------------------------------


def _setting(study: Study) -> str:
    scenario, outcome = study.scenario, study.result(study.trials()[0]).outcome
    too_large = f"; {outcome.too_large:,} jobs left out that need more nodes"
    large = too_large if outcome.too_large else ""
    return (
        f"{scenario.nodes:,} nodes, {scenario.spares:,} of them spare, {scenario.days:g} days, "
        f"{quantity(scenario.seeds, 'seed')} (mean ± 95 % interval){large}"
        f"{INCIDENTS[scenario.incidents]}"
    )


def _columns(study: Study) -> list[_Column]:
    """Choose columns; goodput is left out if no work is ever lost."""
    scenario = study.scenario
    without: set[str] = set() if scenario.response else {*OF_THE_RESPONSE}
    if not scenario.response and not scenario.checkpoint_h:
        without.add("goodput")
    return [column for column in COLUMNS if column.figure not in without]


def _rows(study: Study, columns: Sequence[_Column]) -> list[list[str]]:
    rows = []
    for policy in study.scenario.policies:
        estimates = study.estimates(study.trial(policy))
        cells = (interval(estimates[c.figure], c.scale, c.digits) for c in columns)
        rows.append([policy, *cells])
    return rows


def _short(estimates: dict[str, SeedMean]) -> list[str]:
    return [
        interval(estimates["utilization"], 100),
        interval(estimates["validation_h"], digits=2),
        interval(estimates["mtbi_h"]),
    ]


def _catches(study: Study) -> Iterator[list[str]]:
    scenario = study.scenario
    catches = sorted({scenario.catch, *scenario.sweep.catch}, reverse=True)
    if len(catches) < 2:
        return
    for catch in catches:
        for policy in scenario.policies:
            trial = replace(study.trial(policy), catch=catch)
            yield [f"{catch:g}", policy, *_short(study.estimates(trial))]


def _tried_values(study: Study) -> list[float]:
    """List the values of p0 that were tried, in order; none if there was only one."""
    scenario = study.scenario
    if not scenario.sweep.p0 or "selector" not in scenario.policies:
        return []
    tried = {scenario.selection.p0, *scenario.sweep.p0}
    return sorted(p0 for p0 in tried if not isinstance(p0, str))


def _p0s(study: Study) -> Iterator[list[str]]:
    for p0 in _tried_values(study):
        estimates = study.estimates(study.trial("selector", p0=p0))
        gains = [
            interval(estimate(study.gains(over, p0)), 100, 2, is_difference=True)
            if over in study.scenario.policies
            else "-"
            for over in OTHERS
        ]
        yield [f"{p0:g}", *_short(estimates), *gains]


def _pair(value: SeedMean) -> list[float]:
    return [value.mean, value.margin]


# --- spelling ------------------------------------------------------------------------------


def _align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align names to the left, numbers and their titles to the right."""
    names = [all(cell[:1].isalpha() for cell in column[1:]) for column in zip(*rows, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if name else cell.rjust(width)
            for cell, width, name in zip(row, widths, names, strict=True)
        ]
        yield "  ".join(cells).rstrip()
