"""The contract, for every program of the folder: a new one is held to it by being there."""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from pathlib import Path

from anubis.catalog import parse_description, parse_result

NAME = re.compile(r"[a-z0-9_]+")
HEAVY = {"torch", "numpy"}


def lacking(needs):
    """What a program needs and this machine has not."""
    missing = [tool for tool in needs["tools"] if shutil.which(tool) is None]
    if needs["gpu"] and not list(Path("/dev").glob("nvidia[0-9]*")):
        missing.append("gpu")
    if needs["hca"] and not list(Path("/sys/class/infiniband").glob("*")):
        missing.append("hca")
    return missing


def test_there_are_programs_to_test(benchmark_file):
    for name in (
        "gemm",
        "memory_bandwidth",
        "host_device_copy",
        "disk_io",
        "train_transformer",
        "collective",
    ):
        assert benchmark_file(name).exists()


def test_describes_itself_without_loading_torch(program, run):
    ran = run(program, "--describe", flags="-X importtime")
    assert ran.exit_code == 0
    described = ran.document
    assert described["schema"] == "anubis.describe/1"
    assert described["name"] == program.stem
    assert {metric["direction"] for metric in described["metrics"]} <= {"higher", "lower", "either"}
    named = described["metrics"] + described["parameters"]
    assert all(NAME.fullmatch(thing["name"]) for thing in named)
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "contract" in loaded  # so we did read the list of imports
    assert not loaded & HEAVY


def test_its_description_is_one_that_the_catalog_reads(program, run):
    spec = parse_description(run(program, "--describe").stdout, program)
    assert all(spec.metric(metric.name) is metric for metric in spec.metrics)
    for parameter in spec.parameters:
        assert type(parameter.default).__name__ == parameter.type


def test_smoke_run_writes_one_valid_document_and_nothing_else(program, smoke, run):
    before = time.time()
    ran = smoke(program)
    described = run(program, "--describe").document
    assert ran.stdout.count("\n") == 1
    document = ran.document
    if document["not_applicable"] is not None:
        assert ran.exit_code == 3
        assert document["series"] == []
        assert lacking(described["needs"]), f"nothing lacks, yet: {document['not_applicable']}"
        return
    assert ran.exit_code == 0, ran.stderr
    assert document["schema"] == "anubis.result/1"
    assert (document["benchmark"], document["version"]) == (program.stem, described["version"])
    assert set(document["parameters"]) == {p["name"] for p in described["parameters"]}
    assert document["environment"]["hostname"]
    assert document["duration_s"] > 0
    assert abs(document["started_at"] - before) < 3600  # seconds since the epoch, not some clock

    declared = {metric["name"] for metric in described["metrics"]}
    facts = {metric["name"] for metric in described["metrics"] if metric["judged_by"] == "limit"}
    assert document["series"]
    for series in document["series"]:
        assert series["metric"].partition(":")[0] in declared
        assert re.fullmatch(r"[\w:./-]+", series["device"])
        assert series["samples"]
        is_fact = series["metric"].partition(":")[0] in facts
        assert all(
            math.isfinite(sample) and (sample > 0 or (sample == 0 and is_fact))
            for sample in series["samples"]
        )
    named = [(series["metric"], series["device"]) for series in document["series"]]
    assert len(set(named)) == len(named)


def test_smoke_document_is_one_that_the_catalog_reads(program, smoke, run):
    spec = parse_description(run(program, "--describe").stdout, program)
    result = parse_result(smoke(program).stdout, spec)
    assert result.series or result.not_applicable


def test_right_answers_are_reported_as_agreement_1(program, smoke):
    agreements = [
        series["samples"]
        for series in smoke(program).document["series"]
        if series["metric"].startswith("agreement")
    ]
    assert all(samples == [1.0] for samples in agreements)


def test_unknown_parameter_exits_with_2_and_one_line(program, run):
    ran = run(program, "--no_such_thing=1")
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert "no_such_thing" in ran.stderr


def test_bad_value_exits_with_2_and_names_parameter_and_value(program, run):
    described = run(program, "--describe").document
    numbers = [p["name"] for p in described["parameters"] if p["type"] in ("int", "float")]
    for value in ("many", "-1", "nan"):
        ran = run(program, f"--{numbers[-1]}={value}")
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert ran.stderr.count("\n") == 1
        assert numbers[-1] in ran.stderr
        assert value in ran.stderr


def test_help_shows_every_parameter(program, run):
    ran = run(program, "--help")
    assert ran.exit_code == 0
    for parameter in json.loads(run(program, "--describe").stdout)["parameters"]:
        assert f"--{parameter['name']}" in ran.stdout
