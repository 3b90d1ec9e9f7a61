"""FSx for Lustre over an S3 bucket: fast for many small files, and what it holds is in the bucket.

The file system imports what is in the bucket by name at once and by content on first use, and
exports what is written, so that a SCRATCH_2 file system, which has no replica, loses what the last
seconds wrote and no more. A data repository association does this; the import and export paths of
a file system itself are older and cannot be changed afterwards.

Workers are no root and the root folder of a Lustre file system is root's. The folders they write in
are therefore put into the bucket before the file system is, with the owner in the metadata that FSx
reads: no pod needs to run as root to give them away.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
from pulumi_kubernetes import core

from components.config import FsxConfig, FsxFileSystemConfig
from components.encryption import key
from components.part import Part
from components.platform.pods import USER
from components.storage import VolumeSource, data_folder, run_folder
from components.storage.bucket import Bucket, BucketArgs

DRIVER = "fsx.csi.aws.com"
LUSTRE_VERSION = "2.15"
LUSTRE_PORTS = ((988, 988), (1018, 1023))  # FSx: "File system access control with Amazon VPC"
EVENTS = ("NEW", "CHANGED", "DELETED")
MOUNT_OPTIONS = ("flock",)  # locks that hold between nodes, not only on one
LEAST_THROUGHPUT = 125  # MB/s a TiB, of PERSISTENT_2


@dataclass(frozen=True, kw_only=True)
class FsxArgs:
    """What to make, and where.

    Attributes:
        config: the stack's `storage` section.
        cluster: name of the cluster, which all names begin with.
        stack: name of the stack, for a bucket's name that is unique.
        region: AWS region.
        account: AWS account, twelve digits.
        vpc_id: of the subnet.
        subnet_id: in the zone of the GPU nodes.
        node_security_group: of the nodes that mount it.
        protect: whether data refuses to be deleted, and outlives the stack.
    """

    config: FsxConfig
    cluster: str
    stack: str
    region: str
    account: pulumi.Input[str]
    vpc_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    node_security_group: pulumi.Input[str]
    protect: bool


class Fsx(Part):
    """A file system and the volume over it.

    Attributes:
        volume: for the cluster.
        arn: of the file system.
        outputs: what a person wants to know of it.
    """

    volume: VolumeSource
    arn: pulumi.Output[str]
    outputs: Mapping[str, pulumi.Input[object]]

    def __init__(
        self, name: str, args: FsxArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("storage:Fsx", name, opts)
        self._args, self._config = args, args.config
        if args.config.existing is None:
            self._make()
        else:
            self._take(args.config.existing)
        self.register_outputs({"arn": self.arn})

    def _take(self, there: FsxFileSystemConfig) -> None:
        """Use the user's: its network rules, its bucket and its folders' owners are theirs."""
        identity = pulumi.Output.from_input(there.file_system_id)
        self.arn = pulumi.Output.concat(
            f"arn:aws:fsx:{self._args.region}:",
            self._args.account,
            ":file-system/",
            there.file_system_id,
        )
        where = pulumi.Output.concat("fsx://", there.file_system_id)
        self.volume = self._source(identity, there.dns_name, there.mount_name, where, ())
        self.outputs = {"fileSystem": there.file_system_id}

    def _make(self) -> None:
        """Declare bucket, file system, what ties them together, and who may reach it."""
        bucket = self._bucket()
        group, own_rules = self._security_group()
        system = self._file_system(group, own_rules)
        tie = self._association(system, bucket)
        node_rules = self._node_rules(group)
        self.arn = system.arn
        where = pulumi.Output.concat("s3://", bucket.bucket_name)
        ready = (system, tie, *node_rules)
        self.volume = self._source(system.id, system.dns_name, system.mount_name, where, ready)
        self.outputs = {"fileSystem": system.id, "bucket": bucket.bucket_name}

    def _bucket(self) -> Bucket:
        """Declare what keeps the data, or find the user's, with folders that workers may write."""
        args = BucketArgs(
            existing=self._config.bucket,
            prefix=bucket_prefix(self._args.cluster, self._args.stack),
            keep=self._args.protect,
            folders={
                folder.partition("/")[0]: posix_metadata(USER)
                for folder in (data_folder(""), run_folder(""))
            },
        )
        return Bucket(f"{self.name}-bucket", args, self.child())

    def _security_group(self) -> tuple[aws.ec2.SecurityGroup, list[pulumi.Resource]]:
        """Declare the file system's own group; FSx refuses one that does not let its servers talk."""
        named = f"{self._args.cluster}-fsx"
        group = aws.ec2.SecurityGroup(
            f"{self.name}-group",
            name=named,
            description="Lustre between the file system and its clients",
            vpc_id=self._args.vpc_id,
            revoke_rules_on_delete=True,
            tags={"Name": named},
            opts=self.child(delete_before_replace=True),
        )
        rules = self._let("servers", group.id, group.id, receiving=True)
        return group, [*rules, *self._let("servers", group.id, group.id, receiving=False)]

    def _node_rules(self, group: aws.ec2.SecurityGroup) -> list[pulumi.Resource]:
        """Let nodes and servers talk; Lustre's servers also call their clients."""
        nodes = self._args.node_security_group
        return [
            *self._let("nodes", group.id, nodes, receiving=True),
            *self._let("nodes", group.id, nodes, receiving=False),
            *self._let("to-nodes", nodes, group.id, receiving=True),
        ]

    def _let(
        self,
        who: str,
        group: pulumi.Input[str],
        other: pulumi.Input[str],
        *,
        receiving: bool,
    ) -> list[pulumi.Resource]:
        """Let `group` hear from `other`, or speak to it, on Lustre's ports."""
        rule = aws.vpc.SecurityGroupIngressRule if receiving else aws.vpc.SecurityGroupEgressRule
        way = "from" if receiving else "to"
        return [
            rule(
                f"{self.name}-{who}-{'in' if receiving else 'out'}-{first}",
                security_group_id=group,
                referenced_security_group_id=other,
                ip_protocol="tcp",
                from_port=first,
                to_port=last,
                description=f"Lustre {way} {who}",
                opts=self.child(),
            )
            for first, last in LUSTRE_PORTS
        ]

    def _file_system(
        self, group: aws.ec2.SecurityGroup, rules: list[pulumi.Resource]
    ) -> aws.fsx.LustreFileSystem:
        """Declare the file system, in one zone."""
        config, protect = self._config, self._args.protect
        persistent = config.deployment_type == "PERSISTENT_2"
        what = f"The file system of {self._args.cluster}"
        own = key(self, "key", what, protect=protect) if persistent else None
        return aws.fsx.LustreFileSystem(
            f"{self.name}-system",
            subnet_ids=self._args.subnet_id,
            security_group_ids=[group.id],
            deployment_type=config.deployment_type,
            storage_type="SSD",
            storage_capacity=config.size_gib,
            per_unit_storage_throughput=(
                config.throughput or LEAST_THROUGHPUT if persistent else None
            ),
            file_system_type_version=LUSTRE_VERSION,
            data_compression_type=config.compression,
            kms_key_id=own.arn if own else None,  # SCRATCH_2 knows FSx's own key only
            automatic_backup_retention_days=config.backup_days if persistent else None,
            copy_tags_to_backups=True if persistent and config.backup_days else None,
            skip_final_backup=not (persistent and protect),
            tags={"Name": self._args.cluster},
            opts=self.child(after=rules, protect=protect),
        )

    def _association(
        self, system: aws.fsx.LustreFileSystem, bucket: Bucket
    ) -> aws.fsx.DataRepositoryAssociation:
        """Tie the whole file system to the bucket, both ways."""
        return aws.fsx.DataRepositoryAssociation(
            f"{self.name}-association",
            file_system_id=system.id,
            file_system_path="/",
            data_repository_path=pulumi.Output.concat("s3://", bucket.bucket_name),
            batch_import_meta_data_on_create=True,
            delete_data_in_filesystem=False,
            s3=aws.fsx.DataRepositoryAssociationS3Args(
                auto_import_policy=aws.fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(
                    events=list(EVENTS)
                ),
                auto_export_policy=aws.fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(
                    events=list(EVENTS)
                ),
            ),
            opts=self.child(after=bucket.ready, delete_before_replace=True),
        )

    def _source(
        self,
        identity: pulumi.Output[str],
        dns_name: pulumi.Input[str],
        mount_name: pulumi.Input[str],
        where: pulumi.Output[str],
        ready: tuple[pulumi.Resource, ...],
    ) -> VolumeSource:
        """Give the volume as the CSI driver takes it."""
        return VolumeSource(
            spec={
                "csi": core.v1.CSIPersistentVolumeSourceArgs(
                    driver=DRIVER,
                    volume_handle=identity,
                    volume_attributes={"dnsname": dns_name, "mountname": mount_name},
                )
            },
            where=where,
            size=f"{self._config.size_gib}Gi",
            mount_options=MOUNT_OPTIONS,
            ready=ready,
        )


def bucket_prefix(cluster: str, stack: str) -> str:
    """Give the beginning of a bucket's name, to which AWS adds what makes it unique: 37 at most."""
    clean = re.sub(r"[^a-z0-9]+", "-", f"{cluster}-{stack}".lower()).strip("-")
    return f"{clean[:36].rstrip('-')}-"


def posix_metadata(owner: int) -> dict[str, str]:
    """Give the S3 metadata by which FSx makes a folder the owner's, and open to nobody else."""
    return {
        "user-agent": "aws-fsx-lustre",
        "file-owner": str(owner),
        "file-group": str(owner),
        "file-permissions": "0040770",  # a folder, rwxrwx---
    }
