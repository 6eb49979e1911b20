"""NVIDIA's own diagnosis, `dcgmi diag`, as answers per test and GPU: right, or wrong.

Its verdict becomes `agreement`: 1 for a pass, 1 / (1 + findings) for a failure, nothing for what it
skipped. Its exit code says nothing that the JSON does not, and is never passed on. DCGM runs the
tests in a daemon of its own (nv-hostengine), which ends them when it notices that we are gone.
"""

from __future__ import annotations

import contract
from _parsers import Diagnosed, Tested, dcgm
from _tools import Output, find, run

TOOL = "dcgmi"
LIMIT_S = {1: 120.0, 2: 600.0, 3: 3600.0, 4: 3 * 3600.0}  # per level; 4 takes one to two hours

BENCHMARK = contract.Benchmark(
    name="dcgm_diag",
    version="1",
    summary="NVIDIA's diagnosis of each GPU (dcgmi diag).",
    stresses="from level 2 on: PCIe, memory, power and arithmetic of every GPU",
    reveals="what NVIDIA's support will ask for first: bad memory, PCIe, power, driver, settings",
    duration_s=10.0,
    gpu=True,
    tools=(TOOL,),
    metrics=(contract.AGREEMENT,),
    parameters=(
        contract.Parameter(
            "level", 1, "1: seconds, 2: minutes, 3: half an hour, 4: hours", at_least=1
        ),
    ),
)


def measure(report: contract.Report, level: int) -> None:
    if level not in LIMIT_S:
        raise contract.BadParameter(f'level cannot be "{level}": use 1, 2, 3 or 4')
    tool = find(TOOL)
    result = result_of(run([tool, "diag", "-r", str(level), "-j"], LIMIT_S[level]))
    report.note(dcgm=result.version)
    if words := findings(result):
        report.note(findings=words)
    for (test, device), numbers in answers(result).items():
        report.add(f"agreement:{test}", device, numbers)


def result_of(output: Output) -> Diagnosed:
    try:
        result = dcgm(output.stdout)
    except contract.Unmeasured as nothing:
        raise contract.Unmeasured(
            f'{nothing}; it ended with {output.exit_code} and said "{output.last_words()}": is '
            "nv-hostengine running, and is nobody else diagnosing?"
        ) from None
    if result.runtime_error:
        raise contract.Unmeasured(f'dcgmi diag said "{result.runtime_error[:300]}"')
    if not answers(result):
        raise contract.Unmeasured(f"dcgmi diag tested nothing: {findings(result) or 'no results'}")
    return result


def answers(result: Diagnosed) -> dict[tuple[str, str], list[float]]:
    """One answer per test and device; a test that stands there twice has its findings added."""
    wrong: dict[tuple[str, str], int] = {}
    for tested in result.tested:
        if tested.status in ("pass", "warn", "fail"):
            key = tested.test, tested.device
            wrong[key] = wrong.get(key, 0) + failures(tested)
    return {key: contract.agreement(count) for key, count in wrong.items()}


def failures(tested: Tested) -> int:
    return max(1, len(tested.texts)) if tested.status == "fail" else 0


def findings(result: Diagnosed) -> str:
    """What it had to say about tests that did not simply pass."""
    lines = [
        f"{tested.device} {tested.test} {tested.status}: {' / '.join(tested.texts) or 'no reason'}"
        for tested in result.tested
        if tested.status != "pass" and (tested.status != "skip" or tested.texts)
    ]
    return "; ".join(lines)[:2000]


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
