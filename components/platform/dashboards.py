"""The Grafana dashboards: overview of a run, nodes and GPUs, controller.

Run `python -m components.platform.dashboards` to write them to manifests/monitoring/dashboards/, where stacks read
them. A unit test fails if these files are not current.
"""

import json
from pathlib import Path

from components.platform.dashboard_json import (
    Annotation,
    Dashboard,
    Panel,
    Query,
    Row,
    Variable,
)
from components.platform.manifests import FOLDER
from everstep.catalog import metrics

DASHBOARDS_FOLDER = FOLDER / "monitoring" / "dashboards"
JOB_SELECTOR = f'{{{metrics.JOB}="${metrics.JOB}"}}'
NODE_SELECTOR = '{Hostname=~"$node"}'
STEPS_PER_SECOND = f"max(rate({metrics.WORKER_STEPS.name}{JOB_SELECTOR}[$__rate_interval]))"


def job_query(metric: metrics.Metric, aggregation: str = "max") -> str:
    """Return the query that aggregates a metric of the selected job."""
    return f"{aggregation}({metric.name}{JOB_SELECTOR})"


def stat(title: str, query: str, description: str, **options: float | str | None) -> Panel:
    """Return a panel with one number."""
    return Panel(
        title=title,
        description=description,
        queries=(Query(query),),
        kind="stat",
        width=4,
        height=4,
        **options,  # type: ignore[arg-type]  # checked by the tests of the JSON
    )


