"""Build of Everstep's images for a cluster, and their push to a registry, which returns their digests.

A tag is the version and a key of the image's sources and base: the same sources have the same tag everywhere, so a
push that was interrupted continues with the images that the registry lacks, and immutable tags are never written twice.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.catalog import names
from everstep.catalog.image_reference import parse
from everstep.cli.image_builders import BUILDERS, PLATFORM, ImageBuilder
from everstep.cli.images import RECIPES, write_context
from everstep.cli.registry_logins import ACR_USER, registry_at
from everstep.errors import EverstepError
from everstep.progress import Progress

if TYPE_CHECKING:
    from cloudtwin.facade import Recipe, Registry, RegistryError

PUBLISHED_IMAGES = names.IMAGES
"""Images that clusters pull; etcd itself is published by its project."""


@dataclass(frozen=True)
class PushedImage:
    """An image in a registry.

    Attributes:
        name: name of the image, such as `trainer`.
        tag: its reference by tag.
        digest: its digest.
        existed: True if the registry had it before.
    """

    name: str
    tag: str
    digest: str
    existed: bool

    @property
    def reference(self) -> str:
        """Reference by digest: `registry.example/trainer@sha256:...`."""
        return f"{self.tag.rpartition(':')[0]}@{self.digest}"


def recipe_named(name: str) -> "Recipe":
    """Return the recipe of an image.

    Raises:
        EverstepError: there is no such image; the error has similar names.
    """
    from everstep.spelling import unknown_name

    if name not in PUBLISHED_IMAGES:
        raise unknown_name("image", name, PUBLISHED_IMAGES)
    return next(recipe for recipe in RECIPES if recipe.name == name)


def check_registry(registry: str) -> str:
    """Return a registry, host and path, without a trailing slash.

    Raises:
        EverstepError: images cannot have such a name.
    """
    trimmed = registry.rstrip("/")
    try:
        parsed = parse(f"{trimmed}/image:tag")
    except ValueError as error:
        raise EverstepError(
            f"--registry {registry!r} is not a registry: {error}",
            "Write host and path in lower case, without a tag, such as "
            "111122223333.dkr.ecr.us-east-1.amazonaws.com/everstep or ghcr.io/my-team.",
        ) from None
    if parsed.name != f"{trimmed}/image":
        raise EverstepError(
            f"--registry {registry!r} has no host: its images would be at {parsed.name}",
            f"Write the host too: {parsed.domain}/{trimmed}.",
        )
    return trimmed


def parse_bases(options: Sequence[str]) -> dict[str, str]:
    """Return base images by image from options IMAGE=BASE.

    Raises:
        EverstepError: an option names an unknown image, or its base is not a reference.
    """
    bases = {}
    for option in options:
        name, equals, base = option.partition("=")
        try:
            parse(base if equals else "")
        except ValueError as error:
            raise EverstepError(
                f"--base {option!r} is not IMAGE=BASE: {error}",
                "Write it as --base trainer=registry.example/pytorch:2.15.0.",
            ) from None
        bases[recipe_named(name).name] = base
    return bases


def image_tag(recipe: "Recipe", base: str = "") -> str:
    """Return the tag of an image: Everstep's version, and a key of its sources and its base."""
    from cloudtwin.facade import source_key

    return f"{version('everstep')}-{source_key(recipe, base)}"


def build(recipe: "Recipe", tag: str, builder: ImageBuilder, base: str, progress: Progress) -> None:
    """Build an image for a cluster.

    Args:
        recipe: the image.
        tag: complete name of the image.
        builder: the program that builds.
        base: base image; empty for the default of its Dockerfile.
        progress: receiver of the steps.

    Raises:
        EverstepError: the build fails.
        TwinError: a source of the image does not exist, or its packages cannot be fetched.
    """
    with _context(recipe, progress) as folder:
        arguments = {"BASE_IMAGE": base} if base else {}
        with progress.step(f"Building {tag} with {builder.program} for {PLATFORM}") as step:
            builder.build(folder, arguments, tag, step)


