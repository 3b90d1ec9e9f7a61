"""A stack on AWS in an account with rules: the real engine, and a cloud that checks them."""

import pytest

from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import json
import pulumi_aws as aws
from components.aws.environment import EksEnvironment, EksEnvironmentArgs
from components.config import from_mapping

cluster = {{
    "kind": "eks",
    "autoscaling": {{"enabled": False}},
    "gpuPool": {{"nodes": 3}},
    "iam": {{"permissionsBoundary": "{BOUNDARY}", "path": "/everstep/"}},
}}
tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
config = from_mapping({{"tags": tags, "cluster": cluster}})
"""
TEAM = """
provider = aws.Provider("team", region="us-east-1")
statement = {"Effect": "Allow", "Action": "*", "Resource": "*"}
boundary = aws.iam.Policy(
    "boundary", name="boundary", policy=json.dumps({"Statement": [statement]}), opts=Opts(provider=provider)
)
"""
STACK = 'EksEnvironment("eks", EksEnvironmentArgs(config=config, stack="eks-test"))\n'
ROLE = "aws:iam/role:Role"


def test_every_role_is_created_with_the_boundary_and_path_of_the_team(
    project: CloudProject,
) -> None:
    project.program(PROGRAM + TEAM)
    project.up()

    project.program(PROGRAM + TEAM + STACK)
    project.preview()
    project.up()

    roles = [resource for resource in project.resources().values() if resource["type"] == ROLE]
    assert len(roles) >= 4
    for role in roles:
        assert role["outputs"]["arn"].startswith("arn:aws:iam::123456789012:role/everstep/")
        assert role["inputs"]["permissionsBoundary"] == BOUNDARY
    assert project.pulumi("preview", "--expect-no-changes"), "the path and boundary are no change"
    project.destroy()


def test_a_boundary_that_the_account_lacks_is_refused(project: CloudProject) -> None:
    project.program(PROGRAM + STACK)

    output = project.up(fails=True)

    assert "names the Policy" in output
    assert "does not exist in the account" in output
