"""The S3 bucket of data and checkpoints: created, or an existing one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import s3

from components.component import Component

OLD_VERSION_DAYS = 30  # retention of overwritten and deleted versions
UNFINISHED_UPLOAD_DAYS = 7


@dataclass(frozen=True, kw_only=True)
class BucketArgs:
    """Arguments of a Bucket.

    Attributes:
        existing: name of an existing bucket; None: a new one is created.
        prefix: prefix of a new bucket's name, at most 37 characters.
        keep: whether a new bucket, its settings and its folders are protected against deletion and retained;
            folders of an existing bucket are only retained.
        folders: folder -> its S3 metadata; created empty.
        kms_key_arn: existing key for the objects of a new bucket; None: an S3-managed key.
    """

    existing: pulumi.Input[str] | None
    prefix: str
    keep: bool
    folders: Mapping[str, Mapping[str, str]]
    kms_key_arn: pulumi.Input[str] | None = None


class Bucket(Component):
    """A bucket; a new one is private, encrypted and versioned.

    Attributes:
        bucket_name: name of the bucket.
        prerequisites: resources that must exist before the bucket is used.
    """

    bucket_name: pulumi.Output[str]
    prerequisites: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("storage:Bucket", name, opts)
        self._args = args
        settings: list[pulumi.Resource] = []
        if args.existing is None:
            bucket = self._create()
            self.bucket_name = bucket.bucket
            settings = self._settings(bucket)
        else:
            self.bucket_name = pulumi.Output.from_input(args.existing)
        folders = [self._folder(folder, settings) for folder in args.folders]
        self.prerequisites = (*settings, *folders)
        self.register_outputs({"name": self.bucket_name})

    def _options(self, depends_on: Sequence[pulumi.Resource] = ()) -> pulumi.ResourceOptions:
        """Return the options that protect and retain a kept bucket together with its settings and folders."""
        keep = self._args.keep
        return self.child(
            depends_on=depends_on,
            protect=keep and self._args.existing is None,
            retain_on_delete=keep,
        )

    def _create(self) -> s3.Bucket:
        """Declare the bucket; unless it is kept, it is emptied before it is deleted."""
        return s3.Bucket(
            f"{self.name}-bucket",
            bucket_prefix=self._args.prefix,
            force_destroy=not self._args.keep,
            opts=self._options(),
        )

    def _settings(self, bucket: s3.Bucket) -> list[pulumi.Resource]:
        """Declare the settings of the bucket; each is a separate resource in the API of AWS."""
        block = self._block(bucket)
        return [
            block,
            s3.BucketVersioning(
                f"{self.name}-versions",
                bucket=bucket.id,
                versioning_configuration={"status": "Enabled"},
                opts=self._options(),
            ),
            self._encryption(bucket),
            self._lifecycle(bucket),
            self._encrypted_transport(bucket, block),
        ]

    def _block(self, bucket: s3.Bucket) -> s3.BucketPublicAccessBlock:
        return s3.BucketPublicAccessBlock(
            f"{self.name}-private",
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._options(),
        )

    def _encryption(self, bucket: s3.Bucket) -> s3.BucketServerSideEncryptionConfiguration:
        """Declare the encryption, by default with an S3-managed key: a KMS key needs a policy for the role of FSx."""
        key_arn = self._args.kms_key_arn
        default_encryption = (
            s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
                sse_algorithm="AES256" if key_arn is None else "aws:kms", kms_master_key_id=key_arn
            )
        )
        rule = s3.BucketServerSideEncryptionConfigurationRuleArgs(
            apply_server_side_encryption_by_default=default_encryption,
            bucket_key_enabled=None
            if key_arn is None
            else True,  # one request to KMS for many objects
        )
        return s3.BucketServerSideEncryptionConfiguration(
            f"{self.name}-encryption",
            bucket=bucket.id,
            rules=[rule],
            opts=self._options(),
        )

    def _lifecycle(self, bucket: s3.Bucket) -> s3.BucketLifecycleConfiguration:
        """Expire old versions, which would otherwise keep every pruned checkpoint."""
        return s3.BucketLifecycleConfiguration(
            f"{self.name}-lifecycle",
            bucket=bucket.id,
            rules=[
                {
                    "id": "old-versions",
                    "status": "Enabled",
                    "filter": {"prefix": ""},  # all objects
                    "noncurrent_version_expiration": {"noncurrent_days": OLD_VERSION_DAYS},
                    "expiration": {"expired_object_delete_marker": True},
                    "abort_incomplete_multipart_upload": {
                        "days_after_initiation": UNFINISHED_UPLOAD_DAYS
                    },
                }
            ],
            opts=self._options(),
        )

    def _encrypted_transport(self, bucket: s3.Bucket, block: pulumi.Resource) -> s3.BucketPolicy:
        """Refuse requests without TLS."""
        statement = {
            "Sid": "OnlyByTls",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [bucket.arn, pulumi.Output.concat(bucket.arn, "/*")],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
        document = {"Version": "2012-10-17", "Statement": [statement]}
        return s3.BucketPolicy(
            f"{self.name}-transport",
            bucket=bucket.id,
            policy=pulumi.Output.json_dumps(document),
            opts=self._options([block]),  # S3 refuses concurrent changes of access
        )

    def _folder(self, folder: str, depends_on: Sequence[pulumi.Resource]) -> s3.BucketObjectv2:
        """Declare an empty folder, whose metadata FSx may change.

        It gets no default tags: S3 allows at most ten tags on an object, and a stack may set more.
        """
        return s3.BucketObjectv2(
            f"{self.name}-{folder}",
            bucket=self.bucket_name,
            key=f"{folder}/",
            content_type="application/x-directory",
            metadata=dict(self._args.folders[folder]),
            kms_key_id=None if self._args.existing else self._args.kms_key_arn,
            override_provider=s3.BucketObjectv2OverrideProviderArgs(
                default_tags=s3.BucketObjectv2OverrideProviderDefaultTagsArgs(tags={})
            ),
            opts=pulumi.ResourceOptions.merge(
                self._options(depends_on),
                pulumi.ResourceOptions(ignore_changes=["metadata", "contentType"]),
            ),
        )
