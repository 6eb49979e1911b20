"""Settings of nodes, facts as text: each is to be that of most nodes of its sku, or one that the
policy states.

Every node has one vote: its own value in this campaign or, of nodes that are not in it, the last
that the history has. Where fewer than `FEWEST` nodes tell a setting there is nothing to compare
with, which is no doubt about the node; where no value has more than half of the votes nobody can
tell which is right, which is one. A setting of a device is compared with the device of that name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from anubis.core.judging.verdicts import spelled_code
from anubis.core.records import (
    Ended,
    Execution,
    Expectation,
    Judgement,
    Plan,
    Ruling,
    Verdict,
    Workload,
)

FEWEST = 3  # nodes that tell a setting; of two nobody knows which is right
LIKE_MOST = "as most nodes of its sku"
EXPECTED = "as the policy expects"
MAY_DIFFER = "the policy lets it differ"
NODE = "node"  # the device of what belongs to no part of it
SHOWN = 80  # characters of a text in a sentence

Texts = Mapping[str, Mapping[str, str]]  # by setting and device


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What one run vote of a node."""

    node: str
    sku: str
    workload: Workload
    texts: Texts
    unread: Mapping[str, str] = field(default_factory=dict)  # why: by setting, or `NAME of DEVICE`
    at: float = 0.0

    @classmethod
    def of(cls, run: Execution, sku: str, names: Collection[str]) -> Self:
        """Of those settings that its program declares."""
        vote = run.result.environment.get("settings")
        unread = run.result.environment.get("unread")
        return cls(
            node=run.step.participants[0],
            sku=sku,
            workload=run.step.workload,
            texts={name: v for name, v in vote.items() if name in names}
            if isinstance(vote, dict)
            else {},
            unread={
                name: str(why) for name, why in unread.items() if name.split(" of ")[0] in names
            }
            if isinstance(unread, dict)
            else {},
            at=run.started_at or 0.0,
        )


@dataclass(frozen=True, kw_only=True)
class Usual:
    """What most nodes have, of all that tell it."""

    text: str | None  # None: no value has a majority
    votes: int
    voters: int
    counts: tuple[tuple[str, int], ...]  # the most frequent first

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        counts = sorted(Counter(texts).items(), key=lambda entry: (-entry[1], entry[0]))
        voters = sum(count for _, count in counts)
        text, votes = counts[0]
        return cls(
            text=text if 2 * votes > voters else None,
            votes=votes,
            voters=voters,
            counts=tuple(counts),
        )

    def __str__(self) -> str:
        """`"550.54" on 7 of 8 nodes of its sku`."""
        if self.text is None:
            first = ", ".join(f"{_quoted(text)} on {count}" for text, count in self.counts[:3])
            more = f" and {len(self.counts) - 3} more" if len(self.counts) > 3 else ""
            return f"{first}{more} of {self.voters} nodes of its sku"
        return f"{_quoted(self.text)} on {self.votes} of {self.voters} nodes of its sku"


@dataclass(frozen=True)
class SettingKey:
    """What is compared with each other."""

    sku: str
    benchmark: str
    setting: str
    device: str


def settings_of(executions: Iterable[Execution], plan: Plan) -> list[NodeSettings]:
    """Of each node the last that it vote in a campaign, by programs that tell settings."""
    last: dict[tuple[str, str], NodeSettings] = {}
    for run in executions:
        workload = run.step.workload
        names = {setting.name for setting in plan.spec(workload).settings}
        if names and run.ended is Ended.MEASURED and len(run.step.participants) == 1:
            vote = NodeSettings.of(run, plan.sku(run.step.participants[0]), names)
            last[workload.benchmark, vote.node] = vote
    return list(last.values())


def usual_settings(vote: Iterable[NodeSettings]) -> dict[SettingKey, Usual]:
    """Where at least `FEWEST` nodes tell something."""
    votes: defaultdict[SettingKey, list[str]] = defaultdict(list)
    for node in vote:
        for setting, of_devices in node.texts.items():
            for device, text in of_devices.items():
                key = SettingKey(node.sku, node.workload.benchmark, setting, device)
                votes[key].append(text)
    return {key: Usual.of(texts) for key, texts in votes.items() if len(texts) >= FEWEST}


def voters(own: Sequence[NodeSettings], before: Iterable[NodeSettings]) -> list[NodeSettings]:
    """Those of a campaign, and nodes of the same skus that are not in it."""
    skus = {(vote.workload.benchmark, vote.sku) for vote in own}
    present = {(vote.workload.benchmark, vote.node) for vote in own}
    return [
        *own,
        *(
            vote
            for vote in before
            if (vote.workload.benchmark, vote.sku) in skus
            and (vote.workload.benchmark, vote.node) not in present
        ),
    ]


