"""FSx for Lustre linked to an S3 bucket: fast for many small files, and durable in the bucket.

The file system imports the metadata of the bucket immediately and contents on first use, and exports new
files. The exports are asynchronous, and FSx does not guarantee when they complete: a SCRATCH_2 file system, which has
no replica, can lose the files that it has not exported yet. A data repository association declares import and
export; the import and export paths of a file system are an older mechanism and cannot be changed later.

Workers are not run as root, but the root folder of a Lustre file system belongs to root. The folders
that they write are therefore created in the bucket before the file system, with their owner in the
metadata that FSx reads: no pod needs to run as root to change it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from cloudfacts.aws import LUSTRE_PORTS
from pulumi_aws import ec2, fsx, vpc
from pulumi_kubernetes import core

from components.aws.bucket import Bucket, BucketArgs
from components.aws.encryption import declare_key
from components.component import Component
from components.config import FsxConfig, FsxFileSystemConfig
from components.config.eks import MIN_THROUGHPUT
from components.interface import VolumeSource, data_folder, run_folder
from components.platform.pods import USER

DRIVER = "fsx.csi.aws.com"
LUSTRE_VERSION = "2.15"
EVENTS = ("NEW", "CHANGED", "DELETED")
MOUNT_OPTIONS = ("flock",)  # file locks that work across nodes
IMPORT_TIMEOUT = "30m"  # the default is too short to import the metadata of a large bucket
CREATE_TIMEOUT = "60m"


@dataclass(frozen=True, kw_only=True)
class FsxArgs:
    """Arguments of an Fsx.

    Attributes:
        config: the `storage` section of a stack.
        cluster: name of the cluster, prefix of all names.
        stack: name of the stack, for a unique bucket name.
        region: AWS region.
        account: AWS account, twelve digits.
        vpc_id: VPC of the subnet.
        subnet_id: subnet in the zone of the preferred GPU pool.
        node_security_group: security group of the nodes that mount it.
        protect: whether Pulumi refuses to delete the data, and retains the bucket.
        kms_key_arn: existing key for the data; None: a new key for a PERSISTENT_2 file system.
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
    kms_key_arn: pulumi.Input[str] | None = None


