"""Rules and preconditions of the clouds, against the tables of valid and invalid cases."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from cloudtwin.providers import aws, azure
from cloudtwin.providers.aws.network import GATEWAY, NAT
from cloudtwin.providers.azure.identity import ASSIGNMENT
from cloudtwin.providers.evaluation import UnknownTracker, violations
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.model import (
    Cloud,
    InputRule,
    Precondition,
    ProviderConfig,
    ResourceRequest,
)
from cloudtwin.providers.protocol.values import UNKNOWN, Object, PropertyValue
from hypothesis import given, settings

from twin.tests.providers.aws import cases as aws_cases
from twin.tests.providers.azure import cases as azure_cases
from twin.tests.providers.samples import TREES

CLOUDS = {"aws": (aws.CLOUD, aws_cases), "azure-native": (azure.CLOUD, azure_cases)}


def rules(cloud: Cloud) -> dict[str, InputRule]:
    return {rule.name: rule for kind in cloud.types.values() for rule in kind.rules}


def preconditions(cloud: Cloud) -> dict[str, Precondition]:
    return {
        precondition.name: precondition
        for kind in cloud.types.values()
        for precondition in kind.preconditions
    }


RULES = [
    pytest.param(rules(cloud)[name], *case, id=f"{cloud_name}: {name}")
    for cloud_name, (cloud, cases) in CLOUDS.items()
    for name, case in cases.RULES.items()
]
PRECONDITIONS = [
    pytest.param(cloud_name, name, id=f"{cloud_name}: {name}")
    for cloud_name, (_, cases) in CLOUDS.items()
    for name in cases.PRECONDITIONS
]


@pytest.mark.parametrize(("rule", "valid", "invalid", "reason"), RULES)
def test_a_rule_accepts_valid_inputs_and_explains_invalid_ones(
    rule: InputRule, valid: Object, invalid: Object, reason: str
) -> None:
    assert list(rule.violations(valid)) == []
    reasons = [failure.reason for failure in rule.violations(invalid)]
    assert any(reason in text for text in reasons), reasons


@pytest.mark.parametrize(("cloud_name", "name"), PRECONDITIONS)
def test_a_precondition_holds_in_one_account_and_not_in_the_other(
    cloud_name: str, name: str
) -> None:
    cloud, cases = CLOUDS[cloud_name]
    token, inputs, _, _, reason = cases.PRECONDITIONS[name]
    holding, violating = cases.ACCOUNTS[name]
    precondition = preconditions(cloud)[name]

    if name not in cases.NEVER_HOLDS:
        assert list(precondition.violations(request_for(cloud_name, token, inputs, holding))) == []
    reasons = list(precondition.violations(request_for(cloud_name, token, inputs, violating)))
    assert any(reason in text for text in reasons), reasons


@pytest.mark.parametrize(("vpc", "reasons"), [("vpc-1", 0), ("vpc-2", 1)])
def test_a_regional_nat_gateway_needs_an_internet_gateway_in_its_vpc(
    vpc: str, reasons: int
) -> None:
    account = Inventory((aws_cases.resource(GATEWAY, "igw-1", {"vpcId": vpc}),))
    inputs = {"availabilityMode": "regional", "vpcId": "vpc-1"}
    precondition = preconditions(aws.CLOUD)["Internet gateway of a NAT gateway"]

    assert len(list(precondition.violations(request_for("aws", NAT, inputs, account)))) == reasons


@pytest.mark.parametrize("principal", ["control", "kubelet"])
def test_both_identities_of_a_cluster_may_be_principals_of_assignments(principal: str) -> None:
    profile = {"kubeletidentity": {"objectId": "kubelet"}}
    outputs = {"identity": {"principalId": "control"}, "identityProfile": profile}
    cluster = replace(azure_cases.cluster(), outputs=outputs)
    inputs = {**azure_cases.GRANT_INPUTS, "principalId": principal}
    request = request_for("azure-native", ASSIGNMENT, inputs, Inventory((cluster,)))

    precondition = preconditions(CLOUDS["azure-native"][0])["principal of an assignment"]

    assert list(precondition.violations(request)) == []


def request_for(cloud_name: str, token: str, inputs: Object, account: Inventory) -> ResourceRequest:
    request = ResourceRequest(
        inputs=inputs,
        config=ProviderConfig(cloud=cloud_name, region="us-east-1"),
        account=account,
        entropy="0" * 32,
    )
    return replace(
        request,
        id=CLOUDS[cloud_name][0].types[token].identify(request) if cloud_name != "aws" else "new",
    )


@pytest.mark.parametrize("cloud_name", CLOUDS)
def test_every_rule_has_a_case_and_a_source(cloud_name: str) -> None:
    cloud, cases = CLOUDS[cloud_name]

    assert set(rules(cloud)) == set(cases.RULES), "each rule has its pair of cases"
    assert set(preconditions(cloud)) == set(cases.PRECONDITIONS) | cases.CHANGE_RULES
    all_rules: list[InputRule | Precondition] = [
        *rules(cloud).values(),
        *preconditions(cloud).values(),
    ]
    assert all(rule.source for rule in all_rules), "each rule needs a source to check it against"


@pytest.mark.parametrize(
    ("rule", "valid", "invalid"), [pytest.param(*case.values[:3], id=case.id) for case in RULES]
)
def test_a_rule_accepts_unknown_values_at_any_depth(
    rule: InputRule, valid: Object, invalid: Object
) -> None:
    if invalid:
        assert violations(rule, dict.fromkeys(invalid, UNKNOWN)) == []
    for key, value in valid.items():
        for unknown_value in [with_unknown_leaves(value), *with_one_unknown(value)]:
            assert violations(rule, {**valid, key: unknown_value}) == [], unknown_value
    for key, value in invalid.items():
        for unknown_value in [with_unknown_leaves(value), *with_one_unknown(value)]:
            violations(rule, {**invalid, key: unknown_value})  # it must not raise


def with_one_unknown(value: PropertyValue) -> Iterator[PropertyValue]:
    """Yield the structure once for each value in it, with this value unknown."""
    yield UNKNOWN
    if isinstance(value, dict):
        for key, item in value.items():
            for unknown_item in with_one_unknown(item):
                yield {**value, key: unknown_item}
    if isinstance(value, list):
        for index, item in enumerate(value):
            for unknown_item in with_one_unknown(item):
                yield [*value[:index], unknown_item, *value[index + 1 :]]


def with_unknown_leaves(value: PropertyValue) -> PropertyValue:
    """Return the same structure with unknown leaves."""
    if isinstance(value, dict):
        return {key: with_unknown_leaves(item) for key, item in value.items()}
    return [with_unknown_leaves(item) for item in value] if isinstance(value, list) else UNKNOWN


@settings(max_examples=30)
@given(tree=TREES)
def test_a_tracker_records_whether_an_unknown_value_was_read(tree: Object) -> None:
    tracker = UnknownTracker()
    content = repr(_walk(tracker.tracked(tree)))
    assert tracker.read_unknown == ("UNKNOWN" in repr(tree)), content


def _walk(value: PropertyValue) -> PropertyValue:
    if hasattr(value, "items"):
        return {key: _walk(item) for key, item in value.items()}
    return [_walk(item) for item in value] if isinstance(value, list) else value


def test_an_unknown_value_that_was_not_read_does_not_count() -> None:
    tracker = UnknownTracker()
    inputs = tracker.tracked({"sku": {"name": "Standard"}, "subnet": UNKNOWN})
    assert inputs["sku"]["name"] == "Standard"
    assert not tracker.read_unknown


@pytest.mark.parametrize(
    ("values", "is_member", "read_unknown"),
    [(["a", UNKNOWN], True, False), ([UNKNOWN, "b"], False, True), (["b"], False, False)],
)
def test_a_membership_test_reads_the_values_of_a_list(
    values: list[PropertyValue], is_member: bool, read_unknown: bool
) -> None:
    tracker = UnknownTracker()

    assert ("a" in tracker.tracked(values)) is is_member
    assert tracker.read_unknown is read_unknown, "an unknown element may equal the tested value"
