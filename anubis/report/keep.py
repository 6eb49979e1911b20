"""The states of the nodes of a kept fleet, what is proposed or done about them, and the periodic
tasks of the keeper: how each ended, and when it is due next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.keep.breaker import Breaker
from anubis.core.keep.commands import (
    OPEN,
    CloseTicket,
    Cordon,
    DoPeriodicTask,
    EndSuspicion,
    LifeAction,
    LifeCommand,
    Notify,
    OpenTicket,
    Prove,
    Release,
    Requeue,
    Stage,
    Swap,
    TryRepair,
    subjects,
)
from anubis.core.keep.life import Life, Proof, State
from anubis.core.keep.objections import name_debts
from anubis.core.keep.periodic_tasks import PeriodicTaskEnd, PeriodicTaskRecord, PeriodicTaskState
from anubis.core.keep.suspicions import nodes_suspected
from anubis.core.text import escape_line
from anubis.report.json import json_line, may_be_absent
from anubis.report.maintenance import sentence as sentence_of_window
from anubis.report.screen_tables import add_row, table
from anubis.text.hostlist import compress
from anubis.text.wording import kinds, moment, quantity

if TYPE_CHECKING:
    from rich.console import Console


QUIET = (State.IN_SERVICE, State.SPARE)  # states of a node that needs no attention
PROOFS = {
    Proof.FULL: "all that a new node has to pass",
    Proof.LIGHT: "a light check after a job",
    Proof.CHECK: "all of the light check, as a job failed there",
}

NO_NODE = (
    "none is known, so none is kept (state the orchestrator in the cluster's file, or report nodes:"
    " anubis tell node-added NODES)"
)


def headline(
    cluster: str, lives: Mapping[str, Life], breakers: Mapping[str, Breaker], proposals: int
) -> str:
    """State first whether a person is needed, then how many nodes are in each state."""
    states = Counter(life.state for life in lives.values())
    counts = [f"{states[state]} {state.value}" for state in State if states[state]]
    scopes = ", ".join(scope for scope, breaker in breakers.items() if breaker.is_open)
    parts = [f"{quantity(len(lives), 'node')} of cluster {cluster}: {', '.join(counts) or NO_NODE}"]
    if scopes:
        how = " ".join(f"--close {shlex.quote(s)}" for s, b in breakers.items() if b.is_open)
        parts.insert(
            0,
            f"the breaker is open ({scopes}): no more nodes are taken out until an operator"
            f" closes it"
            f" (anubis keep {how})",
        )
    if accepted := [f"{b.accepted} of {scope}" for scope, b in breakers.items() if b.accepted]:
        parts.append(f"accepted to be out when a breaker was closed: {', '.join(accepted)}")
    if proposals:
        parts.append(f"{quantity(proposals, 'proposal')} to look at (anubis history actions)")
    return "; ".join(parts)


def describe_turn(at: float, by: str) -> str:
    return f"last turn {moment(at)}" + (f" by {by}" if by else "")


def show_lives(lives: Mapping[str, Life], console: Console) -> None:
    """Print the nodes that are not simply in service."""
    columns = table("node", "state", "why", names=lives)
    for life in lives.values():
        if life.state not in QUIET:
            add_row(columns, life.node, life.state.value, state_reason(life))
    if columns.row_count:
        console.print(columns)


def state_reason(life: Life) -> str:
    """Return the reason for the state of a node."""
    if life.maintained is not None:
        return sentence_of_window(life.maintained, life.maintained.begin)
    if life.defect is not None:
        return f"{life.defect.code}: {life.defect.reason}"
    if life.incidents:
        return life.out_reason[1]
    if life.is_cordoned_by_others:
        return f"kept from jobs by a person: {life.cordon}"
    if life.owed:
        return f"to be tested: {name_debts(life.owed)}"
    return f"kept for others: {life.kept_for}" if life.kept_for else ""


def show_actions(actions: Sequence[LifeAction], console: Console) -> None:
    columns = table("since", "stage", "action", figures=("id",))
    for action in actions:
        text = sentence(action.command)
        if action.note:
            text = f"{text} ({action.note})"
        add_row(columns, moment(action.at), action.stage.value, text, str(action.id))
    if columns.row_count:
        console.print(columns)


def sentence(command: LifeCommand) -> str:
    match command:
        case Cordon(node=node, code=code):
            return f"keep {node} from jobs ({code})"
        case Release(node=node):
            return f"give {node} back to jobs"
        case Requeue(node=node, job=job):
            return f"put job {job} back into the queue, without {node}"
        case TryRepair(node=node, code=code, words=words):
            return f"repair {node} ({code}): {escape_line(shlex.join(words))}"
        case Prove(proof=Proof.TOGETHER, about=job, owed=owed):
            return f"locate the fault behind the trouble of job {job} among {compress(list(owed))}"
        case Prove(proof=proof, owed=owed):
            return f"test {compress(list(owed))}: {PROOFS.get(proof) or _aim(command)}"
        case Swap(node=node, spare=spare):
            return f"bring {spare} into service for {node}"
        case OpenTicket(node=node, code=code):
            return f"ticket for {node} ({code})"
        case CloseTicket(node=node, campaign=campaign):
            return f"the repair of {node} is proven by campaign {campaign}"
        case EndSuspicion(node=node, outcome=outcome, reason=reason):
            return f"the suspicion of {node} is {outcome.value}: {reason}"
        case DoPeriodicTask(task=task, reason=text):
            return f"{task.value}: {text}"
        case Notify(subject=subject, sentence=text):
            return f"tell people of {subject}: {text}"


def _aim(test: Prove) -> str:
    """Return what a test about a category of faults is for. Nodes with suspicions of different
    mixes are tested for one category together."""
    suspected = nodes_suspected(test)
    mixes = {kinds(mix) for mix in suspected.mixes.values()} if suspected else set()
    mixes -= {"", kinds({test.about: 1.0})}
    if len(mixes) == 1:
        return f"what is suspected there ({mixes.pop()})"
    return f"that nothing of category {test.about} is wrong"


@dataclass(frozen=True, kw_only=True)
class LifeLine:
    node: str
    state: str
    """new, in-service, suspect, draining, testing, out, repairing, spare, lost or retired."""
    sku: str
    jobs: Sequence[str]
    """Ids of the jobs that run there."""
    cordon: str
    """The reason that its orchestrator shows while no job may begin there."""
    why: str
    """The reason for its state."""
    ticket: str


@dataclass(frozen=True, kw_only=True)
class ActionLine:
    cluster: str = may_be_absent()
    """Present in the history of a node."""
    id: int
    at: float
    """When it was asked for, in seconds since the epoch."""
    action: str
    """cordon, release, requeue, repair, prove, swap, open-ticket, close-ticket, end-suspicion,
    periodic-task or notify."""
    subjects: Sequence[str]
    """The nodes that it is about, or the scope of a breaker."""
    stage: str
    """proposed, kept, sent, done, failed or withdrawn."""
    changed_at: float
    campaign: str
    """The campaign that carries a test out."""
    sentence: str
    note: str
    """What went wrong, or what came of it."""
    ordered_by: str
    """The person, or the policy with the process whose turn it was, that ordered it; empty: not
    ordered so far."""


@dataclass(frozen=True, kw_only=True)
class KeepingLine:
    cluster: str
    nodes: int
    states: Mapping[str, int]
    """Number of nodes in each state."""
    open_breakers: Sequence[str]
    """Scopes in which no more nodes are taken out until a person closes them."""
    accepted: Mapping[str, int]
    """Number of nodes for each scope that a person accepted to be out when the breaker was
    closed."""
    doubt: str
    """Why nothing is concluded from age: the wall clock cannot be right; empty: it can."""


def life_fields(life: Life) -> LifeLine:
    return LifeLine(
        node=life.node,
        state=life.state.value,
        sku=life.sku,
        jobs=sorted(life.jobs),
        cordon=life.cordon,
        why=state_reason(life),
        ticket=life.ticket,
    )


def action_fields(action: LifeAction) -> ActionLine:
    return ActionLine(
        id=action.id,
        at=action.at,
        action=action.command.kind,
        subjects=list(subjects(action.command)),
        stage=action.stage.value,
        changed_at=action.changed_at,
        campaign=action.campaign,
        sentence=sentence(action.command),
        note=action.note,
        ordered_by=action.ordered_by,
    )


def keeping_fields(
    cluster: str, lives: Mapping[str, Life], breakers: Mapping[str, Breaker], doubt: str = ""
) -> KeepingLine:
    states = Counter(life.state.value for life in lives.values())
    return KeepingLine(
        cluster=cluster,
        nodes=len(lives),
        states={state.value: states[state.value] for state in State},
        open_breakers=[scope for scope, breaker in breakers.items() if breaker.is_open],
        accepted={s: breaker.accepted for s, breaker in breakers.items() if breaker.accepted},
        doubt=doubt,
    )


def action_line(action: LifeAction) -> str:
    return json_line("action", action_fields(action))


def waits_for_a_person(action: LifeAction) -> bool:
    return action.stage is Stage.PROPOSED


def is_open(action: LifeAction) -> bool:
    return action.stage in OPEN


def periodic_task_sentences(standings: Iterable[PeriodicTaskState], now: float) -> Iterator[str]:
    for standing in standings:
        happened = _describe_last(standing.last, now) if standing.last else "never done"
        ahead = f"; next in {_roughly(standing.next_at - now)}" if standing.next_at else ""
        yield f"{standing.task}: {happened}{ahead}"


def _describe_last(last: PeriodicTaskRecord, now: float) -> str:
    if last.ended is None:
        again = f", attempt {last.tries}" if last.tries > 1 else ""
        return f"runs since {_roughly(now - last.began)}{again}"
    ago = f"{_roughly(now - last.ended)} ago"
    match last.end:
        case PeriodicTaskEnd.FAILED:
            return f"failed {ago}: {last.sentence}"
        case PeriodicTaskEnd.PROPOSED:
            return f"proposed {ago}: {last.sentence}"
    return f"last {ago}: {last.sentence}"


def _roughly(seconds: float) -> str:
    if seconds >= 2 * DAY_S:
        return f"{seconds / DAY_S:.0f} days"
    return f"{seconds / HOUR_S:.0f} h" if seconds >= HOUR_S else f"{max(0, seconds) / 60:.0f} min"


@dataclass(frozen=True, kw_only=True)
class PeriodicTaskLine:
    cluster: str
    task: Literal["sweep", "criteria", "risk", "pings"]
    due: float | None
    """When it was due last; null: it was never done."""
    began: float | None
    ended: float | None
    """null: it runs, or its process died and the next turn takes it up."""
    end: Literal["done", "unchanged", "proposed", "failed"] | None
    """unchanged: nothing was worth doing; proposed: a person decides."""
    sentence: str
    campaign: str
    """The campaign of a sweep."""
    proposal: str
    """The folder of criteria or the file of a model that was proposed."""
    last_success: float | None
    """When it last ended without failing."""
    next_at: float | None
    """When it is due next; null: the policy states no times."""


def periodic_task_fields(standing: PeriodicTaskState) -> PeriodicTaskLine:
    last = standing.last
    return PeriodicTaskLine(
        cluster=standing.cluster,
        task=standing.task.value,
        due=last.due if last else None,
        began=last.began if last else None,
        ended=last.ended if last else None,
        end=last.end.value if last and last.end else None,
        sentence=last.sentence if last else "",
        campaign=last.campaign if last else "",
        proposal=last.proposal if last else "",
        last_success=standing.succeeded_at,
        next_at=standing.next_at,
    )


def periodic_task_line(standing: PeriodicTaskState) -> str:
    return json_line("periodic-task", periodic_task_fields(standing))
