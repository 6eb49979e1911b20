"""The pages of show-loop: what was expected and what came, times of each fault, a picture of all
hosts over time, and what the same faults cost without Anubis."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loop_site import Seen

from tests.edges.life import Story

COLOURS = {
    "idle": "#d7dde3",
    "job": "#3b7dd8",
    "test": "#8e5fc7",
    "spare": "#9bc7a4",
    "out": "#d64545",
    "by hand": "#e0a93b",
}
LEFT, WIDTH, LANE, TOP = 70, 1000, 22, 34
TOGETHER_S = 4.0  # between two commands that show one thing
UNNOTICED_S = 1800.0  # PyTorch's own time-out of gloo; of NCCL it is 600 s


@dataclass(kw_only=True)
class Fault:
    """One fault, by the clock of this machine; None: it did not come so far."""

    name: str
    node: str = ""
    job: str = ""
    planted: float
    known: float | None = None
    known_by: str = ""
    out: float | None = None
    code: str = ""
    replaced: float | None = None
    replaced_by: str = ""
    back: float | None = None
    mended: float | None = None
    healthy_pace: float = 0.0  # steps a second
    faulty_pace: float = 0.0
    lost_s: float | None = None  # of the job, beside the same steps at its healthy pace


@dataclass(kw_only=True)
class Record:
    """All that a run leaves for its pages."""

    began: float
    story: Story
    faults: Sequence[Fault]
    changes: Sequence[Seen]
    marks: Sequence[tuple[float, str]]
    nodes: Sequence[str]
    ranks: int
    owner: str  # Slurm, Kubernetes
    source: str  # by which the owner showed nodes and jobs
    parts: Sequence[str] = field(default_factory=tuple)  # with their versions
    messages: Mapping[str, int] = field(default_factory=dict)
    ended: float = 0.0


TEXT = """# The whole loop under {owner}, played with real parts

Made by `{command}`. Change the script, not this file. {verdict}, in
{lasted:.0f} s on a machine with {cores} shared cores: {parts}. No GPU took part.

![Eight hosts over time: jobs, tests, spares, and the two that were out](../{name}.svg)

## From a fault to its end

{faults}

A fault is known as soon as a person is told. A node is out and replaced as soon as {owner} shows
it, and back as soon as it takes jobs or is kept ready again. The repair itself is played: it
takes no time, and begins when the job has ended.

## What the same faults cost

{losses}

*With Anubis*: how much longer the job took, from the fault to its end, than the same steps at its
own healthy pace, times its nodes. That includes its way back through the queue. *Without*: the
pace under the fault was measured; the rest of it is lost as long as nobody acts. A job that hangs
is lost whole until its own time-out ends it: {timeout:.0f} minutes by PyTorch's default for gloo,
10 for NCCL. Not reckoned: the search by a person, and the next job on the same node.

[Runs so far](loop-runs.md) has what the other runs showed.

## Step by step

| after | step | expected | came | |
|---|---|---|---|---|
{rows}

Nodes and jobs are as {source} show them, messages as the receiver of the
webhook took them ({messages}), figures as Prometheus scraped them; the rest is from the history.
"""


def markdown(record: Record, name: str = "loop") -> str:
    wrong = len(record.story.wrong)
    rows = (
        f"| {row.after_s:.0f} s | {row.step} | {row.expected} | {cell(row.came)} |"
        f" {'as expected' if row.is_right else '**not so**'} |"
        for row in record.story.rows
    )
    flag = " --kubernetes" if record.owner == "Kubernetes" else ""
    return TEXT.format(
        command=f"scripts/studies/show-loop{flag} --into docs",
        name=name,
        owner=record.owner,
        source=record.source,
        verdict=f"**Not as expected: {wrong}**" if wrong else "All was as expected",
        lasted=record.ended - record.began,
        cores=os.cpu_count(),
        parts="; ".join(record.parts),
        faults=table_of_faults(record),
        losses=table_of_losses(record),
        timeout=UNNOTICED_S / 60,
        rows="\n".join(rows),
        messages=", ".join(f"{count} of {topic}" for topic, count in record.messages.items()),
    )


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def table_of_faults(record: Record) -> str:
    def seconds_after(fault: Fault, moment: float | None) -> str:
        return "-" if moment is None else f"{moment - fault.planted:.0f} s"

    rows = [
        f"| {fault.name} | {seconds_after(fault, fault.known)} | {cell(fault.known_by) or '-'} |"
        f" {seconds_after(fault, fault.out)} | {fault.code or 'no host'} |"
        f" {seconds_after(fault, fault.replaced)} | {fault.replaced_by or '-'} |"
        f" {seconds_after(fault, fault.mended)} |"
        f" {seconds_after(fault, fault.back)} |"
        for fault in record.faults
    ]
    head = "| fault | known | by | out | with the code | replaced | by | mended | back |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|---|", *rows])


def table_of_losses(record: Record) -> str:
    rows = []
    for fault in record.faults:
        share = 1 - fault.faulty_pace / fault.healthy_pace if fault.healthy_pace else 1.0
        lost = "-" if fault.lost_s is None else f"{fault.lost_s * record.ranks / 3600:.2f}"
        without = (
            f"{UNNOTICED_S * record.ranks / 3600:.2f} until it times out"
            if not fault.faulty_pace
            else f"{share * record.ranks:.2f} an hour"
        )
        paces = f"{fault.healthy_pace:.2f} | {fault.faulty_pace:.2f}"
        rows.append(f"| {fault.name} | {paces} | {lost} | {without} |")
    head = (
        "| fault | healthy steps a second | under the fault | node-hours lost with Anubis |"
        " without |"
    )
    return "\n".join([head, "|---|---|---|---|---|", *rows])


# --- the picture -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Stretch:
    begin: float
    end: float
    kind: str


def stretches(record: Record, node: str) -> Iterator[Stretch]:
    """The stretches of a host's time, as its owner showed it."""
    seen = [change for change in record.changes if change.subject == node]
    for change, after in zip(seen, [*seen[1:], None], strict=True):
        end = after.at if after else record.ended
        yield Stretch(change.at, end, kind_of(change, tests_on(record.changes, node)))


