"""The images of a twin: built when their sources change, kept in one containerd root.

Every step has a key of its own: base, Python packages, image, store. A second run with nothing
changed reads the sources, finds the store by its key and does nothing else; after a change in one
image only that image and its layers are made anew, on a copy of the last store.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from everstep.errors import EverstepError
from everstep.progress import Progress
from twin.images import bases, builders, golden, layout, recipes
from twin.images.recipes import RECIPES, REPOSITORY, Recipe
from twin.paths import cache_directory
from twin.toolchain import cache, ensure_tools

FORMAT = "1"  # raise it when the same inputs should give other images
WHEELS_FOR = (  # Debian trixie's Python; pip does not know that a new glibc takes older wheels too
    "--only-binary=:all:",
    "--python-version=3.13",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=manylinux2014_x86_64",
)
FOREIGN = "EVERSTEP_TWIN_IMAGES"


@dataclass(frozen=True)
class ImageStore:
    """A containerd root that holds every image of a twin.

    Attributes:
        root: the folder; containerd must never run on it, only on a clone.
        key: what the images are made from.
        references: the images' names.
    """

    root: Path
    key: str
    references: tuple[str, ...]


def ensure_images(progress: Progress) -> ImageStore:
    """Return the store of all images as the sources are now, building what is missing.

    Raises:
        EverstepError: something to build with is missing, or a build fails.
    """
    tools = ensure_tools(_programs(RECIPES.values()), progress, static=True)
    keys = {name: image_key(recipe, tools) for name, recipe in RECIPES.items()}
    foreign = foreign_archives()
    key = store_key(keys, foreign)
    folder = images_folder()
    make = partial(_fill, keys, foreign, tools, progress)
    return _opened(cache.ensure(folder, "store", key, progress, make), key)


def clone(store: ImageStore, destination: Path) -> None:
    """Make `destination`, which must not be there yet, a containerd root with every image in it.

    Raises:
        EverstepError: it cannot be made there.
    """
    golden.copy(store.root, destination)


def build(name: str, progress: Progress, base: str | None = None) -> Path:
    """Build one image and return it as an OCI archive, in the cache.

    Args:
        name: a key of `recipes.RECIPES`.
        progress: told of every step.
        base: what it stands on, as the builder can pull it; default: our own, from Debian.

    Raises:
        EverstepError: no such image, or the build fails.
    """
    if name not in RECIPES:
        raise EverstepError(f"There is no image {name!r}.", f"There are: {', '.join(RECIPES)}.")
    recipe = RECIPES[name]
    tools = ensure_tools(_programs([recipe]), progress, static=True)
    key = image_key(recipe, tools, base)
    folder = _ensure_layout(recipe, key, tools, progress, base)
    pack = partial(_pack, folder, recipe, progress)
    return cache.ensure(images_folder(), f"archive-{name}", key, progress, pack) / f"{name}.tar"


def images_folder() -> Path:
    """Return where images, bases and stores are kept."""
    return cache_directory().absolute() / "images"


def image_key(recipe: Recipe, tools: dict[str, Path], base: str | None = None) -> str:
    """Return the key of all that an image is made from."""
    # A program's folder is named after the key of its build.
    program = str(tools[recipe.program].parent.name) if recipe.program else ""
    own = bases.BASES[recipe.base].key if recipe.base else ""
    return cache.digest([FORMAT, recipes.source_key(recipe), program, base or own])


def store_key(keys: dict[str, str], foreign: list[Path]) -> str:
    """Return the key of a store: its images, and the archives of others by name, size and time."""
    parts = [FORMAT, *(f"{name}={key}" for name, key in sorted(keys.items()))]
    for archive in foreign:
        status = archive.stat()
        parts.append(f"{archive}:{status.st_size}:{status.st_mtime_ns}")
    return cache.digest(parts)


def foreign_archives() -> list[Path]:
    """Return the archives in the folder that EVERSTEP_TWIN_IMAGES names.

    Raises:
        EverstepError: it names no folder.
    """
    named = os.environ.get(FOREIGN)
    if not named:
        return []
    folder = Path(named)
    if not folder.is_dir():
        raise EverstepError(
            f"{FOREIGN} is {named!r}, which is no folder.", "Point it to one that holds *.tar."
        )
    return sorted(folder.glob("*.tar"))


def _programs(wanted: Iterable[Recipe]) -> list[str]:
    return [recipe.program for recipe in wanted if recipe.program]


def _ensure_layout(
    recipe: Recipe, key: str, tools: dict[str, Path], progress: Progress, base: str | None = None
) -> Path:
    """Return the layout folder of one image."""
    make = partial(_make, recipe, tools, base, progress)
    return cache.ensure(images_folder(), f"image-{recipe.name}", key, progress, make) / "oci"


def _make(
    recipe: Recipe, tools: dict[str, Path], base: str | None, progress: Progress, staging: Path
) -> None:
    folder = images_folder()
    wheels = _ensure_wheels(recipe, progress) if recipe.requirements else None
    own = bases.BASES[recipe.base] if recipe.base and not base else None
    base_layout = bases.ensure_base(own, folder, progress) / "oci" if own else None
    context, oci = staging / "context", staging / "oci"
    recipes.lay_out(recipe, context, tools.get(recipe.program), wheels)
    with cache.locked(folder / "builder.lock", progress, "building an image"):
        builder = builders.choose(folder / "buildah")
        if own and base_layout and not builder.has(own.reference):
            with progress.step(f"Loading the base image {own.name} into {builder.name}"):
                builder.load(base_layout, own.reference)
        if base_layout:
            layout.share_blobs(base_layout, oci)
        with progress.step(f"Building the image {recipe.name} with {builder.name}"):
            reference = own.reference if own else base
            builder.build(
                builders.Job(context, recipe.dockerfile, recipe.reference, reference), oci
            )
    layout.drop_unused(oci)
    cache.remove(context)


def _ensure_wheels(recipe: Recipe, progress: Progress) -> Path:
    """Return a folder with the wheels of a locked requirements file."""
    requirements = REPOSITORY / recipe.requirements
    key = cache.digest([FORMAT, *WHEELS_FOR, requirements.read_bytes()])
    fetch = partial(_fetch, recipe, requirements, progress)
    name = f"wheels-{recipe.name}"
    return cache.ensure(images_folder(), name, key, progress, fetch) / "wheels"


def _fetch(recipe: Recipe, requirements: Path, progress: Progress, staging: Path) -> None:
    # On the host and not in the image: so no image build needs the network.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += [*WHEELS_FOR, "--dest", str(staging / "wheels"), "--requirement", str(requirements)]
    with progress.step(f"Fetching the Python packages of the image {recipe.name}"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EverstepError(
            f"The Python packages in {requirements} could not be fetched:\n{done.stderr.strip()}",
            "Check the network and the package index that pip is set to.",
        )


def _fill(
    keys: dict[str, str],
    foreign: list[Path],
    tools: dict[str, Path],
    progress: Progress,
    staging: Path,
) -> None:
    """Fill a new store, starting from the newest one there is."""
    if os.geteuid() != 0:
        raise EverstepError(
            "The images of a twin need root: they are unpacked with their owners.",
            "Run it as root, or use a cluster of your own through everstep:cluster.kubeconfig.",
        )
    folder, root = staging.parent, staging / "root"
    layouts = {name: _ensure_layout(RECIPES[name], keys[name], tools, progress) for name in keys}
    sources = [golden.Source(layouts[name], RECIPES[name].reference) for name in layouts]
    sources += [golden.Source(archive) for archive in foreign]
    earlier = cache.versions(folder, "store")
    with progress.step("Loading the images into containerd") as step:
        try:
            if earlier:
                golden.copy(earlier[0] / "root", root)
            references = golden.fill(root, sources)
        except EverstepError as error:
            if not earlier:
                raise
            step.note(f"starting afresh, since the last store cannot be extended: {error}")
            cache.remove(root)
            references = golden.fill(root, sources)
    (staging / "store.json").write_text(json.dumps({"references": references}))
    for kept in (*layouts.values(), *(base / "oci" for base in folder.glob("base-*-*"))):
        golden.share_content(root, kept)


def _opened(folder: Path, key: str) -> ImageStore:
    references = json.loads((folder / "store.json").read_text())["references"]
    return ImageStore(folder / "root", key, tuple(references))


def _pack(folder: Path, recipe: Recipe, progress: Progress, staging: Path) -> None:
    archive = staging / f"{recipe.name}.tar"
    with progress.step(f"Writing {archive.name}"), archive.open("wb") as out:
        layout.write_archive(folder, recipe.reference, out, known=())
