"""Amazon EKS: clusters, add-ons, access entries; the rules are in eks_rules. Pure."""

# ruff: noqa: S106  (a token is the name of a type, not a password)

from collections.abc import Iterable, Mapping
from typing import Any

from cloudfacts.kubernetes import EKS_VERSIONS

from cloudtwin.providers.aws import eks_rules as rules
from cloudtwin.providers.aws.common import CALLER, CREATION_TIME, arn, id_from
from cloudtwin.providers.aws.eks_rules import ADDON, CLUSTER, ENTRY
from cloudtwin.providers.aws.identity import to_key
from cloudtwin.providers.aws.monitoring import LOGS
from cloudtwin.providers.aws.network import GROUP, SUBNET, in_groups, in_subnets
from cloudtwin.providers.aws.policies import ROLE, assume_role_check
from cloudtwin.providers.conditions import matches, one_of_values, public_range, value_rule
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import (
    DeletionGuard,
    Endpoint,
    InputRule,
    Inputs,
    Naming,
    Precondition,
    Reference,
    ResourceRequest,
    ResourceType,
)

ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
CLOUDWATCH_ADDON = "amazon-cloudwatch-observability"
INSIGHTS_GROUPS = ("application", "dataplane", "host", "performance")
"""Log groups of Container Insights. Source: CloudWatch User Guide, "Container Insights performance log events" and
"Send logs to CloudWatch Logs", 2026-11."""

API, GUIDE = "EKS API Reference", "EKS User Guide"
COMPUTED = "Terraform AWS provider, aws_eks_cluster (attributes that are only computed)"
INVALID, IN_USE = "InvalidParameterException", "ResourceInUseException"
POD_SERVICE, POD_ACTIONS = "pods.eks.amazonaws.com", ("sts:AssumeRole", "sts:TagSession")
PRINCIPAL = matches(
    r"arn:aws:(iam::\d{12}:(role|user)/.+|sts::\d{12}:assumed-role/.+)",
    "is not the ARN of an IAM role or user",
)
DNS_LABEL = matches(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "is not a valid Kubernetes name")


def of_cluster(in_use_code: str = "") -> Reference:
    """Return a reference to a cluster by its name."""
    return Reference("clusterName", (CLUSTER,), "ResourceNotFoundException", in_use_code, "name")


def to_role(path: str) -> Reference:
    """Return a reference to a role by its ARN."""
    return Reference(path, (ROLE,), INVALID, key="arn")


def _describe_cluster(request: ResourceRequest) -> dict[str, Any]:
    vpc, old = dict(request.inputs["vpcConfig"]), request.previous
    subnets = (request.account.find((SUBNET,), subnet_id) for subnet_id in vpc["subnetIds"])
    issuer = (
        f"https://oidc.eks.{request.region}.amazonaws.com/id/{request.digits('oidc', 32).upper()}"
    )
    return {
        "arn": arn("eks", f"cluster/{request.id}", request.region),
        "version": request.inputs.get("version")
        or (old and old.outputs["version"])
        or EKS_VERSIONS[-1],
        "status": "ACTIVE",
        "platformVersion": "eks.1",
        "createdAt": CREATION_TIME,
        "identities": [{"oidcs": [{"issuer": issuer}]}],
        "vpcConfig": {
            "endpointPublicAccess": True,
            "endpointPrivateAccess": False,
            **vpc,
            "vpcId": next((str(subnet.inputs["vpcId"]) for subnet in subnets if subnet), ""),
            "clusterSecurityGroupId": f"sg-0{request.digits('group', 16)}",
        },
    }


def _companions(cluster: Resource, account: Inventory) -> Iterable[Resource]:
    """Yield the cluster's security group and, if logging is enabled and none exists, a log group that outlives it."""
    vpc = cluster.outputs["vpcConfig"]
    inputs = {"vpcId": vpc["vpcId"], "name": f"eks-cluster-sg-{cluster.id}"}
    group = str(vpc["clusterSecurityGroupId"])
    yield Resource(
        token=GROUP, id=group, urn=cluster.urn, inputs=inputs, outputs={**inputs, "id": group},
        acknowledged=True, owner=cluster.id,
    )  # fmt: skip
    if cluster.inputs.get("enabledClusterLogTypes"):
        yield from _log_groups(cluster, [f"/aws/eks/{cluster.id}/cluster"], account)


def _agents_log_groups(addon: Resource, account: Inventory) -> Iterable[Resource]:
    """Yield the log groups that the agents of Container Insights create and leave behind, if they are not declared."""
    if addon.inputs.get("addonName") == CLOUDWATCH_ADDON:
        prefix = f"/aws/containerinsights/{addon.inputs['clusterName']}"
        yield from _log_groups(addon, [f"{prefix}/{name}" for name in INSIGHTS_GROUPS], account)


