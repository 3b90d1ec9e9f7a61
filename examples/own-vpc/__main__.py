"""A training stack on EKS in a VPC that another Pulumi stack manages."""

from typing import cast

import pulumi

from components.aws.environment import EksEnvironment, EksEnvironmentArgs
from components.aws.network import ExistingVpc
from components.config import from_mapping
from components.stack import TrainingStack, TrainingStackArgs

ZONES = ("us-east-1a", "us-east-1b")

network = pulumi.StackReference(pulumi.Config("network").require("stack"))
subnet_ids = network.require_output("privateSubnetIds")  # zone -> id of a private subnet

config = from_mapping(
    {
        "tags": {"owner": "vision", "costCenter": "4711", "environment": "dev"},
        "cluster": {"kind": "eks", "name": "vision", "zones": list(ZONES)},
        "etcd": {"persistence": "memory"},
        "job": {"name": "fashion"},
    }
)
vpc = ExistingVpc(
    vpc_id=cast("pulumi.Output[str]", network.require_output("vpcId")),
    private_subnet_ids={zone: subnet_ids[zone] for zone in ZONES},
)

environment = EksEnvironment(
    "eks", EksEnvironmentArgs(config=config, stack=pulumi.get_stack(), vpc=vpc)
).environment
training = TrainingStack(
    "training",
    TrainingStackArgs(config=config, cluster=environment.cluster, volume=environment.volume),
)

for name, value in {**environment.outputs, **training.outputs}.items():
    pulumi.export(name, value)
