"""Two nodes and one way between them: the ranks at its ends, and a tool's server and client.

A pair program runs under torchrun on two nodes, with one rank per GPU or one for a CPU node. The
first rank of each node works, the others wait. Alone on one machine two ranks act as the nodes.
Both ends always come to the same answer, so that neither waits for one that left.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import contract

from kit import tools
from kit.network.ports import NO_HCA, Hca, active

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
DIRECTIONS = {"forth": 0, "back": 1}  # and the end that sends: the first node, or the second
LATENCY_UP_TO = 1 << 16  # bytes
OF_PAIR_TEST = (
    contract.Parameter(
        "shift",
        0,
        "across rails: HCA or GPU i of the first node meets i + shift of the second, counted round",
        at_least=0,
        of_pair_test=True,
    ),
    contract.Parameter(
        "rails",
        "",
        'the rails that a shift counts, by the number or name of their HCAs; "": all that are up',
        of_pair_test=True,
    ),
)
METRICS = (
    contract.higher(
        "bandwidth_gbps",
        "GB/s",
        "by direction (forth: first node to second) and message size",
        ceiling="the NIC's link rate, one way",
    ),
    contract.lower("latency_us", "us", "one way, half of a round trip"),
)

Test = tuple[str, int, int]  # "gbps" or "us", size of a message, end that sends
Numbers = Callable[[str, int, int], list[float]]  # samples of a test


@dataclass(frozen=True, kw_only=True)
class Way:
    """A tool's server, by its port, and its client, by address and port; and their processors."""

    server: Callable[[int], Sequence[str]]
    client: Callable[[str, int], Sequence[str]]
    cpus: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Pair:
    end: int | None  # 0 on the first node, 1 on the second, None for a rank that only waits
    group: ProcessGroup
    address: str

    def tell(self, thing: Any) -> list[Any]:
        """Exchange a value with the other end; return both, the first node's first."""
        from kit.group import everyones

        return everyones(thing, self.group)


