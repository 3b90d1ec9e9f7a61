"""Repositories in ECR for the images that are built from this repository.

Tags are immutable: the tag of a past job still identifies its image, and running workers cannot get another image.
Only a limited number of images is kept, since an image takes several gigabytes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import ecr

from components.component import Component
from components.config import RegistryConfig
from everstep.catalog.names import IMAGES

PULL_ACTIONS = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
)


@dataclass(frozen=True, kw_only=True)
class EcrArgs:
    """Arguments of an Ecr.

    Attributes:
        config: the `registry` section of a stack.
        puller: ARN of the role that may pull; None: roles of the account pull by their own policies.
        protect: whether the repositories, with their images, are protected against deletion.
        kms_key_arn: existing key for the images; None: an S3-managed key.
    """

    config: RegistryConfig
    puller: pulumi.Input[str] | None
    protect: bool
    kms_key_arn: pulumi.Input[str] | None = None


class Ecr(Component):
    """One repository per image.

    Attributes:
        address: host and path, the part of an image reference before `/<image>:<tag>`.
    """

    address: pulumi.Output[str]

    def __init__(
        self, name: str, args: EcrArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("registry:Ecr", name, opts)
        self._args = args
        repositories = [self._repository(image) for image in IMAGES]
        self.address = repositories[0].repository_url.apply(lambda url: url.rpartition("/")[0])
        self.register_outputs({"address": self.address})

    def _repository(self, image: str) -> ecr.Repository:
        """Declare the repository of an image, with its lifecycle policy and its pull policy."""
        repository = ecr.Repository(
            f"{self.name}-{image}",
            name=f"{self._args.config.name}/{image}",
            image_tag_mutability="IMMUTABLE",
            force_delete=not self._args.protect,
            encryption_configurations=[_encryption(self._args.kms_key_arn)],
            image_scanning_configuration={"scan_on_push": True},
            opts=self.child(protect=self._args.protect, delete_before_replace=True),
        )
        ecr.LifecyclePolicy(
            f"{self.name}-{image}-lifecycle",
            repository=repository.name,
            policy=json.dumps(lifecycle(self._args.config.keep_images)),
            opts=self.child(),
        )
        if self._args.puller is not None:
            ecr.RepositoryPolicy(
                f"{self.name}-{image}-pull",
                repository=repository.name,
                policy=pulumi.Output.json_dumps(pull_policy(self._args.puller)),
                opts=self.child(),
            )
        return repository


def _encryption(kms_key_arn: pulumi.Input[str] | None) -> ecr.RepositoryEncryptionConfigurationArgs:
    """Return the encryption of a repository, which cannot be changed later."""
    return ecr.RepositoryEncryptionConfigurationArgs(
        encryption_type="AES256" if kms_key_arn is None else "KMS", kms_key=kms_key_arn
    )


def lifecycle(images: int) -> Mapping[str, object]:
    """Return the lifecycle policy that keeps the newest images.

    Args:
        images: number of images to keep in each repository.
    """
    selection = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": images}
    rule = {
        "rulePriority": 1,
        "description": f"Keep the newest {images}",
        "selection": selection,
        "action": {"type": "expire"},
    }
    return {"rules": [rule]}


def pull_policy(principal: pulumi.Input[str]) -> Mapping[str, object]:
    """Return the repository policy that lets one role pull."""
    statement = {
        "Sid": "NodesPull",
        "Effect": "Allow",
        "Principal": {"AWS": principal},
        "Action": list(PULL_ACTIONS),
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
