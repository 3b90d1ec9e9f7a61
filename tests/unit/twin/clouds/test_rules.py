"""Every rule and demand of the twin's clouds: each has a case that passes and one that does not."""

from dataclasses import replace

import pytest

from tests.unit.twin.clouds import cases_aws, cases_azure
from twin.clouds import aws, azure
from twin.clouds.model import Demand, Making, Rule, Settings
from twin.clouds.rules import verdict
from twin.clouds.world import World
from twin.pulumi.provider.convert import UNKNOWN

CLOUDS = {"aws": (aws.CLOUD, cases_aws), "azure-native": (azure.CLOUD, cases_azure)}


def rules(cloud) -> dict[str, Rule]:
    return {rule.name: rule for kind in cloud.types.values() for rule in kind.rules}


def demands(cloud) -> dict[str, Demand]:
    return {each.name: each for kind in cloud.types.values() for each in kind.demands}


RULES = [
    pytest.param(rules(cloud)[name], *case, id=f"{word}: {name}")
    for word, (cloud, cases) in CLOUDS.items()
    for name, case in cases.RULES.items()
]
DEMANDS = [
    pytest.param(word, name, id=f"{word}: {name}")
    for word, (_, cases) in CLOUDS.items()
    for name in cases.DEMANDS
]


@pytest.mark.parametrize(("rule", "good", "bad", "why"), RULES)
def test_a_rule_lets_the_right_pass_and_says_what_is_wrong_with_the_rest(rule, good, bad, why):
    assert list(rule.broken(good)) == []
    said = [mistake.reason for mistake in rule.broken(bad)]
    assert any(why in each for each in said), said


@pytest.mark.parametrize(("word", "name"), DEMANDS)
def test_a_demand_is_met_by_one_account_and_not_by_the_other(word, name):
    cloud, cases = CLOUDS[word]
    token, inputs, _, _, why = cases.DEMANDS[name]
    good, bad = cases.WORLDS[name]
    demand = demands(cloud)[name]

    if name not in cases.ONLY_FAILS:
        assert list(demand.broken(making(word, token, inputs, good))) == []
    said = list(demand.broken(making(word, token, inputs, bad)))
    assert any(why in each for each in said), said


def making(word: str, token: str, inputs: dict, world: World) -> Making:
    found = Making(
        inputs=inputs,
        settings=Settings(cloud=word, region="us-east-1"),
        world=world,
        entropy="0" * 32,
    )
    return replace(
        found, id=CLOUDS[word][0].types[token].identify(found) if word != "aws" else "new"
    )


@pytest.mark.parametrize("word", CLOUDS)
def test_no_rule_is_without_a_case_and_each_says_who_asks_for_it(word):
    cloud, cases = CLOUDS[word]

    assert set(rules(cloud)) == set(cases.RULES), "each rule has its pair of cases"
    assert set(demands(cloud)) == set(cases.DEMANDS) | cases.ON_CHANGE
    every = [*rules(cloud).values(), *demands(cloud).values()]
    assert all(each.source for each in every), "a rule without a source is an opinion"


@pytest.mark.parametrize("word", CLOUDS)
def test_a_rule_leaves_what_is_not_known_yet_alone(word):
    cloud, cases = CLOUDS[word]
    for name, rule in rules(cloud).items():
        unknown = dict.fromkeys(cases.RULES[name][1], UNKNOWN)
        assert verdict(rule, unknown) == [] or not unknown, name
        for key in cases.RULES[name][1]:
            nested = {**cases.RULES[name][1], key: buried(cases.RULES[name][1][key])}
            verdict(rule, nested)  # whatever it says, it does not stumble


def buried(value):
    """The same shape with unknowns for leaves."""
    if isinstance(value, dict):
        return {key: buried(item) for key, item in value.items()}
    return [buried(item) for item in value] if isinstance(value, list) else UNKNOWN
