"""The requests for a resource, by type: operations of AWS, and the members that its inputs become.

An input becomes the member with its name, compared without case and plural; `moves` lists the others. Inputs that
only the provider reads are in `PROVIDER_ONLY`. Every other input is sent under its own name, so that the
service's model refuses it.
"""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.mutation.inputs import models

SUFFIX = "20260101000000000000000001"  # what the provider appends to a name prefix
VPC, GROUP, TABLE = "vpc-0123456789abcdef0", "sg-0123456789abcdef0", "rtb-0123456789abcdef0"
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
        moves: input -> path of its member, where the names differ.
        takes: inputs of this call; None for all that no other call takes.
        constants: members that the provider sets.
        convert: input -> function that returns the value of its member.
    """

    service: str
    operation: str
    root: str = ""
    moves: Mapping[str, str] = field(default_factory=dict)
    takes: tuple[str, ...] | None = None
    constants: Mapping[str, Any] = field(default_factory=dict)
    convert: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)


def reasons(token: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why AWS refuses the requests for a resource."""
    calls = CALLS[token]
    used_names = {name for call in calls for name in call.takes or ()}
    for call in calls:
        own_inputs = {
            name: value
            for name, value in inputs.items()
            if name not in PROVIDER_ONLY
            and (name in call.takes if call.takes else name not in used_names)
        }
        if own_inputs or call.takes is None:
            shape = models.input_shape(call.service, call.operation)
            yield from models.violations(request(call, own_inputs), shape)


