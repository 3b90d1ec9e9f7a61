"""The elastic training job: an ElasticJob with a variable number of workers.

The minimum and maximum number of workers can change in place: the controller writes them to an
annotation of the pods, which each worker reads as a file, since its arguments cannot change. A change
of the pod template replaces the job: no controller updates running pods, so a new image would
train next to the old one. The old job is deleted first, since both have the same name and the same run folder.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes import apiextensions, meta

from components.component import Component
from components.config import DataCacheConfig, JobConfig
from components.interface import DataAccess, Placement, Storage, run_folder
from components.job import data_cache
from components.platform import etcd_access
from components.platform.pods import (
    PULL_POLICY,
    WORKER,
    container_security,
    field_env,
    pod_security,
    scrape_annotations,
    tolerations,
)
from everstep.catalog import trainer_options
from everstep.catalog.names import (
    BOUNDS_ANNOTATION,
    BOUNDS_FILE,
    BOUNDS_VARIABLE,
    DEADLINE_ANNOTATION,
    DEADLINE_FILE,
    DEADLINE_VARIABLE,
    EFA_RESOURCE,
    ELASTICJOB_API_VERSION,
    ELASTICJOB_KIND,
    GPU_RESOURCE,
    GRACE_VARIABLE,
    HOSTNAME_LABEL,
    JOB_NAME_LABEL,
    METRICS_PORT_VARIABLE,
    MOUNT,
    NODE_NAME_VARIABLE,
    PLACEMENT_ANNOTATION,
    POD_INFO,
    POD_IP_VARIABLE,
    POD_NAME_VARIABLE,
    RUN_VARIABLE,
    SCALING_ANNOTATION,
    WORKER_CONTAINER,
    WORKER_METRICS_PORT,
    WORKER_PRIORITY_CLASS,
    ZONE_LABEL,
)
from everstep.catalog.timing import EXIT_SECONDS

# The image of a user's program must contain it.
LAUNCHER = ["python3", "-m", "everstep.elastic.launch"]
EFA_HUGE_PAGES = "5120Mi"  # as in AWS examples; a node reserves 5128 pages of 2 MiB

# Pulumi waits until the workers run together, or until the job has ended or is suspended. Both
# controllers write these conditions, except Suspended, which only the maintained one writes.
SETTLED_CONDITION = (
    'jsonpath={.status.conditions[?@.status=="True" && (@.type=="Running" || @.type=="Succeeded" '
    '|| @.type=="Suspended" || @.type=="Failed")]}'
)
# Where GPU nodes are created on demand, workers may wait for hours until the cloud has capacity. Pulumi
# then waits only until the controller has accepted the job. An image that cannot be pulled fails earlier,
# since data preparation uses the same image by default.
ACCEPTED_CONDITION = 'jsonpath={.status.conditions[?@.status=="True"]}'

# The upstream controller writes the whole object back with these fields set.
UPSTREAM_FIELDS = ["spec.RunPolicy", "status"]


@dataclass(frozen=True, kw_only=True)
class ElasticTrainingJobArgs:
    """Arguments of an ElasticTrainingJob.

    Attributes:
        config: the `job` section of a stack.
        dataset: name of the trainer's data set; None for the user's own program.
        data: path of the data set in a worker; None for the user's own program, and with a cache.
        cache: the `data.cache` section of a stack; None without it.
        access: identity that may read the shards of the cache; None if no identity is needed.
        endpoint: host and port of etcd.
        etcd_users: whether etcd requires a certificate and a user.
        namespace: namespace of the job.
        placement: nodes of the workers.
        storage: volume with data and run folder.
        upstream: whether the published TorchElastic controller runs the job.
        efa_interfaces: number of Elastic Fabric Adapters of a node, all used by its one worker.
        zones: zones of the GPU nodes, in order of preference, if all workers must be in one of them; otherwise empty.
        zone_prices: price of a machine in USD per hour in each zone; a zone is absent if its price is unknown.
        zone_ceilings: price in USD per hour above which the job does not move to a zone; a zone is absent without one.
        scales_from_zero: whether GPU nodes are created when workers wait for them.
        spending: deadline, budget and prices, with the field names of the API; None without limits.
    """

    config: JobConfig
    dataset: str | None
    data: str | None
    endpoint: pulumi.Input[str]
    etcd_users: bool
    namespace: pulumi.Input[str]
    placement: Placement
    storage: Storage
    upstream: bool
    efa_interfaces: int = 0
    zones: Sequence[str] = ()
    zone_prices: Mapping[str, float] = field(default_factory=dict)
    zone_ceilings: Mapping[str, float] = field(default_factory=dict)
    scales_from_zero: bool = False
    cache: DataCacheConfig | None = None
    access: DataAccess | None = None
    spending: Mapping[str, Any] | None = None


class ElasticTrainingJob(Component):
    """An ElasticJob.

    Attributes:
        outputs: stack outputs about the job.
    """

    outputs: Mapping[str, pulumi.Input[str]]

    def __init__(
        self, name: str, args: ElasticTrainingJobArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("job:ElasticTrainingJob", name, opts)
        run = run_folder(args.config.name)
        self.outputs = _outputs(args, run)
        apiextensions.CustomResource(
            # The configured name is part of the logical name, so that a new name declares a new job.
            f"{name}-{args.config.name}",
            api_version=ELASTICJOB_API_VERSION,
            kind=ELASTICJOB_KIND,
            metadata=meta.v1.ObjectMetaArgs(
                name=args.config.name,
                namespace=args.namespace,
                annotations=_annotations(args),
            ),
            spec=_spec(args),
            opts=self.child(
                delete_before_replace=True,
                replace_on_changes=["spec.replicaSpecs.Worker.template"],
                ignore_changes=UPSTREAM_FIELDS if args.upstream else [],
            ),
        )
        self.register_outputs({"run": run})


def _outputs(args: ElasticTrainingJobArgs, run: str) -> dict[str, pulumi.Input[str]]:
    """Return the stack outputs about the job."""
    location = args.storage.location
    return {
        "job": args.config.name,
        "namespace": args.namespace,
        "volumePath": location,
        "checkpoints": pulumi.Output.concat(location, "/", run, "/checkpoints"),
        "journal": pulumi.Output.concat(location, "/", run, "/journal"),
        "follow": "everstep follow",
        "image": args.config.image,
    }


def _annotations(args: ElasticTrainingJobArgs) -> dict[str, str]:
    """Return the annotations of the ElasticJob."""
    moves = len(args.zones) > 1 and not args.upstream
    return {
        SCALING_ANNOTATION: args.config.scaling,
        **({PLACEMENT_ANNOTATION: json.dumps(_zones(args))} if moves else {}),
        "pulumi.com/waitFor": ACCEPTED_CONDITION if args.scales_from_zero else SETTLED_CONDITION,
    }


def _zones(args: ElasticTrainingJobArgs) -> dict[str, Any]:
    """Return the zones between which the job moves, with their known prices and their price ceilings."""
    by_zone = {"usdPerHour": args.zone_prices, "maxUsdPerHour": args.zone_ceilings}
    values = {
        key: {zone: prices[zone] for zone in args.zones if zone in prices}
        for key, prices in by_zone.items()
    }
    return {"zones": list(args.zones), **{key: prices for key, prices in values.items() if prices}}


def _spec(args: ElasticTrainingJobArgs) -> dict[str, Any]:
    """Return the spec of the ElasticJob, with the field names of its API."""
    return {
        "rdzvEndpoint": args.endpoint,
        "minReplicas": args.config.min_replicas,
        "maxReplicas": args.config.max_replicas,
        **({"spending": dict(args.spending)} if args.spending else {}),
        "RunPolicy": {"cleanPodPolicy": "None"},  # keeps pods of a finished job, with their logs
        "replicaSpecs": {
            "Worker": {
                "replicas": args.config.replicas,
                "restartPolicy": "ExitCode",  # the only policy that restarts an evicted worker
                "template": {
                    "metadata": {
                        "labels": {
                            **WORKER,
                            **args.storage.pod_labels,
                            **(args.access.pod_labels if args.access else {}),
                        },
                        "annotations": scrape_annotations(WORKER_METRICS_PORT),
                    },
                    "spec": _pod(args),
                },
            }
        },
    }


def _pod(args: ElasticTrainingJobArgs) -> dict[str, Any]:
    """Return the pod of a worker with the field names of the API, for which Pulumi has no types."""
    config = args.config
    return {
        "serviceAccountName": args.storage.service_account,  # its identity for the storage
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": config.grace_seconds,
        "securityContext": pod_security(),
        "priorityClassName": config.priority_class or WORKER_PRIORITY_CLASS,
        **_node_placement(args.placement),
        "affinity": {
            **_one_per_node(config.name),
            **(_in_one_zone(config.name) if args.upstream and len(args.zones) > 1 else {}),
        },
        "containers": [_container(args)],
        "volumes": [
            args.storage.volume(),
            {
                "name": "pod-info",
                "downwardAPI": {
                    "items": [
                        _annotation_file("nnodes", BOUNDS_ANNOTATION),
                        _annotation_file("deadline", DEADLINE_ANNOTATION),
                    ]
                },
            },
            {
                "name": "shm",
                "emptyDir": {"medium": "Memory", "sizeLimit": config.resources.shared_memory},
            },
            *([etcd_access.worker_volume()] if args.etcd_users else []),
            *([data_cache.volume(args.cache)] if args.cache else []),
        ],
    }


def _annotation_file(path: str, name: str) -> dict[str, Any]:
    """Return a file with an annotation of the pod; the file is empty without the annotation."""
    return {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}


def _node_placement(placement: Placement) -> dict[str, Any]:
    """Return the node selector and tolerations; empty for a cluster without pools."""
    fields = {"nodeSelector": dict(placement.selector), "tolerations": tolerations(placement)}
    return {key: value for key, value in fields.items() if value}


def _one_per_node(job: str) -> dict[str, Any]:
    """Return the affinity that places each worker on its own node, so that an eviction stops only one."""
    return {"podAntiAffinity": _required_term(HOSTNAME_LABEL, job)}


def _in_one_zone(job: str) -> dict[str, Any]:
    """Return the affinity that lets the first worker run in any zone, and the others in the same zone.

    The scheduler exempts a pod that matches its own term if no other pod does. Without a node in the
    zone of the others, a worker waits, so that gradients never cross zones. If a zone loses all workers,
    the job may start in another zone. The maintained controller selects the zone itself, because it
    moves the job while workers run.
    """
    return {"podAffinity": _required_term(ZONE_LABEL, job)}


def _required_term(topology: str, job: str) -> dict[str, Any]:
    """Return the required affinity term between a worker and the other workers of its job."""
    return {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": topology, "labelSelector": {"matchLabels": {JOB_NAME_LABEL: job}}}
        ]
    }


def _container(args: ElasticTrainingJobArgs) -> dict[str, Any]:
    """Return the container of a worker; the controller prepends arguments for the entry point."""
    config = args.config
    devices = _devices(args)
    return {
        "name": WORKER_CONTAINER,
        "image": config.image,
        "imagePullPolicy": PULL_POLICY,
        **({"command": LAUNCHER} if config.command else {}),
        "args": arguments(args),
        "env": _environment(config, args.access),
        "ports": [
            {"name": f"metrics-{rank}", "containerPort": WORKER_METRICS_PORT + rank}
            for rank in range(max(1, config.gpus_per_worker))
        ],
        **_secrets(config),
        "securityContext": container_security(read_only=False),  # torch caches kernels
        "resources": {
            "requests": {"cpu": config.resources.cpu, "memory": config.resources.memory, **devices},
            "limits": {"memory": config.resources.memory, **devices},
        },
        "volumeMounts": [
            args.storage.mount(),
            {"name": "pod-info", "mountPath": POD_INFO, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - private to the container
            *([etcd_access.worker_mount()] if args.etcd_users else []),
            *([data_cache.mount()] if args.cache else []),
        ],
    }


def _devices(args: ElasticTrainingJobArgs) -> dict[str, str]:
    """Return the devices of a worker; with EFA also huge pages, which libfabric maps."""
    devices = (
        {GPU_RESOURCE: str(args.config.gpus_per_worker)} if args.config.gpus_per_worker else {}
    )
    if args.efa_interfaces:
        devices |= {EFA_RESOURCE: str(args.efa_interfaces), "hugepages-2Mi": EFA_HUGE_PAGES}
    return devices


def arguments(args: ElasticTrainingJobArgs) -> list[str]:
    """Return the arguments of a worker's launcher, to which the controller prepends others."""
    config = args.config
    return [
        f"--nproc_per_node={max(1, config.gpus_per_worker)}",
        f"--max_restarts={config.max_restarts}",
        *([etcd_access.worker_argument()] if args.etcd_users else []),
        *(config.program or ("-m", "trainer.train", *_trainer_arguments(args))),
    ]


