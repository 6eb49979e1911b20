"""The most probable set of causes of the observations, and the probability of its alternatives.

A flow crosses a cause with chance q, the share of the cause in all its paths, and several causes
miss it independently (noisy-OR). An observation has one number, its odds: how much more likely its
shortfall is for a flow that was hit than for one that was not. Up to a constant

    log P(S | all) = sum over S of log prior odds
                   + sum over observations of log(1 + (1 - prod over S of (1 - q)) (odds - 1))

Observations with odds up to 1 speak against causes, and they count for each cause separately: the
sum over S of log(1 - q (1 - odds)). So they are summed in advance, and only those that speak for
causes connect causes.

Most faults hit all flows that cross them; some come and go. So a node, NIC or link that good flows
crossed as well as bad ones is listed a second time, with half the chance to hit and a small prior.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from anubis.core.arrays import Flags, Floats
from anubis.core.fabric import KINDS, Numbers, Part, PartKind, Shares
from anubis.core.network.crossing import Crossings, Flow, Parts
from anubis.core.network.sharing import LEAST_LOST

PRIOR: Mapping[PartKind, float] = {
    "node": 3e-3,
    "nic": 1e-3,
    "link": 1e-3,
    "uplinks": 3e-4,
    "switch": 3e-4,
}


@dataclass(frozen=True, slots=True)
class Observation:
    """The share by which a flow fell short of comparable flows; 0 or less is as good or better."""

    flow: Flow
    shortfall: float


@dataclass(frozen=True, kw_only=True)
class FaultPrior:
    """The model before anything is measured."""

    limit: float = 0.05  # a flow that falls short by more is bad
    noise: float = 0.0  # standard deviation of healthy flows; 0: only the limit counts
    false_alarm: float = 1e-3  # chance of a healthy flow to be far too slow
    detection: float = 0.98  # chance of a flow across a faulty part to suffer
    intermittent: float = 0.1  # share of faults that show in half of the tests only
    odds: float = 20.0  # alternatives that are less probable by at most this are named
    prior: Mapping[PartKind, float] = field(default_factory=lambda: PRIOR)
    hints: Mapping[Part, float] = field(default_factory=dict)  # factors on the prior odds of parts


def odds(
    shortfall: Shares, model: FaultPrior, shared: Shares | float = 0.0, repeats: Numbers | int = 0
) -> Shares:
    """The factor by which each shortfall is more likely for a flow that was hit than for one that
    was not.

    The shortfall of a flow that was not hit is noise or, with the chance of a false alarm or of
    having `shared` a cable with others, uniform between the limit and 1. A flow that fell short in
    `repeats` as well is less often a false alarm. That of a flow that was hit is uniform with the
    chance of detection, else noise. Without noise this gives detection / false alarm for bad flows.
    A good flow never speaks for a cause, and an unknown one (NaN) speaks neither for nor against.
    """
    from scipy.special import ndtr

    unknown = np.isnan(shortfall)
    x = np.where(unknown, 0.0, np.maximum(shortfall, 0.0))
    bad = x > model.limit
    if model.noise == 0:
        slow, noise = bad * 1.0, ~bad * 1.0
    else:
        spread = max(model.noise, 1e-3)
        slow = (ndtr((x - model.limit) / spread) - ndtr((x - 1) / spread)) / (1 - model.limit)
        noise = np.exp(-0.5 * (x / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    hit = model.detection * slow + (1 - model.detection) * noise
    false_alarm = model.false_alarm * SEEN_AGAIN**repeats + np.broadcast_to(shared, x.shape)
    missed = false_alarm * slow + (1 - false_alarm) * noise
    ratio = np.divide(hit, missed, out=model.detection / false_alarm, where=missed > 0)
    return np.asarray(np.where(unknown, 1.0, np.where(bad, ratio, np.minimum(ratio, 1.0))))


# --- observations and columns that are connected ----------------------------------------------

ENDS = [KINDS.index(kind) for kind in ("node", "nic")]
FITFUL = [KINDS.index(kind) for kind in ("node", "nic", "link")]
HALF = 0.5  # share of tests in which a fault that comes and goes shows
CERTAIN, AGAINST = 0.999, 0.5  # a path that is surely taken; odds that speak against it
KEPT = 1e-3  # a column with lower odds against chance is in no probable set
MOST_COLUMNS = 14  # of a case that is solved by computing every set
MOST_CELLS = 4_000_000  # sets x observations, or sets x observations x columns
WIDEST, MOST_KEPT = 128, 4096  # sets of each size to extend, and to compute
SEEN_AGAIN = 0.05  # chance that a false alarm, if it came from other jobs, is seen again
NEGLIGIBLE = 14.0  # sets less probable than the best by exp of this are dropped
LEFT_OUT = 0.1  # upper bound of the chance of a cause that unnamed parts may have
DIGITS = 9  # of a score that count: the last ones differ from processor to processor


@dataclass(frozen=True)
class Evidence:
    """The rows that speak for columns, and the weight of everything else for each column."""

    q: Floats  # rows x columns
    odds: Shares  # of rows
    weight: Shares  # of columns: the prior, and all that speaks against it

    def miss_chances(self, columns: Sequence[int]) -> Shares:
        """The chance of each row that none of these causes hits it."""
        return np.asarray(np.prod(1 - self.q[:, list(columns)], axis=1))

    def score(self, columns: Sequence[int]) -> float:
        """The log posterior of these columns; 0 for the empty set."""
        rows = np.log(self.odds - self.miss_chances(columns) * (self.odds - 1))
        return round(float(self.weight[list(columns)].sum() + rows.sum()), DIGITS)

    def gains(self, columns: Sequence[int]) -> Shares:
        """The amount that each column would add to the score of these."""
        return self._gains(self.miss_chances(columns))

    def _gains(self, missed: Shares) -> Shares:
        """The gains for one set of columns, or for many: `missed` is theirs, row by row."""
        row, q, first, filled = self._crossed_rows
        left = missed * (self.odds - 1)
        of_rows = self.odds - left
        more = np.log((self.odds[row] - left[..., row] * (1 - q)) / of_rows[..., row])
        gains = np.zeros((*missed.shape[:-1], len(self.weight)))
        gains[..., filled] = np.add.reduceat(more, first, axis=-1)
        return np.asarray(np.round(self.weight + gains, DIGITS))

    @cached_property
    def _crossed_rows(self) -> tuple[Numbers, Shares, Numbers, Numbers]:
        """The rows that each column may hit, column by column, with their chances; the begin of
        each column that has any; and the numbers of these columns. Most columns hit few rows, and
        the other rows do not matter."""
        column, row = np.nonzero(self.q.T)
        filled, first = np.unique(column, return_index=True)
        return row, self.q[row, column], first, filled

    def all_sets(self) -> tuple[Flags, Shares]:
        """All sets of columns, with their scores."""
        missed, score = np.ones((1, len(self.odds))), np.zeros(1)
        for column in range(len(self.weight)):
            missed = np.concatenate([missed, missed * (1 - self.q[:, column])])
            score = np.concatenate([score, score + self.weight[column]])
        score += np.log(self.odds - missed * (self.odds - 1)).sum(axis=1)
        numbers = np.arange(len(score))[:, None] >> np.arange(len(self.weight))
        return (numbers & 1).astype(bool), np.round(score, DIGITS)

    def probable_sets(self) -> tuple[Flags, Shares]:
        """Many sets, with their scores: the best of each size extended by every column.

        As gains shrink, the sets on the way to the best one are better and better.
        """
        width = int(min(WIDEST, max(1, MOST_CELLS // self.q.size)))
        members, score = np.zeros((1, len(self.weight)), dtype=bool), np.zeros(1)
        missed = np.ones((1, len(self.odds)))
        levels, best = [(members, score)], 0.0
        while len(members) and score.max() > best - NEGLIGIBLE:
            best = max(best, float(score.max()))
            gains = self._gains(missed)
            place, column = np.nonzero(~members & (gains > -NEGLIGIBLE))
            score = np.round(score[place] + gains[place, column], DIGITS)
            top = np.argsort(-score, kind="stable")[:MOST_KEPT]
            place, column, score = place[top], column[top], score[top]
            members = members[place]
            members[np.arange(len(top)), column] = True
            once = _distinct_rows(members)
            levels.append((members[once], score[once]))
            wide = once[np.argsort(-score[once], kind="stable")[:width]]
            missed = missed[place[wide]] * (1 - self.q[:, column[wide]].T)
            members, score = members[wide], score[wide]
        return np.concatenate([sets for sets, _ in levels]), np.concatenate([s for _, s in levels])

    def neighbours(self, columns: Sequence[int]) -> tuple[Flags, Shares]:
        """This set, and all sets in which one of its columns is left out or replaced, with their
        scores."""
        base = np.isin(np.arange(len(self.weight)), list(columns))
        members, scores = [base[None]], [np.array([self.score(columns)])]
        for column in columns:
            rest = [member for member in columns if member != column]
            without = base.copy()
            without[column] = False
            gains = self.gains(rest)
            outside = np.flatnonzero(~base)
            changed = np.repeat(without[None], len(outside) + 1, axis=0)
            changed[np.arange(len(outside)), outside] = True
            members.append(changed)
            scores.append(self.score(rest) + np.append(gains[outside], 0.0))
        return np.concatenate(members), np.concatenate(scores)

    def search(self) -> list[int]:
        """Add the best columns; then force any other one in, or one out, and keep the change if it
        helps in the end.

        Gains only shrink as sets grow, so a column that alone gains nothing never belongs.
        """
        best = self._grow([])
        score, hopeful = self.score(best), np.flatnonzero(self.gains([]) > 0).tolist()
        improving = True
        while improving:
            improving = False
            for column in hopeful:
                if column in best:
                    changed = self._grow(
                        [member for member in best if member != column], without=column
                    )
                else:
                    changed = self._trim([*best, column])
                if (value := self.score(changed)) > score + 1e-9:
                    best, score, improving = changed, value, True
        return sorted(best)

    def _grow(self, columns: list[int], without: int | None = None) -> list[int]:
        """Add columns, the best first, as long as each improves the score."""
        grown = list(columns)
        while True:
            gains = self.gains(grown)
            gains[grown if without is None else [*grown, without]] = -np.inf
            if gains.max(initial=-np.inf) <= 0:
                return grown
            grown.append(int(np.argmax(gains)))

    def _trim(self, columns: list[int]) -> list[int]:
        """Drop columns, the least useful first, as long as that improves the score; one stays."""
        kept = list(columns)
        while len(kept) > 1:
            without = [self.score([c for c in kept if c != column]) for column in kept[:-1]]
            if max(without) < self.score(kept):
                break
            kept.pop(int(np.argmax(without)))
        return kept


def _distinct_rows(members: Flags) -> Numbers:
    """The first position of each distinct set. Scores of equal sets differ in the last digits only,
    by the order of their sums."""
    packed = np.packbits(members, axis=1)
    rows = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1])))
    return np.unique(rows.ravel(), return_index=True)[1]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Columns connected by observations, and the probabilities of their sets."""

    rows: Numbers  # numbers of observations
    classes: Numbers
    evidence: Evidence
    sets: Flags  # all sets of columns or, if these are too many, the probable ones
    posterior: Shares  # of these sets
    gain: float  # log of how much likelier faults make the observations than no fault
    chosen: tuple[int, ...]  # the columns of the most probable set

    def rivals(self, column: int, alike: Sequence[int] = ()) -> Shares:
        """The probability of each column in place of this one and those alike, relative to them.

        A column that is as probable beside it as without it replaces another cause.
        """
        has = self.sets[:, [column, *alike]].any(axis=1)
        having, lacking = float(self.posterior[has].sum()), float(self.posterior[~has].sum())
        place, member = self._members
        weight = np.where(has, -lacking / having, 1.0) * self.posterior
        ratios = np.bincount(member, weight[place], minlength=self.sets.shape[1]) / having
        elsewhere = ~(self.evidence.q[self.explained_rows(column)] > 0).any(axis=0)
        ratios[elsewhere] = 0
        ratios[list(self.chosen)] = 0
        return np.maximum(ratios, 0)

    def explained_rows(self, column: int) -> Flags:
        """The rows that this chosen column explains at least as well as any other does."""
        q = self.evidence.q
        best: Flags = (q[:, column] > 0) & (q[:, column] >= q[:, list(self.chosen)].max(axis=1))
        return best if best.any() else q[:, column] > 0

    @cached_property
    def _members(self) -> tuple[Numbers, Numbers]:
        place, member = np.nonzero(self.sets)
        return place, member

    def chance(self, column: int) -> float:
        """The odds that this column is not a cause."""
        having = float(self.posterior[self.sets[:, column]].sum())
        return max(1 - having, 0.0) / having

    def alternatives(
        self, column: int, least: float, shares: Sequence[Shares], alike: Sequence[int] = ()
    ) -> list[tuple[int, int, float]]:
        """The parts that explain the evidence about as well as the best part of this column, the
        best first.

        Each is a column, a part of it, and its probability relative to this column as a whole.
        `shares` are those of the parts of each column. Many parts that are each improbable are left
        out, as long as the rest are surely enough. `alike` are the same parts in other directions.
        """
        ratios = self.rivals(column, alike)
        ratios[column] = 1.0
        chance = np.concatenate(
            [ratio * share for ratio, share in zip(ratios, shares, strict=True)]
        )
        sizes = [len(share) for share in shares]
        owner = np.repeat(np.arange(len(shares)), sizes)
        member = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        enough, left = least * float(shares[column].max()), float(ratios.sum())
        named, most_left = [], LEFT_OUT * float(ratios.sum())
        for place in np.argsort(-chance, kind="stable").tolist():
            probable = float(chance[place])
            if not probable or (probable < enough * (1 - 1e-9) and left <= most_left):
                break
            named.append((int(owner[place]), int(member[place]), probable))
            left -= probable
        return named

    def confidence(self, named: Shares) -> float:
        """The probability that a named part is a cause; `named` is the share of each column."""
        missed = np.prod(np.where(self.sets, 1 - named, 1.0), axis=1)
        return float(min((self.posterior * (1 - missed)).sum(), 1.0))


