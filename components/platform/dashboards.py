"""The Grafana dashboards: overview of a run, nodes and GPUs, controller.

Run `python -m components.platform.dashboards` to write them to manifests/monitoring/dashboards/, from where stacks and
`kubectl` take them. A unit test fails if these files are not current.
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
OF_JOB = f'{{{metrics.JOB}="${metrics.JOB}"}}'
OF_NODE = '{Hostname=~"$node"}'
STEPS_PER_SECOND = f"max(rate({metrics.WORKER_STEPS.name}{OF_JOB}[$__rate_interval]))"


def of_job(metric: metrics.Metric, aggregation: str = "max") -> str:
    """Return the query of one number for the chosen job."""
    return f"{aggregation}({metric.name}{OF_JOB})"


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
        stat("Workers", of_job(metrics.GROUP_WORKERS), "Workers of the training group."),
        stat(
            "Progress",
            f"{of_job(metrics.STEP)} / {of_job(metrics.PLANNED_STEPS)}",
            "Completed steps as a share of all.",
            unit="percentunit",
            decimals=1,
        ),
        stat("Speed", STEPS_PER_SECOND, "Completed steps per second.", unit="ops", decimals=2),
        stat(
            "Remaining",
            f"({of_job(metrics.PLANNED_STEPS)} - {of_job(metrics.STEP)})"
            f" / max(elasticjob:everstep_worker_steps:rate5m{OF_JOB})",
            "Time until the last step at the speed of the last five minutes.",
            unit="s",
        ),
        stat(
            "Goodput",
            f"max(elasticjob:everstep_goodput:ratio_rate10m{OF_JOB})",
            "Share of the workers' time in completed steps, over ten minutes.",
            unit="percentunit",
            decimals=1,
            warn_below=0.6,
        ),
        stat(
            "Age of the checkpoint",
            f"max(elasticjob:everstep_checkpoint_age:seconds{OF_JOB})",
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
            queries=(Query(of_job(metrics.LOSS), "loss"),),
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
            description="Speed times the samples of a step.",
            queries=(
                Query(
                    f"{STEPS_PER_SECOND} * {of_job(metrics.SAMPLES)} / ({of_job(metrics.STEP)} > 0)",
                    "samples/s",
                ),
            ),
            unit="ops",
        ),
        Panel(
            title="Learning rate",
            description="Learning rate of the first group of parameters.",
            queries=(Query(of_job(metrics.LEARNING_RATE), "learning rate"),),
        ),
    ),
)
RUN_ELASTICITY = Row(
    "Elasticity",
    (
        Panel(
            title="Workers",
            description="Workers of the group, and what the controller runs and wants.",
            queries=(
                Query(of_job(metrics.GROUP_WORKERS), "in the group"),
                Query(of_job(metrics.RUNNING_WORKERS), "running"),
                Query(of_job(metrics.DESIRED_WORKERS), "desired"),
                Query(of_job(metrics.MIN_REPLICAS), "minimum"),
            ),
            decimals=0,
        ),
        Panel(
            title="Workers' time by activity",
            description="Workers that spend their time in each activity, on average.",
            queries=(
                Query(
                    f"sum by (activity) (rate({metrics.WORKER_SECONDS.name}{OF_JOB}[$__rate_interval]))",
                    "{{activity}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            title="Changes of the group",
            description="Groups that were formed in five minutes.",
            queries=(Query(f"max(changes({metrics.GENERATION.name}{OF_JOB}[5m]))", "groups"),),
            decimals=0,
        ),
        Panel(
            title="Last recovery",
            description="From the end of a group to the first step of the next one, the slowest worker.",
            queries=(Query(of_job(metrics.LAST_RECOVERY), "recovery"),),
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
                Query(f"max(elasticjob:everstep_checkpoint_age:seconds{OF_JOB})", "age"),
                Query(of_job(metrics.CHECKPOINT_INTERVAL), "interval"),
            ),
            unit="s",
            width=6,
        ),
        Panel(
            title="Time to write",
            description="Writing is in the background; training only pauses for the snapshot.",
            queries=(Query(of_job(metrics.CHECKPOINT_WRITE), "write"),),
            unit="s",
            width=6,
        ),
        Panel(
            title="Size",
            description="Size of the last checkpoint.",
            queries=(Query(of_job(metrics.CHECKPOINT_BYTES), "size"),),
            unit="bytes",
            width=6,
        ),
        Panel(
            title="Failures",
            description="Checkpoints that failed or took longer than a minute, since the workers started.",
            queries=(Query(of_job(metrics.CHECKPOINT_FAILURES, "sum"), "failures"),),
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
            f"max by ({metrics.JOB}) (changes({metrics.GENERATION.name}{OF_JOB}[1m])) > 0",
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


def of_gpus(metric: metrics.Metric, title: str, description: str, unit: str) -> Panel:
    """Return a panel with one line for each GPU."""
    return Panel(
        title=title,
        description=description,
        queries=(Query(f"{metric.name}{OF_NODE}", "{{Hostname}}/{{gpu}}"),),
        unit=unit,
        maximum=100 if unit == "percent" else None,
    )


GPUS = Dashboard(
    uid="everstep-gpus",
    title="Everstep: nodes and GPUs",
    description="GPU nodes as NVIDIA's DCGM exporter sees them, and what they cost.",
    variables=(Variable("node", "Node", metrics.GPU_UTILIZATION.name, "Hostname", several=True),),
    rows=(
        Row(
            "Now",
            (
                stat(
                    "GPU nodes",
                    "everstep:gpu_nodes:count",
                    "Nodes with an exporter, with or without a worker.",
                ),
                stat("GPUs", f"count({metrics.GPU_UTILIZATION.name}{OF_NODE})", "GPUs."),
                stat(
                    "Utilization",
                    f"avg({metrics.GPU_UTILIZATION.name}{OF_NODE})",
                    "Mean over the GPUs.",
                    unit="percent",
                    decimals=0,
                ),
                stat(
                    "Idle GPUs",
                    f"count(node_gpu:{metrics.GPU_UTILIZATION.name}:avg15m{OF_NODE} < 5) or vector(0)",
                    "Used less than 5 % over 15 minutes.",
                    warn_above=1,
                ),
                stat("Power", f"sum({metrics.GPU_POWER.name}{OF_NODE})", "All GPUs.", unit="watt"),
                stat(
                    "Cost per hour",
                    "everstep:cost_usd_per_hour:sum",
                    "Nodes times the prices of the stack; empty without prices.",
                    unit="currencyUSD",
                    decimals=2,
                ),
            ),
        ),
        Row(
            "GPUs",
            (
                of_gpus(metrics.GPU_UTILIZATION, "Utilization", "Time with a kernel.", "percent"),
                of_gpus(metrics.GPU_MEMORY, "Memory in use", "Framebuffer memory.", "mbytes"),
                of_gpus(metrics.GPU_POWER, "Power", "Power draw.", "watt"),
                of_gpus(metrics.GPU_TEMPERATURE, "Temperature", "Of the GPU.", "celsius"),
                of_gpus(
                    metrics.GPU_ERRORS,
                    "Last XID error",
                    "0: none. NVIDIA's documentation lists the numbers; 48, 63, 64, 79 are faults of the hardware.",
                    "none",
                ),
                Panel(
                    title="Cost per hour",
                    description="Nodes times the prices of the stack; empty without prices.",
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
                    description="Workers of each job's spec that do not run.",
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
                    description="Controllers that lead: 1, except for a moment when it changes.",
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
                    description="Of one pass over one job.",
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
                    description="Per second.",
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


def path_of(dashboard: Dashboard) -> Path:
    """Return the file of a dashboard."""
    return DASHBOARDS_FOLDER / f"{dashboard.uid}.json"


def text_of(dashboard: Dashboard) -> str:
    """Return the content of a dashboard's file."""
    return json.dumps(dashboard.to_json(), indent=2) + "\n"


def write() -> None:
    """Write all dashboards to manifests/."""
    DASHBOARDS_FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        path_of(dashboard).write_text(text_of(dashboard), encoding="utf-8")


if __name__ == "__main__":
    write()
