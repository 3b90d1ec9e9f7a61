"""Operations on an account: ids, references, refusals, lost responses."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from cloudtwin.providers import azure
from cloudtwin.providers.aws import CLOUD
from cloudtwin.providers.aws.common import OBJECT
from cloudtwin.providers.aws.eks_rules import CLUSTER
from cloudtwin.providers.aws.machines import TEMPLATE
from cloudtwin.providers.aws.network import ASSOCIATION, GROUP, INGRESS, SUBNET, TABLE, VPC
from cloudtwin.providers.aws.s3 import BUCKET
from cloudtwin.providers.azure.common import GROUP as RESOURCE_GROUP
from cloudtwin.providers.azure.identity import CREDENTIAL, IDENTITY
from cloudtwin.providers.errors import CloudError, IncompleteError
from cloudtwin.providers.inventory import Resource
from cloudtwin.providers.machines import Offline
from cloudtwin.providers.model import ProviderConfig
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import (
    UNKNOWN,
    Object,
    Secret,
    Unknown,
    plain,
    secret_texts,
)
from cloudtwin.providers.schema.model import Field, ResourceSchema
from cloudtwin.providers.timeouts import Timeouts

from twin.tests.providers.aws.cases import TRUST
from twin.tests.providers.offline import CONFIG, Provider, request

BLOCK = "10.0.0.0/16"
ROLE = "aws:iam/role:Role"


def set_faults(provider: Provider, *plan: Object, **fields: object) -> None:
    provider.account.folder.mkdir(parents=True, exist_ok=True)
    path = provider.account.folder / "faults.json"
    path.write_text(json.dumps({"faults": plan, **fields}))


def test_a_misspelled_property_is_refused_with_the_nearest_name(provider: Provider) -> None:
    _, failures = provider.check_inputs(VPC, "v", cidrBlok=BLOCK)
    assert failures == ["('cidrBlok',): there is no such property; did you mean cidrBlock?"]


def test_a_wrong_type_and_a_missing_property_are_refused_with_their_paths(
    provider: Provider,
) -> None:
    _, failures = provider.check_inputs(
        "aws:eks/nodeGroup:NodeGroup", "n", clusterName="c", nodeRoleArn="r", subnetIds=["s"],
        scalingConfig={"minSize": "0", "maxSize": 1},
    )  # fmt: skip
    assert failures == [
        "('scalingConfig', 'minSize'): an integer is expected, not a string",
        "('scalingConfig', 'desiredSize'): it is required and missing",
    ]


def test_a_secret_is_never_shown_in_a_refusal(provider: Provider) -> None:
    _, failures = provider.check_inputs(
        VPC, "v", cidrBlock=BLOCK, enableDnsSupport=Secret("hunter2")
    )
    assert failures
    assert "hunter2" not in str(failures)


def test_a_secret_that_is_not_an_allowed_value_is_never_shown(provider: Provider) -> None:
    schema = ResourceSchema(
        token=VPC,
        inputs={"tier": Field(shape={"enum": ["a", "b"]})},
        outputs={},
        objects={},
    )
    provider._schemas[VPC] = schema

    _, failures = provider.check_inputs(VPC, "v", tier=Secret("hunter2"))

    assert "('tier',): [secret] is not one of a, b" in failures


def test_a_preview_echoes_inputs_and_leaves_outputs_of_the_cloud_unknown(
    provider: Provider,
) -> None:
    inputs, _ = provider.check_inputs(SUBNET, "s", vpcId=UNKNOWN, cidrBlock="10.0.1.0/24")
    outputs = provider.preview(request(SUBNET, "s"), inputs, {})
    assert outputs["cidrBlock"] == "10.0.1.0/24"
    assert isinstance(outputs["arn"], Unknown)
    assert isinstance(outputs["vpcId"], Unknown)
    assert not provider.account.path.exists(), "a preview changes nothing"


def test_a_preview_of_an_update_keeps_the_fields_that_the_service_added_to_an_object(
    provider: Provider,
) -> None:
    inputs = {"version": "1.37", "roleArn": "r", "vpcConfig": {"subnetIds": ["s", "t"]}}
    service_fields = {"clusterSecurityGroupId": "sg-1", "vpcId": "vpc-1", "subnetIds": ["old"]}
    old = {"version": "1.36", "endpoint": "https://c", "vpcConfig": service_fields}

    outputs = provider.preview(request(CLUSTER, "c"), inputs, old)

    assert outputs["version"] == "1.37"
    assert outputs["endpoint"] == "https://c"
    assert outputs["vpcConfig"] == {**service_fields, "subnetIds": ["s", "t"]}, (
        "rules that refer to the group of the cluster would be replaced"
    )


def test_a_preview_leaves_the_version_of_a_launch_template_unknown_if_its_content_changes(
    provider: Provider,
) -> None:
    before = {"name": "nodes", "instanceType": "g5.xlarge", "updateDefaultVersion": True}
    provider.create_resource(TEMPLATE, "t", **before)
    (template,) = provider.account.read().all(TEMPLATE)

    def versions(**changes: object) -> set[object]:
        inputs = {**template.inputs, **changes}
        outputs = provider.preview(request(TEMPLATE, "t"), inputs, dict(template.outputs))
        return {outputs["latestVersion"], outputs["defaultVersion"]}

    assert versions(instanceType="g6.xlarge") == {UNKNOWN}, "node groups follow the version"
    assert versions(tags={"owner": "another team"}) == {1}


def test_the_providers_region_and_tags_are_on_every_resource(provider: Provider) -> None:
    provider.create_resource(VPC, "v", cidrBlock=BLOCK, tags={"name": "v"})
    (vpc,) = provider.account.read().all(VPC)
    assert vpc.outputs["tagsAll"] == {"owner": "me", "name": "v"}
    assert vpc.outputs["arn"] == f"arn:aws:ec2:us-east-1:123456789012:vpc/{vpc.id}"


@pytest.mark.parametrize("tags", [Secret({"a": "b"}), {"a": Secret("b")}])
def test_secret_tags_stay_secret_next_to_the_providers_tags(
    provider: Provider, tags: Object | Secret
) -> None:
    inputs, failures = provider.check_inputs(VPC, "v", cidrBlock=BLOCK, tags=tags)

    assert failures == []
    assert plain(inputs["tags"]) == {"owner": "me", "a": "b"}
    assert secret_texts(inputs)[-1] == "b"


def test_a_name_is_generated_once_and_kept(provider: Provider) -> None:
    first, _ = provider.check_inputs(ROLE, "nodes", assumeRolePolicy=TRUST)
    second, _ = provider.check(request(ROLE, "nodes"), first, {"assumeRolePolicy": TRUST}, b"other")
    assert second["name"] == first["name"]
    assert first["name"].startswith("nodes-")


def test_a_referenced_resource_must_exist(provider: Provider) -> None:
    with pytest.raises(CloudError, match=r"InvalidVpcID.NotFound: .*vpc-1.*does not exist"):
        provider.create_resource(SUBNET, "s", vpcId="vpc-1", cidrBlock="10.0.1.0/24")
    assert list(provider.account.read().all()) == []


def test_a_network_with_a_subnet_cannot_be_deleted(provider: Provider) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    subnet = provider.create_resource(SUBNET, "s", vpcId=vpc, cidrBlock="10.0.1.0/24")

    with pytest.raises(CloudError, match=f"DependencyViolation: {vpc} .* Subnet {subnet}"):
        provider.delete_resource(VPC, vpc)
    provider.delete_resource(SUBNET, subnet)
    provider.delete_resource(VPC, vpc)
    assert list(provider.account.read().all()) == [], (
        "its default security group is deleted with it"
    )


def test_a_security_group_is_deleted_with_its_rules_unless_another_group_refers_to_it(
    provider: Provider,
) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    group, other_group = (
        provider.create_resource(GROUP, name, vpcId=vpc) for name in ("one", "two")
    )
    traffic = {"ipProtocol": "-1", "referencedSecurityGroupId": group}
    provider.create_resource(INGRESS, "own", securityGroupId=group, **traffic)
    rule = provider.create_resource(INGRESS, "other", securityGroupId=other_group, **traffic)

    with pytest.raises(CloudError, match="DependencyViolation"):
        provider.delete_resource(GROUP, group)
    provider.delete_resource(INGRESS, rule)
    provider.delete_resource(GROUP, group)
    assert not list(provider.account.read().all(INGRESS))


def test_an_update_cannot_make_two_rules_equal(provider: Provider) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    group = provider.create_resource(GROUP, "g", vpcId=vpc)
    traffic = {"securityGroupId": group, "ipProtocol": "-1"}
    provider.create_resource(INGRESS, "one", **traffic, cidrIpv4="10.0.1.0/24")
    rule = provider.create_resource(INGRESS, "two", **traffic, cidrIpv4="10.0.2.0/24")

    def update(block: str) -> Object:
        return provider.update(request(INGRESS, "two"), rule, {**traffic, "cidrIpv4": block}, 5)

    with pytest.raises(CloudError, match=r"InvalidPermission\.Duplicate"):
        update("10.0.1.0/24")
    assert update("10.0.3.0/24")["cidrIpv4"] == "10.0.3.0/24"
    assert update("10.0.3.0/24"), "a rule does not conflict with itself"


def test_two_resources_that_set_no_unique_input_do_not_conflict(provider: Provider) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    table = provider.create_resource(TABLE, "t", vpcId=vpc)

    ids = [
        provider.create_resource(ASSOCIATION, name, routeTableId=table, gatewayId=name)
        for name in ("igw-1", "vgw-1")
    ]

    assert len(set(ids)) == 2, "each has a gateway, and no subnet"


def test_an_update_without_a_version_keeps_the_version(provider: Provider) -> None:
    kind = provider.kind(CLUSTER)
    inputs = {"name": "c", "vpcConfig": {"subnetIds": []}}
    old = Resource(token=CLUSTER, id="c", urn="u", inputs={}, outputs={"version": "1.34"})
    with provider.account.transaction() as transaction:
        update = replace(provider._request(inputs, transaction, "c"), previous=old)

    assert kind.describe(update)["version"] == "1.34", "AWS does not upgrade such a cluster"


def test_a_bucket_without_force_destroy_is_deleted_only_when_it_is_empty(
    provider: Provider,
) -> None:
    bucket = provider.create_resource(BUCKET, "b", bucket="mine", forceDestroy=False)
    object_id = provider.create_resource(OBJECT, "o", bucket=bucket, key="data/")

    with pytest.raises(CloudError, match="BucketNotEmpty"):
        provider.delete_resource(BUCKET, bucket)
    provider.delete_resource(OBJECT, object_id)
    provider.delete_resource(BUCKET, bucket)


def test_deleting_a_missing_resource_succeeds(provider: Provider) -> None:
    provider.delete_resource(VPC, "vpc-1")


def test_concurrent_creations_are_all_kept(provider: Provider) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    with ThreadPoolExecutor(16) as pool:
        ids = list(
            pool.map(
                lambda n: provider.create_resource(
                    SUBNET, f"s{n}", vpcId=vpc, cidrBlock=f"10.0.{n}.0/24"
                ),
                range(16),
            )
        )
    assert len(set(ids)) == 16
    assert {resource.id for resource in provider.account.read().all(SUBNET)} == set(ids)


def test_an_update_of_a_credential_is_refused_while_another_write_to_its_identity_is_in_progress(
    tmp_path: Path,
) -> None:
    config = ProviderConfig(cloud="azure-native", region="eastus")
    provider = Provider(azure.CLOUD, tmp_path, Offline(), config)
    group = {"resourceGroupName": "g"}
    names = {**group, "resourceName": "control"}
    inputs = {
        **names,
        "federatedIdentityCredentialResourceName": "trainer",
        "issuer": "https://issuer",
        "subject": "system:serviceaccount:elastic-job:trainer",
        "audiences": ["api://AzureADTokenExchange"],
    }
    provider.create_resource(RESOURCE_GROUP, "g", **group)
    provider.create_resource(IDENTITY, "i", **names)
    identity = provider.create_resource(CREDENTIAL, "c", **inputs)
    timeouts = Timeouts(report=lambda _text: None, cancelled=threading.Event())

    with (
        provider._writes.exclusive(provider.kind(CREDENTIAL), inputs, timeouts),
        pytest.raises(CloudError, match="is already being written"),
    ):
        provider.update(request(CREDENTIAL, "c"), identity, inputs, 5)

    outputs = provider.update(request(CREDENTIAL, "c"), identity, inputs, 5)
    assert outputs["subject"] == inputs["subject"], "the write of the identity has ended"


def test_a_creation_with_a_lost_response_is_adopted_and_not_repeated(provider: Provider) -> None:
    set_faults(provider, {"kind": "lost", "type": VPC})
    with pytest.raises(CloudError, match="RequestTimeout"):
        provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    (vpc,) = provider.account.read().all(VPC)

    assert provider.create_resource(VPC, "v", cidrBlock=BLOCK) == vpc.id
    assert len(list(provider.account.read().all(VPC))) == 1
    assert provider.create_resource(VPC, "v", cidrBlock=BLOCK) != vpc.id, (
        "a replacement creates another VPC"
    )


def test_a_later_process_does_not_adopt_resources_of_an_earlier_one(
    provider: Provider, tmp_path: Path
) -> None:
    set_faults(provider, {"kind": "lost", "type": VPC}, {"kind": "lost", "type": BUCKET})
    with pytest.raises(CloudError, match="RequestTimeout"):
        provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    with pytest.raises(CloudError, match="RequestTimeout"):
        provider.create_resource(BUCKET, "b", bucket="mine")
    (vpc,) = provider.account.read().all(VPC)

    later = Provider(CLOUD, tmp_path, Offline(), CONFIG)

    assert later.create_resource(VPC, "v", cidrBlock=BLOCK) != vpc.id, "its client token differs"
    with pytest.raises(CloudError, match="already exists"):
        later.create_resource(BUCKET, "b", bucket="mine")


def test_a_service_completes_the_requests_of_a_killed_process(
    provider: Provider, tmp_path: Path
) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    with provider.account.transaction() as transaction:  # as after a kill before the response
        (resource,) = transaction.inventory.all(VPC)
        transaction.put(replace(resource, ready=False, acknowledged=False))
    later = Provider(CLOUD, tmp_path, Offline(), CONFIG)
    with pytest.raises(CloudError, match="does not exist"):
        later.create_resource(SUBNET, "s", vpcId=vpc, cidrBlock="10.0.0.0/24")

    assert later.read(request(VPC, "v"), vpc)

    assert later.create_resource(SUBNET, "s", vpcId=vpc, cidrBlock="10.0.0.0/24"), (
        "reading a resource, as an import does, completes its creation"
    )


def test_a_throttled_operation_is_retried_a_limited_number_of_times(provider: Provider) -> None:
    provider.cancelled.set()  # skips the pauses
    set_faults(provider, {"kind": "throttle", "type": VPC, "times": 2})
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    assert [resource.id for resource in provider.account.read().all(VPC)] == [vpc]

    set_faults(provider, {"kind": "throttle", "type": VPC, "times": 0})
    with pytest.raises(
        CloudError, match="ThrottlingException: rate exceeded, 10 consecutive times"
    ):
        provider.create_resource(VPC, "w", cidrBlock=BLOCK)


def test_a_resource_that_is_not_ready_in_time_is_kept_for_the_engine(provider: Provider) -> None:
    set_faults(provider, {"kind": "timeout", "type": VPC})
    with pytest.raises(IncompleteError, match="timeout while waiting"):
        provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    (resource,) = provider.account.read().all(VPC)
    assert resource.acknowledged, "the engine has its id and will update it"


def test_a_cluster_keeps_its_endpoint_through_an_update_that_fails(provider: Provider) -> None:
    roles = "arn:aws:iam::123456789012:role/"
    inputs = {"name": "c", "roleArn": f"{roles}c", "vpcConfig": {"subnetIds": ["a", "b"]}}
    endpoint = {"address": "https://c", "authority": "Yw=="}
    kind = provider.kind(CLUSTER)
    cluster = Resource(
        token=CLUSTER, id="c", urn="u", inputs=inputs, outputs={"version": "1.36"}, ready=True, private=endpoint,
        owner="o",
    )  # fmt: skip
    with provider.account.transaction() as transaction:
        update = provider._request(inputs, transaction, "c")
        changed = provider._put(
            transaction, kind, replace(update, previous=cluster), request(CLUSTER, "c")
        )

    assert changed.outputs["endpoint"] == "https://c"
    assert changed.outputs["certificateAuthority"] == {"data": "Yw=="}
    assert (changed.private, changed.owner) == (endpoint, "o")


def test_a_cidr_block_is_in_use_while_its_subnet_is_being_created(provider: Provider) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    set_faults(provider, {"kind": "timeout", "type": SUBNET})
    with pytest.raises(IncompleteError):
        provider.create_resource(SUBNET, "one", vpcId=vpc, cidrBlock="10.0.1.0/24")

    with pytest.raises(CloudError, match=r"InvalidSubnet\.Conflict"):
        provider.create_resource(SUBNET, "two", vpcId=vpc, cidrBlock="10.0.1.0/24")


def test_a_latency_ends_at_the_time_limit_of_the_operation(provider: Provider) -> None:
    vpc = provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    set_faults(provider, latency={VPC: 1})
    inputs = {"cidrBlock": BLOCK}

    with pytest.raises(IncompleteError, match="timeout while waiting"):
        provider.create(request(VPC, "w"), inputs, 0.05)
    with pytest.raises(IncompleteError, match="timeout while waiting"):
        provider.update(request(VPC, "v"), vpc, inputs, 0.05)
    with pytest.raises(ProviderError, match="timeout while waiting"):
        provider.delete(request(VPC, "v"), vpc, 0.05)
    assert provider.account.read().find((VPC,), vpc)


def test_a_resource_without_machines_cannot_lack_capacity(provider: Provider) -> None:
    set_faults(provider, {"kind": "capacity", "type": "*"})
    with pytest.raises(ProviderError, match="kind capacity for aws:ec2/vpc:Vpc, which has no"):
        provider.create_resource(VPC, "v", cidrBlock=BLOCK)
    assert not list(provider.account.read().all(VPC))


def test_the_error_for_an_unknown_type_or_function_suggests_the_nearest_name(
    provider: Provider,
) -> None:
    with pytest.raises(ProviderError, match=r"did you mean aws:ec2/vpc:Vpc\?"):
        provider.kind("aws:ec2/vpc:Vcp")
    with pytest.raises(ProviderError, match=r"did you mean aws:index/getRegion:getRegion\?"):
        provider.invoke("aws:index/getRegion:getRegions", {})


def test_a_region_must_be_set_and_exist(provider: Provider) -> None:
    provider.config = ProviderConfig(cloud="aws")
    assert "no region is set" in provider.check_inputs(VPC, "v", cidrBlock=BLOCK)[1][0]
    _, failures = provider.check_inputs(VPC, "v", cidrBlock=BLOCK, region="us-east-9")
    assert "is not an AWS region" in failures[0]
