"""Preparation of the data set on the shared volume, once, before any worker needs it.

It is a Job rather than an init container of the workers: GPUs would wait for an init container, and
every worker that restarts would run it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes import batch, core, meta

from components.component import Component
from components.config import DataConfig
from components.interface import (
    DATA_ACCOUNT,
    DATA_RETRIES,
    DataAccess,
    Placement,
    Storage,
    data_folder,
)
from components.platform.pods import (
    DATA_PREPARATION,
    PULL_POLICY,
    container_security,
    pod_security,
    scrape_annotations,
    tolerations,
)
from everstep.catalog.names import (
    JOB_STACK_PREPARATION_JOB,
    METRICS_PORT_VARIABLE,
    MOUNT,
    PLATFORM_PRIORITY_CLASS,
    PREPARATION_JOB,
    WORKER_METRICS_PORT,
)

DEADLINE_SECONDS = 3600
PULUMI_TIMEOUT = "70m"  # longer than the deadline of the Job
STAGING_SECONDS = 12 * 3600
"""Deadline of a Job that copies a data set first: 150 GB at 5 MB/s take 8 hours."""

STAGING_TIMEOUT = "12h30m"


@dataclass(frozen=True, kw_only=True)
class DataPrepArgs:
    """Arguments of a DataPrep.

    Attributes:
        config: the `data` section of a stack.
        image: image with `trainer.prepare`.
        namespace: namespace of the Job.
        placement: nodes on which it runs.
        storage: volume that receives the data set.
        access: identity that may read the source; None if no identity is needed.
        job: name of the job of a job stack, which gets its own folder for its own source; None for the job of the
            platform's stack.
    """

    config: DataConfig
    image: str
    namespace: pulumi.Input[str]
    placement: Placement
    storage: Storage
    access: DataAccess | None = None
    job: str | None = None


def _job_name(dataset: str, job: str | None) -> str:
    """Return the name of the Job that prepares a data set, for a job of a job stack or the platform's job."""
    return JOB_STACK_PREPARATION_JOB.format(job) if job else PREPARATION_JOB.format(dataset)


class DataPrep(Component):
    """A Job that ends when the data set exists; immediately if it already exists.

    Attributes:
        folder: path of the data set in a worker.
    """

    folder: str

    def __init__(
        self, name: str, args: DataPrepArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("job:DataPrep", name, opts)
        dataset, source = args.config.dataset, args.config.source
        self.folder = f"{MOUNT}/{data_folder(dataset, args.job if source else None)}"
        account = self._account(args, args.access) if args.access else None
        batch.v1.Job(
            # The data set is part of the name: for another data set a new Job is created, instead of changing this one.
            # Of a job stack it is the job.
            f"{name}-{args.job or dataset}",
            metadata=meta.v1.ObjectMetaArgs(
                name=_job_name(dataset, args.job),
                namespace=args.namespace,
            ),
            spec=batch.v1.JobSpecArgs(
                backoff_limit=args.access.retries if args.access else DATA_RETRIES,
                active_deadline_seconds=STAGING_SECONDS if source else DEADLINE_SECONDS,
                template=core.v1.PodTemplateSpecArgs(
                    metadata=meta.v1.ObjectMetaArgs(
                        labels={
                            **DATA_PREPARATION,
                            **args.storage.pod_labels,
                            **(args.access.pod_labels if args.access else {}),
                        },
                        annotations=scrape_annotations(WORKER_METRICS_PORT) if source else None,
                    ),
                    spec=self._pod(args, account),
                ),
            ),
            opts=self.child(
                depends_on=args.access.prerequisites if args.access else (),
                delete_before_replace=True,
                replace_on_changes=["spec.template"],
                timeout=STAGING_TIMEOUT if source else PULUMI_TIMEOUT,
            ),
        )
        self.register_outputs({"folder": self.folder})

    def _account(self, args: DataPrepArgs, access: DataAccess) -> core.v1.ServiceAccount:
        """Declare an account for this pod only: workers must not have its identity."""
        return core.v1.ServiceAccount(
            f"{self.name}-account",
            metadata=meta.v1.ObjectMetaArgs(
                name=DATA_ACCOUNT,
                namespace=args.namespace,
                annotations=access.service_account_annotations or None,
            ),
            automount_service_account_token=False,
            opts=self.child(delete_before_replace=True),
        )

    def _pod(
        self, args: DataPrepArgs, account: core.v1.ServiceAccount | None
    ) -> core.v1.PodSpecArgs:
        """Return the pod; without its own account, it uses the workers' account."""
        account_name = account.metadata.apply(lambda metadata: metadata.name) if account else None
        return core.v1.PodSpecArgs(
            restart_policy="Never",  # each attempt keeps its log
            service_account_name=account_name or args.storage.service_account,
            automount_service_account_token=False,
            enable_service_links=False,
            security_context=pod_security(),
            priority_class_name=PLATFORM_PRIORITY_CLASS,
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
            args=self._arguments(args.config),
            env=_variables(args),
            ports=_ports(args.config),
            # Libraries of the image write caches.
            security_context=container_security(read_only=False),
            # The end of the log names a bucket that is missing or forbidden; `pulumi up` shows it. Without a source the
            # pod must not change: a change replaces the Job.
            termination_message_policy="FallbackToLogsOnError" if args.config.source else None,
            resources=core.v1.ResourceRequirementsArgs(
                requests={"cpu": "250m", "memory": "256Mi"}, limits={"memory": "2Gi"}
            ),
            volume_mounts=[args.storage.mount()],
        )

    def _arguments(self, config: DataConfig) -> Sequence[str]:
        """Return the command line of the preparation."""
        arguments = ["--dataset", config.dataset, "--output", self.folder]
        if (origin := config.origin) is None:
            return arguments
        location = f"{MOUNT}/{origin.path}" if origin.kind == "tar" else str(config.source)
        return [*arguments, "--stage", location, "--source", f"{self.folder}-source"]


def _ports(config: DataConfig) -> list[core.v1.ContainerPortArgs] | None:
    """Return the metrics port; None without a source, which keeps Jobs of older stacks unchanged."""
    if not config.source:
        return None
    return [core.v1.ContainerPortArgs(name="metrics", container_port=WORKER_METRICS_PORT)]


def _variables(args: DataPrepArgs) -> list[core.v1.EnvVarArgs] | None:
    """Return the environment of the container; None if empty, which keeps Jobs of older stacks unchanged."""
    variables = dict(args.access.env) if args.access else {}
    if args.config.source:
        variables[METRICS_PORT_VARIABLE] = str(WORKER_METRICS_PORT)
    return [core.v1.EnvVarArgs(name=name, value=value) for name, value in variables.items()] or None
