"""The life of AWS resources, as the real engine lives it through the twin's provider."""

import os
import signal
import time

import pytest

from tests.twin.clouds.programs import EKS

pytestmark = [pytest.mark.twin, pytest.mark.timeout(300)]

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


def test_a_network_is_previewed_made_left_alone_changed_replaced_refreshed_and_removed(project):
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
    assert arn != project.pulumi("stack", "output", "subnet"), "another block is another subnet"

    project.destroy()
    assert project.account() == []


def test_a_cluster_with_nodes_comes_up_whole_stays_as_it_is_and_leaves_nothing(project):
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
    ("forgotten", "slow", "said"),
    [
        ("network, *node_rights, *ways", "aws:eks/addon*", "cni plugin not initialized"),
        (", *ways", "aws:ec2/route*", "no route out"),
    ],
)
def test_a_forgotten_dependency_is_met_by_the_clouds_own_refusal(project, forgotten, slow, said):
    """Without it the order is chance; the other resource is slow, so that chance decides against it."""
    project.faults(latency={slow: 8.0})
    text = EKS.replace(f"[{forgotten}]", "[*node_rights, *ways]").replace(forgotten + "]", "]")
    assert text != EKS
    project.program(text)

    assert said in project.up(fails=True)
    assert "group" not in project.resources(), "what was refused is not there"


def test_bad_input_is_refused_at_preview_with_its_path_and_the_source_of_the_rule(project):
    project.program(EKS.replace("g5.xlarge", "p3.2xlarge").replace('"1.36"', '"1.28"'))

    shown = project.pulumi("preview", fails=True)
    assert "property version value" in shown
    assert "'1.28' is not offered" in shown
    assert "EKS User Guide" in shown


def test_a_lost_answer_leaves_one_resource_after_the_second_update(project):
    project.faults({"kind": "lost", "type": "aws:ec2/vpc:Vpc"})
    project.program(NETWORK)
    assert "RequestTimeout" in project.up(fails=True)

    project.up()
    assert len([each for each in project.account() if each["token"].endswith(":Vpc")]) == 1
    project.destroy()
    assert project.account() == []


def test_nodes_without_capacity_are_kept_and_come_with_the_next_update(project):
    project.faults({"kind": "capacity", "type": "aws:eks/nodeGroup*"})
    project.program(EKS)
    assert "There is no Spot capacity available" in project.up(fails=True)
    assert project.resources()["group"]["initErrors"]

    project.up()
    assert "initErrors" not in project.resources()["group"]


def test_an_interrupt_loses_nothing(project):
    project.faults(latency={"aws:ec2/vpc:Vpc": 60})
    project.program(NETWORK)
    running = project.start("up", "--yes", "--skip-preview")
    deadline = time.monotonic() + 60
    while not project.account():
        assert time.monotonic() < deadline, "nothing was ever made"
        time.sleep(0.1)

    os.kill(running.pid, signal.SIGINT)
    shown, _ = running.communicate(timeout=60)
    assert "Traceback" not in shown, shown
    assert "vpc" in project.resources(), "what was made is in the state"
    project.faults()
    project.up()
    assert len([each for each in project.account() if each["token"].endswith(":Vpc")]) == 1


def test_a_network_that_others_made_is_imported(project):
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
    assert "vpc" not in project.preview(), "the program says what stands there"
