"""The remedy for a verdict, by its code: the action of a limit, else the table of the policy."""

from __future__ import annotations

from fnmatch import fnmatchcase

from anubis.core.judge.limits import EVERY_PROGRAM
from anubis.core.judge.verdicts import spelled_code
from anubis.core.records import Limit, Policy, Remedy


def remedy_of(code: str, policy: Policy) -> Remedy | None:
    """The remedy for a code; None if the policy has none."""
    fitting = [remedy for remedy in policy.remedies if _fits(code, remedy)]
    by_table = fitting[-1] if fitting else None
    action = _action_of_limit(code, policy)
    if not action:
        return by_table
    return Remedy(codes=(code,), action=action, evidence=by_table.evidence if by_table else "")


def _fits(code: str, remedy: Remedy) -> bool:
    return any(fnmatchcase(code, pattern) for pattern in remedy.codes)


def _action_of_limit(code: str, policy: Policy) -> str:
    """The action of the limit with this code. A limit of the program precedes one for all programs;
    one of the metric precedes one of its family."""
    limited = [limit for limit in policy.limits if limit.action and _covers(limit, code)]
    nearest = max(limited, key=_nearness, default=None)
    return nearest.action if nearest else ""


def _nearness(limit: Limit) -> tuple[bool, int]:
    return limit.benchmark != EVERY_PROGRAM, len(limit.metric)


def _covers(limit: Limit, code: str) -> bool:
    program = code.partition(".")[0] if limit.benchmark == EVERY_PROGRAM else limit.benchmark
    limited = spelled_code(program, limit.metric)
    return code == limited or code.startswith(f"{limited}.")
