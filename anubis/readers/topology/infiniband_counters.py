"""The error counters of all ports of an InfiniBand fabric, as `ibqueryerrors` prints them.

It names ports by GUID. `perfquery`, which reads one port, names them by LID, which does not tell
whose they are, and it shows no error that `ibqueryerrors` does not.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from anubis.core.errors import TopologyError
from anubis.core.fabric import Remark
from anubis.core.network.counters import count_rises
from anubis.core.records import Count, Counters, Limit
from anubis.readers.topology import tool
from anubis.readers.topology.ibnetdiscover import guid_of, switch_name
from anubis.readers.topology.tool import decode, locate

LIVE = ("ibqueryerrors",)
NO_ERRORS = re.compile(r"port_xmit_wait|port_\w+_(data|pkts)")  # load and congestion

HEADER = re.compile(r'Errors for (?:0x[0-9a-f]+ )?"(.*)"')
PORT = re.compile(r"\s+GUID 0x([0-9a-f]+) port (\d{1,5}|ALL):((?: \[\w+ == \d+[^]]*\])*)\s*")
COUNTER = re.compile(r"\[(\w+) == (\d{1,20})\b")
FAILED = re.compile(r"ibwarn: .* query failed on (.*), Lid \d+ port (\d+|ALL)")
SUMMARY = re.compile(r"## Summary: \d+ nodes checked.*")
FAILURES = re.compile(r"##\s+(\d{1,20}) PMA query failures")
OF_PERFQUERY = re.compile(r"^# Port (extended )?counters: Lid", re.MULTILINE)
IGNORED = re.compile(r"\s*(##.*|Link info:.*|ibwarn: .*|Data Counters for .*)?")


ALL = "ALL"  # stands for the sum of a switch's ports


@dataclass(frozen=True, kw_only=True)
class CounterReading:
    counts: tuple[Count, ...]  # a counter that is not among them showed 0 ...
    unread: frozenset[tuple[str, str]]  # ... but for these ports, by name and port
    is_whole: bool  # the output is complete, and the unread ports are known
    shows_zeros: bool = False  # so what is not among the counts was not read
    findings: tuple[Remark, ...] = ()


NONE = CounterReading(counts=(), unread=frozenset(), is_whole=True)  # as if just cleared


def live(command: Sequence[str] = LIVE) -> CounterReading:
    """Read the counters now. The tool also ends with code 1 when a port counts errors, but then
    prints its summary."""
    answer = tool.ask(command, "--counters")
    text, findings = decode(answer.out)
    if not SUMMARY.search(text):
        raise answer.refusal(command, "--counters")
    reading = parse(f"{text}\n{answer.err}", f'what "{command[0]}" says')
    return replace(reading, findings=(*findings, *reading.findings))


def compare(
    before: CounterReading, after: CounterReading, over_s: float, limits: tuple[Limit, ...] = ()
) -> Counters:
    """Return the rise between two readings, except for ports that did not answer the first time. A
    reading that shows zeros also shows which counters did not rise."""
    if not before.is_whole:
        raise TopologyError(
            "the earlier reading of the counters is incomplete: the rise since then is unknown"
        )
    keys_before = {_key(count) for count in before.counts}
    readable = [
        count
        for count in after.counts
        if not before.unread & {(count.name, count.port), (count.name, ALL)}
        and (not before.shows_zeros or _key(count) in keys_before)
    ]
    rises = count_rises(before.counts, readable, over_s, limits)
    rose = {_key(count) for count in (*rises.counts, *rises.stuck)}
    still = (replace(c, value=0) for c in readable if after.shows_zeros and _key(c) not in rose)
    return replace(
        rises,
        counts=(*rises.counts, *still),
        is_whole=after.is_whole and not after.shows_zeros,
        unread=tuple(sorted(before.unread | after.unread)),
    )


def _key(count: Count) -> tuple[str, str, str]:
    return count.name, count.port, count.counter


def parse(text: str, where: str) -> CounterReading:
    counts: list[Count] = []
    findings: list[Remark] = []
    unread: set[tuple[str, str]] = set()
    name = ""
    for line, row in enumerate(text.split("\n"), start=1):
        if header := HEADER.fullmatch(row):
            name = switch_name(header.group(1))
        elif port := PORT.fullmatch(row):
            guid, number, listed = port.groups()
            counts += _counts(guid_of(guid), name, number, listed) if number != ALL else ()
        elif failure := FAILED.fullmatch(row):
            unread.add((switch_name(failure.group(1)), failure.group(2)))
        elif not IGNORED.fullmatch(row):
            sentence = f'cannot be read, left out: "{row.strip()[:60]}"'
            findings.append(Remark(kind="unreadable", sentence=sentence, line=line))
    is_cut_off, failures = not SUMMARY.search(text), FAILURES.search(text)
    if not counts and is_cut_off:
        raise _no_counters(text, where)
    findings += _unknown(unread, failures.group(1) if failures else "0", is_cut_off)
    return CounterReading(
        counts=tuple(counts),
        unread=frozenset(unread),
        is_whole=not is_cut_off and bool(unread or not failures),
        findings=tuple(locate(findings, where)),
    )


def _counts(guid: str, name: str, port: str, listed: str) -> Iterator[Count]:
    for label, value in COUNTER.findall(listed):
        counter = kernels_name(label)
        if not NO_ERRORS.fullmatch(counter):
            yield Count(guid=guid, name=name, port=port, counter=counter, value=int(value))


def kernels_name(label: str) -> str:
    """Return the kernel's name of a counter: SymbolErrorCounter is symbol_error under
    /sys/class/infiniband, and here."""
    if label == "VL15Dropped":
        return "VL15_dropped"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", label)
    return words.lower().removesuffix("_counter")


def _unknown(
    unread: Collection[tuple[str, str]], failures: str, is_cut_off: bool
) -> Iterator[Remark]:
    """Yield remarks on ports that did not answer: they are neither good nor bad."""
    for name, ports in Tally(name for name, _ in sorted(unread)).items():
        unread_ports = "a port" if ports == 1 else f"{ports} ports"
        sentence = f"{unread_ports} of {name} did not answer: errors unknown"
        yield Remark(kind="unread", sentence=sentence)
    if failures != "0" and not unread:
        sentence = f"{failures} queries failed, of ports that it does not name: errors unknown"
        yield Remark(kind="unread", sentence=sentence)
    if is_cut_off:
        sentence = "no summary at the end, so it was cut off: errors of further ports unknown"
        yield Remark(kind="cut-off", sentence=sentence)


def _no_counters(text: str, where: str) -> TopologyError:
    if OF_PERFQUERY.search(text):
        return TopologyError(
            f'{where} is output of "perfquery", which names ports by LID: '
            'expected output of "ibqueryerrors"'
        )
    content = "is empty" if not text.strip() else "holds no counters of ports"
    return TopologyError(
        f'{where} {content}: expected output of "ibqueryerrors", "ethtool -S", "snmpwalk" or '
        '"gnmic", or a table with the columns name, port, counter, value'
    )
