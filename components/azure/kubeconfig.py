"""Conversion of the kubeconfig of AKS for use without interaction.

Without local accounts, the kubeconfig contains no credential: `kubelogin` fetches a token. AKS configures an
interactive login (`--login devicecode`), for which `pulumi up` would wait forever. This module replaces it with the
login of the `az` command, or of `azure/login` in a pipeline.
"""

import base64
from typing import Any

import yaml

LOGIN = "azurecli"
_LOGIN_FLAGS = ("--login", "-l")


def without_interaction(encoded: str) -> str:
    """Return a kubeconfig that needs no interactive login.

    Args:
        encoded: kubeconfig in base64, as returned by `listClusterUserCredential`.

    Returns:
        YAML with sorted keys, so that the same cluster gives the same text.
    """
    content: dict[str, Any] = yaml.safe_load(base64.b64decode(encoded))
    for user in content.get("users") or []:
        arguments = user.get("user", {}).get("exec", {}).get("args")
        if arguments:
            user["user"]["exec"]["args"] = _with_login(arguments)
    return yaml.safe_dump(content, sort_keys=True)


def _with_login(arguments: list[str]) -> list[str]:
    """Return the arguments with the login method replaced."""
    result = list(arguments)
    for index, argument in enumerate(arguments[:-1]):
        if argument in _LOGIN_FLAGS:
            result[index + 1] = LOGIN
    return result
