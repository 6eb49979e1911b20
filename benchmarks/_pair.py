"""Two nodes and one way between them: who stands at which end, and a tool's server and client.

A pair program runs under torchrun on two nodes, with one rank per GPU or one for a CPU node. The
first rank of each node works, the others wait. Alone on one machine two ranks stand for the nodes.
Both ends always come to the same answer, so that neither waits for one that left.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import _tools
import contract
from _ports import NO_HCA, Hca, active

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
DIRECTIONS = {"forth": 0, "back": 1}  # and the end that sends: the first node, or the second
LATENCY_UP_TO = 1 << 16  # bytes
METRICS = (
    contract.higher(
        "bandwidth_gbps",
        "GB/s",
        "by direction (forth: first node to second) and message size",
        ceiling="the NIC's link rate, one way",
    ),
    contract.lower("latency_us", "us", "one way, half of a round trip"),
)

Numbers = Callable[[str, int, int], list[float]]  # samples of "gbps" or "us", by size and sender


@dataclass(frozen=True, kw_only=True)
class Pair:
    end: int | None  # 0 on the first node, 1 on the second, None for a rank that only waits
    group: ProcessGroup
    address: str

    def tell(self, thing: Any) -> list[Any]:
        """What both ends say at this point, the first node's first."""
        import torch.distributed as dist

        things = [None, None]
        dist.all_gather_object(things, thing, group=self.group)
        return things


def ends(env: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """The ranks that work: the first of each node, or both of a pair on one machine."""
    nodes, ranks, local = (
        int(env[name]) for name in ("GROUP_WORLD_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    )
    if nodes == 2 and ranks == 2 * local:
        return 0, local
    if nodes == 1 and ranks > 1:
        return 0, 1
    raise contract.Unmeasured(
        f"a pair needs two nodes with equally many ranks, found {ranks} ranks on {nodes} nodes"
    )


@contextmanager
def paired(report: contract.Report) -> Iterator[Pair]:
    """Inside the group of all ranks; at the end all of them hold what rank 0 measured."""
    import torch.distributed as dist
    from _group import everyones

    first, second = ends()
    rank = dist.get_rank()
    yield Pair(
        end={first: 0, second: 1}.get(rank),
        group=dist.new_group([first, second], backend="gloo"),
        address=_tools.own_address(os.environ["MASTER_ADDR"]),
    )
    report.series = everyones(report.series)[0]


def report_sizes(report: contract.Report, device: str, numbers: Numbers, sizes: list[int]) -> None:
    """Bandwidth in both directions, and latency where a message is small."""
    for size in sizes:
        for name, sender in DIRECTIONS.items():
            report.add(f"bandwidth_gbps:{name}/{size}", device, numbers("gbps", size, sender))
        if size <= LATENCY_UP_TO:
            report.add(f"latency_us:{size}", device, numbers("us", size, 0))


def transfer(
    pair: Pair,
    sender: int,
    server: Callable[[int], Sequence[str]],
    client: Callable[[str, int], Sequence[str]],
    limit_s: float,
    env: Mapping[str, str] | None = None,
    cpus: frozenset[int] = frozenset(),
) -> str:
    """What the client at the sending end printed, told to both ends."""
    if pair.end == sender:
        where: tuple[str, int] = agreed(pair.tell(None)[1 - sender])
        return agreed(pair.tell(outcome_of(client(*where), limit_s, env, cpus))[sender])
    with ExitStack() as stack:
        try:
            port, _ = stack.enter_context(_tools.served(server, limit_s, env, cpus))
        except contract.Unmeasured as error:
            pair.tell(error)
            raise
        pair.tell((pair.address, port))
        return agreed(pair.tell(None)[sender])


def outcome_of(
    argv: Sequence[str], limit_s: float, env: Mapping[str, str] | None, cpus: frozenset[int]
) -> str | contract.Unmeasured:
    try:
        return _tools.checked(_tools.run(argv, limit_s, env, cpus), Path(argv[0]).name)
    except contract.Unmeasured as error:
        return error


def agreed(outcome: T | contract.Unmeasured) -> T:
    if isinstance(outcome, contract.Unmeasured):
        raise outcome
    return outcome


# --- what both nodes must have: all ranks ask together and come to the same answer ----------


def everywhere(look: Callable[[], T]) -> T:
    """What a look at this node found, if no other rank's look found it not applicable."""
    from _group import everyones

    answers: list[T] = []
    lack = ""
    try:
        answers.append(look())
    except contract.NotApplicable as refusal:
        lack = f"{platform.node()}: {refusal}"
    if lacks := list(filter(None, everyones(lack))):
        raise contract.NotApplicable(lacks[0])
    return answers[0]


def rails(names: str) -> tuple[list[Hca], int]:
    """The HCAs here that are up on both nodes, of those named, and how many are up on one only.

    A rail joins HCAs of one name. No HCA at all is another kind of machine; one too few is not.
    """
    from _group import everyones

    own = {hca.name: hca for hca in active()}
    everybody = everyones(sorted(own))
    first, second = (set(everybody[end]) for end in ends())
    if chosen := set(contract.split(names)):
        if unknown := chosen - first - second:
            raise contract.BadParameter(f"no active HCA is called {', '.join(sorted(unknown))}")
        first, second = first & chosen, second & chosen
    if not first | second:
        raise contract.NotApplicable(NO_HCA)
    if not first & second:
        raise contract.Unmeasured(
            f"the nodes share no HCA: {', '.join(sorted(first)) or 'none'} is up on the first, "
            f"{', '.join(sorted(second)) or 'none'} on the second"
        )
    return [hca for name, hca in own.items() if name in first & second], len(first ^ second)
