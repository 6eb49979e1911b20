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


class JobShown(TypedDict):
    id: str
    owner: str
    """Empty: its orchestrator does not show whose it is, or the job was told."""
    since: float | None


class NodeLine(TypedDict):
    node: str
    cluster: str
    standing: str
    """What the first line of the terminal counts it as."""
    sku: str
    state: str | None
    """In the orchestrator's own words. null: it has none, or its orchestrator lacks it."""
    is_up: bool | None
    jobs: Sequence[JobShown]
    reason: str
    """Why it is kept from jobs; empty: it is not."""
    reason_by: str
    reason_at: float | None
    by_anubis: bool
    """Whether Anubis keeps it from jobs."""
    held_by: str
    """Which campaign measures there now."""
    held_since: float | None
    verdict: Judgement | None
    """The last one. null: there is none."""
    code: str
    verdict_at: float | None
    campaign: str
    judgement: Judgement
    """As a gate has it that runs nothing."""
    unfit: str
    """Why the history has it out of service; empty: it has not."""
    maintenance: str
    """Until when it is under maintenance, and why; empty: it is not."""
    owes: str
    """Which benchmarks it left unanswered, and since when; empty: none."""
    unproven: str
    """What was told of it (an incident, an upgrade) since it passed anything; empty: nothing."""
    doubt: str
    """Why its passes do not count while a clock is in doubt; empty: they do, or it has none."""


class ReceiptLine(TypedDict):
    id: str
    cluster: str
    is_new: bool
    """False: an event of this id was told before."""


class LifeLine(TypedDict):
    node: str
    state: str
    """new, in-service, suspect, draining, testing, out, repairing, spare, lost or retired."""
    sku: str
    jobs: Sequence[str]
    """That run there, by id."""
    cordon: str
    """The reason that its orchestrator shows while no job may begin there."""
    why: str
    """Why it stands there."""
    ticket: str


class ActionLine(TypedDict):
    cluster: NotRequired[str]
    """In the history of a node."""
    id: int
    at: float
    """When it was asked for, in seconds since the epoch."""
    action: str
    """cordon, release, prove, swap, open-ticket, close-ticket, end-suspicion or notify."""
    subjects: Sequence[str]
    """The nodes that it is about, or the scope of a breaker."""
    stage: str
    """proposed, kept, sent, done, failed or withdrawn."""
    changed_at: float
    campaign: str
    """That carries a test out."""
    sentence: str
    note: str
    """What went wrong, or what came of it."""
    ordered_by: str
    """Who had it done: a person, or the policy in somebody's turn; empty: nobody so far."""


class KeepingLine(TypedDict):
    cluster: str
    nodes: int
    states: Mapping[str, int]
    """How many nodes stand where."""
    open_breakers: Sequence[str]
    """Scopes in which no more nodes are taken out until a person closes them."""
    accepted: Mapping[str, int]
    """By scope: how many nodes a person accepted to be out when the breaker was closed."""
    doubt: str
    """Why nothing is concluded from age: the wall clock cannot be right; empty: it can."""


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


class TicketLine(TypedDict):
    """A node that is out of service or to be taken out, or was."""

    cluster: str
    node: str
    ticket: str
    """Empty: nobody opened one."""
    state: str
    """Of the node now, as the keeper sees it."""
    code: str
    reason: str
    campaign: str
    """That found it."""
    devices: Sequence[str]
    """That fell short by themselves."""
    opened_at: float | None
    proposed: bool
    """Whether a person still has to have it opened."""
    action: str | None
    """What to do, where the policy says it."""
    awaits: str | None
    """What has to come first: jobs (to end), repair, end-of-repair, proof, end-of-incident, test
    (that it passes since its incident), verdict (of a test that runs) or answer (of the node).
    null: it is closed."""
    closed_at: float | None
    closed_by: str
    """The campaign that proved the repair."""


class SpareFields(TypedDict):
    node: str
    since: float
    """When the test began that proved it, or when it was chosen."""
    kept_from_jobs: bool


class SparesLine(TypedDict):
    cluster: str
    sku: str
    target: int
    """How many the policy wants ready."""
    ready: Sequence[SpareFields]
    unproven: Sequence[SpareFields]
    next: Sequence[str]
    """Which nodes come next, the least at risk first."""
    free: int
    """How many nodes could become spares."""
    note: str
    """Why none can; empty: they can."""


class ChoreLine(TypedDict):
    cluster: str
    chore: Literal["sweep", "criteria", "risk"]
    due: float | None
    """When it was due last; null: it was never done."""
    began: float | None
    ended: float | None
    """null: it runs, or whoever did it died and the next turn takes it up."""
    end: Literal["done", "unchanged", "proposed", "failed"] | None
    """unchanged: nothing was worth doing; proposed: a person decides."""
    sentence: str
    campaign: str
    """That a sweep is."""
    proposal: str
    """The folder of criteria or the file of a model that was proposed."""
    last_success: float | None
    """When it last ended without failing."""
    next_at: float | None
    """When it is due next; null: the policy states no times."""


class StandingLine(TypedDict):
    node: str
    cluster: str
    judgement: Judgement
    """As a gate has it that runs nothing."""
    why: str
    """It is out of service, owes an answer, or its passes do not count while a clock is in doubt;
    empty: none of these."""
    holder: str | None
    """What has it now: a campaign."""
    held_since: float | None
    last_verdict: Judgement | None
    last_code: str | None
    last_campaign: str | None
    last_at: float | None
    """Seconds since 1970."""
    passed: Mapping[str, float]
    """When it last passed each benchmark, of the passes that count."""
    sku: str
    rack: str
    cage: str


class CampaignStatusLine(TypedDict):
    campaign: str
    cluster: str
    kind: str
    suite: str
    nodes: int
    created_at: float
    """Seconds since 1970."""
    finished_at: float | None
    """null: it is not over."""
    judgement: Judgement | None
    """Of the whole; null: it is not over."""
    executions: Mapping[str, int]
    """How many ended how: measured, failed, timed-out, ..."""


class TokenLine(TypedDict):
    name: str
    scopes: Sequence[str]
    """What it allows: read, report, operate, act."""
    made_at: float
    made_by: str
    revoked_at: float | None
    """null: it was not taken back."""
    expires_at: float | None
    """When it ends by itself; null: never."""


class DamageLine(TypedDict):
    sentence: str


class HistoryLine(TypedDict):
    sound: bool
    campaigns: int
    rows: int
    damages: int


class TrackRecordLine(TypedDict):
    benchmark: str
    nodes: Sequence[str]
    """On which it found a defect."""
    alone: Sequence[str]
    """On which only it found one."""
    defects: int
    tried: int
    """Defects on whose node it was measured at that time."""
    coverage: float | None
    """Its share of all known defects."""
    repeatability: float | None
    lowest: float | None
    lowest_metric: str | None


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
