"""Anubis keeps a GPU cluster fit for work. Its verbs are functions, too: see docs/python.md."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "1.0.0rc1"

# What type checkers and editors read is the list of what there is; each name is loaded when it is
# first asked for.
STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
OPERATIONS = {name: home for home, name in re.findall(r"^from (\S+) import (\S+)", STUB, re.M)}


def __getattr__(name: str) -> Any:
    if name not in OPERATIONS:
        raise AttributeError(f'module "anubis" has no attribute "{name}"')
    return getattr(import_module(OPERATIONS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *OPERATIONS])
