"""Learn criteria again from recent measurements, and propose them. Those in use change only if a
person agrees, and only if they are still the ones that were compared."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from anubis.config import configs, criteria_files
from anubis.core.amounts import seconds_of
from anubis.core.errors import ConfigError, CriteriaError
from anubis.core.judge.comparison import criterion_changes
from anubis.core.judge.renewal import Renewal, renewal
from anubis.core.keep.periodic_tasks import PeriodicTaskRecord
from anubis.core.records import CriteriaSet
from anubis.operations.decide import read_repertoire
from anubis.operations.history import MOST_CAMPAIGNS
from anubis.operations.learn import learn
from anubis.operations.names import new_name
from anubis.operations.periodic_task_run import PeriodicTaskRun
from anubis.operations.requests import LearnRequest, Terms
from anubis.text import places
from anubis.text.wording import moment, quantity

BEFORE, AFTER = "before", "after"  # folders of a proposal


def renew_criteria(task: PeriodicTaskRun) -> PeriodicTaskRecord:
    if task.agreed is not None:
        return _take(task, Path(task.agreed.proposal))
    schedule = task.policy.criteria
    if schedule is None:
        raise ConfigError("the policy of keeping states no times for criteria any more")
    suite = configs.suite(task.policy.suite).name
    since = task.record.began - seconds_of(schedule.look_back)
    latest = _latest_campaign(task, suite, since)
    if latest is None:
        return task.end_unchanged(f"suite {suite} has measured nothing since {moment(since)}")
    in_use = criteria_files.read_in_use(suite)
    if not in_use:
        return task.end_unchanged(
            f"there are no criteria of suite {suite} to renew: learn them with anubis accept"
        )
    renewed = renewal(in_use, _learn_again(task, latest, in_use, since))
    if not renewed.changes:
        return task.end_unchanged(
            f"none of {_criteria_count(renewed)} of suite {suite} moved{_unmeasured_note(renewed)}"
        )
    folder = places.proposals(task.part.cluster) / new_name("criteria", task.record.began)
    _write(renewed.before, folder / BEFORE)
    _write(renewed.after, folder / AFTER)
    return task.end_proposed(
        f"change {len(renewed.changes)} of {_criteria_count(renewed)} of suite {suite}"
        f"{_unmeasured_note(renewed)}; anubis criteria diff {folder / BEFORE} {folder / AFTER}"
        " shows how",
        proposal=str(folder),
    )


def _latest_campaign(task: PeriodicTaskRun, suite: str, since: float) -> str | None:
    rows = task.history.campaigns.newest(limit=MOST_CAMPAIGNS)
    ended = (
        row.id
        for row in rows
        if (row.cluster, row.suite) == (task.part.cluster, suite)
        and row.kind.validates
        and row.finished_at is not None
        and row.created_at >= since
    )
    return next(ended, None)


def _learn_again(
    task: PeriodicTaskRun, latest: str, in_use: tuple[CriteriaSet, ...], since: float
) -> tuple[CriteriaSet, ...]:
    policy = task.policy
    terms = Terms(suite=policy.suite, benchmarks=task.keeping.benchmarks)
    request = LearnRequest(
        latest,
        since=datetime.fromtimestamp(since, UTC),
        start_sets=in_use,
        policy=policy.selection,
        workloads=read_repertoire(terms).workloads,
    )
    return learn(request, task.caller)


def _criteria_count(renewed: Renewal) -> str:
    return quantity(sum(len(of_sku.criteria) for of_sku in renewed.after), "criterion", "criteria")


def _unmeasured_note(renewed: Renewal) -> str:
    if not renewed.untold:
        return ""
    return f"; of {renewed.untold} too little was measured lately"


def _write(sets: tuple[CriteriaSet, ...], folder: Path) -> None:
    for of_sku in sets:
        criteria_files.write(of_sku, folder / criteria_files.place(of_sku))


def _take(task: PeriodicTaskRun, folder: Path) -> PeriodicTaskRecord:
    if not folder.is_dir():
        raise CriteriaError(
            f'there is no proposal "{folder}" on this machine: approve it on the machine that'
            " made it"
        )
    before, after = (criteria_files.load(folder / name) for name in (BEFORE, AFTER))
    suites = {of_sku.provenance.suite for of_sku in before}
    skus = {of_sku.sku for of_sku in before}
    in_use = [
        of_sku
        for suite in suites
        for of_sku in criteria_files.read_in_use(suite)
        if of_sku.sku in skus
    ]
    if criterion_changes(before, in_use):
        raise CriteriaError(
            "the criteria in use changed after this proposal was made: nothing is changed, and the"
            " next proposal starts from the criteria in use"
        )
    files = criteria_files.write_learned(after, places.criteria())
    return task.end_done(
        f"{quantity(len(files), 'file')} of criteria changed: the old ones are in {folder / BEFORE}"
    )
