"""Checks of an Azure subscription for a stack of kind aks.

Each check reads the subscription and returns results that name the key of the stack file and the fix. They run in the
order in which `pulumi up` would fail: identity, registrations, permissions, names, versions, machines.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from cloudfacts.azure_actions import ASSIGNMENT, BUDGET, PUSH, actions_of, all_actions

from everstep.cli.account.azure_account import AzureAccount, Permission
from everstep.cli.account.azure_machines import check_kubernetes, check_offerings, check_quotas
from everstep.cli.account.azure_names import check_names, check_secrets_vault
from everstep.cli.account.azure_scopes import (
    RBAC_ADMINISTRATOR,
    Scope,
    further_scopes,
    main_scope_id,
)
from everstep.cli.account.checks import AccountCheck, RequestError, fault, run, success
from everstep.cli.account.images import check_published, images_of

if TYPE_CHECKING:
    from components.config import AksConfig, StackConfig

WITHOUT_SPOT = re.compile(r"^(FreeTrial|AzureForStudents|AzurePass|BenefitsTrial)")
"""Offers without spot machines.

The source lists the offers that have them, such as pay-as-you-go and Sponsored: "Use Azure Spot Virtual Machines",
Limitations, 2026-11-28.
"""
ENABLED = ("Enabled", "Active")
PAST_DUE = "PastDue"
"""State of a subscription with an open payment, in which all operations are allowed.