def request(call: Call, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call."""
    arguments: dict[str, Any] = {}
    for path, value in call.constants.items():
        _put(arguments, path, copy.deepcopy(value))
    for name, value in inputs.items():
        converted = _converted(call, name, value)
        default = f"{call.root}.{name}" if call.root else name
        _put(arguments, call.moves.get(name, default), converted)
    shaped = _shaped(arguments, models.input_shape(call.service, call.operation))
    return shaped if isinstance(shaped, dict) else {}


def _converted(call: Call, name: str, value: Any) -> Any:
    if name not in call.convert:
        return value
    try:
        return call.convert[name](value)
    except (AttributeError, KeyError, TypeError):
        return value  # the model refuses its type


def _put(arguments: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    level = arguments
    for step in above:
        level = level.setdefault(step, {})
    both_lists = isinstance(level.get(last), list) and isinstance(value, list)
    level[last] = [*level[last], *value] if both_lists else value


def _shaped(value: Any, shape: Any) -> Any:
    """Return a value with the names and the lists of a shape."""
    kind = shape.type_name
    if kind == "structure" and isinstance(value, list) and len(value) == 1:
        value = value[0]  # the provider has a list of at most one where AWS has a structure
    if kind == "structure" and isinstance(value, Mapping):
        names = {_normalized(name): name for name in shape.members}
        pairs = ((names.get(_normalized(name), name), item) for name, item in value.items())
        return {
            name: _shaped(pair, shape.members[name]) if name in shape.members else pair
            for name, pair in pairs
        }
    if kind == "list" and isinstance(value, list | Mapping):
        return [
            _shaped(item, shape.member) for item in (value if isinstance(value, list) else [value])
        ]
    if kind == "map" and isinstance(value, Mapping):
        return {name: _shaped(item, shape.value) for name, item in value.items()}
    if kind == "boolean" and value in ("true", "false"):
        return value == "true"
    if kind == "blob" and isinstance(value, str):
        return value.encode()
    return value


def _normalized(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("s")


# -- inputs that the provider restructures


def prefixed(prefix: str) -> str:
    """Return the name that the provider generates from a prefix."""
    return prefix + SUFFIX


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as a list of keys and values; the provider adds its default tags."""
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
    """Return the first of a list, as the provider does; its default type is AES256."""
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


def _ec2(operation: str, kind: str = "", **record: Any) -> Call:
    """Return a call of EC2; with a kind of resource, it takes tags."""
    tags = {"tags": "TagSpecifications"} if kind else {}
    convert = {"tags": tag_specification(kind)} if kind else {}
    record["moves"] = {**tags, **record.get("moves", {})}
    record["convert"] = {**convert, **record.get("convert", {})}
    return Call(service="ec2", operation=operation, **record)


def _tagging(service: str, operation: str, path: str, listed: bool, **constants: Any) -> Call:
    """Return the call that tags a resource."""
    convert = {"tags": tag_list} if listed else {}
    return Call(service=service, operation=operation, takes=("tags",), moves={"tags": path},
                convert=convert, constants=constants)  # fmt: skip


def _group_rule(direction: str) -> tuple[Call, ...]:
    """Return the call for a rule; each part of the permission is sent alone."""
    operation = f"AuthorizeSecurityGroup{direction}"
    base = {"GroupId": GROUP}
    plain = ("ipProtocol", "fromPort", "toPort")
    sources = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")
    return (
        _ec2(operation, "security-group-rule", moves={"securityGroupId": "GroupId"}),
        *(_ec2(operation, takes=(name,), constants=base, moves={name: f"IpPermissions.{name}"}) for name in plain),
        *(_ec2(operation, takes=(name,), constants=base, moves={name: "IpPermissions"},
               convert={name: _permission(name)}) for name in sources),
        _ec2(operation, takes=("description",), constants=base,
             moves={"description": "IpPermissions.IpRanges.Description"}),
    )  # fmt: skip


def _iam(operation: str, **record: Any) -> Call:
    return Call(service="iam", operation=operation, convert={"tags": tag_list}, **record)


def _s3(operation: str, root: str = "", **record: Any) -> Call:
    return Call(
        service="s3",
        operation=operation,
        root=root,
        moves={"bucket": "Bucket", **record.pop("moves", {})},
        **record,
    )


EKS, PREFIX, NEW = "eks", {"namePrefix": prefixed}, "everstep-generated"
NAMED = {"nodeGroupNamePrefix": prefixed}
LUSTRE = "LustreConfiguration"
CALLS: Mapping[str, tuple[Call, ...]] = {
    "aws:budgets/budget:Budget": (
        Call(
            service="budgets", operation="CreateBudget", root="Budget",
            moves={"name": "Budget.BudgetName", "limitAmount": "Budget.BudgetLimit.Amount",
                   "limitUnit": "Budget.BudgetLimit.Unit", "notifications": "NotificationsWithSubscribers",
                   "tags": "ResourceTags"},
            convert={"notifications": _notifications, "costFilters": _cost_filters, "tags": tag_list,
                     "metrics": lambda metric: [metric]},
            constants={"AccountId": ACCOUNT, "Budget.BudgetName": NEW},
        ),
    ),
    "aws:cloudwatch/logGroup:LogGroup": (
        Call(service="logs", operation="CreateLogGroup", moves={"name": "logGroupName"},
             constants={"logGroupName": NEW}),
        Call(service="logs", operation="PutRetentionPolicy", takes=("retentionInDays",),
             constants={"logGroupName": NEW}),
    ),
    "aws:ec2/eip:Eip": (_ec2("AllocateAddress", "elastic-ip"),),
    "aws:ec2/internetGateway:InternetGateway": (
        _ec2("CreateInternetGateway", "internet-gateway"),
        _ec2("AttachInternetGateway", takes=("vpcId",), constants={"InternetGatewayId": "igw-0"}),
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        _ec2(
            "CreateLaunchTemplate", "launch-template", root="LaunchTemplateData",
            moves={"name": "LaunchTemplateName", "namePrefix": "LaunchTemplateName",
                   "description": "VersionDescription"},
            convert={"tagSpecifications": _specifications, **PREFIX},
            constants={"LaunchTemplateName": NEW},
        ),
    ),
    "aws:ec2/natGateway:NatGateway": (_ec2("CreateNatGateway", "natgateway"),),
    "aws:ec2/route:Route": (_ec2("CreateRoute"),),
    "aws:ec2/routeTable:RouteTable": (_ec2("CreateRouteTable", "route-table"),),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": (_ec2("AssociateRouteTable"),),
    "aws:ec2/securityGroup:SecurityGroup": (
        _ec2("CreateSecurityGroup", "security-group", moves={"name": "GroupName"},
             constants={"GroupName": NEW, "description": NEW}),
    ),
    "aws:ec2/subnet:Subnet": (_ec2("CreateSubnet", "subnet"),),
    "aws:ec2/vpc:Vpc": (
        _ec2("CreateVpc", "vpc"),
        *(_ec2("ModifyVpcAttribute", takes=(name,), constants={"VpcId": VPC}, moves={name: f"{name}.Value"})
          for name in ("enableDnsSupport", "enableDnsHostnames")),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": (
        _ec2("CreateVpcEndpoint", "vpc-endpoint", moves={"policy": "PolicyDocument"}),
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": (
        Call(service="ecr", operation="PutLifecyclePolicy",
             moves={"repository": "repositoryName", "policy": "lifecyclePolicyText"}),
    ),
    "aws:ecr/repository:Repository": (
        Call(service="ecr", operation="CreateRepository", moves={"name": "repositoryName"},
             constants={"repositoryName": NEW},
             convert={"tags": tag_list, "encryptionConfigurations": _encryption}),
    ),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": (
        Call(service="ecr", operation="SetRepositoryPolicy",
             moves={"repository": "repositoryName", "policy": "policyText"}),
    ),
    "aws:eks/accessEntry:AccessEntry": (Call(service=EKS, operation="CreateAccessEntry"),),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        Call(service=EKS, operation="AssociateAccessPolicy"),
    ),
    "aws:eks/addon:Addon": (
        Call(service=EKS, operation="CreateAddon", moves={"resolveConflictsOnCreate": "resolveConflicts"}),
        Call(service=EKS, operation="UpdateAddon", takes=("resolveConflictsOnUpdate",),
             moves={"resolveConflictsOnUpdate": "resolveConflicts"},
             constants={"clusterName": NEW, "addonName": NEW}),
    ),
    "aws:eks/cluster:Cluster": (
        Call(service=EKS, operation="CreateCluster", constants={"name": NEW},
             moves={"vpcConfig": "resourcesVpcConfig", "enabledClusterLogTypes": "logging.clusterLogging"},
             convert={"enabledClusterLogTypes": _log_types}),
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        Call(service=EKS, operation="CreateNodegroup", constants={"nodegroupName": NEW}, convert=NAMED,
             moves={"nodeGroupName": "nodegroupName", "nodeGroupNamePrefix": "nodegroupName",
                    "subnetIds": "subnets", "nodeRoleArn": "nodeRole"}),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        Call(service=EKS, operation="CreatePodIdentityAssociation"),
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        Call(service="fsx", operation="CreateDataRepositoryAssociation", convert={"tags": tag_list}),
        Call(service="fsx", operation="DeleteDataRepositoryAssociation", takes=("deleteDataInFilesystem",),
             constants={"AssociationId": ASSOCIATION}),
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        Call(
            service="fsx", operation="CreateFileSystem", root=LUSTRE, constants={"FileSystemType": "LUSTRE"},
            moves={name: name for name in ("storageCapacity", "storageType", "securityGroupIds", "kmsKeyId",
                                           "fileSystemTypeVersion", "subnetIds", "tags", "networkType")},
            convert={"subnetIds": lambda subnet: [subnet], "tags": tag_list},
        ),
        Call(service="fsx", operation="DeleteFileSystem", root=LUSTRE, takes=("skipFinalBackup",),
             constants={"FileSystemId": FILE_SYSTEM}),
    ),
    "aws:iam/role:Role": (
        _iam("CreateRole", constants={"RoleName": NEW},
             moves={"name": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument"}),
    ),
    "aws:iam/rolePolicy:RolePolicy": (
        _iam("PutRolePolicy", constants={"PolicyName": NEW},
             moves={"name": "PolicyName", "role": "RoleName", "policy": "PolicyDocument"}),
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (
        _iam("AttachRolePolicy", moves={"role": "RoleName"}),
    ),
    "aws:kms/alias:Alias": (
        Call(service="kms", operation="CreateAlias", moves={"name": "AliasName"},
             constants={"AliasName": f"alias/{NEW}"}),
    ),
    "aws:kms/key:Key": (
        Call(service="kms", operation="CreateKey", moves={"tags": "Tags"},
             convert={"tags": lambda tags: [{"TagKey": key, "TagValue": value} for key, value in tags.items()]}),
        Call(service="kms", operation="ScheduleKeyDeletion", takes=("deletionWindowInDays",),
             constants={"KeyId": KEY}, moves={"deletionWindowInDays": "PendingWindowInDays"}),
    ),
    "aws:s3/bucket:Bucket": (
        _s3("CreateBucket", moves={"bucketPrefix": "Bucket"}, convert={"bucketPrefix": prefixed},
            constants={"Bucket": NEW}),
        _tagging("s3", "PutBucketTagging", "Tagging.TagSet", True, Bucket=NEW),
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": (
        _s3("PutBucketLifecycleConfiguration", "LifecycleConfiguration"),
    ),
    "aws:s3/bucketObjectv2:BucketObjectv2": (
        _s3("PutObject", constants={"Key": NEW}),
        _tagging("s3", "PutObjectTagging", "Tagging.TagSet", True, Bucket=NEW, Key=NEW),
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
