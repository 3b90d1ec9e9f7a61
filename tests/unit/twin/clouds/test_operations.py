"""What a provider does with an account: ids, references, refusals, answers that were lost."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.twin.clouds.conftest import request
from twin.clouds.aws.network import GROUP, INGRESS, SUBNET, VPC
from twin.clouds.aws.s3 import BUCKET, OBJECT
from twin.clouds.errors import CloudError, HalfDoneError
from twin.pulumi.provider.convert import UNKNOWN, Unknown

BLOCK = "10.0.0.0/16"
ROLE = "aws:iam/role:Role"
TRUST = json.dumps(
    {"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": "*"}]}
)


def faults(provider, *found: dict, **rest: object) -> None:
    provider.account.folder.mkdir(parents=True, exist_ok=True)
    path = provider.account.folder / "faults.json"
    path.write_text(json.dumps({"faults": found, **rest}))


def test_a_misspelt_property_is_refused_with_the_nearest_name(provider):
    _, mistakes = provider.checked(VPC, "v", cidrBlok=BLOCK)
    assert mistakes == ["('cidrBlok',): there is no such property; did you mean cidrBlock?"]


def test_a_wrong_type_and_a_missing_property_are_refused_with_their_paths(provider):
    _, mistakes = provider.checked(
        "aws:eks/nodeGroup:NodeGroup", "n", clusterName="c", nodeRoleArn="r", subnetIds=["s"],
        scalingConfig={"minSize": "0", "maxSize": 1},
    )  # fmt: skip
    assert mistakes == [
        "('scalingConfig', 'minSize'): an integer is expected, not a string",
        "('scalingConfig', 'desiredSize'): it is required and missing",
    ]


def test_a_secret_is_never_shown_in_a_refusal(provider):
    from twin.pulumi.provider.convert import Secret

    _, mistakes = provider.checked(VPC, "v", cidrBlock=BLOCK, enableDnsSupport=Secret("hunter2"))
    assert mistakes
    assert "hunter2" not in str(mistakes)


def test_a_preview_echoes_what_is_said_and_leaves_open_what_only_the_cloud_knows(provider):
    inputs, _ = provider.checked(SUBNET, "s", vpcId=UNKNOWN, cidrBlock="10.0.1.0/24")
    foreseen = provider.preview(request(SUBNET, "s"), inputs, {})
    assert foreseen["cidrBlock"] == "10.0.1.0/24"
    assert isinstance(foreseen["arn"], Unknown)
    assert isinstance(foreseen["vpcId"], Unknown)
    assert not provider.account.path.exists(), "a preview changes nothing"


def test_the_providers_region_and_tags_are_on_every_resource(provider):
    provider.make(VPC, "v", cidrBlock=BLOCK, tags={"name": "v"})
    (vpc,) = provider.account.read().all(VPC)
    assert vpc.outputs["tagsAll"] == {"owner": "me", "name": "v"}
    assert vpc.outputs["arn"] == f"arn:aws:ec2:us-east-1:123456789012:vpc/{vpc.id}"


def test_a_name_is_invented_once_and_kept(provider):
    first, _ = provider.checked(ROLE, "nodes", assumeRolePolicy=TRUST)
    again, _ = provider.check(request(ROLE, "nodes"), first, {"assumeRolePolicy": TRUST}, b"other")
    assert again["name"] == first["name"]
    assert first["name"].startswith("nodes-")


def test_what_a_resource_names_must_be_there(provider):
    with pytest.raises(CloudError, match=r"InvalidVpcID.NotFound: .*vpc-1.*does not exist"):
        provider.make(SUBNET, "s", vpcId="vpc-1", cidrBlock="10.0.1.0/24")
    assert list(provider.account.read().all()) == []


def test_a_network_with_a_subnet_in_it_cannot_go(provider):
    vpc = provider.make(VPC, "v", cidrBlock=BLOCK)
    subnet = provider.make(SUBNET, "s", vpcId=vpc, cidrBlock="10.0.1.0/24")

    with pytest.raises(CloudError, match=f"DependencyViolation: {vpc} .* Subnet {subnet}"):
        provider.drop(VPC, vpc)
    provider.drop(SUBNET, subnet)
    provider.drop(VPC, vpc)
    assert list(provider.account.read().all()) == [], "its default security group goes with it"


def test_a_security_group_goes_with_its_rules_but_not_under_those_of_another(provider):
    vpc = provider.make(VPC, "v", cidrBlock=BLOCK)
    one, two = (provider.make(GROUP, name, vpcId=vpc) for name in ("one", "two"))
    said = {"ipProtocol": "-1", "referencedSecurityGroupId": one}
    provider.make(INGRESS, "own", securityGroupId=one, **said)
    rule = provider.make(INGRESS, "other", securityGroupId=two, **said)

    with pytest.raises(CloudError, match="DependencyViolation"):
        provider.drop(GROUP, one)
    provider.drop(INGRESS, rule)
    provider.drop(GROUP, one)
    assert not list(provider.account.read().all(INGRESS))


def test_a_bucket_with_something_in_it_goes_only_by_force(provider):
    bucket = provider.make(BUCKET, "b", bucket="mine", forceDestroy=False)
    inside = provider.make(OBJECT, "o", bucket=bucket, key="data/")

    with pytest.raises(CloudError, match="BucketNotEmpty"):
        provider.drop(BUCKET, bucket)
    provider.drop(OBJECT, inside)
    provider.drop(BUCKET, bucket)


def test_to_delete_what_is_gone_already_is_fine(provider):
    provider.drop(VPC, "vpc-1")


def test_many_at_once_are_all_kept(provider):
    vpc = provider.make(VPC, "v", cidrBlock=BLOCK)
    with ThreadPoolExecutor(16) as pool:
        made = list(
            pool.map(
                lambda n: provider.make(SUBNET, f"s{n}", vpcId=vpc, cidrBlock=f"10.0.{n}.0/24"),
                range(16),
            )
        )
    assert {each.id for each in provider.account.read().all(SUBNET)} == set(made)


def test_a_creation_whose_answer_was_lost_is_taken_up_again_and_not_doubled(provider):
    faults(provider, {"kind": "lost", "type": VPC})
    with pytest.raises(CloudError, match="RequestTimeout"):
        provider.make(VPC, "v", cidrBlock=BLOCK)
    (lost,) = provider.account.read().all(VPC)

    assert provider.make(VPC, "v", cidrBlock=BLOCK) == lost.id
    assert len(list(provider.account.read().all(VPC))) == 1
    assert provider.make(VPC, "v", cidrBlock=BLOCK) != lost.id, "a replacement is a new one"


def test_a_refusal_for_the_rate_is_tried_again_until_it_is_too_often(provider):
    faults(provider, {"kind": "throttle", "type": VPC, "times": 2})
    assert provider.make(VPC, "v", cidrBlock=BLOCK)

    provider.cancelled.set()  # so that no pause is one
    faults(provider, {"kind": "throttle", "type": VPC, "times": 0})
    with pytest.raises(CloudError, match="ThrottlingException: rate exceeded, 10 times"):
        provider.make(VPC, "w", cidrBlock=BLOCK)


def test_what_was_made_without_capacity_is_kept_for_the_engine(provider):
    faults(provider, {"kind": "capacity", "type": VPC})
    with pytest.raises(HalfDoneError, match="no Spot capacity"):
        provider.make(VPC, "v", cidrBlock=BLOCK)
    (kept,) = provider.account.read().all(VPC)
    assert kept.answered, "the engine was told of it: it will come back with an update"


def test_a_plan_of_faults_that_is_misspelt_says_what_is_known(provider):
    faults(provider, {"kind": "fire"})
    with pytest.raises(Exception, match=r"throttle.*capacity.*lost"):
        provider.make(VPC, "v", cidrBlock=BLOCK)


def test_an_unknown_type_and_an_unknown_function_name_the_nearest(provider):
    with pytest.raises(Exception, match="did you mean aws:ec2/vpc:Vpc"):
        provider.kind("aws:ec2/vpc:Vcp")
    with pytest.raises(Exception, match="did you mean aws:index/getRegion:getRegion"):
        provider.invoke("aws:index/getRegion:getRegions", {})


def test_a_region_must_be_set_and_exist(provider):
    from twin.clouds.model import Settings

    provider.settings = Settings(cloud="aws")
    assert "no region is set" in provider.checked(VPC, "v", cidrBlock=BLOCK)[1][0]
    _, mistakes = provider.checked(VPC, "v", cidrBlock=BLOCK, region="us-east-9")
    assert "is no AWS region" in mistakes[0]