def _log_groups(creator: Resource, names: Iterable[str], account: Inventory) -> Iterable[Resource]:
    """Yield the log groups that do not exist; they outlive the resource that creates them."""
    for name in names:
        if account.find((LOGS,), name) is None:
            yield Resource(
                token=LOGS, id=name, urn=creator.urn, inputs={"name": name}, outputs={"name": name},
                acknowledged=True,
            )  # fmt: skip


def _cluster_outputs(_cluster: Resource, endpoint: Endpoint) -> dict[str, Any]:
    ca = {"data": endpoint.ca}
    return {"endpoint": endpoint.address, "certificateAuthority": ca}


def _drivers(inputs: Inputs) -> Mapping[str, bool]:
    return {"fsx.csi.aws.com": True} if inputs.get("addonName") == "aws-fsx-csi-driver" else {}


def _part(kind: str, *names: str, suffix: int = 0) -> Any:  # noqa: ANN401  a function of a request
    """Return a function that creates the ARN of a part of a cluster."""

    def make(request: ResourceRequest) -> str:
        digits = [request.digits("id", suffix)] if suffix else [request.id]
        path = "/".join([kind, *(str(request.inputs[name]) for name in names), *digits])
        return arn("eks", path, request.region)

    return make


ADDON_ARN = _part("addon", "clusterName", "addonName", suffix=8)
ENTRY_ARN = _part("access-entry", "clusterName", suffix=8)
ASSOCIATION_ARN = _part("podidentityassociation", "clusterName")
TIMES = {"createdAt": CREATION_TIME, "modifiedAt": CREATION_TIME}


def _user(request: ResourceRequest) -> str:
    principal = str(request.inputs["principalArn"])
    is_user = ":user/" in principal or principal == CALLER
    name = principal if is_user else f"{principal}/{{{{SessionName}}}}"
    return str(request.inputs.get("userName") or name)


