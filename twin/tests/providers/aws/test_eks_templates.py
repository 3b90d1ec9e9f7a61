"""Launch templates of EKS node groups."""

import pytest
from cloudtwin.providers.aws.eks_templates import forbidden_inputs, user_data_format
from cloudtwin.providers.aws.machines import TEMPLATE
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.model import ProviderConfig, ResourceRequest
from cloudtwin.providers.protocol.values import Object

from twin.tests.providers.aws.cases import MULTIPART, encoded, interface, resource

SCRIPT = encoded("#!/bin/sh\n")


def request_for(template: Object, **group: object) -> ResourceRequest:
    """Return a request for a node group with a launch template."""
    account = Inventory((resource(TEMPLATE, "lt-1", template),))
    inputs = {"launchTemplate": {"id": "lt-1"}, **group}
    return ResourceRequest(
        inputs=inputs, config=ProviderConfig(cloud="aws"), account=account, entropy=""
    )


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"iamInstanceProfile": {"name": "nodes"}}, "iamInstanceProfile"),
        ({"hibernationOptions": {"configured": False}}, "hibernationOptions"),
        ({"instanceInitiatedShutdownBehavior": "stop"}, "instanceInitiatedShutdownBehavior"),
        (interface(subnetId="subnet-a"), "networkInterfaces.*.subnetId"),
        (interface(securityGroups=["sg-1"]), None),
    ],
)
def test_a_launch_template_must_not_have_what_the_node_group_sets(
    template: Object, path: str | None
) -> None:
    reasons = list(forbidden_inputs(request_for(template)))

    assert [f"lt-1 has {path}," in reason for reason in reasons] == ([True] if path else [])


@pytest.mark.parametrize(
    ("image", "user_data", "form"),
    [
        (None, SCRIPT, "MIME multipart"),
        ("AL2023_x86_64_NVIDIA", SCRIPT, "MIME multipart"),
        ("AL2023_x86_64_NVIDIA", encoded("MIME-Version: 1.0\n\n#!/bin/sh\n"), "MIME multipart"),
        ("AL2023_x86_64_NVIDIA", encoded(MULTIPART), None),
        ("AL2023_x86_64_NVIDIA", None, None),
        ("BOTTLEROCKET_x86_64", encoded("reboot\n"), "TOML"),
        ("BOTTLEROCKET_x86_64", encoded("[settings.kubernetes]\n"), None),
        ("CUSTOM", SCRIPT, None),
    ],
)
def test_user_data_has_the_format_that_eks_merges_for_the_image(
    image: str | None, user_data: str | None, form: str | None
) -> None:
    reasons = list(user_data_format(request_for({"userData": user_data}, amiType=image)))

    expected = [f"User data was not in the {form} format"] if form else []
    assert [reason.partition(":")[0] for reason in reasons] == expected


def test_user_data_of_a_template_with_an_image_may_have_any_format() -> None:
    template = {"userData": SCRIPT, "imageId": "ami-0123456789abcdef0"}

    assert list(user_data_format(request_for(template))) == []
