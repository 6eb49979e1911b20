"""A look at a job by going through all windows, all pairs and all points, one after the other.

It shares nothing with the detector but its records, so that it can judge it.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import numpy as np

from anubis.core.watch.findings import Anomaly, AnomalyKind, Deviation, Look, Sign, Suspicion
from anubis.core.watch.telemetry import Side


def naive_look(telemetry, model, settings, *, job="", ended=False):
    start, end = telemetry.last(settings.pull_s).start, telemetry.end
    if ended and settings.continuity_ended_s:
        telemetry = worked(telemetry)
    seen = _Naive(telemetry, model, settings, job, ended).look()
    return replace(seen, start=start, end=end)


def worked(telemetry):
    """Telemetry without what was reported after all had stopped."""
    gpus, last = False, -1
    for m, metric in enumerate(telemetry.metrics):
        if metric.fault is not Side.LOW or metric.family not in {"cpu", "gpu", "throughput"}:
            continue
        gpus = gpus or metric.family == "gpu"
        levels = [median(telemetry.values[m][:, p]) for p in range(telemetry.points)]
        usual = np.percentile(finite(levels), 75) if finite(levels) else 0
        for p, level in enumerate(levels):
            if usual > 0 and level >= 0.5 * usual:
                last = max(last, p)
    if not gpus or last < 0:
        return telemetry
    return replace(telemetry, values=telemetry.values[:, :, : last + 1])


def finite(values):
    return [float(value) for value in values if math.isfinite(value)]


def median(values):
    values = finite(values)
    return statistics.median(values) if values else math.nan


class _Naive:
    def __init__(self, telemetry, model, settings, job, ended):
        self.t, self.model, self.s = telemetry, model, settings
        self.job, self.ended = job, ended
        self.names = [metric.name for metric in telemetry.metrics]
        self.first = max(0, telemetry.points - round(settings.pull_s / telemetry.step_s))
        self.windows = max(0, telemetry.points - self.first - settings.window + 1)
        continuity = settings.continuity_s
        if ended and settings.continuity_ended_s is not None:
            continuity = settings.continuity_ended_s
        self.needed = self.points_in(continuity)
        self.least = self.needed
        if settings.returns:
            self.least = min(
                self.needed,
                self.points_in(settings.remark_s),
                self.points_in(settings.continuity_s),
            )
        self.limit = max(1, int(settings.most_suspects * len(telemetry.nodes)))
        self.limits = [self.limits_of(m) for m in range(len(self.names))]
        self.suspicions, self.anomalies, self.unjudged = {}, [], {}
        self.roles = {}

    def points_in(self, seconds):
        return max(1, math.ceil(seconds / self.t.step_s - 1e-9))

    def limits_of(self, m):
        metric, values = self.t.metrics[m], finite(self.t.values[m].ravel())
        low = metric.low if metric.low is not None else min(values, default=0.0)
        high = metric.high if metric.high is not None else max(values, default=0.0)
        return low, max(low, high)

    def width(self, m):
        return self.limits[m][1] - self.limits[m][0]

    # --- silence

    def silence(self):
        long = self.s.vanished_s
        if self.ended and self.s.continuity_ended_s is not None:
            long = min(long, self.s.continuity_ended_s)
        long = self.points_in(long)
        vanished, self.unreported = {}, set()
        holes = {}
        for m, name in enumerate(self.names):
            there = [[math.isfinite(v) for v in row] for row in self.t.values[m]]
            n = len(there)
            on = [sum(row[p] for row in there) * 2 > n for p in range(self.t.points)]
            if not any(on):
                self.unreported.add(name)
                continue
            newest = max(p for p, flag in enumerate(on) if flag)
            gone = {}
            for i, row in enumerate(there):
                if not any(row):
                    self.odd(i, AnomalyKind.SILENT, name, 0, self.t.points - 1)
                    continue
                last = max(p for p, flag in enumerate(row) if flag)
                if sum(on[last + 1 :]) >= long and sum(row) >= self.s.window:
                    gone[i] = last
                for a, b in self.stretches([not flag for flag in row[: last + 1]]):
                    if sum(on[a : b + 1]) >= long:
                        self.odd(i, AnomalyKind.GAPS, name, a, b)
            if len(gone) > self.limit:
                self.odd(None, AnomalyKind.GAPS, name, min(gone.values()), newest)
            else:
                for i, last in gone.items():
                    vanished.setdefault(i, []).append((last, newest, m))
            for a, b in self.stretches([not flag for flag in on]):
                if (b - a + 1) * self.t.step_s > self.s.gap_s:
                    holes.setdefault((a, b), []).append(name)
        for i, ends in list(vanished.items()):
            deaf = [last for last, end, m in ends if self.is_deaf(i, last, end, m)]
            for last, end, m in [one for one in ends if deaf and abs(one[0] - deaf[-1]) <= 2]:
                ends.remove((last, end, m))
                self.odd(i, AnomalyKind.GAPS, self.names[m], last, end)
            if not ends:
                del vanished[i]
        for (a, b), names in holes.items():
            self.odd(None, AnomalyKind.GAPS, names[0] if len(names) == 1 else "", a, b)
        return vanished

    def is_deaf(self, i, last, end, m):
        """Return whether GPUs of a node report on after a metric of its host."""
        later = [
            [math.isfinite(v) for v in self.t.values[g][i][last + 1 : end + 1]]
            for g, metric in enumerate(self.t.metrics)
            if metric.family == "gpu"
        ]
        is_host = self.t.metrics[m].family in {"cpu", "memory", "disk"}
        return is_host and any(sum(flags) * 2 > len(flags) for flags in later)

    def stretches(self, flags):
        result, start = [], None
        for p, flag in enumerate([*flags, False]):
            if flag and start is None:
                start = p
            if not flag and start is not None:
                result.append((start, p - 1))
                start = None
        return result

    def patient(self, flags):
        """Stretches long enough to bridge the gaps between them, if these are short enough."""
        patience = min(int(self.s.patience * self.needed + 1e-9), self.least // 4)
        joined = []
        for a, b in self.stretches(flags):
            if b - a + 1 < 4 * patience:
                continue
            if joined and a - joined[-1][1] - 1 <= patience:
                joined[-1] = (joined[-1][0], b)
            else:
                joined.append((a, b))
        return joined

    def odd(self, i, kind, metric, a, b):
        node = "" if i is None else self.t.nodes[i]
        key = (node, kind, metric)
        if kind in {AnomalyKind.UNSTEADY, AnomalyKind.ALWAYS_APART} and any(
            (o.node, o.kind, o.metric) == key for o in self.anomalies
        ):
            return
        self.anomalies.append(
            Anomaly(
                node=node,
                kind=kind,
                metric=metric,
                since=self.t.start + a * self.t.step_s,
                until=self.t.start + b * self.t.step_s,
                sentence="",
            )
        )

    def remark(self, i, kind, m, left):
        self.odd(i, kind, self.names[m], left["since"], left["until"])

    # --- windows

    def groups(self):
        labels = self.t.groups or ("",) * len(self.t.nodes)
        by_label = {}
        for i, label in enumerate(labels):
            by_label.setdefault(label, []).append(i)
        large = [g for g in by_label.values() if len(g) >= self.s.least_nodes]
        rest = sorted(i for g in by_label.values() if len(g) < self.s.least_nodes for i in g)
        for label, g in by_label.items():
            if len(g) < self.s.least_nodes:
                self.unjudged[f"group {label}" if self.t.groups else "all metrics"] = ""
        return [*large, rest] if len(rest) >= self.s.least_nodes else large

    def compared(self):
        usable = []
        for name in self.model.order:
            if name not in self.names or name in self.unreported:
                self.unjudged[name] = ""
            else:
                usable.append(name)
        if self.s.concatenated:
            return [("concatenated", tuple(usable))] if usable else []
        return [(name, (name,)) for name in usable]

    def vectors(self, names, peers, w):
        start = self.first + w
        rows, vectors = [], []
        for i in peers:
            raw = [self.t.series(name)[i, start : start + self.s.window] for name in names]
            if not all(np.isfinite(part).all() for part in raw):
                continue
            rows.append(i)
            vector = []
            for name, part in zip(names, raw, strict=True):
                low, high = self.limits[self.names.index(name)]
                share = (part - low) / (high - low) if high > low else part * 0
                share = np.clip(share, 0, 1).astype(np.float32)
                if self.s.denoised:
                    share = self.model.denoisers[name].denoise(share[None])[0]
                vector += [float(x) for x in share]
            vectors.append(vector)
        return rows, vectors

    def distance(self, a, b):
        return math.sqrt((np.subtract(a, b) ** 2).mean())

    def scored(self, names, peers, w):
        rows, vectors = self.vectors(names, peers, w)
        n = len(rows)
        far = [
            sum(self.distance(vectors[i], vectors[j]) for j in range(n) if j != i) / (n - 1)
            for i in range(n)
            if n > 1
        ]
        if n >= 16:
            mean, spread = statistics.fmean(far), statistics.pstdev(far)
            flat = spread <= 1e-9 * max(far)
            return rows, far, [0.0 if flat else (d - mean) / spread for d in far]
        if n < 2:
            return rows, [0.0] * n, [0.0] * n
        middle = statistics.median(far)
        spread = 1.4826 * statistics.median([abs(d - middle) for d in far])
        return rows, far, [(d - middle) / (spread + 0.01) for d in far]

    def stand_out(self, name, names, peers, w):
        rows, far, scores = self.scored(names, peers, w)
        n = len(rows)
        if n < min(self.s.least_nodes, max(len(peers), 3)) or n * 2 <= len(peers):
            return set()
        floor = 0.0
        if self.s.min_effect:
            floor = self.s.min_effect
            if len(names) == 1:
                m = self.names.index(name)
                floor = max(floor, self.t.metrics[m].floor / (self.width(m) or 1))
        threshold = self.model.thresholds[name].value_at(n)
        apart = [k for k in range(n) if scores[k] > threshold and far[k] >= floor]
        if self.s.candidates == "largest" and apart:
            largest = next(k for k in range(n) if far[k] >= max(far) * (1 - 1e-9))
            apart = [k for k in apart if k == largest]
        return {rows[k] for k in apart}

    def runs(self, name, names, peers):
        """All of them; newest first, by which block of windows they were seen to cross."""
        windows = [self.stand_out(name, names, peers, w) for w in range(self.windows)]
        result = []
        for i in peers:
            for a, b in self.patient([i in out for out in windows]):
                if b - a + 1 >= self.least:
                    block = (self.windows - 1 - b) // self.least
                    anchor = self.windows - (block + 1) * self.least
                    if anchor > b:
                        anchor -= self.least
                    result.append((-anchor, i, a, b))
        return [(i, a, b) for _, i, a, b in sorted(result)]

    # --- departures

    def departure(self, m, peers, i, first, last):
        own = [float(v) for v in self.t.values[m][i]]
        others = [j for j in peers if j != i]
        middle = [median(self.t.values[m][others, p]) for p in range(self.t.points)]
        gap = [abs(a - b) for a, b in zip(own, middle, strict=True)]
        known = [p for p in range(first, last + 1) if math.isfinite(gap[p])]
        if not known:
            return None
        usual = float(np.mean([gap[p] for p in known]))
        half = usual / 2
        apart = [g >= half for g in gap]
        together = [g < half for g in gap]
        telling = []
        for p in range(self.t.points):
            near = [
                s
                for s in range(first, last + 1)
                if middle[p] - half <= middle[s] <= middle[p] + half
            ]
            telling.append(sum(apart[s] for s in near) * 2 > len(near))
        level = median(own[p] for p in known)
        usually = float(np.mean([middle[p] for p in known]))
        activity = self.t.metrics[m].fault is Side.LOW
        lively = [not activity or level >= usually for level in middle]
        shift = float(np.mean([own[p] - middle[p] for p in known]))
        side = Side.EITHER if abs(shift) < half else Side.LOW if shift < 0 else Side.HIGH
        if side is not Side.EITHER and usually != level:
            way = [(at - level) / (usually - level) for at in own]
            telling = [
                tells or (0.25 <= share <= 1.25 and math.isfinite(at))
                for tells, share, at in zip(telling, way, middle, strict=True)
            ]
        telling = [
            tells and (lively[p] or side is not Side.EITHER) for p, tells in enumerate(telling)
        ]
        steps = self.extent([(apart[p], together[p] and telling[p]) for p in range(last, -1, -1)])
        since = first if steps is None else last - steps
        steps = self.extent(
            [(apart[p], together[p] and telling[p]) for p in range(since, self.t.points)]
        )
        until = last if steps is None else since + steps
        proofs = [together[p] and (lively[p] or telling[p]) for p in range(since)]
        returned, balance = False, 0
        for p in range(self.t.points - 1, last, -1):
            left_its_level = abs(own[p] - level) >= half and lively[p]
            back = together[p] and (telling[p] or left_its_level)
            balance += back - apart[p]
            returned = returned or balance >= self.s.window
        return {
            "since": since,
            "until": until,
            "returned": returned,
            "always": sum(proofs) < self.s.window,
            "value": median(own[since : last + 1]),
            "peers": median(middle[since : last + 1]),
            "distance": usual,
            "side": side,
        }

    def extent(self, points):
        sums = []
        for apart, together in points:
            sums.append((sums[-1] if sums else 0) + apart - together)
            if max(sums) - sums[-1] >= self.s.window:
                break
        return sums.index(max(sums)) if max(sums) > 0 else None

    def share(self, m, left):
        return left["distance"] / self.width(m) if self.width(m) > 0 else 0.0

    def elsewhere(self, skipped, peers, i, first, last):
        result = []
        for m, metric in enumerate(self.t.metrics):
            if m == skipped or not (left := self.departure(m, peers, i, first, last)):
                continue
            floor = max(self.s.min_effect * self.width(m), metric.floor)
            if left["returned"] or left["always"] or left["distance"] < floor:
                continue
            others = [j for j in peers if j != i]
            middle = [median(self.t.values[m][others, p]) for p in range(first, last + 1)]
            usual = median(
                np.mean(gaps) if (gaps := finite(np.subtract(row, middle).__abs__())) else math.nan
                for row in self.t.values[m][others, first : last + 1].astype(float)
            )
            if left["distance"] and left["distance"] >= 3 * usual:
                result.append(self.deviation(m, left))
        return result

    def deviation(self, m, left, score=0.0, threshold=0.0):
        return Deviation(
            sign=Sign.UNLIKE_PEERS,
            metric=self.names[m],
            family=self.t.metrics[m].family,
            since=self.t.start + left["since"] * self.t.step_s,
            until=self.t.start + left["until"] * self.t.step_s,
            side=left["side"],
            value=left["value"],
            peers=left["peers"],
            effect=self.share(m, left),
            score=score,
            threshold=threshold,
        )

    # --- the look

    def leavers(self, name, names, group):
        roles = self.roles.setdefault(name, set())
        while True:
            peers = [i for i in group if i not in roles and i not in self.suspicions]
            again = False
            for i, a, b in self.runs(name, names, peers):
                first, last = self.first + a, self.first + b + self.s.window - 1
                yield_first = self.first + max(a, b - self.long() + 1) if self.naming else first
                lefts = {}
                for metric in names:
                    m = self.names.index(metric)
                    left = self.departure(m, peers, i, yield_first, last)
                    if left:
                        lefts[m] = left
                m = max(lefts, key=lambda m: self.share(m, lefts[m]))
                if self.s.returns and lefts[m]["always"]:
                    roles.add(i)
                    left = lefts[m]
                    self.odd(
                        i, AnomalyKind.ALWAYS_APART, self.names[m], left["since"], left["until"]
                    )
                    again = True
                elif not again:
                    yield peers, i, b, b - a + 1, m, lefts[m], last
            if not again:
                return

    def long(self):
        """Once a node is named, the end of the job is explained."""
        return self.points_in(self.s.continuity_s) if self.suspicions else self.needed

    def fires(self):
        for name, names in self.comparisons:
            for group in self.peer_groups:
                for peers, i, b, length, m, left, last in self.leavers(name, names, group):
                    points = left["until"] + 1 - left["since"]
                    is_long = length >= self.long() and points >= 0.9 * self.long()
                    if is_long and not (self.s.returns and left["returned"]):
                        return name, names, peers, i, b, m, left, last
        return None

    def look(self):
        vanished = self.silence()
        self.peer_groups = self.groups()
        self.comparisons = self.compared()
        self.naming = True
        for i, ends in sorted(vanished.items(), key=lambda entry: (min(entry[1])[0], entry[0])):
            if len(self.suspicions) < self.limit:
                ends = sorted(ends, key=lambda end: end[0])
                deviations = [self.gone(i, *end) for end in ends]
                group = next((g for g in self.peer_groups if i in g), range(len(self.t.nodes)))
                peers = [j for j in group if j not in self.suspicions]
                deviations += self.elsewhere(None, peers, i, ends[0][0], ends[0][1])
                self.suspicions[i] = deviations
        while len(self.suspicions) < self.limit and (fired := self.fires()):
            name, names, peers, i, b, m, left, last = fired
            rows, _, scores = self.scored(names, peers, b)
            threshold = self.model.thresholds[name].value_at(len(rows))
            first = self.deviation(m, left, scores[rows.index(i)], threshold)
            self.suspicions[i] = [first, *self.elsewhere(m, peers, i, left["since"], last)]
        self.naming = False
        if self.s.returns:
            for name, names in self.comparisons:
                for group in self.peer_groups:
                    for _, i, _, _, m, left, _ in self.leavers(name, names, group):
                        if left["returned"]:
                            self.odd(
                                i, AnomalyKind.UNSTEADY, self.names[m], left["since"], left["until"]
                            )
        return self.result()

    def gone(self, i, last, newest, m):
        return Deviation(
            sign=Sign.VANISHED,
            metric=self.names[m],
            family=self.t.metrics[m].family,
            since=self.t.start + last * self.t.step_s,
            until=self.t.start + newest * self.t.step_s,
            side=Side.EITHER,
            value=math.nan,
            peers=median(self.t.values[m][:, last + 1 : newest + 1].ravel()),
            effect=1.0,
        )

    def result(self):
        named = {self.t.nodes[i] for i in self.suspicions}
        return Look(
            job=self.job,
            nodes=self.t.nodes,
            start=self.t.start + self.first * self.t.step_s,
            end=self.t.end,
            suspicions=tuple(
                Suspicion(
                    node=self.t.nodes[i], since=deviations[0].since, deviations=tuple(deviations)
                )
                for i, deviations in self.suspicions.items()
            ),
            anomalies=tuple(anomaly for anomaly in self.anomalies if anomaly.node not in named),
            judged=tuple(name for name, _ in self.comparisons if self.peer_groups),
            unjudged=self.unjudged,
        )
