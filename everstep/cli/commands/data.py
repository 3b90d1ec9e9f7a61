"""`everstep data ...`: stages data sets to the shared volume."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from everstep.cli.commands.options import AsJson
from everstep.cli.staging_display import JsonLines, display
from everstep.errors import EverstepError
from everstep.files import expand_user
from everstep.staging.entry import Entry
from everstep.staging.imagenet import arrange, read_annotations
from everstep.staging.sources.location import FORMS, open_source

app = typer.Typer(no_args_is_help=True, help="Stage data sets to the shared volume.")


@app.callback()
def options() -> None:
    """Stage data sets to the shared volume."""  # with a callback, the only command keeps its name


@app.command()
def stage(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=f"{FORMS}.")],
    destination: Annotated[
        Path, typer.Argument(metavar="DESTINATION", help="Folder to write to, on the volume.")
    ],
    *,
    annotations: Annotated[
        Path | None,
        typer.Option(help="Annotations of ImageNet's validation images: XML folder or CSV file."),
    ] = None,
    endpoint: Annotated[
        str,
        typer.Option(metavar="URL", help="Endpoint of an S3-compatible server or of Blob Storage."),
    ] = "",
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="Number of files copied at a time.")
    ] = 16,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read complete files again and compare their SHA-256.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be copied, and copy nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a data set to a folder; run it again to continue after an interruption.

    Files appear complete or not at all. The SHA-256 of each is written to everstep.sha256 in the destination.
    """
    from everstep.staging.stage import Options, plan
    from everstep.staging.stage import stage as stage_data

    target = target_of(destination)
    check_apart(expand_user(source), target)
    opened_source = open_source(source, endpoint, workers)
    rename = arrange_by(annotations) if annotations else None
    settings = Options(workers=workers, verify=verify, rename=rename)
    observer = JsonLines() if as_json else display()
    with observer:
        if dry_run:
            observer.report_plan(plan(opened_source, target, settings, observer))
        else:
            observer.report_end(stage_data(opened_source, target, settings, observer))


def arrange_by(annotations: Path) -> Callable[[Iterator[Entry]], Iterator[Entry]]:
    """Return a function that arranges ImageNet's validation images by their annotations."""
    classes = read_annotations(expand_user(annotations))
    return lambda entries: arrange(entries, classes)


def target_of(destination: Path) -> Path:
    """Return the absolute path of a destination.

    Raises:
        EverstepError: it is in the home folder of a nonexistent user.
    """
    target = expand_user(destination)
    if str(target).startswith("~"):
        raise EverstepError(
            f"the destination {destination} cannot be used: there is no user {target.parts[0]}",
            "Write an absolute path.",
        )
    return target.absolute()


def check_apart(source: Path, destination: Path) -> None:
    """Check that a source on this machine and the destination do not overlap.

    Raises:
        EverstepError: one contains the other, or the destination is not a folder.
    """
    if destination.exists() and not destination.is_dir():
        raise EverstepError(f"the destination {destination} is not a folder", "Name a folder.")
    if not source.exists():
        return
    first, second = source.resolve(), destination.resolve()
    if first.is_relative_to(second) or second.is_relative_to(first):
        raise EverstepError(
            f"the source {source} and the destination {destination} overlap",
            "Choose a destination outside the source.",
        )
