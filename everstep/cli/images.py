"""Everstep's container images, as recipes for the twin and for other builders.

python -m everstep.cli.images                     build all missing programs and images of the twin
python -m everstep.cli.images build NAME          build one image and print the path of its archive
python -m everstep.cli.images context NAME DIR    write the build context of one image, with its Dockerfile
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cloudtwin.facade import Base, Recipe, TwinError, TwinOptions

from everstep.catalog.names import LOCAL_IMAGES
from everstep.cli.image_sources import source_root
from everstep.cli.twin_settings import SHARED_MOUNT, configure_twin
from everstep.progress import Lines, Progress

ROOT = source_root()
PYTHON = Base("python", ("python3", "python3-pip", "ca-certificates"))
TORCH = Base(
    "torch",
    (
        "python3",
        "python3-pip",
        "python3-torch",
        "python3-torchvision",
        "python3-numpy",
        "python3-pil",
        "dataset-fashion-mnist",
    ),
    excluded=(
        "/usr/lib/python3/dist-packages/torch/bin/test_*",
        "/usr/lib/python3/dist-packages/torch/include/*",
    ),
)
TRAINER_SOURCES = (
    "everstep/__init__.py",
    "everstep/errors.py",
    "everstep/files.py",
    "everstep/optional_packages.py",
    "everstep/progress.py",
    "everstep/resources.py",
    "everstep/spelling.py",
    "everstep/catalog",
    "everstep/elastic",
    "everstep/staging",
    "trainer",
)
CONTROLLER_SOURCES = (
    "everstep/__init__.py",
    "everstep/catalog",
    "everstep/capacity/__init__.py",
    "everstep/capacity/lifetimes.py",
    "everstep/capacity/on_demand.py",
    "everstep/capacity/placement.py",
    "controller",
)
SPOT_SOURCES = ("everstep/__init__.py", "everstep/catalog", "spot")
RECIPES = (
    Recipe(
        "trainer",
        "trainer/Dockerfile",
        ROOT,
        TRAINER_SOURCES,
        TORCH,
        requirements="requirements/trainer.txt",
        pythons=("3.13", "3.12"),  # of the twin's base, and of PyTorch's image for CUDA
        prefix=LOCAL_IMAGES,
    ),
    Recipe(
        "controller",
        "controller/Dockerfile",
        ROOT,
        CONTROLLER_SOURCES,
        PYTHON,
        requirements="requirements/controller.txt",
        prefix=LOCAL_IMAGES,
    ),
    Recipe("spot", "spot/Dockerfile", ROOT, SPOT_SOURCES, PYTHON, prefix=LOCAL_IMAGES),
    Recipe("etcd-rejoin", "etcd/Dockerfile", ROOT, ("etcd",), PYTHON, prefix=LOCAL_IMAGES),
    Recipe("etcd", "etcd/server.Dockerfile", ROOT, program="etcd", prefix=LOCAL_IMAGES),
)
OPTIONS = TwinOptions(RECIPES, SHARED_MOUNT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    configure_twin()
    options = _parser().parse_args(arguments)
    recipe = next((recipe for recipe in RECIPES if recipe.name == options.name), None)
    try:
        if recipe is None:
            _build_all()
        elif options.folder is None:
            _build_one(recipe)
        else:
            write_context(recipe, options.folder)
    except TwinError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m everstep.cli.images", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(name=None, folder=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    names = [recipe.name for recipe in RECIPES]
    build = commands.add_parser("build", help="build one image")
    build.add_argument("name", metavar="NAME", choices=names, help=", ".join(names))
    context = commands.add_parser("context", help="write the build context of one image")
    context.add_argument("name", metavar="NAME", choices=names, help=", ".join(names))
    context.add_argument("folder", metavar="DIR", type=Path, help="folder to write")
    return parser


def _build_all() -> None:
    from cloudtwin.facade import ensure_images, ensure_packages, ensure_programs

    ensure_packages(Lines())
    ensure_programs(Lines())
    print("\n".join(ensure_images(Lines(), RECIPES).references))


def _build_one(recipe: Recipe) -> None:
    from cloudtwin.facade import build, ensure_packages

    ensure_packages(Lines())
    print(build(recipe, Lines()))


def write_context(recipe: Recipe, folder: Path, progress: Progress | None = None) -> None:
    """Write the build context of an image, with its packages and, at the top, its Dockerfile.

    Raises:
        TwinError: a source of the image does not exist, or its packages cannot be fetched.
    """
    from cloudtwin.facade import build_context

    build_context(recipe, folder, progress or Lines())
    shutil.copy(folder / recipe.dockerfile, folder / "Dockerfile")


if __name__ == "__main__":
    sys.exit(main())
