"""Loads a resource of a Pulumi SDK when it is first named, not the whole service that it is in.

`aws.ec2` has 170 modules and a stack needs a dozen; but the package imports each of them, because
`aws.ec2.Vpc` has to be found, and a third of a preview went there. Pulumi's SDKs load services on
first use by the same means; this goes one level further down, for any SDK that they generate.

What a program may write stays the same, and so does what a type checker reads: only the moment at
which `from .vpc import *` takes place is another. A package that is laid out in any other way than
the generator's is imported as Python always does.
"""

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

SDKS = ("pulumi_aws.", "pulumi_azure_native.", "pulumi_kubernetes.")
PUBLIC_NAMES = re.compile(rb"^__all__ = \[(.*?)\]", re.MULTILINE | re.DOTALL)


def load_on_use() -> None:
    """Load resources when they are first named, of every service that is yet to be imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Service(ModuleType):
    """A package of an SDK whose modules are imported when one of their names is asked for."""

    _homes: Mapping[str, str]  # each public name -> the module, without its package, that has it
    _whole: frozenset[str]  # the modules of which all that is public is the package's too

    def __getattr__(self, name: str) -> object:
        if name in self._homes:  # which binds it, by __setattr__
            import_module(f"{self.__name__}.{self._homes[name]}")
        try:
            return self.__dict__[name]
        except KeyError:  # also of a module that imports itself, as `outputs` does
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: object) -> None:
        """Take a module that Python has imported with all that it makes public, as `*` would."""
        super().__setattr__(name, value)
        if name in self._whole and isinstance(value, ModuleType):
            for public in value.__all__:
                super().__setattr__(public, getattr(value, public))

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._homes})


class _Loader(SourceFileLoader):
    """Imports a package of an SDK without the modules that its `__init__` imports whole."""

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self.get_data(self.path))
        later = [node for node in tree.body if _is_of_package(node)]
        whole = [str(node.module) for node in later if node.module]
        parts = [part.name for node in later if not node.module for part in node.names]
        homes = _homes(Path(self.path).parent, whole, parts)
        if homes is None:
            super().exec_module(module)
            return
        module.__dict__.update(_homes=homes, _whole=frozenset(whole))
        module.__class__ = _Service
        tree.body = [node for node in tree.body if node not in later]
        exec(compile(tree, self.path, "exec"), module.__dict__)  # noqa: S102  the rest of a module


class _Finder(MetaPathFinder):
    """Finds the packages inside an SDK."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a package as Python would, to be loaded by `_Loader`; leave all else to others."""
        if not fullname.startswith(SDKS):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.submodule_search_locations is None:
            return None
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def _is_of_package(node: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    """Whether it is `from .module import *`, or `from . import module`, of which there is `outputs`."""
    if not isinstance(node, ast.ImportFrom) or node.level != 1:
        return False
    whole = node.names[0].name == "*"
    return whole if node.module else all(part.name == "outputs" for part in node.names)


def _homes(folder: Path, whole: Sequence[str], parts: Sequence[str]) -> Mapping[str, str] | None:
    """Say which module has which public name.

    Args:
        folder: of the package.
        whole: the modules of which its `__init__` imports every public name.
        parts: the modules that it imports as such.

    Returns:
        None where that cannot be told for sure: a module does not list its names, or two modules
        have the same one, of which the last import would win.
    """
    homes = {(module, module) for module in (*whole, *parts)}
    for module in whole:
        names = _public_names(folder / f"{module}.py")
        if names is None:
            return None
        homes |= {(name, module) for name in names}
    found = dict(homes)
    return found if len(found) == len(homes) else None


def _public_names(module: Path) -> Sequence[str] | None:
    """Read what a module lists in `__all__`, without importing it; None where it lists nothing."""
    try:
        listed = PUBLIC_NAMES.search(module.read_bytes())
        return ast.literal_eval(f"[{listed[1].decode()}]") if listed else None
    except (OSError, ValueError, SyntaxError):  # a folder, or a list that is computed
        return None
