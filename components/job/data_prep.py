"""Prepares the data set on the shared volume, once, before any worker needs it.

A Job of its own rather than an init container of the workers: GPUs would wait for it, and every
worker that comes back would ask again.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import batch, core, meta

from components.cluster import Placement
from components.part import Part
from components.platform.governance import PLATFORM_CLASS
from components.platform.pods import (
    DATA_PREPARATION,
    PULL_POLICY,
    container_security,
    pod_security,
    tolerations,
)
from components.storage import MOUNT, Storage, data_folder

TRIES = 3  # after the first one
DEADLINE_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class DataPrepArgs:
    """What to prepare.

    Attributes:
        dataset: its name.
        image: an image with `trainer.prepare`.
        namespace: where.
        placement: on which nodes.
        storage: the volume that receives it.
    """

    dataset: str
    image: str
    namespace: pulumi.Input[str]
    placement: Placement
    storage: Storage


class DataPrep(Part):
    """A Job that ends when the data set is there; done already, it ends at once."""

    folder: str

    def __init__(
        self, name: str, args: DataPrepArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("job:DataPrep", name, opts)
        self.folder = f"{MOUNT}/{data_folder(args.dataset)}"
        batch.v1.Job(
            # The data set is part of the name: another one is another job, not a change of this.
            f"{name}-{args.dataset}",
            metadata=meta.v1.ObjectMetaArgs(
                name=f"prepare-{args.dataset}", namespace=args.namespace
            ),
            spec=batch.v1.JobSpecArgs(
                backoff_limit=TRIES,
                active_deadline_seconds=DEADLINE_SECONDS,
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(
                        labels={**DATA_PREPARATION, **args.storage.pod_labels}
                    ),
                    spec=self._pod(args),
                ),
            ),
            opts=self.child(delete_before_replace=True, replace_on_changes=["spec.template"]),
        )
        self.register_outputs({"folder": self.folder})

    def _pod(self, args: DataPrepArgs) -> core.v1.PodSpecArgs:
        """Give the pod."""
        return core.v1.PodSpecArgs(
            restart_policy="Never",  # each try keeps its log
            service_account_name=args.storage.service_account,  # who it is to the storage
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=pod_security(),
            priority_class_name=PLATFORM_CLASS,
            node_selector=args.placement.selector or None,
            tolerations=tolerations(args.placement),
            containers=[self._container(args)],
            volumes=[args.storage.volume()],
        )

    def _container(self, args: DataPrepArgs) -> core.v1.ContainerArgs:
        """Give the container."""
        return core.v1.ContainerArgs(
            name="prepare",
            image=args.image,
            image_pull_policy=PULL_POLICY,
            command=["python3", "-m", "trainer.prepare"],
            args=["--dataset", args.dataset, "--output", self.folder],
            security_context=container_security(read_only=False),  # the image's libraries cache
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "250m", "memory": "256Mi"}, limits={"memory": "2Gi"}
            ),
            volume_mounts=[args.storage.mount()],
        )
