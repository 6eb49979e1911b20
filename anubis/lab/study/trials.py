"""Runs a scenario: every policy meets the same jobs and incidents, under several seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from anubis.core.errors import TraceError
from anubis.core.history.defects import Defect
from anubis.core.select.selection import Detection, learn_detection
from anubis.lab.study import traces
from anubis.lab.study.cluster import PolicyOutcome, Site, StudiedPolicy, run
from anubis.lab.study.incidents import Foresight, Hours
from anubis.lab.study.kept_cluster import run_kept
from anubis.lab.study.policies import Absence, Cron, FullSet, GreedySelection, Ideal, RandomSubsets
from anubis.lab.study.response import FaultCare, Means
from anubis.lab.study.scenario import MEANS, Jobs, PolicyName, Scenario
from anubis.lab.study.sources import DrawnIncidents, HazardModel, ModelRisk, Source
from anubis.lab.study.traces import TracedJob

CONFIDENCE = 0.95  # of the margin beside a mean, as is usual


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run: a policy and a seed, and what the sweep changes in the scenario."""

    policy: PolicyName
    seed: int
    catch: float
    p0: float | Literal["job"]


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    outcome: PolicyOutcome
    figures: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class SeedMean:
    """Mean over seeds, and the margin of the true mean around it; infinite with one seed."""

    mean: float
    margin: float

    @property
    def low(self) -> float:
        return self.mean - self.margin

    @property
    def high(self) -> float:
        return self.mean + self.margin

    @property
    def is_known(self) -> bool:
        """False for an amount whose interval is wider than itself; one seed has no interval."""
        return not math.isfinite(self.margin) or self.margin <= abs(self.mean)


