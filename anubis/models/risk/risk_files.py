"""Risk models as files: arrays and one JSON document in an .npz, with nothing to execute; and such
a model for the Selector: chances of an incident within some hours."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from anubis import __version__
from anubis.core.errors import RiskError
from anubis.core.history.status import Statuses, Times, Uptimes
from anubis.models.risk import risk_files
from anubis.models.risk.models import model_named
from anubis.models.risk.risk_model import RiskModel, forecast
from anubis.models.risk.score_summary import Score
from anubis.text.files import json_value, read_bytes, write_whole
from anubis.text.reading import read

SCHEMA = "anubis.risk/2"  # 1: without total up time and the time since each category
HEAD = "head"
LIBRARIES = ("numpy", "torch", "pycox", "torchtuples")  # what a trained network depends on
AGAIN = "train it again"

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ModelProvenance:
    """The data and the program a model was trained with, and how good it was on other data."""

    data: str  # digest of the uptimes
    uptimes: int
    incidents: int
    seed: int
    versions: Mapping[str, str]
    choice: str = ""  # reason for this model
    scores: tuple[Score, ...] = ()
    trained_at: float | None = None  # end of the data; None: an older file without it


@dataclass(frozen=True, kw_only=True)
class _Head:
    schema: str
    model: str
    covariates: tuple[str, ...]
    provenance: ModelProvenance


def provenance(
    uptimes: Uptimes, seed: int, choice: str = "", scores: tuple[Score, ...] = ()
) -> ModelProvenance:
    from importlib.metadata import version  # loads an email parser, and is wanted in training only

    return ModelProvenance(
        data=digest(uptimes),
        uptimes=len(uptimes),
        incidents=int(np.count_nonzero(uptimes.observed)),
        seed=seed,
        versions={"anubis": __version__, **{name: version(name) for name in LIBRARIES}},
        choice=choice,
        scores=tuple(dataclasses.replace(score, groups=()) for score in scores),
    )


def digest(uptimes: Uptimes) -> str:
    """Digest of everything that a model can learn from; the order of the rows is part of it."""
    statuses = uptimes.statuses
    names = json.dumps([statuses.covariates, statuses.nodes]).encode()
    checksum = hashlib.sha256(names)
    for column in (statuses.at, statuses.values, uptimes.duration_h, uptimes.observed):
        checksum.update(np.ascontiguousarray(column).tobytes())
    return checksum.hexdigest()


def save(model: RiskModel, origin: ModelProvenance, path: Path) -> None:
    """Write the whole file or nothing."""
    head = {
        "schema": SCHEMA,
        "model": model.name,
        "covariates": list(model.covariates),
        "provenance": dataclasses.asdict(origin),
    }
    text = json.dumps(head, sort_keys=True).encode()
    arrays: dict[str, Any] = {HEAD: np.frombuffer(text, dtype=np.uint8), **_arrays(model)}
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    write_whole(path, packed.getvalue(), RiskError, "the risk model")


def load(path: Path) -> tuple[RiskModel, ModelProvenance]:
    """Model and provenance of a file. Any file without a working model is refused."""
    where = f'risk model "{path}"'
    if not path.exists():
        raise RiskError(f"there is no {where}; anubis risk train makes one")
    try:
        arrays = _arrays_in(path, where)
        document = json_value(arrays.pop(HEAD).tobytes().decode())
    except (BadZipFile, ValueError, KeyError, EOFError, NotImplementedError, MemoryError):
        raise RiskError(f"{where}: not a complete model file; {AGAIN}, or fetch it again") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise RiskError(
            f'{where}: its schema is "{schema}", this Anubis reads "{SCHEMA}"; {AGAIN}:'
            " anubis risk train"
        )
    head = read(document, _Head, where, RiskError)
    try:
        kind = model_named(head.model)
    except RiskError as error:
        raise RiskError(f"{where}: {error}") from None
    try:
        model: RiskModel = _build(kind, arrays, "", covariates=head.covariates)
        forecast(model, _blank_status(head.covariates))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise RiskError(f"{where}: its arrays do not fit each other ({error}); {AGAIN}") from None
    return model, head.provenance


def _arrays_in(path: Path, where: str) -> dict[str, Array]:
    """Arrays of the file. Members must be stored unpacked, so that no file takes more memory than
    its size."""
    data = read_bytes(path, RiskError, f"the {where}")
    with ZipFile(io.BytesIO(data)) as archive:
        packed = sum(member.compress_type != ZIP_STORED for member in archive.infolist())
        if packed or sum(member.file_size for member in archive.infolist()) > len(data):
            raise ValueError("its members are packed")
        return {
            name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()
        }


def _array(data: bytes) -> Array:
    """Array of a member. Its size must match its header, because memory is allocated before it is
    read."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError("expected version 1.0 of its arrays")
    shape, _, kind = np.lib.format.read_array_header_1_0(stream)
    if math.prod(shape) * kind.itemsize != len(data) - stream.tell():
        raise ValueError("an array is shorter or longer than its head says")
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return array


def _blank_status(covariates: tuple[str, ...]) -> Statuses:
    """Status of one node without a history, to test that a model is complete."""
    values = np.zeros((1, len(covariates)))
    return Statuses(covariates=covariates, nodes=("",), at=np.zeros(1), values=values)


def _arrays(record: Any, prefix: str = "") -> dict[str, Array]:
    """Arrays of a record and of the records in it, by their path: `network.first`."""
    arrays: dict[str, Array] = {}
    for field in dataclasses.fields(record):
        value, place = getattr(record, field.name), f"{prefix}{field.name}"
        if isinstance(value, np.ndarray):
            arrays[place] = value
        elif dataclasses.is_dataclass(value):
            arrays |= _arrays(value, f"{place}.")
    return arrays


def _build(kind: Any, arrays: Mapping[str, Array], prefix: str, **fields: object) -> Any:
    """Record of this kind from its arrays, the inverse of `_arrays`."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name in fields:
            continue
        inner, place = hints[field.name], f"{prefix}{field.name}"
        fields[field.name] = (
            _build(inner, arrays, f"{place}.") if dataclasses.is_dataclass(inner) else arrays[place]
        )
    return kind(**fields)


@dataclass(frozen=True, kw_only=True)
class Trained:
    model: RiskModel
    origin: ModelProvenance
    assumed: str  # a sentence that decisions must include; empty if it looks at each node

    @property
    def covariates(self) -> tuple[str, ...]:
        return self.model.covariates

    def chances_within(self, statuses: Statuses, hours: float) -> Times:
        ahead = forecast(self.model, statuses, np.array([0.0, hours]))  # no further than is asked
        chances: Times = -np.expm1(-ahead.hazard[:, 1])
        return chances


def load_trained(path: Path) -> Trained:
    model, origin = risk_files.load(path)
    alike = f"{model.name}, the trained risk model, gives all nodes the same risk: {origin.choice}"
    return Trained(model=model, origin=origin, assumed="" if model.looks else alike)
