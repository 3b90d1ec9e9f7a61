"""Checks of an AWS account for a stack of kind eks.

Each check reads the account and returns results that name the key of the stack file and the fix. They run in this
order: identity, account, permissions, KMS key, names, versions, zones, instance types, quotas, images.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from cloudfacts.aws import INSTANCE_TYPES
from cloudfacts.aws_actions import PUSH, STATE_KEY, all_actions
from cloudfacts.quotas import ELASTIC_IPS, LUSTRE_STORAGE, VPCS, Quota, quota

from everstep.catalog.plurals import amount
from everstep.cli.account.aws_account import REGION_KEY, AwsAccount
from everstep.cli.account.aws_resources import undeclared_types
from everstep.cli.account.checks import AccountCheck, RequestError, fault, run, success
from everstep.cli.account.images import check_published, images_of

if TYPE_CHECKING:
    from components.config import EksConfig, EksPool, StackConfig

NO_CONTROL_PLANE = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
"""Ids of zones in which EKS creates no control plane. Source: EKS User Guide, "VPC and subnet
requirements", 2026-11-22."""

ECR = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/"
    r"(?P<repository>[^:@]+)(:(?P<tag>[^@]+))?(@(?P<digest>.+))?"
)
SYMMETRIC = "SYMMETRIC_DEFAULT"
KEY_USE = frozenset({"kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"})
"""Actions with which a stack uses an existing key: grants for the services, and objects of the bucket."""
AUTOSCALING_ROLE = "AWSServiceRoleForAutoScaling"
CREATE_AUTOSCALING_ROLE = (
    "aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com"
)
SET_BOUNDARY = "iam:PutRolePermissionsBoundary"
CREATE_LINKED_ROLE = "iam:CreateServiceLinkedRole"  # acts on roles whose path AWS prescribes
KEY_PROVIDER = "awskms://"
REQUEST_QUOTA = "aws service-quotas request-service-quota-increase --service-code"


@dataclass(frozen=True)
class InstancePool:
    """Machines of one pool.

    Attributes:
        name: name of the pool for the user.
        field: key of its instance types.
        types: its instance types.
        zones: zones in which its machines start.
        spot: whether they are spot instances.
        nodes: maximum number of machines.
        is_fallback: whether it replaces the machines of another pool, in whose zones it starts the same types.
    """

    name: str
    field: str
    types: Sequence[str]
    zones: Sequence[str]
    spot: bool
    nodes: int
    is_fallback: bool = False


def checks(config: "StackConfig", stack: str, secrets_provider: str = "") -> Iterator[AccountCheck]:
    """Yield the results of all checks; only the first if the credentials are not accepted.

    Args:
        config: the configuration of the stack; its cluster is of kind eks.
        stack: name of the stack.
        secrets_provider: URL of the stack's secrets provider; empty if it has none.
    """
    from components.config import EksConfig, as_kind

    cluster = as_kind(config.cluster, EksConfig)
    account = AwsAccount(cluster.region)
    try:
        caller = account.caller
    except RequestError as error:
        fix = "Log in: `aws sso login`, or set AWS_PROFILE; then `aws sts get-caller-identity`."
        yield AccountCheck("identity", passed=False, observed=str(error), fix=fix)
        return
    yield AccountCheck("identity", passed=True, observed=caller.arn)
    parts: dict[str, Callable[[], Iterable[AccountCheck]]] = {
        "account": partial(check_account, account, cluster),
        "administrators": partial(check_administrators, account, cluster),
        "permissions": partial(check_permissions, account, config, cluster, secrets_provider),
        "KMS key": partial(check_key, account, cluster),
        "names": partial(check_names, account, cluster, stack),
        "add-ons": partial(check_addons, account, cluster),
        "zones": partial(check_zones, account, cluster),
        "instance types": partial(check_offerings, account, cluster),
        "quotas": partial(check_quotas, account, cluster),
        "quotas of resources": partial(check_resource_quotas, account, config, cluster, stack),
        "images": partial(check_images, account, config),
    }
    for name, check in parts.items():
        yield from run(name, check)