class Study:
    """Runs of one scenario, each made only once."""

    def __init__(
        self,
        scenario: Scenario,
        recorded: Sequence[TracedJob] = (),
        source: Source | None = None,
        model: HazardModel | None = None,
    ) -> None:
        """Prepare the runs. `model`: what the Selector uses instead of the true risk."""
        self.scenario = scenario
        self._source, self._model = source or DrawnIncidents(scenario), model
        self._recorded = traces.cut(recorded, scenario.jobs.limit_h)
        self.result = cache(self._result)
        self._jobs = cache(self._jobs_of)

    @property
    def risk(self) -> str:
        """Name of the Selector's risk: the truth, or its model."""
        return self._model.name if self._model else "truth"

    def trials(self) -> list[Trial]:
        """Trials of the policies in the scenario as it is, then with other catches, then with other
        p0."""
        return [trial for first in self.first_trials() for trial in self._all_seeds(first)]

    def first_trials(self) -> list[Trial]:
        """Trials under the first seed."""
        scenario = self.scenario
        as_it_is = [self.trial(policy) for policy in scenario.policies]
        catches = [catch for catch in scenario.sweep.catch if catch != scenario.catch]
        p0s = [p0 for p0 in scenario.sweep.p0 if p0 != scenario.selection.p0]
        return [
            *as_it_is,
            *(replace(trial, catch=catch) for catch in catches for trial in as_it_is),
            *(self.trial("selector", p0=p0) for p0 in p0s),
        ]

    def trial(self, policy: PolicyName, *, p0: float | Literal["job"] | None = None) -> Trial:
        """First run of a policy in the scenario as it is; the Selector may have another p0."""
        scenario = self.scenario
        accepted = scenario.selection.p0 if p0 is None else p0
        return Trial(policy=policy, seed=0, catch=scenario.catch, p0=accepted)

    def results(self, trial: Trial) -> list[StudyResult]:
        """Results under each of the seeds."""
        return [self.result(seeded) for seeded in self._all_seeds(trial)]

    def estimates(self, trial: Trial) -> dict[str, SeedMean]:
        """Estimate of each figure over the seeds."""
        runs = [result.figures for result in self.results(trial)]
        return {name: estimate([figures[name] for figures in runs]) for name in runs[0]}

    def gains(self, over: PolicyName, p0: float | Literal["job"]) -> list[float]:
        """Increase by the Selector of the share of the nodes' time that is work, for each seed."""
        selector, compared = (
            [result.figures["goodput"] for result in self.results(trial)]
            for trial in (self.trial("selector", p0=p0), self.trial(over))
        )
        return [a - b for a, b in zip(selector, compared, strict=True)]

    def _all_seeds(self, trial: Trial) -> list[Trial]:
        return [replace(trial, seed=seed) for seed in range(self.scenario.seeds)]

    # --- one run ---------------------------------------------------------------------------

    def _result(self, trial: Trial) -> StudyResult:
        scenario = self.scenario
        site = Site(
            nodes=scenario.nodes,
            spares=scenario.spares,
            span_h=scenario.span_h,
            durations_h=tuple(benchmark.minutes / 60 for benchmark in scenario.benchmarks),
            incident_repair_h=scenario.repair.incident_h,
            defect_repair_h=scenario.repair.defect_h,
            shows_h=scenario.shows_h,
            catch=trial.catch,
            checkpoint_h=scenario.checkpoint_h,
        )
        jobs = self._jobs(trial.seed)
        incidents, true_risk = self._source.fates(trial.seed)
        policy = self._policy(trial, true_risk)
        upkeep = None if policy.knows_all else self._upkeep(trial)
        if upkeep is None:
            outcome = run(site, jobs, incidents, policy)
        else:
            outcome = run_kept(site, jobs, incidents, policy, upkeep)
        return StudyResult(outcome=outcome, figures=figures(outcome, jobs))

    def _upkeep(self, trial: Trial) -> FaultCare | None:
        rates = self.scenario.response
        if rates is None:
            return None
        courses = [(category.course, category.pace) for category in self.scenario.categories]
        means = MEANS.get(trial.policy, Means())
        return FaultCare(rates=rates, means=means, courses=courses, seed=trial.seed)

    def _policy(self, trial: Trial, true_risk: Foresight | None) -> StudiedPolicy:
        scenario, count = self.scenario, len(self.scenario.benchmarks)
        match trial.policy:
            case "absence":
                return Absence()
            case "full set":
                return FullSet(benchmarks=count)
            case "cron":
                return Cron(benchmarks=count, every_h=scenario.cron_every_h)
            case "random":
                rng = np.random.default_rng([trial.seed, 1])
                return RandomSubsets(benchmarks=count, share=self._share(trial), rng=rng)
            case "selector" | "with watch" | "with diagnosis" | "whole loop":
                return GreedySelection(
                    risk=self._risk(true_risk),
                    detection=self._detection(trial.seed),
                    durations_s=tuple(benchmark.minutes * 60 for benchmark in scenario.benchmarks),
                    policy=replace(scenario.selection, p0=trial.p0),
                    incident_costs_h=scenario.incident_costs_h,
                )
            case "ideal":
                return Ideal()

    def _risk(self, true_risk: Foresight | None) -> Foresight:
        if self._model is not None:
            return ModelRisk(self._model, self.scenario.categories)
        if true_risk is None:
            raise TraceError(
                'the true risk of recorded incidents is not known: "risk" has to name a model'
            )
        return true_risk

    def _share(self, trial: Trial) -> float:
        """Share of the full set's time that the Selector spends on a node per decision."""
        spent = self.result(replace(trial, policy="selector")).outcome
        full_h = sum(benchmark.minutes for benchmark in self.scenario.benchmarks) / 60
        return spent.validating_h / (spent.queries * full_h) if spent.queries and full_h else 0.0

    def _detection(self, seed: int) -> Detection:
        """Detection learned from past defects on which the whole set had been tried."""
        names = self.scenario.benchmark_names
        rng = np.random.default_rng([seed, 2])
        kinds: list[Defect] = []
        weights: list[float] = []
        for category in self.scenario.categories:
            total_share = sum(cause.share for cause in category.causes)
            for cause in category.causes:
                found_by = frozenset(cause.found_by)
                tried = frozenset(names) - found_by
                kinds.append(Defect(category=category.name, found_by=found_by, tried=tried))
                weights.append(cause.share / total_share / category.mtbi_h)
        size = self.scenario.known_defects if kinds else 0
        chances = np.array(weights) / np.sum(weights) if kinds else None
        drawn = rng.choice(max(1, len(kinds)), size=size, p=chances)
        past = [kinds[kind] for kind in drawn.tolist()]
        selection = self.scenario.selection
        prior, of_category = selection.prior_of(len(names)), selection.category_prior
        return learn_detection(past, names, prior=prior, category_prior=of_category)

    def _jobs_of(self, seed: int) -> tuple[TracedJob, ...]:
        scenario, request = self.scenario, self.scenario.jobs
        rng = np.random.default_rng([seed, 0])
        if request.trace:
            jobs = traces.rotate(self._recorded, int(rng.integers(max(1, len(self._recorded)))))
        else:
            jobs = traces.cut(drawn_jobs(request, rng), request.limit_h)
        if not request.load:
            return jobs
        return traces.stress(jobs, scenario.nodes, scenario.span_h, request.load)


