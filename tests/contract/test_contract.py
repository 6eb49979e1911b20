"""contract.py, seen through small programs: what it lets through, and what it refuses."""

from __future__ import annotations

import math
import os
import select
import subprocess
import sys
from pathlib import Path

import contract
import pytest

BENCHMARKS = Path(contract.__file__).parent

PREAMBLE = """
import os, subprocess, sys
from dataclasses import replace
import contract
BENCHMARK = contract.Benchmark(
    name="tiny", version="7", summary="100% tiny.", stresses="little", reveals="less",
    level="micro", scope="node", duration_s=0.1,
    metrics=(contract.Metric("speed", "m/s", "higher"),),
    parameters=(
        contract.Parameter("size", 100, "how big", smoke=1, at_least=0),
        contract.Parameter("factor", 1.0, "how much"),
        contract.Parameter("exact", False, "how well"),
        contract.Parameter("words", "a,b", "which"),
    ),
)
def measure(report, size, factor, exact, words):
"""
EPILOGUE = "\ncontract.run(BENCHMARK, measure)\n"
RANKS = "\ncontract.run(replace(BENCHMARK, launcher='torchrun'), measure, lambda: {})\n"


@pytest.fixture
def tiny(tmp_path, run):
    """Runs a program whose `measure` has the given body."""

    def tiny(body: str, *arguments: str, ranks: int = 0, **env: str):
        program = tmp_path / "tiny.py"
        end = RANKS.format(ranks) if ranks else EPILOGUE
        program.write_text(PREAMBLE + "    " + body.replace("\n", "\n    ") + end)
        return run(program, *arguments, env={**os.environ, "PYTHONPATH": str(BENCHMARKS), **env})

    return tiny


GOOD = 'report.add("speed:fast", "cpu", [1.0, 2.0])'


def test_stdout_has_only_the_document_even_when_everything_prints(tiny):
    noise = 'print("py"); os.write(1, b"c\\n"); subprocess.run(["echo", "child"]); '
    ran = tiny(noise + GOOD)
    assert ran.exit_code == 0
    assert ran.document["series"] == [
        {"metric": "speed:fast", "device": "cpu", "samples": [1.0, 2.0]}
    ]
    assert sorted(ran.stderr.split()) == ["c", "child", "py"]


@pytest.mark.parametrize("sample", ["float('nan')", "float('inf')", "0.0", "-1.0"])
def test_a_sample_that_is_no_positive_finite_number_is_refused(tiny, sample):
    ran = tiny(f'report.add("speed", "cpu", [1.0, {sample}])')
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert 'metric "speed" of cpu has the sample' in ran.stderr
    assert "Traceback" not in ran.stderr


def test_only_a_metric_that_a_limit_judges_may_be_zero(tiny):
    report = contract.Report(frozenset({"speed", "errors"}), facts=frozenset({"errors"}))
    report.add("errors:fatal", "cpu", [0, 2])
    for metric, sample in (("errors", -1.0), ("errors", math.inf), ("speed", 0.0)):
        with pytest.raises(contract.Unmeasured, match="has the sample"):
            report.add(metric, "cpu", [sample])
    ran = tiny(GOOD, "--describe")
    assert ran.document["metrics"][0]["judged_by"] == "fleet"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('report.add("mass", "cpu", [1.0])', 'metric "mass" is not declared'),
        ('report.add("speed", "cpu", [])', "no samples"),
        ('report.add("speed", "cpu", [1.0])\n' * 2, "reported twice"),
        ("pass", "nothing was measured"),
    ],
)
def test_a_document_that_could_not_be_compared_is_refused(tiny, body, complaint):
    ran = tiny(body)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert complaint in ran.stderr


def test_not_applicable_is_a_document_with_the_reason_and_exit_3(tiny):
    ran = tiny(GOOD + '\nraise contract.NotApplicable("no wheels here")')
    assert ran.exit_code == 3
    assert ran.document["series"] == []
    assert ran.document["not_applicable"] == "no wheels here"


ALL_BUT_RANK_0_WAIT = 'if os.environ["RANK"] != "0":\n    import time\n    time.sleep(60)\n'


@pytest.mark.parametrize(
    ("body", "exit_code"),
    [
        (GOOD, 0),
        ('raise contract.NotApplicable("no wheels here")', 3),
        ('raise contract.BadParameter("size cannot be odd")', 2),
        (ALL_BUT_RANK_0_WAIT + "os.kill(os.getpid(), 9)", 1),
    ],
)
def test_a_group_alone_on_its_machine_ends_as_its_first_rank_to_fail(tiny, body, exit_code):
    """torchrun itself ends with 1 for any end of a rank."""
    ran = tiny(body, ranks=2)
    assert ran.exit_code == exit_code, ran.stderr
    assert bool(ran.stdout) == (exit_code in (0, 3))
    if exit_code == 3:
        assert ran.document["not_applicable"] == "no wheels here"
    assert "Traceback" not in ran.stderr


