"""NVLink domains: which GPUs of several nodes reach each other by NVLink.

`pdsh -w NODES nvidia-smi -q` has them, also if grep left only CliqueId and ClusterUUID:

    tray01:         CliqueId                          : 32766
    tray01:         ClusterUUID                       : 6f2a3c10-8d41-4f0e-9a55-0c1d2e3f4a5b

GPUs of one cluster and clique are in one domain. The lines may be in one file with a topology. The
label nvidia.com/gpu.clique of Kubernetes, and `domains:` of a fabric written by hand, say the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from anubis.core.fabric import Domain, DomainNode, Fabric, Remark, natural_key, single_switch
from anubis.readers.topology.draft import Survey

_FACT = re.compile(r"\s*([\w.-]+):\s+(CliqueId|ClusterUUID)\s*:\s*(\S+)\s*")
_HEAD = (
    r"=+NVSMI LOG=+|(Timestamp|Driver Version|CUDA Version|Attached GPUs)\s*:.*|GPU [0-9A-F]+:.*"
)
# of what nvidia-smi -q writes: nothing, indented facts, and the lines above them
_REST = re.compile(rf"\s*([\w.-]+):( ?| {{4,}}\S.*| ({_HEAD}))\s*")
NO_DOMAIN = ""  # what a GPU has that reaches no other node
CLIQUES = "nvlink-cliques"


def split(text: str) -> tuple[str, str]:
    """Split a text into what is no answer of nvidia-smi, and what is; both keep their line
    numbers."""
    rows = text.split("\n")
    hosts = {match[1] for row in rows if (match := _FACT.fullmatch(row))}
    if not hosts:
        return text, ""
    rest, answers = list[str](), list[str]()
    for row in rows:
        match = _FACT.fullmatch(row) or _REST.fullmatch(row)
        is_answer = match is not None and match[1] in hosts
        rest.append("" if is_answer else row)
        answers.append(row if is_answer else "")
    return "\n".join(rest), "\n".join(answers)


def parse(text: str) -> tuple[tuple[Domain, ...], list[Remark]]:
    """Return the domains in nvidia-smi's answers, and what is odd about them."""
    return group_gpus(_gpus_of_hosts(text))


def group_gpus(gpus_of: Mapping[str, Sequence[str]]) -> tuple[tuple[Domain, ...], list[Remark]]:
    """Group the GPUs of each host by the name of their domain. A host whose GPUs are in several
    counts for the one with most of them."""
    members: dict[str, list[DomainNode]] = {}
    findings = []
    for host, names in gpus_of.items():
        count = Counter(name for name in names if name != NO_DOMAIN)
        if not count:
            continue
        domain, _ = count.most_common(1)[0]
        gpus = tuple(gpu for gpu, name in enumerate(names) if name == domain)
        members.setdefault(domain, []).append(DomainNode(node=host, gpus=gpus))
        if len(gpus) < len(names):
            findings.append(_remark_on_rest(host, names, domain))
    domains = (
        Domain(name=name, nodes=tuple(sorted(nodes, key=lambda member: natural_key(member.node))))
        for name, nodes in sorted(members.items())
    )
    return tuple(domains), [*findings, *_remarks_on_cliques(members)]


def _gpus_of_hosts(text: str) -> dict[str, list[str]]:
    """The domain of each GPU of each host, in the order of nvidia-smi."""
    facts: dict[str, list[dict[str, str]]] = {}
    for row in text.split("\n"):
        if match := _FACT.fullmatch(row):
            host, key, value = match.groups()
            gpus = facts.setdefault(host, [{}])
            if key in gpus[-1]:
                gpus.append({})
            gpus[-1][key] = value
    return {host: [_domain(gpu) for gpu in gpus] for host, gpus in facts.items()}


def _domain(gpu: Mapping[str, str]) -> str:
    """The name of a GPU's domain. Hosts with NVLink of their own have a cluster of zeros."""
    cluster, clique = gpu.get("ClusterUUID", ""), gpu.get("CliqueId", "")
    is_known = cluster.strip("0-") and clique.isdecimal() and cluster != "N/A"
    return f"{cluster}.{clique}" if is_known else NO_DOMAIN


def _remark_on_rest(host: str, names: Sequence[str], domain: str) -> Remark:
    apart = [(gpu, name) for gpu, name in enumerate(names) if name != domain]
    listed = ", ".join(f"GPU {gpu} is in {name or 'none'}" for gpu, name in apart)
    sentence = f"{host}: {len(names) - len(apart)} of its {len(names)} GPUs are in NVLink domain "
    return Remark(kind="nvlink-apart", sentence=f"{sentence}{domain}; {listed}")


def _remarks_on_cliques(members: Mapping[str, Sequence[DomainNode]]) -> Iterable[Remark]:
    """Yield a remark on each cluster that is divided into several cliques."""
    clusters: dict[str, dict[str, int]] = {}
    for name, nodes in sorted(members.items()):
        cluster, _, clique = name.rpartition(".")
        clusters.setdefault(cluster, {})[clique] = len(nodes)
    for cluster, cliques in clusters.items():
        if cluster and len(cliques) > 1:
            listed = ", ".join(f"clique {clique}: {n} nodes" for clique, n in cliques.items())
            sentence = f"NVLink cluster {cluster} is divided into partitions ({listed})"
            yield Remark(kind=CLIQUES, sentence=sentence)


def add_domains(
    survey: Survey, domains: Sequence[Domain], findings: Iterable[Remark] = ()
) -> Survey:
    """Return the survey with these domains. Hosts that are called otherwise there (with a domain
    of DNS, in capitals) get the fabric's names; without any network, all count as being on one
    switch."""
    if not domains:
        return replace(survey, findings=(*survey.findings, *findings))
    fabric, odd = survey.fabric, [*survey.findings, *findings]
    if not fabric.nics:
        names = [member.node for domain in domains for member in domain.nodes]
        fabric = replace(single_switch(names), source=fabric.source, as_of=fabric.as_of)
        odd = [remark for remark in odd if remark.kind != "empty"]
        sentence = "only NVLink domains are described: all nodes count as being on one switch"
        odd.append(Remark(kind="no-network", sentence=sentence))
    named, twice = _named_as_in(fabric, domains)
    findings = (*odd, *twice)
    return replace(survey, fabric=replace(fabric, domains=named), findings=findings)


def _named_as_in(
    fabric: Fabric, domains: Sequence[Domain]
) -> tuple[tuple[Domain, ...], list[Remark]]:
    """The domains with the fabric's names of nodes, each node once, and what was left out."""
    in_fabric, taken = set(fabric.nodes), Counter(map(_plain, fabric.nodes))
    by_plain = {_plain(name): name for name in fabric.nodes if taken[_plain(name)] == 1}
    placed = set[str]()
    named, twice = list[Domain](), list[Remark]()
    for domain in domains:
        members = []
        for member in domain.nodes:
            node = member.node
            if node not in in_fabric:
                node = by_plain.get(_plain(node), node)
            if node in placed:
                sentence = f"NVLink domain {domain.name}: {member.node} is named twice: left out"
                twice.append(Remark(kind="node-twice", sentence=sentence))
                continue
            placed.add(node)
            members.append(replace(member, node=node))
        named.append(replace(domain, nodes=tuple(members)))
    return tuple(domain for domain in named if domain.nodes), twice


def _plain(name: str) -> str:
    return name.partition(".")[0].casefold()
