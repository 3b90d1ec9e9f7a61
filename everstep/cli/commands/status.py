"""`everstep status`: the cluster, the job and the training on one screen."""

import json
import time
from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everstep.catalog.plurals import amount
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, OnTwin, Stack
from everstep.cli.console import results
from everstep.cli.durations import clock
from everstep.cli.engine.context import StackContext, open_running_stack
from everstep.cli.kubernetes_client import ClusterView
from everstep.cli.report.follow import JobOutcome
from everstep.cli.report.report import Report, build


def status(*, stack: Stack = DEFAULT_STACK, twin: OnTwin = False, as_json: AsJson = False) -> None:
    """Show nodes, pods, the job's conditions and the progress of the training."""
    context = open_running_stack(stack, twin=twin)
    view = context.connect().view(context.job)
    reader = context.run_reader()
    record = reader.read()
    report = build(record) if reader.has_read else None
    if as_json:
        results.print(json.dumps(as_value(context, view, report), indent=2), markup=False)
    else:
        results.print(screen(context, view, report))


def as_value(context: StackContext, view: ClusterView, report: Report | None) -> dict[str, Any]:
    """Return the status as plain values for JSON.

    Args:
        context: context of the stack.
        view: view of its cluster.
        report: report of its run; None if no worker runs from which the files could be read.
    """
    return {
        "stack": context.workspace.stack,
        "kubernetes": view.version,
        "nodes": [
            {
                "name": node.name,
                "pool": node.pool,
                "ready": node.ready,
                "schedulable": node.schedulable,
                "pods": list(node.pods),
            }
            for node in view.nodes
        ],
        "pods": [
            {
                "name": pod.name,
                "node": pod.node,
                "phase": pod.phase,
                "ready": pod.ready,
                "unscheduled_reason": pod.unscheduled_reason,
            }
            for pod in view.pods
        ],
        "job": {
            "name": context.job,
            "conditions": [
                {"type": condition.type, "reason": condition.reason, "message": condition.message}
                for condition in view.conditions
            ],
        },
        "etcd": {"ready": etcd_ready(view), "members": context.config.etcd.members},
        "training": _training(view, report),
        "at": time.time(),
    }


def _training(view: ClusterView, report: Report | None) -> dict[str, Any]:
    """Return the progress as plain values; without a report, only the end of the job is certain."""
    if report is None:
        progress = dict.fromkeys(("step", "total_steps", "world_size", "accuracy"))
        return {**progress, "finished": view.condition(JobOutcome.SUCCEEDED) is not None}
    return {
        "step": report.steps,
        "total_steps": report.total_steps,
        "world_size": report.world_sizes[-1].world_size if report.world_sizes else 0,
        "accuracy": report.accuracy,
        "finished": report.finished,
    }


def etcd_ready(view: ClusterView) -> int:
    """Return the number of ready etcd members."""
    return sum(pod.ready for pod in view.pods if pod.name.rpartition("-")[0] == "etcd")


def screen(context: StackContext, view: ClusterView, report: Report | None) -> RenderableType:
    """Return the status as tables for a terminal; `report` is None as for `as_value`."""
    title = Text.assemble(
        (context.job, "bold"),
        f"  stack {context.workspace.stack}",
        (f"  Kubernetes {view.version}", "bright_black"),
    )
    facts = _facts(context, view, report)
    return Group(title, Text(), facts, Text(), _nodes(view), *_unscheduled_lines(view))


def _facts(context: StackContext, view: ClusterView, report: Report | None) -> Table:
    table = Table.grid(padding=(0, 3))
    rows = {
        "job": _condition(view),
        **_progress_rows(report),
        "etcd": Text(
            f"{etcd_ready(view)} of {amount(context.config.etcd.members, 'member')} ready"
        ),
    }
    for name, value in rows.items():
        table.add_row(Text(name, style="bright_black"), value)
    return table


def _progress_rows(report: Report | None) -> dict[str, Text]:
    """Return the rows about the training."""
    if report is None:
        text = "no worker runs, so the files of the run cannot be read; `everstep report` starts a pod that reads them"
        return {"training": Text(text)}
    total = f" of {report.total_steps}" if report.total_steps else ""
    workers = report.world_sizes[-1].world_size if report.world_sizes else 0
    progress = (
        f"step {report.steps}{total}, {amount(workers, 'worker')}, {clock(report.duration_seconds)}"
    )
    return {
        "training": Text(progress if report.steps else "no step yet"),
        "accuracy": Text("not yet" if report.accuracy is None else f"{report.accuracy:.4f}"),
    }


def _condition(view: ClusterView) -> Text:
    if not view.conditions:
        return Text("there is no such job, or the controller has not reported yet", style="yellow")
    newest = view.conditions[-1]
    colors = {"Succeeded": "green", "Failed": "red", "Running": "green"}
    return Text.assemble(
        (newest.type, colors.get(newest.type, "yellow")), (f"  {newest.message}", "bright_black")
    )


def _nodes(view: ClusterView) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    for column in ("node", "pool", "state", "pods"):
        table.add_column(column, no_wrap=column != "pods")
    for node in view.nodes:
        state = Text("Ready", style="green") if node.ready else Text("NotReady", style="red")
        if not node.schedulable:
            state.append(", cordoned", style="yellow")
        table.add_row(node.name, node.pool, state, Text(" ".join(node.pods), style="bright_black"))
    return table


def _unscheduled_lines(view: ClusterView) -> list[Text]:
    """Return a line for each reason why pods have no node, with the number of pods."""
    reasons = Counter(pod.unscheduled_reason for pod in view.pods if pod.unscheduled_reason)
    lines = [
        Text.assemble((f"{count} pod{' waits' if count == 1 else 's wait'}: ", "yellow"), reason)
        for reason, count in reasons.items()
    ]
    return [Text(), *lines] if lines else []
