"""Python packages that an installation may lack: one for a head node has neither torch nor Ray."""

from __future__ import annotations

from importlib.util import find_spec

from anubis.core.errors import MissingPackageError

EXTRAS = {"psycopg": "postgresql", "kubernetes": "kubernetes"}


def require_package(name: str, use: str) -> None:
    """Refuse what needs a package that is not installed. `use`: a noun, what needs it."""
    if find_spec(name) is None:
        extra = f"[{EXTRAS[name]}]" if name in EXTRAS else ""
        raise MissingPackageError(
            f'{use} needs the Python package "{name}", which this installation does not have; run'
            f" pip install 'anubis-fleet{extra}'"
        )
