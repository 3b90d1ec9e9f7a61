"""What changes in place, what needs a new resource, and what the service refuses to change."""

import pytest

from tests.unit.twin.clouds.cases_azure import AKS, INLINE
from twin.clouds import aws, azure
from twin.clouds.aws.eks_rules import CLUSTER, NODES
from twin.clouds.aws.fsx import SYSTEM
from twin.clouds.aws.network import SUBNET
from twin.clouds.azure import aks_rules
from twin.clouds.diff import compare
from twin.clouds.model import Making, Settings
from twin.clouds.world import Resource, World

REPLACED = {
    NODES: {"capacityType", "instanceTypes", "subnetIds", "amiType"},
    SYSTEM: {"deploymentType", "subnetIds"},
    SUBNET: {"cidrBlock", "availabilityZone"},
    CLUSTER: {"bootstrapSelfManagedAddons", "encryptionConfig"},
    aks_rules.POOL: {"vmSize", "scaleSetPriority", "scaleSetEvictionPolicy", "spotMaxPrice"},
    aks_rules.CLUSTER: {"location", "dnsPrefix", "nodeResourceGroup"},
}
IN_PLACE = {
    NODES: {"labels", "taints", "scalingConfig", "version"},
    SYSTEM: {"storageCapacity", "dataCompressionType"},
    SUBNET: {"tags"},
    CLUSTER: {"version", "vpcConfig", "upgradePolicy"},
    aks_rules.POOL: {"nodeLabels", "maxCount", "orchestratorVersion"},
    aks_rules.CLUSTER: {"kubernetesVersion", "tags", "autoScalerProfile"},
}
TYPES = {**aws.CLOUD.types, **azure.CLOUD.types}


@pytest.mark.parametrize(
    ("token", "field", "replaces"),
    [
        (token, field, replaces)
        for table, replaces in ((REPLACED, True), (IN_PLACE, False))
        for token, names in table.items()
        for field in sorted(names)
    ],
)
def test_a_change_replaces_only_what_the_service_cannot_change(token, field, replaces):
    found = compare(TYPES[token], "r", {field: "old"}, {field: "new"}, [])
    assert bool(found.replaces) == replaces


def test_an_ignored_change_is_none():
    kind = TYPES[NODES]
    old, new = ({"scalingConfig": {"desiredSize": n, "maxSize": 3}} for n in (1, 2))
    assert compare(kind, "r", old, new, ["scalingConfig.desiredSize"]).fields == ()
    assert compare(kind, "r", old, new, []).fields != ()


@pytest.mark.parametrize(
    ("name", "first"), [("everstep", True), ("group-0a1b2c3", False), ("group-mine", True)]
)
def test_the_old_one_goes_first_where_both_would_bear_a_chosen_name(name, first):
    old = {"name": name, "vpcId": "a"}
    kind = TYPES["aws:ec2/securityGroup:SecurityGroup"]
    assert compare(kind, "group", old, {**old, "vpcId": "b"}, []).delete_first is first


def changed(token: str, before: dict, outputs: dict, after: dict, identity: str = "x") -> list[str]:
    resource = Resource(token=token, id=identity, urn="", inputs=before, outputs=outputs)
    making = Making(
        inputs=after, settings=Settings(cloud=""), world=World(), entropy="", id=identity,
        before=resource,
    )  # fmt: skip
    return [said for demand in TYPES[token].demands for said in demand.broken(making)]


@pytest.mark.parametrize(("version", "said"), [("1.36", 0), ("1.37", 1), ("1.34", 1)])
def test_an_eks_cluster_goes_up_one_version_at_a_time(version, said):
    found = changed(CLUSTER, {}, {"version": "1.35"}, {"version": version})
    assert len(found) == said, found


@pytest.mark.parametrize(("version", "said"), [("1.36", 0), ("1.37", 1), ("1.34", 1)])
def test_an_aks_cluster_goes_up_one_version_at_a_time(version, said):
    outputs = {"currentKubernetesVersion": "1.35.5"}
    inputs = {**INLINE, "kubernetesVersion": version}
    assert len(changed(aks_rules.CLUSTER, INLINE, outputs, inputs, AKS)) == said


@pytest.mark.parametrize(("size", "said"), [(4800, 0), (1200, 1)])
def test_a_file_system_only_grows(size, said):
    inputs = {"subnetIds": "s", "storageCapacity": size}
    assert len(changed(SYSTEM, {}, {"storageCapacity": 2400}, inputs)) == said


def test_an_inline_pool_neither_comes_nor_changes_its_machines():
    old = {"agentPoolProfiles": [{"name": "system", "vmSize": "Standard_D4s_v5"}]}
    more = {"agentPoolProfiles": [*old["agentPoolProfiles"], {"name": "gpu"}]}
    other = {"agentPoolProfiles": [{"name": "system", "vmSize": "Standard_D8s_v5"}]}
    outputs = {"currentKubernetesVersion": "1.36.2"}

    assert "A new agent pool was introduced: gpu" in str(
        changed(aks_rules.CLUSTER, old, outputs, more, AKS)
    )
    assert "'properties.vmSize' of the pool system" in str(
        changed(aks_rules.CLUSTER, old, outputs, other, AKS)
    )
