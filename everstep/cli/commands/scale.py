"""`everstep scale`: time of an epoch with several numbers of replicas, compared with linear scaling."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from everstep.catalog.trainer_options import DATASETS, MODELS
from everstep.cli.commands.options import (
    DEFAULT_STACK,
    AsJson,
    OnTwin,
    Stack,
    refuse_options,
    write_output,
)
from everstep.cli.console import progress, results, say
from everstep.cli.engine.context import StackContext, open_running_stack
from everstep.cli.engine.target import Target
from everstep.cli.line_chart import LineChart
from everstep.cli.line_chart_png import png
from everstep.cli.report.readers import FolderReader, PodReader, RunReader
from everstep.cli.scaling import local as local_machine
from everstep.cli.scaling import show
from everstep.cli.scaling.in_cluster import ClusterStudy
from everstep.cli.scaling.local import ALL_STEPS, LocalStudy, TrainerSettings
from everstep.cli.scaling.measure import Study, measure
from everstep.cli.scaling.store import Store
from everstep.cli.scaling.study import DEFAULT_BATCH, DEFAULT_LOADER_WORKERS, PRESETS
from everstep.errors import EverstepError
from everstep.spelling import unknown_name

DEFAULT_DATASET, DEFAULT_IMAGES, DEFAULT_WAIT_SECONDS = "fashion-mnist", 2048, 1200
MAX_REPLICAS = 1024
NODE_COUNTS = frozenset({"min_nodes", "nodes", "max_nodes", "fallback_nodes"})
ON_ONE_MACHINE = tuple(str(target) for target in Target if target.is_on_twin)
"""Targets whose machines share the CPUs of this one."""


def scale(
    *,
    replicas: Annotated[str, typer.Option(metavar="N,N", help="Numbers of replicas.")] = "1,2,3",
    model: Annotated[str, typer.Option(help="Model of the trainer.")] = "resnet50",
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    local: Annotated[
        bool, typer.Option("--local", help="Use processes on this machine instead of a stack.")
    ] = False,
    batch: Annotated[
        int, typer.Option(min=1, help="Images per process in one step.")
    ] = DEFAULT_BATCH,
    steps: Annotated[
        int,
        typer.Option(
            min=0,
            help="Train this number of steps, the first two to warm up, and extrapolate; 0: a whole epoch.",
        ),
    ] = 0,
    dataset: Annotated[str, typer.Option(help="With --local: format of --data.")] = DEFAULT_DATASET,
    data: Annotated[
        Path | None, typer.Option(help="With --local: prepared data; by default random images.")
    ] = None,
    images: Annotated[
        int, typer.Option(min=1, help="With --local: number of random images.")
    ] = DEFAULT_IMAGES,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for measurements and chart.")
    ] = Path("scaling"),
    remeasure: Annotated[
        bool, typer.Option("--again", help="Repeat sizes that were already measured.")
    ] = False,
    wait: Annotated[
        int,
        typer.Option(
            min=1, metavar="SECONDS", help="Time within which each size must begin to train."
        ),
    ] = DEFAULT_WAIT_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Train with each number of replicas and compare the time of an epoch with the ideal.

    A size that was measured with the same settings is kept, so an interrupted study continues where it stopped.
    """
    if local:
        options = {
            "--stack": stack != DEFAULT_STACK,
            "--twin": twin,
            "--wait": wait != DEFAULT_WAIT_SECONDS,
        }
        refuse_options(
            options, "cannot be used with --local, which uses no stack", "Omit one of them."
        )
    else:
        options = {
            "--dataset": dataset != DEFAULT_DATASET,
            "--data": data is not None,
            "--images": images != DEFAULT_IMAGES,
        }
        refuse_options(
            options,
            "cannot be used without --local: the job's data set is used",
            "Omit it, or add --local.",
        )
    numbers = _numbers(replicas)
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    preset = PRESETS.get(model)
    settings = TrainerSettings(
        model=model,
        batch=batch,
        steps=steps,
        loader_workers=preset.loader_workers if preset and not local else DEFAULT_LOADER_WORKERS,
    )
    study, study_settings = (
        _local_study(settings, dataset, data, images, out)
        if local
        else _cluster_study(open_running_stack(stack, twin=twin), settings, wait)
    )
    sizes = measure(study, numbers, Store(out, study_settings), progress(), remeasure=remeasure)
    on_one_machine = local or study_settings.get("target") in ON_ONE_MACHINE
    shared_cpus = local_machine.cpus() if on_one_machine else None
    _write_pictures(out / model, show.chart(model, sizes, shared_cpus))
    if as_json:
        text = json.dumps(show.as_value(study_settings, sizes, shared_cpus), indent=2)
        results.print(text, markup=False)
    else:
        show.show(model, sizes, shared_cpus)


