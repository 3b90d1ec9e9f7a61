"""Amazon FSx for Lustre: file systems and data repository associations. Pure.

Sources: FSx for Lustre User Guide ("Deployment options", "File system access control with VPC",
"Creating an FSx for Lustre file system fails", "Data repositories"), FSx API Reference. Read 2026-11.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cloudfacts.aws import LUSTRE_PORTS

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.aws.common import OBJECT, arn, id_with_prefix
from cloudtwin.providers.aws.identity import to_key
from cloudtwin.providers.aws.network import (
    GROUP,
    GROUP_RULE,
    INGRESS,
    SUBNET,
    in_groups,
    in_subnets,
)
from cloudtwin.providers.aws.s3 import BUCKET
from cloudtwin.providers.conditions import (
    failure_at,
    is_known,
    lies_in,
    matches,
    section,
    value_rule,
)
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import (
    InputRule,
    Inputs,
    Precondition,
    Reference,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.schema.check import CheckFailure

FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
TIERING = "INTELLIGENT_TIERING"
TIERING_THROUGHPUT = 4000  # MB/s, the step of throughputCapacity; same source as STORAGE
ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
# Deployment type -> storage type -> values of perUnitStorageThroughput. Source: FSx API Reference, CreateFileSystem and
# CreateFileSystemLustreConfiguration, in the service model of botocore 1.44.5, 2026-11-27.
STORAGE: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "SCRATCH_1": {"SSD": ()},
    "SCRATCH_2": {"SSD": ()},
    "PERSISTENT_1": {"SSD": (50, 100, 200), "HDD": (12, 40)},
    "PERSISTENT_2": {"SSD": (125, 250, 500, 1000), TIERING: ()},
}
# IOPS of the metadata of SSD file systems, besides multiples of the last, and of Intelligent-Tiering; same source.
METADATA_IOPS = (1500, 3000, 6000, 12000)
TIERING_IOPS = (6000, 12000)
VERSION = re.compile(r"\d+(\.\d+)*")
# Sizes of a file system in GiB, from the same source: single values, and the step between the others.
SCRATCH_1_SIZES, SSD_SIZES = ((1200, 2400), 3600), ((1200,), 2400)
HDD_SIZES: Mapping[Any, tuple[tuple[int, ...], int]] = {12: ((), 6000), 40: ((), 1800)}
ALL_PROTOCOLS, TCP = ("-1", "all"), ("tcp", "6")
MAX_ASSOCIATIONS = 8
GUIDE, CREATE = "FSx for Lustre User Guide", "FSx API, CreateDataRepositoryAssociation"
CREATE_SYSTEM = "FSx API, CreateFileSystem"
LINKING = f"{GUIDE}, linking to S3"


def _deployment(inputs: Inputs) -> Any:  # noqa: ANN401  None if unknown
    return inputs.get("deploymentType", "SCRATCH_1")


# -- file systems


def _storage(inputs: Inputs) -> Any:  # noqa: ANN401  None if unknown
    return inputs.get("storageType", "SSD")


def _storage_type(inputs: Inputs) -> Iterable[CheckFailure]:
    kind, storage = _deployment(inputs), _storage(inputs)
    storages = STORAGE.get(str(kind), {})
    if storages and is_known(storage) and storage not in storages:
        yield failure_at("storageType", f"{storage}: {kind} allows only {', '.join(storages)}")


def _drive_cache(inputs: Inputs) -> Iterable[CheckFailure]:
    storage, cache = _storage(inputs), inputs.get("driveCacheType")
    if storage == "HDD" and cache is None:
        yield failure_at("driveCacheType", "HDD needs NONE or READ")
    if is_known(storage) and storage != "HDD" and cache is not None:
        yield failure_at("driveCacheType", f"{storage} has no drive cache: leave it out")


def _capacity(inputs: Inputs) -> Iterable[CheckFailure]:
    size, sizes = inputs.get("storageCapacity"), _sizes(inputs)
    if not isinstance(size, int) or sizes is None:
        return
    single_sizes, step = sizes
    if size not in single_sizes and (size <= 0 or size % step):
        label = f"{_deployment(inputs)} with {_storage(inputs)}"
        allowed = " or ".join([*map(str, single_sizes), f"a multiple of {step}"])
        yield failure_at("storageCapacity", f"{size} GiB: {label} allows {allowed} GiB")


def _sizes(inputs: Inputs) -> tuple[tuple[int, ...], int] | None:
    """Return the single sizes and the step between the others; None if an input is unknown or invalid."""
    kind, storage = _deployment(inputs), _storage(inputs)
    if storage == "HDD":
        throughput = inputs.get("perUnitStorageThroughput")
        return HDD_SIZES.get(throughput) if isinstance(throughput, int) else None
    if storage != "SSD" or not is_known(kind):
        return None
    return SCRATCH_1_SIZES if kind == "SCRATCH_1" else SSD_SIZES


def _throughput(inputs: Inputs) -> Iterable[CheckFailure]:
    kind, storage = _deployment(inputs), _storage(inputs)
    value = inputs.get("perUnitStorageThroughput")
    throughputs = STORAGE.get(str(kind), {}).get(str(storage))
    if throughputs is None:
        return
    path, label = "perUnitStorageThroughput", f"{kind} with {storage}"
    throughput_list = ", ".join(map(str, throughputs))
    if not throughputs and value is not None:
        yield failure_at(path, f"{label} does not support it: leave it out")
    if throughputs and value is None:
        yield failure_at(path, f"{label} needs one of {throughput_list}")
    if throughputs and isinstance(value, int) and value not in throughputs:
        yield failure_at(path, f"{value}: {label} allows only {throughput_list}")


def _tiering_only(inputs: Inputs) -> Iterable[CheckFailure]:
    storage = _storage(inputs)
    if not is_known(storage) or storage == TIERING:
        return
    for name in ("throughputCapacity", "dataReadCacheConfiguration"):
        if inputs.get(name) is not None:
            yield failure_at(name, f"{storage} does not support it, only {TIERING}: leave it out")


def _tiering(inputs: Inputs) -> Iterable[CheckFailure]:
    if _storage(inputs) != TIERING:
        return
    if inputs.get("storageCapacity") is not None:
        yield failure_at("storageCapacity", f"{TIERING} has no fixed size: leave it out")
    if inputs.get("dataReadCacheConfiguration") is None:
        yield failure_at("dataReadCacheConfiguration", f"{TIERING} needs it")
    throughput = inputs.get("throughputCapacity")
    if throughput is None or (isinstance(throughput, int) and throughput % TIERING_THROUGHPUT):
        yield failure_at(
            "throughputCapacity", f"{TIERING} needs a multiple of {TIERING_THROUGHPUT} MB/s"
        )


def _persistent_only(inputs: Inputs) -> Iterable[CheckFailure]:
    if not str(_deployment(inputs)).startswith("SCRATCH"):
        return
    for name in ("kmsKeyId", "automaticBackupRetentionDays", "metadataConfiguration",
                 "copyTagsToBackups", "dailyAutomaticBackupStartTime"):  # fmt: skip
        if inputs.get(name) not in (None, 0, False):
            yield failure_at(name, "requires a PERSISTENT deployment type")


def _efa(inputs: Inputs) -> Iterable[CheckFailure]:
    if inputs.get("efaEnabled") and (
        _deployment(inputs) != "PERSISTENT_2" or not inputs.get("metadataConfiguration")
    ):
        yield failure_at("efaEnabled", "EFA needs PERSISTENT_2 and a metadataConfiguration")


def _version(inputs: Inputs) -> Iterable[CheckFailure]:
    kind, version = _deployment(inputs), inputs.get("fileSystemTypeVersion")
    if kind != "PERSISTENT_2" or version not in ("2.10", "2.12"):
        return
    if version == "2.10":
        yield failure_at("fileSystemTypeVersion", f"{kind} needs 2.12 or 2.15, not 2.10")
    elif inputs.get("metadataConfiguration"):
        yield failure_at("fileSystemTypeVersion", "a metadataConfiguration needs 2.15, not 2.12")


def _metadata(inputs: Inputs) -> Iterable[CheckFailure]:
    path, configuration = "metadataConfiguration", section(inputs, "metadataConfiguration")
    mode, iops = configuration.get("mode"), configuration.get("iops")
    if configuration and _deployment(inputs) == "PERSISTENT_1":
        yield failure_at(path, "PERSISTENT_1 does not support it, only PERSISTENT_2: leave it out")
    if mode == "AUTOMATIC" and iops is not None:
        yield failure_at(
            f"{path}.iops",
            "FSx sets it in the mode AUTOMATIC: leave it out, or use USER_PROVISIONED",
        )
    if mode == "AUTOMATIC" and _storage(inputs) == TIERING:
        yield failure_at(f"{path}.mode", f"{TIERING} needs USER_PROVISIONED")
    if isinstance(iops, int) and not _is_metadata_iops(iops, _storage(inputs)):
        allowed = " or ".join(map(str, TIERING_IOPS))
        if _storage(inputs) != TIERING:
            allowed = f"{', '.join(map(str, METADATA_IOPS))} or a multiple of {METADATA_IOPS[-1]}"
        yield failure_at(f"{path}.iops", f"{iops}: {_storage(inputs)} allows only {allowed}")


def _is_metadata_iops(iops: int, storage: object) -> bool:
    if not is_known(storage):
        return True
    if storage == TIERING:
        return iops in TIERING_IOPS
    return iops in METADATA_IOPS or iops % METADATA_IOPS[-1] == 0


def _lustre_open(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if the security groups block Lustre's ports between the servers, which FSx checks."""
    groups = [str(group_id) for group_id in request.inputs.get("securityGroupIds") or ()]
    subnet = request.find(SUBNET, "subnetIds")
    block = str(subnet.inputs.get("cidrBlock")) if subnet else ""
    for low, high in LUSTRE_PORTS:
        if groups and not any(
            allows_ingress(request.account, g, groups, block, low, high) for g in groups
        ):
            yield (
                f"the security groups {', '.join(groups)} do not permit Lustre LNET network "
                f"traffic on the ports {low}-{high} between the file system's own servers; let the "
                "file system depend on its rules"
            )


