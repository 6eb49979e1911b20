"""The benchmark programs of a folder: their descriptions, and the results they print.

A benchmark is any `*.py` or executable file in the folder that does not begin with an underscore.
`anubis` never imports one: it calls `--describe`, and a JSON document is the only link.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from errno import ENOEXEC
from pathlib import Path
from typing import cast

import numpy as np

from anubis.config import descriptions
from anubis.core.amounts import HOUR_S
from anubis.core.errors import (
    CatalogError,
    ContractError,
    MisdatedError,
    UnknownNameError,
    UsageError,
    did_you_mean,
)
from anubis.core.records import (
    CUT_SHORT,
    LEFT_NOTHING,
    BenchmarkSpec,
    ParameterValue,
    Readings,
    Result,
    Series,
)
from anubis.core.text import escape_line, make_storable
from anubis.reach.executors.guardian import add_library
from anubis.reach.executors.start_settings import Program
from anubis.text import places
from anubis.text.files import json_value
from anubis.text.reading import read
from anubis.text.wording import moment

DESCRIBE_SCHEMA = "anubis.describe/1"
RESULT_SCHEMA = "anubis.result/1"
DESCRIBE_LIMIT_S = 30  # a description loads nothing heavy; a cold disk is slow
MOST_SERIES = 10_000  # 16 GPUs with 600 series each
MOST_FACTS = 40_000  # in an environment: the states of eight GPUs during each of 100 metrics
DEEPEST_FACT = 8  # levels
LONGEST_TEXT = 1000  # characters of a setting, which is compared and shown
LONGEST_FACT = 16_384  # characters of a text in an environment, which is never judged
MOST_TEXT = 4 << 20  # characters of all of them
MOST_SAMPLES = 1_000_000  # of all series
MOST_BITS = 64  # of a whole number, as the history and JSON's readers take them
LATEST_S = 1e11  # since 1970
CLOCK_SET_S = HOUR_S  # by which a clock may be set while a program runs
LONGEST_S = 1e9  # 30 years
QUOTED = 60  # characters of what was found
NOT_PROGRAMS = {"contract.py", "__init__.py"}

DESCRIBE_EACH = """
import contextlib, io, json, os, runpy, sys

files, texts = sys.argv[1:], []
sys.path[0] = os.path.dirname(files[0])
for file in files:
    sys.argv, failed = [file, "--describe"], None
    with contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            runpy.run_path(file, run_name="__main__")
        except SystemExit as end:
            failed = end.code
        except Exception as error:
            failed = error
    texts.append("" if failed else text.getvalue())
print(json.dumps(texts))
"""


@dataclass(frozen=True)
class Catalog:
    """What can be run: each benchmark's description and its program."""

    specs: Mapping[str, BenchmarkSpec]
    programs: Mapping[tuple[str, str], Program]
    folders: tuple[Path, ...]


def load(folders: Iterable[Path], required: Collection[str] | None = None) -> Catalog:
    """Ask every program to describe itself; a broken one raises an error that names it.

    If each required benchmark has a file, only those are asked: a program has the name of its file.
    """
    catalog, broken = load_what_works(folders, required)
    if broken:
        raise broken[0]
    return catalog


def load_what_works(
    folders: Iterable[Path], required: Collection[str] | None = None
) -> tuple[Catalog, list[CatalogError]]:
    """Load as `load` does; return the catalog, and the error of each program left out."""
    folders = tuple(folder.absolute() for folder in folders)
    files = [file for folder in folders for file in programs_in(folder)]
    if required is not None and set(required) <= {file.stem for file in files}:
        files = [file for file in files if file.stem in required]
    shipped = _shipped_folder()
    specs: dict[str, BenchmarkSpec] = {}
    programs: dict[tuple[str, str], Program] = {}
    broken: list[CatalogError] = []
    for file, spec in zip(files, describe_all(files), strict=True):
        if isinstance(spec, CatalogError):
            broken.append(spec)
            continue
        if spec.name in specs:
            first = programs[spec.name, specs[spec.name].version].file
            same_name = (
                f'benchmark "{spec.name}" exists twice, as "{first}" and as "{file}": rename one'
            )
            broken.append(CatalogError(same_name))
            continue
        specs[spec.name] = spec
        library = shipped if file.parent != shipped else None
        programs[spec.name, spec.version] = Program(file=file, spec=spec, library=library)
    return Catalog(specs, programs, folders), broken


