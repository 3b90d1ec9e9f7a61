"""Resources of an SDK are loaded when they are named, and nothing but the moment is another."""

import subprocess
import sys
from importlib import import_module, invalidate_caches

import pytest

from components import sdk

SERVICE = {
    "__init__": "from .thing import *\nfrom .get_thing import *\nfrom . import outputs\nplain = 1\n",
    "thing": "from . import outputs\n__all__ = ['Thing', 'ThingArgs']\nclass Thing: ...\n"
    "class ThingArgs: ...\n",
    "get_thing": "__all__ = ['get_thing']\ndef get_thing():\n    return 'a thing'\n",
    "outputs": "from . import outputs\n__all__ = ['Seen']\nclass Seen: ...\n",
}


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Make the package of an SDK from its modules' texts; give it imported."""

    def make(**changed: str):
        folder = tmp_path / "some_sdk" / "service"
        folder.mkdir(parents=True)
        (folder.parent / "__init__.py").touch()
        for name, text in {**SERVICE, **changed}.items():
            (folder / f"{name}.py").write_text(text)
        invalidate_caches()
        return import_module("some_sdk.service")

    monkeypatch.setattr(sdk, "SDKS", (*sdk.SDKS, "some_sdk."))
    monkeypatch.syspath_prepend(tmp_path)
    yield make
    for name in [name for name in sys.modules if name.startswith("some_sdk")]:
        del sys.modules[name]


def loaded() -> set[str]:
    return {name.rpartition(".")[2] for name in sys.modules if name.startswith("some_sdk.service.")}


def test_naming_a_resource_loads_its_module_and_no_other(service):
    package = service()
    assert loaded() == set(), "importing the service is to cost next to nothing"

    assert package.Thing.__module__ == "some_sdk.service.thing"
    assert loaded() == {"thing", "outputs"}
    assert package.plain == 1, "what else the package says takes place at once"


def test_a_function_is_found_under_the_name_that_its_module_has_too(service):
    package = service()
    import_module("some_sdk.service.get_thing")  # by which Python binds the module to that name

    assert package.get_thing() == "a thing"


def test_what_a_module_keeps_to_itself_is_not_the_packages(service):
    package = service()

    assert package.outputs.Seen
    with pytest.raises(AttributeError, match=r"'some_sdk\.service' has no attribute 'Seen'"):
        _ = package.Seen


@pytest.mark.parametrize(
    "changed",
    [
        {"get_thing": "def get_thing(): ...\n"},
        {"get_thing": "__all__ = [*('some', 'thing')]\nsome = thing = 1\n"},
        {"get_thing": "__all__ = ['Thing']\nclass Thing: ...\n"},
        {"get_thing": "__all__ = ['thing']\ndef thing(): ...\n"},
    ],
    ids=[
        "a module lists no names",
        "it computes them",
        "two have one name",
        "a name hides another module",
    ],
)
def test_a_package_of_another_shape_is_imported_as_python_does(service, changed):
    service(**changed)

    assert loaded() == {"thing", "get_thing", "outputs"}


def test_of_a_real_sdk_the_same_names_are_there_and_mean_the_same():
    program = """
import sys
from importlib import import_module
from components import sdk
from pulumi_kubernetes import policy

def names():
    package = import_module("pulumi_kubernetes.policy.v1")
    package.PodDisruptionBudget
    return {name: getattr(getattr(package, name), "__qualname__", "") for name in dir(package)}

lazily = names()
sys.meta_path = [finder for finder in sys.meta_path if not isinstance(finder, sdk._Finder)]
for name in [name for name in sys.modules if name.startswith("pulumi_kubernetes.policy")]:
    del sys.modules[name]
assert {name: what for name, what in lazily.items() if name not in ("_homes", "_whole")} == names()
assert "PodDisruptionBudgetArgs" in lazily
"""

    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
