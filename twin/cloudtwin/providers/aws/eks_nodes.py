"""Node groups of Amazon EKS, and their machines. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudtwin.providers.aws import eks_rules as rules
from cloudtwin.providers.aws import eks_templates
from cloudtwin.providers.aws.common import arn, id_from
from cloudtwin.providers.aws.eks import API, GUIDE, IN_USE, INVALID, of_cluster, to_role
from cloudtwin.providers.aws.eks_rules import NODES
from cloudtwin.providers.aws.machines import TEMPLATE, gpus, instance_type_error
from cloudtwin.providers.aws.network import SUBNET, in_subnets
from cloudtwin.providers.aws.node_config import registration_taints
from cloudtwin.providers.aws.policies import assume_role_check
from cloudtwin.providers.conditions import in_range, matches, value_rule
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import (
    InputRule,
    Inputs,
    Naming,
    Precondition,
    Reference,
    ResourceRequest,
    ResourceType,
)

if TYPE_CHECKING:
    from cloudtwin.capacity import Pool
    from cloudtwin.nodes.model import Taint

EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
STARTUP_SUFFIX = "agent-not-ready"  # suffix of the keys of taints that CSI drivers remove
CREATE = f"{API}, CreateNodegroup"
# EKS adds up to two nodes for each zone, or maxUnavailable nodes if that is more. The twin replaces one machine at a
# time.
SURGE = 1


def _describe_nodes(request: ResourceRequest) -> dict[str, Any]:
    cluster, name = request.inputs["clusterName"], request.inputs["nodeGroupName"]
    owner = request.previous or rules.cluster_of(
        request
    )  # an update without a version keeps the current one
    version = request.inputs.get("version") or (owner and owner.outputs["version"]) or ""
    token = request.digits("id", 32)
    uuid = f"{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:20]}-{token[20:]}"
    group = {
        "autoscalingGroups": [{"name": f"eks-{name}-{uuid}"}],
        "remoteAccessSecurityGroupId": "",
    }
    return {
        "arn": arn("eks", f"nodegroup/{cluster}/{name}/{uuid}", request.region),
        "status": "ACTIVE",
        "version": version,
        "releaseVersion": request.inputs.get("releaseVersion") or f"{version}.0-20261101",
        "resources": [group],
    }


def node_pools(group: Resource, account: Inventory) -> Sequence["Pool"]:
    """Return the pool of a node group's machines, with its labels, and the taints of the group and of the kubelet."""
    from cloudtwin.capacity import Pool
    from cloudtwin.nodes.model import Role

    inputs = group.inputs
    types = _instance_types(inputs, account)
    sizes = inputs["scalingConfig"]
    subnet = account.find((SUBNET,), inputs["subnetIds"][0])
    zone = str(subnet.outputs["availabilityZone"]) if subnet else ""
    template = rules.template_of(inputs, account)
    group_taints = (_taint(taint) for taint in inputs.get("taints") or ())
    kubelet_taints = registration_taints(template.inputs.get("userData")) if template else ()
    taints = tuple(dict.fromkeys((*group_taints, *kubelet_taints)))
    return [
        Pool(
            name=str(inputs["nodeGroupName"]),
            cloud="aws",
            cluster=str(inputs["clusterName"]),
            role=Role.GPU if gpus(types) else Role.SYSTEM,
            instance_types=types,
            zone=zone,
            region=zone[:-1],
            labels={str(key): str(value) for key, value in (inputs.get("labels") or {}).items()},
            taints=tuple(taint for taint in taints if not taint.key.endswith(STARTUP_SUFFIX)),
            startup_taints=tuple(taint for taint in taints if taint.key.endswith(STARTUP_SUFFIX)),
            gpus=gpus(types) if "NVIDIA" in str(inputs.get("amiType")) else 0,
            min_size=int(sizes["minSize"]),
            desired_size=int(sizes["desiredSize"]),
            max_size=int(sizes["maxSize"]),
            capacity="spot" if inputs.get("capacityType") == "SPOT" else "on-demand",
            release=_release(group),
            surge=SURGE,
        )
    ]


def _instance_types(inputs: Inputs, account: Inventory) -> tuple[str, ...]:
    """Return the instance types of a node group: its own, or the type in its launch template, or the default."""
    template = rules.template_of(inputs, account)
    template_type = template.inputs.get("instanceType") if template else None
    return tuple(inputs.get("instanceTypes") or (template_type or "t3.medium",))


def _release(group: Resource) -> str:
    """Return the release of a node group's machines: their image and their template."""
    template = group.inputs.get("launchTemplate") or {}
    release = group.inputs.get("releaseVersion") or group.outputs.get("version", "")
    return f"{release} template {template.get('version', '')}"


def _taint(taint: Mapping[str, Any]) -> "Taint":
    from cloudtwin.nodes.model import Taint

    effect = EFFECTS[taint["effect"]]
    return Taint.parse({"key": taint["key"], "value": taint.get("value"), "effect": effect})


def _current_inputs(inputs: Inputs, sizes: Mapping[str, int]) -> Inputs:
    size = sizes.get(str(inputs["nodeGroupName"]))
    if size is None:
        return inputs
    return {**inputs, "scalingConfig": {**inputs["scalingConfig"], "desiredSize": size}}


