"""`everstep doctor --stack` for AWS: boto3 over HTTP against the twin's account."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.loaders import Loader, create_loader
from cloudtwin.capacity import QuotaStore
from cloudtwin.providers.account import Account
from cloudtwin.providers.aws.eks_rules import CLUSTER
from cloudtwin.providers.aws.fsx import FILE_SYSTEM
from cloudtwin.providers.aws.monitoring import LOGS
from cloudtwin.providers.aws.network import EIP, VPC
from cloudtwin.providers.aws.policies import ROLE
from cloudtwin.providers.inventory import Resource

from components.config import from_mapping
from everstep.cli.account.aws import CREATE_AUTOSCALING_ROLE
from everstep.cli.account.checks import AccountCheck
from everstep.cli.account.doctor import account_checks
from everstep.resources import PACKAGES
from tests.everstep.cli.account.cases import (
    Case,
    Doctor,
    check_case,
    check_named,
    check_plain_values,
    failed_checks,
    only_failed_check,
)
from twin.tests.account_api.aws import AccountFacts, AwsApi, serve

ACCOUNT, STACK = "123456789012", "eks-test"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/platform/me"
TAGS = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
ECR = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/everstep/trainer"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/boundary"
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
METADATA = {"Arn": KEY, "KeyId": KEY[-36:], "KeyState": "Enabled", "KeySpec": "SYMMETRIC_DEFAULT"}
BUDGET = {"monthlyUsd": 900, "email": "vision@example.com"}
SPOT_QUOTA, SPOT_P_QUOTA, STANDARD_QUOTA = "L-3819A6DF", "L-7212CCBC", "L-1216C47A"
CLUSTER_CONFIG: dict[str, Any] = {
    "kind": "eks",
    "account": ACCOUNT,
    "administrators": [f"arn:aws:iam::{ACCOUNT}:role/team/platform"],
    "gpuPool": {"instanceTypes": ["g5.xlarge", "g6.xlarge"], "maxNodes": 4},
}


@pytest.fixture(scope="module")
def loader() -> Loader:
    return create_loader()


@pytest.fixture(autouse=True)
def shared_models(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the models of AWS's services once, not for the session of each test."""
    monkeypatch.setattr(botocore.session, "create_loader", lambda _search_path: loader)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the folder of an account with enough quota."""
    QuotaStore(tmp_path).set(SPOT_QUOTA, 64)
    return tmp_path


@pytest.fixture
def doctor(state: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Return a function that checks an account with given facts for a stack with given keys."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(state / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(state / "none"))

    def check(
        *,
        cluster: Mapping[str, Any] | None = None,
        sections: Mapping[str, Any] | None = None,
        secrets_provider: str = "",
        **facts: Any,
    ) -> list[AccountCheck]:
        config = from_mapping(
            {"tags": TAGS, "cluster": {**CLUSTER_CONFIG, **(cluster or {})}, **(sections or {})}
        )
        account = replace(AccountFacts(caller=SESSION, account=ACCOUNT), **facts)
        with serve(AwsApi(state, account)) as url:
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)
            return account_checks(config, STACK, secrets_provider)

    return check


def add_resource(state: Path, token: str, name: str, **tags: str) -> None:
    """Add a resource to the account."""
    with Account(state, "aws").transaction() as transaction:
        outputs = {"id": name, "name": name, "tagsAll": tags}
        resource = Resource(token=token, id=name, urn="", inputs={}, outputs=outputs, ready=True)
        transaction.put(resource)


def test_an_account_that_has_everything_passes_all_checks(doctor: Doctor) -> None:
    checks = doctor()

    assert failed_checks(checks) == []
    assert {check.name for check in checks} == {
        *("identity", "account", "administrators", "permissions", "names", "add-ons", "zones"),
        *("GPU pool", "system pool", "quota, GPU pool", "quota, system pool"),
        "images",
        *("quota, VPCs", "quota, Elastic IPs", "quota, GiB of FSx"),
    }


def test_a_profile_that_does_not_exist_is_a_result_and_not_a_traceback(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")

    (check,) = doctor()

    assert check.name == "identity"
    assert "ProfileNotFound" in check.observed
    assert "AWS_PROFILE" in check.fix


def test_actions_of_options_that_a_stack_does_not_set_are_not_checked(doctor: Doctor) -> None:
    checks = doctor(denied=frozenset({"aps:CreateWorkspace", "budgets:ModifyBudget"}))

    assert failed_checks(checks) == []


def test_a_stack_in_an_existing_network_needs_no_permission_to_create_one(doctor: Doctor) -> None:
    zones = {"us-east-1a": "subnet-0aaaaaaa", "us-east-1b": "subnet-0bbbbbbb"}
    network = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetIds": zones}
    denied = frozenset({"ec2:CreateVpc", "ec2:CreateNatGateway"})

    assert failed_checks(doctor(cluster={"network": network}, denied=denied)) == []
    assert only_failed_check(doctor(denied=denied)).fatal


def test_a_denied_and_an_undecided_action_are_two_results(doctor: Doctor) -> None:
    denied, undecided = failed_checks(
        doctor(denied=frozenset({"iam:PassRole"}), scoped=frozenset({"fsx:DeleteFileSystem"}))
    )

    assert (denied.observed, denied.fatal) == ("denied: iam:PassRole", True)
    assert undecided.observed.endswith("needs other values: fsx:DeleteFileSystem")
    assert not undecided.fatal


def test_permissions_to_push_and_to_encrypt_secrets_are_not_checked_if_a_stack_needs_neither(
    doctor: Doctor,
) -> None:
    assert failed_checks(doctor(denied=frozenset({"ecr:PutImage", "kms:Encrypt"}))) == []


def test_expired_credentials_end_the_checks(doctor: Doctor) -> None:
    (check,) = doctor(expired=True)

    assert "expired" in check.observed
    assert "aws sso login" in check.fix
    assert check.fatal


def test_no_credentials_are_a_result_and_not_a_traceback(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (check,) = doctor()

    assert "NoCredentialsError" in check.observed


CASES: dict[str, Case] = {
    "another account than the stack names": (
        {"cluster": {"account": "999999999999"}}, {}, "cluster.account",
        (ACCOUNT, "credentials of 999999999999"), True,
    ),
    "no account named": (
        {"cluster": {"account": None}}, {}, "cluster.account", ("Set cluster.account",), False,
    ),
    "the caller is not an administrator": (
        {"cluster": {"administrators": [f"arn:aws:iam::{ACCOUNT}:role/other"]}}, {},
        "cluster.administrators", ("assumed-role/platform/me is not listed", "Add the user"), True,
    ),
    "an action is denied": (
        {}, {"denied": frozenset({"fsx:CreateFileSystem", "iam:PassRole"})}, "",
        ("denied: fsx:CreateFileSystem, iam:PassRole", "docs/eks.md"), True,
    ),
    "an action is allowed on some resources only": (
        {}, {"scoped": frozenset({"ec2:DeleteVpc", "s3:PutObject"})}, "",
        ("not decided", "needs other values: ec2:DeleteVpc, s3:PutObject", "by hand"), False,
    ),
    "an action that no policy can allow on some resources": (
        {}, {"scoped": frozenset({"kms:CreateKey"})}, "", ("denied: kms:CreateKey",), True,
    ),
    "a push is denied": (
        {"sections": {"registry": {"kind": "ecr", "name": "everstep"}}},
        {"denied": frozenset({"ecr:PutImage"})}, "", ("denied: ecr:PutImage",), True,
    ),
    "the key of the stack's secrets is denied": (
        {"secrets_provider": "awskms://alias/everstep-state?region=us-east-1"},
        {"denied": frozenset({"kms:Encrypt"})}, "", ("denied: kms:Encrypt",), True,
    ),
    "an action of managed Prometheus is denied": (
        {"cluster": {"monitoring": {"managedPrometheus": True}}},
        {"denied": frozenset({"aps:CreateWorkspace"})}, "", ("denied: aps:CreateWorkspace",), True,
    ),
    "an action of a budget is denied": (
        {"sections": {"cost": {"budget": BUDGET}}},
        {"denied": frozenset({"budgets:ModifyBudget"})}, "", ("denied: budgets:ModifyBudget",), True,
    ),
    "new roles need a boundary": (
        {}, {"role_boundary": BOUNDARY}, "", ("denied: iam:CreateRole", "set cluster.iam"), True,
    ),
    "new roles need a path": (
        {}, {"role_path": "/team/"}, "", ("denied: iam:CreateRole", "set cluster.iam"), True,
    ),
    "a key that does not exist": (
        {"cluster": {"kmsKeyArn": KEY}}, {}, "cluster.kmsKeyArn", ("does not exist",), True,
    ),
    "a key that is being deleted": (
        {"cluster": {"kmsKeyArn": KEY}}, {"key": {**METADATA, "KeyState": "PendingDeletion"}},
        "cluster.kmsKeyArn", ("state is PendingDeletion", "Enable"), True,
    ),
    "an asymmetric key": (
        {"cluster": {"kmsKeyArn": KEY}}, {"key": {**METADATA, "KeySpec": "RSA_2048"}},
        "cluster.kmsKeyArn", ("type RSA_2048", "SYMMETRIC_DEFAULT"), True,
    ),
    "a key in an account without the role of Auto Scaling": (
        {"cluster": {"kmsKeyArn": KEY}}, {"key": METADATA, "service_roles": frozenset()},
        "cluster.kmsKeyArn",
        ("no role AWSServiceRoleForAutoScaling",
         "aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com"), True,
    ),
    "a key that may not be used": (
        {"cluster": {"kmsKeyArn": KEY}},
        {"key": METADATA, "denied": frozenset({"kms:GenerateDataKey"})}, "",
        ("denied: kms:GenerateDataKey",), True,
    ),
    "the simulation is not allowed": (
        {}, {"denied": frozenset({"iam:SimulatePrincipalPolicy"})}, "",
        ("not checked: iam:SimulatePrincipalPolicy: AccessDenied", "Allow iam:Sim"), False,
    ),
    "an add-on's version does not exist": (
        {"cluster": {"addonVersions": {"coredns": "v1.13.1-eksbuild.1"}}}, {},
        "cluster.addonVersions.coredns", ("v1.13.1-eksbuild.1 does not exist", "Use v1.14.2"), True,
    ),
    "the version of an optional add-on does not exist": (
        {
            "cluster": {
                "addonVersions": {"amazon-cloudwatch-observability": "v1.0.0-eksbuild.1"},
                "monitoring": {"containerInsights": True},
            }
        }, {},
        "cluster.addonVersions.amazon-cloudwatch-observability",
        ("v1.0.0-eksbuild.1 does not exist", "Use v5.2.1"), True,
    ),
    "a zone without a control plane": (
        {}, {"zone_ids": {"us-east-1b": "use1-az3"}}, "cluster.zones[1]",
        ("us-east-1b is use1-az3", "no control plane", "us-east-1d"), True,
    ),
    "a zone that the account cannot use": (
        {}, {"unavailable_zones": frozenset({"us-east-1b"})}, "cluster.zones[1]",
        ("us-east-1b is not available",), True,
    ),
    "no GPU type in the zone": (
        {},
        {"not_offered": frozenset({("g5.xlarge", "us-east-1a"), ("g6.xlarge", "us-east-1a")})},
        "cluster.gpuPool.instanceTypes",
        ("g5.xlarge, g6.xlarge not offered in us-east-1a", "us-east-1b"), True,
    ),
    "one of two GPU types in the zone": (
        {}, {"not_offered": frozenset({("g6.xlarge", "us-east-1a")})},
        "cluster.gpuPool.instanceTypes", ("g6.xlarge not offered in us-east-1a",), False,
    ),
    "no system type in a zone": (
        {}, {"not_offered": frozenset({("m6i.xlarge", "us-east-1b")})},
        "cluster.systemPool.instanceTypes", ("m6i.xlarge not offered in us-east-1b",), True,
    ),
    "an image that was not pushed": (
        {"sections": {"job": {"image": f"{ECR}:1.0"}}},
        {"images": frozenset({"everstep/trainer:0.9"})}, "job.image",
        (f"{ECR}:1.0 does not exist", "push"), True,
    ),
    "an image of a DaemonSet that was not pushed": (
        {"sections": {"platform": {"spot": {"image": f"{ECR}:1.0"}}}}, {}, "platform.spot.image",
        (f"{ECR}:1.0 does not exist",), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_fault_of_the_account_names_its_field_and_fix(doctor: Doctor, name: str) -> None:
    assert len(check_case(doctor, CASES[name])) == 1, "one fault is one result"


def test_the_role_of_a_profile_is_checked_and_not_its_user(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/team/platform"
    files = {
        "AWS_CONFIG_FILE": f"[profile deploy]\nrole_arn = {role}\nsource_profile = me\n",
        "AWS_SHARED_CREDENTIALS_FILE": "[me]\naws_access_key_id = A\naws_secret_access_key = s\n",
    }
    for variable, content in files.items():
        (tmp_path / variable).write_text(content)
        monkeypatch.setenv(variable, str(tmp_path / variable))
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_PROFILE", "deploy")
    user = f"arn:aws:iam::{ACCOUNT}:user/me"

    checks = doctor(caller=user, role=role)

    assert check_named(checks, "identity").observed.endswith(":assumed-role/platform/twin")
    assert failed_checks(checks) == [], "the role administers the cluster, the user does not"
    (refused,) = doctor(caller=user, role="")
    assert "not authorized to perform: sts:AssumeRole" in refused.observed


def test_roles_are_simulated_with_the_boundary_and_path_of_the_stack(doctor: Doctor) -> None:
    rules = {"permissionsBoundary": BOUNDARY, "path": "/team/"}

    checks = doctor(cluster={"iam": rules}, role_boundary=BOUNDARY, role_path="/team/")

    assert failed_checks(checks) == []


def test_actions_are_simulated_in_the_region_of_the_stack(doctor: Doctor) -> None:
    assert failed_checks(doctor(region="us-east-1")) == []
    faults = failed_checks(doctor(region="eu-west-1"))
    assert {check.name for check in faults} == {"permissions"}, (
        "the policies allow the actions in another region only"
    )


def test_a_stack_with_an_existing_key_needs_no_permission_to_create_one(doctor: Doctor) -> None:
    denied = frozenset({"kms:CreateKey", "kms:CreateAlias"})

    assert failed_checks(doctor(cluster={"kmsKeyArn": KEY}, key=METADATA, denied=denied)) == []


def test_a_stack_without_a_key_of_its_own_needs_no_role_of_auto_scaling(doctor: Doctor) -> None:
    assert failed_checks(doctor(service_roles=frozenset())) == [], "EKS creates it with the nodes"


def test_the_key_is_checked_where_roles_may_not_be_read(doctor: Doctor) -> None:
    checks = doctor(cluster={"kmsKeyArn": KEY}, key=METADATA, denied=frozenset({"iam:GetRole"}))

    results = [(check.passed, check.fatal) for check in checks if check.name == "KMS key"]
    assert results == [(True, True), (False, False)]


def test_the_guide_names_the_command_for_the_role_of_auto_scaling() -> None:
    section = (PACKAGES / "docs/eks.md").read_text().partition("## In an account with rules")[2]

    assert CREATE_AUTOSCALING_ROLE in section.partition("\n## ")[0]


def test_a_boundary_needs_the_permission_to_set_it(doctor: Doctor) -> None:
    denied = frozenset({"iam:PutRolePermissionsBoundary"})
    rules = {"permissionsBoundary": BOUNDARY}

    check = only_failed_check(doctor(cluster={"iam": rules}, denied=denied, role_boundary=BOUNDARY))

    assert check.observed == "denied: iam:PutRolePermissionsBoundary"
    assert failed_checks(doctor(denied=denied)) == [], "a stack without a boundary never sets one"


def test_an_administrator_of_another_account_is_named(doctor: Doctor) -> None:
    administrators = [
        "arn:aws:iam::111122223333:role/platform",
        f"arn:aws:iam::{ACCOUNT}:role/platform",
    ]
    check = only_failed_check(doctor(cluster={"administrators": administrators}))

    assert check.field == "cluster.administrators[0]"
    assert "another account" in check.observed


@pytest.mark.parametrize(
    ("vcpus", "fatal", "passed"),
    [(0, True, False), (3, True, False), (8, False, False), (16, False, True)],
)
def test_a_quota_stops_the_job_only_if_no_machine_fits(
    doctor: Doctor, state: Path, vcpus: int, fatal: bool, passed: bool
) -> None:
    QuotaStore(state).set(SPOT_QUOTA, vcpus)
    check = check_named(doctor(), "quota, GPU pool")

    assert (check.fatal, check.passed) == (fatal, passed)
    assert f"{vcpus} vCPUs of 16 for 4 nodes: All G and VT Spot" in check.observed
    assert "--quota-code L-3819A6DF --desired-value 16" in check.fix


POOLS = [
    {"name": "near", "zone": "us-east-1a", "instanceTypes": ["g5.xlarge"], "maxNodes": 4},
    {"name": "far", "zone": "us-east-1b", "instanceTypes": ["g6.8xlarge"], "maxNodes": 2},
]


def test_pools_that_share_a_quota_are_checked_together(doctor: Doctor, state: Path) -> None:
    QuotaStore(state).set(SPOT_QUOTA, 79)
    checks = doctor(cluster={"gpuPool": None, "gpuPools": POOLS})
    check = check_named(checks, "quota, GPU pool near + GPU pool far")

    assert not check.passed
    assert "79 vCPUs of 80 for 6 nodes" in check.observed
    assert check.field == "cluster.gpuPools[0].instanceTypes"


def test_a_pool_with_types_of_two_quotas_is_checked_against_both(
    doctor: Doctor, state: Path
) -> None:
    gpu_pool = {"instanceTypes": ["g5.48xlarge", "p4d.24xlarge"], "maxNodes": 2}
    QuotaStore(state).set(SPOT_QUOTA, 2 * 192)
    QuotaStore(state).set(SPOT_P_QUOTA, 0)
    job = {"name": "large", "gpusPerWorker": 8, "replicas": 2, "maxReplicas": 2}

    check = only_failed_check(doctor(cluster={"gpuPool": gpu_pool}, sections={"job": job}))

    assert check.name == "quota, GPU pool"
    assert "0 vCPUs of 192 for 2 nodes: All P4, P3 and P2 Spot" in check.observed
    assert not check.fatal, "EC2 starts the other type"


def test_each_pools_types_are_checked_in_its_own_zone(doctor: Doctor) -> None:
    not_offered = frozenset({("g6.8xlarge", "us-east-1b"), ("g6.8xlarge", "us-east-1a")})
    checks = doctor(cluster={"gpuPool": None, "gpuPools": POOLS}, not_offered=not_offered)
    check = check_named(checks, "GPU pool far")

    assert check.field == "cluster.gpuPools[1].instanceTypes"
    assert "g6.8xlarge not offered in us-east-1b" in check.observed
    assert check_named(checks, "GPU pool near").passed


def test_a_quota_of_the_system_pool_is_checked(doctor: Doctor, state: Path) -> None:
    QuotaStore(state).set(STANDARD_QUOTA, 0)

    assert only_failed_check(doctor()).field == "cluster.systemPool.instanceTypes"


def use_resources(state: Path, token: str, count: int, **inputs: Any) -> None:
    """Add resources to the account that count against its quotas."""
    with Account(state, "aws").transaction() as transaction:
        for number in range(count):
            name = f"used-{number}"
            transaction.put(
                Resource(token=token, id=name, urn="", inputs=inputs, outputs={}, ready=True)
            )


@pytest.mark.parametrize(
    ("token", "count", "inputs", "name", "observed", "fix"),
    [
        (VPC, 5, {}, "VPCs", "5 of 5 VPCs used, 1 more", "vpc --quota-code L-F678F1CE --desired-value 6"),
        (EIP, 5, {}, "Elastic IPs", "5 of 5 Elastic IPs used", "ec2 --quota-code L-0263D0A3 --desired-value 6"),
        (
            FILE_SYSTEM, 1, {"storageCapacity": 100800, "deploymentType": "SCRATCH_1"}, "GiB of FSx",
            "100800 of 100800 GiB of FSx used, 1200 more", "fsx --quota-code L-AD2FC696 --desired-value 102000",
        ),
    ],
    ids=["VPCs", "addresses", "file systems"],
)  # fmt: skip
def test_the_current_use_of_an_account_counts_against_its_quotas(
    doctor: Doctor,
    state: Path,
    token: str,
    count: int,
    inputs: dict[str, Any],
    name: str,
    observed: str,
    fix: str,
) -> None:
    use_resources(state, token, count, **inputs)

    check = only_failed_check(doctor())
    assert check.name == f"quota, {name}"
    assert check.fatal
    assert observed in check.observed
    assert fix in check.fix


def test_quotas_that_cannot_be_read_have_to_be_checked_by_hand(doctor: Doctor) -> None:
    checks = failed_checks(doctor(denied=frozenset({"servicequotas:GetServiceQuota"})))

    assert [check.name for check in checks] == ["quotas", "quotas of resources"]
    for check in checks:
        assert "not checked: servicequotas:GetServiceQuota" in check.observed
        assert "check it by hand" in check.fix
        assert not check.fatal


def test_a_stack_that_is_up_needs_no_further_quota(doctor: Doctor, state: Path) -> None:
    use_resources(state, VPC, 5)
    add_resource(state, CLUSTER, "everstep", stack=STACK)

    assert failed_checks(doctor()) == []


def test_storage_of_another_deployment_type_does_not_count(doctor: Doctor, state: Path) -> None:
    capacity = {"storageCapacity": 100800, "deploymentType": "PERSISTENT_2"}
    use_resources(state, FILE_SYSTEM, 1, **capacity)

    assert failed_checks(doctor()) == [], "scratch and persistent storage have their own quotas"


@pytest.mark.parametrize(
    ("group", "monitoring"),
    [
        ("/aws/eks/everstep/cluster", {}),
        ("/aws/containerinsights/everstep/host", {"containerInsights": True}),
    ],
)
def test_a_log_group_that_a_deleted_cluster_left_is_named(
    doctor: Doctor, state: Path, group: str, monitoring: dict[str, bool]
) -> None:
    add_resource(state, LOGS, group)
    check = only_failed_check(doctor(cluster={"monitoring": monitoring}))

    assert check.field == "cluster.name"
    assert f"aws logs delete-log-group --log-group-name {group}" in check.fix


def test_a_log_group_of_this_stack_is_kept_after_a_failed_up(doctor: Doctor, state: Path) -> None:
    add_resource(state, LOGS, "/aws/eks/everstep/cluster", stack=STACK)

    assert failed_checks(doctor()) == []


def test_a_cluster_of_another_stack_is_named(doctor: Doctor, state: Path) -> None:
    add_resource(state, CLUSTER, "everstep", stack="theirs")
    check = only_failed_check(doctor())

    assert "another cluster is named everstep" in check.observed


def test_a_role_of_a_cluster_in_another_region_is_named(doctor: Doctor, state: Path) -> None:
    add_resource(state, ROLE, "everstep-cluster", stack="eks-europe")
    check = only_failed_check(doctor())

    assert "IAM roles are global" in check.fix


def test_a_stack_that_is_up_collides_with_nothing(doctor: Doctor, state: Path) -> None:
    add_resource(state, CLUSTER, "everstep", stack=STACK)
    add_resource(state, LOGS, "/aws/eks/everstep/cluster")
    add_resource(state, ROLE, "everstep-cluster", stack=STACK)

    assert failed_checks(doctor()) == []


def test_an_endpoint_that_does_not_respond_is_reported(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    config = from_mapping({"tags": TAGS, "cluster": CLUSTER_CONFIG})

    (check,) = account_checks(config, STACK)
    assert "EndpointConnectionError" in check.observed


def test_the_results_are_plain_values(doctor: Doctor) -> None:
    check_plain_values(doctor())
