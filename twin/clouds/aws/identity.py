"""AWS IAM and KMS: roles, policies, keys. Pure.

Sources: IAM User Guide ("IAM and STS quotas"), IAM API Reference (DeleteConflict), KMS API Reference.
"""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from twin.clouds.aws.common import arn, by
from twin.clouds.aws.policies import ATTACHMENT, ROLE, document_faults
from twin.clouds.model import Demand, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.rules import at
from twin.clouds.wire.check import Mistake, nearest

POLICY = "aws:iam/policy:Policy"
KEY = "aws:kms/key:Key"
OWN = "arn:aws:iam::aws:policy/"  # AWS's own policies, in no account
LONGEST_ROLE, LONGEST_POLICY = 64, 128  # IAM User Guide, quotas
NAME = re.compile(r"[\w+=,.@-]+")
SHORTEST_WINDOW, LONGEST_WINDOW = 7, 30  # KMS API, ScheduleKeyDeletion

# AWS's own policies that a stack of Everstep may want; AWS Managed Policy Reference, 2026-06.
MANAGED = frozenset({
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


def _name(inputs: Inputs) -> Iterable[Mistake]:
    name = inputs.get("name")
    if isinstance(name, str) and not NAME.fullmatch(name):
        yield at("name", f"{name!r} holds other characters than letters, digits and +=,.@-_")


def _managed(making: Making) -> Iterable[str]:
    policy = str(making.inputs["policyArn"])
    name = policy.removeprefix(OWN)
    if policy.startswith(OWN) and name not in MANAGED:
        yield f"Policy {policy} does not exist or is not attachable{nearest(name, dict.fromkeys(MANAGED))}"


def _window(inputs: Inputs) -> Iterable[Mistake]:
    days = inputs.get("deletionWindowInDays")
    if isinstance(days, int) and not SHORTEST_WINDOW <= days <= LONGEST_WINDOW:
        said = f"{days} days: a key goes after {SHORTEST_WINDOW} to {LONGEST_WINDOW} days"
        yield at("deletionWindowInDays", said)


def _alias(inputs: Inputs) -> Iterable[Mistake]:
    name = inputs.get("name")
    if isinstance(name, str) and not re.fullmatch(r"alias/(?!aws/)[a-zA-Z0-9:/_-]+", name):
        yield at("name", f"{name!r} must begin with alias/, and not with alias/aws/")


def _describe_role(making: Making) -> dict[str, Any]:
    path = str(making.inputs.get("path") or "/")
    return {
        "arn": arn("iam", f"role{path}{making.id}"),
        "uniqueId": f"AROA{making.digits('id', 16).upper()}",
        "createDate": "2026-01-01T00:00:00Z",
    }


def _key_id(making: Making) -> str:
    text = making.entropy
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:32]}"


DOCUMENT = "IAM API, MalformedPolicyDocument"
TO_ROLE = Reference(path="role", to=(ROLE,), by="name", code="NoSuchEntity", holds="DeleteConflict")