def check_account(account: AwsAccount, cluster: "EksConfig") -> Iterator[AccountCheck]:
    """Check that the credentials belong to the account that the stack names."""
    account_id = account.caller.account
    if cluster.account is None:
        fix = "Set cluster.account, so that no other account is ever changed."
        yield fault("account", account_id, "cluster.account", fix, fatal=False)
        return
    fix = f"Use credentials of {cluster.account}, or correct the key."
    yield AccountCheck("account", account_id == cluster.account, account_id, "cluster.account", fix)


def check_administrators(account: AwsAccount, cluster: "EksConfig") -> Iterator[AccountCheck]:
    """Check that the caller will have access to the cluster, and that all administrators are of the account."""
    check, caller = "administrators", account.caller
    if not cluster.administrators:
        yield AccountCheck(
            check, passed=True, observed="the creator", field="cluster.administrators"
        )
        return
    for index, arn in enumerate(cluster.administrators):
        if arn.split(":")[4] != caller.account:
            key, observed = f"cluster.administrators[{index}]", f"{arn} belongs to another account"
            yield fault(check, observed, key, f"Use a user or role of account {caller.account}.")
    is_administrator = any(caller.is_principal(arn) for arn in cluster.administrators)
    observed = caller.arn if is_administrator else f"{caller.arn} is not listed"
    fix = "Add the user or role that runs `pulumi up`: without it, no object in the cluster can be created."
    yield AccountCheck(check, is_administrator, observed, "cluster.administrators", fix)


def check_permissions(
    account: AwsAccount, config: "StackConfig", cluster: "EksConfig", secrets_provider: str
) -> Iterator[AccountCheck]:
    """Check that the caller's policies allow all actions of a stack.

    Actions on roles are simulated on the ARN of the cluster role, which stands for all roles. Other resources get
    their ARNs when they are created, so a policy for named resources leaves these actions undecided.
    """
    check, actions = "permissions", _actions(config, cluster, secrets_provider)
    role_actions = {
        action for action in actions if action.startswith("iam:") and action != CREATE_LINKED_ROLE
    }
    boundary = cluster.iam.permissions_boundary
    denials = account.denied_actions(
        actions - role_actions, context={REGION_KEY: cluster.region}
    ) + account.denied_actions(
        role_actions,
        resource=f"arn:aws:iam::{account.caller.account}:role{cluster.iam.path}{cluster.name}-cluster",
        context={"iam:PermissionsBoundary": boundary} if boundary else None,
    )
    if denials.denied:
        fix = (
            "Allow these actions; docs/eks.md lists them by resource type. If the account requires a permissions "
            "boundary or a role path, set cluster.iam."
        )
        yield fault(check, f"denied: {', '.join(denials.denied)}", "", fix)
    if denials.undecided:
        observed = (
            "not decided, since no policy allows them on all resources, or a condition needs other values: "
            f"{', '.join(denials.undecided)}"
        )
        fix = "Check by hand that a policy allows them on the resources of this stack; docs/eks.md lists them."
        yield fault(check, observed, "", fix, fatal=False)
    if not denials.denied and not denials.undecided:
        yield success(check, f"{len(actions)} actions allowed")


def _actions(config: "StackConfig", cluster: "EksConfig", secrets_provider: str) -> set[str]:
    """Return the actions of a stack: its resources, its images, its options and the key of its secrets."""
    actions = {*all_actions(without=undeclared_types(config, cluster))}
    if config.registry.kind == "ecr":
        actions.update(PUSH)
    if secrets_provider.startswith(KEY_PROVIDER):
        actions.update(STATE_KEY)
    if cluster.iam.permissions_boundary:
        actions.add(SET_BOUNDARY)
    if cluster.kms_key_arn:
        actions |= KEY_USE
    return actions