def ends(env: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the ranks that work: the first of each node, or both of a pair on one machine."""
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
def pair_nodes(report: contract.Report) -> Iterator[Pair]:
    """Pair two nodes, inside the group of all ranks; at the end all of them have what rank 0
    measured."""
    import torch.distributed as dist

    from kit.group import everyones

    first, second = ends()
    rank = dist.get_rank()
    yield Pair(
        end={first: 0, second: 1}.get(rank),
        group=dist.new_group([first, second], backend="gloo"),
        address=tools.own_address(os.environ["MASTER_ADDR"]),
    )
    report.series = everyones(report.series)[0]


def tests_of(sizes: Sequence[int]) -> Iterator[Test]:
    """Yield the tests of bandwidth in both directions, and of latency if a message is small."""
    for size in sizes:
        yield from (("gbps", size, sender) for sender in DIRECTIONS.values())
        if size <= LATENCY_UP_TO:
            yield "us", size, 0


def report_sizes(report: contract.Report, device: str, numbers: Numbers, sizes: list[int]) -> None:
    directions = {sender: name for name, sender in DIRECTIONS.items()}
    for unit, size, sender in tests_of(sizes):
        is_latency = unit == "us"
        metric = "latency_us:" if is_latency else f"bandwidth_gbps:{directions[sender]}/"
        report.add(f"{metric}{size}", device, numbers(unit, size, sender))


def transfer(
    pair: Pair, sender: int, way: Way, limit_s: float, env: Mapping[str, str] | None = None
) -> str:
    """Run server and client, and return on both ends what the client at the sending end printed."""
    return agree(transfer_at_once(pair, sender, {"": way}, limit_s, env)[""])


def transfer_at_once(
    pair: Pair,
    sender: int,
    ways: Mapping[str, Way],
    limit_s: float,
    env: Mapping[str, str] | None = None,
) -> dict[str, str | contract.Unmeasured]:
    """Run the server and client of each way at the same time, and return on both ends what each
    client printed, or why it has no answer."""
    with ThreadPoolExecutor(len(ways)) as pool, ExitStack() as servers:
        if pair.end == sender:
            ports = pair.tell(None)[1 - sender]
            calls = pool.map(lambda name: _call(ways[name], ports[name], limit_s, env), ways)
            return pair.tell(dict(zip(ways, calls, strict=True)))[sender]
        started = pool.map(lambda way: _serve(way, pair.address, limit_s, env), ways.values())
        ports = {}
        for name, (serving, port) in zip(ways, started, strict=True):
            servers.push(serving)
            ports[name] = port
        pair.tell(ports)
        return pair.tell(None)[sender]


def _serve(
    way: Way, address: str, limit_s: float, env: Mapping[str, str] | None
) -> tuple[ExitStack, tuple[str, int] | contract.Unmeasured]:
    """Return what ends the server, and its address and port, or why it did not start."""
    serving = ExitStack()
    try:
        port, _ = serving.enter_context(tools.serve(way.server, limit_s, env, way.cpus))
    except contract.Unmeasured as error:
        return serving, error
    return serving, (address, port)


def _call(
    way: Way,
    port: tuple[str, int] | contract.Unmeasured,
    limit_s: float,
    env: Mapping[str, str] | None,
) -> str | contract.Unmeasured:
    try:
        argv = way.client(*agree(port))
        return tools.require_success(tools.run(argv, limit_s, env, way.cpus), Path(argv[0]).name)
    except contract.Unmeasured as error:
        return error


def agree(outcome: T | contract.Unmeasured) -> T:
    if isinstance(outcome, contract.Unmeasured):
        raise outcome
    return outcome


# --- what both nodes must have: all ranks ask together and come to the same answer ----------


def everywhere(look: Callable[[], T]) -> T:
    """Return the result of a check of this node, if no other rank's check found it not
    applicable."""
    from kit.group import everyones

    answers: list[T] = []
    lack = ""
    try:
        answers.append(look())
    except contract.NotApplicable as refusal:
        lack = f"{platform.node()}: {refusal}"
    if lacks := list(filter(None, everyones(lack))):
        raise contract.NotApplicable(lacks[0])
    return answers[0]


def side() -> int:
    """Return 0 for the ranks of the first node, 1 for those of the second."""
    return int(int(os.environ["RANK"]) >= ends()[1])


def common_rails(names: str) -> tuple[dict[str, Hca], int]:
    """Return the HCAs here that are up on both nodes, of those named, by the device that each pair
    of them is; and how many are up on one node only.

    A rail joins HCAs of one name. No HCA at all is another kind of machine; one too few is not.
    """
    from kit.group import everyones

    own = {hca.name: hca for hca in active()}
    all_ranks = everyones(sorted(own))
    first, second = (set(all_ranks[end]) for end in ends())
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
    common = {f"{name}-{name}": hca for name, hca in own.items() if name in first & second}
    return common, len(first ^ second)


def shifted_rails(names: str, shift: int) -> dict[str, Hca]:
    """Return the HCAs here whose partner at the second node is `shift` rails further on, by
    device."""
    from kit.group import everyones

    own = {hca.name: hca for hca in active()}
    all_ranks = everyones(list(own))
    first, second = (all_ranks[end] for end in ends())
    order = contract.split(names) or sorted({*first, *second}, key=_number_key)
    met = [
        (near, far)
        for place, rail in enumerate(order)
        for near in _hca_of_rail(first, rail)
        for far in _hca_of_rail(second, order[(place + shift) % len(order)])
    ]
    if not met:
        raise contract.Unmeasured(
            f"no HCAs meet {shift} rails apart: {', '.join(first) or 'none'} is up on the first "
            f"node, {', '.join(second) or 'none'} on the second"
        )
    return {f"{near}-{far}": own[(near, far)[side()]] for near, far in met}


def _hca_of_rail(names: Sequence[str], rail: str) -> list[str]:
    """Return the HCA of that name or number: mlx5_3 is on rail 3."""
    return [name for name in names if rail in (name, re.sub(r"^mlx\d+_(?=\d)", "", name))][:1]


def _number_key(name: str) -> tuple[str, int]:
    head, digits = re.fullmatch(r"(.*?)(\d*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return head, int(digits or 0)