def _pools_sized_by_update(old: Inputs, new: Inputs) -> Collection[str]:
    """Return the name of a group whose sizes change: only such an update sends them, always all three."""
    return [] if old["scalingConfig"] == new["scalingConfig"] else [str(new["nodeGroupName"])]


def _template(path: str, key: str = "id") -> Reference:
    return Reference(path, (TEMPLATE,), "InvalidRequestException", key=key)


CREATION_FAILURE = "NodeCreationFailure"
TYPES = (
    ResourceType(
        token=NODES,
        identify=id_from("clusterName", "nodeGroupName"),
        describe=_describe_nodes,
        pools=node_pools,
        current_inputs=_current_inputs,
        pools_sized_by_update=_pools_sized_by_update,
        defaults={"capacityType": "ON_DEMAND", "amiType": eks_templates.DEFAULT_IMAGE},
        naming=Naming("nodeGroupName", 63),
        immutable=("clusterName", "nodeRoleArn", "subnetIds", "amiType", "capacityType", "diskSize",
                   "instanceTypes", "remoteAccess", "launchTemplate.id", "launchTemplate.name",
                   "nodeGroupNamePrefix", "region"),
        rules=(
            InputRule("sizes of a node group", f"{API}, NodegroupScalingConfig", rules.scaling),
            InputRule("launch template of a node group", CREATE, rules.launch),
            value_rule("template version of a node group", "launchTemplate.version",
                       matches(r"[1-9]\d*|\$Latest|\$Default", "is not a version such as 1, $Latest or $Default"),
                       CREATE),
            InputRule("labels and taints of a node group", CREATE, rules.labels_and_taints),
            InputRule("syntax of a node group's labels", "Kubernetes documentation, Labels and Selectors",
                      rules.label_syntax),
            InputRule("subnets of a node group", CREATE, rules.node_subnets),
            value_rule("Kubernetes version of a node group", "version",
                       matches(r"1\.\d+", "is not a Kubernetes version such as 1.36"), CREATE),
            value_rule("format of a release version", "releaseVersion",
                       matches(r"1\.\d+\.\d+-\d{8}", "is not a release such as 1.36.0-20261101"),
                       f"{GUIDE}, AMI versions"),
            InputRule("release of a node group", CREATE, rules.release),
            value_rule("unavailable nodes", "updateConfig.maxUnavailable", in_range(1, 100, "nodes"),
                       f"{API}, NodegroupUpdateConfig"),
            InputRule("update of a node group", f"{API}, NodegroupUpdateConfig", rules.update_config),
            value_rule("image of a node group", "amiType", rules.image_type,
                       f"{GUIDE}, AL2 end of support"),
            value_rule("types of a node group", "instanceTypes.*", instance_type_error,
                       "EC2 User Guide, instance types"),
        ),
        references=(
            of_cluster(IN_USE), to_role("nodeRoleArn"), in_subnets("subnetIds.*"),
            _template("launchTemplate.id"), _template("launchTemplate.name", "name"),
        ),
        preconditions=(
            Precondition("role of nodes", f"{GUIDE}, node IAM role", INVALID,
                         assume_role_check("nodeRoleArn", "ec2.amazonaws.com")),
            Precondition("permissions of nodes", f"{GUIDE}, node IAM role", CREATION_FAILURE,
                         rules.permissions("nodeRoleArn", frozenset({"AmazonEKSWorkerNodePolicy"}))),
            Precondition("nodes pull images", f"{GUIDE}, node IAM role", CREATION_FAILURE,
                         rules.pull_permission),
            Precondition("nodes have a network plugin", f"{GUIDE}, troubleshooting", CREATION_FAILURE,
                         rules.network_plugin),
            Precondition("nodes have an egress route", f"{GUIDE}, troubleshooting", CREATION_FAILURE,
                         rules.egress_route),
            Precondition("version of a template", CREATE, "InvalidRequestException",
                         rules.template_version),
            Precondition("one type with EFA", "EC2 User Guide, Elastic Fabric Adapter",
                         "InvalidRequestException", rules.one_efa_type),
            Precondition("instance types in the node group or in its template",
                         f"{GUIDE}, launch templates", "InvalidRequestException",
                         rules.types_in_one_place),
            Precondition("inputs of a node group's template", f"{API}, LaunchTemplateSpecification", INVALID,
                         eks_templates.forbidden_inputs),
            Precondition("user data of a node group", f"{GUIDE}, launch templates; terraform-aws-eks #1875, #2955",
                         "Ec2LaunchTemplateInvalidConfiguration", eks_templates.user_data_format),
            Precondition("market options of a template", f"{GUIDE}, launch templates",
                         "InvalidRequestException", rules.market_options),
            Precondition("Capacity Block of a node group",
                         f"{GUIDE}, managed node group with Capacity Blocks for ML",
                         "InvalidRequestException", rules.capacity_block),
            Precondition("version of nodes", f"{API}, UpdateNodegroupVersion", INVALID,
                         rules.node_version),
            Precondition("release of nodes", CREATE, INVALID, rules.release_of_cluster),
            Precondition("no version downgrade of nodes", f"{GUIDE}, update a managed node group",
                         INVALID, rules.node_downgrade),
        ),
        unique_code=IN_USE,
    ),
)  # fmt: skip
