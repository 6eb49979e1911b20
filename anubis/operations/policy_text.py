"""Change limits of some metrics in a policy's YAML; comments and layout stay.

Works on lines, because a YAML writer would drop every comment. What it cannot place it leaves
unchanged, so its caller reads the result back and compares.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from anubis.core.records import MetricAlpha

HEADER = re.compile(r"^alphas:(?:\s*\[\s*\])?(\s*|\s+#.*)$")
ITEM = re.compile(r"^\s*- ")


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
