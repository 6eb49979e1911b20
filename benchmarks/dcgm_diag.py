"""NVIDIA's own diagnosis, `dcgmi diag`, as answers per test and GPU: right, or wrong.

Its verdict becomes `agreement`: 1 for a pass, 1 / (1 + findings) for a failure. DCGM says of each
finding what is to be done. If that is to set something right, or only to watch it, nothing is
broken: it counts under `findings` instead. What was skipped did not pass: it has no answer, and
takes from the device's `completeness`, which is compared with the fleet's. The exit code says
nothing that the JSON does not, and is never passed on. DCGM runs the tests in a daemon of its own
(nv-hostengine), which ends them when it notices that we are gone.
"""

from __future__ import annotations

from collections import Counter

import contract
from kit.parsers import Diagnosed, Tested, dcgm
from kit.tools import Output, find, run

TOOL = "dcgmi"
LIGHT = ("config", "monitor")  # severities of what breaks nothing
ANSWERS = ("pass", "warn", "fail")  # any other answer means that a test did not pass
LIMIT_S = {1: 120.0, 2: 600.0, 3: 3600.0, 4: 3 * 3600.0}  # per level; 4 takes one to two hours

BENCHMARK = contract.Benchmark(
    name="dcgm_diag",
    version="2",
    summary="NVIDIA's diagnosis of each GPU (dcgmi diag).",
    stresses="from level 2 on: PCIe, memory, power and arithmetic of every GPU",
    reveals="what NVIDIA's support will ask for first: bad memory, PCIe, power, driver, settings",
    duration_s=10.0,
    gpu=True,
    tools=(TOOL,),
    metrics=(
        contract.AGREEMENT,
        contract.higher(
            "completeness", "1", "1 when no test was skipped, else 1 / (1 + skipped tests)", "1"
        ),
        contract.Metric(
            "findings",
            "1",
            "lower",
            "of a device, by what DCGM says is to be done: config, to set something right; "
            "monitor, to watch it",
            judged_by="limit",
        ),
    ),
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
    for device, numbers in completeness(result).items():
        report.add("completeness", device, numbers)
    for (severity, device), count in light_findings(result).items():
        report.add(f"findings:{severity}", device, [count])


def result_of(output: Output) -> Diagnosed:
    try:
        result = dcgm(output.stdout)
    except contract.Unmeasured as nothing:
        raise contract.Unmeasured(
            f'{nothing}; it ended with {output.exit_code} and said "{output.last_words()}": is '
            "nv-hostengine running, and is no other diagnosis running?"
        ) from None
    if result.runtime_error:
        raise contract.Unmeasured(f'dcgmi diag said "{result.runtime_error[:300]}"')
    if not answers(result):
        raise contract.Unmeasured(f"dcgmi diag tested nothing: {findings(result) or 'no results'}")
    return result


def answers(result: Diagnosed) -> dict[tuple[str, str], list[float]]:
    """Return one answer per test and device; a test that is listed twice has its findings added."""
    wrong: dict[tuple[str, str], int] = {}
    for tested in result.tested:
        if tested.status in ANSWERS:
            key = tested.test, tested.device
            wrong[key] = wrong.get(key, 0) + failures(tested)
    return {key: contract.agreement(count) for key, count in wrong.items()}


def failures(tested: Tested) -> int:
    """Count findings that are not light; a failure without any finding is one itself."""
    heavy = sum(not is_light(finding.severity, tested.status) for finding in tested.findings)
    return heavy or (tested.status == "fail" and not tested.findings)


def is_light(severity: str, status: str) -> bool:
    """Return true for a light finding; without a severity a warning is light and a failure is
    not."""
    return severity in LIGHT if severity else status != "fail"


def completeness(result: Diagnosed) -> dict[str, list[float]]:
    skipped = Counter({tested.device: 0 for tested in result.tested})
    skipped.update(tested.device for tested in result.tested if tested.status not in ANSWERS)
    return {device: contract.agreement(count) for device, count in skipped.items()}


def light_findings(result: Diagnosed) -> dict[tuple[str, str], int]:
    """Count each kind on each device, 0 too; without a severity it is to be watched."""
    ran = [tested for tested in result.tested if tested.status in ANSWERS]
    counts = Counter({(kind, tested.device): 0 for kind in LIGHT for tested in ran})
    for tested in ran:
        light = (f for f in tested.findings if is_light(f.severity, tested.status))
        counts.update((finding.severity or "monitor", tested.device) for finding in light)
    return dict(counts)


def findings(result: Diagnosed) -> str:
    """Describe tests that did not simply pass."""
    return "; ".join(
        f"{tested.device} {tested.test} {tested.status}: {reasons(tested)}"
        for tested in result.tested
        if tested.status != "pass"
    )[:2000]


def reasons(tested: Tested) -> str:
    texts = (f"{f.text} ({f.severity})" if f.severity else f.text for f in tested.findings)
    return " / ".join(texts) or "no reason"


if __name__ == "__main__":
    contract.run(BENCHMARK, measure)
