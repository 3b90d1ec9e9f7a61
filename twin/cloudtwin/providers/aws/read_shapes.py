"""Write shapes.json: the limits that AWS's own service models put on the inputs of each type.

    python -P -m cloudtwin.providers.aws.read_shapes

`make catalog` runs it. It needs botocore (the models) and pulumi_aws (the names of the inputs); the
provider reads only the file. Members of an API are matched to inputs by name, regardless of case and
plural; RENAMED_INPUTS lists the inputs that the provider names differently.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.loaders
import botocore.model

from cloudtwin.providers.schema.limits import Limits, write_limits
from cloudtwin.providers.schema.model import Fields, ResourceSchema, Shape
from cloudtwin.providers.schema.store import SchemaStore

PACKAGE = Path(__file__).parent
UNLIMITED = 2**31 - 1
NUMBERS = ("integer", "long", "float", "double")
SSE = "ServerSideEncryptionConfiguration.Rules.*"
NOTIFICATION = "NotificationsWithSubscribers.*.Notification"

# Type -> service and the request structures whose members are inputs.
CALLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "aws:amp/ruleGroupNamespace:RuleGroupNamespace": ("amp", ("CreateRuleGroupsNamespace",)),
    "aws:amp/workspace:Workspace": (
        "amp", ("CreateWorkspace", "CreateLoggingConfiguration"),
    ),
    "aws:budgets/budget:Budget": ("budgets", ("CreateBudget.Budget", "CreateBudget")),
    "aws:cloudwatch/logGroup:LogGroup": ("logs", ("CreateLogGroup",)),
    "aws:ec2/eip:Eip": ("ec2", ("AllocateAddress",)),
    "aws:ec2/launchTemplate:LaunchTemplate": (
        "ec2", ("CreateLaunchTemplate", "CreateLaunchTemplate.LaunchTemplateData"),
    ),
    "aws:ec2/natGateway:NatGateway": ("ec2", ("CreateNatGateway",)),
    "aws:ec2/placementGroup:PlacementGroup": ("ec2", ("CreatePlacementGroup",)),
    "aws:ec2/vpc:Vpc": ("ec2", ("CreateVpc",)),
    "aws:ec2/vpcEndpoint:VpcEndpoint": ("ec2", ("CreateVpcEndpoint",)),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": ("ecr", ("PutLifecyclePolicy",)),
    "aws:ecr/repository:Repository": ("ecr", ("CreateRepository",)),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": ("ecr", ("SetRepositoryPolicy",)),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": ("eks", ("AssociateAccessPolicy",)),
    "aws:eks/addon:Addon": ("eks", ("CreateAddon",)),
    "aws:eks/cluster:Cluster": ("eks", ("CreateCluster",)),
    "aws:eks/nodeGroup:NodeGroup": ("eks", ("CreateNodegroup",)),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        "fsx", ("CreateDataRepositoryAssociation",),
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        "fsx", ("CreateFileSystem", "CreateFileSystem.LustreConfiguration"),
    ),
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": (
        "iam", ("CreateOpenIDConnectProvider",),
    ),
    "aws:iam/policy:Policy": ("iam", ("CreatePolicy",)),
    "aws:iam/role:Role": ("iam", ("CreateRole",)),
    "aws:iam/rolePolicy:RolePolicy": ("iam", ("PutRolePolicy",)),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ("iam", ("AttachRolePolicy",)),
    "aws:kms/alias:Alias": ("kms", ("CreateAlias",)),
    "aws:kms/key:Key": ("kms", ("CreateKey", "ScheduleKeyDeletion", "EnableKeyRotation")),
    "aws:s3/bucket:Bucket": ("s3", ("CreateBucket",)),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": (
        "s3", ("PutBucketLifecycleConfiguration.LifecycleConfiguration",),
    ),
    "aws:s3/bucketObjectv2:BucketObjectv2": ("s3", ("PutObject",)),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": (
        "s3", ("PutBucketOwnershipControls.OwnershipControls",),
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": (
        "s3", ("PutBucketEncryption.ServerSideEncryptionConfiguration",),
    ),
    "aws:s3/bucketVersioning:BucketVersioning": ("s3", ("PutBucketVersioning",)),
}  # fmt: skip
# Input path -> member of the request, where the names differ.
RENAMED_INPUTS: Mapping[str, Mapping[str, str]] = {
    "aws:budgets/budget:Budget": {
        "name": "Budget.BudgetName",
        "limitAmount": "Budget.BudgetLimit.Amount",
        "limitUnit": "Budget.BudgetLimit.Unit",
        "costFilters.*.name": "Budget.CostFilters.keys",
        "costFilters.*.values": "Budget.CostFilters.*",
        "costFilters.*.values.*": "Budget.CostFilters.*.*",
        "notifications": "NotificationsWithSubscribers",
        "notifications.*.comparisonOperator": f"{NOTIFICATION}.ComparisonOperator",
        "notifications.*.notificationType": f"{NOTIFICATION}.NotificationType",
        "notifications.*.threshold": f"{NOTIFICATION}.Threshold",
        "notifications.*.thresholdType": f"{NOTIFICATION}.ThresholdType",
    },
    "aws:amp/workspace:Workspace": {"loggingConfiguration": ""},  # the whole request
    "aws:cloudwatch/logGroup:LogGroup": {"name": "logGroupName"},
    "aws:ec2/launchTemplate:LaunchTemplate": {
        "name": "LaunchTemplateName",
        "description": "VersionDescription",
    },
    "aws:ec2/placementGroup:PlacementGroup": {"name": "GroupName"},
    "aws:ec2/vpcEndpoint:VpcEndpoint": {"policy": "PolicyDocument"},
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": {
        "policy": "lifecyclePolicyText",
        "repository": "repositoryName",
    },
    "aws:ecr/repository:Repository": {"name": "repositoryName"},
    "aws:ecr/repositoryPolicy:RepositoryPolicy": {
        "policy": "policyText",
        "repository": "repositoryName",
    },
    "aws:eks/cluster:Cluster": {
        "vpcConfig": "resourcesVpcConfig",
        "enabledClusterLogTypes.*": "logging.clusterLogging.*.types.*",
    },
    "aws:eks/nodeGroup:NodeGroup": {"nodeGroupName": "nodegroupName", "subnetIds": "subnets"},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {
        "subnetIds": "SubnetIds.*",
        "autoImportPolicy": "LustreConfiguration.AutoImportPolicy",
    },
    "aws:iam/policy:Policy": {"name": "PolicyName", "policy": "PolicyDocument"},
    "aws:iam/role:Role": {"name": "RoleName", "assumeRolePolicy": "AssumeRolePolicyDocument"},
    "aws:iam/rolePolicy:RolePolicy": {
        "name": "PolicyName",
        "policy": "PolicyDocument",
        "role": "RoleName",
    },
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": {"role": "RoleName"},
    "aws:kms/alias:Alias": {"name": "AliasName"},
    "aws:kms/key:Key": {"deletionWindowInDays": "PendingWindowInDays"},
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": {
        "rules": "LifecycleConfiguration.Rules",
    },
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": {
        "rules.*.blockedEncryptionTypes": f"{SSE}.BlockedEncryptionTypes.EncryptionType",
    },
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": {
        "rule": "OwnershipControls.Rules.*",
    },
}
# Values that the provider accepts in addition to the service's values.
ADDITIONAL_VALUES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("aws:s3/bucket:Bucket", "acl"): ("aws-exec-read", "log-delivery-write"),
    ("aws:s3/bucketVersioning:BucketVersioning", "versioningConfiguration.status"): ("Disabled",),
}
# Checked elsewhere: tags in common.py, instance types in machines.py. The filter expression of a budget is recursive.
OMITTED_INPUTS = ("tags", "tagsAll", "instanceType", "filterExpression")


def main() -> None:
    """Write shapes.json."""
    write_limits(PACKAGE, read())


def read() -> dict[str, Limits]:
    """Return the limits of each type in the installed service models."""
    store = SchemaStore("aws", CALLS)
    return {token: _LimitReader(token, store.load(token)).limits() for token in CALLS}


class _LimitReader:
    """Reader of the limits of one type: matches its inputs with the members of its requests."""

    def __init__(self, token: str, schema: ResourceSchema) -> None:
        service, self._roots = CALLS[token]
        self._model = botocore.model.ServiceModel(
            botocore.loaders.Loader().load_service_model(service, "service-2"), service
        )
        self._token, self._schema = token, schema
        self._shapes: dict[str, dict[str, Any]] = {}

    def limits(self) -> dict[str, dict[str, Any]]:
        """Return the limits by input path."""
        for root in self._roots:
            operation, _, member_path = root.partition(".")
            shape = self._member(operation, member_path)
            shape = shape.member if shape.type_name == "list" else shape
            self._match_fields(self._schema.inputs, shape, "", operation)
        return dict(sorted(self._shapes.items()))

    def _member(self, operation: str, path: str) -> Any:  # noqa: ANN401  botocore is not typed
        """Return the shape at a path such as `Budget.BudgetName`; None if there is none."""
        shape: Any = self._model.operation_model(operation).input_shape
        for step in path.split(".") if path else ():
            if step == "*":
                shape = shape.value if shape.type_name == "map" else shape.member
            elif step == "keys":
                shape = shape.key
            else:
                shape = getattr(shape, "members", {}).get(step)
            if shape is None:
                return None
        return shape

    def _match_fields(self, fields: Fields, shape: Any, prefix: str, operation: str) -> None:  # noqa: ANN401
        members = {
            _normalize(name): member_shape
            for name, member_shape in getattr(shape, "members", {}).items()
        }
        member_paths = RENAMED_INPUTS.get(self._token, {})
        for name, field in fields.items():
            path = f"{prefix}.{name}" if prefix else name
            if name in OMITTED_INPUTS and not prefix:
                continue
            member = self._member(operation, member_paths[path]) if path in member_paths else None
            inner = self._member(operation, member_paths.get(f"{path}.*", "-"))
            if member is not None:
                self._match_value(field.shape, member, path, operation)
            elif inner is not None:
                self._record(f"{path}.*", inner, operation)
            elif _normalize(name) in members and path not in self._shapes:
                self._match_value(field.shape, members[_normalize(name)], path, operation)

    def _match_value(self, input_shape: Shape, shape: Any, path: str, operation: str) -> None:  # noqa: ANN401
        if isinstance(input_shape, str):  # the provider may have one value where AWS has a list
            self._record(path, shape.member if shape.type_name == "list" else shape, operation)
            return
        ((kind, inner),) = input_shape.items()
        if (kind, shape.type_name) != ("object", "list"):
            self._record(path, shape, operation)
        # The provider has one object where AWS has a list.
        element_shape = getattr(shape, "member", shape)
        if kind == "object":
            self._match_fields(self._schema.objects[inner], element_shape, path, operation)
        elif kind == "list":
            self._match_value(inner, element_shape, f"{path}.*", operation)
        elif kind == "map" and shape.type_name == "map":
            self._record(f"{path}.*", shape.value, operation)
            if keys := _limits(shape.key):
                self._shapes.setdefault(path, {"api": self._api(operation)})["keys"] = keys

    def _record(self, path: str, shape: Any, operation: str) -> None:  # noqa: ANN401
        limits = _limits(shape)
        if "enum" in limits:
            limits["enum"] += [*ADDITIONAL_VALUES.get((self._token, path), ())]
        if limits:
            self._shapes[path] = {"api": self._api(operation), **limits}

    def _api(self, operation: str) -> str:
        return f"{self._model.service_id} API, {operation}"


def _limits(shape: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the limits of a shape that can refuse a value."""
    metadata = shape.metadata
    limits: dict[str, Any] = {}
    if metadata.get("enum"):
        limits["enum"] = list(metadata["enum"])
    if metadata.get("min", 0) > 0 or ("min" in metadata and shape.type_name in NUMBERS):
        limits["min"] = metadata["min"]
    if metadata.get("max", UNLIMITED) < UNLIMITED:
        limits["max"] = metadata["max"]
    if (pattern := _pattern(metadata.get("pattern", ""))) and "enum" not in limits:
        limits["pattern"] = pattern
    return limits


def _pattern(java_pattern: str) -> str:
    """Return a Java pattern in Python's syntax; empty if it accepts everything or cannot be translated."""
    if java_pattern in ("", "[\\S\\s]*", "(.*[\\n\\r\\t\\f\\ ]?)*"):
        return ""
    text = java_pattern.replace("\\p{L}", r"\w").replace("\\p{N}", "").replace("\\p{Z}", r"\s")
    text = text.replace("(?i)", "")  # Python takes flags only at the start
    return "" if "\\p{" in text or "\\P{" in text else text


def _normalize(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("s")


if __name__ == "__main__":
    main()
