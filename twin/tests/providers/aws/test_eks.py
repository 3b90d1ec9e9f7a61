"""The resources that EKS creates without a declaration, and leaves behind."""

import pytest
from cloudtwin.providers.aws import CLOUD
from cloudtwin.providers.aws.eks import CLOUDWATCH_ADDON, TYPES
from cloudtwin.providers.aws.eks_rules import ADDON
from cloudtwin.providers.aws.eks_rules import CLUSTER as CLUSTER_TYPE
from cloudtwin.providers.aws.monitoring import LOGS
from cloudtwin.providers.aws.network import GROUP
from cloudtwin.providers.aws.policies import ROLE
from cloudtwin.providers.inventory import Inventory, Resource

CLUSTER = "everstep"
URN = "urn:pulumi:dev::everstep::aws:eks/addon:Addon::addon"
PREFIX = f"/aws/containerinsights/{CLUSTER}"


def addon(name: str) -> Resource:
    inputs = {"clusterName": CLUSTER, "addonName": name}
    return Resource(token=ADDON, id=f"{CLUSTER}:{name}", urn=URN, inputs=inputs, outputs={})


def log_group(name: str) -> Resource:
    return Resource(token=LOGS, id=name, urn="", inputs={"name": name}, outputs={"name": name})


def created_with(addon: Resource, account: Inventory) -> list[Resource]:
    """Return the resources that EKS creates with an add-on."""
    (kind,) = (kind for kind in TYPES if kind.token == ADDON)
    assert kind.companions is not None
    return list(kind.companions(addon, account))


def test_the_agents_of_container_insights_leave_their_log_groups_behind() -> None:
    groups = created_with(addon(CLOUDWATCH_ADDON), Inventory())

    names = {f"{PREFIX}/{name}" for name in ("application", "dataplane", "host", "performance")}
    assert {group.id for group in groups} == names
    assert all(group.token == LOGS for group in groups)
    assert not any(group.owner for group in groups), "AWS deletes none of them with the add-on"


def test_a_declared_log_group_is_used_and_not_created_again() -> None:
    declared = log_group(f"{PREFIX}/host")

    groups = created_with(addon(CLOUDWATCH_ADDON), Inventory((declared,)))

    assert declared.id not in {group.id for group in groups}
    assert len(groups) == 3


@pytest.mark.parametrize("name", ["vpc-cni", "aws-fsx-csi-driver"])
def test_other_addons_create_no_log_group(name: str) -> None:
    assert created_with(addon(name), Inventory()) == []


def test_the_security_group_of_a_cluster_is_deleted_only_with_the_cluster() -> None:
    cluster, role = (
        Resource(token=token, id=CLUSTER, urn="", inputs={}, outputs={})
        for token in (CLUSTER_TYPE, ROLE)
    )
    group = Resource(token=GROUP, id="sg-1", urn="", inputs={}, outputs={}, owner=CLUSTER)
    account = Inventory((cluster, role, group))

    assert list(CLOUD.deleted_with(cluster, account)) == [cluster, group]
    assert list(CLOUD.deleted_with(role, account)) == [role], "the role has the name of the cluster"
