"""What every command has: flags without a type in the help, words that a shell completes, and old
spellings that go on working."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

from anubis.cli.outlets import say
from anubis.core.errors import AnubisError
from anubis.text import places


def _dress(parameters: list[Any]) -> list[Any]:
    """Show no type beside a flag, and complete names."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
        complete_names(parameter)
    return parameters


class Leaf(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _dress(super().get_params(ctx))


class Family(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _dress(super().get_params(ctx))


class Verbs(Family):
    """The verbs at the top. An old spelling is read as what it is called now, with a remark."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        words, remarks = renew(args)
        if not ctx.resilient_parsing:
            for remark in remarks:
                say(remark)
        return super().resolve_command(ctx, words)


# --- completion --------------------------------------------------------------------------------

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


# --- old spellings -----------------------------------------------------------------------------

VERBS: Mapping[str, str] = {
    "actions": "history actions",
    "import": "history import",
    "judge": "criteria judge",
    "learn": "criteria learn",
    "select": "gate --plan",
    "simulate": "risk simulate",
    "topology": "scan --help",
    "topology show": "scan --draw",
    "tune": "bench tune",
    "watch-model": "criteria --help",
    "watch-model show": "criteria show-watching",
    "watch-model train": "criteria learn-watching",
}
OPTIONS: Mapping[str, Mapping[str, str]] = {  # of a verb, by its name at that time
    "bench new": {"-b": "--benchmarks"},
    "diagnose": {"--policy": "--diagnosis", "-t": "--topology"},
    "import csv": {"-m": "--map"},
    "import incidents": {"-m": "--mapping"},
    "import nodes": {"-m": "--map"},
    "learn": {"--from": "--criteria"},
    "risk show": {"--file": "--risk-model"},
    "risk train": {"--file": "--risk-model", "--model": "--kind"},
    "select": {"--criteria": "--upgrade"},
    "simulate": {"--model": "--risk-model"},
    "topology show": {"--nodes": ""},  # nodes are named by their place now
}


def renew(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line in today's spelling, and a remark for each that is old."""
    renewed: list[str | None] = [*words]
    remarks: list[str] = []
    options = _first_match(words, OPTIONS)
    for place, word in enumerate(words):
        if word == "--":
            break
        name, joined, value = _split(word)
        now = OPTIONS.get(options, {}).get(name)
        if now is None:
            continue
        renewed[place] = f"{now}={value}".removeprefix("=") if joined else now or None
        remarks.append(f"{name} of anubis {options} is now {now or 'an argument: NODES'}")
    if verb := _first_match(words, VERBS):
        renewed[: len(verb.split())] = VERBS[verb].split()
        remarks.append(f"anubis {verb} is now anubis {VERBS[verb]}")
    return [word for word in renewed if word is not None], remarks


def _first_match(words: Sequence[str], names: Mapping[str, object]) -> str:
    """The longest of these names with which the words begin."""
    heads = (" ".join(words[:length]) for length in (2, 1))
    return next((head for head in heads if head in names), "")


def _split(word: str) -> tuple[str, str, str]:
    """An option and the value that is written in one word with it: --name=value or -nvalue."""
    if word.startswith("--"):
        return word.partition("=")
    return (word[:2], word[2:3], word[2:]) if word.startswith("-") else (word, "", "")
