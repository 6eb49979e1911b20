"""What every command has: flags without a type in the help, words that a shell completes, and old
spellings that go on working."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

from anubis.cli import completion, old_spellings
from anubis.cli.remarks import say


def _dress(parameters: list[Any]) -> list[Any]:
    """Show no type beside a flag, and complete names."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
        completion.complete_names(parameter)
    return parameters


class Leaf(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _dress(super().get_params(ctx))


class Verbs(TyperGroup):
    """The verbs at the top. An old spelling is read as what it is called now, with a remark."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _dress(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        words, remarks = old_spellings.renew(args)
        if not ctx.resilient_parsing:
            for remark in remarks:
                say(remark)
        return super().resolve_command(ctx, words)
