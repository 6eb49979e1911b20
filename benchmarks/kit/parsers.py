"""Numbers from the output of other people's tools. Pure: text in, numbers out, nothing is run.

Foreign lines between the rows (NCCL's, a second process's) are skipped, and a row that is not
complete is no row. Units are converted here and nowhere else: perftest and UCX write MB for 2^20
bytes, which the message rates beside them prove.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import contract

MIB_PER_GB = 2**20 / 1e9  # a MB of perftest and of UCX has 2**20 bytes
NUMBER = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"


# --- perftest ------------------------------------------------------------------------------


@dataclass(frozen=True)
class PerftestRow:
    size_bytes: int
    iterations: int
    values: dict[str, float]  # by our words: gbps, peak_gbps, mpps, or us


def perftest(text: str) -> list[PerftestRow]:
    """Return rows of `ib_*_bw` and `ib_*_lat`, each once: two ends that share a terminal repeat
    them."""
    rows: list[PerftestRow] = []
    headings: list[str] = []
    for line in text.splitlines():
        if "#bytes" in line:
            headings = perftest_headings(line)
            continue
        words = line.split()
        complete = len(words) == len(headings) and len(words) > 2
        if not complete or not all(re.fullmatch(NUMBER, word) for word in words):
            continue
        numbers = dict(zip(headings, map(float, words), strict=True))
        row = PerftestRow(int(words[0]), int(words[1]), convert(numbers))
        if row not in rows:
            rows.append(row)
    return rows


def perftest_headings(line: str) -> list[str]:
    """Parse `#bytes #iterations BW peak[MB/sec] …`: a heading may hold blanks, and ends at its
    unit."""
    return [" ".join(part.split()) for part in re.findall(r"#\w+|[^#\[\]]+\[[^\]]+\]", line)]


def convert(numbers: dict[str, float]) -> dict[str, float]:
    words = {"BW average": "gbps", "BW peak": "peak_gbps", "MsgRate": "mpps", "t_avg": "us"}
    factors = {"MB/sec": MIB_PER_GB, "MiB/sec": MIB_PER_GB, "Gb/sec": 1 / 8, "Mpps": 1, "usec": 1}
    values: dict[str, float] = {}
    for heading, number in numbers.items():
        name, _, unit = heading.rstrip("]").partition("[")
        if word := words.get(name.strip()):
            values[word] = number * factors[unit]
    return values


# --- UCX -----------------------------------------------------------------------------------


def ucx_perftest(text: str) -> dict[str, float]:
    """Return the last line of `ucx_perftest -f -v`, by its own headings; over the whole of the
    test.

    Its numbers for the last moments may be inf, if the machine was busy with other things.
    """
    headings: list[str] = []
    values: dict[str, float] = {}
    for line in text.splitlines():
        words = line.strip().split(",")
        if words[0] == "iterations":
            headings = words
        elif len(words) == len(headings) and all(
            re.fullmatch(f"{NUMBER}|inf", word) for word in words
        ):
            values = dict(zip(headings, map(float, words), strict=True))
    if not values:
        return {}
    return {"us": values["overall_lat"], "gbps": values["overall_bw"] * MIB_PER_GB}


# --- nccl-tests ----------------------------------------------------------------------------


@dataclass(frozen=True)
class NcclRow:
    size_bytes: int
    place: str  # "out_of_place" or "in_place"
    us: float
    algbw_gbps: float
    busbw_gbps: float
    wrong: int | None  # None where the tool was told not to look


def nccl_tests(text: str) -> list[NcclRow]:
    """Return both halves of every row with a message in it.

    Columns differ by operation (redop, root) and version (error, #wrong), and all-to-all leaves
    redop empty: a row is read from its end, which always has two groups of four.
    """
    rows = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 11 or not words[0].isdecimal() or not words[1].isdecimal():
            continue
        halves = words[-8:-4], words[-4:]
        if int(words[0]) == 0 or not all(is_half(half) for half in halves):
            continue
        for place, half in zip(("out_of_place", "in_place"), halves, strict=True):
            us, algbw, busbw = map(float, half[:3])
            if us > 0:
                rows.append(NcclRow(int(words[0]), place, us, algbw, busbw, wrong_of(half[3])))
    return rows


def is_half(words: list[str]) -> bool:
    return all(re.fullmatch(NUMBER, word) for word in words[:3]) and bool(
        re.fullmatch(rf"N/A|{NUMBER}", words[3])
    )


def wrong_of(word: str) -> int | None:
    """Return a count of wrong elements; None for older versions, which print the largest error."""
    return int(word) if word.isdecimal() else None


def nccl_out_of_bounds(text: str) -> int:
    """Parse `# Out of bounds values : 0 OK`, the tool's judgement of all its rows together."""
    match = re.search(r"Out of bounds values\s*:\s*(\d+)", text)
    return int(match[1]) if match else 0


# --- nvbandwidth ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    test: str
    unit: str  # "GB/s" or "ns"
    device: str
    value: float


@dataclass
class Nvbandwidth:
    cells: list[Cell] = field(default_factory=list)
    waived: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def nvbandwidth(text: str) -> Nvbandwidth:
    """Parse the output of `nvbandwidth -j` or, without -j, of `nvbandwidth`."""
    start = re.search(r"^\{", text, re.M)
    if start is None:
        return nvbandwidth_text(text)
    document, _ = json.JSONDecoder().raw_decode(text[start.start() :])
    return nvbandwidth_json(document["nvbandwidth"])


def nvbandwidth_json(document: dict[str, Any]) -> Nvbandwidth:
    result = Nvbandwidth()
    if error := document.get("error"):
        result.errors.append(str(error))
    for case in document.get("testcases", []):
        name, status = case["name"], str(case.get("status", "without a status"))
        if status == "Waived":
            result.waived.append(name)
        elif status != "Passed" or "error" in case:  # Error, ERROR, or Running: it never ended
            result.errors.append(f"{name}: {case.get('error', status)}")
        else:
            rows = [[str(value) for value in row] for row in case.get("bandwidth_matrix", [])]
            description = case.get("bandwidth_description", "")
            for test, matrix in matrices(name, rows, "GPU(row)" in description):
                columns = [str(index) for index in range(len(matrix[0]))]
                labelled = [(str(index), row) for index, row in enumerate(matrix)]
                result.cells += cells(test, description, columns, labelled)
    return result


def matrices(
    test: str, rows: list[list[str]], between_gpus: bool
) -> list[tuple[str, list[list[str]]]]:
    """Split the table of a test that copies both ways: both directions, one below the other, and
    their sum.

    Their names are those under which the tool's text has the sums of the three.
    """
    columns = len(rows[0]) if rows else 0
    if not (between_gpus and columns and len(rows) == 3 * columns):
        return [(test, rows)] if rows else []
    way = "write" if "_write" in test else "read"
    return [
        (f"{test}_{part}", rows[place * columns : (place + 1) * columns])
        for place, part in enumerate((f"{way}1", f"{way}2", "total"))
    ]


def nvbandwidth_text(text: str) -> Nvbandwidth:
    """Parse `Running <test>.`, then for each table a description, the columns, rows, and `SUM
    <name>`.

    Waived tests go unnamed.
    """
    errors = re.findall(r"^(?:ERROR|Error|\[CUDA_ERROR).*$", text, re.M)
    result = Nvbandwidth(errors=errors)
    for block in re.split(r"^Running\s+", text, flags=re.M)[1:]:
        table: list[list[str]] = []
        description = ""
        for line in block.splitlines()[1:]:
            words = line.split()
            if re.match(r"mem(cpy|ory)", line):
                description, table = line, []
            elif words[:1] == ["SUM"] and len(table) > 1:
                columns, *rows = table
                complete = [(row[0], row[1:]) for row in rows if len(row) == len(columns) + 1]
                result.cells += cells(words[1], description, columns, complete)
            elif description and words and re.fullmatch(rf"N/A|{NUMBER}", words[-1]):
                table.append(words)
    return result


def cells(
    test: str, description: str, columns: list[str], rows: list[tuple[str, list[str]]]
) -> list[Cell]:
    unit = "ns" if "(ns)" in description else "GB/s"
    between_gpus = "GPU(row)" in description
    return [
        Cell(test, unit, device_name(row, column, between_gpus, len(rows)), float(value))
        for row, values in rows
        for column, value in zip(columns, values, strict=True)
        if value != "N/A" and float(value) > 0
    ]


def device_name(row: str, column: str, between_gpus: bool, rows: int) -> str:
    """Name the devices of a cell: a table of one row has all CPUs, or all other GPUs, at its other
    end."""
    if rows == 1:
        return f"cuda:{column}"
    return f"cuda:{row}-cuda:{column}" if between_gpus else f"cpu:{row}-cuda:{column}"


# --- dcgmi diag ----------------------------------------------------------------------------

DCGM_TITLES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")  # of version 4, and of those before
# What is to be done about a finding, by dcgm_errors.h: to watch it, to take the GPU out, to look
# closer, to set something right, to reset the GPU
SEVERITIES = ("none", "monitor", "isolate", "unknown", "triage", "config", "reset")


@dataclass(frozen=True)
class Finding:
    text: str
    severity: str  # "" where it does not say


@dataclass(frozen=True)
class Tested:
    test: str
    device: str
    status: str  # pass, warn, fail, skip, or what else it says
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Diagnosed:
    version: str
    tested: tuple[Tested, ...]
    runtime_error: str = ""


def dcgm(text: str) -> Diagnosed:
    """Parse the JSON of `dcgmi diag -j`, of DCGM 3 (`gpu_ids`) or DCGM 4 (`entity_group`,
    `entity_id`); lines of the log may come first."""
    decoder = json.JSONDecoder()
    for start in re.finditer(r"^\s*\{", text, re.M):
        try:
            document, _ = decoder.raw_decode(text[start.end() - 1 :])
        except ValueError:
            continue
        title = next((title for title in DCGM_TITLES if title in document), None)
        if title:
            return diagnosis(document[title], document.get("metadata", {}))
    raise contract.Unmeasured("dcgmi wrote no JSON that holds a diagnostic")


def diagnosis(diagnostic: dict[str, Any], metadata: dict[str, Any]) -> Diagnosed:
    tests = [
        test
        for category in diagnostic.get("test_categories") or []
        for test in category.get("tests") or []
        if test  # version 3 puts null between them
    ]
    return Diagnosed(
        version=str(metadata.get("version") or diagnostic.get("version") or ""),
        tested=tuple(tested for test in tests for tested in results_of(test)),
        runtime_error=str(diagnostic.get("runtime_error") or ""),
    )


def results_of(test: dict[str, Any]) -> Iterator[Tested]:
    name = re.sub(r"\W+", "_", test["name"].lower()).strip("_")
    for result in test.get("results") or []:
        status = status_of(str(result.get("status", "")))
        findings = tuple(findings_of(result))
        for device in entities_of(result):
            yield Tested(name, device, status, findings)


def status_of(word: str) -> str:
    """Return one word for PASS, Pass and Passed, and so for the others."""
    word = word.strip().lower()
    return next((outcome for outcome in ("pass", "warn", "fail", "skip") if outcome in word), word)


def findings_of(result: dict[str, Any]) -> Iterator[Finding]:
    """Yield findings: a text of its own in version 3, an object around it in version 4."""
    warnings = result.get("warnings") or []
    for warning in [warnings] if isinstance(warnings, str) else warnings:
        document = warning if isinstance(warning, dict) else {"warning": warning}
        text = str(document.get("warning", ""))
        # a driver that unloads when it is not needed breaks nothing: node_config advises on it
        is_advice = "persistence mode" in text.lower()
        yield Finding(text, "monitor" if is_advice else severity_of(document.get("error_severity")))


def severity_of(number: object) -> str:
    """Return the name of a severity; one that is newer than this table is unknown, and so not
    light."""
    if not isinstance(number, int):
        return ""
    return SEVERITIES[number] if 0 <= number < len(SEVERITIES) else "unknown"


def entities_of(result: dict[str, Any]) -> list[str]:
    """Return names such as `gpu:0`, in DCGM's own numbers, which are NVML's and not always
    CUDA's."""
    if "entity_id" in result:
        group = re.sub(r"\W+", "_", str(result.get("entity_group", "entity")).lower())
        return [f"{group}:{result['entity_id']}"]
    ids = str(result.get("gpu_ids", result.get("gpu_id", "")))
    return [f"gpu:{number}" for number in re.findall(r"\d+", ids)] or ["node"]
