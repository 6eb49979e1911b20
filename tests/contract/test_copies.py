"""Copies between host and GPUs and between GPUs: schedule, bytes, ceilings; on CPU tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import contract
import host_device_copy
import kit.copies
import kit.numa
import kit.timing
import peer_copy
import pytest
import torch
from kit.copies import gpus_of
from kit.possession import Seconds

CPU = torch.device("cpu")
MIB = 1 << 20


@pytest.fixture
def report():
    def report(benchmark: contract.Benchmark) -> contract.Report:
        return contract.Report(frozenset(metric.name for metric in benchmark.metrics))

    return report


@pytest.fixture
def takes_2_ms(monkeypatch):
    """Every copy is made, and counts as 2 ms."""

    def seconds_per_call(call, device, samples):
        call()
        return Seconds([0.002] * samples)

    monkeypatch.setattr(kit.timing, "seconds_per_call", seconds_per_call)


def samples(report: contract.Report) -> dict[tuple[str, str], list[float]]:
    return {(s["metric"], s["device"]): s["samples"] for s in report.series}


# --- the pattern ---------------------------------------------------------------------------


def test_no_word_of_a_pattern_comes_twice_and_each_salt_has_its_own():
    one, two = (kit.copies.write_pattern(kit.copies.words(4 * 65536, CPU), salt) for salt in (1, 2))
    assert len(one.unique()) == one.numel() == 65536
    assert int((one == two).sum()) == 0


def test_words_that_are_wrong_strayed_or_never_came_are_counted():
    words = kit.copies.write_pattern(kit.copies.words(4 * 1000, CPU), salt=5)
    assert kit.copies.wrong_words(words, salt=5) == 0
    words[7] ^= 1 << 30
    words[10:12] = words[11:13].clone()  # shifted by one
    words[900:] = 0
    assert kit.copies.wrong_words(words, salt=5) == 1 + 2 + 100
    assert kit.copies.wrong_words(words, salt=6) == 1000


def test_copies_at_once_are_all_made():
    sources = [kit.copies.write_pattern(kit.copies.words(400, CPU), salt) for salt in (1, 2)]
    targets = [kit.copies.words(400, CPU) for _ in sources]
    kit.copies.copy_together(zip(targets, sources, strict=True), CPU)()
    assert (
        kit.copies.wrong_words(targets[0], salt=1)
        == kit.copies.wrong_words(targets[1], salt=2)
        == 0
    )


class Stream:
    """What torch's streams do, as words in a list."""

    said: ClassVar[list[str]] = []

    def __init__(self, gpu: torch.device, name: str = "") -> None:
        self.gpu, self.name = gpu, name or f"new{gpu.index}"

    def wait_stream(self, other: Stream) -> None:
        self.said.append(f"{self.name} waits for {other.name}")


@contextmanager
def on(stream: Stream) -> Iterator[None]:
    Stream.said.append(f"on {stream.name}")
    yield
    Stream.said.append(f"off {stream.name}")


class Tensor:
    def __init__(self, device: str) -> None:
        self.device = torch.device(device)

    def copy_(self, source: Tensor, non_blocking: bool) -> None:
        assert non_blocking
        Stream.said.append(f"{source.device} to {self.device}")


def test_each_copy_has_its_own_streams_at_both_ends_between_start_and_end(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda gpu: Stream(gpu, f"main{gpu.index}"))
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(kit.copies, "gpus_of", lambda *t: sorted(gpus_of(*t), key=str))
    a, b = Tensor("cuda:0"), Tensor("cuda:1")
    call = kit.copies.copy_together([(b, a), (a, b)], a.device)
    Stream.said.clear()
    call()
    said = Stream.said
    assert said[:4] == ["new0 waits for main0", "new1 waits for main0"] * 2
    assert said[4:9] == ["on new0", "on new1", "cuda:0 to cuda:1", "off new1", "off new0"]
    assert said[9:14] == ["on new0", "on new1", "cuda:1 to cuda:0", "off new1", "off new0"]
    assert said[14:] == ["main0 waits for new0", "main0 waits for new1"] * 2


# --- between GPUs --------------------------------------------------------------------------


