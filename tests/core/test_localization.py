from itertools import combinations

from anubis.core.localization import best_group_of_each_node, blame


def test_a_node_that_is_slow_with_every_partner_is_blamed_and_no_partner_is():
    groups = {pair: "d" in pair for pair in combinations("abcd", 2)}
    assert blame(groups) == {"d": (("a", "d"), ("b", "d"), ("c", "d"))}


def test_a_bad_link_between_two_good_nodes_blames_neither():
    groups = {pair: pair == ("a", "b") for pair in combinations("abcd", 2)}
    assert blame(groups) == {}


def test_two_suspects_who_only_met_each_other_cannot_be_told_apart():
    assert blame({("a", "b"): True, ("c", "d"): False}) == {}


def test_two_bad_nodes_are_both_blamed_although_they_also_met_each_other():
    groups = {pair: bool({"a", "b"} & set(pair)) for pair in combinations("abcdef", 2)}
    assert set(blame(groups)) == {"a", "b"}


def test_the_vote_stays_with_the_nodes_when_half_of_all_pairs_is_slow():
    rates = {pair: 1.0 if "d" in pair else 4.0 for pair in combinations("abcd", 2)}
    chosen = best_group_of_each_node(rates)
    assert sorted(rates[group] for group in chosen) == [1.0, 4.0, 4.0, 4.0]