def allows_ingress(
    account: Inventory, group: str, sources: Iterable[str], block: str, low: int, high: int
) -> bool:
    """Return True if a security group allows a range of TCP ports from security groups or from a block."""
    source_groups = set(sources)
    ingress_rules = (resource.inputs for resource in account.where(INGRESS, securityGroupId=group))
    return any(
        _covers(rule, low, high)
        and (
            rule.get("referencedSecurityGroupId") in source_groups
            or lies_in(block, rule.get("cidrIpv4"))
        )
        for rule in (*ingress_rules, *_rules_with_several_sources(account, group))
    )


def _rules_with_several_sources(account: Inventory, group: str) -> Iterator[Mapping[str, Any]]:
    """Yield a group's inline rules and SecurityGroupRule resources, one for each source, in the form of INGRESS."""
    resource = account.find((GROUP,), group)
    inline_rules = (resource.inputs.get("ingress") or ()) if resource else ()
    older_rules = account.where(GROUP_RULE, securityGroupId=group, type="ingress")
    for rule in (*inline_rules, *(older_rule.inputs for older_rule in older_rules)):
        fields = {**rule, "ipProtocol": rule.get("protocol")}
        own_group = (group,) if rule.get("self") else ()
        groups = (*(rule.get("securityGroups") or ()), rule.get("sourceSecurityGroupId"))
        for source in (*filter(None, groups), *own_group):
            yield {**fields, "referencedSecurityGroupId": source}
        for block in rule.get("cidrBlocks") or ():
            yield {**fields, "cidrIpv4": block}