TYPES = (
    ResourceType(
        token=CLUSTER,
        identify=id_from("name"),
        describe=_describe_cluster,
        companions=_companions,
        cluster_outputs=_cluster_outputs,
        defaults={"bootstrapSelfManagedAddons": True, "deletionProtection": False},
        naming=Naming(max_length=100),
        immutable=("roleArn", "bootstrapSelfManagedAddons", "encryptionConfig", "outpostConfig",
                   "region", "accessConfig.bootstrapClusterCreatorAdminPermissions",
                   "kubernetesNetworkConfig.ipFamily", "kubernetesNetworkConfig.serviceIpv4Cidr"),
        enums={"encryptionConfig.resources.*": ("secrets",)},
        rules=(
            value_rule("version of a cluster", "version", one_of_values(*EKS_VERSIONS),
                       f"{GUIDE}, Kubernetes versions"),
            InputRule("endpoints of a cluster", f"{API}, VpcConfigRequest", rules.endpoints),
            value_rule("public ranges of a cluster", "vpcConfig.publicAccessCidrs.*", public_range,
                       f"{API}, VpcConfigRequest"),
            InputRule("subnets of a cluster", f"{GUIDE}, VPC requirements", rules.cluster_subnets),
            value_rule("VPC of a cluster", "vpcConfig.vpcId", rules.computed_attribute, COMPUTED),
            value_rule("security group of a cluster", "vpcConfig.clusterSecurityGroupId", rules.computed_attribute,
                       COMPUTED),
            value_rule("IPv6 Service CIDR of a cluster",
                       "kubernetesNetworkConfig.serviceIpv6Cidr", rules.computed_attribute, COMPUTED),
            value_rule("Service CIDR of a cluster", "kubernetesNetworkConfig.serviceIpv4Cidr",
                       rules.service_block, f"{API}, KubernetesNetworkConfigRequest"),
            InputRule("Auto Mode complete", f"{API}, ComputeConfigRequest", rules.auto_mode),
        ),
        references=(
            to_role("roleArn"),
            in_subnets("vpcConfig.subnetIds.*"),
            in_groups("vpcConfig.securityGroupIds.*"),
            to_key("encryptionConfig.provider.keyArn", INVALID),
        ),
        preconditions=(
            Precondition("role of a cluster", f"{GUIDE}, cluster IAM role", INVALID,
                         assume_role_check("roleArn", "eks.amazonaws.com")),
            Precondition("permissions of a cluster", f"{GUIDE}, cluster IAM role", INVALID,
                         rules.permissions("roleArn", frozenset({"AmazonEKSClusterPolicy"}))),
            Precondition("zones of a cluster", f"{GUIDE}, VPC requirements",
                         "UnsupportedAvailabilityZoneException", rules.two_zones),
            Precondition("zones of a cluster stay", f"{GUIDE}, VPC requirements", INVALID, rules.same_zones),
            Precondition("Services outside the VPC", f"{API}, KubernetesNetworkConfigRequest", INVALID,
                         rules.services_outside_vpc),
            Precondition("upgrade by one minor version", f"{API}, UpdateClusterVersion", INVALID,
                         rules.next_minor_version),
            Precondition("nodes updated before the cluster", f"{GUIDE}, update a cluster",
                         "InvalidRequestException", rules.nodes_updated),
        ),
        deletion_guards=(
            DeletionGuard("deletion protection", f"{API}, DeleteCluster", INVALID, rules.deletion_protection),
        ),
        unique_code=IN_USE,
    ),
    ResourceType(
        token=ADDON,
        identify=id_from("clusterName", "addonName"),
        describe=lambda request: {"arn": ADDON_ARN(request), **TIMES},
        companions=_agents_log_groups,
        drivers=_drivers,
        immutable=("clusterName", "addonName", "region"),
        enums={
            "resolveConflictsOnCreate": ("NONE", "OVERWRITE"),
            "resolveConflictsOnUpdate": ("NONE", "OVERWRITE", "PRESERVE"),
        },
        rules=(
            value_rule("name of an add-on", "addonName", rules.addon_name, f"{API}, CreateAddon"),
            value_rule("version of an add-on", "addonVersion",
                       matches(r"v\d+\.\d+\.\d+-eksbuild\.\d+",
                               "is not of the form v1.2.3-eksbuild.4"), f"{API}, CreateAddon"),
            value_rule("configuration of an add-on", "configurationValues",
                       rules.configuration_values, f"{API}, CreateAddon"),
        ),
        references=(
            of_cluster(), to_role("serviceAccountRoleArn"),
            to_role("podIdentityAssociations.*.roleArn"),
        ),
        preconditions=(
            Precondition("role of an add-on", f"{GUIDE}, pod identity role", INVALID,
                         assume_role_check("podIdentityAssociations.*.roleArn", POD_SERVICE, POD_ACTIONS)),
            Precondition("version of an add-on for the cluster", f"{API}, DescribeAddonVersions",
                         INVALID, rules.addon_version),
            Precondition("nodes for an add-on", f"{GUIDE}, add-on status", "CREATE_FAILED",
                         rules.addon_nodes),
        ),
        unique=("clusterName", "addonName"),
        unique_code=IN_USE,
    ),
    ResourceType(
        token=ENTRY,
        identify=id_from("clusterName", "principalArn"),
        describe=lambda request: {
            "accessEntryArn": ENTRY_ARN(request), **TIMES, "userName": _user(request),
        },
        defaults={"type": "STANDARD"},
        immutable=("clusterName", "principalArn", "type", "region"),
        enums={"type": ("STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2",
                        "HYBRID_LINUX", "HYPERPOD_LINUX")},
        rules=(value_rule("principal of an entry", "principalArn", PRINCIPAL,
                          f"{API}, CreateAccessEntry"),),
        references=(of_cluster(),),
        unique=("clusterName", "principalArn"),
        unique_code=IN_USE,
    ),
    ResourceType(
        token="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        identify=id_from("clusterName", "principalArn", "policyArn", separator="#"),
        describe=lambda _request: {"associatedAt": CREATION_TIME, "modifiedAt": CREATION_TIME},
        immutable=("clusterName", "principalArn", "policyArn", "accessScope", "region"),
        rules=(
            value_rule("access policy", "policyArn", rules.access_policy,
                       f"{API}, AssociateAccessPolicy"),
            InputRule("scope of an access policy", f"{API}, AccessScope", rules.access_scope),
        ),
        references=(of_cluster(),),
        preconditions=(
            Precondition("entry of a policy", f"{API}, AssociateAccessPolicy",
                         "ResourceNotFoundException", rules.entry_exists),
        ),
        unique_code=IN_USE,
    ),
    ResourceType(
        token=ASSOCIATION,
        identify=lambda request: f"a-{request.entropy[:17]}",
        describe=lambda request: {
            "associationArn": ASSOCIATION_ARN(request), "associationId": request.id,
        },
        pod_identity=lambda inputs: (str(inputs["namespace"]), str(inputs["serviceAccount"])),
        immutable=("clusterName", "namespace", "serviceAccount", "region"),
        rules=(value_rule("namespace of a pod identity", "namespace", DNS_LABEL,
                          f"{API}, CreatePodIdentityAssociation"),),
        references=(of_cluster(), to_role("roleArn")),
        preconditions=(
            Precondition("role of a pod", f"{GUIDE}, pod identity role", INVALID,
                         assume_role_check("roleArn", POD_SERVICE, POD_ACTIONS)),
        ),
        unique=("clusterName", "namespace", "serviceAccount"),
        unique_code=IN_USE,
    ),
)  # fmt: skip
