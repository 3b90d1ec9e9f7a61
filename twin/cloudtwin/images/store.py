"""The image store: images are built when their sources change and kept in one containerd root.

Every step has its own key: base, Python packages, image, store. A run without changes reads the sources,
finds the store by its key and does nothing else; after a change in one image only that image is built, and the
store is a copy of the previous one with that image replaced.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.images import bases, golden, oci_layout, recipes
from cloudtwin.images.buildah import Buildah
from cloudtwin.images.recipes import Recipe
from cloudtwin.paths import cache_directory
from cloudtwin.progress import Progress
from cloudtwin.toolchain import cache, ensure_tools

FORMAT = "1"  # raise it to rebuild the images of unchanged sources
WHEEL_OPTIONS = (  # with --platform, pip accepts only the listed versions of glibc
    "--only-binary=:all:",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=manylinux2014_x86_64",
)
ARCHIVES_VARIABLE = "CLOUDTWIN_IMAGES"


@dataclass(frozen=True)
class ImageStore:
    """A containerd root that holds every image of a twin.

    Attributes:
        root: the folder; containerd must never run on it, only on a clone.
        key: the cache key of all images in it.
        references: the images' names.
    """

    root: Path
    key: str
    references: tuple[str, ...]


def ensure_images(progress: Progress, additional: Sequence[Recipe] = ()) -> ImageStore:
    """Return the store of all images for the current sources; build what is missing.

    Args:
        progress: receiver of the steps.
        additional: the caller's images, in addition to the twin's.

    Raises:
        TwinError: a prerequisite is missing, or a build fails.
    """
    all_recipes = recipes.all_recipes(additional)
    tools = _tools(all_recipes.values(), progress)
    keys = {name: image_key(recipe, tools) for name, recipe in all_recipes.items()}
    archives = image_archives()
    key = store_key(keys, archives)

    def fill(staging: Path) -> None:
        _require_root()
        layouts = {
            recipe.reference: _ensure_layout(recipe, keys[name], tools, progress)
            for name, recipe in all_recipes.items()
        }
        _fill(layouts, archives, progress, staging)

    return _open(cache.ensure(images_folder(), "store", key, progress, fill), key)


def clone(store: ImageStore, destination: Path) -> None:
    """Copy the store to `destination`, which must not exist, by hard links where possible.

    Raises:
        TwinError: the copy fails.
    """
    golden.copy(store.root, destination)


def build(recipe: Recipe, progress: Progress, base: str | None = None) -> Path:
    """Build one image and return it as an OCI archive in the cache.

    Args:
        recipe: the image.
        progress: receiver of the steps.
        base: reference of the base image, which the builder pulls; default: the recipe's base.

    Raises:
        TwinError: the build fails.
    """
    tools = _tools([recipe], progress)
    key = image_key(recipe, tools, base)
    folder = _ensure_layout(recipe, key, tools, progress, base)
    pack = partial(_pack, folder, recipe, progress)
    name = f"archive-{recipe.name}"
    return cache.ensure(images_folder(), name, key, progress, pack) / f"{recipe.name}.tar"


def ensure_layout(recipe: Recipe, progress: Progress) -> Path:
    """Return the layout folder of one image, which the image store uses too; build it if it does not exist.

    Raises:
        TwinError: the build fails.
    """
    tools = _tools([recipe], progress)
    return _ensure_layout(recipe, image_key(recipe, tools), tools, progress)


def images_folder() -> Path:
    """Return the folder of images, bases and stores."""
    return cache_directory() / "images"


def image_key(recipe: Recipe, tools: Mapping[str, Path], base: str | None = None) -> str:
    """Return the cache key of an image: its sources, its program and its base."""
    # A program's folder is named after the key of its build.
    program = tools[recipe.program].parent.name if recipe.program else ""
    base_key = recipe.base.key if recipe.base else ""
    return cache.digest([FORMAT, recipes.source_key(recipe), program, base or base_key])


def store_key(keys: Mapping[str, str], archives: Sequence[Path]) -> str:
    """Return the cache key of a store: its images, and the archives by name, size and time."""
    parts = [FORMAT, *(f"{name}={key}" for name, key in sorted(keys.items()))]
    for archive in archives:
        status = archive.stat()
        parts.append(f"{archive}:{status.st_size}:{status.st_mtime_ns}")
    return cache.digest(parts)


def image_archives() -> list[Path]:
    """Return the user's OCI archives, in the folder that CLOUDTWIN_IMAGES names.

    Raises:
        TwinError: the variable does not name a folder.
    """
    value = os.environ.get(ARCHIVES_VARIABLE)
    if not value:
        return []
    folder = Path(value)
    if not folder.is_dir():
        raise TwinError(
            f"{ARCHIVES_VARIABLE} is {value!r}, which is not a folder.",
            "Point it to a folder with *.tar files.",
        )
    return sorted(folder.glob("*.tar"))


def _require_root() -> None:
    if os.geteuid() != 0:
        raise TwinError(
            "The images of a twin need root: their files are unpacked with their owners.",
            "Run it as root, or use a Kubernetes cluster of your own.",
        )


def _tools(needed_recipes: Iterable[Recipe], progress: Progress) -> dict[str, Path]:
    names = [recipe.program for recipe in needed_recipes if recipe.program]
    return ensure_tools(names, progress, static=True)


def _ensure_layout(
    recipe: Recipe,
    key: str,
    tools: Mapping[str, Path],
    progress: Progress,
    base: str | None = None,
) -> Path:
    """Return the layout folder of one image; build it if it does not exist."""
    make = partial(_make, recipe, tools, base, progress)
    return cache.ensure(images_folder(), f"image-{recipe.name}", key, progress, make) / "oci"


def _make(
    recipe: Recipe, tools: Mapping[str, Path], base: str | None, progress: Progress, staging: Path
) -> None:
    folder = images_folder()
    wheels = ensure_wheels(recipe, progress) if recipe.requirements else None
    base_recipe = None if base else recipe.base
    base_layout = bases.ensure_base(base_recipe, folder, progress) / "oci" if base_recipe else None
    context, oci = staging / "context", staging / "oci"
    recipes.lay_out(recipe, context, tools.get(recipe.program), wheels)
    with cache.locked(folder / "builder.lock", progress, "building an image"):
        builder = Buildah(folder / "buildah")
        builder.require()
        if base_recipe and base_layout:
            if not builder.has(base_recipe.reference):
                with progress.step(f"Loading the base image {base_recipe.name} into buildah"):
                    builder.load(base_layout, base_recipe.reference)
            oci_layout.share_blobs(base_layout, oci)
        with progress.step(f"Building the image {recipe.name} with buildah"):
            reference = base_recipe.reference if base_recipe else base
            builder.build(context, recipe.dockerfile, recipe.reference, reference, oci)
    oci_layout.drop_unused(oci)
    cache.remove(context)


def ensure_wheels(recipe: Recipe, progress: Progress) -> Path:
    """Return a folder with the wheels of a locked requirements file.

    Raises:
        TwinError: the wheels cannot be fetched.
    """
    requirements = recipe.root / recipe.requirements
    key = cache.digest([FORMAT, *recipe.pythons, *WHEEL_OPTIONS, requirements.read_bytes()])
    fetch = partial(_fetch, recipe, requirements, progress)
    name = f"wheels-{recipe.name}"
    return cache.ensure(images_folder(), name, key, progress, fetch) / "wheels"


def _fetch(recipe: Recipe, requirements: Path, progress: Progress, staging: Path) -> None:
    # On the host, so that no image build needs the network.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += [
        *WHEEL_OPTIONS,
        "--dest",
        str(staging / "wheels"),
        "--requirement",
        str(requirements),
    ]
    with progress.step(f"Fetching the Python packages of the image {recipe.name}"):
        for version in recipe.pythons:
            _download([*command, f"--python-version={version}"], requirements)


def _download(command: Sequence[str], requirements: Path) -> None:
    """Run pip, and raise an error with its output if it fails."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise TwinError(
            f"The Python packages in {requirements} could not be fetched:\n{result.stderr.strip()}",
            "Check the network and the package index that pip uses.",
        )