def usual(size_bytes: int, *patterns: str, engine: str = "copy") -> peer_copy.Copies:
    return peer_copy.Copies(patterns or ("one_way", "both_ways"), engine, size_bytes)


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_every_pattern_has_each_copy_that_it_is_called_after_and_no_other(gpus):
    names = [f"cuda:{gpu}" for gpu in range(gpus)]
    every = {(a, b) for a in range(gpus) for b in range(gpus) if a != b}
    rounds = {pattern: peer_copy.schedule(names, [pattern]) for pattern in peer_copy.PATTERNS}
    for of_pattern in rounds.values():
        pairs = [pair for one_round in of_pattern for pair in one_round.pairs]
        assert len(pairs) == len(every) == len(set(pairs))
    assert [len(rounds[p]) for p in ("one_way", "both_ways")] == [len(every), len(every) / 2]
    assert all(b == a[::-1] for a, b in (each_way.pairs for each_way in rounds["both_ways"]))
    assert [{a for a, _ in r.pairs} for r in rounds["one_to_all"]] == [{a} for a in range(gpus)]
    assert [{b for _, b in r.pairs} for r in rounds["all_to_one"]] == [{b} for b in range(gpus)]
    (together,) = rounds["all_to_all"]
    assert (together.device, set(together.pairs)) == ("cuda:all", every)


@pytest.fixture
def three():
    return [torch.device("cpu", index) for index in range(3)]


def test_bytes_of_both_directions_count(report, three, takes_2_ms):
    filled = report(peer_copy.BENCHMARK)
    peer_copy.copy_all(filled, three, usual(4 * MIB), samples=2)
    found = samples(filled)
    rate = 4 * MIB / 0.002 / 1e9
    assert found["bandwidth_gbps:one_way", "cpu:2-cpu:0"] == pytest.approx([rate] * 2)
    assert found["bandwidth_gbps:both_ways", "cpu:0-cpu:2"] == pytest.approx([2 * rate] * 2)
    assert found["agreement", "cpu:1-cpu:2"] == [1.0]
    assert len(found) == 6 + 3 + 6


@pytest.mark.parametrize("engine", ["copy", "sm"])
def test_copies_by_all_gpus_at_once_count_once_for_each_and_are_checked(
    report, three, takes_2_ms, engine
):
    filled = report(peer_copy.BENCHMARK)
    copies = usual(4 * MIB, "one_to_all", "all_to_one", "all_to_all", engine=engine)
    peer_copy.copy_all(filled, three, copies, samples=1)
    found = samples(filled)
    rate = 2 * 4 * MIB / 0.002 / 1e9  # of two others, out of a GPU, into one, into each of three
    assert found["bandwidth_gbps:one_to_all", "cpu:1"] == pytest.approx([rate])
    assert found["bandwidth_gbps:all_to_one", "cpu:2"] == pytest.approx([rate])
    assert found["bandwidth_gbps:all_to_all", "cpu:all"] == pytest.approx([rate])
    assert {found["agreement", device][0] for name, device in found if name == "agreement"} == {1.0}
    assert len(found) == 3 + 3 + 1 + 4


@pytest.mark.parametrize("size_bytes", [64, 4000, MIB, 5 * MIB])
def test_rows_with_gaps_have_the_same_words_and_no_copy_engine_takes_them(size_bytes):
    rows = kit.copies.rows(size_bytes, CPU)
    assert not rows.is_contiguous()
    assert 0.9 * size_bytes <= rows.nbytes <= size_bytes
    kit.copies.write_pattern(rows, 3)
    line = kit.copies.write_pattern(torch.zeros(rows.numel(), dtype=torch.int32), 3)
    assert torch.equal(rows.flatten(), line)
    received = kit.copies.rows(size_bytes, CPU)
    received.copy_(rows)
    assert kit.copies.wrong_words(received, 3) == 0
    received[1, 1] ^= 1
    assert kit.copies.wrong_words(received, 3) == 1


def test_kernels_that_cannot_reach_a_neighbour_are_not_applicable(report, monkeypatch):
    monkeypatch.setattr(kit.timing, "gpus", lambda: 2)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda a, b: False)
    with pytest.raises(contract.NotApplicable, match="none between cuda:0 and cuda:1"):
        peer_copy.measure(report(peer_copy.BENCHMARK), "one_way", "sm", MIB, 1)


