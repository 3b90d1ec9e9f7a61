"""The NodeConfig parts of user data, by which `nodeadm` configures the kubelet of a node. Pure.

Source: amazon-eks-ami, nodeadm/doc/examples.md and nodeadm/internal/api/merge.go, read 2026-11-29.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterator
from email import message_from_string
from typing import TYPE_CHECKING

import yaml

from cloudtwin.providers.conditions import section

if TYPE_CHECKING:
    from cloudtwin.nodes.model import Taint

CONTENT_TYPE = "application/node.eks.aws"
TAINTS_FLAG = "--register-with-taints="


def registration_taints(user_data: object) -> tuple["Taint", ...]:
    """Return the taints with which the kubelet registers its node: the last flag replaces earlier ones.

    Args:
        user_data: MIME multipart document in base64; anything else has no taints.
    """
    values = [
        flag.removeprefix(TAINTS_FLAG)
        for config in _node_configs(user_data)
        for flag in _kubelet_flags(config)
        if flag.startswith(TAINTS_FLAG)
    ]
    return tuple(_taint(text) for text in values[-1].split(",") if text) if values else ()


def _node_configs(user_data: object) -> Iterator[object]:
    """Yield the NodeConfig objects of user data, in their order."""
    if not isinstance(user_data, str):
        return
    try:
        message = message_from_string(b64decode(user_data).decode())
        for part in message.walk():
            if part.get_content_type() == CONTENT_TYPE:
                yield yaml.safe_load(str(part.get_payload()))
    except (binascii.Error, UnicodeDecodeError, yaml.YAMLError):
        return  # `nodeadm` does not configure such a node at all


def _kubelet_flags(config: object) -> list[str]:
    """Return the flags of the kubelet in a NodeConfig."""
    flags = section(config, "spec", "kubelet").get("flags") if isinstance(config, dict) else ()
    return [str(flag) for flag in flags or ()]


def _taint(text: str) -> "Taint":
    """Return the taint of a text such as `key=value:NoSchedule` or `key:NoExecute`."""
    from cloudtwin.nodes.model import Taint

    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return Taint.parse({"key": key, "value": value, "effect": effect})
