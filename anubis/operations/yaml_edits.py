"""Change values in a suite's or a policy's YAML; comments and layout stay.

Works on lines, because a YAML writer would drop every comment. What it cannot place it leaves
unchanged, so its caller reads the result back and compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from anubis.core.records import MetricAlpha, ParameterValue
from anubis.reach.executors.programs import spell

ITEM = re.compile(r"^(\s*)-\s")
IN_BRACES = re.compile(r"(\bparameters:\s*\{)([^{}]*)(\})")
HEADER = re.compile(r"^alphas:(?:\s*\[\s*\])?(\s*|\s+#.*)$")
BELOW = re.compile(r"^(\s*(?:-\s+)?)parameters:\s*(#.*)?$")


def retune(text: str, position: int, parameters: Mapping[str, ParameterValue]) -> str:
    """`text` with these parameters set in the entry at `position`, from 0; others stay."""
    lines = text.splitlines()
    start, end, indent = _entry(lines, position)
    if end > start:
        lines[start:end] = _change_entry(lines[start:end], indent, parameters)
    return "\n".join(lines) + "\n"


def snippet(parameters: Mapping[str, ParameterValue]) -> str:
    return f"parameters: {{{_pairs(parameters)}}}"


def _pairs(parameters: Mapping[str, ParameterValue]) -> str:
    return ", ".join(f"{name}: {spell(value)}" for name, value in parameters.items())


def _entry(lines: list[str], position: int) -> tuple[int, int, int]:
    """First line of the entry, the line after it, and the indentation of its dash."""
    header = next((i for i, line in enumerate(lines) if line.startswith("benchmarks:")), len(lines))
    dashes = [
        (i, len(m[1])) for i, line in enumerate(lines) if i > header and (m := ITEM.match(line))
    ]
    items = [i for i, indent in dashes if indent == dashes[0][1]]
    if position >= len(items):
        return 0, 0, 0
    start, indent = items[position], dashes[0][1]
    end = start + 1
    while end < len(lines) and (
        lines[end].startswith(" " * (indent + 1)) or not lines[end].strip()
    ):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return start, end, indent


def _change_entry(
    entry: list[str], indent: int, parameters: Mapping[str, ParameterValue]
) -> list[str]:
    for i, line in enumerate(entry):
        if line.lstrip().startswith("#"):
            continue
        if IN_BRACES.search(line):
            return [
                *entry[:i],
                IN_BRACES.sub(lambda m: _change_braces(m, parameters), line),
                *entry[i + 1 :],
            ]
        if below := BELOW.match(line):
            return [*entry[: i + 1], *_change_below(entry[i + 1 :], len(below[1]), parameters)]
    first = entry[0]
    if first.rstrip().endswith("}"):
        return [f"{first.rstrip()[:-1]}, {snippet(parameters)}}}", *entry[1:]]
    return [first, f"{' ' * (indent + 2)}{snippet(parameters)}", *entry[1:]]


def _change_braces(match: re.Match[str], parameters: Mapping[str, ParameterValue]) -> str:
    inside = match[2].strip()
    for name, value in parameters.items():
        pair = re.compile(rf"\b{re.escape(name)}:\s*[^,]+")
        spelt = f"{name}: {spell(value)}"
        inside = (
            pair.sub(spelt, inside) if pair.search(inside) else f"{inside}, {spelt}".lstrip(", ")
        )
    return f"{match[1]}{inside}{match[3]}"


def _change_below(
    lines_below: list[str], depth: int, parameters: Mapping[str, ParameterValue]
) -> list[str]:
    """Change the lines below "parameters:", which is indented by `depth`."""
    changed, missing = list(lines_below), []
    inner = next(
        (len(m[1]) for line in lines_below if (m := re.match(r"^(\s*)[^\s#]", line))), depth + 2
    )
    for name, value in parameters.items():
        own = re.compile(rf"^(\s{{{inner}}}{re.escape(name)}:\s*)[^\s#]+(.*)$")
        at = next((i for i, line in enumerate(changed) if own.match(line)), None)
        if at is None:
            missing.append(f"{' ' * inner}{name}: {spell(value)}")
        else:
            changed[at] = own.sub(rf"\g<1>{spell(value)}\g<2>", changed[at])
    return [*missing, *changed]


# --- policies --------------------------------------------------------------------------------


def add_alphas(text: str, rules: Sequence[MetricAlpha]) -> str:
    """`text` with these rules at the end of its list of alphas, where they count most; the rules
    that they replace are removed."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if HEADER.match(line)), None)
    if start is None:
        return "\n".join([*lines, "", "alphas:", *map(line_of, rules)]) + "\n"
    end = start + 1
    while end < len(lines) and (ITEM.match(lines[end]) or not lines[end].strip("# \t")):
        end += 1
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    replaced = {(rule.benchmark, rule.metric) for rule in rules}
    kept = [line for line in lines[start + 1 : end] if _subject(line) not in replaced]
    header = HEADER.sub(r"alphas:\1", lines[start])
    return "\n".join([*lines[:start], header, *kept, *map(line_of, rules), *lines[end:]]) + "\n"


def line_of(rule: MetricAlpha) -> str:
    return f'  - {{benchmark: "{rule.benchmark}", metric: "{rule.metric}", alpha: {rule.alpha:g}}}'


def _subject(line: str) -> tuple[str, str] | None:
    """Benchmark and metric of a rule on one line."""
    written = {
        name: match[1].strip("\"' ")
        for name in ("benchmark", "metric")
        if (match := re.search(rf"\b{name}:\s*([^,}}]+)", line))
    }
    return (written["benchmark"], written["metric"]) if len(written) == 2 else None
