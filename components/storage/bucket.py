"""The S3 bucket that keeps data and checkpoints: made, or the user's own."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.part import Part

OLD_VERSION_DAYS = 30  # that a version is kept once it was overwritten or deleted
UNFINISHED_UPLOAD_DAYS = 7


@dataclass(frozen=True, kw_only=True)
class BucketArgs:
    """What to make.

    Attributes:
        existing: name of the user's own bucket; None: one is made.
        prefix: of the name of the one that is made, at most 37 characters.
        keep: whether it refuses to be deleted, and outlives the stack with all that guards it.
        folders: folder -> its S3 metadata; put there empty.
    """

    existing: str | None
    prefix: str
    keep: bool
    folders: Mapping[str, Mapping[str, str]]


class Bucket(Part):
    """A bucket that is private, encrypted and versioned.

    Attributes:
        bucket_name: its name.
        ready: what must be there before anything uses it.
    """

    bucket_name: pulumi.Output[str]
    ready: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: BucketArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("storage:Bucket", name, opts)
        self._args = args
        guards = []
        if args.existing is None:
            made = self._make()
            self.bucket_name = made.bucket
            guards = self._guards(made)
        else:
            self.bucket_name = pulumi.Output.from_input(args.existing)
        self.ready = (*guards, *(self._folder(folder, guards) for folder in args.folders))
        self.register_outputs({"name": self.bucket_name})

    def _options(self, after: "list[pulumi.Resource] | None" = None) -> pulumi.ResourceOptions:
        """Give options by which a bucket that is kept stays as guarded as it was."""
        return self.child(after=after or (), retain_on_delete=self._args.keep)

    def _make(self) -> aws.s3.Bucket:
        """Declare the bucket; one that need not be kept is emptied before it is deleted."""
        return aws.s3.Bucket(
            f"{self.name}-bucket",
            bucket_prefix=self._args.prefix,
            force_destroy=not self._args.keep,
            opts=self.child(protect=self._args.keep, retain_on_delete=self._args.keep),
        )

    def _guards(self, bucket: aws.s3.Bucket) -> list[pulumi.Resource]:
        """Declare all that guards it, each in a resource of its own, as AWS has it."""
        block = self._block(bucket)
        return [
            block,
            aws.s3.BucketVersioning(
                f"{self.name}-versions",
                bucket=bucket.id,
                versioning_configuration={"status": "Enabled"},
                opts=self._options(),
            ),
            self._encryption(bucket),
            self._lifecycle(bucket),
            self._encrypted_transport(bucket, block),
        ]

    def _block(self, bucket: aws.s3.Bucket) -> aws.s3.BucketPublicAccessBlock:
        return aws.s3.BucketPublicAccessBlock(
            f"{self.name}-private",
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._options(),
        )

    def _encryption(self, bucket: aws.s3.Bucket) -> aws.s3.BucketServerSideEncryptionConfiguration:
        """Encrypt with S3's own key: FSx's role could not use one of KMS without a policy of its."""
        return aws.s3.BucketServerSideEncryptionConfiguration(
            f"{self.name}-encryption",
            bucket=bucket.id,
            rules=[{"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}],
            opts=self._options(),
        )

    def _lifecycle(self, bucket: aws.s3.Bucket) -> aws.s3.BucketLifecycleConfiguration:
        """Let go of old versions: each checkpoint that was pruned would be paid for for ever."""
        return aws.s3.BucketLifecycleConfiguration(
            f"{self.name}-lifecycle",
            bucket=bucket.id,
            rules=[
                {
                    "id": "old-versions",
                    "status": "Enabled",
                    "filter": {"prefix": ""},  # all that the bucket holds
                    "noncurrent_version_expiration": {"noncurrent_days": OLD_VERSION_DAYS},
                    "abort_incomplete_multipart_upload": {
                        "days_after_initiation": UNFINISHED_UPLOAD_DAYS
                    },
                }
            ],
            opts=self._options(),
        )

    def _encrypted_transport(
        self, bucket: aws.s3.Bucket, block: pulumi.Resource
    ) -> aws.s3.BucketPolicy:
        """Refuse whatever does not come by TLS."""
        statement = {
            "Sid": "OnlyByTls",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [bucket.arn, pulumi.Output.concat(bucket.arn, "/*")],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
        document = {"Version": "2012-10-17", "Statement": [statement]}
        return aws.s3.BucketPolicy(
            f"{self.name}-transport",
            bucket=bucket.id,
            policy=pulumi.Output.json_dumps(document),
            opts=self._options([block]),  # S3 refuses two changes of a bucket's access at once
        )

    def _folder(self, folder: str, after: list[pulumi.Resource]) -> aws.s3.BucketObjectv2:
        """Declare an empty folder; whoever uses it may rewrite what is known about it."""
        return aws.s3.BucketObjectv2(
            f"{self.name}-{folder}",
            bucket=self.bucket_name,
            key=f"{folder}/",
            content_type="application/x-directory",
            metadata=dict(self._args.folders[folder]),
            opts=pulumi.ResourceOptions.merge(
                self._options(after),
                pulumi.ResourceOptions(ignore_changes=["metadata", "contentType"]),
            ),
        )
