"""Rules of Amazon EKS for the launch template of a node group. Pure.

Sources: EKS API Reference, LaunchTemplateSpecification; EKS User Guide, "Customize managed nodes with launch
templates"; terraform-aws-eks #1875 and #2955 for the format of user data. Read 2026-11.
"""

import tomllib
from collections.abc import Iterable
from email import message_from_bytes

from cloudtwin.providers.aws.eks_rules import template_of
from cloudtwin.providers.aws.machines import decoded_user_data
from cloudtwin.providers.inventory import values_at
from cloudtwin.providers.model import ResourceRequest

DEFAULT_IMAGE = "AL2023_x86_64_STANDARD"
FORBIDDEN_INPUTS = (
    "iamInstanceProfile", "hibernationOptions", "instanceInitiatedShutdownBehavior", "networkInterfaces.*.subnetId",
)  # fmt: skip
"""Inputs of a launch template that a node group refuses; it has the role and the subnets itself."""


def forbidden_inputs(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each input that the launch template of a node group must not have."""
    template = template_of(request.inputs, request.account)
    for path in FORBIDDEN_INPUTS if template else ():
        if template and values_at(path, template.inputs):
            yield f"{template.id} has {path}, which the launch template of a node group must not have: remove it"


def user_data_format(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for user data that EKS cannot merge with its own, which a custom image does not get."""
    template = template_of(request.inputs, request.account)
    user_data = template.inputs.get("userData") if template else None
    image = str(request.inputs.get("amiType") or DEFAULT_IMAGE)
    if template is None or user_data is None or template.inputs.get("imageId"):
        return
    content = decoded_user_data(user_data) or b""
    if image.startswith("AL2023") and not message_from_bytes(content).is_multipart():
        yield f"User data was not in the MIME multipart format: {template.id} is for nodes of {image}"
    if image.startswith("BOTTLEROCKET") and not _is_toml(content):
        yield f"User data was not in the TOML format: {template.id} is for nodes of {image}"


def _is_toml(content: bytes) -> bool:
    try:
        tomllib.loads(content.decode())
    except ValueError:
        return False
    return True
