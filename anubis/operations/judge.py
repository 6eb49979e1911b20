"""Judge past campaigns again, alone or as one, by any criteria; compare two sets of criteria; and
adopt limits that criteria propose into a policy, as a change to its text that can be reviewed.

Nothing runs. Criteria that are learned with a policy from then on have its limits.
"""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from anubis.config import configs, criteria_files
from anubis.core.errors import ConfigError, OutputError, UsageError, named_by_request
from anubis.core.judge import comparison
from anubis.core.judge.equality import differences, versions
from anubis.core.judge.judgement import assess
from anubis.core.judge.pooling import CampaignEvidence
from anubis.core.judge.units import latest_executions, units
from anubis.core.records import (
    Assessment,
    Campaign,
    CriteriaSet,
    Criterion,
    Execution,
    MetricAlpha,
    Policy,
    sets_taught_by,
)
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.history import (
    campaigns_since,
    finished_campaign,
    join_evidence,
    read_intact,
    view_of,
)
from anubis.operations.precedents import precedents_of
from anubis.operations.requests import JudgeRequest
from anubis.operations.validator import judge as judge_executions
from anubis.operations.yaml_edits import add_alphas, line_of
from anubis.report.view import CampaignView
from anubis.store.history import History
from anubis.text.files import put_in_place


def judge(request: JudgeRequest, caller: Caller = NO_CALLER) -> CampaignView:
    """Judge a campaign again by a file or a folder of criteria, by default those used before.

    With `since`, all finished campaigns of the same suite that began from then on until this one
    are judged as one. Damaged records are refused, or are unknown.
    """
    with caller.history() as history:
        pooled = campaigns_since(
            history, finished_campaign(history, request.campaign), request.since
        )
        intact = read_intact(history, pooled, caller, without_damaged=request.without_damaged)
        parts = [_evidence(history, part, intact.executions_of(part)) for part in pooled]
        evidence = join_evidence(parts, caller)
        before = precedents_of(history, evidence.campaign)
    chosen, executions = evidence.campaign, evidence.executions
    if len(pooled) > 1:
        caller.remark(f"judging {len(pooled)} campaigns of suite {chosen.plan.suite} as one")
    if request.criteria:
        with named_by_request():
            named = criteria_files.load(request.criteria.expanduser(), chosen.plan.suite)
        chosen = dataclasses.replace(chosen, criteria=(*named, *_fabric_criteria(chosen)))
    elif chosen.kind.learns:  # learn again from its own results
        chosen = dataclasses.replace(chosen, criteria=())
    for sentence in differences(chosen.criteria, versions(executions, chosen.plan)):
        caller.remark(sentence)
    assessment, used = judge_executions(
        chosen, executions, evidence.lost, chosen.created_at, before=before
    )
    view = view_of(chosen, executions, intact.mark_unknown(assessment), used)
    view = dataclasses.replace(view, is_by_itself=view.is_by_itself and not request.criteria)
    return intact.mark_damage(view)


def _fabric_criteria(campaign: Campaign) -> tuple[CriteriaSet, ...]:
    """Criteria by which only the campaign's own fabric is judged, whatever its suite is judged
    by."""
    of_suite = sets_taught_by(campaign.criteria, campaign.plan)
    return tuple(of_sku for of_sku in campaign.criteria if of_sku not in of_suite)


def _evidence(
    history: History, campaign: Campaign, executions: Sequence[Execution]
) -> CampaignEvidence:
    assessed = history.assessments.find(campaign.id)
    return CampaignEvidence(
        campaign=campaign, executions=executions, lost=assessed.lost if assessed else {}
    )


RECENT = 1000  # campaigns among which the latest of a suite is sought


@dataclass(frozen=True, kw_only=True)
class CriteriaComparison:
    """What changes between two sets of criteria."""

    criteria: tuple[comparison.CriterionChange, ...]
    campaign: Campaign | None = None  # judged by both; None if none was ever run
    nodes: tuple[comparison.NodeChange, ...] = ()
    verdicts: tuple[comparison.VerdictChange, ...] = ()


