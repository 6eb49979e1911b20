"""A campaign as a JUnit file: a suite for each benchmark, a case for each node or group that it
judged.

Defective is a failure. Unknown is an error, not skipped: without a verdict no build is green. Not
applicable is skipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as xml

from anubis.core.records import Judgement, PartVerdict, Verdict, Workload
from anubis.core.text import escape
from anubis.report.view import CampaignView

OUTCOMES = {
    Judgement.DEFECTIVE: "failure",
    Judgement.UNKNOWN: "error",
    Judgement.NOT_APPLICABLE: "skipped",
}
REASONS = 20  # of one case; the JSON has all
Key = tuple[str, str]  # benchmark and parameters


@dataclass(frozen=True, kw_only=True)
class JUnitCase:
    """The verdict on one node; `details`: a sentence each, the worst first."""

    name: str
    judgement: Judgement
    code: str = ""
    details: Sequence[str] = ()
    duration_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class JUnitSuite:
    name: str
    cases: Sequence[JUnitCase]


def render(name: str, suites: Iterable[JUnitSuite]) -> str:
    root = xml.Element("testsuites", name=escape(name))
    for suite in suites:
        root.append(_suite(name, suite))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, 0)) for suite in root)))
    xml.indent(root)
    return xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def suites_of(view: CampaignView) -> list[JUnitSuite]:
    assessment = view.assessment
    spent_s = _spent_s(view)
    judged: defaultdict[Key, dict[tuple[str, ...], list[Verdict]]] = defaultdict(dict)
    for verdict in assessment.verdicts():  # the worst first
        of_suite = judged[verdict.benchmark, verdict.parameters or "{}"]
        verdicts = of_suite.setdefault(verdict.participants, [])
        if len(verdicts) < REASONS:
            verdicts.append(verdict)
    suites = [
        JUnitSuite(
            name=_name(key, judged),
            cases=[
                _case(participants, verdicts, spent_s[*key, participants])
                for participants, verdicts in sorted(of_suite.items())
            ],
        )
        for key, of_suite in sorted(judged.items())
    ]
    if assessment.parts:
        suites.append(JUnitSuite(name="network", cases=[*map(case_of, assessment.parts)]))
    return suites


def case_of(verdict: PartVerdict) -> JUnitCase:
    return JUnitCase(
        name=verdict.subject,
        judgement=verdict.judgement,
        code=verdict.code,
        details=(verdict.reason,),
    )


def _name(key: Key, keys: Iterable[Key]) -> str:
    """Return the benchmark and the parameters that its siblings do not share; a lost node fails all
    of them."""
    workloads = {key: Workload(benchmark=key[0], version="", parameters=key[1]) for key in keys}
    siblings = [workload for workload in workloads.values() if workload.benchmark == key[0]]
    return " ".join((key[0] or "node", *workloads[key].distinct_from(siblings)))


def _case(
    participants: tuple[str, ...], verdicts: Sequence[Verdict], duration_s: float
) -> JUnitCase:
    worst = verdicts[0]
    bad = (verdict for verdict in verdicts if verdict.judgement is not Judgement.HEALTHY)
    return JUnitCase(
        name=",".join(participants),
        judgement=worst.judgement,
        code=worst.code,
        details=[verdict.reason for verdict in bad],
        duration_s=duration_s,
    )


def _spent_s(view: CampaignView) -> defaultdict[tuple[str, str, tuple[str, ...]], float]:
    spent_s: defaultdict[tuple[str, str, tuple[str, ...]], float] = defaultdict(float)
    for execution in view.executions:
        workload, participants = execution.step.workload, execution.step.participants
        spent_s[workload.benchmark, workload.parameters, participants] += execution.duration_s
    return spent_s


def _suite(campaign: str, suite: JUnitSuite) -> xml.Element:
    element = xml.Element("testsuite", name=escape(suite.name), tests=str(len(suite.cases)))
    for count, judgement in (
        ("failures", Judgement.DEFECTIVE),
        ("errors", Judgement.UNKNOWN),
        ("skipped", Judgement.NOT_APPLICABLE),
    ):
        element.set(count, str(sum(case.judgement is judgement for case in suite.cases)))
    element.set("time", f"{sum(case.duration_s for case in suite.cases):.3f}")
    for case in suite.cases:
        test = xml.SubElement(
            element,
            "testcase",
            classname=escape(f"{campaign}.{suite.name}"),
            name=escape(case.name),
            time=f"{case.duration_s:.3f}",
        )
        if outcome := OUTCOMES.get(case.judgement):
            first = next(iter(case.details), "")
            beside = {"message": escape(f"{case.code}: {first}")}
            if outcome != "skipped":
                beside["type"] = escape(case.code)
            xml.SubElement(test, outcome, beside).text = escape("\n".join(case.details))
    return element