def test_a_copy_that_spoils_a_word_shows_on_its_own_pair(report, three, takes_2_ms, monkeypatch):
    sound = kit.copies.copy_together

    def spoilt(copies, device):
        call = sound(copies, device)

        def broken():
            call()
            if device.index == 2:
                copies[0][0][11] ^= 1

        return broken

    monkeypatch.setattr(kit.copies, "copy_together", spoilt)
    filled = report(peer_copy.BENCHMARK)
    peer_copy.copy_all(filled, three, usual(MIB), samples=1)
    wrong = {
        device for (name, device), [x] in samples(filled).items() if name == "agreement" and x < 1
    }
    assert wrong == {"cpu:2-cpu:0", "cpu:2-cpu:1"}


def test_a_copy_that_never_arrives_is_wrong_in_every_word(report, three, takes_2_ms, monkeypatch):
    monkeypatch.setattr(kit.copies, "copy_together", lambda copies, device: lambda: None)
    filled = report(peer_copy.BENCHMARK)
    peer_copy.copy_all(filled, three[:2], usual(4000), samples=1)
    # the pair (0, 1) also goes both ways, and 0 is the right word of salt 0 at place 0
    assert samples(filled)["agreement", "cpu:0-cpu:1"] == contract.agreement(3 * 1000 - 2)
    assert samples(filled)["agreement", "cpu:1-cpu:0"] == contract.agreement(1000)


def test_one_gpu_has_no_peer(report, monkeypatch):
    for count, words in ((0, "none"), (1, "only one")):
        monkeypatch.setattr(kit.timing, "gpus", lambda count=count: count)
        with pytest.raises(contract.NotApplicable, match=f"need two of them, and here is {words}"):
            peer_copy.measure(report(peer_copy.BENCHMARK), "one_way", "copy", MIB, 1)


# --- between host and GPU ------------------------------------------------------------------


def node(index: int, *distances: int) -> kit.numa.Node:
    return kit.numa.Node(
        index=index,
        cpus=frozenset(kit.numa.os.sched_getaffinity(0)),
        all_cpus=frozenset(),
        memory_bytes=1 << 30,
        distances=dict(enumerate(distances)),
    )


def test_memory_of_every_node_is_measured_and_named_by_its_distance(report, takes_2_ms):
    near, *_ = nodes = [node(0, 10, 12, 32), node(1, 12, 10, 32), node(2, 32, 32, 10)]
    filled = report(host_device_copy.BENCHMARK)
    host_device_copy.across_the_link(filled, CPU, MIB, 2, near, nodes)
    found, rate = samples(filled), MIB / 0.002 / 1e9
    assert found.pop((f"both_ways_gbps:pinned/{MIB}", "cpu")) == pytest.approx([2 * rate] * 2)
    assert found.pop((f"agreement:{MIB}", "cpu")) == [1.0]
    places = {
        ("pageable", "cpu"),
        ("pinned", "cpu"),
        ("pinned/far12", "cpu-numa1"),
        ("pinned/far32", "cpu-numa2"),
    }
    ways = ("h2d_gbps", "d2h_gbps")
    assert set(found) == {(f"{way}:{kind}/{MIB}", at) for way in ways for kind, at in places}
    assert all(numbers == pytest.approx([rate] * 2) for numbers in found.values())


def test_without_knowledge_of_the_near_node_no_node_is_called_far(report, takes_2_ms):
    filled = report(host_device_copy.BENCHMARK)
    host_device_copy.across_the_link(filled, CPU, MIB, 1, None, [node(0, 10, 21), node(1, 21, 10)])
    assert {where for _, where in samples(filled)} == {"cpu"}
    assert not [name for name, _ in samples(filled) if "far" in name]


def test_buffers_of_a_node_are_kept_and_not_another_nodes():
    host_device_copy.host_words.cache_clear()
    zero, one = node(0, 10, 21), node(1, 21, 10)
    first = host_device_copy.host_words(MIB, zero, True)
    assert host_device_copy.host_words(MIB, zero, True) is first
    addresses = {buffer.data_ptr() for buffer in first}
    assert not addresses & {b.data_ptr() for b in host_device_copy.host_words(MIB, one, True)}


