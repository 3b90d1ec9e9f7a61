"""The elastic training job: an ElasticJob whose workers train together, however many there are.

What may change while it trains and what may not is decided here. The numbers of workers change in
place: the controller writes them on the pods, and each worker sees that annotation as a file, since
its arguments are fixed when it is made. The pod template does not: no controller touches pods that
run, so a changed image would train beside the old one. It therefore replaces the job, the old one
first, since both have one name and one run folder.
"""

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes import apiextensions, meta

from components.cluster import Placement
from components.config import JobConfig
from components.part import Part
from components.platform.governance import WORKER_CLASS
from components.platform.gpu import EFA, GPU
from components.platform.pods import (
    PULL_POLICY,
    WORKER,
    WORKER_METRICS_PORT,
    container_security,
    field_env,
    pod_security,
    tolerations,
)
from components.storage import MOUNT, Storage, run_folder

API_VERSION = "elastic.pytorch.org/v1alpha1"
CONTAINER = "elasticjob-worker"  # the controllers look for the exit code under this name
EXIT_SECONDS = 5
SCALING = "everstep.dev/scaling"  # on the ElasticJob: who decides how many workers there are
BOUNDS = "everstep.dev/nnodes"  # on a worker's pod, by the maintained controller: MIN:MAX
ITSELF = "/etc/everstep"  # where a worker finds what Kubernetes knows of it
EFA_HUGE_PAGES = "5120Mi"  # as in AWS's own examples; a node sets 5128 pages of 2 MiB aside

# The upstream controller writes the whole object back with these filled in; they are not ours to
# fight over.
UPSTREAM_WRITES = ["spec.RunPolicy", "status"]


@dataclass(frozen=True, kw_only=True)
class ElasticTrainingJobArgs:
    """What to train.

    Attributes:
        config: the stack's `job` section.
        dataset: name of the data set.
        data: its folder, as a worker sees it.
        endpoint: etcd, host:port.
        namespace: where.
        placement: on which nodes.
        storage: the volume with data and run.
        efa_interfaces: Elastic Fabric Adapters of a node, all given to its one worker.
        upstream: whether the published TorchElastic controller runs it.
    """

    config: JobConfig
    dataset: str
    data: str
    endpoint: pulumi.Input[str]
    namespace: pulumi.Input[str]
    placement: Placement
    storage: Storage
    upstream: bool
    efa_interfaces: int = 0


class ElasticTrainingJob(Part):
    """One ElasticJob."""

    run: str

    def __init__(
        self, name: str, args: ElasticTrainingJobArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("job:ElasticTrainingJob", name, opts)
        self.run = run_folder(args.config.name)
        apiextensions.CustomResource(
            # The configured name: another one is another job.
            f"{name}-{args.config.name}",
            api_version=API_VERSION,
            kind="ElasticJob",
            metadata=meta.v1.ObjectMetaArgs(
                name=args.config.name,
                namespace=args.namespace,
                annotations={SCALING: args.config.scaling},
            ),
            spec=_spec(args),
            opts=self.child(
                delete_before_replace=True,
                replace_on_changes=["spec.replicaSpecs.Worker.template"],
                ignore_changes=UPSTREAM_WRITES if args.upstream else [],
            ),
        )
        self.register_outputs({"run": self.run})


def _spec(args: ElasticTrainingJobArgs) -> dict[str, Any]:
    """Give the ElasticJob's spec, in the words of its API."""
    return {
        "rdzvEndpoint": args.endpoint,
        "minReplicas": args.config.min_replicas,
        "maxReplicas": args.config.max_replicas,
        "RunPolicy": {"cleanPodPolicy": "None"},  # pods of a finished job stay, with their logs
        "replicaSpecs": {
            "Worker": {
                "replicas": args.config.replicas,
                "restartPolicy": "ExitCode",  # the only one that lets a spot worker come back
                "template": {
                    "metadata": {
                        "labels": {**WORKER, **args.storage.pod_labels},
                        "annotations": {
                            "prometheus.io/scrape": "true",
                            "prometheus.io/port": str(WORKER_METRICS_PORT),
                        },
                    },
                    "spec": _pod(args),
                },
            }
        },
    }


def _pod(args: ElasticTrainingJobArgs) -> dict[str, Any]:
    """Give a worker's pod in the words of its API: Pulumi's SDK has no types for it."""
    config = args.config
    return {
        "serviceAccountName": args.storage.service_account,  # who it is to the storage
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": config.grace_seconds,
        "securityContext": pod_security(),
        "priorityClassName": config.priority_class or WORKER_CLASS,
        **_placed(args.placement),
        "affinity": _one_a_node(config.name),
        "containers": [_container(args)],
        "volumes": [
            args.storage.volume(),
            {"name": "itself", "downwardAPI": {"items": [_annotation("nnodes", BOUNDS)]}},
            {
                "name": "shm",
                "emptyDir": {"medium": "Memory", "sizeLimit": config.resources.shared_memory},
            },
        ],
    }


def _annotation(path: str, name: str) -> dict[str, Any]:
    """Give a file that follows one annotation of the pod; empty where there is none."""
    return {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}


def _placed(placement: Placement) -> dict[str, Any]:
    """Say on which nodes; a cluster without pools needs no word about it."""
    said = {"nodeSelector": dict(placement.selector), "tolerations": tolerations(placement)}
    return {key: value for key, value in said.items() if value}


def _one_a_node(job: str) -> dict[str, Any]:
    """Say that no two workers of a job share a node: one eviction is to cost one worker."""
    return {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"job-name": job}},
                }
            ]
        }
    }


