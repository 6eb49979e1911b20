"""Paths of files: those that Anubis ships, and those that keep its state."""

from __future__ import annotations

import os
from pathlib import Path

from anubis.core.errors import UsageError

_PACKAGE = Path(__file__).parents[1]
WATCH_MODELS = "watching"  # under criteria, beside the folders of suites


def shipped_folder(folder: str) -> Path:
    """Path of benchmarks/, criteria/ or configs/: in the wheel, or beside the package in a
    checkout."""
    inside = _PACKAGE / "_shipped" / folder
    return inside if inside.is_dir() else _PACKAGE.parent / folder


def home() -> Path:
    """$ANUBIS_HOME, or Anubis' own folder in the user's data directory."""
    chosen = os.environ.get("ANUBIS_HOME")
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    place = Path(chosen) if chosen else Path(data) / "anubis"
    try:
        return place.expanduser()
    except RuntimeError:
        reason = "this user has no home; set ANUBIS_HOME"
        raise UsageError(f'no place for the state in "{place}": {reason}') from None


def criteria() -> Path:
    """Folder of the criteria that `anubis accept` learned here."""
    return home() / "criteria"


def history_url() -> str:
    """$ANUBIS_HISTORY, or one SQLite file under `home`."""
    return os.environ.get("ANUBIS_HISTORY") or f"sqlite:///{home() / 'history.sqlite'}"


def is_history_chosen() -> bool:
    """True if $ANUBIS_HISTORY names the history."""
    return bool(os.environ.get("ANUBIS_HISTORY"))


def events() -> Path | None:
    """$ANUBIS_EVENTS: the folder to which campaigns write their events; none by default."""
    chosen = os.environ.get("ANUBIS_EVENTS")
    return Path(chosen) if chosen else None


def descriptions() -> Path:
    """File of the descriptions that the shipped programs last printed."""
    return home() / "cache" / "descriptions.json"


def standing_file(cluster: str) -> Path:
    """File of the standings that the keeper last found for the nodes of this cluster."""
    return home() / "cache" / f"standing-{cluster}.json"


def risk_file(cluster: str) -> Path:
    """File of the risk model last trained for this cluster, used unless another is named."""
    return home() / "risk" / f"{cluster}.npz"


def proposals(cluster: str) -> Path:
    """Folder of what this cluster's keeper learned and no person has agreed to yet."""
    return home() / "proposals" / cluster
