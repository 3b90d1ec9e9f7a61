"""`everstep status`: the cluster, the job and the training on one screen."""

import json
import time
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everstep.cli import report as reports
from everstep.cli.access import Place, place_to_look
from everstep.cli.cluster import ClusterView
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, OnTwin, Stack
from everstep.cli.console import results
from everstep.cli.report import Report
from everstep.cli.screen import clock


def status(*, stack: Stack = DEFAULT_STACK, twin: OnTwin = False, as_json: AsJson = False) -> None:
    """Show nodes, pods, the job's conditions and how far the training is."""
    here = place_to_look(stack, twin=twin)
    view = here.connect().view(here.job)
    report = reports.build(here.source().read())
    if as_json:
        results.print(json.dumps(as_value(here, view, report), indent=2), markup=False)
    else:
        results.print(screen(here, view, report))


def as_value(here: Place, view: ClusterView, report: Report) -> dict[str, Any]:
    """The status for programs."""
    return {
        "stack": here.workspace.stack,
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
            {"name": pod.name, "node": pod.node, "phase": pod.phase, "ready": pod.ready}
            for pod in view.pods
        ],
        "job": {
            "name": here.job,
            "conditions": [
                {"type": one.type, "reason": one.reason, "message": one.message}
                for one in view.conditions
            ],
        },
        "etcd": {"ready": etcd_ready(view), "members": here.config.etcd.members},
        "training": {
            "step": report.steps,
            "total_steps": report.total_steps,
            "world_size": report.world_sizes[-1].world_size if report.world_sizes else 0,
            "accuracy": report.accuracy,
            "finished": report.finished,
        },
        "at": time.time(),
    }


def etcd_ready(view: ClusterView) -> int:
    """How many of etcd's members are ready."""
    return sum(pod.ready for pod in view.pods if pod.name.rpartition("-")[0] == "etcd")


def screen(here: Place, view: ClusterView, report: Report) -> RenderableType:
    """The status for a person."""
    title = Text.assemble(
        (here.job, "bold"),
        f"  stack {here.workspace.stack}",
        (f"  Kubernetes {view.version}", "bright_black"),
    )
    return Group(title, Text(), _facts(here, view, report), Text(), _nodes(view))


def _facts(here: Place, view: ClusterView, report: Report) -> Table:
    table = Table.grid(padding=(0, 3))
    of = f" of {report.total_steps}" if report.total_steps else ""
    workers = report.world_sizes[-1].world_size if report.world_sizes else 0
    trained = f"step {report.steps}{of}, {workers} workers, {clock(report.duration_seconds)}"
    rows = {
        "job": _condition(view),
        "training": Text(trained if report.steps else "no step yet"),
        "accuracy": Text("not yet" if report.accuracy is None else f"{report.accuracy:.4f}"),
        "etcd": Text(f"{etcd_ready(view)} of {here.config.etcd.members} members ready"),
    }
    for name, value in rows.items():
        table.add_row(Text(name, style="bright_black"), value)
    return table


def _condition(view: ClusterView) -> Text:
    if not view.conditions:
        return Text("no such job, or the controller has said nothing yet", style="yellow")
    newest = view.conditions[-1]
    colours = {"Succeeded": "green", "Failed": "red", "Running": "green"}
    return Text.assemble(
        (newest.type, colours.get(newest.type, "yellow")), (f"  {newest.message}", "bright_black")
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
