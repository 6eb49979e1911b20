"""The fields of each line of JSON that a verb prints, declared once. JSON Schemas, the page
docs/reference/json.md and tests of printed lines are made from them.

What `asdict` makes of a record has the record's own fields; what a report puts together has a class
here. Every line has `type` and `schema` (`wording.json_line`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired

from annotated_types import Ge, MinLen
from typing_extensions import TypedDict

from anubis.core.records import (
    Judgement,
    ParameterValue,
)

# --- a campaign ----------------------------------------------------------------------------


# --- decisions -----------------------------------------------------------------------------


# --- a fabric ------------------------------------------------------------------------------


class SwitchLine(TypedDict):
    tier: int
    plane: int


class LinkLine(TypedDict):
    uplink: bool


class ShortageLine(TypedDict):
    degraded: bool


class CounterLine(TypedDict):
    switch: str | None
    """null: the fabric has no such port."""
    link: Sequence[str] | None
    nic: str | None
    over_s: float | None
    """In how many seconds it rose."""
    fatal: bool


class TopologyLine(TypedDict):
    judgement: Judgement
    headline: str
    switches: int
    tiers: int
    planes: int
    nics: int
    nodes: int
    rails: Sequence[str]
    source: str
    """Where it was read."""
    as_of: float | None
    """When it was so, in seconds since 1970."""
    routes: str
    """Which forwarding tables count; empty: none."""
    ordered_pairs: Mapping[str, int]
    """Pairs of nodes by their distance in hops."""
    unplaced: Sequence[str]
    """Asked for, and not in the fabric."""
    not_asked_for: int
    missing_uplinks: int
    degraded: Sequence[str]


# --- criteria ------------------------------------------------------------------------------


class KeyFields(TypedDict):
    sku: str
    benchmark: str
    version: str
    parameters: Mapping[str, ParameterValue]
    metric: str
    device_kind: str


class CriterionLine(KeyFields):
    suite: str
    unit: str
    direction: Literal["higher", "lower", "either"]
    median: float
    """Of the reference."""
    repeatability: float | None
    alpha: float
    proposed_alpha: float | None
    """The metric's own."""
    alpha_applied: Literal["own", "policy"]
    shows: float | None
    """From which loss of all samples on it shows on nine nodes of ten."""
    stalls: float | None
    """From which share of samples half as good on it shows."""
    repeats_to_alpha: int | None
    """How many times as much would have to be measured for `alpha` to carry; 0: in vain."""
    tail: float | None
    typical_alpha: float | None
    fine_tail: float | None
    fine_alpha: float | None
    units: int
    healthy: int
    set_aside: int
    nodes: int
    from_repeats: bool
    """Learned from the repeats of one machine."""
    refusal: str | None
    """Why it is not used."""


class CriterionChangeLine(KeyFields):
    change: str
    moved: Mapping[str, Sequence[str | float | None]]
    """What moved, from what to what."""
    reference_similarity: float | None
    """null: the references are the same."""


class NodeChangeLine(TypedDict):
    node: str
    before: Judgement
    after: Judgement
    code: str
    reason: str


class VerdictChangeLine(TypedDict):
    participants: Sequence[str]
    device: str | None
    benchmark: str
    metric: str | None
    before: Judgement
    after: Judgement
    reason: str


class ChangesLine(TypedDict):
    criteria_moved: int
    campaign: str | None
    """Whose verdicts were compared."""
    nodes_changed: int
    verdicts_changed: int


class TuningLine(TypedDict):
    benchmark: str
    version: str
    measured_with: Mapping[str, ParameterValue]
    metric: str
    sku: str
    device: str
    series: int
    parameters: Mapping[str, ParameterValue]
    """What a suite asks for to get so few steps."""
    unsettable: str
    """Why a suite cannot ask for it."""


# --- risk ----------------------------------------------------------------------------------


class LeftOutLine(TypedDict):
    reason: str


class ChoiceLine(TypedDict):
    cluster: str


class Chance(TypedDict):
    hours: float
    p: float


