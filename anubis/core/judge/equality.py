"""Settings of nodes: each must equal that of most nodes of its sku, or one that the policy states.
Versions of software are compared with those of the learned criteria.

A setting is a fact as text. Every node has one vote: its value in this campaign or, if it is not in
the campaign, its last value in the history. If fewer than `FEWEST` nodes report a setting, there is
nothing to compare with, and the node is not in doubt. If no value has more than half of the votes,
it is unknown which is right, and the node is in doubt. A setting of a device is compared with the
devices of the same name, and of a GPU with those of its model.

A version of driver, CUDA, NCCL or cuDNN that a program reports is no proof of a defect: a
difference from the criteria is reported, and changes no verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from anubis.core.judge.sentences import Finding
from anubis.core.judge.verdicts import spelled_code
from anubis.core.records import (
    BatchVerdict,
    CriteriaSet,
    Ended,
    Execution,
    Expectation,
    Judgement,
    Plan,
    Verdict,
    Workload,
)

FEWEST = 3  # nodes that report a setting; of two, it is unknown which is right
LIKE_MOST = "as most nodes of its sku"
EXPECTED = "as the policy expects"
NO_PEERS = f"fewer than {FEWEST} nodes of its sku report it"
MAY_DIFFER = "the policy lets it differ"
ADVISED = "ADVISED"  # code of a verdict: to be set otherwise, and no defect
GPU_KIND = "gpu_kind"  # the setting by which expectations choose GPUs
GPU_MODEL = "gpu_model"  # the setting by which other settings of GPUs are kept apart
NODE = "node"  # the device of a setting that belongs to the whole node
SHOWN = 80  # characters of a text in a sentence

Texts = Mapping[str, Mapping[str, str]]  # by setting and device


class SettingKey(NamedTuple):
    """The key of settings that are compared with each other; a fleet has millions of them."""

    sku: str
    benchmark: str
    setting: str
    device: str
    gpu_model: str = ""  # of the device, if it is a GPU; models are compared whatever they are

    @property
    def named(self) -> str:
        return self.setting if self.device == NODE else f"{self.setting} of {self.device}"


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """The settings that one run reported for a node."""

    node: str
    sku: str
    workload: Workload
    texts: Texts
    unread: Mapping[str, str] = field(default_factory=dict)  # reasons, by setting (of DEVICE)
    at: float = 0.0

    @classmethod
    def from_run(cls, run: Execution, sku: str, names: Collection[str]) -> Self:
        """The settings that a run reported, limited to those that its program declares."""
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

    def key(self, setting: str, device: str) -> SettingKey:
        model = "" if setting == GPU_MODEL else self.texts.get(GPU_MODEL, {}).get(device, "")
        return SettingKey(self.sku, self.workload.benchmark, setting, device, model)

    def gpu_kind(self, device: str) -> str:
        """The kind of a GPU; empty for another device, and if it was not told."""
        return self.texts.get(GPU_KIND, {}).get(device, "")

    def entries(self) -> Iterator[tuple[SettingKey, str]]:
        for setting, of_devices in self.texts.items():
            for device, text in of_devices.items():
                yield self.key(setting, device), text


@dataclass(frozen=True, kw_only=True)
class Usual:
    """The value that most nodes have, of all that report it."""

    text: str | None  # None: no value has a majority
    votes: int
    voters: int
    counts: tuple[tuple[str, int], ...]  # the most frequent first

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Self:
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
            first = ", ".join(f"{_quote(text)} on {count}" for text, count in self.counts[:3])
            more = f" and {len(self.counts) - 3} more" if len(self.counts) > 3 else ""
            return f"{first}{more} of {self.voters} nodes of its sku"
        return f"{_quote(self.text)} on {self.votes} of {self.voters} nodes of its sku"


def settings_of(executions: Iterable[Execution], plan: Plan) -> list[NodeSettings]:
    """The last settings that each node reported in a campaign, for each program that reports
    settings."""
    last: dict[tuple[str, str], NodeSettings] = {}
    for run in executions:
        workload = run.step.workload
        names = {setting.name for setting in plan.spec(workload).settings}
        if names and run.ended is Ended.MEASURED and len(run.step.participants) == 1:
            vote = NodeSettings.from_run(run, plan.sku(run.step.participants[0]), names)
            last[workload.benchmark, vote.node] = vote
    return list(last.values())


def usual_settings(votes: Iterable[NodeSettings]) -> dict[SettingKey, Usual]:
    """The usual value of each setting that at least `FEWEST` nodes report."""
    of_key: defaultdict[SettingKey, list[str]] = defaultdict(list)
    for vote in votes:
        for key, text in vote.entries():
            of_key[key].append(text)
    return {key: Usual.from_texts(texts) for key, texts in of_key.items() if len(texts) >= FEWEST}


def voters(own: Sequence[NodeSettings], before: Iterable[NodeSettings]) -> list[NodeSettings]:
    """The settings of the nodes in a campaign, and of other nodes of the same skus."""
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
) -> tuple[list[BatchVerdict], list[Verdict]]:
    """Batch verdicts on settings that are right or cannot be compared, and a verdict on each other
    one."""
    usual = usual_settings(voters(own, before))
    answers: dict[tuple[SettingKey, str, str], _Answer] = {}  # most nodes report the same
    alone: list[Verdict] = []
    alike: defaultdict[tuple[Workload, str, _Answer], list[tuple[str, str]]] = defaultdict(list)
    for vote in own:
        for key, text in vote.entries():
            seen = key, text, vote.gpu_kind(key.device)
            answer = answers.get(seen)
            if answer is None:
                rule = expectation_of(expectations, key, seen[-1])
                answer = answers[seen] = _answer(key, text, rule, usual.get(key))
            if answer.judgement in (Judgement.HEALTHY, Judgement.NOT_APPLICABLE):
                alike[vote.workload, key.setting, answer].append((vote.node, key.device))
            else:
                claim = f"{key.named} of {vote.node} is {_quote(text)}"
                cause = f"{key.setting} is {_quote(text)}"
                finding = Finding(reason=claim + answer.reason, cause=cause)
                alone.append(_verdict(vote, key, answer, finding))
        alone += _judge_unread(vote, expectations, usual)
    return [_batch_verdict(*kind, units) for kind, units in alike.items()], alone


@dataclass(frozen=True)
class _Answer:
    """The answer to all nodes that report the same. If it is bad, its reason continues a sentence
    that names the node and the value."""

    judgement: Judgement
    code: str
    reason: str = ""


UNREAD = _Answer(Judgement.UNKNOWN, "UNREAD")


def _answer(key: SettingKey, text: str, rule: Expectation | None, norm: Usual | None) -> _Answer:
    bad = spelled_code(key.benchmark, key.setting)
    if rule and rule.may_differ:
        return _Answer(Judgement.NOT_APPLICABLE, "NOT-JUDGED", MAY_DIFFER)
    if rule and rule.allows(text):
        return _Answer(Judgement.HEALTHY, "OK", EXPECTED)
    if rule and rule.is_advice:
        advice = f"is {_quote(text)}, better {_quote(rule.equals[0])} ({rule.source})"
        return _Answer(Judgement.NOT_APPLICABLE, ADVISED, advice)
    if rule:
        right = " or ".join(map(_quote, rule.equals))
        beside = f"; it is {norm}" if norm else ""
        return _Answer(Judgement.DEFECTIVE, bad, f", expected {right} ({rule.source}){beside}")
    if norm is None:
        return _Answer(Judgement.NOT_APPLICABLE, "NO-PEERS", NO_PEERS)
    if norm.text is None:
        return _Answer(Judgement.UNKNOWN, "NO-MAJORITY", f", and no value has a majority: {norm}")
    if text == norm.text:
        return _Answer(Judgement.HEALTHY, "OK", LIKE_MOST)
    return _Answer(Judgement.DEFECTIVE, bad, f", and {norm}")


def _judge_unread(
    vote: NodeSettings, expectations: Sequence[Expectation], usual: Mapping[SettingKey, Usual]
) -> Iterator[Verdict]:
    """Yield a verdict for each setting that others report and this node could not read."""
    for subject, why in vote.unread.items():
        setting, _, device = subject.partition(" of ")
        key = vote.key(setting, device or NODE)
        norm = usual.get(key)
        if norm is None and not device:  # the failure names no device
            same = (place for place in usual if place[:3] == key[:3])
            norm = next((usual[place] for place in same), None)
        rule = expectation_of(expectations, key, vote.gpu_kind(key.device))
        if (norm or rule) and not (rule and (rule.may_differ or rule.is_advice)):
            reason = f"{key.named} of {vote.node} could not be read: {why}"
            reason += f"; it is {norm}" if norm else ""
            finding = Finding(reason=reason, cause=f"{key.setting} could not be read")
            yield _verdict(vote, key, UNREAD, finding)


def expectation_of(
    expectations: Sequence[Expectation], key: SettingKey, gpu_kind: str = ""
) -> Expectation | None:
    """The expectation that applies to a setting: the last of those that fit."""
    fitting = (
        rule
        for rule in reversed(expectations)
        if rule.fits(key.sku, key.setting, key.device, gpu_kind)
    )
    return next(fitting, None)


def _quote(text: str) -> str:
    return f'"{text}"' if len(text) <= SHOWN else f'"{text[:SHOWN]}…"'


def _verdict(vote: NodeSettings, key: SettingKey, answer: _Answer, finding: Finding) -> Verdict:
    return Verdict(
        participants=(vote.node,),
        benchmark=key.benchmark,
        parameters=vote.workload.parameters,
        metric=key.setting,
        device=key.device,
        judgement=answer.judgement,
        code=answer.code,
        reason=finding.reason,
        cause=finding.cause,
    )


def _batch_verdict(
    workload: Workload, setting: str, answer: _Answer, units: Sequence[tuple[str, str]]
) -> BatchVerdict:
    return BatchVerdict(
        benchmark=workload.benchmark,
        parameters=workload.parameters,
        metric=setting,
        judgement=answer.judgement,
        code=answer.code,
        reason=answer.reason,
        alpha=None,
        participants=tuple((node,) for node, _ in units),
        devices=tuple(device for _, device in units),
        similarities=None,
    )


NAMES = ("driver", "cuda", "nccl", "cudnn")  # as the environment of a result has them

Versions = Mapping[str, str]


def versions(executions: Iterable[Execution], plan: Plan) -> dict[str, Versions]:
    """The versions that the nodes of each sku reported; several of one thing are one text."""
    reported: defaultdict[str, defaultdict[str, set[str]]]
    reported = defaultdict(lambda: defaultdict(set))
    for execution in executions:
        environment = execution.result.environment
        for name in NAMES:
            if name in environment:
                sku = plan.sku(execution.step.participants[0])
                reported[sku][name].add(str(environment[name]))
    return {
        sku: {name: ", ".join(sorted(of_sku[name])) for name in NAMES if name in of_sku}
        for sku, of_sku in reported.items()
    }


def differences(criteria: Iterable[CriteriaSet], present: Mapping[str, Versions]) -> Iterator[str]:
    """Yield a sentence for each version that differs from the one with which the criteria were
    learned."""
    for criteria_set in criteria:
        now = present.get(criteria_set.nodes_sku, {})
        for name, learned in criteria_set.provenance.versions.items():
            if now.get(name, learned) != learned:
                yield (
                    f'{name} of {criteria_set.sku} is "{now[name]}", its criteria were learned '
                    f'with "{learned}": if many nodes differ from them, learn again'
                )
