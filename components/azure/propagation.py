"""Retries of a creation that needs a role assignment that has not propagated yet.

A role assignment propagates within seconds to ten minutes after its creation ("Troubleshoot Azure RBAC"), and no
request shows when: AKS refuses a cluster whose identities have their roles, and accepts it a minute later. A
fixed pause would be too long for most creations and too short for some. The engine therefore calls this hook after
a failure, and repeats the creation while the error is a missing role, as `az aks create` and Azure Service
Operator do. A refused cluster does not exist, so a retry is safe.
"""

import asyncio
import re

import pulumi
from pulumi.runtime import settings
from pulumi.runtime.proto import resource_pb2

DNS_ZONE = "CustomPrivateDNSZoneMissingPermissionError"
MISSING_ROLE = (
    "CustomKubeletIdentityMissingPermissionError",
    DNS_ZONE,
    "CustomRouteTableMissingPermission",
    "ResourceMissingPermissionError",
)
"""Error codes of AKS for an identity without a role. Source: AKS, "Troubleshoot cluster creation", 2026-11-23."""

ZONE_SUBSCRIPTION = re.compile(
    r"/subscriptions/([^/\s]+)/resourceGroups/[^/\s]+/providers/Microsoft\.Network/privateDnsZones/",
    re.IGNORECASE,
)

PAUSE_SECONDS = 20.0
MAX_RETRIES = 30  # ten minutes, the longest delay that Azure documents

# Without a running program, as in `pulumi destroy`, the engine shows this name instead of the error.
HOOK_NAME = "wait for roles (`pulumi destroy --run-program` shows the cause)"


def is_missing_role(error: str) -> bool:
    """Return True if an error of AKS may disappear once a role assignment has propagated."""
    return any(code in error for code in MISSING_ROLE)


def cause(error: str) -> str:
    """Return the rest of the message about a missing role, if it may have another cause.

    AKS reports a missing role as well if its resource provider is not registered in the subscription of the DNS zone:
    AKS, "Create a private AKS cluster"; MicrosoftDocs/azure-docs #74206.
    """
    if DNS_ZONE not in error:
        return ""
    match = ZONE_SUBSCRIPTION.search(error)
    subscription = match[1] if match else "SUBSCRIPTION"
    return (
        ", or the subscription of cluster.privateDnsZone has not registered Microsoft.ContainerService (run: "
        f"az provider register --namespace Microsoft.ContainerService --subscription {subscription})"
    )


async def retry(args: pulumi.ErrorHookArgs) -> bool:
    """Return True, after a pause, if the engine should repeat a creation; else return False."""
    newest, failures = args.errors[0], len(args.errors)
    if args.failed_operation != "create" or not is_missing_role(newest) or failures > MAX_RETRIES:
        return False
    pulumi.log.info(
        f"a role assignment of {args.name} has not propagated yet{cause(newest)}; the creation is retried in "
        f"{PAUSE_SECONDS:.0f} s ({failures} of {MAX_RETRIES})"
    )
    await asyncio.sleep(PAUSE_SECONDS)
    return True


def with_retries(name: str, opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Return options of a resource whose creation is retried while a role is missing.

    Args:
        name: logical name of the resource, since names of hooks are unique.
        opts: its other options.
    """
    if not settings.monitor_supports_feature(resource_pb2.RESOURCE_MONITOR_FEATURE_ERROR_HOOKS):
        return opts  # an older engine fails with the error of AKS
    hook = pulumi.ErrorHook(f"{name}: {HOOK_NAME}", retry)
    hooks = pulumi.ResourceHookBinding(on_error=[hook])
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(hooks=hooks))
