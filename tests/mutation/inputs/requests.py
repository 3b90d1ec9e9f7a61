"""The requests for a resource, by type: operations of AWS, and the members that its inputs become.

An input becomes the member with its name, compared without case and plural s; `paths` lists the others. Inputs that
become no member of a request are in `PROVIDER_ONLY`. Every other input is sent under its own name, so that the
service's model refuses it.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.mutation.inputs import models

SUFFIX = "20260101000000000000000001"  # the provider appends it to a name prefix
VPC, GROUP = "vpc-0123456789abcdef0", "sg-0123456789abcdef0"
FILE_SYSTEM, ASSOCIATION = "fs-0123456789abcdef0", "dra-0123456789abcdef0"
KEY = "12345678-1234-1234-1234-123456789012"
ACCOUNT = "123456789012"
PROVIDER_ONLY = frozenset({
    "region", "forceDestroy", "forceDelete", "revokeRulesOnDelete", "updateDefaultVersion", "enableKeyRotation",
    "skipDestroy", "overrideProvider",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Call:
    """One operation that the provider calls for a resource.

    Attributes:
        service, operation: names in botocore.
        root: member of the request that contains the inputs; empty for the request itself.
        paths: input -> path of its member, where the names differ.
        names: inputs of this call; None for all that no other call names.
        constants: members that the provider sets.
        convert: input -> function that returns the value of its member.
    """

    service: str
    operation: str
    root: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    convert: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


def reasons(token: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why AWS refuses the requests for a resource."""
    calls = CALLS[token]
    used_names = {name for call in calls for name in call.names or ()}
    for call in calls:
        own_inputs = {
            name: value
            for name, value in inputs.items()
            if name not in PROVIDER_ONLY
            and (name in call.names if call.names else name not in used_names)
        }
        if own_inputs or call.names is None:
            shape = models.input_shape(call.service, call.operation)
            yield from models.violations(request(call, own_inputs), shape)


def request(call: Call, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call."""
    arguments: dict[str, Any] = {}
    for path, value in call.constants.items():
        _put(arguments, path, copy.deepcopy(value))
    for name, value in inputs.items():
        member = _convert(call, name, value)
        default = f"{call.root}.{name}" if call.root else name
        _put(arguments, call.paths.get(name, default), member)
    result = _shape(arguments, models.input_shape(call.service, call.operation))
    return result if isinstance(result, dict) else {}


def _convert(call: Call, name: str, value: Any) -> Any:
    if name not in call.convert:
        return value
    try:
        return call.convert[name](value)
    except (AttributeError, KeyError, TypeError):
        return value  # the model refuses its type


def _put(arguments: dict[str, Any], path: str, value: Any) -> None:
    *parents, key = path.split(".")
    level = arguments
    for step in parents:
        level = level.setdefault(step, {})
    both_lists = isinstance(level.get(key), list) and isinstance(value, list)
    level[key] = [*level[key], *value] if both_lists else value


def _shape(value: Any, shape: Any) -> Any:
    """Return a value with the member names and the lists that a shape requires."""
    kind = shape.type_name
    if kind == "structure" and isinstance(value, list) and len(value) == 1:
        value = value[0]  # the provider has a list of at most one where AWS has a structure
    if kind == "structure" and isinstance(value, Mapping):
        names = {_normalize(name): name for name in shape.members}
        pairs = ((names.get(_normalize(name), name), item) for name, item in value.items())
        return {
            name: _shape(item, shape.members[name]) if name in shape.members else item
            for name, item in pairs
        }
    if kind == "list" and isinstance(value, list | Mapping):
        return [
            _shape(item, shape.member) for item in (value if isinstance(value, list) else [value])
        ]
    if kind == "map" and isinstance(value, Mapping):
        return {name: _shape(item, shape.value) for name, item in value.items()}
    if kind == "boolean" and value in ("true", "false"):
        return value == "true"
    if kind == "blob" and isinstance(value, str):
        return value.encode()
    return value


def _normalize(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("s")


def name_from_prefix(prefix: str) -> str:
    """Return the name that the provider generates from a prefix."""
    return prefix + SUFFIX


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as a list of keys and values; without tags, the default tags of the provider."""
    return (
        [{"Key": "stack", "Value": "test"}]
        if tags == {}
        else [{"Key": key, "Value": value} for key, value in tags.items()]
    )


def tag_specification(kind: str) -> Callable[[Mapping[str, str]], list[dict[str, Any]]]:
    """Return a function that returns the tags of a new EC2 resource."""
    return lambda tags: [{"ResourceType": kind, "Tags": tag_list(tags)}]


def _specifications(blocks: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **block,
            **({"tags": tag_list(block["tags"])} if isinstance(block.get("tags"), Mapping) else {}),
        }
        for block in blocks
    ]


