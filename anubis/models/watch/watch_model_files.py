"""Watch models as files: JSON, byte-stable, each array on one line, so that diffs read well.

Shipped and learned models have names: NAME.json under criteria/watching/.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anubis.core.arrays import Floats32
from anubis.core.errors import WatchError, did_you_mean
from anubis.core.watch.model import Denoiser, Lstm, Thresholds, WatchModel, WatchOrigin
from anubis.text import places
from anubis.text.files import json_value, read_text, write_whole
from anubis.text.reading import read

SCHEMA = "anubis.watch-weights/1"
SHIPPED = "synthetic"  # the default model
LARGEST = 16 << 20  # bytes; the shipped model is far smaller
AGAIN = "learn it again, or fetch it again"
LAYERS = ("encoder", "decoder")
OF_A_LAYER = ("inputs", "hidden", "bias")
BETWEEN = ("mean", "mean_bias", "output", "output_bias")


@dataclass(frozen=True, kw_only=True)
class _Weights:
    hidden: int  # units of each direction of both layers
    encoder: Mapping[str, tuple[float, ...]]
    mean: tuple[float, ...]
    mean_bias: tuple[float, ...]
    decoder: Mapping[str, tuple[float, ...]]
    output: tuple[float, ...]
    output_bias: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class _File:
    schema: str
    order: tuple[str, ...]
    origin: WatchOrigin
    thresholds: Mapping[str, Thresholds]
    denoisers: Mapping[str, _Weights]


def place(name: str) -> Path:
    """Path of the model of that name, or of the named file."""
    if not is_name(name):
        return Path(name)
    folders = [
        folder / places.WATCH_MODELS
        for folder in (places.criteria(), places.shipped_folder("criteria"))
    ]
    for folder in folders:
        if (folder / f"{name}.json").is_file():
            return folder / f"{name}.json"
    names = sorted({path.stem for folder in folders for path in folder.glob("*.json")})
    hint = did_you_mean(name, names)
    raise WatchError(f'there is no watch model "{name}" (a file would be ./{name}.json); {hint}')


def is_name(text: str) -> bool:
    return not text.endswith(".json") and "/" not in text


def own(name: str) -> Path:
    """Path for a model that is learned here."""
    return places.criteria() / places.WATCH_MODELS / f"{name}.json"


def save(model: WatchModel, path: Path) -> None:
    """Write the whole file or nothing."""
    write_whole(path, dump(model).encode(), WatchError, "the watch model")


def dump(model: WatchModel) -> str:
    document = {
        "schema": SCHEMA,
        "order": list(model.order),
        "origin": asdict(model.origin),
        "thresholds": {name: asdict(kept) for name, kept in sorted(model.thresholds.items())},
        "denoisers": {name: _weights(kept) for name, kept in sorted(model.denoisers.items())},
    }
    return "".join(_lines(document, 0)) + "\n"


def _weights(denoiser: Denoiser) -> dict[str, Any]:
    return {
        "hidden": denoiser.encoder.hidden.shape[1],
        **{
            layer: {part: _numbers(getattr(getattr(denoiser, layer), part)) for part in OF_A_LAYER}
            for layer in LAYERS
        },
        **{part: _numbers(getattr(denoiser, part)) for part in BETWEEN},
    }


def _numbers(array: Floats32) -> list[float]:
    """Numbers with the digits that single precision needs."""
    return [float(str(number)) for number in array.ravel()]


def _lines(value: object, depth: int) -> Iterator[str]:
    """JSON text with a table's entries on lines of their own and each list on one."""
    if not isinstance(value, Mapping) or not value:
        yield json.dumps(value, allow_nan=False)
        return
    yield "{\n"
    for number, (key, inner) in enumerate(value.items()):
        yield (",\n" if number else "") + " " * (depth + 1) + f"{json.dumps(key)}: "
        yield from _lines(inner, depth + 1)
    yield f"\n{' ' * depth}}}"


def load(path: Path) -> WatchModel:
    """Model of a file. Any file without a working model is refused."""
    where = f'watch model "{path}"'
    try:
        document = json_value(read_text(path, WatchError, f"the {where}", LARGEST))
    except ValueError as error:
        raise WatchError(f"{where}: not a complete JSON document ({error}); {AGAIN}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise WatchError(
            f'{where}: its schema is "{schema}", this Anubis reads "{SCHEMA}"; learn it again:'
            " anubis criteria learn-watching"
        )
    file = read(document, _File, where, WatchError)
    return WatchModel(
        denoisers={
            name: _denoiser(kept, f'{where}: "{name}"') for name, kept in file.denoisers.items()
        },
        thresholds=_thresholds(file, where),
        order=file.order,
        origin=file.origin,
    )


def _thresholds(file: _File, where: str) -> Mapping[str, Thresholds]:
    for name in file.order:
        if name not in file.thresholds or name not in file.denoisers:
            raise WatchError(
                f'{where}: "order" names "{name}", which has no weights or no threshold; {AGAIN}'
            )
    if not file.order or len(set(file.order)) != len(file.order):
        raise WatchError(f'{where}: "order" must name each metric once; {AGAIN}')
    return {
        name: Thresholds(nodes=kept.nodes, scores=kept.scores)
        for name, kept in file.thresholds.items()
    }


def _denoiser(weights: _Weights, where: str) -> Denoiser:
    units = weights.hidden
    try:
        return Denoiser(
            encoder=_lstm(weights.encoder, units),
            mean=_array(weights.mean, 2 * units, 1),
            mean_bias=_array(weights.mean_bias, 1),
            decoder=_lstm(weights.decoder, units),
            output=_array(weights.output, 2 * units, 1),
            output_bias=_array(weights.output_bias, 1),
        )
    except (ValueError, KeyError, OverflowError) as error:
        raise WatchError(f"{where}: its weights do not fit each other ({error}); {AGAIN}") from None


def _lstm(weights: Mapping[str, tuple[float, ...]], units: int) -> Lstm:
    if set(weights) != set(OF_A_LAYER):
        raise ValueError(f"expected {', '.join(OF_A_LAYER)}, found {', '.join(weights)}")
    return Lstm(
        inputs=_array(weights["inputs"], 2, 1, 4 * units),
        hidden=_array(weights["hidden"], 2, units, 4 * units),
        bias=_array(weights["bias"], 2, 4 * units),
    )


def _array(numbers: tuple[float, ...], *shape: int) -> Floats32:
    if min(shape) < 1 or int(np.prod(shape)) != len(numbers):
        raise ValueError(f"{len(numbers)} numbers, expected {' x '.join(map(str, shape))}")
    with np.errstate(over="ignore"):  # a number that is too large is refused as not finite
        return np.array(numbers, dtype=np.float32).reshape(shape)