class Fsx(Component):
    """A file system and its volume.

    Attributes:
        volume: the volume, for the cluster.
        arn: ARN of the file system.
        outputs: stack outputs.
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
            self._create()
        else:
            self._use(args.config.existing)
        self.register_outputs({"arn": self.arn})

    def _use(self, existing: FsxFileSystemConfig) -> None:
        """Use an existing file system, whose rules, bucket and folders are not managed here."""
        system_id = pulumi.Output.from_input(existing.file_system_id)
        self.arn = pulumi.Output.concat(
            f"arn:aws:fsx:{self._args.region}:",
            self._args.account,
            ":file-system/",
            existing.file_system_id,
        )
        location = pulumi.Output.concat("fsx://", existing.file_system_id)
        self.volume = self._source(system_id, existing.dns_name, existing.mount_name, location, ())
        self.outputs = {"fileSystem": existing.file_system_id}

    def _create(self) -> None:
        """Declare the bucket, the file system, their association, and the security group rules."""
        bucket = self._bucket()
        group, own_rules = self._security_group()
        system = self._file_system(group, own_rules)
        association = self._association(system, bucket)
        node_rules = self._node_rules(group)
        self.arn = system.arn
        location = pulumi.Output.concat("s3://", bucket.bucket_name)
        prerequisites = (system, association, *node_rules)
        self.volume = self._source(
            system.id, system.dns_name, system.mount_name, location, prerequisites
        )
        self.outputs = {"fileSystem": system.id, "bucket": bucket.bucket_name}

    def _bucket(self) -> Bucket:
        """Declare the bucket, or use an existing one, with folders that workers may write."""
        args = BucketArgs(
            existing=self._config.bucket,
            prefix=bucket_prefix(self._args.cluster, self._args.stack),
            keep=self._args.protect or self._config.keep,
            folders={
                folder.partition("/")[0]: posix_metadata(USER)
                for folder in (data_folder(""), run_folder(""))
            },
            kms_key_arn=self._args.kms_key_arn,
        )
        return Bucket(f"{self.name}-bucket", args, self.child())

    def _security_group(self) -> tuple[ec2.SecurityGroup, list[pulumi.Resource]]:
        """Declare the group of the file system; FSx requires rules for traffic between its servers."""
        group_name = f"{self._args.cluster}-fsx"
        group = ec2.SecurityGroup(
            f"{self.name}-group",
            name=group_name,
            description="Lustre between the file system and its clients",
            vpc_id=self._args.vpc_id,
            revoke_rules_on_delete=True,
            tags={"Name": group_name},
            opts=self.child(delete_before_replace=True),
        )
        rules = [
            *self._allow("servers", group.id, group.id, ingress=True),
            *self._allow("servers", group.id, group.id, ingress=False),
        ]
        return group, rules

    def _node_rules(self, group: ec2.SecurityGroup) -> list[pulumi.Resource]:
        """Allow traffic between nodes and servers, in both directions: servers call clients back."""
        nodes = self._args.node_security_group
        return [
            *self._allow("nodes", group.id, nodes, ingress=True),
            *self._allow("nodes", group.id, nodes, ingress=False),
            *self._allow("to-nodes", nodes, group.id, ingress=True, peer="the file system"),
        ]

    def _allow(
        self,
        key: str,
        group: pulumi.Input[str],
        peer_group: pulumi.Input[str],
        *,
        ingress: bool,
        peer: str | None = None,
    ) -> list[pulumi.Resource]:
        """Allow traffic between two security groups on the ports of Lustre, in one direction.

        Args:
            key: part of the logical names of the rules.
            group: security group to which the rules belong.
            peer_group: security group at the other end.
            ingress: whether traffic goes from `peer_group` to `group`; False: from `group` to `peer_group`.
            peer: name of the other end in the description of the rules; None: `key`.
        """
        rule = vpc.SecurityGroupIngressRule if ingress else vpc.SecurityGroupEgressRule
        direction = "from" if ingress else "to"
        return [
            rule(
                f"{self.name}-{key}-{'in' if ingress else 'out'}-{first}",
                security_group_id=group,
                referenced_security_group_id=peer_group,
                ip_protocol="tcp",
                from_port=first,
                to_port=last,
                description=f"Lustre {direction} {peer or key}",
                opts=self.child(),
            )
            for first, last in LUSTRE_PORTS
        ]

    def _file_system(
        self, group: ec2.SecurityGroup, rules: list[pulumi.Resource]
    ) -> fsx.LustreFileSystem:
        """Declare the file system, in one zone."""
        config, protect = self._config, self._args.protect
        persistent = config.deployment_type == "PERSISTENT_2"
        return fsx.LustreFileSystem(
            f"{self.name}-system",
            subnet_ids=self._args.subnet_id,
            security_group_ids=[group.id],
            deployment_type=config.deployment_type,
            storage_type="SSD",
            storage_capacity=config.size_gib,
            per_unit_storage_throughput=(
                config.throughput or MIN_THROUGHPUT if persistent else None
            ),
            file_system_type_version=LUSTRE_VERSION,
            data_compression_type=config.compression,
            kms_key_id=self._key_arn()
            if persistent
            else None,  # SCRATCH_2 supports only a key that FSx manages
            skip_final_backup=True,  # FSx makes no backups of a file system that is linked to S3
            tags={"Name": self._args.cluster},
            opts=self.child(depends_on=rules, protect=protect, timeout=CREATE_TIMEOUT),
        )

    def _key_arn(self) -> pulumi.Input[str]:
        """Return the ARN of the existing key, or of a new one."""
        if self._args.kms_key_arn is not None:
            return self._args.kms_key_arn
        description = f"The file system of {self._args.cluster}"
        return declare_key(self, "key", description, protect=self._args.protect).arn

    def _association(
        self, system: fsx.LustreFileSystem, bucket: Bucket
    ) -> fsx.DataRepositoryAssociation:
        """Declare the import and export of the whole file system from and to the bucket."""
        return fsx.DataRepositoryAssociation(
            f"{self.name}-association",
            file_system_id=system.id,
            file_system_path="/",
            data_repository_path=pulumi.Output.concat("s3://", bucket.bucket_name),
            batch_import_meta_data_on_create=True,
            delete_data_in_filesystem=False,
            s3=fsx.DataRepositoryAssociationS3Args(
                auto_import_policy=fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(
                    events=list(EVENTS)
                ),
                auto_export_policy=fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(
                    events=list(EVENTS)
                ),
            ),
            opts=self.child(
                depends_on=bucket.prerequisites, delete_before_replace=True, timeout=IMPORT_TIMEOUT
            ),
        )

    def _source(
        self,
        system_id: pulumi.Output[str],
        dns_name: pulumi.Input[str],
        mount_name: pulumi.Input[str],
        location: pulumi.Output[str],
        prerequisites: tuple[pulumi.Resource, ...],
    ) -> VolumeSource:
        """Return the volume, in the form that the CSI driver expects."""
        return VolumeSource(
            spec={
                "csi": core.v1.CSIPersistentVolumeSourceArgs(
                    driver=DRIVER,
                    volume_handle=system_id,
                    volume_attributes={"dnsname": dns_name, "mountname": mount_name},
                )
            },
            location=location,
            size=f"{self._config.size_gib}Gi",
            mount_options=MOUNT_OPTIONS,
            prerequisites=prerequisites,
        )


def bucket_prefix(cluster: str, stack: str) -> str:
    """Return the prefix of a bucket name, at most 37 characters; the provider appends a unique suffix."""
    clean = re.sub(r"[^a-z0-9]+", "-", f"{cluster}-{stack}".lower()).strip("-")
    return f"{clean[:36].rstrip('-')}-"


def posix_metadata(owner: int) -> dict[str, str]:
    """Return the S3 metadata with which FSx makes a folder private to its owner and group."""
    return {
        "user-agent": "aws-fsx-lustre",
        "file-owner": str(owner),
        "file-group": str(owner),
        "file-permissions": "0040770",  # directory, rwxrwx---
    }
