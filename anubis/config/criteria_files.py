"""Criteria as files, byte-stable, to be committed and reviewed like a lock file.

A folder of criteria has a folder for each suite, which has a file for each SKU.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from anubis.core.errors import CriteriaError
from anubis.core.records import (
    CriteriaSet,
    Criterion,
    CriterionKey,
    Direction,
    KnownScatter,
    NodeKind,
    ParameterValue,
    Provenance,
    SlowSteps,
    Workload,
)
from anubis.text import places
from anubis.text.files import json_value, read_text, write_whole
from anubis.text.reading import read

SCHEMA = "anubis.criteria/3"


@dataclass(frozen=True, kw_only=True)
class _Entry:
    benchmark: str
    version: str
    parameters: Mapping[str, ParameterValue]
    metric: str
    device_kind: str
    unit: str
    direction: Direction
    alpha: float
    proposed_alpha: float | None = None
    typical_alpha: float | None = None
    siblings_alpha: float | None = None
    doubt_alpha: float | None = None
    shows: float | None = None
    stalls: float | None = None
    repeats: int | None = None
    tail: float
    units: int
    healthy: int
    nodes: int
    repeatability: float | None
    refusal: str
    from_repeats: bool = False
    scatter: KnownScatter | None = None
    typical_scatter: KnownScatter | None = None
    earlier: int = 0
    slow_steps: SlowSteps | None = None
    reference: tuple[float, ...]


OF_A_KEY = ("benchmark", "version", "parameters", "metric", "device_kind")
AS_THEY_ARE = [  # in the file as in a criterion
    field.name for field in fields(_Entry) if field.name not in (*OF_A_KEY, "reference")
]
OF_PROVENANCE = ("suite", "anubis", "created_at", "digest", "versions")


@dataclass(frozen=True, kw_only=True)
class _File:
    schema: str
    sku: str
    suite: str
    anubis: str
    created_at: str
    digest: str
    versions: Mapping[str, str] = field(default_factory=dict)
    node_kind: NodeKind | None = None
    criteria: tuple[_Entry, ...]


def place(criteria: CriteriaSet) -> Path:
    """Path of the file in a folder of criteria: `quick/h100-sxm-8x.json`."""
    return Path(criteria.provenance.suite) / file_name(criteria)


def file_name(criteria: CriteriaSet) -> str:
    """A name that every file system accepts and no other SKU has: `h100-sxm-8x.json`."""
    plain = re.sub(r"[^a-z0-9.+-]+", "-", criteria.sku.lower()).strip("-.")
    if plain != criteria.sku:
        plain += "-" + hashlib.sha256(criteria.sku.encode()).hexdigest()[:6]
    return f"{plain.lstrip('-')}.json"


def write_learned(learned: Sequence[CriteriaSet], folder: Path) -> list[Path]:
    """Write each to its file; remove what was learned of these nodes under other kinds than now."""
    paths = [folder / place(criteria) for criteria in learned]
    for criteria, path in zip(learned, paths, strict=True):
        write(criteria, path)
    for suite in {path.parent for path in paths}:
        for path in {*suite.glob("*.json")} - {*paths}:
            if any(_is_parted_otherwise(path, criteria) for criteria in learned):
                path.unlink(missing_ok=True)
    return paths


def _is_parted_otherwise(path: Path, learned: CriteriaSet) -> bool:
    with suppress(CriteriaError):  # an unreadable file has no criteria
        old = _load(path)
        return old.nodes_sku == learned.nodes_sku and bool(old.node_kind or learned.node_kind)
    return False


def write(criteria: CriteriaSet, path: Path) -> None:
    """Write the whole file or nothing: a full disk must not cut off the existing one."""
    write_whole(path, dump(criteria).encode(), CriteriaError, "criteria")


def dump(criteria: CriteriaSet) -> str:
    """Criteria as text: one after the other, each with its samples on one line, for readable
    diffs."""
    head = {
        "schema": SCHEMA,
        "sku": criteria.sku,
        **_select_fields(criteria.provenance, OF_PROVENANCE),
    }
    if criteria.node_kind:
        head["node_kind"] = asdict(criteria.node_kind)
    lines = [f' "{key}": {json.dumps(value)},' for key, value in head.items()]
    entries = ",\n".join(_dump_entry(criterion) for criterion in criteria.criteria)
    return "{\n" + "\n".join(lines) + f'\n "criteria": [\n{entries}\n ]\n}}\n'


def _dump_entry(criterion: Criterion) -> str:
    workload = criterion.key.workload
    nested = _select_fields(criterion, ("scatter", "typical_scatter", "slow_steps"))
    values = {
        "benchmark": workload.benchmark,
        "version": workload.version,
        "parameters": workload.arguments,
        "metric": criterion.key.metric,
        "device_kind": criterion.key.device_kind,
        **_select_fields(criterion, AS_THEY_ARE),
        **{name: value and asdict(value) for name, value in nested.items()},
        "reference": [float(value) for value in criterion.reference],
    }
    lines = [f'   "{key}": {json.dumps(value, sort_keys=True)}' for key, value in values.items()]
    return "  {\n" + ",\n".join(lines) + "\n  }"


def load(path: Path, suite: str = "") -> tuple[CriteriaSet, ...]:
    """Load the criteria in a file or a folder: those of one suite, of `suite`, or of all."""
    if not path.is_dir():
        return _load_suite(path, [path])
    by_suite = suites(path)
    if suite in by_suite:
        return load(path / suite)
    if files := sorted(path.glob("*.json")):
        return _load_suite(path, files)
    if not by_suite:
        raise CriteriaError(f'no criteria (*.json) in folder "{path}"')
    if suite and len(by_suite) > 1:
        raise CriteriaError(
            f'criteria "{path}" have none for suite "{suite}", only for {", ".join(by_suite)}'
        )
    return tuple(chain.from_iterable(load(path / name) for name in by_suite))


def suites(path: Path) -> tuple[str, ...]:
    """Suites with criteria in a folder, each in a folder of its own."""
    return tuple(
        sorted({file.parent.name for file in path.glob("*/*.json")} - {places.WATCH_MODELS})
    )


def _load_suite(path: Path, files: Sequence[Path]) -> tuple[CriteriaSet, ...]:
    sets = tuple(_load(file) for file in files)
    keys = Counter(criterion.key for criteria_set in sets for criterion in criteria_set.criteria)
    for key, times in keys.items():
        if times > 1:
            raise CriteriaError(
                f'criteria "{path}": {key.workload} {key.metric} of {key.sku} is listed {times} '
                "times: keep the one you mean and remove the others"
            )
    return sets


def _load(path: Path) -> CriteriaSet:
    where = f'criteria "{path}"'
    try:
        document = json_value(read_text(path, CriteriaError, where))
    except ValueError as error:
        raise CriteriaError(
            f"{where}: not a complete JSON document ({error}); fetch it again, or learn it again"
        ) from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise CriteriaError(
            f'{where}: its schema is "{schema}", this Anubis reads "{SCHEMA}"; '
            "learn them again, or use the Anubis that wrote them"
        )
    file = read(document, _File, where, CriteriaError)
    return CriteriaSet(
        sku=file.sku,
        criteria=tuple(_criterion(entry, file.sku, where) for entry in file.criteria),
        provenance=Provenance(**_select_fields(file, OF_PROVENANCE)),
        node_kind=file.node_kind,
    )


def _check_slow_steps(slow: SlowSteps, where: str) -> None:
    of_chance = 0 < slow.both <= slow.once < 1
    of_shares = all(
        share.times > 1
        and 0 <= share.share <= 1
        and share.steps >= 0
        and 0 <= share.correlation < 1
        for share in slow.shares
    )
    of_places = len(slow.usual) == len(slow.scatter) > 0 and min(slow.scatter) >= 0
    of_cost = slow.lost >= 0 and 0 <= slow.least < 1
    if not (of_chance and of_shares and of_places and of_cost):
        raise CriteriaError(
            f"{where}: slow_steps needs as many numbers in usual as in scatter, shares from 0 to 1 "
            "of steps that take more than 1 times as long, and chances with 0 < both <= once < 1"
        )


def _criterion(entry: _Entry, sku: str, where: str) -> Criterion:
    reference = np.array(entry.reference)
    if reference.size == 0 or not np.all(np.isfinite(reference)) or reference.min() <= 0:
        raise CriteriaError(
            f"{where}: the reference of {entry.benchmark} {entry.metric} "
            "must be a list of positive numbers"
        )
    for name in ("alpha", "typical_alpha", "siblings_alpha", "doubt_alpha", "tail"):
        share = getattr(entry, name)
        if share is not None and not (0 <= share < 1 or (share == 1 and "tail" in name)):
            raise CriteriaError(
                f"{where}: {name} {share:g} of {entry.benchmark} {entry.metric}: "
                "expected a share between 0 and 1"
            )
    for scatter in (entry.scatter, entry.typical_scatter):
        if scatter and not (0 <= scatter.spread < math.inf and 0 < scatter.degrees < math.inf):
            raise CriteriaError(
                f"{where}: the scatter of {entry.benchmark} {entry.metric} needs a spread from 0 on"
                " and degrees above 0"
            )
    if entry.slow_steps:
        _check_slow_steps(entry.slow_steps, where)
    reference.flags.writeable = False
    return Criterion(
        key=CriterionKey(
            sku=sku,
            workload=Workload.make(entry.benchmark, entry.version, entry.parameters),
            metric=entry.metric,
            device_kind=entry.device_kind,
        ),
        reference=reference,
        **_select_fields(entry, AS_THEY_ARE),
    )


def _select_fields(record: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def read_in_use(suite: str) -> tuple[CriteriaSet, ...]:
    """Criteria used unless others are named: for each sku the first found among those learned here,
    those in the working folder, and those shipped."""
    of_sku: dict[str, CriteriaSet] = {}
    for folder in (places.criteria(), Path("criteria"), places.shipped_folder("criteria")):
        if suite in suites(folder):
            for criteria in load(folder, suite):
                of_sku.setdefault(criteria.sku, criteria)
    return tuple(of_sku.values())
