"""The resource types whose permissions are checked, compared with the resources that a stack declares."""

from typing import Any

import pytest
from cloudfacts.aws_actions import ACTIONS

from components.config import EksConfig, as_kind
from everstep.cli.account.aws_resources import undeclared_types
from tests.components.aws.eks_stack import declare_eks, eks_config
from tests.components.config.bad_stacks import FILE_SYSTEM

ZONES = {"us-east-1a": "subnet-0aaaaaaa", "us-east-1b": "subnet-0bbbbbbb"}
OWN_NETWORK = {"vpcId": "vpc-0123456789abcdef0", "privateSubnetIds": ZONES}
EFA = {"instanceTypes": ["p4d.24xlarge"], "efa": True, "zone": "us-east-1b"}
OWN_FILE_SYSTEM = {"kind": "fsx", "existing": FILE_SYSTEM}
KEY = "arn:aws:kms:us-east-1:123456789012:key/0a1b2c3d-0000-4000-8000-000000000000"
BUDGET = {"budget": {"monthlyUsd": 500, "email": "owner@example.org"}}


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"cluster": {"network": OWN_NETWORK}},
        {"cluster": {"gpuPool": {"zone": "us-east-1b"}}, "storage": OWN_FILE_SYSTEM},
        {"cluster": {"gpuPool": EFA}, "storage": OWN_FILE_SYSTEM},
        {"storage": {"kind": "fsx", "bucket": "my-data"}},
        {"registry": {"kind": "ecr", "name": "vision"}},
        {"cluster": {"administrators": []}},
        {"cluster": {"monitoring": {"managedPrometheus": True}}, "cost": BUDGET},
        {"cluster": {"kmsKeyArn": KEY}},
    ],
    ids=lambda sections: ", ".join(sections) or "defaults",
)
def test_exactly_the_types_that_a_stack_does_not_declare_are_left_out(
    sections: dict[str, Any],
) -> None:
    config = eks_config(**sections)
    declared = {resource.type for resource in declare_eks(**sections).resources.values()}

    undeclared = undeclared_types(config, as_kind(config.cluster, EksConfig))

    assert undeclared == ACTIONS.keys() - declared