DRAWN = 2000  # jobs, repeated by a stressed replay


def drawn_jobs(request: Jobs, rng: np.random.Generator) -> tuple[TracedJob, ...]:
    """Jobs of the wanted sizes with log-normal durations."""
    shares = np.array([size.share for size in request.sizes])
    sizes = rng.choice([size.nodes for size in request.sizes], DRAWN, p=shares / shares.sum())
    durations_h = rng.lognormal(math.log(request.median_h), request.spread, DRAWN)
    return tuple(
        TracedJob(arrival_h=0.0, nodes=nodes, duration_h=duration_h)
        for nodes, duration_h in zip(sizes.tolist(), durations_h.tolist(), strict=True)
    )


def figures(outcome: PolicyOutcome, jobs: Sequence[TracedJob]) -> dict[str, float]:
    """Figures to compare. Hours are per node; times between incidents may be infinite."""
    nodes, total_h = outcome.nodes, outcome.nodes * outcome.span_h
    arrival_h = np.array([job.arrival_h for job in jobs])
    duration_h = np.array([job.duration_h for job in jobs])
    arrived = arrival_h < outcome.span_h
    until_h = np.where(np.isnan(outcome.first_h), outcome.span_h, outcome.first_h)
    finished = np.isfinite(outcome.finished_h)
    held_up_h = outcome.finished_h - outcome.first_h - duration_h
    return {
        "utilization": outcome.working_h / total_h,
        "goodput": (outcome.working_h - outcome.lost_h) / total_h,
        "lost_h": outcome.lost_h / nodes,
        "slow_h": outcome.slow_h / nodes,
        "stalled_h": outcome.stalled_h / nodes,
        "restarts": outcome.restarts / nodes,
        "alarms": outcome.alarms / nodes,
        "validation_h": outcome.validating_h / nodes,
        "repair_h": outcome.repair_h / nodes,
        "idle_h": outcome.idle_h / nodes,
        "spare_h": outcome.spare_h / nodes,
        "mtbi_h": _hours_per_event(total_h - outcome.repair_h, outcome.incidents),
        "work_per_hit_h": _hours_per_event(outcome.working_h, outcome.hits),
        "incidents": outcome.incidents / nodes,
        "found": outcome.repaired_early / nodes,
        "jobs_finished": float(np.count_nonzero(finished)),
        "wait_h": _mean((until_h - arrival_h)[arrived]),
        "held_up_h": _mean(held_up_h[finished]),
    }


def utilization_over_time(outcome: PolicyOutcome, bins: int) -> Hours:
    """Share of the nodes that work, averaged over equal stretches of the span."""
    times, counts = outcome.working
    edges = np.linspace(0.0, outcome.span_h, bins + 1)
    ends = np.append(times[1:], outcome.span_h)
    done_h = np.concatenate(([0.0], np.cumsum(counts * (ends - times))))
    grid = np.concatenate((times, [outcome.span_h]))
    at_edges = np.interp(edges, grid, done_h)
    shares: Hours = np.diff(at_edges) / np.diff(edges) / outcome.nodes
    return shares


def estimate(values: Sequence[float]) -> SeedMean:
    """Mean with Student's interval."""
    from scipy.special import stdtrit  # a quarter of a second, for each page of the service

    mean = sum(values) / len(values)
    if len(values) < 2 or not math.isfinite(mean):
        return SeedMean(mean=mean, margin=math.inf)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return SeedMean(mean=mean, margin=quantile * spread / math.sqrt(len(values)))


def _hours_per_event(hours: float, events: int) -> float:
    return hours / events if events else math.inf


def _mean(values: Hours) -> float:
    return float(values.mean()) if values.size else 0.0
