import pytest

from everstep.errors import EverstepError
from twin.images import recipes
from twin.images.recipes import RECIPES, Recipe

RECIPE = Recipe(
    "demo",
    "demo/Dockerfile",
    sources=("demo", "shared/one.py"),
    program="etcd",
    requirements="requirements/demo.txt",
)


@pytest.fixture
def root(tmp_path):
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


def test_the_context_holds_what_the_recipe_names_and_nothing_else(root):
    names = {str(path.relative_to(root)) for path in recipes.context_files(RECIPE, root)}

    assert names == {
        "demo/Dockerfile",
        "demo/main.py",
        "demo/deep/data.json",
        "shared/one.py",
        "requirements/demo.txt",
    }


@pytest.mark.parametrize(
    ("name", "changes"),
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
def test_an_image_is_built_anew_when_something_in_it_changes(root, name, changes):
    before = recipes.source_key(RECIPE, root)

    (root / name).write_text("something else")

    assert (recipes.source_key(RECIPE, root) != before) is changes


def test_an_execute_bit_and_a_renamed_file_change_an_image(root):
    before = recipes.source_key(RECIPE, root)
    (root / "demo" / "main.py").chmod(0o755)
    executable = recipes.source_key(RECIPE, root)
    (root / "demo" / "main.py").rename(root / "demo" / "other.py")

    assert len({before, executable, recipes.source_key(RECIPE, root)}) == 3


def test_the_context_is_laid_out_as_the_repository_with_what_is_made_beside_it(root, tmp_path):
    program = tmp_path / "etcd"
    program.write_text("ELF")
    program.chmod(0o755)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "kopf-1.whl").write_text("PK")

    recipes.lay_out(RECIPE, tmp_path / "context", program, wheels, root)

    files = {str(p.relative_to(tmp_path / "context")) for p in (tmp_path / "context").rglob("*.*")}
    assert {"demo/main.py", "build/wheels/demo/kopf-1.whl"} <= files
    assert (tmp_path / "context" / "build" / "bin" / "etcd").stat().st_mode & 0o111


def test_a_missing_source_is_named(root):
    (root / "shared" / "one.py").unlink()

    with pytest.raises(EverstepError, match=r"shared/one\.py, which the image demo is made from"):
        recipes.context_files(RECIPE, root)


def test_every_image_of_the_project_has_its_sources_and_its_reference():
    for name, recipe in RECIPES.items():
        assert recipes.context_files(recipe)
        assert recipe.reference == f"localhost/everstep/{name}:local"
