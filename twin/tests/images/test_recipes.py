"""Recipes of images: the build context, and the key of its sources."""

from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.images import recipes
from cloudtwin.images.recipes import OWN_RECIPES, Recipe, all_recipes, stand_in_for


def recipe(root: Path) -> Recipe:
    return Recipe(
        "demo",
        "demo/Dockerfile",
        root,
        sources=("demo", "shared/one.py"),
        program="etcd",
        requirements="requirements/demo.txt",
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in {
        "demo/Dockerfile": "FROM scratch",
        "demo/main.py": "print(1)",
        "demo/deep/data.json": "{}",
        "demo/__pycache__/main.cpython-313.pyc": "compiled",
        "demo/.hidden": "an editor's",
        "shared/one.py": "ONE = 1",
        "shared/two.py": "TWO = 2",
        "requirements/demo.txt": "kopf==1",
    }.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "root"


def test_the_context_contains_only_the_sources_of_the_recipe(root: Path) -> None:
    names = {str(path.relative_to(root)) for path in recipes.context_files(recipe(root))}

    assert names == {
        "demo/Dockerfile",
        "demo/main.py",
        "demo/deep/data.json",
        "shared/one.py",
        "requirements/demo.txt",
    }


@pytest.mark.parametrize(
    ("name", "is_source"),
    [
        ("demo/main.py", True),
        ("demo/Dockerfile", True),
        ("requirements/demo.txt", True),
        ("demo/new.py", True),
        ("shared/two.py", False),
        ("demo/__pycache__/main.cpython-313.pyc", False),
        ("demo/.hidden", False),
    ],
)
def test_an_image_is_built_again_when_one_of_its_sources_changes(
    root: Path, name: str, is_source: bool
) -> None:
    original_key = recipes.source_key(recipe(root))

    (root / name).write_text("something else")

    assert (recipes.source_key(recipe(root)) != original_key) is is_source


def test_an_execute_bit_and_a_renamed_file_change_the_key_of_an_image(root: Path) -> None:
    original_key = recipes.source_key(recipe(root))
    (root / "demo" / "main.py").chmod(0o755)
    executable_key = recipes.source_key(recipe(root))
    (root / "demo" / "main.py").rename(root / "demo" / "other.py")

    assert len({original_key, executable_key, recipes.source_key(recipe(root))}) == 3


def test_the_context_has_the_layout_of_the_repository_and_the_built_files(
    root: Path, tmp_path: Path
) -> None:
    program = tmp_path / "etcd"
    program.write_text("ELF")
    program.chmod(0o755)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "kopf-1.whl").write_text("PK")

    recipes.lay_out(recipe(root), tmp_path / "context", program, wheels)

    files = {str(p.relative_to(tmp_path / "context")) for p in (tmp_path / "context").rglob("*.*")}
    assert {"demo/main.py", "build/wheels/demo/kopf-1.whl"} <= files
    assert (tmp_path / "context" / "build" / "bin" / "etcd").stat().st_mode & 0o111


def test_a_missing_source_is_named(root: Path) -> None:
    (root / "shared" / "one.py").unlink()

    with pytest.raises(TwinError, match=r"shared/one\.py, a source of the image demo"):
        recipes.context_files(recipe(root))


def test_every_image_of_the_twin_has_its_sources_and_its_reference() -> None:
    for own_recipe in OWN_RECIPES:
        assert recipes.context_files(own_recipe)
        assert own_recipe.reference == f"localhost/cloudtwin/{own_recipe.name}:local"


def test_two_images_cannot_have_the_same_name() -> None:
    with pytest.raises(ValueError, match="not unique"):
        all_recipes([Recipe("pause", "Dockerfile")])


@pytest.mark.parametrize(
    ("published", "local"),
    [
        ("nvcr.io/nvidia/k8s-device-plugin:v0.18.0", "localhost/cloudtwin/gpu-plugin:local"),
        ("nvcr.io/nvidia/k8s/dcgm-exporter@sha256:0123", "localhost/cloudtwin/gpu-metrics:local"),
        ("registry:5000/autoscaling/cluster-autoscaler", "localhost/cloudtwin/autoscaler:local"),
        ("docker.io/library/busybox:1", None),
    ],
)
def test_published_images_have_stand_ins_by_the_last_part_of_their_names(
    published: str, local: str | None
) -> None:
    assert stand_in_for(published) == local
