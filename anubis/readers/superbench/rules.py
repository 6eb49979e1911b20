"""SuperBench's rule files: parsed, never evaluated, and applied as SuperBench applies them.

A criterion is Python text, `lambda x:x<-0.05`. A single comparison of x with a number is accepted;
anything else is refused. Two things differ on purpose: what a node did not measure is unknown, not
defective; and a rule that matches nothing is reported.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from anubis.core.errors import UsageError
from anubis.core.records import WORST_FIRST, Assessment, Judgement, NodeVerdict, Verdict
from anubis.readers.superbench.results import NodeResults, describe_value, number, place
from anubis.text.reading import load_yaml

parser: Any = import_module("re._parser")  # how Python itself reads them; it has no declared types
MOST_PLACES = 2_000  # in a pattern whose counted repeats are written out
REMEMBERED = 20_000  # steps between sets of places
MATCH = 0  # the first place, at which a pattern has matched

Test = Callable[[str], bool]
CATEGORIES: dict[str, Test] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda c: c.isalnum() or c == "_",
    "CATEGORY_NOT_DIGIT": lambda c: not c.isdecimal(),
    "CATEGORY_NOT_SPACE": lambda c: not c.isspace(),
    "CATEGORY_NOT_WORD": lambda c: not (c.isalnum() or c == "_"),
}
BEGINNINGS = {"AT_BEGINNING", "AT_BEGINNING_STRING"}
ENDS = {"AT_END", "AT_END_STRING"}


class Pattern:
    """A compiled pattern. `search` says whether `re.search` would match, but not where. A pattern
    that is refused is a ValueError."""

    def __init__(self, text: str) -> None:
        self.pattern = text
        try:
            tree = parser.parse(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"is not a pattern: {error}") from None
        if tree.state.flags & ~re.UNICODE:
            raise ValueError("has flags, which are not supported")
        # A place is a test and where it leads, or no test and where one may go without reading.
        self._tests: list[Test | None] = [None]
        self._next: list[tuple[int, ...]] = [()]
        self._at: dict[int, str] = {}  # a place that is passed at the beginning or end only
        self._start = self._sequence(tree, MATCH)
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._first = self._reachable([self._start], BEGINNINGS)
        self._again = self._reachable([self._start], set())

    def search(self, name: str) -> bool:
        places = self._first
        for character in name:
            if MATCH in places:
                return True
            places = self._step(places, character)
        here = ENDS if name else BEGINNINGS | ENDS
        return MATCH in self._reachable(places, here)

    def _step(self, places: frozenset[int], character: str) -> frozenset[int]:
        key = places, character
        if key not in self._steps:
            if len(self._steps) > REMEMBERED:
                self._steps.clear()
            led = [
                place
                for at in places
                if (test := self._tests[at]) and test(character)
                for place in self._next[at]
            ]
            self._steps[key] = self._reachable(led, set()) | self._again
        return self._steps[key]

    def _reachable(self, places: Iterable[int], here: set[str]) -> frozenset[int]:
        """Return the places and all that can be reached without reading, at the begin or at the
        end."""
        seen: set[int] = set()
        pending = list(places)
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            if self._tests[at] is None and (at not in self._at or self._at[at] in here):
                pending += self._next[at]
        return frozenset(seen)

    # --- from the tree to places -----------------------------------------------------------

    def _place(self, test: Test | None, *leads_to: int) -> int:
        if len(self._tests) >= MOST_PLACES:
            raise ValueError(f"is too large: expected at most {MOST_PLACES:,} characters")
        self._tests.append(test)
        self._next.append(leads_to)
        return len(self._tests) - 1

    def _sequence(self, items: Iterable[Any], then: int) -> int:
        for item in reversed(list(items)):
            then = self._item(item, then)
        return then

    def _item(self, item: Any, then: int) -> int:
        kind, value = str(item[0]), item[1]
        match kind:
            case "BRANCH":
                return self._place(None, *(self._sequence(way, then) for way in value[1]))
            case "SUBPATTERN" if not (value[1] or value[2]):
                return self._sequence(value[3], then)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(value, then)
            case "AT" if str(value) in BEGINNINGS | ENDS:
                place = self._place(None, then)
                self._at[place] = str(value)
                return place
        return self._place(_test(kind, value), then)

    def _repeat(self, counted: tuple[int, Any, Any], then: int) -> int:
        least, limit, items = counted
        if limit is parser.MAXREPEAT:
            start = self._place(None, then)
            self._next[start] = (self._sequence(items, start), then)
        else:
            start = then
            for _ in range(min(limit - least, MOST_PLACES)):
                start = self._place(None, self._sequence(items, start), then)
        for _ in range(min(least, MOST_PLACES)):
            start = self._sequence(items, start)
        return start


def _test(kind: str, value: Any) -> Test:
    match kind:
        case "LITERAL":
            return lambda character: ord(character) == value
        case "NOT_LITERAL":
            return lambda character: ord(character) != value
        case "ANY":
            return lambda character: character != "\n"
        case "RANGE":
            return lambda character: value[0] <= ord(character) <= value[1]
        case "CATEGORY":
            return CATEGORIES[str(value)]
        case "IN":
            negated = str(value[0][0]) == "NEGATE"
            tests = [_test(str(part), detail) for part, detail in value[negated:]]
            return lambda character: any(test(character) for test in tests) is not negated
    raise ValueError("looks around or back, which is not supported")


FUNCTIONS = ("variance", "value", "failure_check")
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARISON = re.compile(
    rf"\s*lambda\s+(\w+)\s*:\s*\1\s*({'|'.join(OPERATORS)})"
    r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*"
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A comparison; a value for which it is true is a defect."""

    name: str
    category: str
    function: str
    comparison: str  # one of OPERATORS
    limit: float
    patterns: tuple[Pattern, ...]

    @property
    def condition(self) -> str:
        return f"{self.comparison}{self.limit:g}"

    def violated_by(self, value: float) -> bool:
        return OPERATORS[self.comparison](value, self.limit)

    def finds(self, name: str) -> bool:
        """Return true if a pattern matches, as in SuperBench: the benchmark word for word, the rest
        anywhere."""
        return any(
            name == pattern.pattern
            or (_benchmark(name) == _benchmark(pattern.pattern) and pattern.search(name))
            for pattern in self.patterns
        )