@pytest.mark.parametrize("lost", ["there", "back"])
def test_bytes_that_go_wrong_on_either_way_are_a_measured_metric(report, lost, monkeypatch):
    """The first call is the way there, the second the way back."""
    filled, calls = report(host_device_copy.BENCHMARK), []

    def seconds_per_call(call, device, samples):
        calls.append(call)
        if (lost == "there") != (len(calls) == 1):
            call()
        return Seconds([0.002] * samples)

    monkeypatch.setattr(kit.timing, "seconds_per_call", seconds_per_call)
    sent, received, there = (kit.copies.words(4000, CPU) for _ in range(3))
    for used in (received, there):  # by the GPU before, with the very same bytes
        kit.copies.write_pattern(used, salt=1)
    wrong = host_device_copy.there_and_back(
        filled, "pinned/4000", "cpu", (sent, received), there, samples=1
    )
    assert wrong == 1000


def test_both_ways_checks_both_ends(report, takes_2_ms, monkeypatch):
    sound = kit.copies.copy_together
    monkeypatch.setattr(
        kit.copies, "copy_together", lambda copies, device: sound(copies[1:], device)
    )
    sent, received, there, other = (kit.copies.words(4000, CPU) for _ in range(4))
    wrong = host_device_copy.both_ways(
        report(host_device_copy.BENCHMARK), "k", "cpu", (sent, received), (there, other), samples=1
    )
    assert wrong == 1000  # what should have gone there


@pytest.mark.parametrize(
    ("gigatransfers", "lanes", "gbps"),
    [
        (2.5, 1, 0.25),
        (5.0, 16, 8.0),
        (8.0, 16, 15.754),
        (64.0, 16, 121.0),
        (16.0, 16, 31.508),
        (32.0, 16, 63.015),
    ],
)
def test_the_ceiling_of_pcie_is_the_published_one(gigatransfers, lanes, gbps):
    assert host_device_copy.pcie_gbps(gigatransfers, lanes) == pytest.approx(gbps, abs=0.001)


def test_the_ceiling_is_stated_only_if_the_slot_is_known(report, tmp_path, monkeypatch):
    monkeypatch.setattr(kit.numa, "SYS", tmp_path)
    monkeypatch.setattr(host_device_copy.platform, "machine", lambda: "x86_64")
    for address, speed in (("0000:1b:00.0", "32.0 GT/s PCIe"), ("0000:2c:00.0", "Unknown")):
        slot = tmp_path / "bus/pci/devices" / address
        slot.mkdir(parents=True)
        (slot / "max_link_speed").write_text(f"{speed}\n")
        (slot / "max_link_width").write_text("16\n")
    for address in ("0000:2c:00.0", "0000:3d:00.0", None):
        unknown = report(host_device_copy.BENCHMARK)
        host_device_copy.state_ceilings(unknown, address, [MIB])
        assert unknown.notes == {}
    known = report(host_device_copy.BENCHMARK)
    host_device_copy.state_ceilings(known, "0000:1B:00.0", [MIB])
    ceilings = known.notes["ceilings"]
    assert set(ceilings) == {f"h2d_gbps:pinned/{MIB}", f"d2h_gbps:pinned/{MIB}"}
    assert ceilings[f"h2d_gbps:pinned/{MIB}"]["value"] == pytest.approx(63.015, abs=0.001)
    assert ceilings[f"h2d_gbps:pinned/{MIB}"]["source"] == "PCIe, 32 GT/s on 16 lanes (sysfs)"


@pytest.mark.parametrize("sizes", ["", "3", "1048576,big", "-4"])
def test_sizes_that_cannot_be_are_refused(sizes, near, benchmark_file):
    ran = near(benchmark_file("host_device_copy"), f"--bytes={sizes}")
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)


def test_without_a_gpu_each_size_is_copied_within_the_host(near, benchmark_file):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    ran = near(
        benchmark_file("host_device_copy"), "--smoke", "--bytes=4096,65537,4096", "--samples=2"
    )
    assert ran.exit_code == 0, ran.stderr
    assert {series["metric"] for series in ran.document["series"]} == {
        *("host_copy_gbps:4096", "host_copy_gbps:65537"),
        *("agreement:4096", "agreement:65537"),
    }
