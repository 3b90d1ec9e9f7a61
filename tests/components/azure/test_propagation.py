"""Retries of the creation of a cluster that AKS refuses until its role assignments have propagated."""

import asyncio

import pulumi
import pytest

from components.azure import propagation
from components.azure.propagation import MAX_RETRIES, cause, is_missing_role, retry

# An AKS error, as pulumi-azure-native and the engine report it.
MISSING_ROLE_ERROR = (
    "autorest/azure: Service returned an error. Status=400 Code="
    '"CustomKubeletIdentityMissingPermissionError" Message="The cluster using user-assigned managed '
    "identity must be granted 'Managed Identity Operator' role to assign kubelet identity.\""
)
HUB = "99999999-3333-4444-5555-666666666666"
DNS_ZONE_ERROR = (
    'Code="CustomPrivateDNSZoneMissingPermissionError" Message="Service principal or user-assigned identity must be '
    f"given permission to read and write to custom private dns zone /subscriptions/{HUB}/resourceGroups/dns/providers/"
    'Microsoft.Network/privateDnsZones/privatelink.eastus.azmk8s.io."'
)
QUOTA_ERROR = 'Code="QuotaExceeded" Message="Operation could not be completed"'


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(pulumi.log, "info", lambda _message: None)


def is_retried(*errors: str, operation: str = "create") -> bool:
    """Return whether an operation with these errors, the newest first, is retried."""
    args = pulumi.ErrorHookArgs(
        urn="", id="", name="cluster", type="", failed_operation=operation, errors=list(errors)
    )
    return asyncio.run(retry(args))


def test_a_creation_that_lacks_a_role_is_retried() -> None:
    assert is_retried(MISSING_ROLE_ERROR)


def messages_of_retry(monkeypatch: pytest.MonkeyPatch, error: str) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", messages.append)
    assert is_retried(error)
    return messages


def test_a_refused_dns_zone_names_the_registration_in_its_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (message,) = messages_of_retry(monkeypatch, DNS_ZONE_ERROR)

    assert "cluster.privateDnsZone" in message
    assert (
        f"az provider register --namespace Microsoft.ContainerService --subscription {HUB}"
        in message
    ), "AKS reports a missing role, and no role would help"


def test_a_dns_zone_without_an_id_in_the_error_names_the_registration_too() -> None:
    assert "--subscription SUBSCRIPTION" in cause("CustomPrivateDNSZoneMissingPermissionError")


def test_another_missing_role_does_not_name_a_dns_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    (message,) = messages_of_retry(monkeypatch, MISSING_ROLE_ERROR)

    assert message.startswith("a role assignment of cluster has not propagated yet; ")
    assert "DnsZone" not in message


def test_another_error_ends_the_retries_immediately() -> None:
    assert not is_retried(QUOTA_ERROR)
    assert not is_retried(QUOTA_ERROR, MISSING_ROLE_ERROR), (
        "the role assignment has propagated, and something else is wrong"
    )


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_only_a_creation_is_retried(operation: str) -> None:
    assert not is_retried(MISSING_ROLE_ERROR, operation=operation)


def test_a_role_assignment_that_never_propagates_ends_the_retries() -> None:
    assert is_retried(*[MISSING_ROLE_ERROR] * MAX_RETRIES)
    assert not is_retried(*[MISSING_ROLE_ERROR] * (MAX_RETRIES + 1))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("CustomKubeletIdentityMissingPermissionError", True),
        ("CustomPrivateDNSZoneMissingPermissionError", True),
        ("CustomRouteTableMissingPermission", True),
        ("ResourceMissingPermissionError", True),
        ("LinkedAuthorizationFailed", False),  # the caller's own permission
    ],
)
def test_the_codes_of_aks_for_a_missing_role_are_recognized(code: str, expected: bool) -> None:
    assert is_missing_role(f'{{"code": "{code}", "details": null}}') is expected
