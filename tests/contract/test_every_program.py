"""The contract, for every program of the folder: a new one is held to it by being there."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import contract
import pytest
from jsonschema import ValidationError

from anubis.config import catalog
from anubis.config.catalog import parse_description, parse_result
from tests.contract.conftest import PROGRAMS, Ran

NAME = re.compile(r"[a-z0-9_]+")
HEAVY = {"torch", "numpy"}


GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))


def lacking(needs, gpus=GPUS):
    """Things that a program needs and this machine has not."""
    missing = [tool for tool in needs["tools"] if shutil.which(tool) is None]
    if needs["gpu"] and not gpus:
        missing.append("gpu")
    if needs["hca"] and not list(Path("/sys/class/infiniband").glob("*")):
        missing.append("hca")
    devices = max(needs["min_devices"], needs["min_nodes"])  # on one machine each is a node
    if (gpus or 2) < devices:  # two ranks of a CPU stand for two nodes
        missing.append(f"{devices} devices")
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


def test_describes_itself_without_loading_torch(program, describe):
    ran = describe(program)
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


@pytest.fixture(scope="module")
def described_together():
    """Descriptions of all programs, which one process gives."""
    return dict(zip(PROGRAMS, catalog.describe_all(PROGRAMS), strict=True))


def test_the_description_of_each_program_is_readable_for_the_catalog(
    program, describe, described_together
):
    spec = parse_description(describe(program).stdout, program)
    assert described_together[program] == spec
    assert all(spec.metric(metric.name) is metric for metric in spec.metrics)
    for parameter in spec.parameters:
        assert type(parameter.default).__name__ == parameter.type


def test_a_program_measures_without_torch_unless_it_declares_that_it_needs_it(
    program, describe, tmp_path
):
    (tmp_path / "torch.py").write_text('raise ImportError("torch is hidden")')
    argv, environment = [sys.executable, str(program), "--smoke"], {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        argv, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    described = describe(program).document
    needs = described["needs"]
    assert done.returncode != 1 or "torch is hidden" in done.stderr
    if done.returncode == 3:  # it measures nothing here in any case
        assert lacking(needs)
        by_torch = described["launcher"] == "torchrun"
        assert needs["packages"] == (["torch"] if by_torch else [])
    else:
        assert (done.returncode, needs["packages"]) in [(0, []), (1, ["torch"])]


def test_smoke_run_writes_one_valid_document_and_nothing_else(program, smoke, describe):
    before = time.time()
    ran = smoke(program)
    described = describe(program).document
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


def test_smoke_document_is_one_that_the_catalog_reads(program, smoke, describe):
    spec = parse_description(describe(program).stdout, program)
    ran = smoke(program)
    result = parse_result(ran.stdout, spec, ran.document["parameters"])
    assert result.series or result.not_applicable
    assert not result.cut_short


def test_a_document_with_a_field_that_no_schema_has_is_not_read(describe, benchmark_file):
    described = describe(benchmark_file("gemm")).document
    with pytest.raises(ValidationError, match="'colour' was unexpected"):
        _ = Ran(0, json.dumps({**described, "colour": "red"}), "").document
    result = {"schema": "anubis.result/1", "benchmark": "gemm", "version": "1"}
    assert Ran(0, json.dumps(result), "").document == result
    with pytest.raises(ValidationError, match="'colour' was unexpected"):
        _ = Ran(0, json.dumps({**result, "colour": "red"}), "").document


def test_right_answers_are_reported_as_agreement_1(program, smoke):
    agreements = [
        series["samples"]
        for series in smoke(program).document["series"]
        if series["metric"].startswith("agreement")
    ]
    assert all(samples == [1.0] for samples in agreements)


def test_on_one_gpu_a_program_refuses_only_as_its_needs_declare(program, describe, monkeypatch):
    timing = importlib.import_module("kit.timing")
    monkeypatch.setattr(timing, "gpus", lambda: 1)
    processes = getattr(importlib.import_module(program.stem), "processes", lambda: 1)
    refused = False
    try:
        processes()
    except contract.NotApplicable:
        refused = True
    assert not refused or lacking(describe(program).document["needs"], gpus=1)


def test_unknown_parameter_exits_with_2_and_one_line(program, near):
    ran = near(program, "--no_such_thing=1")
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert "no_such_thing" in ran.stderr


def test_bad_value_exits_with_2_and_names_parameter_and_value(program, near, describe):
    described = describe(program).document
    numbers = [p["name"] for p in described["parameters"] if p["type"] in ("int", "float")]
    for value in ("many", "-1", "nan"):
        ran = near(program, f"--{numbers[-1]}={value}")
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert ran.stderr.count("\n") == 1
        assert numbers[-1] in ran.stderr
        assert value in ran.stderr


def test_help_shows_every_parameter(program, near, describe):
    ran = near(program, "--help")
    assert ran.exit_code == 0
    for parameter in describe(program).document["parameters"]:
        assert f"--{parameter['name']}" in ran.stdout