Source: "Azure subscription states", 2026-11-28.
"""

ALWAYS_USED = (
    "Authorization",
    "Compute",
    "ContainerService",
    "ManagedIdentity",
    "Network",
    "Storage",
)
ACR = re.compile(
    r"(?P<host>[a-z0-9]+\.azurecr\.io)/(?P<repository>[^:@]+)(:(?P<tag>[^@]+))?(@(?P<digest>.+))?"
)
MAX_LISTED_ACTIONS = 6


def checks(config: "StackConfig", stack: str, secrets_provider: str = "") -> Iterator[AccountCheck]:
    """Yield the results of all checks; a failed login, or a subscription that cannot be read, is the last result.

    Args:
        config: the configuration of the stack; its cluster is of kind aks.
        stack: name of the stack.
        secrets_provider: URL of the stack's secrets provider; empty if it has none.
    """
    from components.config import AksConfig, as_kind

    cluster = as_kind(config.cluster, AksConfig)
    try:
        account = AzureAccount(cluster.location, cluster.subscription)
    except RequestError as error:
        yield _failed_login(error)
        return
    try:
        yield from _all_checks(account, config, cluster, stack, secrets_provider)
    finally:
        account.close()


def _all_checks(
    account: AzureAccount,
    config: "StackConfig",
    cluster: "AksConfig",
    stack: str,
    secrets_provider: str,
) -> Iterator[AccountCheck]:
    """Yield the results of all checks."""
    try:
        yield success("identity", f"{account.login.name} in tenant {account.login.tenant}")
    except RequestError as error:
        yield _failed_login(error)
        return
    try:
        yield from check_subscription(account, cluster)
    except RequestError as error:
        fix = "Set cluster.subscription, or `az account set --subscription ID`; `az account list` lists yours."
        yield fault("subscription", str(error), "cluster.subscription", fix)
        return
    parts: dict[str, Callable[[], Iterable[AccountCheck]]] = {
        "administrators": partial(check_administrators, account, cluster),
        "registrations": partial(check_registrations, account, config, cluster),
        "permissions": partial(check_permissions, account, config, cluster),
        "names": partial(check_names, account, config, cluster, stack),
        "secrets provider": partial(check_secrets_vault, account, secrets_provider),
        "Kubernetes": partial(check_kubernetes, account, cluster),
        "VM sizes": partial(check_offerings, account, cluster),
        "quotas": partial(check_quotas, account, cluster, stack),
        "images": partial(check_images, account, config),
    }
    for name, check in parts.items():
        yield from run(name, check)


def _failed_login(error: RequestError) -> AccountCheck:
    """Return the result of a login that failed."""
    fix = "Log in: `az login`, or set the ARM_* variables of a service principal; then `az account show`."
    return fault("identity", str(error), "", fix)


def check_subscription(account: AzureAccount, cluster: "AksConfig") -> Iterator[AccountCheck]:
    """Check that the subscription is usable and that the stack names it."""
    check, key, current = "subscription", "cluster.subscription", account.subscription
    if current.state == PAST_DUE:
        fix = "Pay the open invoice: Azure disables the subscription otherwise, which stops all machines."
        yield fault(check, f"{current.id} is {current.state}", key, fix, fatal=False)
    elif current.state not in ENABLED:
        fix = "Ask its owner to enable it: in this state, resources can be read and deleted only."
        yield fault(check, f"{current.id} is {current.state}", key, fix)
        return
    if cluster.subscription is None:
        fix = f"Set it to {current.id}, so that no other subscription is ever changed."
        yield fault(check, f"{current.name} ({current.id})", key, fix, fatal=False)
    else:
        yield success(check, f"{current.name} ({current.id})", key)
    spot = [pool for pool in cluster.pools if pool.spot]
    if WITHOUT_SPOT.match(current.offer) and spot:
        fix = "Set it to onDemand, or use a pay-as-you-go subscription."
        yield fault(
            check, f"the offer {current.offer} has no spot machines", spot[0].capacity_key, fix
        )


def check_administrators(account: AzureAccount, cluster: "AksConfig") -> Iterator[AccountCheck]:
    """Check that the groups exist and that the caller is a member of one of them."""
    check, key = "administrators", "cluster.administrators"
    groups = cluster.administrators
    if not groups:
        fix = "Name an Entra group you are in: local accounts are disabled, so no user could administer the cluster."
        yield fault(check, "none", key, fix)
        return
    kinds = account.kinds_in_directory(groups)
    for index, group in enumerate(groups):
        kind = kinds.get(group)
        if kind != "group":
            observed = f"{group} is a {kind}" if kind else f"the tenant has no object {group}"
            fix = "Name the object id of a group: az ad group list --query '[].[displayName,id]'"
            yield fault(check, observed, f"{key}[{index}]", fix)
    memberships = account.groups_of_caller(groups)
    if memberships:
        yield success(check, f"{account.login.name} is in {', '.join(sorted(memberships))}", key)
        return
    observed = f"{account.login.name} is in none of them"
    fix = (
        "Add the identity that runs `pulumi up` to a group: az ad group member add "
        f"--group {groups[0]} --member-id {account.login.object_id}"
    )
    yield fault(check, observed, key, fix)


def resource_providers(config: "StackConfig", cluster: "AksConfig") -> dict[str, str]:
    """Return the namespaces of the resource providers that a stack uses, with the key that needs each."""
    keys = dict.fromkeys(ALWAYS_USED, "")
    if config.registry.kind == "acr":
        keys["ContainerRegistry"] = "registry.kind"
    if cluster.monitoring.container_insights:
        keys["OperationalInsights"] = keys["Insights"] = "cluster.monitoring.containerInsights"
    if cluster.monitoring.managed_prometheus:
        keys["Monitor"] = keys["Insights"] = "cluster.monitoring.managedPrometheus"
    if config.cost.budget is not None:
        keys["Consumption"] = "cost.budget"
    return {f"Microsoft.{name}": key for name, key in keys.items()}


def check_registrations(
    account: AzureAccount, config: "StackConfig", cluster: "AksConfig"
) -> Iterator[AccountCheck]:
    """Check that the subscriptions have registered all resource providers that the stack uses."""
    yield from _check_own_registrations(account, config, cluster)
    zone = cluster.dns_zone_id
    subscription = zone.split("/")[2] if zone else account.subscription_id
    if subscription.lower() != account.subscription_id.lower():
        yield from run("registrations", partial(_check_zone_registration, account, subscription))


def _check_zone_registration(account: AzureAccount, subscription: str) -> Iterator[AccountCheck]:
    """Check that AKS is registered in the subscription of the DNS zone, else it could not write to the zone."""
    check, key, name = "registrations", "cluster.privateDnsZone", "Microsoft.ContainerService"
    state = account.registration(subscription, name)
    if state == "Registered":
        yield success(check, f"{name} in the subscription of the DNS zone", key)
        return
    fix = f"az provider register --namespace {name} --subscription {subscription} --wait"
    yield fault(check, f"{name} is {state} in the subscription of the DNS zone", key, fix)


def _check_own_registrations(
    account: AzureAccount, config: "StackConfig", cluster: "AksConfig"
) -> Iterator[AccountCheck]:
    """Check that the subscription of the stack has registered its resource providers."""
    check, required, states = (
        "registrations",
        resource_providers(config, cluster),
        account.registrations(),
    )
    faults = [
        fault(
            check,
            f"{name} is {states.get(name.lower(), 'unknown')}",
            key,
            f"az provider register --namespace {name} --wait",
        )
        for name, key in required.items()
        if states.get(name.lower()) != "Registered"
    ]
    yield from faults or [success(check, f"all {len(required)} resource providers")]


def allows(permissions: Iterable[Permission], action: str) -> bool:
    """Return True if permissions allow an action. `*` stands for any text, and case does not matter."""
    return any(
        any(_matches(pattern, action) for pattern in permission.actions)
        and not any(_matches(pattern, action) for pattern in permission.excluded)
        for permission in permissions
    )


def _matches(pattern: str, action: str) -> bool:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(expression, action, re.IGNORECASE) is not None


def check_permissions(
    account: AzureAccount, config: "StackConfig", cluster: "AksConfig"
) -> Iterator[AccountCheck]:
    """Check that the caller's roles allow all actions of a stack, in each scope in which they apply."""
    yield from run("permissions", partial(_check_main_scope, account, config, cluster))
    for scope in further_scopes(config, cluster, account.subscription_id):
        yield from run("permissions", partial(_check_scope, account, scope))


