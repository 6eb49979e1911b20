"""Anubis keeps a GPU cluster fit for work. Its verbs are functions, too: see docs/python.md."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

NAMES = {  # by the module of anubis.operations that is loaded when one is first asked for
    "caller": ["Caller"],
    "campaigns": ["accept", "validate", "scan", "plan_campaign", "run_campaign", "resume_campaign"],
    "preparing": ["CampaignRequest"],
    "gating": ["gate"],
    "deciding": ["sweep", "Terms", "select"],
    "judging": ["compare_criteria", "judge"],
    "learning": ["learned_here", "learn"],
    "tuning": ["tune", "write_suite"],
    "past": ["recall", "campaigns", "decisions", "timeline", "imports", "forget_import"],
    "importing": ["import_superbench", "import_superbench_baseline", "import_incidents"],
    "surveying": ["inspect_fabric"],
    "foreseeing": ["train_risk", "evaluate_risk", "foresee"],
    "simulating": ["simulate"],
    "examining": ["examine"],
}
OPERATIONS = {name: module for module, names in NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in OPERATIONS:
        raise AttributeError(f'module "anubis" has no attribute "{name}"')
    return getattr(import_module(f"anubis.operations.{OPERATIONS[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *OPERATIONS])
