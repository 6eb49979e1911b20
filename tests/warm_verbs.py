"""Loads what most verbs load, and does once what each process would do at its first time: numba
prepares its types, Jinja compiles a template, typer builds the verbs. No asserts."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from anubis.cli.main import command
from anubis.core.judge import compiled_ecdf
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
samples, starts = np.arange(1.0, 5.0), np.array([0, 4])
compiled_ecdf.distances_to(samples, starts, samples, 0.05, True, np.empty(1))
compiled_ecdf.typical_losses(samples, starts, samples, np.empty(1))
