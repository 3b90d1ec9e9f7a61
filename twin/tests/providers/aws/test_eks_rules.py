"""Rules of Amazon EKS."""

from collections.abc import Callable, Iterable

import pytest
from cloudtwin.providers.aws.eks_rules import CLUSTER, POLICY_ARN, access_policy, node_version
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import ProviderConfig, ResourceRequest


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


def _violations(rule: Callable[[ResourceRequest], Iterable[str]], version: str) -> list[str]:
    cluster = Resource(
        token=CLUSTER, id="main", urn="", inputs={}, outputs={"name": "main", "version": "1.35"}
    )
    request = ResourceRequest(
        inputs={"clusterName": "main", "version": version},
        config=ProviderConfig(cloud="aws"),
        account=Inventory((cluster,)),
        entropy="0",
    )
    return list(rule(request))


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.36", "1.36 is newer than 1.35"), ("1.31", "1.31 is too old for the cluster's 1.35")],
)
def test_a_node_group_is_refused_with_the_bound_that_it_exceeds(
    version: str, expected: str
) -> None:
    (reason,) = _violations(node_version, version)

    assert expected in reason, "the opposite advice would send the user the wrong way"


@pytest.mark.parametrize("version", ["1.32", "1.35"])
def test_a_node_group_may_be_three_minor_versions_older(version: str) -> None:
    assert _violations(node_version, version) == []
