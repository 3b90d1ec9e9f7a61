"""`everstep images ...`: builds Everstep's images and pushes them to a registry."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from everstep.catalog.names import LOCAL_IMAGES
from everstep.cli import image_push, stack_images
from everstep.cli.commands.options import DEFAULT_STACK, AsJson, OnTwin, Stack, refuse_options
from everstep.cli.console import progress, results, say
from everstep.cli.engine import cloud_twin, prerequisites
from everstep.cli.engine.context import StackContext, open_stack
from everstep.cli.engine.stack_folder import locked_stack
from everstep.cli.engine.target import Target
from everstep.cli.image_builders import find_builder
from everstep.cli.image_push import PushedImage
from everstep.errors import EverstepError

app = typer.Typer(no_args_is_help=True, help="Build the images of a stack, and push them.")

Builder = Annotated[
    str, typer.Option("--builder", help="docker, podman or buildah; default: the first that works.")
]
Bases = Annotated[
    list[str],
    typer.Option(
        "--base",
        metavar="IMAGE=BASE",
        help="Base image in place of its Dockerfile's, such as trainer=registry.example/pytorch:2.15; "
        "repeatable.",
    ),
]
Only = Annotated[
    list[str], typer.Option("--only", metavar="IMAGE", help="Only this image; repeatable.")
]


@app.command()
def build(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    only: Only = [],  # noqa: B006  typer copies it
    builder: Builder = "",
    base: Bases = [],  # noqa: B006  typer copies it
    as_json: AsJson = False,
) -> None:
    """Build a stack's images: for a cluster with docker, podman or buildah, for the twin in its image store."""
    context = open_stack(stack, twin=twin)
    _check_options(context, {"--only": only, "--builder": builder, "--base": base})
    if context.on_twin:
        references = _build_for_twin()
    else:
        program, bases = find_builder(builder), image_push.parse_bases(base)
        references = []
        for name in _names(context, only):
            recipe, base_image = image_push.recipe_named(name), bases.get(name, "")
            tag = f"{LOCAL_IMAGES}/{name}:{image_push.image_tag(recipe, base_image)}"
            image_push.build(recipe, tag, program, base_image, progress())
            references.append(tag)
    if as_json:
        results.print(json.dumps({"images": references}, indent=2), markup=False)
    else:
        results.print("\n".join(references), markup=False)


@app.command()
def push(
    *,
    stack: Stack = DEFAULT_STACK,
    twin: OnTwin = False,
    registry: Annotated[
        str,
        typer.Option(metavar="HOST/PATH", help="Registry; default: the stack's registry."),
    ] = "",
    only: Only = [],  # noqa: B006  typer copies it
    builder: Builder = "",
    base: Bases = [],  # noqa: B006  typer copies it
    as_json: AsJson = False,
) -> None:
    """Build the images that the registry lacks, push them, and write their digests into the stack file."""
    context = open_stack(stack, twin=twin)
    if context.target is Target.TWIN:
        raise EverstepError(
            f"stack {stack} runs on this machine: `everstep up` builds its images, and nothing is pulled",
            "Name a cloud stack with --stack, such as eks-dev.",
        )
    _check_options(context, {"--builder": builder, "--base": base})
    names = _names(context, only)
    address = image_push.check_registry(registry or _registry_of(context))
    pushed, changed = [], []
    bases = image_push.parse_bases(base)
    with _exclusive_use(context):
        if context.target is Target.TWIN_CLOUD:
            images = image_push.push_to_twin(names, address, _twin_state(context), progress())
        else:
            images = image_push.push(names, address, find_builder(builder), bases, progress())
        for image in images:
            pushed.append(image)
            changed += _write(context, image)
    _report(context, pushed, changed, as_json=as_json)


def _check_options(context: StackContext, options: Mapping[str, object]) -> None:
    """Raise an error for options that the build for the twin would ignore."""
    refuse_options(
        {name: context.on_twin and bool(value) for name, value in options.items()},
        "cannot be used on the twin, which builds its own variants of the images",
        "Omit the option, or build for a cluster: without --twin, with a cloud stack.",
    )


def _exclusive_use(context: StackContext) -> AbstractContextManager[None]:
    """Return the lock of the twin's folder, which `up` creates and `down` removes; none for a registry elsewhere."""
    if context.target is not Target.TWIN_CLOUD:
        return nullcontext()
    command, fix = "`everstep images push`", "Wait for it."
    return locked_stack(context.workspace, command, fix, record_project=True)


def _build_for_twin() -> list[str]:
    return list(prerequisites.build(progress()))


def _twin_state(context: StackContext) -> Path:
    """Start the control plane and the registry of the twin if necessary; return the twin's folder."""
    prerequisites.build(progress())
    cloud_twin.start(context, progress())
    return context.workspace.state


def _names(context: StackContext, only: list[str]) -> list[str]:
    foreign_sections = _foreign_sections(context)
    names_used = [
        name
        for name in stack_images.images_of_stack(context.config)
        if _section_of(name) not in foreign_sections
    ]
    return [image_push.recipe_named(name).name for name in only] or names_used


def _registry_of(context: StackContext) -> str:
    """Return the registry that the stack, or the stack of its platform, created.

    Raises:
        EverstepError: the stack has no registry, or its registry does not exist yet.
    """
    owner = context.platform or context
    registry, stack = owner.config.registry, owner.workspace.stack
    if registry.kind == "acr":
        return f"{registry.name}.azurecr.io"
    if registry.kind == "none":
        raise EverstepError(
            f"stack {stack} has no registry of its own",
            f"Name one: everstep images push --stack {context.workspace.stack} --registry ghcr.io/my-team; or "
            f"set everstep:registry.kind in {owner.workspace.stack_file} to ecr or acr.",
        )
    address = owner.engine(progress()).outputs().get("registry")
    if address:
        return str(address)
    raise EverstepError(
        f"the registry of stack {stack} does not exist yet, or another machine's state has it",
        f"Create it: everstep up --stack {stack} --target registry; or name it with --registry: "
        "`pulumi stack output registry` prints it.",
    )


def _write(context: StackContext, image: PushedImage) -> list[str]:
    """Write an image into the stack file immediately, so that an interrupted push keeps its finished part."""
    if _section_of(image.name) in _foreign_sections(context):
        return []
    return stack_images.write_images(context.workspace.stack_file, {image.name: image.reference})


def _foreign_sections(context: StackContext) -> set[str]:
    """Return the sections that the twin overrides, or that the platform's stack file sets instead of this stack's."""
    from components.config.platform_stack_rules import PLATFORM_SECTIONS

    overridden_sections = {section for section, _ in context.workspace.overrides}
    return overridden_sections | set(PLATFORM_SECTIONS if context.platform else ())


def _section_of(image: str) -> str:
    """Return the section of a stack file that names an image."""
    return stack_images.KEYS[image].partition(".")[0]


def _report(
    context: StackContext, pushed: list[PushedImage], changed: list[str], *, as_json: bool
) -> None:
    file = context.workspace.stack_file
    if as_json:
        images = {image.name: {"reference": image.reference, "tag": image.tag,
                             "existed": image.existed} for image in pushed}  # fmt: skip
        value = {"images": images, "stackFile": str(file), "changed": changed}
        results.print(json.dumps(value, indent=2), markup=False)
        return
    for image in pushed:
        say(f"   {image.tag}{' already existed' if image.existed else ''}", style="bright_black")
        results.print(f"{stack_images.KEYS[image.name]}: {image.reference}", markup=False)
    if changed:
        say(f"{file} has the new digests: {', '.join(changed)}.")
    else:
        say(f"{file} already has these digests.")