def read_rules(path: Path) -> tuple[Rule, ...]:
    return parse_rules(load_yaml(path, UsageError), f'"{path}"')


def parse_rules(document: Mapping[str, object], where: str) -> tuple[Rule, ...]:
    inner = document.get("superbench")
    rules = inner.get("rules") if isinstance(inner, dict) else None
    if not isinstance(rules, dict) or not rules:
        raise UsageError(f'{where}: expected the rules of SuperBench under "superbench", "rules"')
    return tuple(_rule(str(name), rule, where) for name, rule in rules.items())


def _rule(name: str, rule: object, where: str) -> Rule:
    here = f'{where}: rule "{name}"'
    if not isinstance(rule, dict):
        raise UsageError(f"{here}: expected a table, found {describe_value(rule)}")
    criterion = rule.get("criteria")
    function = rule.get("function")
    if function not in FUNCTIONS or rule.get("store"):
        problem = f"its function is {describe_value(function)}"
        if function in FUNCTIONS:
            problem = "it is stored for other rules"
        raise UsageError(
            f"{here}: {problem}, and Anubis applies only {', '.join(FUNCTIONS)} by themselves; "
            f"take it out of a copy of the file (criteria: {describe_value(criterion)})"
        )
    comparison = _COMPARISON.fullmatch(criterion) if isinstance(criterion, str) else None
    if not comparison:
        raise UsageError(
            f"{here}: its criteria is {describe_value(criterion)}, expected one comparison with a"
            ' number like "lambda x:x<-0.05"; code in a rule is never run'
        )
    return Rule(
        name=name,
        category=str(rule.get("categories", "")),
        function=str(function),
        comparison=comparison[2],
        limit=float(comparison[3]),
        patterns=_patterns(rule, here),
    )


def _patterns(rule: Mapping[str, object], here: str) -> tuple[Pattern, ...]:
    texts = rule.get("metrics")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        has = ", ".join(map(str, rule))
        raise UsageError(
            f'{here}: expected "metrics", a list of names or patterns; the rule has {has}'
        )
    patterns = []
    for text in texts:
        try:
            patterns.append(Pattern(text))
        except ValueError as error:
            raise UsageError(f'{here}: "{text}" {error}') from None
    return tuple(patterns)


def _benchmark(name: str) -> str:
    """Return the benchmark without its annotation: `nccl-bw:nvlink/…` is nccl-bw."""
    return name.partition("/")[0].partition(":")[0]


# --- applying ------------------------------------------------------------------------------


