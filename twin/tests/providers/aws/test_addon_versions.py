"""Versions of EKS add-ons that AWS resolves, and versions that it refuses."""

import re

import pytest
from cloudfacts.kubernetes import EKS_VERSIONS
from cloudtwin.providers.aws.addon_versions import AVAILABLE, available_versions
from cloudtwin.providers.aws.functions import FUNCTIONS
from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.inventory import Inventory
from cloudtwin.providers.model import ProviderConfig
from cloudtwin.providers.protocol.values import Object

FUNCTION = FUNCTIONS["aws:eks/getAddonVersion:getAddonVersion"]


def addon_version(**arguments: object) -> Object:
    """Return the result of the function in us-east-1."""
    return FUNCTION(arguments, ProviderConfig(cloud="aws", region="us-east-1"), Inventory(()))


@pytest.mark.parametrize("kubernetes", EKS_VERSIONS)
@pytest.mark.parametrize("addon", AVAILABLE)
def test_every_add_on_has_a_default_and_a_most_recent_version(addon: str, kubernetes: str) -> None:
    default = addon_version(addonName=addon, kubernetesVersion=kubernetes)["version"]
    newest = addon_version(addonName=addon, kubernetesVersion=kubernetes, mostRecent=True)[
        "version"
    ]

    assert {default, newest} == set(available_versions(addon, kubernetes))
    assert default != newest, "a program that confuses the two must fail here"
    assert re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", str(default))


def test_kube_proxy_follows_the_version_of_kubernetes() -> None:
    for kubernetes in EKS_VERSIONS:
        version = addon_version(addonName="kube-proxy", kubernetesVersion=kubernetes)["version"]
        assert str(version).startswith(f"v{kubernetes}.")
        assert version != f"v{kubernetes}.0-eksbuild.1", "AWS has published no such build"


@pytest.mark.parametrize(
    ("addon", "kubernetes"), [("vpc-cmi", "1.36"), ("kube-proxy", "1.28"), ("coredns", "")]
)
def test_an_unknown_add_on_or_version_is_refused_as_aws_does(addon: str, kubernetes: str) -> None:
    with pytest.raises(CloudError, match=rf"\({addon}, {kubernetes}\): empty result"):
        addon_version(addonName=addon, kubernetesVersion=kubernetes)


def test_the_arguments_and_the_region_are_in_the_result() -> None:
    assert addon_version(addonName="vpc-cni", kubernetesVersion="1.36") == {
        "addonName": "vpc-cni",
        "kubernetesVersion": "1.36",
        "id": "vpc-cni",
        "region": "us-east-1",
        "version": available_versions("vpc-cni", "1.36")[0],
    }
