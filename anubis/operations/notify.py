"""Tell people what the keeper did: messages are kept with what they are about, sent after the turn,
and sent again until the receiver has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anubis.config import configs
from anubis.core.amounts import DAY_S
from anubis.core.diagnose.cures import PastDiagnosis
from anubis.core.errors import NotifyError
from anubis.core.history.events import EventRecord, SuspicionRaised
from anubis.core.keep.commands import LifeAction
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.keep.messages import GIVEN_UP_S, KeeperMessage, Topic, message_of, pause_after
from anubis.operations.caller import Caller
from anubis.reach.notifiers.notifier import NotifierSettings
from anubis.report.keep import sentence
from anubis.store.history import ClusterHistory
from anubis.store.messages import Delivery, KeptMessage
from anubis.text.wording import kinds, moment, quantity


def notifier_of(policy: KeepingPolicy) -> NotifierSettings | None:
    """Read the notifier that the policy names; None if it names none."""
    return configs.notifier(policy.notify) if policy.notify else None


def messages_of(
    actions: Iterable[LifeAction], event_records: Iterable[EventRecord]
) -> Iterator[KeeperMessage]:
    """Messages about actions and suspicions."""
    for action in actions:
        if message := message_of(action, sentence(action.command)):
            yield message
    for record in event_records:
        if isinstance(record.event, SuspicionRaised):
            yield from _messages_of_suspicion(record, record.event)


def _messages_of_suspicion(record: EventRecord, raised: SuspicionRaised) -> Iterator[KeeperMessage]:
    why = f": {raised.reason}" if raised.reason else ""
    listed = kinds(raised.mix)
    about, mix = ("", f"; likeliest faults: {listed}") if listed else (f" ({raised.category})", "")
    for node in raised.nodes:
        yield KeeperMessage(
            key=f"suspicion {record.id} {node}",
            at=record.at,
            topic=Topic.SUSPECT,
            subject=node,
            sentence=f"{node} is suspected{about}{why}{mix}",
        )


def message_of_diagnosis(advice: PastDiagnosis) -> KeeperMessage:
    """Message with a diagnosis. A job that stands still is diagnosed again when it has ended:
    the same sentence is reported once a day."""
    return KeeperMessage(
        key=f"diagnosis {advice.at // DAY_S:.0f} {advice.headline}"[:400],
        at=advice.at,
        topic=Topic.DIAGNOSIS,
        subject=advice.job or "a job",
        sentence=advice.headline,
    )


def message_of_stop(cluster: str, at: float, why: str) -> KeeperMessage:
    """Message that the keeper does not work. The same reason is reported once a day."""
    return KeeperMessage(
        key=f"keeper {at // DAY_S:.0f} {why}"[:400],
        at=at,
        topic=Topic.STOPPED,
        subject=cluster,
        sentence=f"the keeper of {cluster}: {why}",
    )


def deliver(part: ClusterHistory, notifier: NotifierSettings, caller: Caller) -> None:
    """Send what waits. A message that the receiver refuses holds up no other; if it does not
    answer, nothing more is sent before the pause is over."""
    # wall clock: a pause that it distorts is at most the longest one
    now = caller.clock()
    part.messages.forget(now)
    for message in part.messages.due(now):
        now = caller.clock()  # wall clock: as above
        if not notifier.wants(message):
            part.messages.end(message, Delivery.UNWANTED)
            continue
        until = now + pause_after(message.tries + 1)
        if not part.messages.take(message, until):
            continue
        try:
            notifier.send(message, part.cluster)
        except NotifyError as error:
            _fail(part, message, error, now, caller)
            if not error.is_refusal:
                part.messages.hold_back(max(until, now + (error.pause_s or 0.0)))
                break
        else:
            part.messages.end(message, Delivery.RECEIVED)


def _fail(
    part: ClusterHistory, message: KeptMessage, error: NotifyError, now: float, caller: Caller
) -> None:
    if now - message.at > GIVEN_UP_S:
        part.messages.end(message, Delivery.GIVEN_UP, str(error))
        caller.remark(f"a message of {moment(message.at)} is given up: {error}")
        return
    part.messages.explain(message, str(error))
    waiting = quantity(len(part.messages.waiting()), "message")
    caller.remark(f"{waiting} to people not delivered yet: {error}")