def _fill(
    layouts: Mapping[str, Path], archives: Sequence[Path], progress: Progress, staging: Path
) -> None:
    """Fill a new store, starting from a copy of the newest one.

    Args:
        layouts: layout folders by image reference.
        archives: the user's images.
        progress: receiver of the steps.
        staging: the new store's folder.
    """
    folder, root = staging.parent, staging / "root"
    sources = [golden.ImportSource(path, reference) for reference, path in layouts.items()]
    sources += [golden.ImportSource(archive) for archive in archives]
    previous_stores = cache.versions(folder, "store")
    with progress.step("Loading the images into containerd") as step:
        try:
            if previous_stores:
                golden.copy(previous_stores[0] / "root", root)
            references = golden.fill(root, sources)
        except TwinError as error:
            if not previous_stores:
                raise
            step.note(
                f"starting from an empty store, since the previous one cannot be used: {error}"
            )
            cache.remove(root)
            references = golden.fill(root, sources)
    (staging / "store.json").write_text(json.dumps({"references": references}))
    for layout in (*layouts.values(), *folder.glob("base-*-*/oci")):
        golden.share_content(root, layout)


def _open(folder: Path, key: str) -> ImageStore:
    references = json.loads((folder / "store.json").read_text())["references"]
    return ImageStore(folder / "root", key, tuple(references))


def _pack(folder: Path, recipe: Recipe, progress: Progress, staging: Path) -> None:
    archive = staging / f"{recipe.name}.tar"
    with progress.step(f"Writing {archive.name}"), archive.open("wb") as out:
        oci_layout.write_archive(folder, recipe.reference, out, existing_blobs=())