def check_key(account: AwsAccount, cluster: "EksConfig") -> Iterator[AccountCheck]:
    """Check that the KMS key that the stack names, if any, can encrypt, and that its policy can name Auto Scaling."""
    check, field, arn = "KMS key", "cluster.kmsKeyArn", cluster.kms_key_arn
    if arn is None:
        return
    key = account.key(arn)
    if key is None:
        yield fault(check, f"{arn} does not exist", field, "Correct the ARN.")
    elif key.get("KeyState") != "Enabled":
        yield fault(check, f"its state is {key.get('KeyState')}", field, "Enable the key.")
    elif key.get("KeySpec") != SYMMETRIC:
        fix = f"Use a key of type {SYMMETRIC}: the services accept no other."
        yield fault(check, f"it is of type {key.get('KeySpec')}", field, fix)
    else:
        yield AccountCheck(check, passed=True, observed=arn, field=field)
        yield from run(check, partial(_check_autoscaling_role, account))


def _check_autoscaling_role(account: AwsAccount) -> Iterator[AccountCheck]:
    """Check that the role exists with which Auto Scaling uses the key for the disks of nodes.

    A new account does not have it before its first Auto Scaling group, and KMS refuses a policy that names a missing
    role: terraform-aws-eks #3013, terraform-provider-aws #28644.
    """
    if account.role_tags(AUTOSCALING_ROLE) is not None:
        return
    fix = (
        f"{CREATE_AUTOSCALING_ROLE}, and then allow the role in the policy of the key: docs/eks.md"
    )
    yield fault("KMS key", f"the account has no role {AUTOSCALING_ROLE}", "cluster.kmsKeyArn", fix)


def check_names(account: AwsAccount, cluster: "EksConfig", stack: str) -> Iterator[AccountCheck]:
    """Check that the names of the cluster, of its log groups and of its role are free, or belong to this stack."""
    check, key, name = "names", "cluster.name", cluster.name
    tags = account.cluster_tags(name)
    if tags is not None and tags.get("stack") == stack:
        yield AccountCheck(
            check, passed=True, observed=f"the cluster {name} is this stack's", field=key
        )
        return
    faults = []
    if tags is not None:
        fix = "Choose another name, or delete that cluster."
        faults.append(fault(check, f"another cluster is named {name}", key, fix))
    groups = (f"/aws/eks/{name}/cluster", *cluster.insights_log_groups) if tags is None else ()
    for group in groups:
        group_tags = account.log_group_tags(group)
        if group_tags is not None and group_tags.get("stack") != stack:
            fix = (
                "Choose another name, or, if it remains from a deleted cluster, delete it: "
                f"aws logs delete-log-group --log-group-name {group}"
            )
            faults.append(fault(check, f"the log group {group} exists", key, fix))
    owner = account.role_tags(f"{name}-cluster")
    if owner is not None and owner.get("stack") != stack:
        fix = "IAM roles are global: choose a name that no cluster in another region has."
        faults.append(fault(check, f"the role {name}-cluster exists", key, fix))
    yield from faults or [AccountCheck(check, passed=True, observed=f"{name} is free", field=key)]


def check_addons(account: AwsAccount, cluster: "EksConfig") -> Iterator[AccountCheck]:
    """Check that each add-on has a version for the cluster's version of Kubernetes."""
    check, kubernetes = "add-ons", cluster.kubernetes_version
    faults = []
    for addon in cluster.addons:
        versions, pinned = (
            account.addon_versions(addon, kubernetes),
            cluster.addon_versions.get(addon),
        )
        if not versions:
            observed = f"{addon} has no version for Kubernetes {kubernetes}"
            fix = "Use a version that EKS offers: aws eks describe-cluster-versions"
            faults.append(fault(check, observed, "cluster.kubernetesVersion", fix))
        elif pinned and pinned not in versions:
            observed = f"{addon} {pinned} does not exist for Kubernetes {kubernetes}"
            fix = f"Use {versions[0]}, or remove the key: AWS resolves the version."
            faults.append(fault(check, observed, f"cluster.addonVersions.{addon}", fix))
    observed = f"all {len(cluster.addons)} for Kubernetes {kubernetes}"
    yield from faults or [AccountCheck(check, passed=True, observed=observed)]