def compare_criteria(
    before: Path, after: Path, *, campaign: str | None = None, caller: Caller = NO_CALLER
) -> CriteriaComparison:
    """Compare files or folders of criteria, with the verdicts of the campaign, or of the latest."""
    before, after = before.expanduser(), after.expanduser()
    by_suite = [criteria_files.suites(path) for path in (before, after)]
    changes = tuple(
        change
        for suite in (sorted({*chain(*by_suite)}) if all(by_suite) else [""])
        for change in comparison.criterion_changes(_load(before, suite), _load(after, suite))
    )
    with caller.history() as history:
        if not campaign and not history.campaigns.latest(finished=True):
            return CriteriaComparison(criteria=changes)
        judged = finished_campaign(history, campaign)
        if not changes:
            return CriteriaComparison(criteria=(), campaign=judged)
        both = (_load(path, judged.plan.suite) for path in (before, after))
        return _compare(changes, history, judged, *both)


def compare_sets(
    before: tuple[CriteriaSet, ...],
    after: tuple[CriteriaSet, ...],
    *,
    campaign: str | None = None,
    caller: Caller = NO_CALLER,
) -> CriteriaComparison:
    """Compare criteria that are not in files yet, with the verdicts of the campaign, or of the
    latest of their suites."""
    changes = comparison.criterion_changes(before, after)
    suites = {of_sku.provenance.suite for of_sku in before}
    with caller.history() as history:
        newest = (
            row.id
            for row in history.campaigns.newest(limit=RECENT)
            if row.finished_at is not None and row.suite in suites
        )
        judged_id = campaign or next(newest, None)
        if not changes or not judged_id:
            return CriteriaComparison(criteria=changes)
        judged = finished_campaign(history, judged_id)
        both = (_suite_criteria(sets, judged.plan.suite) for sets in (before, after))
        return _compare(changes, history, judged, *both)


def _suite_criteria(sets: tuple[CriteriaSet, ...], suite: str) -> tuple[CriteriaSet, ...]:
    return tuple(of_sku for of_sku in sets if of_sku.provenance.suite == suite)


def _compare(
    changes: tuple[comparison.CriterionChange, ...],
    history: History,
    judged: Campaign,
    before: tuple[CriteriaSet, ...],
    after: tuple[CriteriaSet, ...],
) -> CriteriaComparison:
    assessments = _judge_by_both(history, judged, before, after)
    return CriteriaComparison(
        criteria=changes,
        campaign=judged,
        nodes=comparison.node_changes(*assessments),
        verdicts=comparison.verdict_changes(*assessments),
    )


def _load(path: Path, suite: str) -> tuple[CriteriaSet, ...]:
    """Load criteria; if each suite has a folder, only those of this suite, which may be none."""
    by_suite = criteria_files.suites(path)
    if suite and by_suite and suite not in by_suite:
        return ()
    with named_by_request():
        return criteria_files.load(path, suite)


def _judge_by_both(
    history: History, campaign: Campaign, old: tuple[CriteriaSet, ...], new: tuple[CriteriaSet, ...]
) -> tuple[Assessment, Assessment]:
    evidence = _evidence(history, campaign, history.executions.read(campaign.id))
    settled = latest_executions(evidence.executions)
    measured = units(settled, campaign.plan)
    limits = campaign.policy.limits
    before = precedents_of(history, campaign)
    by_old, by_new = (
        assess(
            measured,
            settled,
            campaign.plan,
            (*criteria, *_fabric_criteria(campaign)),
            evidence.lost,
            limits=limits,
            expectations=campaign.policy.expectations,
            before=before.settings,
            screens_before=before.screens,
            validates=campaign.kind.validates,
        )
        for criteria in (old, new)
    )
    return by_old, by_new


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """The text that a policy would have, and what that changes."""

    source: Path  # the policy that it begins from
    before: str
    after: str
    rules: tuple[MetricAlpha, ...]  # that are new in it
    changes: CriteriaComparison

    @property
    def diff(self) -> str:
        lines = (self.before.splitlines(), self.after.splitlines())
        names = (str(self.source), f"{self.source} with proposed alphas")
        return "\n".join(unified_diff(*lines, *names, lineterm="", n=2))