def _write_pictures(path: Path, chart: LineChart) -> None:
    """Write a chart as SVG, and as PNG where Pillow is installed."""
    _write_picture(path.with_name(f"{path.name}.svg"), chart.svg())
    if find_spec("PIL"):
        _write_picture(path.with_name(f"{path.name}.png"), png(chart))
    else:
        say("   no PNG, which needs Pillow: pip install pillow")


def _write_picture(path: Path, content: str | bytes) -> None:
    write_output("--out", path, content)
    say(f"   wrote {path}")


def _numbers(text: str) -> list[int]:
    """Return the numbers of replicas, ascending.

    Raises:
        EverstepError: a part of the text is not a number in the valid range.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= MAX_REPLICAS for word in words):
        raise EverstepError(
            f"--replicas {text!r} is not a list of numbers from 1 to {MAX_REPLICAS}",
            "Separate them with commas: --replicas 1,2,3",
        )
    return sorted({int(word) for word in words})


def _local_study(
    settings: TrainerSettings, dataset: str, data: Path | None, images: int, output_folder: Path
) -> tuple[Study, dict[str, Any]]:
    """Return a study on this machine, and its settings."""
    local_machine.require_trainer()
    if dataset not in DATASETS:
        raise unknown_name("data set", dataset, DATASETS)
    if data is None and dataset != DEFAULT_DATASET:
        raise EverstepError(f"--dataset {dataset} needs --data", "Name its folder.")
    if data is not None and not data.is_dir():
        raise EverstepError(f"--data {data} is not a folder", "Name a folder of prepared data.")
    folder = (data or local_machine.make_images(output_folder, images, progress())).absolute()
    study_settings = {**vars(settings), "on": "local", "data": str(folder), "dataset": dataset}
    return LocalStudy(settings, dataset, folder), study_settings


def _cluster_study(
    context: StackContext, settings: TrainerSettings, wait: int
) -> tuple[Study, dict[str, Any]]:
    """Return a study on the nodes of a stack, and its settings."""
    client = context.connect()

    def open_reader(job: str) -> RunReader:
        if context.on_twin:
            folder = context.run_folder.parent / job
            return FolderReader(folder, folder / "no-events", ALL_STEPS)
        return PodReader(client, job, context.workspace.events, ALL_STEPS)

    study = ClusterStudy(client, context.job, settings, open_reader, wait)
    study_settings = {
        **vars(settings),
        "on": context.workspace.stack,
        "target": str(context.target),
        "job": study.fingerprint(_stack_settings(context)),
    }
    return study, study_settings


def _stack_settings(context: StackContext) -> dict[str, Any]:
    """Return the machines and the data of a stack, which its job's pods do not show."""
    cluster = (context.platform or context).config.cluster.model_dump(mode="json")
    machines = {key: _without_counts(cluster.get(key)) for key in ("gpu_pool", "gpu_pools")}
    return {**machines, "data": context.config.data.model_dump(mode="json")}


def _without_counts(
    value: Any,  # noqa: ANN401  a value of JSON
) -> Any:  # noqa: ANN401
    """Return the settings of a pool without the number of its nodes, which does not change the speed of a group."""
    if isinstance(value, list):
        return [_without_counts(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_counts(item) for key, item in value.items() if key not in NODE_COUNTS}
    return value
