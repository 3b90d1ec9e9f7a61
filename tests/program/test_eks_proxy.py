"""EKS nodes behind an HTTP proxy: the real engine, and AWS's rules as checked by the twin."""

from base64 import b64decode

import pytest

from tests.components.certificates import CA
from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

PROXY = {"http": "http://proxy.example.org:3128", "trustedCa": CA}
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from components.aws.environment import EksEnvironment, EksEnvironmentArgs
from components.config import from_mapping

cluster = {{
    "kind": "eks",
    "autoscaling": {{"enabled": False}},
    "gpuPool": {{"nodes": 3}},
    "network": {{"proxy": {PROXY!r}}},
}}
tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
config = from_mapping({{"tags": tags, "cluster": cluster}})
EksEnvironment("eks", EksEnvironmentArgs(config=config, stack="eks-test"))
"""


def test_all_nodes_of_a_stack_are_configured_with_its_proxy(project: CloudProject) -> None:
    project.program(PROGRAM)

    project.up()

    project.pulumi("preview", "--expect-no-changes")
    templates = [
        resource["inputs"]["userData"]
        for resource in project.resources().values()
        if resource["type"] == "aws:ec2/launchTemplate:LaunchTemplate"
    ]
    assert len(templates) == 2, "the system nodes and the GPU nodes"
    assert all(b"text/cloud-boothook" in b64decode(text) for text in templates)
    project.destroy()
    assert project.account() == []