def apply_rules(
    rules: Iterable[Rule], rows: Sequence[NodeResults], baseline: Mapping[str, object]
) -> tuple[Assessment, list[str]]:
    """Return the verdicts of all nodes, worst first, and the rules that match nothing."""
    names = [name for name in dict.fromkeys(n for row in rows for n in row.values) if "/" in name]
    verdicts: list[Verdict] = []
    idle = []
    for rule in rules:
        matching = [name for name in names if rule.finds(name)]
        if not matching and rule.function != "failure_check":
            idle.append(rule.name)
            continue
        means = {name: _mean(rule, name, baseline) for name in matching}
        for row in rows:
            problems = [*_missing(rule, matching, row), *_violations(rule, means, row)]
            verdicts += problems or [_healthy_verdict(rule, len(matching), row)]
    if not verdicts:
        raise UsageError("no rule matches a metric in the results: nothing could be judged")
    verdicts.sort(key=lambda verdict: WORST_FIRST.index(verdict.judgement))
    return Assessment(alone=tuple(verdicts), nodes=_roll_up(verdicts, rows)), idle


def _mean(rule: Rule, name: str, baseline: Mapping[str, object]) -> float:
    """Return the mean of the metric or, if it has a rank, of the metric without it."""
    if rule.function != "variance":
        return 0.0
    mean = number(baseline.get(name, baseline.get(name.rpartition(":")[0])))
    if not mean:
        raise UsageError(
            f'rule "{rule.name}" compares "{name}" with the baseline, which has no number other '
            "than 0 for it: give another --baseline, or take the metric out of the rule"
        )
    return mean


def _violations(rule: Rule, means: Mapping[str, float], row: NodeResults) -> Iterator[Verdict]:
    for name, mean in means.items():
        value = number(row.values.get(name))
        if value is None:
            state = f"is {describe_value(row.values[name])}" if name in row.values else "is missing"
            yield _verdict(rule, row, name, Judgement.UNKNOWN, "NOT-MEASURED", f"{name} {state}")
        elif rule.function == "variance" and rule.violated_by((value - mean) / mean):
            change = f"{(value - mean) / mean:+.1%} from the baseline's {mean:.4g}"
            yield _defective_verdict(rule, row, name, f"{name} is {value:.4g}, {change}")
        elif rule.function != "variance" and rule.violated_by(value):
            yield _defective_verdict(rule, row, name, f"{name} is {value:.4g}")


def _missing(rule: Rule, names: Iterable[str], row: NodeResults) -> Iterator[Verdict]:
    """Yield a verdict for each pattern of a failure check that matches nothing, as the check
    requires."""
    if rule.function == "failure_check":
        for pattern in rule.patterns:
            if not any(pattern.search(name) for name in names):
                reason = f"{pattern.pattern} is nowhere in the results"
                yield _verdict(rule, row, "", Judgement.UNKNOWN, "NOT-MEASURED", reason)


def _defective_verdict(rule: Rule, row: NodeResults, name: str, reason: str) -> Verdict:
    code = f"RULE.{rule.name}".upper()
    return _verdict(rule, row, name, Judgement.DEFECTIVE, code, f"{reason} ({rule.condition})")


def _healthy_verdict(rule: Rule, values: int, row: NodeResults) -> Verdict:
    return _verdict(rule, row, "", Judgement.HEALTHY, "OK", f"keeps the rule: {values} values")


def _verdict(
    rule: Rule, row: NodeResults, name: str, judgement: Judgement, code: str, reason: str
) -> Verdict:
    where = place(name)
    return Verdict(
        participants=(row.node,),
        benchmark=where.benchmark if where else "",
        metric=where.metric if where else "",
        device=where.device if where else "",
        judgement=judgement,
        code=code,
        reason=f"{rule.name} ({rule.category}): {reason}",
        cause=f"{rule.name} ({rule.category})",
    )


def _roll_up(verdicts: Iterable[Verdict], rows: Iterable[NodeResults]) -> tuple[NodeVerdict, ...]:
    verdicts_of: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:  # worst first
        verdicts_of[verdict.participants[0]].append(verdict)
    nodes = []
    for row in rows:
        worst = verdicts_of[row.node][0]
        judgement = worst.judgement
        alike = sum(verdict.judgement is judgement for verdict in verdicts_of[row.node])
        more = f" (and {alike - 1} more)" if alike > 1 else ""
        healthy = judgement is Judgement.HEALTHY
        reason = f"keeps all {alike} rules" if healthy else f"{worst.reason}{more}"
        cause = "" if healthy else worst.cause
        nodes.append(
            NodeVerdict(
                node=row.node, judgement=judgement, code=worst.code, reason=reason, cause=cause
            )
        )
    return tuple(nodes)