def _shipped_folder() -> Path:
    return places.shipped_folder("benchmarks").absolute()


def folders(more: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Folders of the shipped benchmarks and of the user's."""
    return (places.shipped_folder("benchmarks"), *more)


def find(name: str, catalog: Catalog) -> Program:
    if name not in catalog.specs:
        raise UsageError(f'no benchmark "{name}"; {did_you_mean(name, catalog.specs)}')
    return catalog.programs[name, catalog.specs[name].version]


def programs_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UnknownNameError(f'benchmark folder "{folder}" does not exist')
    return [
        file
        for file in sorted(folder.iterdir())
        if file.is_file()
        and not file.name.startswith(("_", "."))
        and file.name not in NOT_PROGRAMS
        and (file.suffix == ".py" or os.access(file, os.X_OK))
    ]


def describe_all(files: Sequence[Path]) -> list[BenchmarkSpec | CatalogError]:
    """Describe each file. The shipped programs answer from one process, in a tenth of the time, and
    are not asked again until one of their files changes.

    Any other program, and one that does not answer there, runs alone, so that its errors stay its
    own.
    """
    shipped = _shipped_folder()
    texts = _collect_descriptions(
        [f for f in files if f.parent == shipped and f.suffix == ".py"], shipped
    )

    def spec(file: Path) -> BenchmarkSpec | CatalogError:
        try:
            return parse_description(texts[file], file) if texts.get(file) else describe(file)
        except CatalogError as error:
            return error

    if len(texts) == len(files):  # no other program has to run
        return list(map(spec, files))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(spec, files))


def _collect_descriptions(files: Sequence[Path], folder: Path) -> dict[Path, str]:
    """Cached descriptions of these programs of the folder, or what they print if none are
    cached."""
    if not files:
        return {}
    digest = descriptions.digest_of(folder)  # before they run: their files may change meanwhile
    texts = descriptions.load(digest)
    unknown = [file for file in files if file.name not in texts]
    if len(unknown) > 1:
        answers = zip(unknown, _describe_together(unknown), strict=False)
        texts |= {file.name: text for file, text in answers if text}
        descriptions.keep(digest, texts)
    return {file: texts[file.name] for file in files if file.name in texts}