def _covers(rule: Mapping[str, Any], low: int, high: int) -> bool:
    protocol = str(rule.get("ipProtocol")).lower()
    first, last = rule.get("fromPort"), rule.get("toPort")
    covers = isinstance(first, int) and isinstance(last, int) and first <= low and high <= last
    return protocol in ALL_PROTOCOLS or (protocol in TCP and covers)


def _describe_file_system(request: ResourceRequest) -> dict[str, Any]:
    subnet = request.find(SUBNET, "subnetIds")
    start_time = request.inputs.get("weeklyMaintenanceStartTime")
    return {
        "arn": arn("fsx", f"file-system/{request.id}", request.region),
        "fileSystemTypeVersion": _current_version(request),
        "dnsName": f"{request.id}.fsx.{request.region}.amazonaws.com",
        "mountName": "fsx"
        if _deployment(request.inputs) == "SCRATCH_1"
        else request.digits("mount", 8),
        "networkInterfaceIds": [f"eni-0{request.digits('eni', 16)}"],
        "ownerId": AWS_ACCOUNT,
        "vpcId": str(subnet.inputs["vpcId"]) if subnet else "",
        "weeklyMaintenanceStartTime": start_time or "7:03:00",
    }


def _current_version(request: ResourceRequest) -> str:
    """Return the Lustre version: the declared or previous one, or FSx's default for the deployment type."""
    previous = request.previous.outputs.get("fileSystemTypeVersion") if request.previous else None
    if version := request.inputs.get("fileSystemTypeVersion") or previous:
        return str(version)
    if _deployment(request.inputs) != "PERSISTENT_2":
        return "2.10"
    return "2.15" if request.inputs.get("metadataConfiguration") else "2.12"