def _trainer_arguments(args: ElasticTrainingJobArgs) -> list[str]:
    """Return the command line of the trainer."""
    values = {
        option.name: getattr(args.config, option.name)
        for option in trainer_options.TRAINER_OPTIONS.values()
        if option.in_job
    }
    values |= {"dataset": args.dataset, "data": args.data, "run": _run_path(args.config)}
    values |= data_cache.options(args.cache) if args.cache else {}
    return trainer_options.arguments(values)


def _run_path(config: JobConfig) -> str:
    """Return the path of the run folder in a worker."""
    return f"{MOUNT}/{run_folder(config.name)}"


def _secrets(config: JobConfig) -> dict[str, Any]:
    """Return the Secrets whose keys become environment variables; empty if there is none."""
    sources = [{"secretRef": {"name": name}} for name in config.env_from_secrets]
    return {"envFrom": sources} if sources else {}


def _environment(config: JobConfig, access: DataAccess | None) -> list[Any]:
    """Return the environment of a worker: fields of the pod, then variables of the user."""
    fields = {
        POD_NAME_VARIABLE: "metadata.name",
        POD_IP_VARIABLE: "status.podIP",
        NODE_NAME_VARIABLE: "spec.nodeName",
    }
    # The kubelet kills the worker at the end of the grace period; the worker needs time to exit before that.
    deadline = config.grace_seconds - EXIT_SECONDS
    variables = {**(access.env if access else {}), **config.env}
    return [
        *(field_env(name, path) for name, path in fields.items()),
        {"name": GRACE_VARIABLE, "value": str(deadline)},
        {"name": BOUNDS_VARIABLE, "value": BOUNDS_FILE},
        {"name": DEADLINE_VARIABLE, "value": DEADLINE_FILE},
        {"name": METRICS_PORT_VARIABLE, "value": str(WORKER_METRICS_PORT)},
        *([{"name": RUN_VARIABLE, "value": _run_path(config)}] if config.command else []),
        *({"name": name, "value": value} for name, value in variables.items()),
    ]
