"""The life cycle of AWS resources with the real engine and the twin's provider."""

import os
import signal

import pytest

from twin.tests.providers.conftest import CloudProject
from twin.tests.providers.programs import EKS
from twin.tests.waiting import wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

NETWORK = """
import pulumi_aws as aws
here = aws.Provider("here", region="us-east-1", default_tags={"tags": {"owner": "me"}})
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", enable_dns_hostnames=True, opts=Opts(provider=here))
subnet = aws.ec2.Subnet(
    "subnet", vpc_id=vpc.id, cidr_block="10.0.1.0/24", availability_zone="us-east-1a",
    tags={"name": "a"}, opts=Opts(provider=here),
)
pulumi.export("subnet", subnet.arn)
"""


def test_a_network_is_previewed_created_changed_replaced_refreshed_and_deleted(
    project: CloudProject,
) -> None:
    project.program(NETWORK)
    everything = {"probe-test", "here", "vpc", "subnet"}
    assert project.preview() == dict.fromkeys(everything, "create")
    assert not project.account(), "a preview changes nothing"

    project.up()
    arn = project.pulumi("stack", "output", "subnet")
    assert arn.startswith("arn:aws:ec2:us-east-1:123456789012:subnet/subnet-0"), arn
    project.pulumi("preview", "--expect-no-changes")
    project.pulumi("refresh", "--yes", "--expect-no-changes")
    assert project.resources()["subnet"]["outputs"]["tagsAll"] == {"owner": "me", "name": "a"}

    project.program(NETWORK.replace('"name": "a"', '"name": "b"'))
    assert project.preview()["subnet"] == "update"
    project.up()
    assert arn == project.pulumi("stack", "output", "subnet"), "a tag changes in place"

    project.program(NETWORK.replace("10.0.1.0", "10.0.2.0"))
    assert "replace" in project.preview()["subnet"]
    project.up()
    assert arn != project.pulumi("stack", "output", "subnet"), "another block replaces the subnet"

    project.destroy()
    assert project.account() == []


def test_a_cluster_with_nodes_is_created_has_no_diff_and_is_deleted_completely(
    project: CloudProject,
) -> None:
    project.program(EKS)
    project.preview()
    project.up()
    project.pulumi("preview", "--expect-no-changes")
    project.pulumi("refresh", "--yes", "--expect-no-changes")

    cluster = project.resources()["cluster"]["outputs"]
    assert cluster["vpcConfig"]["clusterSecurityGroupId"].startswith("sg-0")
    assert cluster["identities"][0]["oidcs"][0]["issuer"].startswith("https://oidc.eks.us-east-1.")

    project.destroy()
    assert project.account() == []


@pytest.mark.parametrize(
    ("omitted", "slow_type", "refusal"),
    [
        ("network, *node_policies, *egress_routes", "aws:eks/addon*", "cni plugin not initialized"),
        (", *egress_routes", "aws:ec2/route*", "no egress route"),
    ],
)
def test_a_missing_dependency_causes_the_error_of_the_cloud(
    project: CloudProject, omitted: str, slow_type: str, refusal: str
) -> None:
    # Without the dependency the order is random; the other resource is slow, so it is too late.
    project.faults(latency={slow_type: 8.0})
    text = EKS.replace(f"[{omitted}]", "[*node_policies, *egress_routes]").replace(
        omitted + "]", "]"
    )
    assert text != EKS
    project.program(text)

    assert refusal in project.up(fails=True)
    assert "group" not in project.resources(), "the refused resource is not in the state"


def test_invalid_input_is_refused_at_preview_with_its_path_and_the_source_of_the_rule(
    project: CloudProject,
) -> None:
    project.program(EKS.replace("g5.xlarge", "p3.2xlarge").replace('"1.36"', '"1.28"'))

    output = project.pulumi("preview", fails=True)
    assert "property version value" in output
    assert "'1.28' is not one of" in output
    assert "EKS User Guide" in output


def test_a_lost_response_leaves_a_resource_that_is_not_in_the_state(
    project: CloudProject,
) -> None:
    project.faults({"kind": "lost", "type": "aws:ec2/vpc:Vpc"})
    project.program(NETWORK)
    assert "RequestTimeout" in project.up(fails=True)

    project.up()
    vpcs = {resource["id"] for resource in project.account() if resource["token"].endswith(":Vpc")}
    assert len(vpcs) == 2, "a VPC has no unique name, so the service creates a second one"
    project.destroy()
    remaining = {
        resource["id"] for resource in project.account() if resource["token"].endswith(":Vpc")
    }
    assert len(remaining & vpcs) == 1, "the account's owner has to find and delete the first one"


def test_a_node_group_without_capacity_is_kept_and_completed_by_the_next_update(
    project: CloudProject,
) -> None:
    project.faults({"kind": "capacity", "type": "aws:eks/nodeGroup*"})
    project.program(EKS)
    assert "There is no Spot capacity available" in project.up(fails=True)
    assert project.resources()["group"]["initErrors"]

    project.up()
    assert "initErrors" not in project.resources()["group"]


def test_an_interrupt_loses_nothing(project: CloudProject) -> None:
    project.faults(latency={"aws:ec2/vpc:Vpc": 60})
    project.program(NETWORK)
    process = project.start("up", "--yes", "--skip-preview")
    wait_until(project.account, "a resource is created", 200)

    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=200)
    assert "Traceback" not in output, output
    assert "vpc" in project.resources(), "created resources are in the state"
    project.faults()
    project.up()
    assert (
        len([resource for resource in project.account() if resource["token"].endswith(":Vpc")]) == 1
    )


def test_an_existing_vpc_can_be_imported(project: CloudProject) -> None:
    project.program(NETWORK)
    project.up()
    identity = project.resources()["vpc"]["id"]
    for name in ("subnet", "vpc"):
        project.pulumi("state", "delete", "--yes", project.resources()[name]["urn"])

    provider = project.resources()["here"]["urn"]
    project.pulumi(
        "import", "aws:ec2/vpc:Vpc", "vpc", identity, "--yes", "--generate-code=false",
        "--protect=false", f"--provider=here={provider}",
    )  # fmt: skip
    assert project.resources()["vpc"]["inputs"]["cidrBlock"] == "10.0.0.0/16"
    assert "vpc" not in project.preview(), "the program declares the imported VPC"