def adopt_alphas(
    criteria: Path,
    policy: str,
    *,
    metrics: Sequence[str] = (),
    campaign: str | None = None,
    caller: Caller = NO_CALLER,
) -> Adoption:
    """Put what the criteria propose for these metrics (`gemm tflops*`; none: all) into the policy.

    The verdicts that change with it are those of the campaign, or of the latest of the suite.
    """
    source = configs.find("policies", policy)
    with named_by_request():
        sets = criteria_files.load(criteria.expanduser())
    rules = tuple(_proposed_rules(sets, metrics, configs.policy(policy)))
    before = source.read_text(encoding="utf-8")
    after = add_alphas(before, rules) if rules else before
    adopted = tuple(_adopt(of_sku, rules) for of_sku in sets)
    return Adoption(
        source=source,
        before=before,
        after=after,
        rules=rules,
        changes=compare_sets(sets, adopted, campaign=campaign, caller=caller),
    )


def write_policy(adoption: Adoption, path: Path) -> None:
    """Write the policy, but only if its new text reads as expected and nothing else changed."""
    if path.exists() and path.resolve() != adoption.source.resolve():
        raise UsageError(f'"{path}" exists; name another file, or give it as --policy to change it')
    expected = _add_rules(configs.policy(str(adoption.source.absolute())), adoption.rules)
    draft = path.with_name(f".{path.name}.{os.getpid()}.yaml")
    try:
        draft.write_text(adoption.after, encoding="utf-8")
        if not _reads_as(draft, expected):
            raise UsageError(
                f'the text of "{adoption.source}" cannot be changed; put this under "alphas":\n'
                + "\n".join(map(line_of, adoption.rules))
            )
        put_in_place(draft, path)
    except OSError as error:
        raise OutputError(f'cannot write the policy "{path}": {error.strerror}') from None
    finally:
        draft.unlink(missing_ok=True)


def _proposed_rules(
    sets: Sequence[CriteriaSet], metrics: Sequence[str], policy: Policy
) -> list[MetricAlpha]:
    """A rule for each metric, cut to three digits. If several criteria propose one, the loosest is
    taken: it suits the healthy nodes of all."""
    proposals: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for criterion in (criterion for of_sku in sets for criterion in of_sku.criteria):
        name = f"{criterion.key.workload.benchmark} {criterion.key.metric}"
        is_chosen = not metrics or any(fnmatchcase(name, pattern) for pattern in metrics)
        if is_chosen and criterion.proposed_alpha and not criterion.refusal:
            subject = criterion.key.workload.benchmark, criterion.key.metric
            proposals[subject].append(criterion.proposed_alpha)
    rules = [
        MetricAlpha(benchmark=benchmark, metric=metric, alpha=int(min(alphas) * 1000) / 1000)
        for (benchmark, metric), alphas in sorted(proposals.items())
        if int(min(alphas) * 1000) > 0
    ]
    return [rule for rule in rules if policy.alpha_of(rule.benchmark, rule.metric) != rule.alpha]


def _adopt(of_sku: CriteriaSet, rules: Sequence[MetricAlpha]) -> CriteriaSet:
    alpha_of = {(rule.benchmark, rule.metric): rule.alpha for rule in rules}

    def adopt(criterion: Criterion) -> Criterion:
        subject = criterion.key.workload.benchmark, criterion.key.metric
        return replace(criterion, alpha=alpha_of.get(subject, criterion.alpha))

    return replace(of_sku, criteria=tuple(map(adopt, of_sku.criteria)))


def _add_rules(policy: Policy, rules: Sequence[MetricAlpha]) -> Policy:
    replaced = {(rule.benchmark, rule.metric) for rule in rules}
    kept = [rule for rule in policy.alphas if (rule.benchmark, rule.metric) not in replaced]
    return replace(policy, alphas=(*kept, *rules))


def _reads_as(draft: Path, expected: Policy) -> bool:
    try:
        return configs.policy(str(draft.absolute())) == expected
    except ConfigError:
        return False
