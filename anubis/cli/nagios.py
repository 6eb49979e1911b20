"""Write an answer as a monitoring plugin does: one line, its figures behind a bar, and 0, 1, 2 or
3.

An error is UNKNOWN here as well: the 2 that it exits with elsewhere would mean CRITICAL.
"""

from __future__ import annotations

from collections.abc import Mapping

from anubis.core.records import Assessment, Judgement

WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
CODES = {Judgement.HEALTHY: 0, Judgement.DEFECTIVE: 2}
UNKNOWN = 3  # of the plugin API


def tell(
    service: str,
    judgement: Judgement,
    text: str,
    figures: Mapping[str, str],
    *,
    warns: bool = False,
) -> int:
    """Write the line and return the exit code. `warns`: healthy, but worth a look."""
    code = CODES.get(judgement, UNKNOWN)
    return _tell(service, code or int(warns), text, figures)


def fail(reason: str) -> int:
    return _tell("anubis", UNKNOWN, reason, {})


def counts(assessment: Assessment) -> dict[str, str]:
    """Number of nodes by verdict, each with its warning and critical range, least and most."""
    nodes = len(assessment.nodes)
    critical = {Judgement.DEFECTIVE: "0"}
    figures = {
        judgement.value.replace("-", "_"): f"{len(assessment.named(judgement))};;"
        f"{critical.get(judgement, '')};0;{nodes}"
        for judgement in Judgement
    }
    parts = len(assessment.parts_named(Judgement.DEFECTIVE))
    return {**figures, "defective_parts": f"{parts};;0;0;"}


def _tell(service: str, code: int, text: str, figures: Mapping[str, str]) -> int:
    """Write the line. A bar ends the text, so the text itself has none."""
    line = f"{service.upper()} {WORDS[code]}: {' '.join(text.split()).replace('|', '/')}"
    behind = " ".join(f"{name}={figure}" for name, figure in figures.items())
    print(f"{line} | {behind}" if behind else line)
    return code