def _container(args: ElasticTrainingJobArgs) -> dict[str, Any]:
    """Give a worker's container; the image's entry point takes what the controller prepends."""
    config = args.config
    devices = _devices(args)
    return {
        "name": CONTAINER,
        "image": config.image,
        "imagePullPolicy": PULL_POLICY,
        "args": arguments(args),
        "env": _environment(config),
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
            {"name": "itself", "mountPath": ITSELF, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's own
        ],
    }


def _devices(args: ElasticTrainingJobArgs) -> dict[str, str]:
    """Give the devices that a worker asks for; with EFA, huge pages too: libfabric maps them."""
    devices = {GPU: str(args.config.gpus_per_worker)} if args.config.gpus_per_worker else {}
    if args.efa_interfaces:
        devices |= {EFA: str(args.efa_interfaces), "hugepages-2Mi": EFA_HUGE_PAGES}
    return devices


def arguments(args: ElasticTrainingJobArgs) -> list[str]:
    """Give a worker's command line, after what the controller prepends."""
    config = args.config
    options = {
        "model": config.model,
        "dataset": args.dataset,
        "data": args.data,
        "run": f"{MOUNT}/{run_folder(config.name)}",
        "epochs": config.epochs,
        "global-batch": config.global_batch,
        "learning-rate": config.learning_rate,
        "weight-decay": config.weight_decay,
        "label-smoothing": config.label_smoothing,
        "warmup-fraction": config.warmup_fraction,
        "image-size": config.image_size,
        "checkpoint-seconds": config.checkpoint_seconds,
        "keep-checkpoints": config.keep_checkpoints,
        "seed": config.seed,
        "mode": config.mode,
        **_unusual(config, "fresh", "accept_data", "loader_workers", "compress", "nonfinite_loss"),
        **({"shard-size": config.shard_size} if config.mode == "exact" else {}),
    }
    return [
        f"--nproc_per_node={max(1, config.gpus_per_worker)}",
        f"--max_restarts={config.max_restarts}",
        "-m",
        "trainer.train",
        *(word for key, value in options.items() for word in (f"--{key}", str(value))),
    ]


def _unusual(config: JobConfig, *names: str) -> dict[str, Any]:
    """Give those of these options that the stack file sets to another value than the default."""
    said = {name: getattr(config, name) for name in names}
    return {
        name.replace("_", "-"): value
        for name, value in said.items()
        if value != JobConfig.model_fields[name].default
    }


def _secrets(config: JobConfig) -> dict[str, Any]:
    """Give the Secrets whose keys become environment variables; nothing where there are none."""
    named = [{"secretRef": {"name": name}} for name in config.env_from_secrets]
    return {"envFrom": named} if named else {}


def _environment(config: JobConfig) -> list[Any]:
    """Give a worker's environment: who and where it is, then the user's own."""
    itself = {
        "POD_NAME": "metadata.name",
        "POD_IP": "status.podIP",
        "NODE_NAME": "spec.nodeName",
    }
    # The kubelet kills at the end of the grace; the worker's own deadline leaves it time to exit.
    deadline = config.grace_seconds - EXIT_SECONDS
    return [
        *(field_env(name, path) for name, path in itself.items()),
        {"name": "EVERSTEP_GRACE_SECONDS", "value": str(deadline)},
        {"name": "EVERSTEP_NNODES_FILE", "value": f"{ITSELF}/nnodes"},
        {"name": "EVERSTEP_METRICS_PORT", "value": str(WORKER_METRICS_PORT)},
        *({"name": name, "value": value} for name, value in config.env.items()),
    ]