def test_a_crash_leaves_its_traceback_and_no_document(tiny):
    ran = tiny("1 / 0")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "ZeroDivisionError" in ran.stderr


def test_parameters_are_complete_and_typed_in_the_document(tiny):
    ran = tiny(GOOD, "--size=3", "--exact=true", "--words=c", "--factor=2")
    assert ran.document["parameters"] == {"size": 3, "factor": 2.0, "exact": True, "words": "c"}


def test_smoke_replaces_defaults_and_yields_to_stated_values(tiny):
    assert tiny(GOOD, "--smoke").document["parameters"]["size"] == 1
    assert tiny(GOOD, "--smoke", "--size=5").document["parameters"]["size"] == 5
    assert tiny(GOOD).document["parameters"]["size"] == 100


@pytest.mark.parametrize("argument", ["--exact=yes", "--size=1.5", "--factor=inf", "--siz=1", "x"])
def test_an_unreadable_argument_is_refused_in_one_line(tiny, argument):
    ran = tiny(GOOD, argument)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1


def test_agreement_is_1_when_right_and_halves_with_the_first_wrong_answer():
    assert contract.agreement(0) == [1.0]
    assert contract.agreement(1) == [0.5]
    assert 0 < contract.agreement(10**12)[0] < 1e-11


def test_the_environment_names_this_machine():
    facts = contract.environment()
    assert facts["hostname"] == Path("/proc/sys/kernel/hostname").read_text().strip()
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["cpu"] == "" or f": {facts['cpu']}\n" in Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize(
    ("number", "version"), [(91002, "9.10.2"), (90100, "9.1.0"), (8902, "8.9.2"), (7605, "7.6.5")]
)
def test_the_version_of_cudnn_is_written_as_its_makers_do(number, version):
    assert contract.cudnn_version(number) == version


def test_a_parameter_keeps_the_type_of_its_default():
    parameter = contract.Parameter("share", 0.5, "", at_least=0)
    assert parameter.parse("1") == 1.0
    assert isinstance(parameter.parse("1"), float)
    with pytest.raises(ValueError, match="at least 0"):
        parameter.parse("-0.1")
    with pytest.raises(ValueError, match="finite"):
        parameter.parse(str(math.nan))


def test_a_stated_ceiling_is_in_the_environment_with_its_source(tiny):
    ran = tiny(GOOD + '\nreport.ceiling("speed:fast", 3.5, source="light")')
    assert ran.document["environment"]["ceilings"] == {
        "speed:fast": {"value": 3.5, "source": "light"}
    }


# --- programs that a benchmark starts ------------------------------------------------------


def test_a_bound_program_dies_with_its_parent_after_any_end_of_that():
    """A pipe shows that it lives: it alone has the other end."""
    reader, writer = os.pipe()
    program = (
        "import contract, subprocess, time\n"
        "argv = contract.bonded(['sh', '-c', 'echo up; exec sleep 30'])\n"
        "child = subprocess.Popen(argv)\n"
        "time.sleep(30)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=BENCHMARKS, stdout=writer)
    os.close(writer)
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        assert pipe.readline() == b"up\n"
        parent.kill()
        parent.wait()
        assert select.select([pipe], [], [], 20)[0], "it lives on"
        assert pipe.read() == b""


def test_a_bound_program_runs_on_its_cpus_and_keeps_its_arguments_and_exit_code():
    words = "import os, sys; print(sorted(os.sched_getaffinity(0)), sys.argv[1]); sys.exit(5)"
    first = min(os.sched_getaffinity(0))
    for cpus, wanted in (({first, 4096}, [first]), (set(), sorted(os.sched_getaffinity(0)))):
        argv = contract.bonded([sys.executable, "-c", words, "a b'c"], frozenset(cpus))
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == (f"{wanted} a b'c\n", 5)


@pytest.mark.parametrize("source", sorted(BENCHMARKS.glob("*.py")), ids=lambda file: file.name)
def test_nothing_is_called_between_fork_and_exec(source):
    """Beside other threads, Python may hang there for ever."""
    assert "preexec_fn" not in source.read_text()


def test_a_caller_that_leaves_at_once_ends_no_other_program(forked, tmp_path):
    """As ranks do whose launcher is killed: a process may have no session of its own yet."""
    program = tmp_path / "program.py"
    program.write_text("import time\ntime.sleep(60)\n")
    for _ in range(20):
        with pytest.raises(TimeoutError):
            forked.run([str(program)], None, tmp_path, limit_s=1e-6)
    program.write_text("print('here')\n")
    assert forked.run([str(program)], None, tmp_path).stdout == "here\n"
