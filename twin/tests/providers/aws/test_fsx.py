"""File systems: their sizes, and the security groups that allow Lustre."""

import pytest
from cloudtwin.providers.aws import CLOUD
from cloudtwin.providers.aws.fsx import ASSOCIATION, FILE_SYSTEM, allows_ingress
from cloudtwin.providers.aws.network import GROUP, GROUP_RULE, INGRESS
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import ProviderConfig, ResourceRequest
from cloudtwin.providers.protocol.values import Object

from twin.tests.providers.aws.cases import resource
from twin.tests.providers.offline import Provider

HDD = {"deploymentType": "PERSISTENT_1", "storageType": "HDD", "driveCacheType": "NONE"}
SLOW, FAST = ({**HDD, "perUnitStorageThroughput": throughput} for throughput in (12, 40))
SCRATCH_1: Object = {"deploymentType": "SCRATCH_1"}
SCRATCH_2: Object = {"deploymentType": "SCRATCH_2"}
NO_CACHE = {"sizingMode": "NO_CACHE"}
TIERING = {"deploymentType": "PERSISTENT_2", "storageType": "INTELLIGENT_TIERING",
           "throughputCapacity": 4000, "dataReadCacheConfiguration": NO_CACHE}  # fmt: skip
PERSISTENT_2 = {
    "deploymentType": "PERSISTENT_2",
    "perUnitStorageThroughput": 125,
    "storageCapacity": 1200,
}
AUTOMATIC = {"metadataConfiguration": {"mode": "AUTOMATIC"}}
SSD = {"deploymentType": "PERSISTENT_1", "perUnitStorageThroughput": 50}


@pytest.mark.parametrize(
    ("inputs", "valid", "invalid", "allowed"),
    [
        (
            SCRATCH_1,
            (1200, 2400, 3600, 7200),
            (0, 4800, 6000),
            "1200 or 2400 or a multiple of 3600",
        ),
        (SCRATCH_2, (1200, 2400, 4800, 7200), (0, 3600), "1200 or a multiple of 2400"),
        (SSD, (1200, 2400, 4800), (1800, 3600), "1200 or a multiple of 2400"),
        (SLOW, (6000, 12000), (1200, 1800, 2400), "a multiple of 6000"),
        (FAST, (1800, 3600), (1200, 2400, 6000), "a multiple of 1800"),
    ],
)
def test_the_sizes_of_a_file_system_depend_on_deployment_storage_and_throughput(
    provider: Provider,
    inputs: Object,
    valid: tuple[int, ...],
    invalid: tuple[int, ...],
    allowed: str,
) -> None:
    def failures(size: int) -> list[str]:
        return provider.check_inputs(
            FILE_SYSTEM, "f", subnetIds="subnet-0123456789abcdef0", storageCapacity=size, **inputs
        )[1]

    assert {size: failures(size) for size in valid} == {size: [] for size in valid}
    for size in invalid:
        (failure,) = failures(size)
        assert f"{size} GiB: {inputs['deploymentType']} with" in failure
        assert f" allows {allowed} GiB" in failure


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({**HDD, "storageCapacity": 6000}, "needs one of 12, 40"),
        ({**HDD, "storageCapacity": 6000, "perUnitStorageThroughput": 50}, "allows only 12, 40"),
        ({**SSD, "storageCapacity": 1200, "driveCacheType": "READ"}, "no drive cache"),
        ({**SCRATCH_1, "storageCapacity": 6000, "storageType": "HDD", "driveCacheType": "NONE"},
         "SCRATCH_1 allows only SSD"),
        ({**TIERING, "perUnitStorageThroughput": 125}, "INTELLIGENT_TIERING does not support it"),
        ({**TIERING, "storageCapacity": 4800}, "has no fixed size"),
        ({**TIERING, "throughputCapacity": None}, "a multiple of 4000"),
        ({**TIERING, "throughputCapacity": 6000}, "a multiple of 4000"),
        ({**TIERING, "dataReadCacheConfiguration": None}, "needs it"),
        ({**SSD, "storageCapacity": 1200, "dataReadCacheConfiguration": NO_CACHE},
         "SSD does not support it"),
    ],
)  # fmt: skip
def test_storage_throughput_and_cache_of_a_file_system_must_agree(
    provider: Provider, inputs: Object, reason: str
) -> None:
    subnet = "subnet-0123456789abcdef0"
    (failure,) = provider.check_inputs(FILE_SYSTEM, "f", subnetIds=subnet, **inputs)[1]
    assert reason in failure


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({**SSD, "storageCapacity": 1200, "fileSystemTypeVersion": "2.10"}, ""),
        ({**PERSISTENT_2, "fileSystemTypeVersion": "2.12"}, ""),
        ({**PERSISTENT_2, "fileSystemTypeVersion": "2.15", **AUTOMATIC}, ""),
        ({**PERSISTENT_2, "fileSystemTypeVersion": "2.12", **AUTOMATIC}, "needs 2.15, not 2.12"),
        ({**PERSISTENT_2, "fileSystemTypeVersion": "2.10"}, "needs 2.12 or 2.15, not 2.10"),
        ({**SSD, "storageCapacity": 1200, **AUTOMATIC}, "only PERSISTENT_2"),
        ({**TIERING, **AUTOMATIC}, "needs USER_PROVISIONED"),
    ],
)
def test_the_lustre_version_and_the_metadata_mode_depend_on_the_deployment(
    provider: Provider, inputs: Object, reason: str
) -> None:
    subnet = "subnet-0123456789abcdef0"
    failures = provider.check_inputs(FILE_SYSTEM, "f", subnetIds=subnet, **inputs)[1]

    assert [reason in failure for failure in failures] == ([True] if reason else [])