def _check_main_scope(
    account: AzureAccount, config: "StackConfig", cluster: "AksConfig"
) -> Iterator[AccountCheck]:
    """Check the permissions in the stack's resource group; role assignments have their own check."""
    permissions = account.permissions(main_scope_id(cluster, account.subscription_id))
    group = cluster.resource_group
    label = f"the resource group {group}" if group else "the subscription"
    actions, assignment_actions = all_actions(), set(actions_of(ASSIGNMENT))
    # A budget is in the subscription, which is a scope of its own if the roles are in a group.
    elsewhere = {*assignment_actions, *(actions_of(BUDGET) if group else ())}
    if config.registry.kind == "acr":
        actions += PUSH
    groups: Mapping[str, tuple[list[str], str]] = {
        "permissions": ([item for item in actions if item not in elsewhere], "Contributor"),
        "role assignments": (sorted(assignment_actions), RBAC_ADMINISTRATOR),
    }
    for check, (required, roles) in groups.items():
        yield _permission_check(check, permissions, required, label, roles)


def _check_scope(account: AzureAccount, scope: Scope) -> Iterator[AccountCheck]:
    """Check the permissions in a scope outside the stack's resource group."""
    permissions = account.permissions(scope.id)
    yield _permission_check(
        "permissions", permissions, scope.actions, scope.label, scope.roles, scope.field
    )


def _permission_check(
    check: str,
    permissions: Iterable[Permission],
    required: Collection[str],
    label: str,
    roles: str,
    field: str = "",
) -> AccountCheck:
    """Return the result for actions in a scope: a success, or a fault that names roles for them.

    Args:
        check: name of the check.
        permissions: permissions of the caller in the scope.
        required: required actions.
        label: name of the scope.
        roles: built-in roles with these actions.
        field: key of the stack file because of which they are required.
    """
    denied = [action for action in required if not allows(permissions, action)]
    if not denied:
        return success(check, f"{len(required)} actions allowed in {label}", field)
    listed, further = denied[:MAX_LISTED_ACTIONS], len(denied) - MAX_LISTED_ACTIONS
    remainder = f" and {further} more" if further > 0 else ""
    place = f" in {label}" if field else ""
    fix = f"Assign {roles} in {label}; docs/aks.md lists the actions for a custom role."
    return fault(check, f"not allowed{place}: {', '.join(listed)}{remainder}", field, fix)


def check_images(account: AzureAccount, config: "StackConfig") -> Iterator[AccountCheck]:
    """Check that the images exist, with the caller's identity in Azure's registries."""
    for key, image in images_of(config).items():
        parsed = ACR.fullmatch(image)
        if not parsed:
            continue
        reference = parsed["digest"] or parsed["tag"] or "latest"
        exists = account.has_image(parsed["host"], parsed["repository"], reference)
        fix = "Build and push it first: `everstep images push`; docs/aks.md has the commands."
        yield AccountCheck(
            "images", exists, image if exists else f"{image} does not exist", key, fix
        )
    yield from check_published(config, lambda image: ACR.fullmatch(image) is not None)
