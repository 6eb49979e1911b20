"""Messages to people: what the keeper did, and what it would do. By its key a receiver knows a
message again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from anubis.core.amounts import DAY_S, HOUR_S
from anubis.core.keep.breaker import FLEET, OF_JOB
from anubis.core.keep.commands import (
    CloseTicket,
    Cordon,
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
from anubis.core.keep.life import Proof

FIRST_PAUSE_S = 30.0  # a receiver that restarts is back by then
LONGEST_PAUSE_S = HOUR_S  # a receiver that was down for a day is noticed soon after
GIVEN_UP_S = 7 * DAY_S  # an older message is of no use
SCOPES = (FLEET, "sku ", f"{OF_JOB} ")  # beginnings of the subjects of breakers


class Topic(StrEnum):
    DRAIN = "drain"  # a node is kept from jobs
    RELEASE = "release"
    REQUEUE = "requeue"  # a job is put back into the queue
    REPAIR = "repair"  # a command that is to repair a node
    SWAP = "swap"  # a spare is brought into service
    TICKET = "ticket"
    BREAKER = "breaker"
    SUSPECT = "suspect"  # a suspicion was raised, or has ended
    DIAGNOSIS = "diagnosis"  # of a job, or the search that follows it
    ATTENTION = "attention"  # a person is needed for a node
    STOPPED = "keeper-stopped"  # the keeper stopped, or its turns fail


class MessageStep(StrEnum):
    NEWS = "news"
    PROPOSED = "proposed"  # a person may approve it
    ORDERED = "ordered"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class KeeperMessage:
    key: str  # unique in its cluster
    at: float
    topic: Topic
    subject: str  # a node, a ticket, a job or the scope of a breaker
    sentence: str
    step: MessageStep = MessageStep.NEWS
    ends: bool = False  # it ends what an earlier message about the subject began

    def identity(self, cluster: str) -> str:
        """The same whenever the message is sent, and in no other history."""
        return sha256(f"{cluster}\n{self.key}\n{self.at!r}".encode()).hexdigest()[:32]

    def thread(self, cluster: str) -> str:
        """The same for messages that begin and end one thing."""
        topic = Topic.DRAIN if self.topic is Topic.RELEASE else self.topic
        return f"{cluster} {topic.value} {self.subject}"


def topic_of(command: LifeCommand) -> Topic | None:
    """Return the topic of a command; None if people need not hear of it."""
    match command:
        case Cordon():
            return Topic.DRAIN
        case Release():
            return Topic.RELEASE
        case Requeue():
            return Topic.REQUEUE
        case TryRepair():
            return Topic.REPAIR
        case Prove(proof=Proof.TOGETHER):
            return Topic.DIAGNOSIS
        case Swap():
            return Topic.SWAP
        case OpenTicket() | CloseTicket():
            return Topic.TICKET
        case EndSuspicion():
            return Topic.SUSPECT
        case Notify(subject=subject):
            return Topic.BREAKER if subject.startswith(SCOPES) else Topic.ATTENTION
    return None


def message_of(action: LifeAction, sentence: str) -> KeeperMessage | None:
    """Return the message of an action at its stage; None if people need not hear of it."""
    topic, command = topic_of(action.command), action.command
    if topic is None or action.stage is Stage.WITHDRAWN:
        return None
    step = {Stage.PROPOSED: MessageStep.PROPOSED, Stage.FAILED: MessageStep.FAILED}.get(
        action.stage, MessageStep.ORDERED
    )
    why = f": {action.note}" if step is MessageStep.FAILED and action.note else ""
    of_ticket = command.ticket if isinstance(command, OpenTicket | CloseTicket) else ""
    of_job = command.about if isinstance(command, Prove) else ""
    return KeeperMessage(
        key=f"action {action.id} {step.value}",
        at=action.changed_at,
        topic=topic,
        subject=of_ticket or of_job or subjects(command)[0],
        sentence=f"{sentence}{why}",
        step=step,
        ends=isinstance(command, Release | CloseTicket | EndSuspicion),
    )


def pause_after(tries: int) -> float:
    """Seconds from one try to the next."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(tries - 1, 16))
