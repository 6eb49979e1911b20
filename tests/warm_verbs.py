"""Loads what most verbs load, and does once what each process would do at its first time: numba
prepares its types, Jinja compiles a template, typer builds the verbs. No asserts."""

from __future__ import annotations

from importlib import import_module

from anubis.cli.main import command
from anubis.core.judge.ecdf import compile_loops
from anubis.report import page

for module in (
    *("anubis.cli.campaign_answer", "anubis.cli.terminal", "anubis.operations.gate"),
    *("anubis.core.judge.judgement", "anubis.core.judge.learning", "anubis.report.campaign_page"),
    *("anubis.reach.executors.simulated", "anubis.store.history"),
    *("scipy.special", "sqlalchemy.dialects.sqlite", "yaml"),
):
    import_module(module)
command()
page._environment().get_template("report.html.j2")
compile_loops()
