"""Names that a shell completes: those of clusters, suites and other files, and of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from anubis.core.errors import AnubisError
from anubis.text import places

FOLDERS = {  # option: its folder under configs/
    "--suite": "suites",
    "--policy": "policies",
    "--keeping": "keeping",
    "--watching": "watching",
    "--diagnosis": "diagnosis",
    "--telemetry": "telemetry",
    "--topology": "topologies",
    "--mapping": "incidents",
}
NODES_SHOWN = 1000  # names that a shell is offered at most


def complete_names(parameter: Any) -> None:
    """Let a shell complete this option or argument if its values have names."""
    if parameter._custom_shell_complete is not None:
        return
    option = parameter.opts[0]
    if parameter.metavar == "NODES":
        parameter._custom_shell_complete = _quietly(_nodes)
    elif option == "--cluster":
        parameter._custom_shell_complete = _quietly(_clusters)
    elif folder := FOLDERS.get(option):
        parameter._custom_shell_complete = _quietly(lambda _, begun: _named(folder, begun))


def _quietly(names: Callable[[Any, str], Iterable[str]]) -> Callable[..., list[str]]:
    """A shell is offered nothing if something cannot be read."""

    def complete(context: Any, _: Any, begun: str) -> list[str]:
        try:
            return sorted(set(names(context, begun)))
        except AnubisError:
            return []

    return complete


def _named(folder: str, begun: str) -> list[str]:
    from anubis.config import configs

    return [name for name in configs.files_of(folder) if name.startswith(begun)]


def _clusters(_: Any, begun: str) -> list[str]:
    import anubis

    names = anubis.clusters() if _history_exists() else []
    return [*_named("clusters", begun), *(name for name in names if name.startswith(begun))]


def _history_exists() -> bool:
    """Check that there is a history to read: completion begins none."""
    file = places.history_url().partition(":///")[2]
    return not places.history_url().startswith("sqlite") or Path(file).is_file()


def _nodes(context: Any, begun: str) -> list[str]:
    """The last node of the list, from the cluster that is named or from the history."""
    import anubis

    if not _history_exists():
        return []
    before, comma, last = begun.rpartition(",")
    names = anubis.known_nodes(context.params.get("cluster"))
    fitting = (name for name in names if name.startswith(last))
    return [f"{before}{comma}{name}" for _, name in zip(range(NODES_SHOWN), fitting, strict=False)]
