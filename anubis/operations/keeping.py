"""Read how a cluster is kept: by which policy, by which orchestrator, and who receives messages.

The policy is one for every process that takes a turn.

A stated policy comes first (`--keeping`, else `keeping:` in the cluster's file), then the last one
in the history, then `default`. While a process acts, which is a service or an `anubis keep
--every`, no other process changes the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from anubis.config import configs
from anubis.core.errors import ConfigError, StoreError, UsageError
from anubis.core.history.events import EventRecord
from anubis.core.judge.limits import remedy_of
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.core.records import Policy, Remedy
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import THIS_MACHINE, enter, find, look_up
from anubis.operations.notify import messages_of, notifier_of
from anubis.operations.owners import orchestrator_of
from anubis.operations.requests import KeepRequest
from anubis.reach.notifiers.notifier import NotifierSettings
from anubis.reach.orchestrators.orchestrator import Orchestrator
from anubis.store.database import own_name
from anubis.store.history import ClusterHistory, History
from anubis.store.keeping import KeptBy, Turn
from anubis.text.wording import moment

DEFAULT = "default"  # the policy that only proposes


@dataclass(frozen=True, kw_only=True)
class ChosenPolicy:
    policy: KeepingPolicy
    name: str = "without a name"
    is_stated: bool = True  # by the request or by the cluster's file, and not by the history


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """The cluster to keep, the policy, and the owner of the nodes."""

    chosen: ChosenPolicy
    cluster: str | None = None
    benchmarks: Sequence[Path] = ()  # folders with programs beside the shipped ones
    orchestrator: Orchestrator | None = None
    service: str = ""  # which starts the turns; once another one acts, no turn is taken
    acting: str = ""  # another process, which acts by this policy
    notifier: NotifierSettings | None = None  # of people; None: no messages are sent

    def post(self, turn: Turn, event_records: Iterable[EventRecord] = ()) -> None:
        """Keep messages about what the turn changed and learned, if people get messages."""
        if self.notifier:
            turn.post(list(messages_of(turn.changed, event_records)))

    @property
    def policy(self) -> KeepingPolicy:
        return self.chosen.policy

    def remedy_of(self, code: str) -> Remedy | None:
        """Remedy for a code, as the files of this machine have it: no command comes from the
        history."""
        return remedy_of(code, self._remedies)

    @cached_property
    def _remedies(self) -> Policy:
        return configs.policy(self.policy.selection)

    def __post_init__(self) -> None:
        if self.orchestrator is None and self.policy.acts_on_nodes and not self.acting:
            raise ConfigError(
                "the keeping policy acts on nodes, but the cluster has no orchestrator: name one"
                " in the cluster's file, or let the policy propose cordons and releases"
            )


def keeping_of(request: KeepRequest, caller: Caller = NO_CALLER) -> Keeping:
    """Read a cluster's keeping from the named files. Without a policy the cluster is kept by its
    own: that of its file, or else the last one."""
    described = file_of(request.cluster)
    own_names = (own_name(), request.service)
    chosen, acting = _policy_of(request.cluster, request.keeping, own_names, caller)
    return Keeping(
        chosen=chosen,
        cluster=request.cluster,
        benchmarks=request.benchmarks,
        # a cluster that only the history names has no orchestrator to ask
        orchestrator=orchestrator_of(described) if described else None,
        service=request.service,
        acting=acting,
        notifier=notifier_of(chosen.policy),
    )


def enter_if_answered(history: History, keeping: Keeping, caller: Caller) -> ClusterHistory:
    """Find the cluster, and enter it if it is new, but only after the owner of its nodes answered:
    a turn that is refused leaves no trace."""
    part, cluster = find(history, keeping.cluster, caller)
    if cluster is None:
        return part
    if keeping.orchestrator and cluster.name not in history.clusters.names():
        keeping.orchestrator.observe()
    return enter(history, cluster, caller)


def stated_policy(
    stated: str | None, file: configs.Cluster | None, called: str
) -> ChosenPolicy | None:
    """The policy stated by the request (`stated`) or by the cluster's `file`; None if neither
    states one. `called` is the cluster's name."""
    of_file = file.keeping if file else ""
    chosen = _read(stated) if stated else None
    if not of_file:
        return chosen
    by_file = _read(of_file)
    if chosen and chosen.policy != by_file.policy:
        raise UsageError(
            f'the file of cluster "{called}" says "keeping: {of_file}", and --keeping {stated} is'
            " another policy: leave --keeping out, or change the file"
        )
    return by_file


def _read(name: str) -> ChosenPolicy:
    return ChosenPolicy(name=name, policy=configs.keeping(name))


