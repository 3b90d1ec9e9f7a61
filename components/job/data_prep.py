"""Preparation of the data set on the shared volume, once, before any worker needs it.

It is a Job rather than an init container of the workers: GPUs would wait for an init container, and
every worker that restarts would run it again.
"""

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import batch, core, meta

from components.component import Component
from components.interface import MOUNT, Placement, Storage, data_folder
from components.platform.governance import PLATFORM_CLASS
from components.platform.pods import (
    DATA_PREPARATION,
    PULL_POLICY,
    container_security,
    pod_security,
    tolerations,
)

RETRIES = 3
DEADLINE_SECONDS = 3600
PULUMI_TIMEOUT = "70m"  # longer than the deadline of the Job


@dataclass(frozen=True, kw_only=True)
class DataPrepArgs:
    """Arguments of a DataPrep.

    Attributes:
        dataset: name of the data set.
        image: image with `trainer.prepare`.
        namespace: namespace of the Job.
        placement: nodes on which it runs.
        storage: volume that receives the data set.
    """

    dataset: str
    image: str
    namespace: pulumi.Input[str]
    placement: Placement
    storage: Storage


class DataPrep(Component):
    """A Job that ends when the data set exists; at once if it exists already.

    Attributes:
        folder: path of the data set in a worker.
    """

    folder: str

    def __init__(
        self, name: str, args: DataPrepArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("job:DataPrep", name, opts)
        self.folder = f"{MOUNT}/{data_folder(args.dataset)}"
        batch.v1.Job(
            # The data set is part of the name: another data set is another Job, not a change of this one.
            f"{name}-{args.dataset}",
            metadata=meta.v1.ObjectMetaArgs(
                name=f"prepare-{args.dataset}", namespace=args.namespace
            ),
            spec=batch.v1.JobSpecArgs(
                backoff_limit=RETRIES,
                active_deadline_seconds=DEADLINE_SECONDS,
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(
                        labels={**DATA_PREPARATION, **args.storage.pod_labels}
                    ),
                    spec=self._pod(args),
                ),
            ),
            opts=self.child(
                delete_before_replace=True,
                replace_on_changes=["spec.template"],
                timeout=PULUMI_TIMEOUT,
            ),
        )
        self.register_outputs({"folder": self.folder})

    def _pod(self, args: DataPrepArgs) -> core.v1.PodSpecArgs:
        """Return the pod."""
        return core.v1.PodSpecArgs(
            restart_policy="Never",  # each attempt keeps its log
            service_account_name=args.storage.service_account,  # its identity for the storage
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
        """Return the container."""
        return core.v1.ContainerArgs(
            name="prepare",
            image=args.image,
            image_pull_policy=PULL_POLICY,
            command=["python3", "-m", "trainer.prepare"],
            args=["--dataset", args.dataset, "--output", self.folder],
            security_context=container_security(
                read_only=False
            ),  # libraries of the image write caches
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "250m", "memory": "256Mi"}, limits={"memory": "2Gi"}
            ),
            volume_mounts=[args.storage.mount()],
        )
