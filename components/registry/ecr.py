"""Repositories in ECR for the images that the stack's own sources make.

A tag is written once: what a job ran can be said afterwards, and nobody swaps an image under a
running fleet. Only so many images are kept, since each is some gigabytes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.config import RegistryConfig
from components.part import Part

IMAGES = ("trainer", "controller", "spot")  # those that have a Dockerfile here
PULLING = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
)


@dataclass(frozen=True, kw_only=True)
class EcrArgs:
    """What to make.

    Attributes:
        config: the stack's `registry` section.
        puller: ARN of the role that may pull: the nodes'.
        protect: whether repositories that hold images refuse to be deleted.
    """

    config: RegistryConfig
    puller: pulumi.Input[str]
    protect: bool


class Ecr(Part):
    """One repository for each image.

    Attributes:
        address: host and path, to which `/<image>:<tag>` is added.
    """

    address: pulumi.Output[str]

    def __init__(
        self, name: str, args: EcrArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("registry:Ecr", name, opts)
        self._args = args
        made = [self._repository(image) for image in IMAGES]
        self.address = made[0].repository_url.apply(lambda url: url.rpartition("/")[0])
        self.register_outputs({"address": self.address})

    def _repository(self, image: str) -> aws.ecr.Repository:
        """Declare an image's repository, what it keeps and who may pull."""
        repository = aws.ecr.Repository(
            f"{self.name}-{image}",
            name=f"{self._args.config.name}/{image}",
            image_tag_mutability="IMMUTABLE",
            force_delete=not self._args.protect,
            encryption_configurations=[{"encryption_type": "AES256"}],
            image_scanning_configuration={"scan_on_push": True},
            opts=self.child(protect=self._args.protect, delete_before_replace=True),
        )
        aws.ecr.LifecyclePolicy(
            f"{self.name}-{image}-lifecycle",
            repository=repository.name,
            policy=json.dumps(keeping(self._args.config.keep_images)),
            opts=self.child(),
        )
        aws.ecr.RepositoryPolicy(
            f"{self.name}-{image}-pull",
            repository=repository.name,
            policy=pulumi.Output.json_dumps(pulling(self._args.puller)),
            opts=self.child(),
        )
        return repository


def keeping(images: int) -> Mapping[str, object]:
    """Give the lifecycle policy that keeps so many of the newest images."""
    selection = {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": images}
    rule = {
        "rulePriority": 1,
        "description": f"Keep the newest {images}",
        "selection": selection,
        "action": {"type": "expire"},
    }
    return {"rules": [rule]}


def pulling(principal: pulumi.Input[str]) -> Mapping[str, object]:
    """Give the repository policy by which one role may pull."""
    statement = {
        "Sid": "NodesPull",
        "Effect": "Allow",
        "Principal": {"AWS": principal},
        "Action": list(PULLING),
    }
    return {"Version": "2012-10-17", "Statement": [statement]}
