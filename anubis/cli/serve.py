"""`anubis serve`: the API and the pages over HTTP."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from anubis.cli import amounts, options
from anubis.cli.keep import KeepingName
from anubis.cli.terminal import Terminal


def serve(
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Where to listen. Beyond this machine only with tokens: anubis token make.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="0: any free one.")
    ] = 8750,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="HOST",
            help="A name by which others reach it, beside this host's own; may be repeated.",
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            "-c",
            metavar="CLUSTER",
            help="A cluster to keep and to start tests on, as a name or a file; may be repeated.",
        ),
    ] = None,
    suite: options.Suite = "quick",
    policy: options.Policy = "default",
    benchmarks: options.Benchmarks = None,
    keeping: KeepingName = None,
    every: Annotated[
        str,
        typer.Option(
            "--every",
            metavar="TIME",
            help="How often the keeper takes a turn on each --cluster: 60s, 5m; 0s: never.",
        ),
    ] = "60s",
    alerts: Annotated[
        str,
        typer.Option(
            "--alerts",
            metavar="MAPPING",
            help="How Alertmanager's alerts become incidents: a name under configs/incidents/.",
        ),
    ] = "alertmanager",
    trusted: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted",
            metavar="NETWORK",
            help="Addresses whose connections are kept when there are too many: 10.1.0.0/16, or "
            "a proxy's; may be repeated. Default: this machine's own, 127.0.0.0/8 and ::1.",
        ),
    ] = None,
    pod_gate: Annotated[
        str | None,
        typer.Option(
            "--pod-gate",
            metavar="NAME",
            help="Answer Kubernetes which pods get a gate: a name under configs/pod-gates/, or a "
            "file.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            help="Answer over HTTPS with this certificate (PEM); a renewed one is taken at once.",
        ),
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option("--private-key", metavar="FILE", help="The certificate's key.")
    ] = None,
    rate: Annotated[
        float,
        typer.Option("--rate", metavar="N", min=1.0, help="Requests of one token in a second."),
    ] = 500.0,
) -> None:
    """Serve the API, the pages and the metrics of what the history knows.

    Without a token, all users of this machine may read, and no others: anubis token make.
    """
    from anubis.config import configs
    from anubis.operations.clusters import files_by_name
    from anubis.operations.keeping_policy import file_of, stated_policy
    from anubis.service.connections import LOCAL
    from anubis.service.server import serve as run
    from anubis.service.service_settings import ServiceSettings

    for file in cluster or ():
        stated_policy(keeping, file_of(file), file)  # what contradicts itself is refused at once
    settings = ServiceSettings(
        host=host,
        port=port,
        names=tuple(name or ()),
        clusters=files_by_name(cluster or ()),
        suite=suite,
        policy=policy,
        benchmarks=tuple(benchmarks or ()),
        keeping=keeping,
        turn_every_s=0.0 if every == "0s" else amounts.duration_s(every, "--every"),
        alerts=alerts,
        rate_per_s=rate,
        trusted=tuple(trusted or LOCAL),
        pod_gate=configs.pod_gate(pod_gate) if pod_gate else None,
        certificate=certificate,
        private_key=private_key,
    )
    # the service ends by itself when it is told to; what it raises again afterwards is no news
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with suppress(KeyboardInterrupt):
        run(settings, Terminal())
