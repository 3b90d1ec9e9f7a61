"""AWS IAM and KMS: roles, policies, keys. Pure.

Sources: IAM User Guide ("IAM and STS quotas"), IAM API Reference (DeleteConflict), KMS API Reference.
"""

# ruff: noqa: S106  (a token is the name of a type, not a password)

from collections.abc import Iterator
from typing import Any

from cloudtwin.providers.aws.common import CREATION_TIME, IN_ACCOUNT, arn, id_from
from cloudtwin.providers.aws.policies import ATTACHMENT, ROLE, document_rule
from cloudtwin.providers.conditions import failure_at, in_range, matches, value_rule
from cloudtwin.providers.model import (
    InputRule,
    Inputs,
    Naming,
    Precondition,
    Reference,
    RequestCheck,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.schema.check import CheckFailure, nearest

POLICY = "aws:iam/policy:Policy"
KEY = "aws:kms/key:Key"
AWS_POLICY_PREFIX = "arn:aws:iam::aws:policy/"
MAX_ROLE_NAME, MAX_POLICY_NAME = 64, 128  # IAM User Guide, quotas
NOT_FOUND, EXISTS = "NoSuchEntity", "EntityAlreadyExists"

# AWS managed policies that Kubernetes stacks use; AWS Managed Policy Reference, 2026-06.
AWS_POLICIES = frozenset({
    "AmazonEKSClusterPolicy", "AmazonEKSVPCResourceController", "AmazonEKSWorkerNodePolicy",
    "AmazonEKSWorkerNodeMinimalPolicy", "AmazonEKS_CNI_Policy", "AmazonEKSServicePolicy",
    "AmazonEKSComputePolicy", "AmazonEKSBlockStoragePolicy", "AmazonEKSLoadBalancingPolicy",
    "AmazonEKSNetworkingPolicy", "AmazonEC2ContainerRegistryReadOnly",
    "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore", "AmazonFSxFullAccess",
    "AmazonS3FullAccess", "AmazonS3ReadOnlyAccess", "CloudWatchAgentServerPolicy",
    "AdministratorAccess", "ReadOnlyAccess", "PowerUserAccess", "IAMFullAccess",
    "AWSXrayWriteOnlyAccess", "AutoScalingFullAccess", "AmazonEC2FullAccess",
    "service-role/AmazonEBSCSIDriverPolicy", "service-role/AmazonEFSCSIDriverPolicy",
})  # fmt: skip


def _key_rotation(inputs: Inputs) -> Iterator[CheckFailure]:
    if inputs.get("enableKeyRotation"):
        if inputs.get("customerMasterKeySpec", "SYMMETRIC_DEFAULT") != "SYMMETRIC_DEFAULT":
            yield failure_at("enableKeyRotation", "only symmetric keys are rotated")
    elif inputs.get("rotationPeriodInDays") is not None:
        yield failure_at("rotationPeriodInDays", "a period needs enableKeyRotation")


def _aws_policy_exists(path: str) -> RequestCheck:
    """Return a check that the AWS managed policy at a path exists; it accepts all other policies."""

    def violations(request: ResourceRequest) -> Iterator[str]:
        policy = str(request.inputs.get(path) or "")
        name = policy.removeprefix(AWS_POLICY_PREFIX)
        if policy.startswith(AWS_POLICY_PREFIX) and name not in AWS_POLICIES:
            yield f"Policy {policy} does not exist or is not attachable{nearest(name, AWS_POLICIES)}"

    return violations


def _describe_role(request: ResourceRequest) -> dict[str, Any]:
    path = str(request.inputs.get("path") or "/")
    return {
        "arn": arn("iam", f"role{path}{request.id}"),
        "uniqueId": f"AROA{request.digits('id', 16).upper()}",
        "createDate": CREATION_TIME,
    }


def _policy_arn(request: ResourceRequest) -> str:
    return arn("iam", f"policy{request.inputs.get('path') or '/'}{request.inputs['name']}")


def _key_id(request: ResourceRequest) -> str:
    text = request.entropy
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"


def to_key(path: str, code: str) -> Reference:
    """Return a reference to a key by its ARN; keys of other accounts are assumed to exist."""
    return Reference(path, (KEY,), code, key="arn", required=IN_ACCOUNT)


TO_ROLE = Reference("role", (ROLE,), NOT_FOUND, "DeleteConflict", key="name")
TYPES = (
    ResourceType(
        token=ROLE,
        identify=id_from("name"),
        describe=_describe_role,
        defaults={"maxSessionDuration": 3600, "path": "/", "forceDetachPolicies": False},
        naming=Naming(max_length=MAX_ROLE_NAME),
        immutable=("path", "namePrefix"),
        rules=(
            document_rule("trust policy of a role", "assumeRolePolicy", "trust"),
            value_rule(
                "permissions boundary of a role", "permissionsBoundary",
                matches(r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/.+", "is not the ARN of a policy"),
                "IAM API, CreateRole",
            ),
        ),
        references=(
            Reference(
                "permissionsBoundary", (POLICY,), NOT_FOUND, "DeleteConflict", "arn",
                required=IN_ACCOUNT,
            ),
        ),
        preconditions=(
            Precondition(
                "AWS managed boundary exists", "AWS Managed Policy Reference", NOT_FOUND,
                _aws_policy_exists("permissionsBoundary"),
            ),
        ),
        unique_code=EXISTS,
    ),
    ResourceType(
        token=POLICY,
        identify=_policy_arn,
        describe=lambda request: {
            "arn": request.id,
            "policyId": f"ANPA{request.digits('id', 16).upper()}",
            "attachmentCount": 0,
        },
        defaults={"path": "/"},
        naming=Naming(max_length=MAX_POLICY_NAME),
        immutable=("path", "description", "namePrefix"),
        rules=(document_rule("document of a policy", "policy", "identity"),),
        unique_code=EXISTS,
    ),
    ResourceType(
        token=ATTACHMENT,
        identify=id_from("role", "policyArn", separator="/"),
        immutable=("role", "policyArn"),
        references=(
            TO_ROLE,
            Reference(
                "policyArn", (POLICY,), NOT_FOUND, "DeleteConflict", "arn", (AWS_POLICY_PREFIX,)
            ),
        ),
        preconditions=(
            Precondition(
                "AWS managed policy exists", "AWS Managed Policy Reference", NOT_FOUND,
                _aws_policy_exists("policyArn"),
            ),
        ),
        unique_code=EXISTS,
    ),
    ResourceType(
        token="aws:iam/rolePolicy:RolePolicy",
        identify=id_from("role", "name"),
        naming=Naming(max_length=MAX_POLICY_NAME),
        immutable=("role", "namePrefix"),
        rules=(document_rule("document of a role's policy", "policy", "inline"),),
        references=(TO_ROLE,),
        unique_code=EXISTS,
    ),
    ResourceType(
        token="aws:iam/openIdConnectProvider:OpenIdConnectProvider",
        identify=lambda request: arn(
            "iam", f"oidc-provider/{str(request.inputs['url']).removeprefix('https://')}"
        ),
        describe=lambda request: {"arn": request.id},
        immutable=("url",),
        rules=(
            value_rule(
                "URL of an identity provider", "url", matches(r"https://[^?]+", "is not an https URL without a query"),
                "IAM API, CreateOpenIDConnectProvider",
            ),
        ),
        unique_code=EXISTS,
    ),
    ResourceType(
        token=KEY,
        identify=_key_id,
        describe=lambda request: {
            "arn": arn("kms", f"key/{request.id}", request.region),
            "keyId": request.id,
        },
        defaults={
            "keyUsage": "ENCRYPT_DECRYPT",
            "customerMasterKeySpec": "SYMMETRIC_DEFAULT",
            "isEnabled": True,
            "multiRegion": False,
            "rotationPeriodInDays": 365,
        },
        immutable=("keyUsage", "customerMasterKeySpec", "multiRegion", "region"),
        rules=(
            value_rule(
                "deletion window of a key", "deletionWindowInDays", in_range(7, 30, "days"),
                "KMS API, ScheduleKeyDeletion",
            ),
            InputRule("rotation of a key", "KMS API, EnableKeyRotation", _key_rotation),
        ),
    ),
    ResourceType(
        token="aws:kms/alias:Alias",
        identify=id_from("name"),
        describe=lambda request: {
            "arn": arn("kms", request.id, request.region),
            "targetKeyArn": arn("kms", f"key/{request.inputs['targetKeyId']}", request.region),
        },
        naming=Naming(max_length=256, start="alias/"),
        immutable=("namePrefix", "region"),
        rules=(
            value_rule(
                "name of an alias", "name",
                matches(
                    r"alias/(?!aws/)[a-zA-Z0-9:/_-]+",
                    "must be alias/ and letters, digits and : / _ -, and not begin with alias/aws/",
                ),
                "KMS API, CreateAlias",
            ),
        ),
        references=(Reference("targetKeyId", (KEY,), "NotFoundException", external=("arn:",)),),
        unique_code="AlreadyExistsException",
    ),
)  # fmt: skip
