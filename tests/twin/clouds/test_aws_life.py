"""The life of AWS resources, as the real engine lives it through the twin's provider."""

import pytest

pytestmark = pytest.mark.twin

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
