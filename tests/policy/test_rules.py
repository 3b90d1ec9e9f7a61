"""Each rule of the pack against compliant and violating resources."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from policy import pack
from policy.rule import Level, Resource
from policy.tokens import (
    ACCESS_KEY,
    ACR,
    AGENT_POOL,
    AKS_CLUSTER,
    BLOB_CONTAINER,
    BUCKET,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    EKS_CLUSTER,
    ELASTIC_JOB,
    FSX_LUSTRE,
    IAM_POLICY,
    JOB,
    KMS_KEY,
    LAUNCH_TEMPLATE,
    NODE_GROUP,
    POD,
    PUBLIC_ACCESS_BLOCK,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    ROLE,
    ROLE_POLICY,
    STATEFUL_SET,
    STORAGE_ACCOUNT,
    USER,
)  # fmt: skip

SPOT = "kubernetes.azure.com/scalesetpriority"
TAGS = {"owner": "vision", "costCenter": "42", "environment": "dev"}
SPOT_POOL = {
    "vmSize": "Standard_NC4as_T4_v3", "scaleSetPriority": "Spot", "scaleSetEvictionPolicy": "Delete",
    "nodeLabels": {SPOT: "spot"}, "nodeTaints": [f"{SPOT}=spot:NoSchedule"],
}  # fmt: skip
SPOT_GROUP = {"instanceTypes": ["g5.xlarge"], "capacityType": "SPOT", "taints": [{"key": "x"}]}
WORKER = {
    "name": "worker",
    "image": "example.com/trainer:1.2",
    "resources": {"limits": {"memory": "2Gi"}},
}


def deployment(**changes: Any) -> dict[str, Any]:
    """Return the properties of a Deployment with one container and these changes."""
    return {
        "metadata": {"namespace": "elastic-job"},
        "spec": {"template": {"spec": {"containers": [WORKER | changes]}}},
    }


def policy_allowing(
    action: Any, resource: Any = "arn:aws:s3:::bucket/*", **fields: Any
) -> dict[str, Any]:
    """Return the properties of an IAM policy with one statement."""
    statement = {"Effect": "Allow", "Action": action, "Resource": resource, **fields}
    return {"policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}


def role_trusting(principal: Any) -> dict[str, Any]:
    return {
        "assumeRolePolicy": {
            "Statement": {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal}
        }
    }


@dataclass(frozen=True)
class Case:
    """One rule with a compliant and a violating resource.

    Attributes:
        rule: name of the rule.
        kind: type of both resources.
        compliant_properties: properties without a violation.
        violating_properties: properties with exactly one violation.
        message: part of the message about the violation.
    """

    rule: str
    kind: str
    compliant_properties: dict[str, Any]
    violating_properties: dict[str, Any]
    message: str


BLOCK_ALL = dict.fromkeys(
    ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True
)
ENCRYPTED_DISK = {
    "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true"}}]
}
CASES = [
    Case(
        "gpu-pools-are-spot",
        NODE_GROUP,
        SPOT_GROUP,
        SPOT_GROUP | {"capacityType": "ON_DEMAND"},
        "not spot",
    ),
    Case(
        "gpu-pools-are-spot",
        NODE_GROUP,
        {"instanceTypes": ["m6i.xlarge"]},
        {"instanceTypes": ["p5.48xlarge"]},
        "not spot",
    ),
    Case(
        "gpu-pools-are-spot",
        NODE_GROUP,
        {"instanceTypes": ["g6.xlarge"], "labels": {"everstep.dev/capacity": "on-demand"}},
        {"instanceTypes": ["g6.xlarge"]},
        "not spot",
    ),
    Case(
        "gpu-pools-are-spot",
        NODE_GROUP,
        {"amiType": "AL2023_x86_64_STANDARD"},
        {"amiType": "AL2023_x86_64_NVIDIA"},  # the launch template of a reservation names the type
        "not spot",
    ),
    Case(
        "gpu-pools-are-spot",
        NODE_GROUP,
        {"amiType": "BOTTLEROCKET_x86_64_FIPS"},
        {"amiType": "BOTTLEROCKET_x86_64_NVIDIA_FIPS"},
        "not spot",
    ),
    Case(
        "gpu-pools-are-spot",
        NODE_GROUP,
        {"amiType": "AL2_x86_64"},
        {"amiType": "AL2_x86_64_GPU"},
        "not spot",
    ),
    Case(
        "gpu-pools-are-spot",
        AGENT_POOL,
        SPOT_POOL,
        SPOT_POOL | {"scaleSetPriority": "Regular"},
        "not spot",
    ),
    Case(
        "gpu-pools-are-spot",
        AGENT_POOL,
        {"vmSize": "Standard_NP10s"},  # FPGAs
        {"vmSize": "Standard_NG32ads_V620_v1"},
        "not spot",
    ),
    Case("gpu-pools-are-tainted", NODE_GROUP, SPOT_GROUP, SPOT_GROUP | {"taints": []}, "no taint"),
    Case(
        "gpu-pools-are-tainted", AGENT_POOL, SPOT_POOL, SPOT_POOL | {"nodeTaints": None}, "no taint"
    ),
    Case(
        "azure-spot-pools-declare-what-azure-adds",
        AGENT_POOL,
        SPOT_POOL,
        SPOT_POOL | {"nodeLabels": {}},
        "label",
    ),
    Case(
        "azure-spot-pools-declare-what-azure-adds",
        AGENT_POOL,
        SPOT_POOL,
        SPOT_POOL | {"nodeTaints": ["a=b:NoSchedule"]},
        "taint",
    ),
    Case(
        "azure-spot-pools-declare-what-azure-adds",
        AGENT_POOL,
        SPOT_POOL,
        SPOT_POOL | {"upgradeSettings": {"maxSurge": "1"}},
        "refuses",
    ),
    Case(
        "azure-spot-pools-declare-what-azure-adds",
        AGENT_POOL,
        {name: value for name, value in SPOT_POOL.items() if name != "scaleSetEvictionPolicy"},
        SPOT_POOL | {"scaleSetEvictionPolicy": "Deallocate"},
        "hold quota",
    ),
    Case(
        "gpu-pools-stand-alone",
        AKS_CLUSTER,
        {"agentPoolProfiles": [{"name": "system", "vmSize": "Standard_D4s_v5"}]},
        {"agentPoolProfiles": [{"name": "gpu", "vmSize": "Standard_NC4as_T4_v3"}]},
        "gpu",
    ),
    Case(
        "no-public-api-without-ranges",
        EKS_CLUSTER,
        {"vpcConfig": {"publicAccessCidrs": ["203.0.113.0/24"]}},
        {"vpcConfig": {}},
        "whole internet",
    ),
    Case(
        "no-public-api-without-ranges",
        EKS_CLUSTER,
        {"vpcConfig": {"endpointPublicAccess": False}},
        {"vpcConfig": {"publicAccessCidrs": ["0.0.0.0/0"]}},
        "every address",
    ),
    Case(
        "no-public-api-without-ranges",
        EKS_CLUSTER,
        {"vpcConfig": {"publicAccessCidrs": ["2001:db8::/32"]}},
        {"vpcConfig": {"publicAccessCidrs": ["::/0"]}},
        "every address in vpcConfig.publicAccessCidrs",
    ),
    Case(
        "no-public-aks-api-without-ranges",
        AKS_CLUSTER,
        {"apiServerAccessProfile": {"enablePrivateCluster": True}},
        {},
        "whole internet",
    ),
    Case(
        "no-public-aks-api-without-ranges",
        AKS_CLUSTER,
        {"apiServerAccessProfile": {"authorizedIPRanges": ["203.0.113.0/24"]}},
        {"apiServerAccessProfile": {"authorizedIPRanges": ["0.0.0.0/0"]}},
        "every address",
    ),
    Case(
        "eks-users-by-access-entries",
        EKS_CLUSTER,
        {"accessConfig": {"authenticationMode": "API"}},
        {"accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}},
        "ConfigMap",
    ),
    Case("no-local-accounts", AKS_CLUSTER, {"disableLocalAccounts": True}, {}, "certificate"),
    Case("no-account-keys", STORAGE_ACCOUNT, {"allowSharedKeyAccess": False}, {}, "account keys"),
    Case(
        "no-public-blobs",
        STORAGE_ACCOUNT,
        {"allowBlobPublicAccess": False},
        {"allowBlobPublicAccess": True},
        "public containers",
    ),
    Case("no-registry-admin", ACR, {}, {"adminUserEnabled": True}, "shared password"),
    Case(
        "metadata-needs-a-token",
        LAUNCH_TEMPLATE,
        {"metadataOptions": {"httpTokens": "required"}},
        {"metadataOptions": {"httpTokens": "optional"}},
        "token",
    ),
    *(
        Case(
            "no-public-buckets",
            PUBLIC_ACCESS_BLOCK,
            BLOCK_ALL,
            BLOCK_ALL | {setting: False},
            f"set {setting}",
        )
        for setting in BLOCK_ALL
    ),
    Case(
        "cluster-secrets-are-encrypted",
        EKS_CLUSTER,
        {"encryptionConfig": {"resources": ["secrets"]}},
        {},
        "does not encrypt Secrets",
    ),
    Case(
        "disks-are-encrypted",
        LAUNCH_TEMPLATE,
        ENCRYPTED_DISK,
        {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "false"}}]},
        "/dev/xvda",
    ),
    Case("keys-are-rotated", KMS_KEY, {"enableKeyRotation": True}, {}, "rotated"),
    Case(
        "transport-is-encrypted",
        STORAGE_ACCOUNT,
        {"minimumTlsVersion": "TLS1_2"},
        {"minimumTlsVersion": "TLS1_0"},
        "TLS",
    ),
    Case(
        "transport-is-encrypted",
        STORAGE_ACCOUNT,
        {"minimumTlsVersion": "TLS1_2", "enableHttpsTrafficOnly": False, "enableNfsV3": True},
        {"minimumTlsVersion": "TLS1_2", "enableHttpsTrafficOnly": False},
        "unencrypted",
    ),
    Case(
        "cluster-logs-everything",
        EKS_CLUSTER,
        {
            "enabledClusterLogTypes": [
                "api",
                "audit",
                "authenticator",
                "controllerManager",
                "scheduler",
            ]
        },
        {"enabledClusterLogTypes": ["api"]},
        "audit",
    ),
    Case(
        "no-wildcard-iam",
        ROLE_POLICY,
        policy_allowing(["s3:GetObject"]),
        policy_allowing("*"),
        "allows *",
    ),
    Case(
        "no-wildcard-iam",
        ROLE_POLICY,
        policy_allowing(["ec2:DescribeInstances"], "*"),
        policy_allowing("s3:*"),
        "allows s3:*",
    ),
    Case(
        "no-wildcard-iam",
        ROLE_POLICY,
        policy_allowing(["s3:GetObject", "s3:ListBucket"]),
        policy_allowing(["s3:GetObject", "s3:List*"]),
        "allows s3:List*",
    ),
    Case(
        "no-wildcard-iam",
        ROLE_POLICY,
        policy_allowing(["s3:GetObject"]),
        policy_allowing(["s3:?etObject"]),
        "allows s3:?etObject",
    ),
    Case(
        "no-wildcard-iam",
        ROLE_POLICY,
        policy_allowing("autoscaling:SetDesiredCapacity", "*", Condition={"StringEquals": {}}),
        policy_allowing("autoscaling:SetDesiredCapacity", "*"),
        "every resource",
    ),
    Case(
        "no-wildcard-iam",
        ROLE_POLICY,
        policy_allowing("s3:GetObject"),
        policy_allowing("s3:GetObject", NotAction="s3:PutObject"),
        "everything except a list",
    ),
    Case(
        "no-wildcard-iam",
        IAM_POLICY,
        policy_allowing("*", Effect="Deny"),
        policy_allowing("s3:GetObject", NotResource="arn:aws:s3:::secret/*"),
        "NotResource",
    ),
    Case(
        "roles-have-known-principals",
        ROLE,
        role_trusting({"Service": "eks.amazonaws.com"}),
        role_trusting("*"),
        "any principal",
    ),
    Case(
        "roles-have-known-principals",
        ROLE,
        role_trusting({"AWS": "arn:aws:iam::1:role/x"}),
        role_trusting({"AWS": "*"}),
        "any principal",
    ),
    Case(
        "costs-have-an-owner", BUCKET, {"tags": TAGS}, {"tags": {"owner": "vision"}}, "costCenter"
    ),
    Case("costs-have-an-owner", AGENT_POOL, {"tags": TAGS}, {}, "owner, costCenter, environment"),
    Case(
        "no-extended-support",
        EKS_CLUSTER,
        {"upgradePolicy": {"supportType": "STANDARD"}},
        {},
        "extended",
    ),
    Case(
        "images-are-pinned",
        DEPLOYMENT,
        deployment(),
        deployment(image="example.com:5000/trainer"),
        "may change at any time",
    ),
    Case(
        "images-are-pinned",
        DEPLOYMENT,
        deployment(image="trainer@sha256:" + "0" * 64),
        deployment(image="trainer:latest"),
        "trainer:latest",
    ),
    *(
        Case("images-are-pinned", kind, deployment(), deployment(image="x"), "runs x")
        for kind in (DAEMON_SET, JOB, STATEFUL_SET)
    ),
    Case(
        "images-are-pinned",
        ELASTIC_JOB,
        {"spec": {"replicaSpecs": {"Worker": {"template": {"spec": {"containers": [WORKER]}}}}}},
        {
            "spec": {
                "replicaSpecs": {
                    "Worker": {"template": {"spec": {"containers": [WORKER | {"image": "x"}]}}}
                }
            }
        },
        "runs x",
    ),
    Case(
        "containers-have-limits",
        DEPLOYMENT,
        deployment(),
        deployment(resources={"requests": {"memory": "1Gi"}}),
        "memory limit",
    ),
    Case(
        "containers-have-limits",
        POD,
        {"spec": {"containers": [WORKER]}},
        {"spec": {"initContainers": [{"name": "first"}], "containers": [WORKER]}},
        "first",
    ),
    Case(
        "workloads-are-unprivileged",
        DEPLOYMENT,
        deployment(),
        deployment(securityContext={"privileged": True}),
        "privileged",
    ),
    *(
        Case(
            "workloads-are-unprivileged",
            kind,
            deployment(),
            deployment(securityContext={"privileged": True}),
            "privileged",
        )
        for kind in (REPLICA_SET, REPLICATION_CONTROLLER)
    ),
    Case(
        "workloads-are-unprivileged",
        CRON_JOB,
        {"spec": {"jobTemplate": deployment()}},
        {"spec": {"jobTemplate": deployment(securityContext={"privileged": True})}},
        "privileged",
    ),
    *(
        Case(
            "workloads-are-unprivileged",
            DAEMON_SET,
            {
                "metadata": {"namespace": "everstep-system"},
                "spec": {"template": {"spec": {f"host{namespace}": True}}},
            },
            {
                "metadata": {"namespace": "default"},
                "spec": {"template": {"spec": {f"host{namespace}": True}}},
            },
            f"shares the node's {namespace}",
        )
        for namespace in ("Network", "PID", "IPC")
    ),
    *(
        Case(
            "no-plaintext-secrets",
            DEPLOYMENT,
            deployment(env=[{"name": name, "valueFrom": {}}]),
            deployment(env=[{"name": name, "value": "abc"}]),
            f"{name} in plaintext",
        )
        for name in ("AWS_TOKEN", "DB_SECRET", "AWS_SECRET_ACCESS_KEY")
    ),
    *(
        Case(
            "no-plaintext-secrets",
            DEPLOYMENT,
            deployment(env=[{"name": name, "value": value}]),
            deployment(env=[{"name": name, "value": "abc"}]),
            name,
        )
        for name, value in (
            ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "true"),
            ("DB_PASSWORD", "$(OTHER_PASSWORD)"),
        )
    ),
    Case(
        "no-plaintext-secrets",
        DEPLOYMENT,
        deployment(env=[{"name": "MAX_TOKENS", "value": "512"}]),
        deployment(env=[{"name": "password", "value": "abc"}]),
        "password",
    ),
]
RULES = {rule.name: rule for rule in pack.RULES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.message}")
def test_a_rule_accepts_compliant_and_reports_violating_resources(case: Case) -> None:
    rule = RULES[case.rule]

    assert (
        list(rule.violations(Resource(type=case.kind, properties=case.compliant_properties))) == []
    )
    violations = list(
        rule.violations(Resource(type=case.kind, properties=case.violating_properties))
    )
    assert len(violations) == 1, "one fault, one violation"
    assert case.message in violations[0]


@pytest.mark.parametrize("kind", [BUCKET, FSX_LUSTRE, STORAGE_ACCOUNT, BLOB_CONTAINER])
def test_only_production_data_must_be_protected(kind: str) -> None:
    rule = RULES["production-data-is-protected"]
    production_tags = {"tags": {"environment": "prod"}}

    assert not list(rule.violations(Resource(type=kind, properties=production_tags, protect=True)))
    assert not list(rule.violations(Resource(type=kind, properties={}, stack="eks-dev")))
    assert list(rule.violations(Resource(type=kind, properties=production_tags)))
    assert list(rule.violations(Resource(type=kind, properties={}, stack="eks-prod")))


def test_production_is_advised_to_name_images_by_digest() -> None:
    rule = RULES["production-images-by-digest"]

    def violations(stack: str, image: str) -> list[str]:
        return list(
            rule.violations(
                Resource(type=DEPLOYMENT, properties=deployment(image=image), stack=stack)
            )
        )

    assert violations("aks-prod", "trainer:1")
    assert not violations("aks-dev", "trainer:1")
    assert not violations("aks-prod", "trainer@sha256:" + "0" * 64)
    assert rule.level is Level.ADVISORY


@pytest.mark.parametrize("kind", [ACCESS_KEY, USER])
def test_long_lived_credentials_are_always_refused(kind: str) -> None:
    violations = RULES["no-long-lived-credentials"].violations(Resource(type=kind, properties={}))

    assert [violation.partition(":")[0] for violation in violations] == [
        f"is a credential that does not expire ({kind.rpartition(':')[2]})"
    ]


def test_a_rule_ignores_resources_of_other_types() -> None:
    resource = Resource(type="random:index/id:Id", properties={})

    assert [rule.name for rule in pack.RULES if list(rule.violations(resource))] == []


def test_every_rule_has_a_test() -> None:
    table_rules = {case.rule for case in CASES}
    other_rules = {
        "production-data-is-protected",
        "production-images-by-digest",
        "no-long-lived-credentials",
    }

    assert table_rules | other_rules == set(RULES)
    assert len(pack.RULES) == len(RULES), "two rules have the same name"


@pytest.mark.parametrize(
    ("stack", "environment", "expected"),
    [
        ("eks-prod", "prod", True),
        ("eks-live", "prod", True),
        ("eks-prod", "", True),
        ("eks-staging", "staging", False),
        ("eks-preprod", "preprod", False),
        ("eks-pre-prod", "", False),
        ("eks-nonprod", "", False),
        ("eks-non-prod", "", False),
    ],
)
def test_production_is_the_environment_prod_or_a_stack_whose_name_ends_with_it(
    stack: str, environment: str, expected: bool
) -> None:
    tags = {"environment": environment} if environment else {}

    assert (
        Resource(type="t", properties={}, stack=stack, default_tags=tags).in_production is expected
    )
