"""A stack in an AWS account with a team's rules and proxy: the real engine, and the rules as checked by the twin."""

import json
from base64 import b64decode

import pytest

from tests.components.certificates import CA
from tests.program.conftest import ROOT
from twin.tests.providers.conftest import CloudProject, plugins, project, pulumi_program

__all__ = ["plugins", "project", "pulumi_program"]

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
RELEASE = "1.36.0-20260915"
PROXY = {"http": "http://proxy.example.org:3128", "trustedCa": CA}
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import json
import pulumi
import pulumi_aws as aws
from components.aws.environment import EksEnvironment, EksEnvironmentArgs
from components.config import from_mapping

cluster = {{
    "kind": "eks",
    "autoscaling": {{"enabled": False}},
    "gpuPool": {{"nodes": 3}},
    "kmsKeyArn": "{KEY}",
    "nodeRelease": "{RELEASE}",
    "iam": {{"permissionsBoundary": "{BOUNDARY}", "path": "/everstep/"}},
    "network": {{"proxy": {PROXY!r}}},
}}
tags = {{"owner": "vision", "costCenter": "4711", "environment": "dev"}}
storage = {{"kind": "fsx", "deploymentType": "PERSISTENT_2"}}
registry = {{"kind": "ecr", "name": "vision"}}
config = from_mapping({{"tags": tags, "cluster": cluster, "storage": storage, "registry": registry}})
"""
TEAM = """
provider = aws.Provider("team", region="us-east-1")
statement = {"Effect": "Allow", "Action": "*", "Resource": "*"}
boundary = aws.iam.Policy(
    "boundary", name="boundary", policy=json.dumps({"Statement": [statement]}), opts=Opts(provider=provider)
)
"""
STACK = 'EksEnvironment("eks", EksEnvironmentArgs(config=config, stack="eks-test"), {options})\n'
ROLE, NODES = "aws:iam/role:Role", "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
ENCRYPTED = (
    "aws:eks/cluster:Cluster",
    TEMPLATE,
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:ecr/repository:Repository",
    "aws:cloudwatch/logGroup:LogGroup",
)


def test_roles_nodes_and_data_follow_the_rules_of_the_team(project: CloudProject) -> None:
    project.program(PROGRAM + STACK.format(options=None))
    refusal = project.up(fails=True)
    assert "names the Policy" in refusal
    assert "does not exist in the account" in refusal

    project.program(PROGRAM + TEAM)
    project.up()  # also deletes the resources that were created before the refusal
    project.program(PROGRAM + TEAM + STACK.format(options="Opts(depends_on=[boundary])"))
    project.up()

    roles = [resource for resource in project.resources().values() if resource["type"] == ROLE]
    assert len(roles) >= 4
    for role in roles:
        assert role["outputs"]["arn"].startswith("arn:aws:iam::123456789012:role/everstep/")
        assert role["inputs"]["permissionsBoundary"] == BOUNDARY
    assert all(resource["type"] != "aws:kms/key:Key" for resource in project.resources().values())
    for kind in ENCRYPTED:
        resources = [item for item in project.resources().values() if item["type"] == kind]
        assert resources, kind
        assert all(KEY in json.dumps(item["inputs"]) for item in resources), kind
    groups = [item for item in project.resources().values() if item["type"] == NODES]
    assert groups
    for group in groups:
        assert group["outputs"]["releaseVersion"] == RELEASE
    templates = [item for item in project.resources().values() if item["type"] == TEMPLATE]
    assert len(templates) == 2, "the system nodes and the GPU nodes"
    for template in templates:
        assert b"text/cloud-boothook" in b64decode(template["inputs"]["userData"])
    project.pulumi("preview", "--expect-no-changes")
    project.destroy()
    assert project.account() == []
