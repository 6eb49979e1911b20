"""The lines that verbs print of what operations return, and the document that a benchmark program
prints. All other lines are declared beside the functions that make them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, MinLen
from typing_extensions import TypedDict

from anubis.core.records import ParameterValue


@dataclass(frozen=True, kw_only=True)
class CheckLine:
    what: str
    state: Literal["good", "missing", "bad"]
    """missing costs a benchmark, bad costs all."""
    found: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class LackFields:
    what: str
    """way: nothing of ours could be run there."""
    found: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class NodeCheckLine:
    node: str
    state: Literal["good", "bad"]
    found: str
    """Its Python, Ray and address; "" if nothing answered."""
    lacks: list[LackFields]
    """Reasons why no campaign can run there."""


@dataclass(frozen=True, kw_only=True)
class TuningLine:
    benchmark: str
    version: str
    measured_with: Mapping[str, ParameterValue]
    metric: str
    sku: str
    device: str
    series: int
    parameters: Mapping[str, ParameterValue]
    """The parameters of a suite for so few steps."""
    unsettable: str
    """Why a suite cannot ask for it."""


@dataclass(frozen=True, kw_only=True)
class ReceiptLine:
    id: str
    cluster: str
    is_new: bool
    """False: an event of this id was reported before."""


# --- what benchmark programs print ---------------------------------------------------------


class SeriesFields(TypedDict):
    metric: str
    """One that `--describe` declares, or such a name with a qualifier: `tflops:bf16`."""
    device: str
    """`cpu`, `cuda:0`, `node`; each metric once for each device."""
    samples: Annotated[Sequence[Annotated[float, Ge(0)]], MinLen(1)]
    """All of them, warm-up dropped; above 0, or 0 where a limit judges the metric."""


class ResultDocument(TypedDict):
    benchmark: str
    """The name, as `--describe` has it."""
    version: str
    parameters: NotRequired[Mapping[str, ParameterValue]]
    """Values as they were ordered; the others as `--describe` has them."""
    environment: NotRequired[Mapping[str, object]]
    """Facts that explain the numbers; `failed_devices` and `silent_devices` name devices without
    any."""
    started_at: NotRequired[float]
    duration_s: NotRequired[float]
    series: NotRequired[Sequence[SeriesFields]]
    """Needed unless it is not applicable."""
    not_applicable: NotRequired[str | None]
    """Why it cannot run here; the program then exits with 3."""