def solve_case(rows: Numbers, classes: Numbers, evidence: Evidence) -> Case:
    """Solve small cases by computing all sets, large ones by search and the probable sets near its
    result."""
    count = len(classes)
    if count <= MOST_COLUMNS and len(rows) << count <= MOST_CELLS:
        sets, score = evidence.all_sets()
    else:
        parts = [evidence.probable_sets(), evidence.neighbours(evidence.search())]
        sets, score = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        once = _distinct_rows(sets)
        sets, score = sets[once], score[once]
    probable = score > score.max() - NEGLIGIBLE
    sets, score = sets[probable], score[probable]
    posterior = np.round(np.exp(score - score.max()), DIGITS)
    total = float(posterior.sum())
    return Case(
        rows=rows,
        classes=classes,
        evidence=evidence,
        sets=sets,
        posterior=posterior / total,
        gain=round(float(score.max()) + float(np.log(total)), DIGITS),
        chosen=tuple(np.flatnonzero(sets[np.argmax(score)]).tolist()),
    )


class Problem:
    """Flows with their shortfalls, and the classes of columns that one of the bad ones crosses."""

    def __init__(
        self,
        parts: Parts,
        flows: Sequence[Flow],
        shortfall: Shares,
        model: FaultPrior,
        *,
        excuses: bool = True,
    ) -> None:
        self.parts, self.shortfall, self.model = parts, shortfall, model
        shared = parts.chances_of_sharing(flows, (shortfall > LEAST_LOST) & excuses)
        shared = shared + np.array([flow.excused for flow in flows], dtype=np.float64)
        repeats = np.array([max(0, len(flow.turns) - 1) for flow in flows], dtype=np.int64)
        self.odds = odds(shortfall, model, shared, repeats)
        crossed, classes = parts.classes(flows, np.flatnonzero(self.odds > 1))
        crossed = self._drop_gone(crossed, classes, flows)
        fitful = (
            _fitful_classes(crossed, self.odds) if model.intermittent else np.empty(0, np.int64)
        )
        fitful = fitful[self._may_come_and_go([classes[number] for number in fitful.tolist()])]
        self.crossed = _double(crossed, len(classes), fitful)
        self.classes = [*classes, *(classes[number] for number in fitful.tolist())]
        self.steady = np.arange(len(self.classes)) < len(classes)
        self.q = np.minimum(self.crossed.chance, 1.0)
        self._speaking = self.odds[self.crossed.row] > 1
        alone = np.log1p(self.q * (self.odds[self.crossed.row] - 1))
        every = np.concatenate([np.empty(0, np.int64), *self.classes])
        priors = np.split(self._priors(every), _starts(self.classes)[1:])[: len(self.classes)]
        self.shares = [prior / prior.sum() for prior in priors]  # of the columns of each class
        prior = np.minimum([prior.sum() for prior in priors], 0.5)
        prior = prior * np.where(self.steady, 1.0, model.intermittent)
        self.weight = np.log(prior / (1 - prior)) + self._sums(alone, ~self._speaking)
        self.kept = self.weight + self._sums(alone, self._speaking) > np.log(KEPT)

    def _drop_gone(
        self, crossed: Crossings, classes: Sequence[Numbers], flows: Sequence[Flow]
    ) -> Crossings:
        """The crossings without those of flows that were bad and became good. They say nothing of
        cables and switches: on the same way such a fault would have shown again, or it is no fault.
        """
        gone = np.flatnonzero([flow.gone for flow in flows])
        if not len(gone) or not len(classes):
            return crossed
        is_end = np.logical_or.reduceat(
            np.isin(self.parts.kinds(np.concatenate(classes)), ENDS), _starts(classes)
        )
        kept = is_end[crossed.column] | ~np.isin(crossed.row, gone)
        return Crossings(crossed.row[kept], crossed.column[kept], crossed.chance[kept])

    def _sums(self, values: Shares, entries: Flags) -> Shares:
        count = len(self.classes)
        sums = np.bincount(self.crossed.column[entries], values[entries], minlength=count)
        return sums.astype(np.float64)  # without entries, they would be integers

    def _priors(self, columns: Numbers) -> Shares:
        """The prior of each column; the prior of a part is shared by the directions in which it may
        be at fault."""
        prior = np.array([self.model.prior[kind] for kind in KINDS])[self.parts.kinds(columns)]
        prior = np.where(self.parts.are_one_way(columns), prior / 3, prior)
        if not self.model.hints:
            return np.asarray(prior)
        factors = np.array([self._factors.get(number, 1.0) for number in (columns // 3).tolist()])
        return np.asarray(prior * factors / (1 - prior + prior * factors))

    def _may_come_and_go(self, classes: Sequence[Numbers]) -> Flags:
        """Flags for the classes whose faults may come and go: cables and their ends. If half of the
        flows across a switch suffer, the switch is not the cause."""
        if not classes:
            return np.zeros(0, dtype=bool)
        may = np.isin(self.parts.kinds(np.concatenate(classes)), FITFUL)
        return np.logical_and.reduceat(may, _starts(classes))

    @cached_property
    def _factors(self) -> dict[int, float]:
        return {self.parts.number(part): factor for part, factor in self.model.hints.items()}

    def cases(self) -> Iterator[Case]:
        """Yield the evidence in parts that have no column in common."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        entry = self.kept[self.crossed.column] & self._speaking
        q = self.q[entry]
        rows, row = np.unique(self.crossed.row[entry], return_inverse=True)
        columns, column = np.unique(self.crossed.column[entry], return_inverse=True)
        size = len(rows) + len(columns)
        graph = csr_array((np.ones(len(row)), (row, column + len(rows))), shape=(size, size))
        count, part = connected_components(graph, directed=False)
        order = np.argsort(part[row], kind="stable")
        for entries in np.split(order, np.searchsorted(part[row][order], np.arange(1, count))):
            here, at = np.unique(row[entries], return_inverse=True)
            columns_here, to = np.unique(column[entries], return_inverse=True)
            table = np.zeros((len(here), len(columns_here)))
            table[at, to] = q[entries]
            weight = self.weight[columns[columns_here]]
            evidence = Evidence(table, self.odds[rows[here]], weight)
            if len(here):
                yield solve_case(rows[here], columns[columns_here], evidence)


def _starts(classes: Sequence[Numbers]) -> Numbers:
    """The begin of each if all are put end to end."""
    sizes = np.array([len(columns) for columns in classes], dtype=np.int64)
    return np.cumsum(sizes) - sizes


def _fitful_classes(crossed: Crossings, odds: Shares) -> Numbers:
    """The classes that bad flows surely crossed, and good ones too."""
    certain = crossed.chance > CERTAIN
    of_row = odds[crossed.row]
    bad, good = certain & (of_row > 1), certain & (of_row < AGAINST)
    return np.intersect1d(crossed.column[bad], crossed.column[good])


def _double(crossed: Crossings, count: int, again: Numbers) -> Crossings:
    """Add these classes once more, under further numbers and with half the chance to hit."""
    if not len(again):
        return crossed
    entry = np.isin(crossed.column, again)
    further = count + np.searchsorted(again, crossed.column[entry])
    return Crossings(
        np.concatenate([crossed.row, crossed.row[entry]]),
        np.concatenate([crossed.column, further]),
        np.concatenate([crossed.chance, HALF * crossed.chance[entry]]),
    )
