"""Rules of Amazon EKS."""

import pytest
from cloudtwin.providers.aws.eks_rules import (
    CLUSTER,
    POLICY_ARN,
    access_policy,
    node_version,
    template_of,
    types_in_one_place,
)
from cloudtwin.providers.aws.machines import TEMPLATE
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import ProviderConfig, ResourceRequest
from cloudtwin.providers.protocol.values import Object

from twin.tests.providers.aws.cases import resource


@pytest.mark.parametrize(
    "text",
    [
        "AmazonEKSViewPolicy",
        f"{POLICY_ARN}{POLICY_ARN}AmazonEKSViewPolicy",
        "arn:aws:iam::aws:policy/AmazonEKSViewPolicy",
        POLICY_ARN,
    ],
)
def test_only_the_whole_arn_of_an_access_policy_is_accepted(text: str) -> None:
    reason = access_policy(text)

    assert reason is not None, "EKS refuses it when the policy is associated"
    assert f"{POLICY_ARN}NAME" in reason, "the message must contain the form to use"
    assert access_policy(f"{POLICY_ARN}AmazonEKSViewPolicy") is None


def violations_of(version: str) -> list[str]:
    """Return the reasons why a cluster of version 1.35 refuses a node group of a version."""
    cluster = Resource(
        token=CLUSTER, id="main", urn="", inputs={}, outputs={"name": "main", "version": "1.35"}
    )
    request = ResourceRequest(
        inputs={"clusterName": "main", "version": version},
        config=ProviderConfig(cloud="aws"),
        account=Inventory((cluster,)),
        entropy="0",
    )
    return list(node_version(request))


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.36", "1.36 is newer than 1.35"), ("1.31", "1.31 is too old for the cluster's 1.35")],
)
def test_a_node_group_is_refused_with_the_bound_that_it_exceeds(
    version: str, expected: str
) -> None:
    (reason,) = violations_of(version)

    assert expected in reason, "the opposite bound would mislead the user"


@pytest.mark.parametrize("version", ["1.32", "1.35"])
def test_a_node_group_may_be_three_minor_versions_older(version: str) -> None:
    assert violations_of(version) == []


@pytest.mark.parametrize("reference", [{"id": "lt-1"}, {"name": "gpu"}])
def test_a_node_group_refers_to_its_launch_template_by_id_or_by_name(reference: Object) -> None:
    template = resource(TEMPLATE, "lt-1", {"instanceType": "p5.48xlarge"}, name="gpu")
    account = Inventory((resource(TEMPLATE, "lt-2", {}, name="system"), template))
    inputs = {"launchTemplate": reference, "instanceTypes": ["p5.48xlarge"]}
    request = ResourceRequest(
        inputs=inputs, config=ProviderConfig(cloud="aws"), account=account, entropy="0"
    )

    assert template_of(inputs, account) == template
    assert list(types_in_one_place(request)), "preconditions must find the template by its name too"


def test_a_node_group_without_a_launch_template_has_none() -> None:
    unnamed = Inventory((resource(TEMPLATE, "lt-1", {}),))

    assert template_of({}, unnamed) is None
    assert template_of({"launchTemplate": {"name": "gpu"}}, unnamed) is None
