"""Facts about a job's trouble that follow from the settings of its nodes."""

from __future__ import annotations

from anubis.core.diagnose.evidence import Collector, JobEvidence, OddSetting, RankMap
from anubis.core.diagnose.facts import Whom, reason
from anubis.core.diagnose.node_facts import SETTINGS_RULES

HOUR_S = 3600.0


def odd(node, setting="driver", device="node"):
    sentence = f'{setting} of {node} is "1", and "2" on 7 of 8 nodes of its sku'
    return OddSetting(node=node, setting=setting, device=device, sentence=sentence, at=0.0)


def facts(*settings, nodes=8, collectors=frozenset({Collector.SETTINGS})):
    evidence = JobEvidence(
        job="7",
        at=5 * HOUR_S,
        collectors=collectors,
        ranks=RankMap(nodes={rank: f"n{rank}" for rank in range(nodes)}),
        settings=settings,
    )
    return reason(evidence, SETTINGS_RULES)


def test_a_node_with_another_setting_is_named_with_the_value_of_the_others():
    (fact,) = facts(odd("n3")).facts
    assert fact.whom == Whom(node="n3")
    assert fact.code == "setting-driver"
    assert fact.evidence == (
        'driver of n3 is "1", and "2" on 7 of 8 nodes of its sku (reported 5 h ago)'
    )


def test_a_setting_that_affects_traffic_is_a_likelier_cause():
    of_nic, of_host = facts(odd("n3", "mtu", "ib0"), odd("n3", "swap")).facts
    assert of_nic.confidence > of_host.confidence
    assert of_nic.code == "setting-mtu ib0"


def test_a_value_that_many_nodes_of_a_job_have_blames_no_node():
    reasoning = facts(odd("n0"), odd("n1"), odd("n2"), odd("n5", "mtu", "ib0"))
    whole, single = sorted(reasoning.facts, key=lambda fact: fact.whom.node)
    assert whole.whom == Whom()
    assert whole.evidence.startswith("3 of 8 nodes of the job (n0, n1, n2) have another driver")
    assert single.whom == Whom(node="n5")
    assert [fact.whom.node for fact in facts(odd("n0"), odd("n1")).facts] == ["n0", "n1"]


def test_without_settings_the_rule_names_them_as_missing():
    assert facts(collectors=frozenset()).unmet == {"settings": ("settings",)}
    assert facts().facts == ()