def check_zones(account: AwsAccount, cluster: "EksConfig") -> Iterator[AccountCheck]:
    """Check that the account can use each zone and that EKS has control planes in it."""
    check, ids, faults = "zones", account.zone_ids(), []
    for index, zone in enumerate(cluster.zones):
        key, others = f"cluster.zones[{index}]", _other_zones(ids, cluster.zones)
        if zone not in ids:
            observed = f"{zone} is not available to this account"
            faults.append(fault(check, observed, key, f"Use {others}."))
        elif ids[zone] in NO_CONTROL_PLANE:
            observed = f"{zone} is {ids[zone]} in this account, where EKS has no control plane"
            faults.append(fault(check, observed, key, f"Use {others}."))
    observed = ", ".join(f"{zone} ({ids.get(zone)})" for zone in cluster.zones)
    yield from faults or [
        AccountCheck(check, passed=True, observed=observed, field="cluster.zones")
    ]


def _other_zones(ids: dict[str, str], used_zones: Sequence[str]) -> str:
    """Return the zones that could replace one of the used zones."""
    usable = [zone for zone, zone_id in ids.items() if zone_id not in NO_CONTROL_PLANE]
    return (
        " or ".join(zone for zone in sorted(usable) if zone not in used_zones) or "another region"
    )


def pools(cluster: "EksConfig") -> list[InstancePool]:
    """Return the pools from which a stack may start machines."""
    system = cluster.system_pool
    all_pools = [
        *(gpu_pool for pool in cluster.pools for gpu_pool in _gpu_pools(pool)),
        InstancePool(
            "system pool",
            "cluster.systemPool.instanceTypes",
            system.instance_types,
            cluster.zones,
            spot=False,
            nodes=system.max_nodes,
        ),
    ]
    return [pool for pool in all_pools if pool.nodes]


def _gpu_pools(pool: "EksPool") -> list[InstancePool]:
    """Return a GPU pool and its fallback."""
    gpu, key = pool.settings, f"{pool.key}.instanceTypes"
    suffix, zones, types = f" {pool.name}" if pool.name else "", [pool.zone], gpu.instance_types
    spot = gpu.capacity == "spot"
    return [
        InstancePool(f"GPU pool{suffix}", key, types, zones, spot=spot, nodes=gpu.max_nodes),
        InstancePool(
            f"GPU fallback{suffix}",
            key,
            types,
            zones,
            spot=False,
            nodes=gpu.fallback_nodes,
            is_fallback=True,
        ),
    ]


def check_offerings(account: AwsAccount, cluster: "EksConfig") -> Iterator[AccountCheck]:
    """Check that each zone of a pool offers all of its instance types."""
    checked = [pool for pool in pools(cluster) if not pool.is_fallback]
    zones_by_type = account.offering_zones(
        sorted({name for pool in checked for name in pool.types})
    )
    for pool in checked:
        for zone in pool.zones:
            missing = [name for name in pool.types if zone not in zones_by_type[name]]
            if not missing:
                observed = f"all types are offered in {zone}"
                yield AccountCheck(pool.name, passed=True, observed=observed, field=pool.field)
                continue
            observed = f"{', '.join(missing)} not offered in {zone}"
            elsewhere = sorted(set().union(*(zones_by_type[name] for name in missing)))
            others = ", ".join(elsewhere) or "none in this region"
            fix = f"Use another type, or a zone that offers one of them: {others}."
            fatal = len(missing) == len(pool.types)
            yield fault(pool.name, observed, pool.field, fix, fatal=fatal)


def check_quotas(account: AwsAccount, cluster: "EksConfig") -> Iterator[AccountCheck]:
    """Check that the account's quotas allow all machines of the pools.

    Pools that share a quota share its vCPUs, so they are checked together. A pool with types of several quotas may
    get all of its machines from any of them.
    """
    all_pools = pools(cluster)
    for vcpu_quota, limited in _pools_by_quota(all_pools).items():
        nodes = sum(pool.nodes for pool in limited)
        allowed = account.quota(vcpu_quota)
        required = sum(max(_vcpus(pool)) * pool.nodes for pool in limited)
        observed = f"{allowed:g} vCPUs of {required} for {amount(nodes, 'node')}: {vcpu_quota.name}"
        fix = _increase(vcpu_quota, required)
        name = "quota, " + " + ".join(pool.name for pool in limited)
        without_other_types = [pool for pool in limited if pool in all_pools]
        smallest = [min(_vcpus(pool)) for pool in without_other_types]
        fatal = bool(smallest) and allowed < min(smallest)
        yield AccountCheck(name, allowed >= required, observed, limited[0].field, fix, fatal=fatal)