class ChanceCurve(TypedDict):
    hours: Sequence[float]
    p: Sequence[float]


class RiskLine(TypedDict):
    cluster: str
    node: str
    model: str
    within: Sequence[Chance]
    """The chance of an incident within so many hours."""
    expected_h: float | None
    """null: never within what is known."""
    median_h: float | None
    curve: ChanceCurve
    status: Mapping[str, float | None]
    """What the model knows of the node."""
    traits: Mapping[str, str | float]
    """What was told of the node."""


class RunLine(TypedDict):
    figures: Mapping[str, float | None]
    """Hours are per node; null: a time between incidents that never came."""


class PolicyLine(TypedDict):
    policy: str
    catch: float
    p0: float | Literal["job"]
    figures: Mapping[str, Sequence[float | None]]
    """Of each, the mean over seeds and its margin."""


class SimulationLine(TypedDict):
    name: str
    nodes: int
    days: float
    seeds: int
    risk: str
    known_defects: int
    knowledge: str
    findings: Sequence[str]


# --- watching ------------------------------------------------------------------------------


# --- the history ---------------------------------------------------------------------------


class ReceiptLine(TypedDict):
    id: str
    cluster: str
    is_new: bool
    """False: an event of this id was told before."""


class CarrierFields(TypedDict):
    about: str
    """up, incidents, validated, age, rack, cage, sku, or a category of incidents."""
    status: Mapping[str, float]
    """What the model knows of the node about it."""
    p_without: float
    """The chance if this were as it is for the middle one of all nodes."""


class NodeRiskLine(TypedDict):
    cluster: str
    node: str
    hours: float
    p: float
    """The chance of an incident within so many hours."""
    model: str
    trained_at: float | None
    """Up to when the data goes that it was trained on; null: no model, or one that does not say."""
    carried_by: Sequence[CarrierFields]
    """What carries the chance, most first; none where the model gives all nodes the same."""


class DamageLine(TypedDict):
    sentence: str


class HistoryLine(TypedDict):
    sound: bool
    campaigns: int
    rows: int
    damages: int


class IntakeFields(TypedDict):
    records: int
    cluster: str
    left_out: Mapping[str, int]
    """Why, and of how many lines."""
    taken: Mapping[str, int]
    """What was taken with a remark."""


class IncidentsLine(TypedDict):
    incidents: int
    nodes: int
    """That had one."""
    watched: int
    since: float
    until: float
    categories: Mapping[str, int]
    ignored: Sequence[str]
    """Nodes that the cluster does not have: nothing that a monitor tells of them is kept."""


class NodesLine(TypedDict):
    nodes: int
    told: Mapping[str, int]
    """Of how many nodes each trait was told."""
    untold: Sequence[str]
    """Known to the history and not in the file."""


class CampaignLine(TypedDict):
    campaign: str
    cluster: str
    nodes: int


class CheckLine(TypedDict):
    what: str
    state: Literal["good", "missing", "bad"]
    """missing costs a benchmark, bad costs all."""
    found: str
    advice: str


class LackFields(TypedDict):
    what: str
    """way: nothing of ours could be run there."""
    found: str
    advice: str


class NodeCheckLine(TypedDict):
    node: str
    state: Literal["good", "bad"]
    found: str
    """Its Python, Ray and address; "" where nothing answered."""
    lacks: list[LackFields]
    """What stands in the way of a campaign there."""


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
    """As `--describe` names it."""
    version: str
    parameters: NotRequired[Mapping[str, ParameterValue]]
    """As they were ordered; the others as `--describe` has them."""
    environment: NotRequired[Mapping[str, object]]
    """What explains the numbers; `failed_devices` and `silent_devices` name what gave none."""
    started_at: NotRequired[float]
    duration_s: NotRequired[float]
    series: NotRequired[Sequence[SeriesFields]]
    """Needed unless it is not applicable."""
    not_applicable: NotRequired[str | None]
    """Why it cannot run here; the program then exits with 3."""


# --- all of them ---------------------------------------------------------------------------


# --- running jobs --------------------------------------------------------------------------