def judge_settings(
    own: Sequence[NodeSettings],
    expectations: Sequence[Expectation] = (),
    before: Iterable[NodeSettings] = (),
) -> tuple[list[Ruling], list[Verdict]]:
    """Rulings on what is as it should be or cannot be compared, and a verdict on anything else."""
    usual = usual_settings(voters(own, before))
    alone: list[Verdict] = []
    alike: defaultdict[tuple[Workload, str, Judgement, str, str], list[tuple[str, str]]]
    alike = defaultdict(list)
    for vote in own:
        for setting, of_devices in vote.texts.items():
            for device, text in of_devices.items():
                verdict = _judge(vote, setting, device, text, expectations, usual)
                if verdict.judgement in (Judgement.HEALTHY, Judgement.NOT_APPLICABLE):
                    kind = (vote.workload, setting, verdict.judgement, verdict.code, verdict.reason)
                    alike[kind].append((vote.node, device))
                else:
                    alone.append(verdict)
        alone += _unread(vote, expectations, usual)
    return [_ruling(*kind, units=units) for kind, units in alike.items()], alone


def _judge(
    vote: NodeSettings,
    setting: str,
    device: str,
    text: str,
    expectations: Sequence[Expectation],
    usual: Mapping[SettingKey, Usual],
) -> Verdict:
    rule = expectation_of(expectations, vote.sku, setting, device)
    key = SettingKey(vote.sku, vote.workload.benchmark, setting, device)
    claim, norm = f"{_named(setting, device)} of {vote.node} is {_quoted(text)}", usual.get(key)
    beside = f"; it is {norm}" if norm else ""
    if rule and rule.may_differ:
        return _verdict(vote, setting, device, Judgement.NOT_APPLICABLE, "NOT-JUDGED", MAY_DIFFER)
    if rule and rule.allows(text):
        return _verdict(vote, setting, device, Judgement.HEALTHY, "OK", EXPECTED)
    if rule:
        right = " or ".join(map(_quoted, rule.equals))
        reason = f"{claim}, expected {right} ({rule.source}){beside}"
        return _differs(vote, setting, device, reason)
    if norm is None:
        reason = f"fewer than {FEWEST} nodes of its sku tell it"
        return _verdict(vote, setting, device, Judgement.NOT_APPLICABLE, "NO-PEERS", reason)
    if norm.text is None:
        reason = f"{claim}, and no value has a majority: {norm}"
        return _verdict(vote, setting, device, Judgement.UNKNOWN, "NO-MAJORITY", reason)
    if text == norm.text:
        return _verdict(vote, setting, device, Judgement.HEALTHY, "OK", LIKE_MOST)
    return _differs(vote, setting, device, f"{claim}, and {norm}")


def _unread(
    vote: NodeSettings, expectations: Sequence[Expectation], usual: Mapping[SettingKey, Usual]
) -> Iterator[Verdict]:
    """What others tell, and this node could not read."""
    for subject, why in vote.unread.items():
        setting, _, device = subject.partition(" of ")
        key = SettingKey(vote.sku, vote.workload.benchmark, setting, device or NODE)
        norm = usual.get(key)
        if norm is None and not device:  # of no device of this node
            places = (key for key in usual if (key.sku, key.setting) == (vote.sku, setting))
            norm = next((usual[key] for key in places), None)
        rule = expectation_of(expectations, vote.sku, setting, device or NODE)
        if (norm or rule) and not (rule and rule.may_differ):
            reason = f"{_named(setting, device or NODE)} of {vote.node} could not be read: {why}"
            reason += f"; it is {norm}" if norm else ""
            yield _verdict(vote, setting, device or NODE, Judgement.UNKNOWN, "UNREAD", reason)


def expectation_of(
    expectations: Sequence[Expectation], sku: str, setting: str, device: str
) -> Expectation | None:
    """Of several that fit the last counts."""
    fitting = (rule for rule in reversed(expectations) if rule.fits(sku, setting, device))
    return next(fitting, None)


def _named(setting: str, device: str) -> str:
    return setting if device == NODE else f"{setting} of {device}"


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= SHOWN else f'"{text[:SHOWN]}…"'


def _differs(vote: NodeSettings, setting: str, device: str, reason: str) -> Verdict:
    code = spelled_code(vote.workload.benchmark, setting)
    return _verdict(vote, setting, device, Judgement.DEFECTIVE, code, reason)


def _verdict(
    vote: NodeSettings, setting: str, device: str, judgement: Judgement, code: str, reason: str
) -> Verdict:
    return Verdict(
        participants=(vote.node,),
        benchmark=vote.workload.benchmark,
        parameters=vote.workload.parameters,
        metric=setting,
        device=device,
        judgement=judgement,
        code=code,
        reason=reason,
    )


def _ruling(
    workload: Workload,
    setting: str,
    judgement: Judgement,
    code: str,
    reason: str,
    *,
    units: Sequence[tuple[str, str]],
) -> Ruling:
    return Ruling(
        benchmark=workload.benchmark,
        parameters=workload.parameters,
        metric=setting,
        judgement=judgement,
        code=code,
        reason=reason,
        alpha=None,
        participants=tuple((node,) for node, _ in units),
        devices=tuple(device for _, device in units),
        similarities=None,
    )