TYPES = (
    ResourceType(
        token=ROLE,
        identify=by("name"),
        describe=_describe_role,
        defaults={"maxSessionDuration": 3600, "path": "/", "forceDetachPolicies": False},
        naming=Naming(longest=LONGEST_ROLE),
        immutable=("path", "namePrefix"),
        rules=(
            Rule(name="name of a role", source="IAM User Guide, quotas", broken=_name),
            Rule(
                name="trust of a role",
                source=DOCUMENT,
                broken=partial(document_faults, "assumeRolePolicy"),
            ),
        ),
        unique_code="EntityAlreadyExists",
    ),
    ResourceType(
        token=POLICY,
        identify=lambda making: arn(
            "iam", f"policy{making.inputs.get('path') or '/'}{making.inputs['name']}"
        ),
        describe=lambda making: {
            "arn": making.id,
            "policyId": f"ANPA{making.digits('id', 16).upper()}",
            "attachmentCount": 0,
        },
        defaults={"path": "/"},
        naming=Naming(longest=LONGEST_POLICY),
        immutable=("path", "description", "namePrefix"),
        rules=(
            Rule(name="name of a policy", source="IAM User Guide, quotas", broken=_name),
            Rule(
                name="document of a policy",
                source=DOCUMENT,
                broken=partial(document_faults, "policy"),
            ),
        ),
        unique_code="EntityAlreadyExists",
    ),
    ResourceType(
        token=ATTACHMENT,
        identify=lambda making: f"{making.inputs['role']}/{making.inputs['policyArn']}",
        immutable=("role", "policyArn"),
        references=(
            TO_ROLE,
            Reference(
                path="policyArn",
                to=(POLICY,),
                by="arn",
                code="NoSuchEntity",
                holds="DeleteConflict",
                own=(OWN,),
            ),
        ),
        demands=(
            Demand(
                name="policy of AWS exists",
                source="AWS Managed Policy Reference",
                code="NoSuchEntity",
                broken=_managed,
            ),
        ),
        unique_code="EntityAlreadyExists",
    ),
    ResourceType(
        token="aws:iam/rolePolicy:RolePolicy",
        identify=lambda making: f"{making.inputs['role']}:{making.inputs['name']}",
        naming=Naming(longest=LONGEST_POLICY),
        immutable=("role", "namePrefix"),
        rules=(
            Rule(
                name="document of a role's policy",
                source=DOCUMENT,
                broken=partial(document_faults, "policy"),
            ),
        ),
        references=(TO_ROLE,),
        unique_code="EntityAlreadyExists",
    ),
    ResourceType(
        token="aws:iam/instanceProfile:InstanceProfile",
        identify=by("name"),
        describe=lambda making: {
            "arn": arn("iam", f"instance-profile/{making.id}"),
            "uniqueId": f"AIPA{making.digits('id', 16).upper()}",
        },
        naming=Naming(longest=LONGEST_POLICY),
        immutable=("path", "namePrefix"),
        references=(TO_ROLE,),
        unique_code="EntityAlreadyExists",
    ),
    ResourceType(
        token="aws:iam/openIdConnectProvider:OpenIdConnectProvider",
        identify=lambda making: arn(
            "iam", f"oidc-provider/{str(making.inputs['url']).removeprefix('https://')}"
        ),
        describe=lambda making: {"arn": making.id},
        immutable=("url",),
        unique_code="EntityAlreadyExists",
    ),
    ResourceType(
        token=KEY,
        identify=_key_id,
        describe=lambda making: {
            "arn": arn("kms", f"key/{making.id}", making.region),
            "keyId": making.id,
        },
        defaults={
            "keyUsage": "ENCRYPT_DECRYPT",
            "customerMasterKeySpec": "SYMMETRIC_DEFAULT",
            "isEnabled": True,
            "multiRegion": False,
            "rotationPeriodInDays": 365,
        },
        immutable=("keyUsage", "customerMasterKeySpec", "multiRegion", "region"),
        enums={
            "keyUsage": ("ENCRYPT_DECRYPT", "SIGN_VERIFY", "GENERATE_VERIFY_MAC", "KEY_AGREEMENT")
        },
        rules=(
            Rule(name="window of a key", source="KMS API, ScheduleKeyDeletion", broken=_window),
        ),
    ),
    ResourceType(
        token="aws:kms/alias:Alias",
        identify=by("name"),
        describe=lambda making: {
            "arn": arn("kms", making.id, making.region),
            "targetKeyArn": arn("kms", f"key/{making.inputs['targetKeyId']}", making.region),
        },
        naming=Naming(longest=256, automatic=False),
        immutable=("namePrefix", "region"),
        rules=(Rule(name="name of an alias", source="KMS API, CreateAlias", broken=_alias),),
        references=(
            Reference(path="targetKeyId", to=(KEY,), code="NotFoundException", own=("arn:",)),
        ),
        unique_code="AlreadyExistsException",
    ),
)
