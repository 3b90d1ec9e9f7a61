"""The trainer's image for a cloud, built with a user's commands on a stand-in for its CUDA base; it trains a step.

cuda_base/Dockerfile names the differences from the base. No test here runs a CUDA library or the base's version of
PyTorch; unit tests run with that version.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest
from cloudtwin.images import bases, confine
from cloudtwin.images.buildah import Buildah
from cloudtwin.images.store import ensure_wheels, images_folder
from cloudtwin.toolchain import cache

from everstep.cli.image_push import image_tag, recipe_named
from everstep.cli.images import ROOT, TORCH
from everstep.progress import Silent
from tests.trainer.data.fashion_mnist import write_source
from trainer.settings import RESULT_FILE

EVERSTEP = str(Path(sys.executable).parent / "everstep")
BASE = "localhost/stand-in/pytorch:cuda"
BASE_PYTHON = (3, 12)
"""Python of the CUDA base, which has Ubuntu 24.04."""

IMAGES = 8
BASE_PACKAGES = ("torch", "torchvision", "numpy", "PIL")
ADDED_PACKAGES = (
    "azure",
    "boto3",
    "cv2",
    "dateutil",
    "prometheus_client",
    "requests",
    "safetensors",
    "urllib3",
)
FIND = """
import json, sys
from importlib.util import find_spec
print(json.dumps({name: spec and spec.origin for name in sys.argv[1:] for spec in [find_spec(name)]}))
"""
IMPORT_ALL = """
import importlib, pkgutil
for top in ("everstep", "trainer"):
    package = importlib.import_module(top)
    for module in pkgutil.walk_packages(package.__path__, f"{top}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
for name in ("azure.identity", "azure.storage.blob", "boto3", "cv2"):
    importlib.import_module(name)
"""
"""Imports all modules of the image; the trainer imports OpenCV and the clients of stores only where it uses them."""

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Builder:
    """buildah as on a user's machine. It has its own storage, and reads the base of the twin from the shared cache.

    Attributes:
        folder: its storage.
    """

    folder: Path

    def run(self, *command: str) -> str:
        """Run a command that uses buildah; return its output."""
        settings = {
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
            "BUILDAH_ISOLATION": "chroot",
            "TMPDIR": str(self.folder),
        }
        # buildah keeps its own cache under /var/lib.
        with_private_var_lib = ["sh", "-c", 'mount -t tmpfs everstep /var/lib && exec "$@"', "sh"]
        result = confine.run([*with_private_var_lib, *command], settings)
        assert result.code == 0, f"{' '.join(command)}\n{result.output}"
        return result.output

    def in_container(self, container: str, volume: Path, *command: str) -> str:
        """Run a command in a container as its user, with `volume` mounted at /mnt."""
        options = ("--env=OMP_NUM_THREADS=1", f"--volume={volume}:/mnt")
        return self.run("buildah", "run", *options, container, "--", *command)

    def container(self, image: str, name: str) -> str:
        """Create a container of an image; return its name."""
        self.run("buildah", "from", "--pull-never", f"--name={name}", image)
        return name


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """Yield a builder that has the stand-in for the CUDA base."""
    folder = tmp_path_factory.mktemp("builder")
    shared = images_folder() / "buildah"
    provide_twin_base(Buildah(shared))
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/layers"\nrunroot = "{folder}/run"\n'
        f'[storage.options]\nadditionalimagestores = ["{shared}/layers"]\n'
    )
    context = shutil.copytree(Path(__file__).parent / "cuda_base", folder / "context")
    write_package(context / "package")
    builder = Builder(folder)
    arguments = (f"--build-arg=BASE_IMAGE={TORCH.reference}", f"--tag={BASE}")
    builder.run("buildah", "build", *arguments, str(context))
    yield builder
    shutil.rmtree(folder)


def provide_twin_base(builder: Buildah) -> None:
    """Load the base of the twin's trainer unless a build has done so."""
    layout = bases.ensure_base(TORCH, images_folder(), Silent()) / "oci"
    with cache.locked(images_folder() / "builder.lock", Silent(), "building an image"):
        if not builder.has(TORCH.reference):
            builder.load(layout, TORCH.reference)


def write_package(folder: Path) -> None:
    """Write the contents of a Debian package with a few images, in place of Fashion-MNIST."""
    write_source(folder / "usr/share/datasets/fashion-mnist", train=IMAGES, test=4)
    fields = {"Package": "dataset-fashion-mnist", "Version": "1", "Architecture": "all"}
    fields |= {"Maintainer": "tests <tests@localhost>", "Description": "random images"}
    (folder / "DEBIAN").mkdir()
    control = "".join(f"{name}: {value}\n" for name, value in fields.items())
    (folder / "DEBIAN/control").write_text(control)


@pytest.fixture(scope="module")
def container(builder: Builder) -> str:
    """Return a container of the trainer's image, built as a user builds it for a cloud."""
    options = ("--stack", "eks-dev", "--only", "trainer", "--builder", "buildah")
    with chdir(ROOT):
        output = builder.run(EVERSTEP, "images", "build", *options, "--base", f"trainer={BASE}")
    image = f"localhost/everstep/trainer:{image_tag(recipe_named('trainer'), BASE)}"
    assert image in output
    return builder.container(image, "trainer")


def test_the_stand_in_has_pytorch_where_the_base_has_it_and_no_package_that_the_image_adds(
    builder: Builder, tmp_path: Path
) -> None:
    output = builder.in_container(
        builder.container(BASE, "base"),
        tmp_path,
        "python3",
        "-c",
        FIND,
        *BASE_PACKAGES,
        *ADDED_PACKAGES,
    )

    origins = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    assert all(origins[name].startswith("/usr/local/lib/python3.") for name in BASE_PACKAGES)
    assert {name: origins[name] for name in ADDED_PACKAGES} == dict.fromkeys(ADDED_PACKAGES), (
        "the image must add the packages that the base lacks"
    )


def test_every_module_of_the_image_can_be_imported(
    builder: Builder, container: str, tmp_path: Path
) -> None:
    builder.in_container(container, tmp_path, "python3", "-c", IMPORT_ALL)


def test_the_image_prepares_its_data_set_and_trains_a_step(
    builder: Builder, container: str, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)  # the image's user is not root
    data = ("--dataset", "fashion-mnist")

    prepared = builder.in_container(
        container, tmp_path, "python3", "-m", "trainer.prepare", *data, "--output", "/mnt/data"
    )
    builder.in_container(
        container, tmp_path, "python3", "-m", "trainer.train", *data, "--data", "/mnt/data",
        "--run", "/mnt/run", "--model", "resnet18", "--global-batch", str(IMAGES), "--epochs", "1",
    )  # fmt: skip

    assert f"prepared {IMAGES} training images" in prepared
    result = json.loads((tmp_path / "run" / RESULT_FILE).read_text())
    assert result["steps"] == 1
    assert (tmp_path / "run").stat().st_uid == 10001


def test_the_packages_of_the_image_fit_the_python_of_the_base() -> None:
    wheels = [path.stem for path in ensure_wheels(recipe_named("trainer"), Silent()).iterdir()]

    fitting = {wheel.partition("-")[0] for wheel in wheels if fits_base(wheel)}
    assert wheels
    assert fitting == {wheel.partition("-")[0] for wheel in wheels}


def fits_base(wheel: str) -> bool:
    """Return True if the Python of the base can install a wheel."""
    python, abi, _ = wheel.rsplit("-", 3)[1:]
    if abi == "abi3":
        return all((3, int(minor)) <= BASE_PYTHON for minor in re.findall(r"cp3(\d+)", python))
    return abi in ("none", f"cp{BASE_PYTHON[0]}{BASE_PYTHON[1]}")
