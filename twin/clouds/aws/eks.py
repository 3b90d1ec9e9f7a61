"""Amazon EKS: clusters, node groups, add-ons, who may do what. The records; rules in eks_rules. Pure."""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

from collections.abc import Iterable, Sequence
from typing import Any

from twin.clouds.acting import Endpoint
from twin.clouds.aws import eks_rules as rules
from twin.clouds.aws.common import CALLER, arn
from twin.clouds.aws.eks_rules import ADDON, CLUSTER, ENTRY
from twin.clouds.aws.identity import KEY
from twin.clouds.aws.network import GROUP, SUBNET, in_groups, in_subnets
from twin.clouds.aws.policies import ROLE, assumable
from twin.clouds.model import Demand, Hold, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.world import Resource, World

ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
LOGS = "aws:cloudwatch/logGroup:LogGroup"
API = "EKS API Reference"
GUIDE = "EKS User Guide"
INVALID = "InvalidParameterException"
IN_USE = "ResourceInUseException"
GRANTED = ("sts:AssumeRole", "sts:TagSession")


def of_cluster(holds: str = "") -> Reference:
    """Return the reference of everything that belongs to a cluster."""
    code = "ResourceNotFoundException"
    return Reference(path="clusterName", to=(CLUSTER,), by="name", code=code, holds=holds)


def to_role(path: str) -> Reference:
    """Return a reference to a role by its ARN."""
    return Reference(path=path, to=(ROLE,), by="arn", code=INVALID)


def _group_id(making: Making) -> str:
    return f"sg-0{making.digits('group', 16)}"


def _describe_cluster(making: Making) -> dict[str, Any]:
    vpc = dict(making.inputs["vpcConfig"])
    subnets = (making.world.find((SUBNET,), str(each)) for each in vpc["subnetIds"])
    place = next((str(each.inputs["vpcId"]) for each in subnets if each), "")
    issuer = (
        f"https://oidc.eks.{making.region}.amazonaws.com/id/{making.digits('oidc', 32).upper()}"
    )
    defaults = {"endpointPublicAccess": True, "endpointPrivateAccess": False}
    return {
        "arn": arn("eks", f"cluster/{making.id}", making.region),
        "version": making.inputs.get("version") or rules.VERSIONS[-1],
        "status": "ACTIVE",
        "platformVersion": "eks.1",
        "createdAt": "2026-01-01T00:00:00Z",
        "identities": [{"oidcs": [{"issuer": issuer}]}],
        "vpcConfig": {
            **defaults,
            **vpc,
            "vpcId": place,
            "clusterSecurityGroupId": _group_id(making),
        },
    }


def _cluster_brings(cluster: Resource, world: World) -> Iterable[Resource]:
    """Bring the cluster's security group and, where nobody declared it, a log group that stays."""
    vpc = cluster.outputs["vpcConfig"]
    inputs = {"vpcId": vpc["vpcId"], "name": f"eks-cluster-sg-{cluster.id}"}
    group = str(vpc["clusterSecurityGroupId"])
    yield Resource(
        token=GROUP, id=group, urn=cluster.urn, inputs=inputs, outputs={**inputs, "id": group},
        answered=True, owner=cluster.id,
    )  # fmt: skip
    logs = f"/aws/eks/{cluster.id}/cluster"
    if cluster.inputs.get("enabledClusterLogTypes") and world.find((LOGS,), logs) is None:
        yield Resource(
            token=LOGS, id=logs, urn=cluster.urn, inputs={"name": logs}, outputs={"name": logs},
            answered=True,
        )  # fmt: skip


def _reached(_cluster: Resource, endpoint: Endpoint) -> dict[str, Any]:
    authority = {"data": endpoint.authority}
    return {"endpoint": endpoint.address, "certificateAuthority": authority}


def _drivers(inputs: Inputs) -> Sequence[str]:
    return ["fsx.csi.aws.com"] if inputs.get("addonName") == "aws-fsx-csi-driver" else []


