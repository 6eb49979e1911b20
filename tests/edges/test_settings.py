"""Settings from nodes to verdicts, over several campaigns of one history, as for an operator.

The fleet is simulated, and trouble with node_config is another driver.
"""

from __future__ import annotations

import pytest

SAYS = (
    'driver of {node} is "nvidia 535.183.06", and "nvidia 570.86.15" on {votes} of 8 nodes of its'
    " sku"
)


@pytest.fixture
def cluster(near):
    return near.fleet(slow_share=0.125, seed=1)


@pytest.fixture
def where(near, cluster):
    near.suite({"benchmark": "node_config"}, {"benchmark": "kernel_launch"})
    return ("--cluster", cluster, "--suite", str(near.folder / "tiny.yaml"))


def odd_ones(done):
    return {
        line["node"]: (line["code"], line["reason"])
        for line in done.verdicts
        if line["verdict"] == "defective" and line["benchmark"] == "node_config"
    }


def test_one_node_alone_is_compared_with_earlier_peers_until_an_upgrade(near, where):
    accepted = near.run("accept", *where, "--json")
    ((node, verdict),) = odd_ones(accepted).items()
    assert verdict == ("NODE_CONFIG.DRIVER", SAYS.format(node=node, votes=7))
    text = near.run("report").out
    assert f"{node} " in text
    assert "as on the nodes beside it" in " ".join(text.split())  # its remedy

    alone = near.run("validate", node, *where, "--json")
    assert odd_ones(alone) == {node: verdict}
    assert odd_ones(near.run("criteria", "judge", "--json")) == {node: verdict}
    other = "n1" if node != "n1" else "n2"
    assert near.run("validate", other, *where).code == 0

    near.run("tell", "fleet-upgraded", "n[1-8]", "--later", *where[:2])
    after = near.run("validate", node, *where, "--json")
    codes = {line["code"] for line in after.verdicts if line["benchmark"] == "node_config"}
    assert codes == {"NO-PEERS"}
    assert after.code == 0, after.err


def test_expectations_of_a_site_override_the_majority(near, where):
    folder = near.home / "configs" / "policies" / "expectations"
    folder.mkdir(parents=True)
    rule = {"setting": "driver", "equals": ["nvidia 535.*"], "source": "release 7"}
    near.write(folder / "ours.yaml", {"expectations": [rule]})
    policy = str(near.write("mine.yaml", {"expectations": ["ours"]}))
    done = near.run("accept", *where, "--policy", policy, "--json")
    assert len(odd_ones(done)) == 7
    near.write(folder / "ours.yaml", {"expectations": [{**rule, "setting": "drivr"}]})
    done = near.run("accept", *where, "--policy", policy)
    assert done.code == 64
    assert 'setting "drivr", which no program reports; did you mean "driver"' in done.err
