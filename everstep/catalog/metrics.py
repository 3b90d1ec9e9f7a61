"""Every metric that Everstep exports or that its rules and dashboards read.

The trainer and the controller make their metrics from these definitions, docs/metrics.md is generated from
them, and a test refuses a rule or a dashboard with a name that is not here. The label of a job is
`elasticjob`, because Prometheus itself sets `job` on everything that it scrapes.
"""

from dataclasses import dataclass
from enum import StrEnum

from everstep.catalog.names import (
    CONTROLLER_METRICS_PORT,
    DATA_PREPARATION,
    GPU_METRICS_PORT,
    JOB_STACK_PREPARATION_JOB,
    NAME_LABEL,
    PREPARATION_JOB,
    WORKER_METRICS_PORT,
)


class Kind(StrEnum):
    """Types of Prometheus metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: name in a query; a counter's name ends in `_total`.
        kind: type.
        description: meaning, with the unit if it has one.
        labels: labels besides the exporter's, see `Exporter.labels`.
    """

    name: str
    kind: Kind
    description: str
    labels: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """Names of its series in a query; a histogram has three."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)

    @property
    def base(self) -> str:
        """Name for prometheus_client, which adds the suffix of a counter itself."""
        return self.name.removesuffix("_total") if self.kind is Kind.COUNTER else self.name


@dataclass(frozen=True)
class Exporter:
    """A program that exports metrics.

    Attributes:
        name: program, and where it runs.
        labels: labels of all its metrics.
        metrics: its metrics; of third-party programs, only metrics that rules and dashboards read.
    """

    name: str
    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]


JOB, WORKER = "elasticjob", "worker"

# --- Worker
WORKER_SECONDS = Metric(
    "everstep_worker_seconds_total",
    Kind.COUNTER,
    "Seconds since this worker process began, by activity.",
    ("activity",),
)
WORKER_STEPS = Metric(
    "everstep_worker_steps_total",
    Kind.COUNTER,
    "Steps that this worker process has completed.",
)
STEP = Metric("everstep_step", Kind.GAUGE, "Completed steps of the run.")
PLANNED_STEPS = Metric("everstep_planned_steps", Kind.GAUGE, "Steps of the whole run.")
SAMPLES = Metric("everstep_samples", Kind.GAUGE, "Samples trained in the completed steps.")
LOSS = Metric("everstep_loss", Kind.GAUGE, "Mean loss of the last completed step.")
LEARNING_RATE = Metric(
    "everstep_learning_rate", Kind.GAUGE, "Learning rate of the last completed step."
)
GENERATION = Metric(
    "everstep_generation", Kind.GAUGE, "Number of the group that this worker is in, or was in last."
)
GROUP_WORKERS = Metric(
    "everstep_group_workers",
    Kind.GAUGE,
    "Workers of the group that this worker is in, or was in last.",
)
LAST_RECOVERY = Metric(
    "everstep_last_recovery_seconds",
    Kind.GAUGE,
    "Seconds from the end of the previous group to the first step of the current one.",
)
CHECKPOINT_TIME = Metric(
    "everstep_checkpoint_timestamp_seconds",
    Kind.GAUGE,
    "Unix time of the last committed checkpoint; before the first one, of this worker's start as rank 0. Rank 0 only.",
)
CHECKPOINT_INTERVAL = Metric(
    "everstep_checkpoint_interval_seconds", Kind.GAUGE, "Configured seconds between checkpoints."
)
CHECKPOINT_WRITE = Metric(
    "everstep_checkpoint_write_seconds",
    Kind.GAUGE,
    "Seconds that the write of the last checkpoint took. Only a worker that has written one exports it.",
)
CHECKPOINT_BYTES = Metric(
    "everstep_checkpoint_bytes",
    Kind.GAUGE,
    "Size of the last checkpoint in bytes. Only a worker that has written one exports it.",
)
CHECKPOINT_FAILURES = Metric(
    "everstep_checkpoint_failures_total",
    Kind.COUNTER,
    "Checkpoints that failed, and reports of an unfinished checkpoint after 1, 2, 4, ... minutes.",
)

# --- Data preparation
STAGING_LISTED_FILES = Metric(
    "everstep_staging_listed_files",
    Kind.GAUGE,
    "Files of the source that were listed so far; the listing ends before the copy begins.",
)
STAGING_PLANNED_FILES = Metric(
    "everstep_staging_planned_files",
    Kind.GAUGE,
    "Files of the source; 0 before the listing has ended.",
)
STAGING_PLANNED_BYTES = Metric(
    "everstep_staging_planned_bytes",
    Kind.GAUGE,
    "Bytes of the source; 0 before the listing has ended.",
)
STAGING_FILES = Metric(
    "everstep_staging_files",
    Kind.GAUGE,
    "Files on the volume that are complete, including files of earlier attempts.",
)
STAGING_BYTES = Metric(
    "everstep_staging_bytes",
    Kind.GAUGE,
    "Bytes on the volume, of complete files and of files that are being copied.",
)
STAGING_FAILED_FILES = Metric(
    "everstep_staging_failed_files",
    Kind.GAUGE,
    "Files that this attempt could not copy.",
)

# --- Controller
JOBS = Metric("elasticjob_jobs", Kind.GAUGE, "Jobs with a condition that is True.", ("condition",))
CONDITION = Metric(
    "elasticjob_condition",
    Kind.GAUGE,
    "1 if a condition of the job is True, else 0.",
    ("namespace", JOB, "condition"),
)
REPLICAS = Metric(
    "elasticjob_replicas",
    Kind.GAUGE,
    "Workers of the job's spec; 0 if it is suspended or has finished.",
    ("namespace", JOB),
)
MIN_REPLICAS = Metric(
    "elasticjob_min_replicas",
    Kind.GAUGE,
    "Workers below which the job does not train; 0 if it is suspended or has finished.",
    ("namespace", JOB),
)
DESIRED_WORKERS = Metric(
    "elasticjob_desired_workers",
    Kind.GAUGE,
    "Number of workers that the controller wants now: the spec's replicas, or the number that the capacity allows.",
    ("namespace", JOB),
)
RUNNING_WORKERS = Metric(
    "elasticjob_running_workers", Kind.GAUGE, "Running workers.", ("namespace", JOB)
)
ZONE = Metric(
    "elasticjob_zone",
    Kind.GAUGE,
    "1 for the zone of the job's workers; only for jobs with several zones.",
    ("namespace", JOB, "zone"),
)
SPENT_USD = Metric(
    "elasticjob_spent_usd",
    Kind.GAUGE,
    "USD spent on the job, computed once a minute; only for jobs with spec.spending.",
    ("namespace", JOB),
)
BUDGET_USD = Metric(
    "elasticjob_budget_usd",
    Kind.GAUGE,
    "Budget of the job in USD; only for jobs with a budget.",
    ("namespace", JOB),
)
ON_DEMAND_WORKERS = Metric(
    "elasticjob_on_demand_workers",
    Kind.GAUGE,
    "Workers that the controller wants on demand; only for jobs with spec.spending.",
    ("namespace", JOB),
)
MOVES = Metric(
    "everstep_moves_total",
    Kind.COUNTER,
    "Moves of the job's workers to another zone that this controller began.",
    ("namespace", JOB),
)
RESTARTS = Metric(
    "elasticjob_worker_restarts_total",
    Kind.COUNTER,
    "Workers that ended without success, by cause.",
    ("cause",),
)
RECONCILE_SECONDS = Metric(
    "elasticjob_reconcile_seconds",
    Kind.HISTOGRAM,
    "Duration of one reconcile pass over one job in seconds.",
)
RECONCILE_ERRORS = Metric(
    "elasticjob_reconcile_errors_total",
    Kind.COUNTER,
    "Reconcile passes that ended in an error.",
)
ETCD_CERTIFICATE = Metric(
    "everstep_etcd_certificate_expiry_timestamp_seconds",
    Kind.GAUGE,
    "Unix time at which the certificate of the job's etcd expires, read once an hour; only with "
    "`etcd.authentication: users`.",
    ("namespace", JOB),
)
LEADER = Metric("elasticjob_leader", Kind.GAUGE, "1 while this controller is the leader.")

# --- DCGM exporter
GPU_UTILIZATION = Metric("DCGM_FI_DEV_GPU_UTIL", Kind.GAUGE, "GPU utilization in percent.")
GPU_MEMORY = Metric("DCGM_FI_DEV_FB_USED", Kind.GAUGE, "GPU memory in use in MiB.")
GPU_TEMPERATURE = Metric("DCGM_FI_DEV_GPU_TEMP", Kind.GAUGE, "GPU temperature in degrees Celsius.")
GPU_POWER = Metric("DCGM_FI_DEV_POWER_USAGE", Kind.GAUGE, "Power draw of the GPU in watts.")
GPU_ERRORS = Metric("DCGM_FI_DEV_XID_ERRORS", Kind.GAUGE, "Number of the last XID error; 0: none.")

# --- Kubelet
KUBELET_CLIENT_CERTIFICATE = Metric(
    "kubelet_certificate_manager_client_ttl_seconds",
    Kind.GAUGE,
    "Seconds until the kubelet's client certificate expires; +Inf without one.",
)
KUBELET_SERVER_CERTIFICATE = Metric(
    "kubelet_certificate_manager_server_ttl_seconds",
    Kind.GAUGE,
    "Seconds until the kubelet's serving certificate expires; +Inf without one.",
)

EXPORTERS = (
    Exporter(
        f"Worker: each worker process, on port {WORKER_METRICS_PORT} plus its local rank",
        (JOB, WORKER),
        (
            WORKER_SECONDS,
            WORKER_STEPS,
            STEP,
            PLANNED_STEPS,
            SAMPLES,
            LOSS,
            LEARNING_RATE,
            GENERATION,
            GROUP_WORKERS,
            LAST_RECOVERY,
            CHECKPOINT_TIME,
            CHECKPOINT_INTERVAL,
            CHECKPOINT_WRITE,
            CHECKPOINT_BYTES,
            CHECKPOINT_FAILURES,
        ),
    ),
    Exporter(
        f"Data preparation: the Job `{PREPARATION_JOB.format('DATASET')}`, or "
        f"`{JOB_STACK_PREPARATION_JOB.format('NAME')}` for a job NAME on the platform of another stack, while it "
        f"copies a data set with `data.source`, on port {WORKER_METRICS_PORT}. The pods of both have the label "
        f"`{NAME_LABEL}: {DATA_PREPARATION}`",
        (),
        (
            STAGING_LISTED_FILES,
            STAGING_PLANNED_FILES,
            STAGING_PLANNED_BYTES,
            STAGING_FILES,
            STAGING_BYTES,
            STAGING_FAILED_FILES,
        ),
    ),
    Exporter(
        f"Controller: the maintained ElasticJob controller, on port {CONTROLLER_METRICS_PORT}",
        (),
        (
            JOBS,
            CONDITION,
            REPLICAS,
            MIN_REPLICAS,
            DESIRED_WORKERS,
            RUNNING_WORKERS,
            ZONE,
            SPENT_USD,
            BUDGET_USD,
            ON_DEMAND_WORKERS,
            MOVES,
            RESTARTS,
            RECONCILE_SECONDS,
            RECONCILE_ERRORS,
            ETCD_CERTIFICATE,
            LEADER,
        ),
    ),
    Exporter(
        f"DCGM exporter: NVIDIA's, on every GPU node, on port {GPU_METRICS_PORT}",
        ("Hostname", "gpu", "UUID", "modelName"),
        (GPU_UTILIZATION, GPU_MEMORY, GPU_TEMPERATURE, GPU_POWER, GPU_ERRORS),
    ),
    Exporter(
        "Kubelet: on each node; kube-prometheus-stack scrapes it by default",
        (),
        (KUBELET_CLIENT_CERTIFICATE, KUBELET_SERVER_CERTIFICATE),
    ),
)