def _describe_association(making: Making) -> dict[str, Any]:
    path = f"podidentityassociation/{making.inputs['clusterName']}/{making.id}"
    return {"associationArn": arn("eks", path, making.region), "associationId": making.id}


def _user(principal: str) -> str:
    return (
        principal
        if ":user/" in principal or principal == CALLER
        else f"{principal}/{{{{SessionName}}}}"
    )


TYPES = (
    ResourceType(
        token=CLUSTER,
        identify=lambda making: str(making.inputs["name"]),
        describe=_describe_cluster,
        brings=_cluster_brings,
        cluster=_reached,
        defaults={"bootstrapSelfManagedAddons": True, "deletionProtection": False},
        naming=Naming(longest=100),
        immutable=(
            "roleArn",
            "bootstrapSelfManagedAddons",
            "encryptionConfig",
            "outpostConfig",
            "region",
            "accessConfig.bootstrapClusterCreatorAdminPermissions",
            "kubernetesNetworkConfig.ipFamily",
            "kubernetesNetworkConfig.serviceIpv4Cidr",
        ),
        enums={
            "accessConfig.authenticationMode": ("API", "API_AND_CONFIG_MAP", "CONFIG_MAP"),
            "enabledClusterLogTypes.*": rules.LOG_TYPES,
            "upgradePolicy.supportType": ("STANDARD", "EXTENDED"),
            "encryptionConfig.resources.*": ("secrets",),
            "kubernetesNetworkConfig.ipFamily": ("ipv4", "ipv6"),
            "controlPlaneScalingConfig.tier": (
                "standard",
                "tier-xl",
                "tier-2xl",
                "tier-4xl",
                "tier-8xl",
            ),
        },
        rules=(
            Rule(
                name="version of a cluster",
                source=f"{GUIDE}, Kubernetes versions",
                broken=rules.cluster_version,
            ),
            Rule(
                name="name of a cluster", source=f"{API}, CreateCluster", broken=rules.cluster_name
            ),
            Rule(
                name="endpoints of a cluster",
                source=f"{API}, VpcConfigRequest",
                broken=rules.endpoints,
            ),
            Rule(
                name="Auto Mode whole",
                source=f"{API}, ComputeConfigRequest",
                broken=rules.auto_mode,
            ),
        ),
        references=(
            to_role("roleArn"),
            in_subnets("vpcConfig.subnetIds.*"),
            in_groups("vpcConfig.securityGroupIds.*"),
            Reference(path="encryptionConfig.provider.keyArn", to=(KEY,), by="arn", code=INVALID),
        ),
        demands=(
            Demand(
                name="role of a cluster",
                source=f"{GUIDE}, cluster IAM role",
                code=INVALID,
                broken=assumable("roleArn", "eks.amazonaws.com"),
            ),
            Demand(
                name="rights of a cluster",
                source=f"{GUIDE}, cluster IAM role",
                code=INVALID,
                broken=rules.rights("roleArn", frozenset({"AmazonEKSClusterPolicy"})),
            ),
            Demand(
                name="zones of a cluster",
                source=f"{GUIDE}, VPC requirements",
                code="UnsupportedAvailabilityZoneException",
                broken=rules.two_zones,
            ),
            Demand(
                name="steps of a version",
                source=f"{API}, UpdateClusterVersion",
                code=INVALID,
                broken=rules.one_step,
            ),
        ),
        holds=(
            Hold(
                name="deletion protection",
                source=f"{API}, DeleteCluster",
                code=INVALID,
                broken=rules.protected,
            ),
        ),
        unique_code=IN_USE,
    ),
    ResourceType(
        token=ADDON,
        identify=lambda making: f"{making.inputs['clusterName']}:{making.inputs['addonName']}",
        describe=lambda making: {
            "arn": arn(
                "eks",
                f"addon/{making.inputs['clusterName']}/{making.inputs['addonName']}/{making.digits('id', 8)}",
                making.region,
            ),
            "createdAt": "2026-01-01T00:00:00Z",
            "modifiedAt": "2026-01-01T00:00:00Z",
        },
        drivers=_drivers,
        immutable=("clusterName", "addonName", "region"),
        enums={
            "resolveConflictsOnCreate": ("NONE", "OVERWRITE"),
            "resolveConflictsOnUpdate": ("NONE", "OVERWRITE", "PRESERVE"),
        },
        rules=(Rule(name="form of an add-on", source=f"{API}, CreateAddon", broken=rules.addon),),
        references=(
            of_cluster(),
            to_role("serviceAccountRoleArn"),
            to_role("podIdentityAssociations.*.roleArn"),
        ),
        demands=(
            Demand(
                name="role of an add-on",
                source=f"{GUIDE}, pod identity role",
                code=INVALID,
                broken=assumable(
                    "podIdentityAssociations.*.roleArn", "pods.eks.amazonaws.com", GRANTED
                ),
            ),
            Demand(
                name="nodes for an add-on",
                source=f"{GUIDE}, add-on status",
                code="CREATE_FAILED",
                broken=rules.nodes_there,
            ),
        ),
        unique=("clusterName", "addonName"),
        unique_code=IN_USE,
    ),
    ResourceType(
        token=ENTRY,
        identify=lambda making: f"{making.inputs['clusterName']}:{making.inputs['principalArn']}",
        describe=lambda making: {
            "accessEntryArn": arn(
                "eks",
                f"access-entry/{making.inputs['clusterName']}/{making.digits('id', 8)}",
                making.region,
            ),
            "createdAt": "2026-01-01T00:00:00Z",
            "modifiedAt": "2026-01-01T00:00:00Z",
            "userName": making.inputs.get("userName") or _user(str(making.inputs["principalArn"])),
        },
        defaults={"type": "STANDARD"},
        immutable=("clusterName", "principalArn", "type", "region"),
        enums={
            "type": (
                "STANDARD",
                "EC2_LINUX",
                "EC2_WINDOWS",
                "FARGATE_LINUX",
                "EC2",
                "HYBRID_LINUX",
                "HYPERPOD_LINUX",
            )
        },
        references=(of_cluster(),),
        unique=("clusterName", "principalArn"),
        unique_code=IN_USE,
    ),
    ResourceType(
        token="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        identify=lambda making: "#".join(
            str(making.inputs[key]) for key in ("clusterName", "principalArn", "policyArn")
        ),
        describe=lambda _making: {
            "associatedAt": "2026-01-01T00:00:00Z",
            "modifiedAt": "2026-01-01T00:00:00Z",
        },
        immutable=("clusterName", "principalArn", "policyArn", "accessScope", "region"),
        enums={"accessScope.type": ("cluster", "namespace")},
        rules=(
            Rule(
                name="form of an access policy",
                source=f"{API}, AssociateAccessPolicy",
                broken=rules.access_policy,
            ),
        ),
        references=(of_cluster(),),
        demands=(
            Demand(
                name="entry of a policy",
                source=f"{API}, AssociateAccessPolicy",
                code="ResourceNotFoundException",
                broken=rules.entry_there,
            ),
        ),
        unique_code=IN_USE,
    ),
    ResourceType(
        token=ASSOCIATION,
        identify=lambda making: f"a-{making.entropy[:17]}",
        describe=_describe_association,
        immutable=("clusterName", "namespace", "serviceAccount", "region"),
        references=(of_cluster(), to_role("roleArn")),
        demands=(
            Demand(
                name="role of a pod",
                source=f"{GUIDE}, pod identity role",
                code=INVALID,
                broken=assumable("roleArn", "pods.eks.amazonaws.com", GRANTED),
            ),
        ),
        unique=("clusterName", "namespace", "serviceAccount"),
        unique_code=IN_USE,
    ),
)
