"""The life of one node, step by step, under any owner of the nodes. It asserts nothing.

The steps are here once: `scripts/studies/show-life` plays them on hosts under real owners,
test_life.py on stand-ins. They know an operator's own hand on the nodes and the keeper's turns,
and nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anubis.core.keep.reasons import INCIDENT, NO_DEFECT, code_of, is_ours
from anubis.store.history import History
from tests.patience import eventually

SETTLED_S = 60.0  # until an owner has asked a node that takes jobs again whether it answers


class NodeOwner(Protocol):
    """The owner of the nodes, as its operators see it and use it: without anything of Anubis."""

    name: str

    def add(self, node: str) -> None:
        """Plug it in, and wait until it is up."""
        ...

    def shown(self, node: str) -> str:
        """Its state, and the author and the reason of its cordon."""
        ...

    def reason(self, node: str) -> str:
        """The reason why a node is kept from jobs; empty if it is not."""
        ...

    def takes_jobs(self, node: str) -> bool: ...

    def cordon(self, node: str) -> None:
        """Cordon a node by hand."""
        ...

    def runs_a_job(self, node: str) -> str:
        """The end of a job that was asked for there, if it ended well; else nothing."""
        ...


class KeptSite(Protocol):
    """A fleet that Anubis keeps: proven nodes, and a slow one that is yet to be added."""

    owner: NodeOwner
    proven: Sequence[str]
    new: str
    by_hand: str  # one of the proven, which a person takes out
    history: str

    def accept(self) -> Collection[str]:
        """The proven nodes, and which of them are healthy."""
        ...

    def keep(self) -> Mapping[str, str]:
        """A turn of the keeper; the state of each node."""
        ...

    def tell(self, event: str, node: str) -> None: ...

    def alert(self, node: str, *, fires: bool) -> None:
        """The site's monitor says that an alert fires there, or does not any more."""
        ...

    def mend(self) -> None:
        """The new node is slow no more."""
        ...

    def swaps(self) -> list[str]:
        """Spares that were brought into service, in sentences."""
        ...


@dataclass(frozen=True, kw_only=True)
class StoryRow:
    step: str
    expected: str
    came: str
    is_right: bool
    after_s: float


@dataclass
class Story:
    """What was expected and what came, step by step."""

    began: float = field(default_factory=time.monotonic)
    rows: list[StoryRow] = field(default_factory=list)

    def tell(self, step: str, expected: str, came: str, *, is_right: bool) -> None:
        after_s = time.monotonic() - self.began
        self.rows.append(
            StoryRow(step=step, expected=expected, came=came, is_right=is_right, after_s=after_s)
        )
        print(f"{'ok' if is_right else 'NOT SO'}: {step}: {came}", file=sys.stderr)

    @property
    def wrong(self) -> list[StoryRow]:
        return [row for row in self.rows if not row.is_right]


def live(site: KeptSite, story: Story) -> None:
    """Live from the acceptance of a fleet to the proven return of a node that was slow, and of
    nodes on which an alert fired."""
    _accept(site, story)
    spares = _keep_a_spare(site, story)
    site.owner.cordon(site.by_hand)
    theirs = site.owner.shown(site.by_hand)
    _add(site, story)
    _repair(site, story)
    _alert(site, story, spares)
    _leave_alone(site, story, theirs)


def _accept(site: KeptSite, story: Story) -> None:
    healthy = site.accept()
    story.tell(
        f"{len(site.proven)} nodes are accepted",
        "all healthy",
        f"{len(healthy)} healthy",
        is_right=set(healthy) == set(site.proven),
    )


def _keep_a_spare(site: KeptSite, story: Story) -> list[str]:
    spares = [node for node, state in site.keep().items() if state == "spare"]
    story.tell(
        "one of them is kept ready",
        "a spare, proven, kept from jobs by Anubis",
        ", ".join(f"{node}: {site.owner.shown(node)}" for node in spares),
        is_right=len(spares) == 1 and site.owner.reason(spares[0]).startswith("anubis[SPARE]"),
    )
    return spares


def _add(site: KeptSite, story: Story) -> None:
    owner, new = site.owner, site.new
    owner.add(new)
    site.tell("node-added", new)
    state, trial = site.keep()[new], newest(site.history)
    partners = trial.nodes - {new}
    beside = f"beside {', '.join(sorted(partners))}" if partners else "alone"
    story.tell(
        f"{new}, which is slow, is added",
        "tested alone or beside proven nodes, defective, kept from jobs with that code",
        f"{state}, tested {beside}: {trial.verdicts.get(new, 'no verdict')}; {owner.name}:"
        f" {owner.shown(new)}",
        is_right=state == "out"
        and partners <= {*site.proven} - {site.by_hand}
        and is_ours(owner.reason(new))
        and code_of(owner.reason(new)) not in NO_DEFECT,
    )