def _describe_together(files: Sequence[Path]) -> list[str]:
    """Descriptions that programs of one folder print, run in turn by one interpreter."""
    command = [sys.executable, "-c", DESCRIBE_EACH, *map(str, files)]
    try:
        process = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DESCRIBE_LIMIT_S
        )
        texts: list[str] = json.loads(process.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return []
    return texts


def describe(file: Path, limit_s: float = DESCRIBE_LIMIT_S) -> BenchmarkSpec:
    command = [sys.executable, str(file)] if file.suffix == ".py" else [str(file)]
    try:
        program = subprocess.Popen(
            [*command, "--describe"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=add_library(os.environ, str(_shipped_folder())),
            start_new_session=True,  # so that what it starts can be ended with it
        )
    except OSError as error:
        hint = "; its first line must name its interpreter" if error.errno == ENOEXEC else ""
        raise CatalogError(
            f'"{file}" --describe could not be run: {error.strerror}{hint}'
        ) from None
    with program:
        try:
            stdout, stderr = program.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            raise CatalogError(
                f'"{file}" --describe gave no answer within {limit_s:g} s: '
                "it must answer before it loads or measures anything"
            ) from None
    if program.returncode != 0:
        last = stderr.strip().splitlines()[-1:] or ["nothing on stderr"]
        raise CatalogError(f'"{file}" --describe ended with {program.returncode}: {last[0]}')
    return parse_description(stdout, file)


def parse_description(text: str, file: Path) -> BenchmarkSpec:
    where = f'"{file}" --describe'
    try:
        document = json_value(text)
    except ValueError as error:
        raise CatalogError(f"{where}: not a JSON document: {error}") from None
    if not isinstance(document, dict) or document.pop("schema", None) != DESCRIBE_SCHEMA:
        raise CatalogError(f'{where}: expected a table with "schema": "{DESCRIBE_SCHEMA}"')
    spec = read(document, BenchmarkSpec, where, CatalogError)
    if spec.name != file.stem:
        raise CatalogError(f'{where}: its name is "{spec.name}", its file "{file.name}"')
    return spec


def parse_result(
    text: str,
    spec: BenchmarkSpec,
    ordered: Mapping[str, ParameterValue] | None = None,
    ran: tuple[float, float] | None = None,
) -> Result:
    """Parse the document of one execution; an error names what breaks the contract. `ordered`: the
    parameters that the program was given, if they are known; all others have their defaults.
    `ran`: when it began and ended, by the clock of its node."""
    try:
        document = json.loads(
            text, parse_constant=_refuse_constant, object_pairs_hook=_table_of_unique_keys
        )
    except (ValueError, RecursionError) as error:
        end = text.strip()[-40:]
        raise ContractError(f'not one JSON document ({error}); it ends "{end}"') from None
    if not isinstance(document, dict):
        raise ContractError(f"expected a JSON table, found {type(document).__name__}")
    result = _result(document, spec, ordered)
    if ran:
        _check_date(document, *ran)
    return result


def _table_of_unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make a table; refuse repeated keys, of which readers keep different values."""
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ContractError(f"the key {_quote(twice)} is written twice in one table")
    return table


def _result(
    document: dict[str, object], spec: BenchmarkSpec, ordered: Mapping[str, ParameterValue] | None
) -> Result:
    _expect(document, "schema", RESULT_SCHEMA)
    _expect(document, "benchmark", spec.name)
    _expect(document, "version", spec.version)
    _check_parameters(document.get("parameters", {}), spec, ordered)
    _check_seconds(document, "started_at", LATEST_S)
    _check_seconds(document, "duration_s", LONGEST_S)
    environment = _environment(document)
    if spec.settings:
        _check_settings(environment.get("settings", {}), spec)
    series = document.get("series")
    if document.get("not_applicable"):
        if series:
            raise ContractError('it has "series" and is "not_applicable": expected one of them')
        return Result(environment=environment, not_applicable=_text(document, "not_applicable"))
    if not isinstance(series, list) or not series:
        raise ContractError('"series" is empty: nothing was measured')
    if len(series) > MOST_SERIES:
        raise ContractError(
            f'"series" has {len(series):,} entries, expected at most {MOST_SERIES:,}'
        )
    series_read = tuple(_series(entry, spec) for entry in series)
    stated = cast(Mapping[str, ParameterValue], document.get("parameters", {}))
    environment |= _find_cut_short(series_read, spec, stated if ordered is None else ordered)
    names = [(one_series.metric, one_series.device) for one_series in series_read]
    if len(set(names)) < len(names):
        raise ContractError("a metric is listed twice for one device")
    samples = sum(len(one_series.samples) for one_series in series_read)
    if samples > MOST_SAMPLES:
        raise ContractError(f"it has {samples:,} samples, expected at most {MOST_SAMPLES:,}")
    return Result(series=Readings.pack(series_read), environment=environment)


def _check_parameters(
    stated: object, spec: BenchmarkSpec, ordered: Mapping[str, ParameterValue] | None
) -> None:
    """Check the parameters, which decide the criteria by which the numbers are judged."""
    if not isinstance(stated, dict):
        raise ContractError('"parameters" is not a table')
    defaults = {parameter.name: parameter.default for parameter in spec.parameters}
    for name, value in stated.items():
        if name not in defaults:
            raise ContractError(f"parameter {_quote(name)} is not one that {spec.name} declares")
        if ordered is not None and not _is_same(value, meant := {**defaults, **ordered}[name]):
            raise ContractError(
                f"it was measured with {name} {_spell(value)}, ordered was {_spell(meant)}"
            )


def _find_cut_short(
    series: Iterable[Series], spec: BenchmarkSpec, parameters: Mapping[str, ParameterValue]
) -> dict[str, object]:
    """A note of each series that has fewer samples than ordered, for those who judge."""
    numbers = spec.samples_ordered(parameters)
    cut_short = [
        [s.metric, s.device, number]
        for s in series
        if len(s.samples) < (number := numbers.get(s.metric.partition(":")[0], 0))
    ]
    return {CUT_SHORT: cut_short} if cut_short else {}


def _spell(value: object) -> str:
    """The value as JSON, which distinguishes a number from a text of digits."""
    return escape_line(json.dumps(value, ensure_ascii=False, default=str))[:QUOTED]


def _is_same(stated: object, ordered: ParameterValue) -> bool:
    """True if a program's value is the one ordered: 1 equals 1.0, but never a truth value."""
    is_truth = isinstance(stated, bool), isinstance(ordered, bool)
    return is_truth[0] == is_truth[1] and stated == ordered


def _check_date(document: dict[str, object], began: float, ended: float) -> None:
    """Refuse what an earlier run has left, as in a file that a tool did not write anew."""
    stated = cast(float, document.get("started_at", 0))
    if stated and not began - CLOCK_SET_S <= stated <= ended + CLOCK_SET_S:
        expected = "expected the time of this run; an earlier run may have written this document"
        raise MisdatedError(f'"started_at" is {moment(stated)}: {expected}')


def _check_seconds(document: dict[str, object], key: str, highest: float) -> None:
    value = document.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= highest:
        raise ContractError(
            f'"{key}" is {_quote(value)}: expected seconds, at least 0 and at most {highest:g}'
        )


def _environment(document: dict[str, object]) -> dict[str, object]:
    environment = document.get("environment", {})
    if not isinstance(environment, dict):
        raise ContractError('"environment" is not a table')
    room, letters = MOST_FACTS, 0
    pending: list[tuple[object, int]] = [(environment, 0)]
    while pending:
        value, depth = pending.pop()
        room -= 1
        if isinstance(value, float) and not math.isfinite(value):
            raise ContractError('"environment" has a number that is too large: expected finite')
        if isinstance(value, dict | list):
            inside = value.values() if isinstance(value, dict) else value
            pending += [(item, depth + 1) for item in inside]
        letters += _letters_in(value)
        if depth > DEEPEST_FACT or len(pending) > room or letters > MOST_TEXT:
            raise ContractError(
                f'"environment" is too large: expected at most {MOST_FACTS:,} facts'
                f" of {MOST_TEXT:,} characters, nested no deeper than {DEEPEST_FACT}"
            )
    for name in environment.keys() & LEFT_NOTHING:
        _check_reasons(environment[name], name)
    facts: dict[str, object] = json.loads(
        make_storable(json.dumps(environment, ensure_ascii=False))
    )
    facts.pop(CUT_SHORT, None)  # is found here, and never believed
    return facts


def _letters_in(value: object) -> int:
    """Count the characters of a text or of a table's keys; refuse numbers that are too large."""
    texts = value if isinstance(value, dict) else [value] if isinstance(value, str) else []
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ContractError(f'"environment" has a number of more than {MOST_BITS} bits')
    for text in texts:
        if len(text) > LONGEST_FACT:
            raise ContractError(
                f'"environment" has a text of {len(text):,} characters, expected at most'
                f" {LONGEST_FACT:,}"
            )
    return sum(map(len, texts))


def _check_reasons(reasons: object, name: str) -> None:
    """Check the reasons of devices: text that may later be part of a drain reason."""
    if not isinstance(reasons, dict) or not reasons:
        raise ContractError(f'"{name}" must be a table of devices, each with its reason')
    for device, reason in reasons.items():
        if not (isinstance(reason, str) and reason.isprintable() and device.isprintable()):
            raise ContractError(f'"{name}" has {reason!a:.80} of {device!a:.40}: expected text')


def _check_settings(settings: object, spec: BenchmarkSpec) -> None:
    """Check that settings are declared by name and are printable text for each device."""
    if not isinstance(settings, dict):
        raise ContractError('"settings" must be a table of names, each with a table of devices')
    declared = {setting.name for setting in spec.settings}
    for name, of_devices in settings.items():
        if name not in declared:
            raise ContractError(f"setting {name!a:.60} is not one that {spec.name} declares")
        if not isinstance(of_devices, dict):
            raise ContractError(f'"settings" has {name} without a table of devices')
        for device, text in of_devices.items():
            if not (isinstance(text, str) and text and text.isprintable() and device.isprintable()):
                raise ContractError(
                    f"setting {name} of {device!a:.40} is {_quote(text)}: expected printable text"
                )
            if len(text) > LONGEST_TEXT:
                raise ContractError(
                    f"setting {name} of {device!a:.40} is longer than {LONGEST_TEXT:,} characters"
                )


def _series(document: object, spec: BenchmarkSpec) -> Series:
    if not isinstance(document, dict):
        raise ContractError('every entry of "series" must be a table')
    metric, device = _text(document, "metric"), _text(document, "device")
    declared = spec.metric(metric)
    if declared is None:
        raise ContractError(f'metric "{metric}" is not one that {spec.name} declares')
    for key in ("unit", "direction"):
        if document.get(key, getattr(declared, key)) != getattr(declared, key):
            raise ContractError(
                f'"{metric}" has the {key} {_quote(document[key])}, {spec.name} declares'
                f' "{getattr(declared, key)}"'
            )
    if spec.needs.gpu and device.partition(":")[0] == "cpu":
        raise ContractError(f'"{metric}" is of {device}, and {spec.name} measures GPUs')
    values = document.get("samples")
    if not device or not isinstance(values, list) or not values:
        raise ContractError(f'"{metric}" needs a device and at least one sample')
    may_be_0 = declared.judged_by == "limit"
    for value in values:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not (0 < value <= sys.float_info.max or (may_be_0 and value == 0)):
            expected = "a number of 0 or more" if may_be_0 else "a positive number"
            raise ContractError(
                f'"{metric}" of {device} has the sample {_quote(value)}: expected {expected}'
            )
    return Series(metric=metric, device=device, samples=np.array(values, dtype=np.float64))


def _text(document: dict[str, object], key: str) -> str:
    """Printable text, because it goes into tables, databases and the reasons of a scheduler."""
    value = document.get(key, "")
    if not isinstance(value, str) or not value.isprintable() or len(value) > LONGEST_TEXT:
        raise ContractError(
            f'"{key}" is {_quote(value)}: expected printable text of at most'
            f" {LONGEST_TEXT:,} characters"
        )
    return value


def _expect(document: dict[str, object], key: str, value: str) -> None:
    if document.get(key) != value:
        raise ContractError(f'"{key}" is {_quote(document.get(key))}, expected "{value}"')


def _quote(value: object) -> str:
    """The value that was found, cut to what a sentence can hold."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = f'"{value}"' if isinstance(value, str | int | float) else json.dumps(value)
    return escape_line(text if len(text) <= QUOTED else f"{text[:QUOTED]}…")


def _refuse_constant(name: str) -> float:
    raise ContractError(f"{name} is not JSON: expected finite numbers only")