@pytest.mark.parametrize(
    ("inputs", "iops", "is_valid"),
    [
        (PERSISTENT_2, 1500, True),
        (PERSISTENT_2, 36000, True),
        (PERSISTENT_2, 2000, False),
        (PERSISTENT_2, 18000, False),
        (TIERING, 12000, True),
        (TIERING, 1500, False),
        (TIERING, 24000, False),
    ],
)
def test_metadata_iops_have_the_steps_of_their_storage(
    provider: Provider, inputs: Object, iops: int, is_valid: bool
) -> None:
    metadata = {"mode": "USER_PROVISIONED", "iops": iops}
    failures = provider.check_inputs(
        FILE_SYSTEM,
        "f",
        subnetIds="subnet-0123456789abcdef0",
        metadataConfiguration=metadata,
        **inputs,
    )[1]

    assert (failures == []) is is_valid, failures


def request_for(inputs: Object, *resources: Resource, previous: str = "") -> ResourceRequest:
    """Return a request for a file system, which has the previous Lustre version if it is an update."""
    return ResourceRequest(
        inputs=inputs, config=ProviderConfig(cloud="aws", region="us-east-1"),
        account=Inventory(resources), entropy="", id="fs-1",
        previous=resource(FILE_SYSTEM, "fs-1", {}, fileSystemTypeVersion=previous) if previous else None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "previous", "version"),
    [
        ({}, "", "2.10"),
        (SCRATCH_2, "", "2.10"),
        (SSD, "", "2.10"),
        (PERSISTENT_2, "", "2.12"),
        ({**PERSISTENT_2, **AUTOMATIC}, "", "2.15"),
        ({**SCRATCH_2, "fileSystemTypeVersion": "2.15"}, "", "2.15"),
        (SCRATCH_2, "2.15", "2.15"),
    ],
)
def test_the_default_lustre_version_depends_on_the_deployment_and_stays(
    inputs: Object, previous: str, version: str
) -> None:
    outputs = CLOUD.types[FILE_SYSTEM].describe(request_for(inputs, previous=previous))

    assert outputs["fileSystemTypeVersion"] == version


def test_a_file_system_with_lustre_2_10_cannot_be_linked_to_a_bucket() -> None:
    (check,) = (
        precondition.violations
        for precondition in CLOUD.types[ASSOCIATION].preconditions
        if precondition.name == "file system of an association"
    )

    def reasons(version: str) -> list[str]:
        system = resource(FILE_SYSTEM, "fs-1", SCRATCH_2, fileSystemTypeVersion=version)
        return list(check(request_for({"fileSystemId": "fs-1"}, system)))

    assert "set fileSystemTypeVersion" in reasons("2.10")[0]
    assert reasons("2.12") == []


def ingress_rule(**inputs: object) -> Resource:
    return resource(INGRESS, "sgr-1", {"securityGroupId": "sg-f", **inputs})


def older_rule(**inputs: object) -> Resource:
    return resource(
        GROUP_RULE, "sgrule-1", {"securityGroupId": "sg-f", "type": "ingress", **inputs}
    )


def inline_rule(**inputs: object) -> Resource:
    return resource(GROUP, "sg-f", {"ingress": [inputs]})


PORTS = {"fromPort": 988, "toPort": 1023}
TCP = {"protocol": "tcp", **PORTS}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (ingress_rule(ipProtocol="tcp", referencedSecurityGroupId="sg-c", **PORTS), True),
        (ingress_rule(ipProtocol="6", cidrIpv4="10.0.0.0/16", **PORTS), True),
        (ingress_rule(ipProtocol="-1", referencedSecurityGroupId="sg-c"), True),
        (ingress_rule(ipProtocol="udp", referencedSecurityGroupId="sg-c", **PORTS), False),
        (ingress_rule(ipProtocol="-1", referencedSecurityGroupId="sg-x"), False),
        (older_rule(sourceSecurityGroupId="sg-c", **TCP), True),
        (older_rule(cidrBlocks=["10.0.0.0/8"], **TCP), True),
        (older_rule(cidrBlocks=["10.0.0.0/8"], protocol="all"), True),
        (older_rule(sourceSecurityGroupId="sg-c", protocol="tcp", fromPort=988, toPort=988), False),
        (older_rule(sourceSecurityGroupId="sg-c", **TCP, type="egress"), False),
        (older_rule(self=True, **TCP), False),
        (inline_rule(securityGroups=["sg-c"], protocol="-1", fromPort=0, toPort=0), True),
        (inline_rule(self=True, **TCP), False),
    ],
)
def test_a_security_group_allows_ports_by_each_kind_of_rule(rule: Resource, expected: bool) -> None:
    account = Inventory((rule,))

    assert allows_ingress(account, "sg-f", ["sg-c"], "10.0.1.0/24", 988, 1023) is expected


def test_an_older_rule_allows_its_own_group() -> None:
    account = Inventory((older_rule(self=True, **TCP),))

    assert allows_ingress(account, "sg-f", ["sg-f"], "10.0.1.0/24", 988, 988)
