"""Amazon FSx for Lustre: file systems and their ties to buckets. Pure.

Sources: FSx for Lustre User Guide ("Deployment options", "File system access control with VPC"),
FSx API Reference. Read 2026-11.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from twin.clouds.aws.common import ACCOUNT, arn, prefixed
from twin.clouds.aws.identity import KEY
from twin.clouds.aws.network import GROUP, INGRESS, SUBNET, in_groups, in_subnets
from twin.clouds.aws.s3 import BUCKET, OBJECT
from twin.clouds.model import Demand, Inputs, Making, Reference, ResourceType, Rule
from twin.clouds.rules import at, known, lies_in
from twin.clouds.wire.check import Mistake
from twin.clouds.world import Resource, World

SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
TIE = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
STEP_GIB, SMALLEST_GIB = 2400, 1200
THROUGHPUTS = {"PERSISTENT_2": (125, 250, 500, 1000), "PERSISTENT_1": (50, 100, 200)}
LUSTRE_PORTS = ((988, 988), (1018, 1023))
MOST_TIES, MOST_BACKUP_DAYS = 8, 90
GUIDE = "FSx for Lustre User Guide"


# -- FSx


def _capacity(inputs: Inputs) -> Iterable[Mistake]:
    size, kind = inputs.get("storageCapacity"), inputs.get("deploymentType", "SCRATCH_1")
    if not isinstance(size, int) or not known(kind) or inputs.get("storageType") == "HDD":
        return
    step = 3600 if kind == "SCRATCH_1" else STEP_GIB
    if size != SMALLEST_GIB and (size <= 0 or size % step):
        yield at("storageCapacity", f"{size} GiB: {kind} has 1200, or a multiple of {step}")


def _throughput(inputs: Inputs) -> Iterable[Mistake]:
    kind, value = inputs.get("deploymentType", "SCRATCH_1"), inputs.get("perUnitStorageThroughput")
    allowed = THROUGHPUTS.get(str(kind))
    if allowed is None and value is not None:
        yield at("perUnitStorageThroughput", f"{kind} has none: leave it out")
    if allowed and value is None and inputs.get("storageType", "SSD") == "SSD":
        yield at("perUnitStorageThroughput", f"{kind} needs one of {', '.join(map(str, allowed))}")
    if allowed and isinstance(value, int) and value not in allowed:
        yield at("perUnitStorageThroughput", f"{value} is none of {', '.join(map(str, allowed))}")


def _lasting(inputs: Inputs) -> Iterable[Mistake]:
    if not str(inputs.get("deploymentType", "SCRATCH_1")).startswith("SCRATCH"):
        days = inputs.get("automaticBackupRetentionDays")
        if isinstance(days, int) and not 0 <= days <= MOST_BACKUP_DAYS:
            yield at("automaticBackupRetentionDays", f"{days} days: 0 to {MOST_BACKUP_DAYS}")
        return
    for name in ("kmsKeyId", "automaticBackupRetentionDays", "metadataConfiguration",
                 "copyTagsToBackups", "dailyAutomaticBackupStartTime"):  # fmt: skip
        if inputs.get(name) not in (None, 0, False):
            yield at(name, "only a PERSISTENT file system has it")


def _efa(inputs: Inputs) -> Iterable[Mistake]:
    if not inputs.get("efaEnabled"):
        return
    if inputs.get("deploymentType") != "PERSISTENT_2" or not inputs.get("metadataConfiguration"):
        yield at("efaEnabled", "EFA needs PERSISTENT_2 and a metadataConfiguration")


def _one_zone(inputs: Inputs) -> Iterable[Mistake]:
    subnets = inputs.get("subnetIds")
    if isinstance(subnets, str) and "," in subnets:
        yield at("subnetIds", f"{subnets!r}: a file system is in one zone, and so in one subnet")


def _let_lustre(making: Making) -> Iterable[str]:
    """Demand that the file system's servers may talk to each other, which FSx tries out."""
    groups = [str(each) for each in making.inputs.get("securityGroupIds") or ()]
    subnet = making.world.find((SUBNET,), str(making.inputs["subnetIds"]))
    cidr = str(subnet.inputs.get("cidrBlock")) if subnet else ""
    for low, high in LUSTRE_PORTS:
        if groups and not any(opens(making.world, g, groups, cidr, low, high) for g in groups):
            yield (
                f"the security groups {', '.join(groups)} do not permit Lustre LNET network "
                f"traffic on the ports {low}-{high} among the file system's own servers; let the "
                "file system wait for its rules"
            )