def push(
    images: Sequence[str],
    registry: str,
    builder: ImageBuilder,
    bases: Mapping[str, str],
    progress: Progress,
) -> Iterator[PushedImage]:
    """Build and push the images that the registry lacks; yield each as soon as the registry has it.

    Args:
        images: names of images.
        registry: host and path in front of their names.
        builder: the program that builds and pushes.
        bases: base images by image, instead of the Dockerfiles' defaults.
        progress: receiver of the steps.

    Raises:
        EverstepError: there is no such image, the registry cannot be reached or refuses, or a build fails.
        TwinError: a source of an image does not exist, or its packages cannot be fetched.
    """
    host, _, path = registry.partition("/")
    client = registry_at(host)
    prefix = f"{path}/" if path else ""
    for name in images:
        recipe, base = recipe_named(name), bases.get(name, "")
        tag = image_tag(recipe, base)
        reference = f"{registry}/{name}:{tag}"
        with converted_errors(host):
            digest = digest_of(client, f"{prefix}{name}", tag)
            if digest is None:
                client.check_push(f"{prefix}{name}")  # before a build that takes minutes
        if digest:
            yield PushedImage(name, reference, digest, existed=True)
            continue
        build(recipe, reference, builder, base, progress)
        with progress.step(f"Pushing {reference}") as step:
            builder.push(reference, step)
        with converted_errors(host):
            digest = digest_of(client, f"{prefix}{name}", tag)
        if not digest:
            raise EverstepError(
                f"the registry does not have {reference} after its push",
                "Run the command again; if it repeats, check that no lifecycle rule deletes new images.",
            )
        yield PushedImage(name, reference, digest, existed=False)


def push_to_twin(
    images: Sequence[str], registry: str, state: Path, progress: Progress
) -> Iterator[PushedImage]:
    """Build the twin's variants of images and push them to its registry; yield each as soon as the registry has it.

    Args:
        images: names of images.
        registry: host and path in front of their names.
        state: the twin's folder.
        progress: receiver of the steps.

    Raises:
        EverstepError: there is no such image, or the registry refuses.
        TwinError: the twin is not running, or a build fails.
    """
    from cloudtwin.facade import publish_image
    from cloudtwin.facade import registry as twin_registry

    host, _, path = registry.partition("/")
    client = twin_registry(state, host)
    prefix = f"{path}/" if path else ""
    for name in images:
        recipe = recipe_named(name)
        repository, tag = f"{prefix}{name}", image_tag(recipe, "twin")
        with converted_errors(host):
            existing_digest = digest_of(client, repository, tag)
            digest = existing_digest or publish_image(
                state, recipe, host, repository, tag, progress
            )
        yield PushedImage(name, f"{registry}/{name}:{tag}", digest, existed=bool(existing_digest))


@contextmanager
def converted_errors(host: str) -> Iterator[None]:
    """Convert a registry's error into an error with a fix.

    Raises:
        EverstepError: the registry cannot be reached or refuses.
    """
    from cloudtwin.facade import RegistryError

    try:
        yield
    except RegistryError as error:
        raise EverstepError(error.problem, fix_of(error, host)) from None


def fix_of(error: "RegistryError", host: str) -> str:
    """Return the fix for a registry's error."""
    if error.code == "TAG_INVALID":
        return "Its tags are immutable, and another image has this tag: push under another name."
    if error.code == "NAME_UNKNOWN":
        return "Create the repository first: everstep up --stack STACK --target registry."
    if error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return f"Log in first: {login_command(host)}."
    if error.status == 0:
        return "Check the name of the registry and this machine's network."
    return "Run the same command again later: images that were pushed are kept."


def login_command(host: str, program: str = "") -> str:
    """Return the command that logs in to a registry.

    Args:
        host: host of the registry.
        program: docker, podman or buildah; by default the first of them that is installed, or docker.
    """
    installed = (builder.program for builder in BUILDERS if shutil.which(builder.program))
    program = program or next(installed, "docker")
    region = host.removesuffix(".amazonaws.com").rpartition(".")[2]
    if ".dkr.ecr." in host:
        return (
            f"aws ecr get-login-password --region {region} | "
            f"{program} login --username AWS --password-stdin {host}"
        )
    if not host.endswith(".azurecr.io"):
        return f"{program} login {host}"
    login = f"az acr login --name {host.removesuffix('.azurecr.io')}"
    if program == "docker":
        return login
    return (
        f"{login} --expose-token --query accessToken --output tsv | "
        f"{program} login --username {ACR_USER} --password-stdin {host}"
    )


def digest_of(client: "Registry", repository: str, tag: str) -> str | None:
    """Return the digest of a tag; None if there is no such tag or if the first push creates the repository."""
    from cloudtwin.facade import RegistryError

    try:
        return client.digest(repository, tag)
    except RegistryError as error:
        if error.code == "NAME_UNKNOWN" and ".dkr.ecr." not in client.host:
            return None
        raise


@contextmanager
def _context(recipe: "Recipe", progress: Progress) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="everstep-image-") as folder:
        write_context(recipe, Path(folder), progress)
        yield Path(folder)
