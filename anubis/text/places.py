"""Where things lie: what Anubis ships, and where it keeps its state."""

from __future__ import annotations

import os
from pathlib import Path

from anubis.core.errors import UsageError

_PACKAGE = Path(__file__).parents[1]


def shipped(folder: str) -> Path:
    """benchmarks/, criteria/ or configs/: inside the wheel, or beside the package in a checkout."""
    inside = _PACKAGE / "_shipped" / folder
    return inside if inside.is_dir() else _PACKAGE.parent / folder


def home() -> Path:
    """$ANUBIS_HOME, or a folder of its own in the user's data directory."""
    chosen = os.environ.get("ANUBIS_HOME")
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    place = Path(chosen) if chosen else Path(data) / "anubis"
    try:
        return place.expanduser()
    except RuntimeError as error:
        raise UsageError(f'no place for the state in "{place}": {error}; set ANUBIS_HOME') from None


def criteria() -> Path:
    """What accept learned here."""
    return home() / "criteria"


def history_url() -> str:
    """$ANUBIS_HISTORY, or one SQLite file under `home`."""
    return os.environ.get("ANUBIS_HISTORY") or f"sqlite:///{home() / 'history.sqlite'}"


def events() -> Path | None:
    """$ANUBIS_EVENTS: the folder in which campaigns record what happens; none by default."""
    chosen = os.environ.get("ANUBIS_EVENTS")
    return Path(chosen) if chosen else None


def descriptions() -> Path:
    """What the shipped programs said of themselves when they were asked last."""
    return home() / "cache" / "descriptions.json"


def standing_file(cluster: str) -> Path:
    """Where the nodes of this cluster stood when the keeper looked last."""
    return home() / "cache" / f"standing-{cluster}.json"


def risk_file(cluster: str) -> Path:
    """The risk model that was trained last for this cluster, unless somebody names another."""
    return home() / "risk" / f"{cluster}.npz"


def proposals(cluster: str) -> Path:
    """What the keeper of this cluster learned, and a person has not agreed to yet."""
    return home() / "proposals" / cluster