def opens(world: World, group: str, sources: Iterable[str], cidr: str, low: int, high: int) -> bool:
    """Tell whether a group lets a range of TCP ports in from groups or from a block."""
    wanted = set(sources)
    rules = (r.inputs for r in world.all(INGRESS) if r.inputs.get("securityGroupId") == group)
    inline = (
        {
            **rule,
            "ipProtocol": rule.get("protocol"),
            "referencedSecurityGroupId": source,
            "cidrIpv4": block,
        }
        for each in world.all(GROUP)
        if each.id == group
        for rule in each.inputs.get("ingress") or ()
        for source, block in [
            *(
                (g, None)
                for g in [
                    *(rule.get("securityGroups") or ()),
                    *([group] if rule.get("self") else ()),
                ]
            ),
            *((None, b) for b in rule.get("cidrBlocks") or ()),
        ]
    )
    return any(
        _covers(rule, low, high)
        and (rule.get("referencedSecurityGroupId") in wanted or lies_in(cidr, rule.get("cidrIpv4")))
        for rule in (*rules, *inline)
    )  # fmt: skip


def _covers(rule: Mapping[str, Any], low: int, high: int) -> bool:
    if rule.get("ipProtocol") == "-1":
        return True
    first, last = rule.get("fromPort"), rule.get("toPort")
    whole = isinstance(first, int) and isinstance(last, int) and first <= low and high <= last
    return rule.get("ipProtocol") == "tcp" and whole


def _describe_system(making: Making) -> dict[str, Any]:
    subnet = making.world.find((SUBNET,), str(making.inputs["subnetIds"]))
    scratch = making.inputs.get("deploymentType", "SCRATCH_1") == "SCRATCH_1"
    return {
        "arn": arn("fsx", f"file-system/{making.id}", making.region),
        "dnsName": f"{making.id}.fsx.{making.region}.amazonaws.com",
        "mountName": "fsx" if scratch else making.digits("mount", 8),
        "networkInterfaceIds": [f"eni-0{making.digits('eni', 16)}"],
        "ownerId": ACCOUNT,
        "vpcId": str(subnet.inputs["vpcId"]) if subnet else "",
        "weeklyMaintenanceStartTime": making.inputs.get("weeklyMaintenanceStartTime") or "7:03:00",
    }


def _only_grows(making: Making) -> Iterable[str]:
    before, now = making.before, making.inputs.get("storageCapacity")
    if before and isinstance(now, int) and now < int(before.outputs.get("storageCapacity") or 0):
        yield f"a file system grows only: {before.outputs['storageCapacity']} to {now} GiB"


# -- data repository associations


def _tie_paths(inputs: Inputs) -> Iterable[Mistake]:
    inside, outside = inputs.get("fileSystemPath"), inputs.get("dataRepositoryPath")
    if isinstance(inside, str) and not inside.startswith("/"):
        yield at("fileSystemPath", f"{inside!r} must begin with /")
    if isinstance(outside, str) and not re.fullmatch(r"s3://[a-z0-9.-]{3,63}(/.*)?", outside):
        yield at("dataRepositoryPath", f"{outside!r} is not of the form s3://bucket/prefix")


def bucket_of(path: str) -> str:
    """Return the bucket in `s3://bucket/prefix`."""
    return path.removeprefix("s3://").partition("/")[0]


def _tie_bucket(making: Making) -> Iterable[str]:
    name = bucket_of(str(making.inputs["dataRepositoryPath"]))
    if making.world.find((BUCKET,), name) is None:
        yield f"the bucket {name!r} does not exist in the account"


def _tie_count(making: Making) -> Iterable[str]:
    mine = making.inputs["fileSystemId"]
    others = [
        each
        for each in making.world.all(TIE)
        if each.inputs["fileSystemId"] == mine and each.id != making.id
    ]
    if len(others) >= MOST_TIES:
        yield f"{mine} has {MOST_TIES} associations already"
    for each in others:
        if _overlap(str(each.inputs["fileSystemPath"]), str(making.inputs["fileSystemPath"])):
            yield f"{making.inputs['fileSystemPath']} overlaps with {each.inputs['fileSystemPath']}"


def _overlap(one: str, other: str) -> bool:
    first, second = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)


def _tie_kind(making: Making) -> Iterable[str]:
    system = making.world.find((SYSTEM,), str(making.inputs["fileSystemId"]))
    if system and system.inputs.get("deploymentType", "SCRATCH_1") == "SCRATCH_1":
        yield "SCRATCH_1 has no data repository associations"