def _version_grows(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for an update to an older Lustre version."""
    requested = request.inputs.get("fileSystemTypeVersion")
    current = request.previous.outputs.get("fileSystemTypeVersion") if request.previous else None
    if requested and current and _version_number(requested) < _version_number(current):
        yield f"the Lustre version of a file system must be newer than its current one: {current} to {requested}"


def _replacing_inputs(old: Inputs, new: Inputs) -> list[str]:
    """Return the Lustre version if it decreases: then the provider replaces the file system.

    Source: terraform-provider-aws #47719.
    """
    name = "fileSystemTypeVersion"
    versions = [inputs.get(name) for inputs in (new, old)]
    if not all(isinstance(version, str) and VERSION.fullmatch(version) for version in versions):
        return []
    requested, current = map(_version_number, versions)
    return [name] if requested < current else []


def _version_number(version: object) -> tuple[int, ...]:
    return tuple(map(int, str(version).split(".")))


def _only_grows(request: ResourceRequest) -> Iterable[str]:
    previous, size = request.previous, request.inputs.get("storageCapacity")
    if previous and isinstance(size, int):
        old_size = int(previous.outputs.get("storageCapacity") or 0)
        if size < old_size:
            yield f"the capacity of a file system can only grow: {old_size} to {size} GiB"
        elif size > old_size and _deployment(request.inputs) == "SCRATCH_1":
            yield f"the capacity of SCRATCH_1 cannot grow: {old_size} to {size} GiB"


def _backups(inputs: Inputs) -> Iterator[str]:
    """Yield each input that requests backups, as text for the error."""
    if inputs.get("automaticBackupRetentionDays"):
        yield f"automaticBackupRetentionDays {inputs['automaticBackupRetentionDays']}"
    if inputs.get("copyTagsToBackups"):
        yield "copyTagsToBackups"


def _not_backed_up(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for backups of a file system that is linked to a bucket."""
    associations = request.account.where(ASSOCIATION, fileSystemId=request.id)
    file_system = request.find(FILE_SYSTEM, "fileSystemId")
    inputs = file_system.inputs if file_system else request.inputs if associations else {}
    if backups := list(_backups(inputs)):
        name = file_system.id if file_system else request.id
        yield (
            f"Backups cannot be created on S3-linked file systems: {name} has {', '.join(backups)}; "
            "remove these inputs, or the data repository association"
        )


# -- data repository associations


def bucket_of(path: object) -> str:
    """Return the bucket in `s3://bucket/prefix`."""
    return str(path).removeprefix("s3://").partition("/")[0]


def _bucket_exists(request: ResourceRequest) -> Iterable[str]:
    name = bucket_of(request.inputs["dataRepositoryPath"])
    if request.account.find((BUCKET,), name) is None:
        yield f"the bucket {name!r} does not exist in the account"


def _paths_disjoint(request: ResourceRequest) -> Iterable[str]:
    system, path = request.inputs["fileSystemId"], str(request.inputs.get("fileSystemPath"))
    associations = request.others(ASSOCIATION)
    others = [other for other in associations if other.inputs.get("fileSystemId") == system]
    if len(others) >= MAX_ASSOCIATIONS:
        yield f"{system} has {MAX_ASSOCIATIONS} associations already"
    for other in others:
        if _overlaps(str(other.inputs.get("fileSystemPath")), path):
            yield f"{path} overlaps with {other.inputs.get('fileSystemPath')}"


def _overlaps(path: str, other: str) -> bool:
    first, second = f"{path.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)


def _supports_associations(request: ResourceRequest) -> Iterable[str]:
    system = request.find(FILE_SYSTEM, "fileSystemId")
    if system is None:
        return
    if _deployment(system.inputs) == "SCRATCH_1":
        yield "SCRATCH_1 does not support data repository associations"
    if system.outputs.get("fileSystemTypeVersion") == "2.10":
        yield (
            "Lustre 2.10, FSx's default except for PERSISTENT_2, does not support data repository associations: set "
            "fileSystemTypeVersion"
        )


def _events(inputs: Inputs) -> Iterable[CheckFailure]:
    for name in ("autoImportPolicy", "autoExportPolicy"):
        events = section(inputs, "s3", name).get("events")
        if isinstance(events, list) and len(set(map(str, events))) < max(1, len(events)):
            yield failure_at(f"s3.{name}.events", "one to three events are required, each once")


def _exported_object(association: Resource, _account: Inventory) -> Iterable[Resource]:
    """Yield an object in the bucket if the association exports files."""
    if section(association.inputs, "s3", "autoExportPolicy").get("events"):
        bucket = bucket_of(association.inputs["dataRepositoryPath"])
        inputs = {"bucket": bucket, "key": "exported-by-fsx"}
        yield Resource(
            token=OBJECT, id=f"{bucket}/exported-by-fsx", urn=association.urn, inputs=inputs,
            outputs=inputs, acknowledged=True, owner=f"s3:{bucket}",
        )  # fmt: skip


TYPES = (
    ResourceType(
        token=FILE_SYSTEM,
        identify=id_with_prefix("fs"),
        describe=_describe_file_system,
        defaults={
            "deploymentType": "SCRATCH_1",
            "storageType": "SSD",
            "dataCompressionType": "NONE",
        },
        immutable=("subnetIds", "securityGroupIds", "deploymentType", "storageType", "kmsKeyId",
                   "backupId", "efaEnabled", "importPath", "exportPath", "importedFileChunkSize",
                   "driveCacheType", "copyTagsToBackups", "region"),
        replacing_inputs=_replacing_inputs,
        enums={"fileSystemTypeVersion": ("2.10", "2.12", "2.15")},
        rules=(
            InputRule("storage of a file system", CREATE_SYSTEM, _storage_type),
            InputRule("drive cache of a file system", CREATE_SYSTEM, _drive_cache),
            InputRule("size of a file system", CREATE_SYSTEM, _capacity),
            InputRule("throughput of a file system", CREATE_SYSTEM, _throughput),
            InputRule("Intelligent-Tiering only", CREATE_SYSTEM, _tiering_only),
            InputRule("Intelligent-Tiering of a file system", CREATE_SYSTEM, _tiering),
            InputRule("PERSISTENT only", f"{GUIDE}, deployment options", _persistent_only),
            InputRule("Lustre version of a file system", CREATE_SYSTEM, _version),
            InputRule("metadata of a file system", CREATE_SYSTEM, _metadata),
            InputRule("EFA of a file system", f"{GUIDE}, EFA", _efa),
            value_rule("one zone of a file system", "subnetIds",
                       matches(r"[^,]*", "is more than one: a file system is in one zone, and so in "
                               "one subnet"), CREATE_SYSTEM),
        ),
        references=(
            in_subnets("subnetIds"),
            in_groups("securityGroupIds.*"),
            to_key("kmsKeyId", "BadRequest"),
        ),
        preconditions=(
            Precondition("Lustre ports between servers", f"{GUIDE}, access control with VPC",
                         "InvalidNetworkSettings", _lustre_open),
            Precondition("a file system only grows", f"{GUIDE}, managing storage capacity", "BadRequest",
                         _only_grows),
            Precondition("Lustre version only grows", "FSx API, UpdateFileSystem", "BadRequest", _version_grows),
            Precondition("no backups while linked", f"{GUIDE}, data repositories", "BadRequest",
                         _not_backed_up),
        ),
    ),
    ResourceType(
        token=ASSOCIATION,
        identify=id_with_prefix("dra"),
        describe=lambda request: {
            "arn": arn(
                "fsx", f"association/{request.inputs['fileSystemId']}/{request.id}", request.region
            ),
            "associationId": request.id,
        },
        companions=_exported_object,
        immutable=("fileSystemId", "fileSystemPath", "dataRepositoryPath",
                   "batchImportMetaDataOnCreate", "region"),
        rules=(
            value_rule("path of an association", "fileSystemPath", matches("/.*", "must begin with /"),
                       CREATE),
            value_rule("bucket path of an association", "dataRepositoryPath",
                       matches(r"s3://[a-z0-9.-]{3,63}(/.*)?", "is not of the form s3://bucket/prefix"),
                       CREATE),
            InputRule("events of an association", CREATE, _events),
        ),
        references=(
            Reference("fileSystemId", (FILE_SYSTEM,), "FileSystemNotFound", "BadRequest"),
        ),
        preconditions=(
            Precondition("bucket of an association", CREATE, "BadRequest", _bucket_exists),
            Precondition("associations do not overlap", LINKING, "BadRequest", _paths_disjoint),
            Precondition("file system of an association", LINKING, "BadRequest", _supports_associations),
            Precondition("no backups of a linked file system", f"{GUIDE}, data repositories",
                         "BadRequest", _not_backed_up),
        ),
    ),
)  # fmt: skip
