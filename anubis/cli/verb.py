"""Make a verb of a function: with the options that the fields of its record declare, flags without
a type in the help, words that a shell completes, and old spellings that go on working."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from anubis.cli import amounts
from anubis.cli.streams import say
from anubis.core.errors import AnubisError, UsageError
from anubis.operations.requests import Argument, FlagWord, Option, TextForm, flags_of, option_of
from anubis.text import places

READERS: Mapping[TextForm, Callable[[str, str], object]] = {
    "nodes": lambda text, _: amounts.node_names(text),
    "date": amounts.instant,
    "duration": amounts.duration_s,
    "interval": lambda text, flag: 0.0 if text == "0s" else amounts.duration_s(text, flag),
    "budget": lambda text, _: amounts.budget(text),
    "shares": amounts.shares,
    "pass|fail": lambda text, flag: amounts.choose_word(flag, text, ("pass", "fail")) == "pass",
    "time": lambda text, flag: amounts.instant(text, flag).timestamp(),
}


@dataclass(frozen=True)
class Without:
    """Fields of a record for which a verb does not ask."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class ListedBefore:
    """The option of a record before which the help lists an option that is in no record."""

    name: str


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """The function in the form that typer takes: called with options, it makes records of them."""
    hints = get_type_hints(function, include_extras=True)
    records = {name: pair for name, hint in hints.items() if (pair := _record_of(hint))}
    parameters: list[Parameter] = []
    for parameter in signature(function).parameters.values():
        if parameter.name in records:
            parameters.extend(_record_parameters(records[parameter.name][1]))
        else:
            parameters.append(_parameter(parameter.name, hints[parameter.name], parameter.default))

    for name, hint in hints.items():
        for mark in get_args(hint)[1:]:
            if isinstance(mark, ListedBefore):
                _move(parameters, name, mark.name)

    @wraps(function)
    def command(**options: Any) -> None:
        for name, (record, shown) in records.items():
            options[name] = record(**_read(shown, options))
        function(**options)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # inspect reads it
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _move(parameters: list[Parameter], name: str, before: str) -> None:
    (moved,) = (parameter for parameter in parameters if parameter.name == name)
    parameters.remove(moved)
    names = [parameter.name for parameter in parameters]
    parameters.insert(names.index(before), moved)


def _parameter(name: str, kind: object, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _record_of(hint: Any) -> tuple[Any, list[Field[Any]]] | None:
    """A record with those of its fields that are asked for; None for another parameter."""
    record, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if not is_dataclass(record):
        return None
    left_out = {name for mark in marks if isinstance(mark, Without) for name in mark.names}
    return record, [field for field in fields(record) if field.name not in left_out]


def _record_parameters(shown: Iterable[Field[Any]]) -> Iterator[Parameter]:
    for field in shown:
        mark = option_of(field)
        if mark is None:
            if get_origin(field.type) is Annotated:  # an option of the command line only
                yield _parameter(field.name, field.type, field.default)
        elif mark.words:
            for word in mark.words:
                option = typer.Option(word.flag, help=word.help)
                yield _parameter(word.flag.removeprefix("--"), Annotated[bool, option], False)
        else:
            yield _option(field, mark)


def _option(field: Field[Any], mark: Option) -> Parameter:
    info: Any
    if isinstance(mark, Argument):
        info = typer.Argument(metavar=mark.metavar, help=mark.help)
    else:
        flags = flags_of(field)
        info = typer.Option(
            *flags, metavar=mark.metavar, help=mark.help, min=mark.least, max=mark.most
        )
    kind, default = get_args(field.type)[0], field.default
    if mark.form:
        kind = str if default is MISSING or mark.written else str | None
        default = default if default is MISSING else mark.written
    elif get_origin(kind) is Sequence:
        kind, default = list[get_args(kind)[0]] | None, None  # type: ignore[misc] # made as it runs
    elif kind is bool:
        default = False  # the flag of a claim that is true by default denies it
    default = Parameter.empty if default is MISSING else default
    return _parameter(field.name, Annotated[kind, info], default)


def _read(shown: Iterable[Field[Any]], options: dict[str, Any]) -> dict[str, Any]:
    """The fields among the options, which are taken out; what was not given is left to the
    record."""
    values: dict[str, Any] = {}
    for field in shown:
        mark = option_of(field)
        if mark and mark.words:
            if word := _chosen_word(mark.words, options):
                values[field.name] = word
        elif field.name in options:
            value = options.pop(field.name)
            if value is None:
                continue
            if mark and mark.form:
                value = READERS[mark.form](value, flags_of(field)[0])
            elif mark and field.default is True:
                value = not value
            values[field.name] = value
    return values


def _chosen_word(words: Iterable[FlagWord], options: dict[str, Any]) -> str | None:
    chosen = [word for word in words if options.pop(word.flag.removeprefix("--"))]
    if len(chosen) > 1:
        flags = " and ".join(word.flag for word in chosen)
        raise UsageError(f"{flags} exclude each other: give one of them")
    return chosen[0].value if chosen else None


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
    "--alerts": "incidents",
    "--pod-gate": "pod-gates",
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
    "keep": {"--test": "--carry-out"},
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