def _encryption(rules: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the first entry of a list, as the provider does; its default type is AES256."""
    return {"encryptionType": "AES256", **(rules[0] if rules else {})}


def _cost_filters(filters: list[Mapping[str, Any]]) -> dict[str, Any]:
    valid_keys = {"name", "values"}
    unknown = {key: filter_[key] for filter_ in filters for key in filter_ if key not in valid_keys}
    return {**{filter_["name"]: filter_["values"] for filter_ in filters}, **unknown}


def _notifications(notes: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    inputs = {"subscriberEmailAddresses": "EMAIL", "subscriberSnsTopicArns": "SNS"}
    return [
        {
            "Notification": {key: value for key, value in note.items() if key not in inputs},
            "Subscribers": [
                {"SubscriptionType": kind, "Address": address}
                for key, kind in inputs.items()
                for address in note.get(key) or ()
            ],
        }
        for note in notes
    ]


def _sse_rules(rules: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    name = "blockedEncryptionTypes"
    return [
        {**rule, **({name: {"EncryptionType": rule[name]}} if name in rule else {})}
        for rule in rules
    ]


def _log_types(types: Any) -> Any:
    return [{"types": types, "enabled": True}]


def _permission(source: str) -> Callable[[Any], Any]:
    names = {"cidrIpv4": ("IpRanges", "CidrIp"), "cidrIpv6": ("Ipv6Ranges", "CidrIpv6"),
             "prefixListId": ("PrefixListIds", "PrefixListId"),
             "referencedSecurityGroupId": ("UserIdGroupPairs", "GroupId")}  # fmt: skip
    outer, inner = names[source]
    return lambda value: [{outer: [{inner: value}]}]


def _ec2(operation: str, kind: str = "", **fields: Any) -> Call:
    """Return a call of EC2; if a kind of resource is given, the call accepts tags."""
    tags = {"tags": "TagSpecifications"} if kind else {}
    convert = {"tags": tag_specification(kind)} if kind else {}
    fields["paths"] = {**tags, **fields.get("paths", {})}
    fields["convert"] = {**convert, **fields.get("convert", {})}
    return Call(service="ec2", operation=operation, **fields)


def _s3_tagging(operation: str, **constants: Any) -> Call:
    """Return the call that tags a resource of S3."""
    return Call(service="s3", operation=operation, names=("tags",), paths={"tags": "Tagging.TagSet"},
                convert={"tags": tag_list}, constants=constants)  # fmt: skip


def _group_rule(direction: str) -> tuple[Call, ...]:
    """Return the calls for a rule of a security group; each part of the permission is sent separately."""
    operation = f"AuthorizeSecurityGroup{direction}"
    base = {"GroupId": GROUP}
    scalars = ("ipProtocol", "fromPort", "toPort")
    sources = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")
    return (
        _ec2(operation, "security-group-rule", paths={"securityGroupId": "GroupId"}),
        *(_ec2(operation, names=(name,), constants=base, paths={name: f"IpPermissions.{name}"}) for name in scalars),
        *(_ec2(operation, names=(name,), constants=base, paths={name: "IpPermissions"},
               convert={name: _permission(name)}) for name in sources),
        _ec2(operation, names=("description",), constants=base,
             paths={"description": "IpPermissions.IpRanges.Description"}),
    )  # fmt: skip


def _iam(operation: str, **fields: Any) -> Call:
    return Call(service="iam", operation=operation, convert={"tags": tag_list}, **fields)


def _s3(operation: str, root: str = "", **fields: Any) -> Call:
    return Call(
        service="s3",
        operation=operation,
        root=root,
        paths={"bucket": "Bucket", **fields.pop("paths", {})},
        **fields,
    )


EKS, PREFIX, NAME = "eks", {"namePrefix": name_from_prefix}, "everstep-generated"
NODE_GROUP_PREFIX = {"nodeGroupNamePrefix": name_from_prefix}
LUSTRE = "LustreConfiguration"
CALLS: Mapping[str, tuple[Call, ...]] = {
    "aws:budgets/budget:Budget": (
        Call(
            service="budgets", operation="CreateBudget", root="Budget",
            paths={"name": "Budget.BudgetName", "limitAmount": "Budget.BudgetLimit.Amount",
                   "limitUnit": "Budget.BudgetLimit.Unit", "notifications": "NotificationsWithSubscribers",
                   "tags": "ResourceTags"},
            convert={"notifications": _notifications, "costFilters": _cost_filters, "tags": tag_list,
                     "metrics": lambda metric: [metric]},
            constants={"AccountId": ACCOUNT, "Budget.BudgetName": NAME},
        ),
    ),
    "aws:cloudwatch/logGroup:LogGroup": (
        Call(service="logs", operation="CreateLogGroup", paths={"name": "logGroupName"},
             constants={"logGroupName": NAME}),
        Call(service="logs", operation="PutRetentionPolicy", names=("retentionInDays",),
             constants={"logGroupName": NAME}),
    ),
    "aws:ec2/eip:Eip": (_ec2("AllocateAddress", "elastic-ip"),),
    "aws:ec2/internetGateway:InternetGateway": (
        _ec2("CreateInternetGateway", "internet-gateway"),
        _ec2("AttachInternetGateway", names=("vpcId",), constants={"InternetGatewayId": "igw-0"}),
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        _ec2(
            "CreateLaunchTemplate", "launch-template", root="LaunchTemplateData",
            paths={"name": "LaunchTemplateName", "namePrefix": "LaunchTemplateName",
                   "description": "VersionDescription"},
            convert={"tagSpecifications": _specifications, **PREFIX},
            constants={"LaunchTemplateName": NAME},
        ),
    ),
    "aws:ec2/natGateway:NatGateway": (_ec2("CreateNatGateway", "natgateway"),),
    "aws:ec2/route:Route": (_ec2("CreateRoute"),),
    "aws:ec2/routeTable:RouteTable": (_ec2("CreateRouteTable", "route-table"),),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": (_ec2("AssociateRouteTable"),),
    "aws:ec2/securityGroup:SecurityGroup": (
        _ec2("CreateSecurityGroup", "security-group", paths={"name": "GroupName"},
             constants={"GroupName": NAME, "description": NAME}),
    ),
    "aws:ec2/subnet:Subnet": (_ec2("CreateSubnet", "subnet"),),
    "aws:ec2/vpc:Vpc": (
        _ec2("CreateVpc", "vpc"),
        *(_ec2("ModifyVpcAttribute", names=(name,), constants={"VpcId": VPC}, paths={name: f"{name}.Value"})
          for name in ("enableDnsSupport", "enableDnsHostnames")),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": (
        _ec2("CreateVpcEndpoint", "vpc-endpoint", paths={"policy": "PolicyDocument"}),
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": (
        Call(service="ecr", operation="PutLifecyclePolicy",
             paths={"repository": "repositoryName", "policy": "lifecyclePolicyText"}),
    ),
    "aws:ecr/repository:Repository": (
        Call(service="ecr", operation="CreateRepository", paths={"name": "repositoryName"},
             constants={"repositoryName": NAME},
             convert={"tags": tag_list, "encryptionConfigurations": _encryption}),
    ),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": (
        Call(service="ecr", operation="SetRepositoryPolicy",
             paths={"repository": "repositoryName", "policy": "policyText"}),
    ),
    "aws:eks/accessEntry:AccessEntry": (Call(service=EKS, operation="CreateAccessEntry"),),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        Call(service=EKS, operation="AssociateAccessPolicy"),
    ),
    "aws:eks/addon:Addon": (
        Call(service=EKS, operation="CreateAddon", paths={"resolveConflictsOnCreate": "resolveConflicts"}),
        Call(service=EKS, operation="UpdateAddon", names=("resolveConflictsOnUpdate",),
             paths={"resolveConflictsOnUpdate": "resolveConflicts"},
             constants={"clusterName": NAME, "addonName": NAME}),
    ),
    "aws:eks/cluster:Cluster": (
        Call(service=EKS, operation="CreateCluster", constants={"name": NAME},
             paths={"vpcConfig": "resourcesVpcConfig", "enabledClusterLogTypes": "logging.clusterLogging"},
             convert={"enabledClusterLogTypes": _log_types}),
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        Call(service=EKS, operation="CreateNodegroup", constants={"nodegroupName": NAME}, convert=NODE_GROUP_PREFIX,
             paths={"nodeGroupName": "nodegroupName", "nodeGroupNamePrefix": "nodegroupName",
                    "subnetIds": "subnets", "nodeRoleArn": "nodeRole"}),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        Call(service=EKS, operation="CreatePodIdentityAssociation"),
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        Call(service="fsx", operation="CreateDataRepositoryAssociation", convert={"tags": tag_list}),
        Call(service="fsx", operation="DeleteDataRepositoryAssociation", names=("deleteDataInFilesystem",),
             constants={"AssociationId": ASSOCIATION}),
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        Call(
            service="fsx", operation="CreateFileSystem", root=LUSTRE, constants={"FileSystemType": "LUSTRE"},
            paths={name: name for name in ("storageCapacity", "storageType", "securityGroupIds", "kmsKeyId",
                                           "fileSystemTypeVersion", "subnetIds", "tags", "networkType")},
            convert={"subnetIds": lambda subnet: [subnet], "tags": tag_list},
        ),
        Call(service="fsx", operation="DeleteFileSystem", root=LUSTRE, names=("skipFinalBackup",),
             constants={"FileSystemId": FILE_SYSTEM}),
    ),
    "aws:iam/role:Role": (
        _iam("CreateRole", constants={"RoleName": NAME},
             paths={"name": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument"}),
    ),
    "aws:iam/rolePolicy:RolePolicy": (
        _iam("PutRolePolicy", constants={"PolicyName": NAME},
             paths={"name": "PolicyName", "role": "RoleName", "policy": "PolicyDocument"}),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (
        _iam("AttachRolePolicy", paths={"role": "RoleName"}),
    ),
    "aws:kms/alias:Alias": (
        Call(service="kms", operation="CreateAlias", paths={"name": "AliasName"},
             constants={"AliasName": f"alias/{NAME}"}),
    ),
    "aws:kms/key:Key": (
        Call(service="kms", operation="CreateKey", paths={"tags": "Tags"},
             convert={"tags": lambda tags: [{"TagKey": key, "TagValue": value} for key, value in tags.items()]}),
        Call(service="kms", operation="ScheduleKeyDeletion", names=("deletionWindowInDays",),
             constants={"KeyId": KEY}, paths={"deletionWindowInDays": "PendingWindowInDays"}),
    ),
    "aws:s3/bucket:Bucket": (
        _s3("CreateBucket", paths={"bucketPrefix": "Bucket"}, convert={"bucketPrefix": name_from_prefix},
            constants={"Bucket": NAME}),
        _s3_tagging("PutBucketTagging", Bucket=NAME),
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": (
        _s3("PutBucketLifecycleConfiguration", "LifecycleConfiguration"),
    ),
    "aws:s3/bucketObjectv2:BucketObjectv2": (
        _s3("PutObject", constants={"Key": NAME}),
        _s3_tagging("PutObjectTagging", Bucket=NAME, Key=NAME),
    ),
    "aws:s3/bucketPolicy:BucketPolicy": (_s3("PutBucketPolicy"),),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": (
        _s3("PutPublicAccessBlock", "PublicAccessBlockConfiguration",
            constants={"PublicAccessBlockConfiguration": {}}),
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": (
        _s3("PutBucketEncryption", "ServerSideEncryptionConfiguration", convert={"rules": _sse_rules}),
    ),
    "aws:s3/bucketVersioning:BucketVersioning": (_s3("PutBucketVersioning"),),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _group_rule("Egress"),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _group_rule("Ingress"),
}  # fmt: skip
