"""A node's health through the command line: facts, their limits, and a site that has its own."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from fleets import spec

from anubis.config import configs
from anubis.config.catalog import parse_result
from anubis.core.errors import ConfigError, ContractError
from anubis.core.records import MetricSpec
from tests.edges.desk import FLOW


@pytest.fixture
def suite(near):
    return near.suite({"benchmark": "node_health", "parameters": {"seconds": 0.05}, "repeats": 3})


@pytest.fixture
def plant(near, monkeypatch):
    """A kernel log with an XID of a minute ago, on an otherwise bare machine."""

    def plant(xid: int) -> None:
        root = near.folder / "machine"
        for name, text in {
            "proc/uptime": "1000.0 5.0\n",
            "proc/meminfo": "MemTotal: 16000000 kB\n",
            "dev/kmsg": f"4,1,940000000,-;NVRM: Xid (PCI:0000:3b:00): {xid}, because\n",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        monkeypatch.setenv("ANUBIS_HOST_ROOT", str(root))

    return plant


def test_this_machine_is_accepted_by_its_facts(near, suite):
    done = near.run("accept", "--suite", suite, "--json")
    assert done.code in (0, 1), done.err  # 1: a disk of this machine may be full
    judged = {line["metric"]: line["code"] for line in done.verdicts}
    assert "memory_gb" in judged
    assert "disk_free_share" in judged
    assert "xids" not in judged  # a fact without a limit
    (criteria,) = (near.home / "criteria").glob("*/*.json")
    learned = {each["metric"] for each in json.loads(criteria.read_text())["criteria"]}
    assert {"memory_gb", "cpus"} <= learned
    assert not any(metric.startswith(("disk_", "inodes_", "machine_")) for metric in learned)


def test_an_xid_in_the_kernel_log_condemns_the_node_and_every_report_has_its_limit(
    near, suite, plant
):
    plant(79)
    done = near.run("accept", "--suite", suite, "--html", "report.html")
    assert done.code == 1
    assert "NODE_HEALTH.XIDS.79: XID errors (79) on pci:0000:3b:00: " in " ".join(done.out.split())
    (row,) = [line for line in done.out.splitlines() if line.startswith("  xids:79")]
    assert row.split() == ["xids:79", "1", "-", "-", "≤", "0", "1/1"]  # and no footnote
    page = (near.folder / "report.html").read_text()
    assert ">limit ≤ 0</span>" in page
    assert "no criterion to judge it by" not in page
    assert "GPU has fallen off the bus: restart the node" in page


def alone(name):
    return "bench", "run", name, "--limits", "default"


def test_a_program_alone_lists_values_outside_the_limits_of_a_policy(near, plant):
    words = (*alone("node_health"), "--seconds=0.05")
    plant(79)
    done = near.ask(*words)
    assert (
        done.out
        == "XID errors (79) on pci:0000:3b:00: 1 instead of at most 0 (NVIDIA Xid catalog)\n"
    )
    assert done.code == 1
    plant(31)
    done = near.ask(*words)
    assert (done.code, done.out) == (0, "")


def test_a_device_that_gave_no_answer_is_named_beside_the_limits(near):
    near.program(
        "driver.sh",
        FLOW.replace('"flow"', '"driver"').replace(
            '"environment": {}', '"environment": {"silent_devices": {"GPUs": "no answer"}}'
        ),
    )
    done = near.ask(*alone("driver"), f"--pace={near.pace}")
    assert (done.code, done.out) == (1, "GPUs: no answer\n")


def test_a_program_that_could_not_measure_is_within_no_limit(near):
    near.program(
        "broken.sh", FLOW.replace('"flow"', '"broken"').replace("done\n", "done\nexit 1\n")
    )
    done = near.ask(*alone("broken"))
    assert (done.code, done.out) == (2, "")
    assert "exited with 1" in done.err


def test_an_xid_without_a_limit_is_a_fact_with_its_number(near, suite, plant):
    plant(31)
    done = near.run("accept", "--suite", suite, "--html", "report.html")
    assert done.code == 0
    assert "a fact, for which the policy has no limit" in done.out
    (row,) = [line for line in done.out.splitlines() if "xids:31" in line]
    assert row.split()[-5:] == ["1", "1.000", "-", "-", "0/1"]


def test_stored_facts_are_judged_learned_compared_and_exported_without_a_criterion(
    near, suite, plant
):
    plant(79)
    near.run("accept", "--suite", suite)
    again = near.run("criteria", "judge", "--json")
    assert (again.code, again.verdicts[0]["code"]) == (1, "NODE_HEALTH.XIDS.79")
    assert near.run("criteria", "learn", "--out", "again").code == 0
    assert near.run("criteria", "diff", "again", str(near.home / "criteria" / "tiny")).code == 0
    assert near.run("criteria", "show", "again").code == 0
    assert near.run("report", "--superbench", "summary.jsonl", "--json").code in (0, 1)
    summary = json.loads((near.folder / "summary.jsonl").read_text())
    assert summary["node_health/xids:79:0000:3b:00"] == 1
    assert summary["node_health/machine_checks:corrected"] == 0
    tuned = near.run("bench", "tune", "node_health")
    assert (tuned.code, "machine_checks" in tuned.out) == (2, False)


def test_a_simulated_fleet_has_only_planted_faults(near, suite):
    done = near.run("accept", "--suite", suite, "--cluster", near.fleet())
    assert done.code == 0, done.out


# --- a site's own limits -------------------------------------------------------------------


def shipped_limits():
    tables = (
        configs.limits(name)
        for name in ("node_health", "dcgm_diag", "answers", "under_load", "sdc_screen")
    )
    return tuple(chain.from_iterable(tables))


NO_79 = {"benchmark": "node_health", "metric": "xids:79", "at_most": 5, "source": "we"}


def test_a_site_overrides_a_single_number_and_keeps_the_rest(near, suite, plant):
    plant(79)
    mine = str(near.write("mine.yaml", {"overrides": [NO_79]}))
    done = near.run("accept", "--suite", suite, "--policy", mine, "--json")
    assert done.code == 0, done.out
    limits = {limit.metric: limit for limit in configs.policy(mine).limits}
    shipped = {limit.metric: limit for limit in shipped_limits()}
    assert limits.keys() == shipped.keys()
    assert [name for name in limits if limits[name] != shipped[name]] == ["xids:79"]


def test_without_tables_only_the_fleet_judges(near, suite, plant):
    plant(79)
    mine = str(near.write("mine.yaml", {"limits": []}))
    assert configs.policy(mine).limits == ()
    assert near.run("accept", "--suite", suite, "--policy", mine).code == 0


def test_a_policy_that_says_nothing_of_limits_has_the_shipped_ones(near):
    mine = str(near.write("mine.yaml", {"alpha": 0.9}))
    assert configs.policy(mine).limits == shipped_limits()


def own_table(near, name, **changes):
    folder = near.home / "configs" / "policies" / "limits"
    folder.mkdir(parents=True, exist_ok=True)
    table = {
        "version": 7,
        "benchmark": "node_health",
        "limits": [{"metric": "gpus", "equals": 8, "source": "we bought eight"}],
    }
    (folder / f"{name}.yaml").write_text(json.dumps(table | changes))


def test_a_sites_own_table_is_read_and_remembers_which_version_it_was(near):
    own_table(near, "ours")
    mine = str(near.write("mine.yaml", {"limits": ["node_health", "ours"]}))
    last = configs.policy(mine).limits[-1]
    assert (last.metric, last.equals, last.table) == ("gpus", 8, "ours@7")


def test_a_sites_table_of_the_same_name_replaces_the_shipped_one(near):
    own_table(near, "node_health")
    limits = configs.policy("default").limits
    assert [limit.metric for limit in limits if limit.benchmark == "node_health"] == ["gpus"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"limits": [{"metric": "gpus", "at_mots": 1, "source": "us"}]}, 'did you mean "at_most"'),
        ({"limits": [{"metric": "gpus", "at_most": 1}]}, '"source" is missing'),
        ({"limits": [{"metric": "gpus", "source": "us"}]}, "has no bound"),
        ({"limits": [{"metric": "gpus", "at_most": -1, "source": "us"}]}, "0 or more"),
        ({"limits": [{"metric": "gpus", "at_most": "8", "source": "us"}]}, "a number"),
        ({"limits": [{"metric": "g", "at_most": 1, "source": "us"}] * 2}, '"g" is listed 2 times'),
        ({"versoin": 1}, 'did you mean "version"'),
    ],
)
def test_a_slip_in_a_table_of_limits_is_reported_and_not_skipped(near, changes, complaint):
    own_table(near, "ours", **changes)
    with pytest.raises(ConfigError, match=complaint):
        configs.limits("ours")


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"limits": ["node_helth"]}, 'did you mean "node_health"'),
        ({"overrides": [NO_79 | {"metric": "xid:79"}]}, 'did you mean "node_health xids:79"'),
        ({"overrides": [{"metric": "gpus", "at_most": 1, "source": "us"}]}, '"benchmark" is mis'),
    ],
)
def test_a_slip_in_a_policy_is_reported_and_not_skipped(near, policy, complaint):
    mine = str(near.write("mine.yaml", policy))
    with pytest.raises(ConfigError, match=complaint):
        configs.policy(mine)


def test_a_limit_for_an_unknown_metric_stops_the_run_before_it_begins(near, suite):
    own_table(near, "ours", limits=[{"metric": "gpu", "at_least": 8, "source": "us"}])
    mine = str(near.write("mine.yaml", {"limits": ["ours"]}))
    done = near.run("accept", "--suite", suite, "--policy", mine, "--dry-run")
    assert done.code == 64
    assert 'limit for "gpu" (limits ours@7), which node_health does not measure' in done.err
    assert 'did you mean "gpus"' in done.err


def test_every_shipped_limit_is_of_a_metric_that_its_program_judges_by_limit(near):
    described = near.run("bench", "describe", "node_health", "--json").summary
    facts = {each["name"] for each in described["metrics"] if each["judged_by"] == "limit"}
    for limit in configs.limits("node_health"):
        assert limit.metric.partition(":")[0] in facts, limit.metric
        assert limit.action, limit.metric


# --- zero ----------------------------------------------------------------------------------

SPEC = spec(
    "facts",
    metrics=(
        MetricSpec(name="errors", unit="1", direction="lower", judged_by="limit"),
        MetricSpec(name="rate", unit="1", direction="higher"),
    ),
)


def document(metric, sample):
    series = [{"metric": metric, "device": "cpu", "samples": [sample]}]
    return json.dumps(
        {"schema": "anubis.result/1", "benchmark": "facts", "version": "1", "series": series}
    )


def test_a_fact_may_be_zero_and_a_measurement_may_not():
    (series,) = parse_result(document("errors:fatal", 0), SPEC).series
    assert series.samples.tolist() == [0]
    with pytest.raises(ContractError, match="expected a positive number"):
        parse_result(document("rate", 0), SPEC)
    with pytest.raises(ContractError, match="expected a number of 0 or more"):
        parse_result(document("errors", -1), SPEC)
