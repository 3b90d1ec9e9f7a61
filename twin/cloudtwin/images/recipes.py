"""Recipes of images: the Dockerfile, the files that it copies, the base image and the program.

A Dockerfile is built from the root folder of its recipe as context. The twin adds two folders to the context:
`build/bin` with a program of the toolchain and `build/wheels/<name>` with Python packages. The twin has
recipes for its own images; callers pass theirs.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudtwin.errors import TwinError
from cloudtwin.images.bases import Base
from cloudtwin.toolchain import cache

PREFIX = "localhost/cloudtwin"
TAG = "local"
NOT_CONTENT = ("__pycache__", "*.pyc", ".*")


@dataclass(frozen=True)
class Recipe:
    """One image.

    Attributes:
        name: the last part of its repository; unique among all images of a twin.
        dockerfile: path of its Dockerfile below `root`.
        root: the folder that all other paths are relative to.
        sources: files and folders below `root` that the Dockerfile copies.
        base: the base image, passed to the Dockerfile as BASE_IMAGE; None for an image from scratch.
        program: a program of the toolchain, put into build/bin/; empty for none.
        requirements: a locked requirements file whose wheels are put into build/wheels/<name>/; empty for none.
        pythons: Python versions that the base image may have; wheels are fetched for each.
        prefix: registry and first part of the repository in its reference.
    """

    name: str
    dockerfile: str
    root: Path = Path(__file__).parent
    sources: tuple[str, ...] = ()
    base: Base | None = None
    program: str = ""
    requirements: str = ""
    pythons: tuple[str, ...] = ("3.13",)  # Debian trixie's
    prefix: str = PREFIX

    @property
    def reference(self) -> str:
        """The name by which pods use the image on a twin."""
        return f"{self.prefix}/{self.name}:{TAG}"

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Recipe":
        """Return the recipe that a JSON object describes.

        Raises:
            KeyError, TypeError: the object does not describe a recipe.
        """
        base = document["base"]
        fields = {
            **document,
            "root": Path(document["root"]),
            "sources": tuple(document["sources"]),
            "pythons": tuple(document["pythons"]),
            "base": base and Base(base["name"], tuple(base["packages"]), tuple(base["excluded"])),
        }
        return cls(**fields)


OWN_RECIPES = (
    Recipe("coredns", "coredns.Dockerfile", program="coredns"),
    Recipe("pause", "pause.Dockerfile", program="pause"),
    Recipe("gpu-plugin", "gpu-plugin.Dockerfile", program="stand-in"),
    Recipe("gpu-metrics", "gpu-metrics.Dockerfile", program="stand-in"),
    Recipe("autoscaler", "autoscaler.Dockerfile", program="stand-in"),
    Recipe("metrics-agent", "metrics-agent.Dockerfile", program="stand-in"),
)

# Published images that ours stand in for, by the last part of their names.
STAND_INS = {
    "k8s-device-plugin": "gpu-plugin",
    "dcgm-exporter": "gpu-metrics",
    "cluster-autoscaler": "autoscaler",
    "prometheus": "metrics-agent",
}


def all_recipes(recipes: Sequence[Recipe]) -> dict[str, Recipe]:
    """Return the twin's recipes and the given ones by name.

    Raises:
        ValueError: two recipes have the same name.
    """
    combined_recipes = [*OWN_RECIPES, *recipes]
    by_name = {recipe.name: recipe for recipe in combined_recipes}
    if len(by_name) < len(combined_recipes):
        raise ValueError(
            f"image names are not unique: {[recipe.name for recipe in combined_recipes]}"
        )
    return by_name


def image_name(reference: str) -> str:
    """Return the last part of an image's repository, without registry, tag and digest."""
    repository = reference.partition("@")[0]
    return repository.rpartition("/")[2].partition(":")[0]


def stand_in_for(image: str) -> str | None:
    """Return the reference of the local image that stands in for a published image, or None."""
    name = image_name(image)
    return all_recipes(())[STAND_INS[name]].reference if name in STAND_INS else None


def context_files(recipe: Recipe) -> list[Path]:
    """Return every file below the recipe's root that goes into the build context, sorted.

    Raises:
        TwinError: a file that the recipe names does not exist.
    """
    files: set[Path] = set()
    for source in filter(None, (recipe.dockerfile, recipe.requirements, *recipe.sources)):
        path = recipe.root / source
        if not path.exists():
            raise TwinError(
                f"{path}, a source of the image {recipe.name}, does not exist.",
                "Images are built from a checkout of the repository: run the command in one.",
            )
        files.update(_files_below(path) if path.is_dir() else {path})
    return sorted(files)


def source_key(recipe: Recipe) -> str:
    """Return the key of all files of an image: names, contents, execute bits."""
    parts: list[str | bytes] = [recipe.name]
    for path in context_files(recipe):
        executable = "x" if path.stat().st_mode & 0o100 else "-"
        parts += [str(path.relative_to(recipe.root)), executable, path.read_bytes()]
    return cache.digest(parts)


def lay_out(
    recipe: Recipe, context: Path, program: Path | None = None, wheels: Path | None = None
) -> None:
    """Fill the empty folder `context` with all files that the Dockerfile copies."""
    for path in context_files(recipe):
        copy = context / path.relative_to(recipe.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)  # independent of the umask
    if program:
        _put(program, context / "build" / "bin" / recipe.program)
    if wheels:
        _put(wheels, context / "build" / "wheels" / recipe.name)


def _files_below(folder: Path) -> set[Path]:
    return {
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(
            Path(part).match(pattern)
            for part in path.relative_to(folder).parts
            for pattern in NOT_CONTENT
        )
    }


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
