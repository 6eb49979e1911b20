"""`anubis agent`: sample this node once a second, by a program in benchmarks/."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from anubis.text import places


def agent(
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="ADDRESS:PORT",
            help="The address for readers. Port 0: any free one.",
        ),
    ] = "127.0.0.1:9841",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="A file with the token that readers have to show."
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            metavar="FILE",
            help="A file to which each sample is added, about 20 MB a day.",
        ),
    ] = None,
    pings: Annotated[
        int | None,
        typer.Option(
            "--pings",
            metavar="PORT",
            help="Answer pings of other nodes at this UDP port, and ping others by the keeper's "
            "plan. Needs --token-file. Default: neither.",
        ),
    ] = None,
    live: Annotated[
        str | None,
        typer.Option(
            "--live",
            metavar="FOLDER",
            help="Look at the ranks of a job when asked for it: those that announce themselves in "
            "this folder, in which {job} is the job's id, or that Slurm's groups show. Needs "
            "--token-file. Default: no looks.",
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="NAME", help="The node's name. Default: the host's."),
    ] = None,
    proc: Annotated[
        Path | None,
        typer.Option(
            "--proc", metavar="FOLDER", help="The folder to read instead of /proc, in a container."
        ),
    ] = None,
    tell: Annotated[
        str | None,
        typer.Option(
            "--tell",
            metavar="URL",
            help="The service that gets lines of the kernel's log and events of GPUs at once. "
            "Needs --tell-token-file. Default: none.",
        ),
    ] = None,
    tell_token_file: Annotated[
        Path | None,
        typer.Option(
            "--tell-token-file",
            metavar="FILE",
            help="A file with a token of the service that may report.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="NAME", help="The cluster, if the service has several."),
    ] = None,
    kernel_log: Annotated[
        Path | None,
        typer.Option("--kernel-log", metavar="FILE", help="A file to follow instead of /dev/kmsg."),
    ] = None,
) -> None:
    """Sample this node once a second, for anubis watch and Prometheus, if no exporters run on it.

    It keeps the last 20 minutes: /metrics has the names of node_exporter and dcgm-exporter,
    /samples?since=TIME lines of JSON. What the node does not report is absent, never 0.
    """
    chosen = {
        "--listen": listen,
        "--token-file": token_file,
        "--record": record,
        "--pings": pings,
        "--live": live,
        "--node": node,
        "--proc": proc,
        "--tell": tell,
        "--tell-token-file": tell_token_file,
        "--cluster": cluster,
        "--kernel-log": kernel_log,
    }
    words = [f"{name}={value}" for name, value in chosen.items() if value is not None]
    _become(places.shipped_folder("benchmarks") / "telemetry", words)


def _become(program: Path, words: list[str]) -> NoReturn:
    """Replace this process by the agent: modules loaded here would stay in its memory."""
    os.execv(sys.executable, [sys.executable, str(program), *words])
