"""Retries of the creation of a cluster that AKS refuses until its role assignments have propagated."""

import asyncio

import pulumi
import pytest

from components.azure import propagation
from components.azure.propagation import MAX_RETRIES, is_missing_role, retry

# An AKS error, as pulumi-azure-native and the engine report it.
MISSING_ROLE_ERROR = (
    "autorest/azure: Service returned an error. Status=400 Code="
    '"CustomKubeletIdentityMissingPermissionError" Message="The cluster using user-assigned managed '
    "identity must be granted 'Managed Identity Operator' role to assign kubelet identity.\""
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
