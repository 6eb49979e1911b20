"""Choose the policy by which a cluster is kept: one for every process that takes a turn.

A stated policy comes first (`--keeping`, else `keeping:` in the cluster's file), then the last one
in the history, then `default`. While a process acts, which is a service or an `anubis keep
--every`, no other process changes the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from anubis.config import configs
from anubis.core.errors import ConfigError, StoreError, UsageError
from anubis.core.keep.keeping_policy import KeepingPolicy
from anubis.operations.caller import NO_CALLER, Caller
from anubis.operations.clusters import THIS_MACHINE, find, look_up
from anubis.store.database import own_name
from anubis.store.history import ClusterHistory, History
from anubis.store.keeping import KeptBy
from anubis.text.wording import moment

DEFAULT = "default"  # the policy that only proposes


@dataclass(frozen=True, kw_only=True)
class ChosenPolicy:
    name: str
    policy: KeepingPolicy
    is_stated: bool = True  # by the request or by the cluster's file, and not by the history


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
            f'the file of cluster "{cluster}" says another policy ({stated.name}) than {acting}'
            f" acts by ({kept.name}): theirs counts until they read the file or end"
        )
    return stated, (
        f'cluster "{cluster}" is kept by policy {stated.name} from now on; before it was'
        f" {kept.name}, or what that file said then, as {kept.said_by} said {moment(kept.since)}"
    )


def refuse_another(policy: ChosenPolicy, kept: KeptBy | None, acting: str, *, cluster: str) -> None:
    """Refuse if the cluster is kept by another policy than the one that was chosen a moment ago."""
    if kept and kept.policy != policy.policy and (acting or not policy.is_stated):
        raise UsageError(_refusal(cluster, policy.name, kept, acting))


def _refusal(cluster: str, name: str, kept: KeptBy, acting: str) -> str:
    because = f"{acting} acts by it" if acting else f"{kept.said_by} has just said so"
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


def policy_of(
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
