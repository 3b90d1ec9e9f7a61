"""What each image is made of: its Dockerfile, what goes into it, and its base on a twin.

The Dockerfiles are ordinary ones, so each image also builds on a base from a registry. Their build
context is laid out as the repository is, and beside it `build/`, which holds what is made and not
written: programs under build/bin, wheels under build/wheels.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from everstep.errors import EverstepError
from twin.toolchain import cache

REPOSITORY = Path(__file__).resolve().parents[2]
PREFIX = "localhost/everstep"
TAG = "local"
NOT_CONTENT = ("__pycache__", "*.pyc", ".*")


@dataclass(frozen=True)
class Recipe:
    """One image.

    Attributes:
        name: its name, and the last part of its reference.
        dockerfile: where its Dockerfile lies, from the root of the repository.
        sources: files and folders of the repository that the Dockerfile copies.
        base: the local base image, a key of `bases.BASES`; empty for one that starts from nothing.
        program: a program of the toolchain, put at build/bin/.
        requirements: a locked requirements file, whose wheels are put into build/wheels/<name>/.
    """

    name: str
    dockerfile: str
    sources: tuple[str, ...] = ()
    base: str = ""
    program: str = ""
    requirements: str = ""

    @property
    def reference(self) -> str:
        """What pods call the image on a twin."""
        return f"{PREFIX}/{self.name}:{TAG}"


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "trainer",
            "trainer/Dockerfile",
            sources=(
                "everstep/__init__.py",
                "everstep/errors.py",
                "everstep/progress.py",
                "everstep/elastic",
                "trainer",
                "requirements/photographs.txt",
            ),
            base="torch",
        ),
        Recipe(
            "controller",
            "controller/Dockerfile",
            sources=("controller",),
            base="python",
            requirements="requirements/controller.txt",
        ),
        Recipe("spot", "spot/Dockerfile", sources=("spot",), base="python"),
        Recipe("etcd", "twin/images/etcd.Dockerfile", program="etcd"),
        Recipe("coredns", "twin/images/coredns.Dockerfile", program="coredns"),
        Recipe("pause", "twin/images/pause.Dockerfile", program="pause"),
        Recipe("gpu-plugin", "twin/images/gpu-plugin.Dockerfile", program="stand-in"),
        Recipe("gpu-metrics", "twin/images/gpu-metrics.Dockerfile", program="stand-in"),
        Recipe("autoscaler", "twin/images/autoscaler.Dockerfile", program="stand-in"),
    )
}

# Whose published images ours stand in for, by the last part of their names.
STAND_INS = {
    "k8s-device-plugin": "gpu-plugin",
    "dcgm-exporter": "gpu-metrics",
    "cluster-autoscaler": "autoscaler",
}


def stand_in_for(published: str) -> str | None:
    """Return the local image that does the observable part of a published one; None where there is none."""
    repository = published.partition("@")[0]
    name = repository.rpartition("/")[2].partition(":")[0]
    return RECIPES[STAND_INS[name]].reference if name in STAND_INS else None


def context_files(recipe: Recipe, root: Path = REPOSITORY) -> list[Path]:
    """Return every file of the repository that goes into the build context, sorted.

    Raises:
        EverstepError: a file the recipe names is not there.
    """
    files: set[Path] = set()
    for source in filter(None, (recipe.dockerfile, recipe.requirements, *recipe.sources)):
        path = root / source
        if not path.exists():
            raise EverstepError(
                f"{path}, which the image {recipe.name} is made from, is not there.",
                "Images are built from a checkout of the repository: run it from one.",
            )
        files.update(_files_below(path) if path.is_dir() else {path})
    return sorted(files)


def source_key(recipe: Recipe, root: Path = REPOSITORY) -> str:
    """Return the key of all the repository puts into an image: names, contents, execute bits."""
    parts: list[str | bytes] = [recipe.name]
    for path in context_files(recipe, root):
        executable = "x" if path.stat().st_mode & 0o100 else "-"
        parts += [str(path.relative_to(root)), executable, path.read_bytes()]
    return cache.digest(parts)


def lay_out(
    recipe: Recipe,
    context: Path,
    program: Path | None = None,
    wheels: Path | None = None,
    root: Path = REPOSITORY,
) -> None:
    """Fill the empty folder `context` with all that the Dockerfile copies."""
    for path in context_files(recipe, root):
        copy = context / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        copy.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)  # not this user's umask
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
