"""The circumstances of a campaign: what was not measured and why, and facts about the machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from anubis.core.judge.units import latest_executions
from anubis.core.records import Ended, Execution


@dataclass(frozen=True, kw_only=True)
class Omission:
    """Executions of one benchmark that left no samples, all for the same reason."""

    benchmark: str
    ended: Ended
    reason: str
    nodes: tuple[str, ...]
    executions: int


def omissions(executions: tuple[Execution, ...]) -> list[Omission]:
    """List what was not measured, most frequent first. A retried step counts by its last
    attempt."""
    alike: defaultdict[tuple[str, Ended, str], list[tuple[str, ...]]] = defaultdict(list)
    for execution in latest_executions(executions):
        if execution.ended is not Ended.MEASURED:
            reason = execution.reason or execution.result.not_applicable
            key = str(execution.step.workload), execution.ended, reason
            # a lost node takes the step down; its partners are not the ones to name
            alike[key].append(execution.lost or execution.step.participants)
    return [
        Omission(
            benchmark=benchmark,
            ended=ended,
            reason=reason,
            nodes=tuple(dict.fromkeys(chain.from_iterable(nodes))),
            executions=len(nodes),
        )
        for (benchmark, ended, reason), nodes in sorted(
            alike.items(), key=lambda item: -len(item[1])
        )
    ]


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A fact that the programs reported: its values with their nodes, the most common first."""

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]


def facts(executions: tuple[Execution, ...]) -> list[Fact]:
    reported: defaultdict[str, defaultdict[str, dict[str, None]]]
    reported = defaultdict(lambda: defaultdict(dict))
    for execution in executions:
        for name, value in _flat(execution.result.environment):
            # the program that writes the document runs on the first participant
            reported[name][value][execution.step.participants[0]] = None
    return [
        Fact(
            name=name,
            values=tuple(
                (value, tuple(nodes))
                for value, nodes in sorted(values.items(), key=lambda item: -len(item[1]))
            ),
        )
        for name, values in sorted(reported.items())
        if any(value not in nodes for value, nodes in values.items())  # not just its own name
    ]


def _flat(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{name}.")
        elif isinstance(inner, (list, tuple)):
            yield prefix + name, ", ".join(str(part) for part in inner)
        elif inner is not None:
            yield prefix + name, str(inner)