RUN_NOW = Row(
    "Now",
    (
        stat("Workers", job_query(metrics.GROUP_WORKERS), "Workers of the training group."),
        stat(
            "Progress",
            f"{job_query(metrics.STEP)} / {job_query(metrics.PLANNED_STEPS)}",
            "Completed steps as a share of all steps.",
            unit="percentunit",
            decimals=1,
        ),
        stat("Speed", STEPS_PER_SECOND, "Completed steps per second.", unit="ops", decimals=2),
        stat(
            "Remaining",
            f"({job_query(metrics.PLANNED_STEPS)} - {job_query(metrics.STEP)})"
            f" / max(elasticjob:everstep_worker_steps:rate5m{JOB_SELECTOR})",
            "Time until the last step at the speed of the last five minutes.",
            unit="s",
        ),
        stat(
            "Goodput",
            f"max(elasticjob:everstep_goodput:ratio_rate10m{JOB_SELECTOR})",
            "Share of the workers' time in completed steps, over ten minutes.",
            unit="percentunit",
            decimals=1,
            warn_below=0.6,
        ),
        stat(
            "Age of the checkpoint",
            f"max(elasticjob:everstep_checkpoint_age:seconds{JOB_SELECTOR})",
            "Time since the last committed checkpoint.",
            unit="s",
        ),
    ),
)
RUN_TRAINING = Row(
    "Training",
    (
        Panel(
            title="Loss",
            description="Mean loss of each step.",
            queries=(Query(job_query(metrics.LOSS), "loss"),),
            minimum=None,
        ),
        Panel(
            title="Steps per second",
            description="Each gap or dip is a change of the group; the marks show when.",
            queries=(Query(STEPS_PER_SECOND, "steps/s"),),
            unit="ops",
        ),
        Panel(
            title="Samples per second",
            description="Speed times the mean number of samples per step.",
            queries=(
                Query(
                    f"{STEPS_PER_SECOND} * {job_query(metrics.SAMPLES)} / ({job_query(metrics.STEP)} > 0)",
                    "samples/s",
                ),
            ),
            unit="ops",
        ),
        Panel(
            title="Learning rate",
            description="Learning rate of the first parameter group.",
            queries=(Query(job_query(metrics.LEARNING_RATE), "learning rate"),),
        ),
    ),
)
RUN_ELASTICITY = Row(
    "Elasticity",
    (
        Panel(
            title="Workers",
            description="Workers of the group, and the controller's running, desired and minimum number.",
            queries=(
                Query(job_query(metrics.GROUP_WORKERS), "in the group"),
                Query(job_query(metrics.RUNNING_WORKERS), "running"),
                Query(job_query(metrics.DESIRED_WORKERS), "desired"),
                Query(job_query(metrics.MIN_REPLICAS), "minimum"),
            ),
            decimals=0,
        ),
        Panel(
            title="Workers' time by activity",
            description="Workers that spend their time in each activity, on average.",
            queries=(
                Query(
                    f"sum by (activity) (rate({metrics.WORKER_SECONDS.name}{JOB_SELECTOR}[$__rate_interval]))",
                    "{{activity}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Changes of the group",
            description="Groups that were formed in five minutes.",
            queries=(
                Query(f"max(changes({metrics.GENERATION.name}{JOB_SELECTOR}[5m]))", "groups"),
            ),
            decimals=0,
        ),
        Panel(
            title="Last recovery",
            description="Time from the end of a group to the first step of the next, of the slowest worker.",
            queries=(Query(job_query(metrics.LAST_RECOVERY), "recovery"),),
            unit="s",
        ),
    ),
)
RUN_CHECKPOINTS = Row(
    "Checkpoints",
    (
        Panel(
            title="Age",
            description="Time since the last committed checkpoint, and the configured interval.",
            queries=(
                Query(f"max(elasticjob:everstep_checkpoint_age:seconds{JOB_SELECTOR})", "age"),
                Query(job_query(metrics.CHECKPOINT_INTERVAL), "interval"),
            ),
            unit="s",
            width=6,
        ),
        Panel(
            title="Time to write",
            description="Writing is in the background; training only pauses for the snapshot.",
            queries=(Query(job_query(metrics.CHECKPOINT_WRITE), "write"),),
            unit="s",
            width=6,
        ),
        Panel(
            title="Size",
            description="Size of the last checkpoint.",
            queries=(Query(job_query(metrics.CHECKPOINT_BYTES), "size"),),
            unit="bytes",
            width=6,
        ),
        Panel(
            title="Failures",
            description="Checkpoints that failed or took longer than a minute, since the workers started.",
            queries=(Query(job_query(metrics.CHECKPOINT_FAILURES, "sum"), "failures"),),
            decimals=0,
            width=6,
        ),
    ),
)

RUN = Dashboard(
    uid="everstep-run",
    title="Everstep: run",
    description="Progress, speed, loss and elasticity of one ElasticJob.",
    variables=(Variable(metrics.JOB, "Job", metrics.STEP.name, metrics.JOB),),
    annotations=(
        Annotation(
            "New group",
            f"max by ({metrics.JOB}) (changes({metrics.GENERATION.name}{JOB_SELECTOR}[1m])) > 0",
            "The group of workers changed.",
            "blue",
        ),
        Annotation(
            "Alert",
            f'ALERTS{{alertstate="firing", {metrics.JOB}="${metrics.JOB}"}}',
            "{{alertname}}",
            "red",
        ),
    ),
    rows=(RUN_NOW, RUN_TRAINING, RUN_ELASTICITY, RUN_CHECKPOINTS),
)


def gpu_panel(metric: metrics.Metric, title: str, description: str, unit: str) -> Panel:
    """Return a panel with one line for each GPU."""
    return Panel(
        title=title,
        description=description,
        queries=(Query(f"{metric.name}{NODE_SELECTOR}", "{{Hostname}}/{{gpu}}"),),
        unit=unit,
        maximum=100 if unit == "percent" else None,
    )


GPUS = Dashboard(
    uid="everstep-gpus",
    title="Everstep: nodes and GPUs",
    description="GPU nodes as NVIDIA's DCGM exporter reports them, and their cost.",
    variables=(Variable("node", "Node", metrics.GPU_UTILIZATION.name, "Hostname", multiple=True),),
    rows=(
        Row(
            "Now",
            (
                stat(
                    "GPU nodes",
                    "everstep:gpu_nodes:count",
                    "Nodes with an exporter, with or without a worker.",
                ),
                stat(
                    "GPUs",
                    f"count({metrics.GPU_UTILIZATION.name}{NODE_SELECTOR})",
                    "Number of GPUs.",
                ),
                stat(
                    "Utilization",
                    f"avg({metrics.GPU_UTILIZATION.name}{NODE_SELECTOR})",
                    "Mean over the GPUs.",
                    unit="percent",
                    decimals=0,
                ),
                stat(
                    "Idle GPUs",
                    f"count(node_gpu:{metrics.GPU_UTILIZATION.name}:avg15m{NODE_SELECTOR} < 5) or vector(0)",
                    "GPUs with a utilization below 5 % over 15 minutes.",
                    warn_above=1,
                ),
                stat(
                    "Power",
                    f"sum({metrics.GPU_POWER.name}{NODE_SELECTOR})",
                    "Power draw of all GPUs.",
                    unit="watt",
                ),
                stat(
                    "Cost per hour",
                    "everstep:cost_usd_per_hour:sum",
                    "GPU nodes times their price, plus all other resources; empty without prices.",
                    unit="currencyUSD",
                    decimals=2,
                ),
            ),
        ),
        Row(
            "GPUs",
            (
                gpu_panel(
                    metrics.GPU_UTILIZATION,
                    "Utilization",
                    "Share of time in which a kernel runs.",
                    "percent",
                ),
                gpu_panel(metrics.GPU_MEMORY, "Memory in use", "Framebuffer memory.", "mbytes"),
                gpu_panel(metrics.GPU_POWER, "Power", "Power draw.", "watt"),
                gpu_panel(
                    metrics.GPU_TEMPERATURE, "Temperature", "Temperature of the GPU.", "celsius"
                ),
                gpu_panel(
                    metrics.GPU_ERRORS,
                    "Last XID error",
                    "0: none. NVIDIA's documentation lists the numbers; 48, 63, 64, 79 are hardware faults.",
                    "none",
                ),
                Panel(
                    title="Cost per hour",
                    description="GPU nodes times their price, plus all other resources; empty without prices.",
                    queries=(Query("everstep:cost_usd_per_hour:sum", "USD/h"),),
                    unit="currencyUSD",
                ),
            ),
        ),
    ),
)

_PASSES = metrics.RECONCILE_SECONDS.name
CONTROLLER = Dashboard(
    uid="everstep-controller",
    title="Everstep: controller",
    description="Jobs, workers and reconcile passes of the maintained ElasticJob controller.",
    rows=(
        Row(
            "Jobs",
            (
                Panel(
                    title="Jobs by condition",
                    description="Jobs with a condition that is True.",
                    queries=(Query(f"sum by (condition) ({metrics.JOBS.name})", "{{condition}}"),),
                    decimals=0,
                ),
                Panel(
                    title="Missing workers",
                    description="Workers of each job's spec that are not running.",
                    queries=(
                        Query(
                            f"max by ({metrics.JOB}) ({metrics.REPLICAS.name})"
                            f" - max by ({metrics.JOB}) ({metrics.RUNNING_WORKERS.name})",
                            "{{elasticjob}}",
                        ),
                    ),
                    minimum=None,
                    decimals=0,
                ),
                Panel(
                    title="Ended workers by cause",
                    description="Workers that ended without success, in five minutes.",
                    queries=(
                        Query(
                            f"sum by (cause) (increase({metrics.RESTARTS.name}[5m]))", "{{cause}}"
                        ),
                    ),
                    stacked=True,
                ),
                Panel(
                    title="Leader",
                    description="Number of leading controllers: 1, except while the leader changes.",
                    queries=(Query(f"sum({metrics.LEADER.name})", "leaders"),),
                    decimals=0,
                ),
            ),
        ),
        Row(
            "Reconcile passes",
            (
                Panel(
                    title="Duration",
                    description="Duration of one pass over one job.",
                    queries=tuple(
                        Query(
                            f"histogram_quantile({share}, sum by (le)"
                            f" (rate({_PASSES}_bucket[$__rate_interval])))",
                            name,
                        )
                        for share, name in ((0.5, "median"), (0.99, "99th percentile"))
                    ),
                    unit="s",
                ),
                Panel(
                    title="Passes and errors",
                    description="Passes and errors per second.",
                    queries=(
                        Query(f"sum(rate({_PASSES}_count[$__rate_interval]))", "passes"),
                        Query(
                            f"sum(rate({metrics.RECONCILE_ERRORS.name}[$__rate_interval]))",
                            "errors",
                        ),
                    ),
                    unit="ops",
                ),
            ),
        ),
    ),
)

DASHBOARDS = (RUN, GPUS, CONTROLLER)


def dashboard_path(dashboard: Dashboard) -> Path:
    """Return the file of a dashboard."""
    return DASHBOARDS_FOLDER / f"{dashboard.uid}.json"


def dashboard_text(dashboard: Dashboard) -> str:
    """Return the content of a dashboard's file."""
    return json.dumps(dashboard.to_json(), indent=2) + "\n"


def write() -> None:
    """Write all dashboards to manifests/."""
    DASHBOARDS_FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        dashboard_path(dashboard).write_text(dashboard_text(dashboard), encoding="utf-8")


if __name__ == "__main__":
    write()
