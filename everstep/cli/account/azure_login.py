"""The identity that `everstep doctor` uses in Azure, which is the identity that Pulumi's provider would use.

The provider reads the ARM_* variables; without them it uses the login of `az`.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TRANSPORT: Mapping[str, Any] = {"connection_timeout": 5, "read_timeout": 20, "retry_total": 2}
CLI_SECONDS = 20
EXCHANGE_AUDIENCE = "api://AzureADTokenExchange"
REQUEST_URL, REQUEST_TOKEN = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"


def credential() -> Any:  # noqa: ANN401  a credential of the SDK
    """Return the credential that Pulumi's provider would use; this requests no token."""
    from azure import identity

    tenant, client = (os.environ.get(f"ARM_{key}_ID", "") for key in ("TENANT", "CLIENT"))
    secret = os.environ.get("ARM_CLIENT_SECRET")
    if _is_set("ARM_USE_OIDC") and tenant and client:
        return identity.ClientAssertionCredential(tenant, client, _assertion, **TRANSPORT)
    if secret and tenant and client:
        return identity.ClientSecretCredential(tenant, client, secret, **TRANSPORT)
    if _is_set("ARM_USE_MSI"):
        return identity.ManagedIdentityCredential(client_id=client or None)
    return identity.AzureCliCredential(process_timeout=CLI_SECONDS)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in {"1", "true"}


def _assertion() -> str:
    """Return the OIDC token of a CI pipeline, which Entra exchanges for an Azure token.

    Raises:
        CredentialUnavailableError: there is no token, or it cannot be read.
    """
    from azure.identity import CredentialUnavailableError

    try:
        return _pipeline_token()
    # The exceptions of the package requests are OSErrors.
    except (OSError, LookupError, TypeError, ValueError) as error:
        problem = f"ARM_USE_OIDC is set, but there is no token of a CI pipeline: {error}"
        raise CredentialUnavailableError(problem) from None


def _pipeline_token() -> str:
    if token := os.environ.get("ARM_OIDC_TOKEN"):
        return token
    if path := os.environ.get("ARM_OIDC_TOKEN_FILE_PATH"):
        return Path(path).read_text().strip()
    url, token = os.environ.get(REQUEST_URL), os.environ.get(REQUEST_TOKEN)
    if not url or not token:
        raise ValueError(
            "neither ARM_OIDC_TOKEN nor ARM_OIDC_TOKEN_FILE_PATH is set, "
            f"nor both {REQUEST_URL} and {REQUEST_TOKEN}"
        )
    import requests

    response = requests.get(
        url,
        params={"audience": EXCHANGE_AUDIENCE},
        headers={"Authorization": f"Bearer {token}"},
        timeout=CLI_SECONDS,
    )
    response.raise_for_status()
    return str(response.json()["value"])


def subscription_of_cli() -> str:
    """Return the subscription that `az` has selected; empty if there is none."""
    if not shutil.which("az"):
        return ""
    command = ["az", "account", "show", "--query", "id", "--output", "tsv"]
    try:
        response = subprocess.run(
            command, capture_output=True, text=True, timeout=CLI_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    return response.stdout.strip() if response.returncode == 0 else ""
