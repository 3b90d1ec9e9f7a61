"""The kubeconfig that AKS hands out, made fit for a program.

Without local accounts it holds no credential at all: `kubelogin` fetches a token each time. AKS
writes it for a person at a keyboard (`--login devicecode`), for whom `pulumi up` would wait for
ever; it is rewritten to take the login that `az` or a pipeline's `azure/login` has made.
"""

import base64
from typing import Any

import yaml

LOGIN = "azurecli"
_SWITCHES = ("--login", "-l")


def fit(answer: str) -> str:
    """Give the kubeconfig's text out of AKS' answer.

    Args:
        answer: the kubeconfig in base64, as `listClusterUserCredential` gives it.

    Returns:
        YAML with its keys in order: the same cluster gives the same text.
    """
    said: dict[str, Any] = yaml.safe_load(base64.b64decode(answer))
    for user in said.get("users") or []:
        arguments = user.get("user", {}).get("exec", {}).get("args")
        if arguments:
            user["user"]["exec"]["args"] = _with_login(arguments)
    return yaml.safe_dump(said, sort_keys=True)


def _with_login(arguments: list[str]) -> list[str]:
    """Exchange the way of logging in."""
    changed = list(arguments)
    for index, argument in enumerate(arguments[:-1]):
        if argument in _SWITCHES:
            changed[index + 1] = LOGIN
    return changed