def _exports(tie: Resource, _world: World) -> Iterable[Resource]:
    """Let objects come to be in the bucket: what is written to the file system is exported."""
    s3 = tie.inputs.get("s3") or {}
    if (s3.get("autoExportPolicy") or {}).get("events"):
        bucket = bucket_of(str(tie.inputs["dataRepositoryPath"]))
        inputs = {"bucket": bucket, "key": "exported-by-fsx"}
        identity = f"{bucket}/exported-by-fsx"
        yield Resource(
            token=OBJECT, id=identity, urn=tie.urn, inputs=inputs, outputs=inputs, answered=True,
            owner=f"s3:{bucket}",
        )  # fmt: skip


# -- S3 and ECR


TYPES = (
    ResourceType(
        token=SYSTEM,
        identify=prefixed("fs"),
        describe=_describe_system,
        defaults={
            "deploymentType": "SCRATCH_1",
            "storageType": "SSD",
            "dataCompressionType": "NONE",
            "fileSystemTypeVersion": "2.15",
        },
        immutable=(
            "subnetIds",
            "securityGroupIds",
            "deploymentType",
            "storageType",
            "kmsKeyId",
            "backupId",
            "efaEnabled",
            "importPath",
            "exportPath",
            "importedFileChunkSize",
            "driveCacheType",
            "copyTagsToBackups",
            "region",
        ),
        enums={
            "deploymentType": ("SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"),
            "storageType": ("SSD", "HDD", "INTELLIGENT_TIERING"),
            "dataCompressionType": ("NONE", "LZ4"),
            "fileSystemTypeVersion": ("2.10", "2.12", "2.15"),
        },
        rules=(
            Rule(
                name="size of a file system", source=f"{GUIDE}, CreateFileSystem", broken=_capacity
            ),
            Rule(
                name="throughput of a file system",
                source=f"{GUIDE}, performance",
                broken=_throughput,
            ),
            Rule(name="what lasts", source=f"{GUIDE}, deployment options", broken=_lasting),
            Rule(name="EFA of a file system", source=f"{GUIDE}, EFA", broken=_efa),
            Rule(
                name="one zone of a file system",
                source="FSx API, CreateFileSystem",
                broken=_one_zone,
            ),
        ),
        references=(
            in_subnets("subnetIds"),
            in_groups("securityGroupIds.*"),
            Reference(path="kmsKeyId", to=(KEY,), by="arn", code="BadRequest"),
        ),
        demands=(
            Demand(
                name="Lustre among servers",
                source=f"{GUIDE}, access control with VPC",
                code="InvalidNetworkSettings",
                broken=_let_lustre,
            ),
            Demand(
                name="a file system grows",
                source=f"{GUIDE}, managing storage capacity",
                code="BadRequest",
                broken=_only_grows,
            ),
        ),
    ),
    ResourceType(
        token=TIE,
        identify=prefixed("dra"),
        describe=lambda making: {
            "arn": arn(
                "fsx", f"association/{making.inputs['fileSystemId']}/{making.id}", making.region
            ),
            "associationId": making.id,
        },
        brings=_exports,
        immutable=(
            "fileSystemId",
            "fileSystemPath",
            "dataRepositoryPath",
            "batchImportMetaDataOnCreate",
            "region",
        ),
        enums={
            "s3.autoImportPolicy.events.*": ("NEW", "CHANGED", "DELETED"),
            "s3.autoExportPolicy.events.*": ("NEW", "CHANGED", "DELETED"),
        },
        rules=(
            Rule(
                name="paths of an association",
                source="FSx API, CreateDataRepositoryAssociation",
                broken=_tie_paths,
            ),
        ),
        references=(
            Reference(
                path="fileSystemId", to=(SYSTEM,), code="FileSystemNotFound", holds="BadRequest"
            ),
        ),
        demands=(
            Demand(
                name="bucket of an association",
                source="FSx API, CreateDataRepositoryAssociation",
                code="BadRequest",
                broken=_tie_bucket,
            ),
            Demand(
                name="associations apart",
                source=f"{GUIDE}, linking to S3",
                code="BadRequest",
                broken=_tie_count,
            ),
            Demand(
                name="associations of a kind",
                source=f"{GUIDE}, linking to S3",
                code="BadRequest",
                broken=_tie_kind,
            ),
        ),
    ),
)
