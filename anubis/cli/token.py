"""`anubis token`: tokens of the service, and what it was asked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import anubis
from anubis.cli import amounts, answer, options
from anubis.cli.streams import say
from anubis.core.errors import UsageError
from anubis.text.files import read_text

app = typer.Typer(
    name="token",
    help="Make, list and revoke the service's tokens. Show what the service was asked.",
    no_args_is_help=True,
)


@app.command(
    help="Make a token and print it: it cannot be shown again. A secret of your own is not printed."
)
def make(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its owner. A name can be used only once.")
    ],
    scope: Annotated[
        str,
        typer.Option(
            "--scope",
            metavar="WORDS",
            help="What it allows: read, report (incidents, alerts, jobs, suspicions), operate "
            "(nodes removed, upgraded or repaired), act (start tests, give orders), or several "
            "with commas between.",
        ),
    ] = "read",
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="TIME",
            help="How long it is valid: 12h, 90d. Default: until it is revoked.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            help="Take the secret from this file: 32 characters or more. The same token again is "
            "left as it is.",
        ),
    ] = None,
) -> None:
    lasts_s = amounts.duration_s(expires, "--expires") if expires else None
    words = [word.strip() for word in scope.split(",")]
    secret = read_secret(secret_file) if secret_file else ""
    made = anubis.make_token(name, words, lasts_s=lasts_s, secret=secret)
    if not secret:
        print(made)


def read_secret(file: Path) -> str:
    secret = read_text(file, UsageError).strip()
    if not secret:
        raise UsageError(f'--secret-file "{file}" is empty: openssl rand -hex 32 makes a secret')
    return secret


@app.command(name="list", help="All tokens by name, also those that were revoked.")
def list_tokens(json: options.Json = False) -> None:
    from anubis.report import tokens

    made = anubis.tokens()
    if not made:
        say("no tokens yet: anubis token make NAME --scope read")
    now = time.time()  # wall clock: shown to a person, decides nothing
    for sentence in tokens.endings(made, now):
        say(sentence)
    if json:
        answer.write_lines(map(tokens.line, made))
    elif made:
        tokens.show(made, now, answer.screen())


@app.command(help="Revoke a token. A running service refuses it within seconds.")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As anubis token list shows it.")],
) -> None:
    anubis.revoke_token(name)
    print(f"token {name} is no longer valid")


@app.command(
    help="Requests to the service: refused ones, those that do more than read, and typed orders, "
    "newest first."
)
def audit(
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, help="How many.")] = 50,
    json: options.Json = False,
) -> None:
    from anubis.report import tokens

    entries = anubis.audit(last)
    if not entries:
        say("the service was asked for nothing yet")
    if json:
        for entry in entries:
            answer.write_json("audit", entry)
    elif entries:
        tokens.show_audit(entries, answer.screen())