def _increase(limit: Quota, value: int) -> str:
    """Return the command that requests a higher quota."""
    return f"{REQUEST_QUOTA} {limit.service} --quota-code {limit.code} --desired-value {value}"


def check_resource_quotas(
    account: AwsAccount, config: "StackConfig", cluster: "EksConfig", stack: str
) -> Iterator[AccountCheck]:
    """Check that the quotas allow the network and the file system in addition to the account's current use.

    A stack that is up already uses its share.
    """
    tags = account.cluster_tags(cluster.name)
    if tags is not None and tags.get("stack") == stack:
        return
    needs = [*_network_needs(account, cluster), *_storage_needs(account, config)]
    for limit, unit, required, used, field in needs:
        allowed = account.quota(limit)
        observed = f"{used} of {allowed:g} {unit} used, {required} more for the stack: {limit.name}"
        fix = f"{_increase(limit, used + required)}; or delete resources that are not used."
        yield AccountCheck(f"quota, {unit}", used + required <= allowed, observed, field, fix)


Need: TypeAlias = tuple[Quota, str, int, int, str]
"""Quota, unit, required amount, used amount, key of the stack file."""


def _network_needs(account: AwsAccount, cluster: "EksConfig") -> Iterator[Need]:
    """Yield the quotas that a new network needs; an existing network needs none."""
    network = cluster.network
    if network.vpc_id is not None:
        return
    gateways = len(cluster.node_zones) if network.nat_per_zone else 1
    yield VPCS, "VPCs", 1, account.vpcs(), "cluster.network.vpcId"
    yield ELASTIC_IPS, "Elastic IPs", gateways, account.elastic_ips(), "cluster.network.natPerZone"


def _storage_needs(account: AwsAccount, config: "StackConfig") -> Iterator[Need]:
    """Yield the quota that a new file system needs; an existing file system needs none."""
    storage = config.storage
    if storage.kind != "fsx" or storage.existing is not None:
        return
    deployment = storage.deployment_type
    counted = ("SCRATCH_1", "SCRATCH_2") if deployment == "SCRATCH_2" else (deployment,)
    used = account.lustre_gib(counted)
    yield LUSTRE_STORAGE[deployment], "GiB of FSx", storage.size_gib, used, "storage.sizeGib"


def _pools_by_quota(all_pools: Iterable[InstancePool]) -> dict[Quota, list[InstancePool]]:
    """Return the pools that each quota limits, with the instance types that it limits and whose size is known."""
    limited: dict[Quota, list[InstancePool]] = {}
    for pool in all_pools:
        types: dict[Quota, list[str]] = {}
        for name in pool.types:
            vcpu_quota = quota(name, spot=pool.spot)
            if vcpu_quota is not None and name in INSTANCE_TYPES:
                types.setdefault(vcpu_quota, []).append(name)
        for vcpu_quota, names in types.items():
            limited.setdefault(vcpu_quota, []).append(replace(pool, types=tuple(names)))
    return limited


def _vcpus(pool: InstancePool) -> list[int]:
    """Return the vCPUs of a pool's instance types."""
    return [INSTANCE_TYPES[name].vcpus for name in pool.types]


def check_images(account: AwsAccount, config: "StackConfig") -> Iterator[AccountCheck]:
    """Check that the images exist: in the account's own registry through its API, others in their registries."""

    def is_own(image: str) -> bool:
        parsed = ECR.fullmatch(image)
        return parsed is not None and (parsed["account"], parsed["region"]) == (
            account.caller.account,
            account.region,
        )

    for key, image in images_of(config).items():
        parsed = ECR.fullmatch(image)
        if parsed is None or not is_own(image):
            continue
        exists = account.has_image(
            parsed["repository"], tag=parsed["tag"] or "latest", digest=parsed["digest"] or ""
        )
        fix = "Build and push it first; docs/eks.md has the commands."
        yield AccountCheck(
            "images", exists, image if exists else f"{image} does not exist", key, fix
        )
    yield from check_published(config, is_own)
