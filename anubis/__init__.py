"""Anubis keeps a GPU cluster fit for work. Its verbs are functions, too: see docs/python.md."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

OPERATIONS = {  # and the module of anubis.operations that is loaded when one is first asked for
    "Caller": "caller",
    "accept": "campaigns",
    "validate": "campaigns",
    "scan": "campaigns",
    "CampaignRequest": "preparing",
    "plan_campaign": "campaigns",
    "run_campaign": "campaigns",
    "resume_campaign": "campaigns",
    "gate": "gating",
    "sweep": "deciding",
    "Terms": "deciding",
    "select": "deciding",
    "compare_criteria": "judging",
    "learned_here": "learning",
    "learn": "learning",
    "judge": "judging",
    "tune": "tuning",
    "write_suite": "tuning",
    "recall": "past",
    "campaigns": "past",
    "decisions": "past",
    "timeline": "past",
    "imports": "past",
    "forget_import": "past",
    "import_superbench": "importing",
    "import_superbench_baseline": "importing",
    "import_incidents": "importing",
    "inspect_fabric": "surveying",
    "train_risk": "foreseeing",
    "evaluate_risk": "foreseeing",
    "foresee": "foreseeing",
    "simulate": "simulating",
    "examine": "examining",
}


def __getattr__(name: str) -> Any:
    if name not in OPERATIONS:
        raise AttributeError(f'module "anubis" has no attribute "{name}"')
    return getattr(import_module(f"anubis.operations.{OPERATIONS[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *OPERATIONS])
