import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anubis.core.errors import HostlistError
from anubis.text import hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-003]", ["node001", "node002", "node003"]),
        ("gpu-[1-2,7],login1", ["gpu-1", "gpu-2", "gpu-7", "login1"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("a, b\nc", ["a", "b", "c"]),
        ("x[9-11].rack2", ["x9.rack2", "x10.rack2", "x11.rack2"]),
        ("node[099-101]", ["node099", "node100", "node101"]),
        ("a[1-2]-b", ["a1-b", "a2-b"]),
    ],
)
def test_lists_are_read_as_slurm_writes_them(text, names):
    assert hostlist.expand(text) == names
    assert hostlist.expand(hostlist.compress(names)) == names


def test_the_short_form_is_the_one_scontrol_prints():
    names = hostlist.expand("node[001-003],node005,login")
    assert hostlist.compress(names) == "node[001-003,005],login"
    assert hostlist.compress(["x9", "x10"]) == "x[9-10]"


name = st.from_regex(r"[a-c]{1,2}[0-9]{0,3}[a-c]?", fullmatch=True)


@pytest.mark.long
@given(st.lists(name, min_size=1, max_size=30, unique=True))
def test_a_compressed_host_list_expands_to_the_same_names(names):
    assert hostlist.expand(hostlist.compress(names)) == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no node"),
        (",", "names no node"),
        ("a[1-3", "brackets"),
        ("a1-3]", "brackets"),
        ("a[]", "not a number or range"),
        ("a[3-1]", "runs backwards"),
        ("a[1-x]", "not a number or range"),
        ("a[1-99999999]", "more than"),
        ("a[1-2000]b[1-2000]", "more than"),
        ("node1,node1", "twice"),
        ("a;b", "not a node name"),
        ("--json", "begins with a dash"),
        ("a,-[1-2]", "begins with a dash"),
    ],
)
def test_the_unreadable_part_of_a_host_list_is_named(text, words):
    with pytest.raises(HostlistError, match=words):
        hostlist.expand(text)


def test_no_name_can_be_taken_for_an_option_by_the_commands_that_get_it():
    assert [hostlist.is_name(text) for text in ("n-1", "-n1", "--json")] == [True, False, False]


def test_a_file_has_one_list_per_line_with_comments(tmp_path: Path):
    file = tmp_path / "nodes"
    file.write_text("\ufeffnode[1-2]  # rack 1\n\n# login1\ngpu7\n")
    assert hostlist.read(f"@{file}") == ["node1", "node2", "gpu7"]


def test_a_file_that_is_absent_or_empty_is_an_error_that_names_it(tmp_path: Path):
    with pytest.raises(HostlistError, match="nowhere"):
        hostlist.read(f"@{tmp_path}/nowhere")
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(HostlistError, match="names no node"):
        hostlist.read(f"@{tmp_path}/empty")


def test_too_many_names_are_refused_before_they_are_written_out():
    tracemalloc.start()
    try:
        with pytest.raises(HostlistError, match="names more than 1,000,000 nodes"):
            hostlist.expand("sn[1-999999][1-999999][0-1]")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


label = st.sampled_from(["n1", "n2", "gpu-1", "10"])
domain = st.sampled_from(["", ".a.org", ".b.org"])


@given(st.lists(st.tuples(label, domain), min_size=1, unique=True), st.tuples(label, domain))
def test_a_host_is_found_by_the_names_that_monitors_have_for_it_unless_several_may_be_meant(
    fleet, meant
):
    names, (host, domain) = ["".join(name) for name in fleet], meant
    same = [h + d for h, d in fleet if h == host and (d == domain or "" in (d, domain))]
    same = [f"{host}{domain}"] if meant in fleet else same
    same = [name for name in same if not host.isdecimal() or name == f"{host}{domain}"]
    found = hostlist.HostNames(names)
    for reported in (f"{host}{domain}", f"{host}{domain}:9100"):
        assert found.find(reported) == (same[0] if len(same) == 1 else None)
    if meant not in fleet:  # otherwise a host may be called in capitals as well
        assert found.find(f"{host}{domain}".upper()) == found.find(f"{host}{domain}")
