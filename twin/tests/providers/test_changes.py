"""Generated names, updates in place, replacements, and updates that the service refuses."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cloudtwin.providers import aws, azure
from cloudtwin.providers.aws.eks_rules import CLUSTER, NODES
from cloudtwin.providers.aws.fsx import FILE_SYSTEM
from cloudtwin.providers.aws.network import SUBNET
from cloudtwin.providers.aws.policies import ROLE
from cloudtwin.providers.azure import aks_rules, identity
from cloudtwin.providers.azure.common import ROOT
from cloudtwin.providers.azure.monitor import BUDGET
from cloudtwin.providers.azure.storage import ACCOUNT
from cloudtwin.providers.changes import compare, is_generated, with_name
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import ProviderConfig, ResourceRequest
from cloudtwin.providers.protocol.values import UNKNOWN, Object, Secret
from hypothesis import given, settings

from twin.tests.providers.azure.cases import AKS, INLINE
from twin.tests.providers.samples import TREES

REPLACING_FIELDS = {
    NODES: {"capacityType", "instanceTypes", "subnetIds", "amiType"},
    FILE_SYSTEM: {"deploymentType", "subnetIds"},
    SUBNET: {"cidrBlock", "availabilityZone"},
    CLUSTER: {"bootstrapSelfManagedAddons", "encryptionConfig"},
    aks_rules.POOL: {"vmSize", "gpuInstanceProfile"},
    identity.CLUSTER: {"location", "dnsPrefix", "nodeResourceGroup"},
}
UPDATABLE_FIELDS = {
    NODES: {"labels", "taints", "scalingConfig", "version"},
    FILE_SYSTEM: {"storageCapacity", "dataCompressionType"},
    SUBNET: {"tags"},
    CLUSTER: {"version", "vpcConfig", "upgradePolicy"},
    aks_rules.POOL: {"nodeLabels", "maxCount", "orchestratorVersion", "scaleSetPriority"},
    identity.CLUSTER: {"kubernetesVersion", "tags", "autoScalerProfile"},
}
TYPES = {**aws.CLOUD.types, **azure.CLOUD.types}


@pytest.mark.parametrize(
    ("token", "field", "replaces"),
    [
        (token, field, replaces)
        for table, replaces in ((REPLACING_FIELDS, True), (UPDATABLE_FIELDS, False))
        for token, names in table.items()
        for field in sorted(names)
    ],
)
def test_a_change_replaces_a_resource_only_if_the_field_is_immutable(
    token: str, field: str, replaces: bool
) -> None:
    diff = compare(TYPES[token], "r", {field: "old"}, {field: "new"}, [])
    assert [(change.path, change.replaces) for change in diff.fields] == [((field,), replaces)]


def test_an_ignored_change_makes_no_difference() -> None:
    kind = TYPES[NODES]
    old, new = ({"scalingConfig": {"desiredSize": n, "maxSize": 3}} for n in (1, 2))
    assert compare(kind, "r", old, new, ["scalingConfig.desiredSize"]).fields == ()
    assert compare(kind, "r", old, new, []).fields != ()


@pytest.mark.parametrize(
    ("name", "expected"), [("everstep", True), ("group-0a1b2c3", False), ("group-mine", True)]
)
def test_the_old_resource_is_deleted_first_if_both_would_have_the_same_chosen_name(
    name: str, expected: bool
) -> None:
    old = {"name": name, "vpcId": "a"}
    kind = TYPES["aws:ec2/securityGroup:SecurityGroup"]
    assert compare(kind, "group", old, {**old, "vpcId": "b"}, []).delete_first is expected


def test_a_resource_with_a_name_prefix_is_created_before_the_old_one_is_deleted() -> None:
    prefix = {"namePrefix": "everstep-"}
    kind = TYPES["aws:ec2/securityGroup:SecurityGroup"]
    old = with_name(kind, "group", {**prefix, "vpcId": "a"}, {}, b"seed")
    new = with_name(kind, "group", {**prefix, "vpcId": "b"}, old, b"other")

    diff = compare(kind, "group", old, new, [])

    assert diff.replaces == ("vpcId",)
    assert not diff.delete_first, "the provider generates another name for the new resource"


def test_a_name_prefix_gets_the_26_characters_of_the_aws_provider() -> None:
    kind = TYPES[NODES]
    prefix = {"nodeGroupNamePrefix": "everstep-system-"}

    name = with_name(kind, "group", prefix, {}, b"seed")["nodeGroupName"]

    assert re.fullmatch(r"everstep-system-[0-9a-f]{26}", name), name


def test_a_name_is_unknown_while_its_prefix_is() -> None:
    kind = TYPES[NODES]
    prefix = {"nodeGroupNamePrefix": UNKNOWN}

    new = with_name(kind, "group", prefix, {}, b"seed")

    assert new["nodeGroupName"] is UNKNOWN
    old = {"nodeGroupNamePrefix": "a-", "nodeGroupName": "a-0"}
    assert not compare(kind, "group", old, {**prefix, **new}, []).delete_first


def refusals_of(
    token: str,
    before: Object,
    outputs: Object,
    after: Object,
    resource_id: str = "x",
    others: Sequence[Resource] = (),
) -> list[str]:
    """Return the reasons why the service refuses an update in an account with other resources."""
    resource = Resource(token=token, id=resource_id, urn="", inputs=before, outputs=outputs)
    request = ResourceRequest(
        inputs=after, config=ProviderConfig(cloud=""), account=Inventory(tuple(others)), entropy="", id=resource_id,
        previous=resource,
    )  # fmt: skip
    return refusals_by(token, request)


def refusals_by(token: str, request: ResourceRequest) -> list[str]:
    """Return the reasons why the service refuses a request."""
    return [
        reason
        for precondition in TYPES[token].preconditions
        for reason in precondition.violations(request)
    ]


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        (None, "2026-12-01T00:00:00Z", None),
        (None, "2026-11-01T00:00:00Z", None),
        (None, "2026-10-01T00:00:00Z", "before the current month"),
        ("2026-10-01T00:00:00Z", "2026-10-01T00:00:00Z", None),
        ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", "cannot be updated"),
    ],
)
def test_an_azure_budget_starts_in_no_past_month_and_keeps_its_start(
    old: str | None, new: str, refusal: str | None
) -> None:
    before = {"timePeriod": {"startDate": old}, "scope": ROOT}
    request = ResourceRequest(
        inputs={**before, "timePeriod": {"startDate": new}},
        config=ProviderConfig(cloud=""), account=Inventory(), entropy="",
        created_at=datetime(2026, 11, 28, tzinfo=UTC).timestamp(),
        previous=Resource(token=BUDGET, id="x", urn="", inputs=before, outputs={}) if old else None,
    )  # fmt: skip

    reasons = refusals_by(BUDGET, request)

    assert [refusal in reason for reason in reasons] == [True] if refusal else reasons == []


@pytest.mark.parametrize(("version", "refusals"), [("1.36", 0), ("1.37", 1), ("1.34", 1)])
def test_an_eks_cluster_is_upgraded_one_minor_version_at_a_time(
    version: str, refusals: int
) -> None:
    reasons = refusals_of(CLUSTER, {}, {"version": "1.35"}, {"version": version})
    assert len(reasons) == refusals, reasons


@pytest.mark.parametrize(("version", "refusals"), [("1.36", 0), ("1.37", 1), ("1.34", 1)])
def test_an_aks_cluster_is_upgraded_one_minor_version_at_a_time(
    version: str, refusals: int
) -> None:
    outputs = {"currentKubernetesVersion": "1.35.5"}
    inputs = {**INLINE, "kubernetesVersion": version}
    assert len(refusals_of(identity.CLUSTER, INLINE, outputs, inputs, AKS)) == refusals


@pytest.mark.parametrize(("low", "high"), [(2, 3), (0, 0)])
def test_only_a_new_aks_pool_needs_bounds_that_include_its_number_of_nodes(
    low: int, high: int
) -> None:
    bounds = {"enableAutoScaling": True, "minCount": low, "count": 1, "maxCount": high}
    for token, inputs in (
        (aks_rules.POOL, {"vmSize": "Standard_D4s_v5", **bounds}),
        (identity.CLUSTER, {"agentPoolProfiles": [{"name": "system", "mode": "System", **bounds}]}),
    ):
        creation = ResourceRequest(
            inputs=inputs, config=ProviderConfig(cloud=""), account=Inventory(), entropy="", id=AKS
        )
        update = replace(
            creation, previous=Resource(token=token, id=AKS, urn="", inputs=inputs, outputs={})
        )

        assert refusals_by(token, creation) == [
            f"minCount {low} <= count 1 <= maxCount {high} must hold for a new pool"
        ]
        assert refusals_by(token, update) == [], "AKS accepts bounds that the pool is outside of"


@pytest.mark.parametrize(("nodes", "refusals"), [("1.35", 0), ("1.34", 1)])
def test_an_eks_cluster_is_not_updated_before_its_node_groups_have_its_version(
    nodes: str, refusals: int
) -> None:
    inputs = {"clusterName": "c", "nodeGroupName": "gpu"}
    group = Resource(token=NODES, id="c:gpu", urn="", inputs=inputs, outputs={"version": nodes})
    outputs = {"name": "c", "version": "1.35"}
    reasons = refusals_of(CLUSTER, {}, outputs, {"version": "1.36"}, others=[group])

    assert len(reasons) == refusals
    assert not refusals or reasons[0].startswith(
        "Nodegroups gpu must be updated to match cluster version 1.35"
    )


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        (["b2", "a"], None),
        (["a"], "a, b, and not to a"),
        (["a", "b", "c"], "a, b, and not to a, b, c"),
    ],
)
def test_the_subnets_of_an_eks_cluster_stay_in_the_zones_of_its_creation(
    names: list[str], refusal: str | None
) -> None:
    subnets = [
        Resource(token=SUBNET, id=name, urn="", inputs={}, outputs={"availabilityZone": name[0]})
        for name in ("a", "b", "b2", "c")
    ]
    before, after = ({"vpcConfig": {"subnetIds": ids}} for ids in (["a", "b"], names))

    reasons = refusals_of(CLUSTER, before, {}, after, others=subnets)

    expected = "the set of availability zones with which the cluster was created, "
    assert [refusal for reason in reasons if f"{expected}{refusal}" in reason] == (
        [refusal] if refusal else []
    )


@pytest.mark.parametrize(
    ("old", "new", "refusals"),
    [
        ("Standard_LRS", "Standard_ZRS", 1),
        ("Premium_ZRS", "Premium_LRS", 1),
        ("Standard_LRS", "Standard_GRS", 0),
        ("Standard_ZRS", "Standard_GZRS", 0),
    ],
)
def test_an_update_cannot_change_the_zone_redundancy_of_a_storage_account(
    old: str, new: str, refusals: int
) -> None:
    before, after = ({"sku": {"name": name}} for name in (old, new))

    assert len(refusals_of(ACCOUNT, before, {}, after, f"{AKS}/a")) == refusals


def test_nodes_are_never_downgraded() -> None:
    group = refusals_of(NODES, {}, {"version": "1.36"}, {"version": "1.35"})
    outputs = {"currentOrchestratorVersion": "1.36.2"}
    pool = refusals_of(
        aks_rules.POOL, {}, outputs, {"orchestratorVersion": "1.35"}, f"{AKS}/agentPools/a"
    )

    assert any("cannot go back from Kubernetes 1.36 to 1.35" in text for text in group), group
    assert any("cannot go back from Kubernetes 1.36.2 to 1.35" in text for text in pool), pool
    assert not refusals_of(NODES, {}, {"version": "1.35"}, {"version": "1.36"})


@pytest.mark.parametrize(
    ("priority", "change", "field"),
    [
        ("Spot", {"spotMaxPrice": 2}, "spotMaxPrice"),
        ("Spot", {"nodeTaints": ["a=b:NoSchedule"]}, "nodeTaints"),
        ("Regular", {"scaleSetPriority": "Spot"}, "scaleSetPriority"),
        ("Regular", {"osDiskSizeGB": 256}, "osDiskSizeGB"),
        ("Regular", {"nodeTaints": ["a=b:NoSchedule"], "maxCount": 9}, None),
    ],
)
def test_an_aks_pool_keeps_its_priority_its_maximum_price_and_its_disk(
    priority: str, change: Object, field: str | None
) -> None:
    before = {"scaleSetPriority": priority, "spotMaxPrice": -1, "osDiskSizeGB": 128}
    reasons = refusals_of(aks_rules.POOL, before, {}, {**before, **change}, f"{AKS}/agentPools/t4")

    expected = [f"Changing property 'properties.{field}' is not allowed"] if field else []
    assert reasons == expected


@pytest.mark.parametrize(("pool", "refusals"), [("1.34", 0), ("1.33", 1)])
def test_an_aks_cluster_is_not_upgraded_while_a_pool_would_be_too_old(
    pool: str, refusals: int
) -> None:
    outputs = {"currentOrchestratorVersion": f"{pool}.1"}
    old = Resource(
        token=aks_rules.POOL, id=f"{AKS}/agentPools/t4", urn="", inputs={}, outputs=outputs
    )
    cluster = {"currentKubernetesVersion": "1.36.2"}
    upgraded_inputs = {**INLINE, "kubernetesVersion": "1.37"}

    assert (
        len(refusals_of(identity.CLUSTER, INLINE, cluster, upgraded_inputs, AKS, [old])) == refusals
    )


@pytest.mark.parametrize(
    ("versions", "refusals"),
    [
        (("1.37", "1.37"), 0),
        (("1.36", "1.36"), 0),
        ((None, None), 0),
        (("1.37", None), 1),
        (("1.35", "1.37"), 1),
    ],
)
def test_inline_pools_keep_their_version_or_get_the_version_of_the_control_plane(
    versions: tuple[str | None, str | None], refusals: int
) -> None:
    def cluster(control: str, *versions: str | None) -> Object:
        pools = [
            {"name": f"p{n}", **({"orchestratorVersion": version} if version else {})}
            for n, version in enumerate(versions)
        ]
        return {"kubernetesVersion": control, "agentPoolProfiles": pools}

    before, outputs = cluster("1.36", "1.36", "1.36"), {"currentKubernetesVersion": "1.36.2"}
    reasons = refusals_of(identity.CLUSTER, before, outputs, cluster("1.37", *versions), AKS)

    assert sum("must be all specified or all unspecified" in text for text in reasons) == refusals


@pytest.mark.parametrize(
    ("kind", "size", "refusals"),
    [
        ("SCRATCH_2", 4800, 0),
        ("SCRATCH_2", 1200, 1),
        ("SCRATCH_1", 2400, 0),
        ("SCRATCH_1", 3600, 1),
    ],
)
def test_a_file_system_only_grows_and_scratch_1_keeps_its_size(
    kind: str, size: int, refusals: int
) -> None:
    inputs = {"subnetIds": "s", "deploymentType": kind, "storageCapacity": size}
    assert len(refusals_of(FILE_SYSTEM, {}, {"storageCapacity": 2400}, inputs)) == refusals


@pytest.mark.parametrize(
    ("version", "refusals", "replaces"), [("2.15", 0, False), ("2.12", 0, False), ("2.10", 1, True)]
)
def test_fsx_refuses_an_older_lustre_version_for_which_the_provider_replaces_the_file_system(
    version: str, refusals: int, replaces: bool
) -> None:
    old, new = {"fileSystemTypeVersion": "2.12"}, {"fileSystemTypeVersion": version}

    assert len(refusals_of(FILE_SYSTEM, old, old, new)) == refusals
    diff = compare(TYPES[FILE_SYSTEM], "f", old, new, [])
    assert any(field.replaces for field in diff.fields) is replaces


def test_an_unknown_lustre_version_replaces_no_file_system() -> None:
    new = {"fileSystemTypeVersion": UNKNOWN}
    diff = compare(TYPES[FILE_SYSTEM], "f", {"fileSystemTypeVersion": "2.15"}, new, [])

    assert [field.replaces for field in diff.fields] == [False]


def test_inline_pools_cannot_be_added_or_change_their_machines() -> None:
    old = {"agentPoolProfiles": [{"name": "system", "vmSize": "Standard_D4s_v5"}]}
    inputs_with_pool = {"agentPoolProfiles": [*old["agentPoolProfiles"], {"name": "gpu"}]}
    resized_inputs = {"agentPoolProfiles": [{"name": "system", "vmSize": "Standard_D8s_v5"}]}
    outputs = {"currentKubernetesVersion": "1.36.2"}

    assert "A new agent pool was introduced: gpu" in str(
        refusals_of(identity.CLUSTER, old, outputs, inputs_with_pool, AKS)
    )
    assert "'properties.vmSize' of the pool system" in str(
        refusals_of(identity.CLUSTER, old, outputs, resized_inputs, AKS)
    )


@pytest.mark.parametrize(
    ("token", "pattern"),
    [("aws:iam/role:Role", "nodes-[0-9a-f]{7}"), (identity.IDENTITY, "nodes[0-9a-f]{8}")],
)
def test_a_generated_name_starts_with_the_resources_name_and_is_the_same_at_preview_and_update(
    token: str, pattern: str
) -> None:
    kind = TYPES[token]
    key = kind.naming.property if kind.naming else ""
    at_preview, at_update = (with_name(kind, "nodes", {}, {}, seed)[key] for seed in (b"a", b"a"))
    assert at_preview == at_update
    assert re.fullmatch(pattern, at_preview), at_preview
    assert with_name(kind, "nodes", {}, {}, b"b")[key] != at_preview
    assert is_generated(kind, "nodes", at_preview)
    assert not is_generated(kind, "nodes", f"{at_preview}0")


@settings(max_examples=30)
@given(tree=TREES)
def test_equal_inputs_have_no_difference(tree: Object) -> None:
    known_inputs = {key: value for key, value in tree.items() if "UNKNOWN" not in repr(value)}
    kind = aws.CLOUD.types["aws:ec2/vpc:Vpc"]
    assert compare(kind, "r", known_inputs, known_inputs, []).fields == ()


@pytest.mark.parametrize(("token", "is_kept"), [(ROLE, False), (identity.IDENTITY, True)])
def test_a_name_that_the_program_no_longer_sets_is_kept_only_by_azure(
    token: str, is_kept: bool
) -> None:
    kind = TYPES[token]
    assert kind.naming
    key = kind.naming.property

    new = with_name(kind, "nodes", {}, {key: "chosen"}, b"seed")

    assert (new[key] == "chosen") is is_kept
    assert with_name(kind, "renamed", {}, new, b"other") == new, "a generated name is kept"


def test_a_name_with_a_secret_prefix_is_secret() -> None:
    new = with_name(TYPES[ROLE], "nodes", {"namePrefix": Secret("hunter-")}, {}, b"seed")

    assert isinstance(new["name"], Secret)
    assert new["name"].value.startswith("hunter-")
