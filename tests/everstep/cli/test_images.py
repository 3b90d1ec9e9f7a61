"""The sources of each image: everything that its modules import, and what its Dockerfile copies."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from cloudtwin.facade import Recipe

from everstep.cli.image_sources import SOURCES
from everstep.cli.images import RECIPES, ROOT

WITH_MODULES = [recipe for recipe in RECIPES if recipe.sources]
by_name = pytest.mark.parametrize("recipe", WITH_MODULES, ids=lambda recipe: recipe.name)


def modules_of(sources: tuple[str, ...]) -> set[Path]:
    """Return the Python files of an image's sources, relative to the repository."""
    return {path.relative_to(ROOT) for source in sources for path in python_files(ROOT / source)}


def python_files(path: Path) -> list[Path]:
    return [path] if path.suffix == ".py" else list(path.rglob("*.py"))


def imports(module: Path) -> Iterator[str]:
    """Yield the names that a module imports from the repository; a name may be an attribute of a module."""
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] in SOURCES)


def file_of(name: str) -> Path | None:
    """Return the file of a module; None for a package without code, or an attribute."""
    path = Path(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in candidates if (ROOT / file).is_file()), None)


def copied_modules(recipe: Recipe) -> set[Path]:
    """Return the Python files that the Dockerfile of an image copies."""
    lines = (ROOT / recipe.dockerfile).read_text().splitlines()
    words = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    paths = [path for patterns in words for pattern in patterns for path in ROOT.glob(pattern)]
    return {file.relative_to(ROOT) for path in paths for file in python_files(path)}


def test_imports_of_the_repository_are_found_in_a_module() -> None:
    names = set(imports(Path("everstep/cli/images.py")))

    assert {"everstep.catalog.names", "everstep.cli.twin_settings"} <= names
    assert not any(name.startswith("cloudtwin") for name in names), "images do not contain the twin"


@by_name
def test_an_image_has_every_module_that_its_modules_import(recipe: Recipe) -> None:
    modules = modules_of(recipe.sources)

    required = {file for module in modules for name in imports(module) if (file := file_of(name))}

    assert sorted(required - modules) == []


@by_name
def test_the_dockerfile_copies_the_modules_of_the_recipe(recipe: Recipe) -> None:
    copied = {path for path in copied_modules(recipe) if path.parts[0] in SOURCES}

    assert sorted(copied ^ modules_of(recipe.sources)) == []
