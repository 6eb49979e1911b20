"""Example commands of each verb, for its help and for docs/reference/commands.md. A test parses
each."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

EXAMPLES: dict[str, tuple[str, ...]] = {
    "accept": (
        "accept --cluster simulated --suite light",
        "accept node[01-64] --cluster prod.yaml --suite full --html acceptance.html",
        "accept --resume",
    ),
    "validate": (
        "validate node07 --cluster prod.yaml",
        "validate @suspects.txt --cluster prod.yaml --suite medium --junit results.xml",
    ),
    "scan": (
        "scan --cluster prod.yaml --topology ibnet.txt --dry-run",
        "scan --cluster prod.yaml --topology ibnet.txt --cover --html network.html",
        "scan --draw --topology example",
        "scan --draw --topology ibnet.txt --counters errors.txt --over 3600",
    ),
    "locate": (
        "locate @job-4711.txt --cluster prod.yaml --topology ibnet.txt --dry-run",
        "locate @job-4711.txt --cluster prod.yaml --topology ibnet.txt",
        "locate --cluster prod.yaml --resume",
    ),
    "gate": (
        "gate node[01-64] --duration 24h",
        "gate node[01-08] --duration 90m --budget 10m --json",
        "gate node[01-64] --duration 24h --plan --why",
        "gate node07 --plan --event node-added",
        "gate node07 --plan --event incident-reported --category gpu",
    ),
    "sweep": ("sweep --budget 8nh", "sweep node[01-64] --budget 30m --suite medium"),
    "nodes": ("nodes --cluster prod.yaml", "nodes node[01-04] --cluster prod.yaml --json"),
    "tell": (
        "tell node-added node[17-24] --cluster prod.yaml",
        "tell incident-reported node07 --category gpu --id ticket-4711",
        "tell job-stalled --job 4711 --reason 'no step for 20 min' --later",
        "tell job-ended --job 4711 --later",
        "tell job-ended node0007 --job 4712 --failed --cluster simulated",
    ),
    "keep": (
        "keep --cluster prod.yaml",
        "keep --cluster prod.yaml --do 17",
        "keep --cluster prod.yaml --close fleet",
        "keep --cluster prod.yaml --every 60s",
        "keep --cluster prod.yaml --periodic-tasks",
    ),
    "watch": (
        "watch --file job.csv --html job.html",
        "watch 4711 --cluster prod.yaml --prometheus http://prometheus:9090",
        "watch --nodes node[01-16] --agents --follow --every 4m",
        "watch --pings --cluster prod.yaml",
    ),
    "diagnose": (
        "diagnose --logs logs --kernel kernel --nodes node[01-04]",
        "diagnose --pid 31415 --logs logs",
        "diagnose --live /tmp/4711 --live-to /shared/4711",
        "diagnose --live /shared/4711 --logs logs",
        "diagnose 4711 --dumps dumps --ranks ranks.csv --html 4711.html",
        "diagnose 4711 --ras reports --inspector inspector --nodes node[01-04]",
        "diagnose 4711 --cluster prod.yaml --diagnosis prod --tell",
    ),
    "report": ("report", "report --html last.html", "report --nagios"),
    "demo": ("demo", "demo --folder anubis-demo"),
    "doctor": ("doctor", "doctor node[001-016] --cluster ssh"),
    "schema": ("schema", "schema verdict"),
    "history actions": ("history actions", "history actions --all --last 20 --json"),
    "history import csv": (
        "history import csv lines.csv --suite hpl --sku h100",
        "history import csv wide.csv --suite hpl --sku h100 --map node=host --metric gflops=higher",
    ),
    "history import superbench": ("history import superbench results-summary.jsonl --sku h100",),
    "history import superbench-baseline": (
        "history import superbench-baseline baseline.json --sku h100 --units 64",
    ),
    "history import incidents": (
        "history import incidents tickets.csv",
        "history import incidents events.json --mapping events --cluster prod",
    ),
    "history import nodes": ("history import nodes nodes.csv --map node=host --time %d.%m.%Y",),
    "history show": ("history show node07", "history show --last 200 --json"),
    "history decisions": ("history decisions --last 1",),
    "history standing": ("history standing", "history standing node[01-16] --json"),
    "history campaigns": ("history campaigns --last 5",),
    "history clusters": ("history clusters",),
    "history rename": ("history rename local prod",),
    "history forget-cluster": ("history forget-cluster prodd",),
    "history benchmarks": ("history benchmarks",),
    "history check": ("history check",),
    "history imports": ("history imports",),
    "history forget": ("history forget --import 3",),
    "token make": (
        "token make prometheus --scope read",
        "token make slurm --scope read,report --expires 90d",
    ),
    "token list": ("token list",),
    "token revoke": ("token revoke slurm",),
    "token audit": ("token audit --last 20",),
    "serve": ("serve", "serve --host 0.0.0.0 --cluster prod.yaml"),
    "agent": ("agent", "agent --listen 0.0.0.0:9841 --token-file /etc/anubis/agent.token"),
    "criteria learn": (
        "criteria learn",
        "criteria learn --since 2026-11-01 --exclude node07 --out criteria",
    ),
    "criteria judge": (
        "criteria judge --criteria criteria",
        "criteria judge --since 2026-11-01 --html november.html",
    ),
    "criteria learn-watching": (
        "criteria learn-watching monday.parquet tuesday.csv.gz",
        "criteria learn-watching --synthetic --name made --seed 1",
    ),
    "criteria show-watching": ("criteria show-watching", "criteria show-watching ours --json"),
    "criteria show": ("criteria show", "criteria show criteria/full/h100.json"),
    "criteria diff": ("criteria diff old.json new.json",),
    "criteria adopt": (
        "criteria adopt criteria",
        'criteria adopt criteria --metric "gemm tflops:*" --policy mine.yaml --write mine.yaml',
    ),
    "risk simulate": ("risk simulate --seeds 1", "risk simulate paper --html policies.html"),
    "risk train": ("risk train",),
    "risk evaluate": ("risk evaluate", "risk evaluate --ask node[01-16] --html models.html"),
    "risk show": ("risk show node[01-64]",),
    "bench tune": ("bench tune gemm", "bench tune gemm --write tuned.yaml"),
    "bench list": ("bench list", "bench list --benchmarks mine"),
    "bench describe": ("bench describe gemm",),
    "bench run": (
        *("bench run gemm", "bench run gemm --dtypes=bf16 --size=4096"),
        "bench run node_health --limits default --mounts=/scratch",
    ),
    "bench new": ("bench new sums --benchmarks mine",),
    "bench check": ("bench check mine/sums.py", "bench check mine/sums.py --samples=5"),
}


def commands_of(path: str) -> list[str]:
    return [f"anubis {example}" for example in EXAMPLES[path]]


def add_to_help(commands: Iterable[typer.models.CommandInfo], group: str = "") -> None:
    """Put each verb's examples below its options. Each paragraph of its help is one line, which
    the terminal breaks."""
    for command in commands:
        name = command.name or command.callback.__name__.replace("_", "-")  # type: ignore[union-attr]
        lines = commands_of(f"{group} {name}".strip())
        paragraphs = (command.help or inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(text.split()) for text in paragraphs)
        command.epilog = "\n\n".join(("Examples:", *lines))