def tests_on(changes: Iterable[Seen], node: str) -> list[float]:
    """The times at which tests, which are jobs to the owner, were seen on a node."""
    return [c.at for c in changes if "anubis-test" in c.subject and c.shown.endswith(f"|{node}")]


def kind_of(change: Seen, tests: Sequence[float]) -> str:
    state, _, reason = change.shown.partition("|")
    if "[SPARE]" in reason:
        return "spare"
    if reason.startswith("anubis["):
        return "out"
    if state.startswith(("drain", "down")):
        return "by hand"
    if state.startswith(("alloc", "mix", "comp")):
        return "test" if any(abs(at - change.at) < TOGETHER_S for at in tests) else "job"
    return "idle"


def picture(record: Record) -> str:
    span = max(1.0, record.ended - record.began)
    height = TOP + LANE * len(record.nodes) + 28 + 14 * len(record.marks)

    def x(moment: float) -> float:
        return LEFT + (moment - record.began) / span * WIDTH

    size = f'viewBox="0 0 {LEFT + WIDTH + 20} {height}" font-family="sans-serif" font-size="11"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>Eight hosts over time, as {record.owner} showed them</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for place, (kind, colour) in enumerate(COLOURS.items()):
        left = LEFT + 100 * place
        parts.append(f'<rect x="{left}" y="8" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{left + 16}" y="18">{kind}</text>')
    for place, node in enumerate(record.nodes):
        y = TOP + LANE * place
        parts.append(f'<text x="8" y="{y + 13}">{node}</text>')
        parts += [
            f'<rect x="{x(s.begin):.1f}" y="{y}" width="{max(0.5, x(s.end) - x(s.begin)):.1f}"'
            f' height="{LANE - 5}" fill="{COLOURS[s.kind]}"/>'
            for s in stretches(record, node)
        ]
    bottom = TOP + LANE * len(record.nodes)
    for minute in range(int(span // 60) + 1):
        at = x(record.began + 60 * minute)
        parts.append(
            f'<text x="{at:.1f}" y="{bottom + 10}" text-anchor="middle">{minute} min</text>'
        )
    for place, (moment, words) in enumerate(sorted(record.marks)):
        at, y = x(moment), bottom + 24 + 14 * place
        line = f'd="M{at:.1f} {TOP - 4}V{y}" stroke="#333" stroke-dasharray="2 3"'
        parts.append(f'<path {line} fill="none"/>')
        right = at > LEFT + WIDTH * 0.6
        anchor = f'x="{at - 4:.1f}" text-anchor="end"' if right else f'x="{at + 4:.1f}"'
        outline = 'stroke="#fff" stroke-width="3" paint-order="stroke"'
        parts.append(f'<text {anchor} y="{y + 2}" {outline}>{html.escape(words)}</text>')
    return "\n".join([*parts, "</svg>\n"])


# --- the page --------------------------------------------------------------------------------

STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 1150px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 13px }
td, th { border-bottom: 1px solid #ddd; padding: .3em .6em; text-align: left; vertical-align: top }
svg { width: 100% }
.scroll { overflow-x: auto }
.wrong { color: #b00 }
"""


def page(record: Record) -> str:
    """The page as one file that loads nothing, with the picture inside."""
    body: list[str] = []
    table: list[str] = []
    for line in [*markdown(record).splitlines(), ""]:
        if line.startswith("|"):
            table.append(line)
            continue
        if table:
            body.append(html_table(table))
            table = []
        if line.startswith("!["):
            body.append(picture(record))
        elif line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            body.append(f"<h{level}>{html.escape(line.lstrip('# '))}</h{level}>")
        else:
            body.append(inline(line) if line else "<p>")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>The whole loop</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def html_table(lines: Sequence[str]) -> str:
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in lines if "---" not in line]
    made = []
    for number, row in enumerate(rows):
        tag = "th" if number == 0 else "td"
        made.append(
            "<tr>" + "".join(f"<{tag}>{inline(part.strip())}</{tag}>" for part in row) + "</tr>"
        )
    return f'<div class="scroll"><table>{"".join(made)}</table></div>'


def inline(text: str) -> str:
    text = html.escape(text.replace("\\|", "|"))
    text = re.sub(r"\*\*(.+?)\*\*", r'<b class="wrong">\1</b>', text)
    text = re.sub(r"\*(.+?)\*", r"<i>\1</i>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)