def choose_policy(
    stated: ChosenPolicy | None, kept: KeptBy | None, acting: str, *, by_file: bool, cluster: str
) -> tuple[ChosenPolicy, str]:
    """Choose the policy; return it with a remark for the caller, or "". `acting`: the other process
    that acts, if any. `by_file`: only the cluster's file states the policy."""
    if kept is None:
        return stated or _default(), ""
    of_history = ChosenPolicy(name=kept.name, policy=kept.policy, is_stated=False)
    if stated is None or stated.policy == kept.policy:
        return stated or of_history, ""
    if acting and not by_file:
        raise UsageError(_refusal(cluster, stated.name, kept, acting))
    if acting:
        return of_history, (
            f'the file of cluster "{cluster}" names policy {stated.name}, and {acting} acts by'
            f" {kept.name}, which counts until all that act read the file or end"
        )
    return stated, (
        f'cluster "{cluster}" is kept by policy {stated.name} from now on; before it was'
        f" {kept.name}, as {kept.said_by} read it at {moment(kept.since)}"
    )


def refuse_another(policy: ChosenPolicy, kept: KeptBy | None, acting: str, *, cluster: str) -> None:
    """Refuse if the cluster is kept by another policy than the one that was chosen a moment ago."""
    if kept and kept.policy != policy.policy and (acting or not policy.is_stated):
        raise UsageError(_refusal(cluster, policy.name, kept, acting))


def _refusal(cluster: str, name: str, kept: KeptBy, acting: str) -> str:
    because = f"{acting} acts by it" if acting else f"{kept.said_by} chose it a moment ago"
    return (
        f'cluster "{cluster}" is kept by policy {kept.name}, and {because}: no turn is taken by'
        f" another policy ({name}); leave --keeping out, or end that process first"
    )


def acting_process(
    history: History, part: ClusterHistory, kept: KeptBy | None, own_names: Collection[str] = ()
) -> str:
    """Name of the process that acts on the cluster, except for the given names; empty if none
    does."""
    holders = [part.keeping.lasting_lock().holder(), history.acting_lock().holder()]
    if kept is None or kept.said_by != holders[1]:  # a service that keeps other clusters
        del holders[1]
    return next((name for name in holders if name and name not in own_names), "")


def keeper_of(cluster: str | None = None, caller: Caller = NO_CALLER) -> str:
    """Name of the process that takes a cluster's turns by itself: a service, or `anubis keep
    --every`; empty if none does."""
    with caller.history() as history:
        part = look_up(history, cluster)
        return acting_process(history, part, part.keeping.kept_by(or_none=True), (own_name(),))


def kept_policy(part: ClusterHistory) -> KeepingPolicy:
    """Policy by which the cluster was kept last, for showing the results."""
    kept = part.keeping.kept_by(or_none=True)
    return kept.policy if kept else configs.keeping(DEFAULT)


def going_on(cluster: str | None, caller: Caller = NO_CALLER) -> Callable[[], None]:
    """Make a function that a process calls before each of its turns. As long as the process lives,
    others know by its lock who keeps the cluster; of several processes the first is known."""
    history = caller.history()
    part, _ = find(history, cluster, caller)
    lock = part.keeping.lasting_lock()

    def claim() -> None:
        with suppress(StoreError):  # the turn itself reports what is wrong
            lock.has()

    return claim


def _policy_of(
    cluster: str | None, stated: str | None, own_names: Collection[str], caller: Caller
) -> tuple[ChosenPolicy, str]:
    """Policy by which to keep the cluster, and the other process that acts by it."""
    called = cluster or THIS_MACHINE
    named = stated_policy(stated, file_of(cluster), called)
    with caller.history() as history:
        try:
            part = look_up(history, cluster)
        except UsageError:  # it is new to the history
            return named or _default(), ""
        kept = part.keeping.kept_by(or_none=named is not None)
        acting = acting_process(history, part, kept, own_names)
        by_file = stated is None
        chosen, remark = choose_policy(named, kept, acting, by_file=by_file, cluster=part.cluster)
        if remark:
            caller.remark(remark)
        return chosen, acting


def file_of(cluster: str | None) -> configs.Cluster | None:
    """The cluster's file; None if only the history knows the cluster."""
    try:
        file = configs.find("clusters", cluster or THIS_MACHINE)
    except ConfigError:
        return None
    return configs.cluster(str(file))


def _default() -> ChosenPolicy:
    return ChosenPolicy(name=DEFAULT, policy=configs.keeping(DEFAULT), is_stated=False)