def _alert(site: KeptSite, story: Story, spares: Sequence[str]) -> None:
    """Alert on a node that serves and on the spare, then on another one that serves."""
    owner, (spare, *_) = site.owner, spares
    first, second, *_ = [n for n in site.proven if n not in (site.by_hand, spare)]
    for node in (first, spare):
        site.alert(node, fires=True)
    states, swaps = site.keep(), site.swaps()
    later_spares = [node for node, state in states.items() if state == "spare"]
    story.tell(
        f"an alert fires on {first}, which serves, and on the spare {spare}",
        "both are out with the code INCIDENT after one turn, the spare takes no other node's place,"
        f" the next one takes that of {first} once it is proven, and another node is kept ready",
        f"{first}: {owner.shown(first)}; {spare}: {owner.shown(spare)}; {'; '.join(swaps)}; kept"
        f" ready: {', '.join(later_spares)}",
        is_right=_has_incident(owner, first)
        and _has_incident(owner, spare)
        and len(swaps) == 1
        and swaps[0].endswith(first)
        and f"bring {spare} " not in swaps[0]
        and len(later_spares) == 1
        and spare not in later_spares,
    )
    second = next(n for n in (second, site.new, *site.proven) if states[n] == "in-service")
    site.alert(second, fires=True)
    states = site.keep()
    swaps = [swap for swap in site.swaps() if swap.endswith(f" for {second}")]
    back = [node for node in later_spares if owner.takes_jobs(node)]
    story.tell(
        f"an alert fires on {second}",
        f"it is out, and {', '.join(later_spares)} takes its place",
        f"{second}: {owner.shown(second)}; {'; '.join(swaps)}; {', '.join(back)} takes jobs",
        is_right=_has_incident(owner, second) and len(swaps) == 1 and back == later_spares,
    )
    ran = [owner.runs_a_job(node) for node in later_spares]
    story.tell("a job may begin there", "it runs", ", ".join(ran), is_right=all(ran))
    out = [first, spare, second]
    for node in out:
        site.alert(node, fires=False)
    site.keep()
    eventually(lambda: not any(_has_incident(owner, n) for n in out), limit_s=SETTLED_S)
    states = site.keep()
    story.tell(
        "the alerts are over",
        "each of these nodes has passed a test since, and is back",
        ", ".join(f"{node}: {states[node]}, {owner.shown(node)}" for node in out),
        is_right=all(states[node] in ("in-service", "spare") for node in out),
    )


def _has_incident(owner: NodeOwner, node: str) -> bool:
    reason = owner.reason(node)
    return is_ours(reason) and code_of(reason) == INCIDENT and not owner.takes_jobs(node)


def _repair(site: KeptSite, story: Story) -> None:
    owner, new = site.owner, site.new
    before = newest(site.history)
    site.mend()
    site.tell("repair-begun", new)
    site.tell("repair-done", new)
    site.keep()
    eventually(lambda: owner.takes_jobs(new), limit_s=SETTLED_S)
    state = site.keep()[new]
    trial = newest(site.history)
    partners = trial.met(new)
    story.tell(
        f"{new} is repaired: it is slow no more",
        "tested with all that a new node has to pass, proven, back",
        f"{state}, after it met {', '.join(sorted(partners))}; {owner.name}: {owner.shown(new)}",
        is_right=trial.campaign != before.campaign
        and bool(partners)
        and partners <= {*site.proven} - {site.by_hand}
        and state == "in-service"
        and owner.takes_jobs(new)
        and not owner.reason(new),
    )


def _leave_alone(site: KeptSite, story: Story, theirs: str) -> None:
    shown = site.owner.shown(site.by_hand)
    story.tell(
        f"{site.by_hand} was taken out by a person in between",
        f"still as it was: {theirs}",
        shown,
        is_right=shown == theirs and not site.owner.takes_jobs(site.by_hand),
    )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The newest campaign: in which groups nodes were measured, alone or together."""

    campaign: str
    groups: Collection[frozenset[str]]
    verdicts: Mapping[str, str]  # by node

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset().union(*self.groups)

    def met(self, node: str) -> frozenset[str]:
        groups = (group for group in self.groups if node in group)
        return frozenset().union(*groups) - {node}


def newest(url: str) -> Trial:
    with History.open(url) as history:
        campaign = history.campaigns.newest(1)[0].id
        groups = {frozenset(run.step.participants) for run in history.executions.read(campaign)}
        verdicts = {
            verdict.node: f"{verdict.judgement}, {verdict.code}"
            for verdict in history.assessments.node_verdicts(campaign)
        }
    return Trial(campaign=campaign, groups=groups, verdicts=verdicts)
