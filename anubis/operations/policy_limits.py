"""Adopt limits that criteria propose into a policy, as a change to its text that can be reviewed.

Nothing runs. Criteria that are learned with the policy from then on have these limits.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from fnmatch import fnmatchcase
from pathlib import Path

from anubis.config import configs, criteria_files
from anubis.core.errors import ConfigError, OutputError, UsageError
from anubis.core.records import CriteriaSet, Criterion, MetricAlpha, Policy
from anubis.operations.caller import NOBODY, Caller
from anubis.operations.judge import CriteriaComparison, compare_sets
from anubis.operations.yaml_edits import add_alphas, line_of
from anubis.text.files import put_in_place


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
    caller: Caller = NOBODY,
) -> Adoption:
    """Put what the criteria propose for these metrics (`gemm tflops*`; none: all) into the policy.

    The verdicts that change with it are those of the campaign, or of the latest of the suite.
    """
    source = configs.find("policies", policy)
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
