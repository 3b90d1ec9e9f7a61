"""Extraction of resource types from an installed SDK; run as a separate program.

    python -P -m cloudtwin.providers.schema.extract aws FOLDER TOKEN...

It is a separate process because the provider imports only the protocol part of `pulumi`, with which no
SDK can be imported, and because the memory of the SDK is released when the process ends.
"""

import enum
import importlib
import importlib.util
import inspect
import json
import re
import sys
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from cloudtwin import files
from cloudtwin.providers.schema.model import Field, Fields, ResourceSchema, Shape, to_json
from cloudtwin.providers.schema.store import SDKS, file_name

PRIMITIVES = {str: "string", int: "integer", float: "number", bool: "boolean"}
ENGINE_PROPERTIES = {"urn", "pulumi_resource_name", "pulumi_resource_type"}


def _accept_other_values(enums: list[type]) -> bool:
    """Return True if the API accepts other values too: Azure names such enumerations `Known...`."""
    return all(enum.__name__.startswith("Known") for enum in enums)


class Extractor:
    """Extractor of the types of one SDK; collects the nested types of the type being read."""

    def __init__(self, cloud: str) -> None:
        import pulumi

        # AWS's enumerations lag behind the services; the service models have the current ones.
        self._open_enums = cloud == "aws"
        self._output: Any = pulumi.Output
        self._class_by_token = _class_by_token(SDKS[cloud])
        self._objects: dict[str, Fields] = {}

    def read(self, token: str) -> ResourceSchema:
        """Return the schema of one resource type.

        Raises:
            KeyError: the SDK has no such type.
        """
        module, name = self._class_by_token[token]
        resource = getattr(importlib.import_module(module), name)
        arguments = _arguments_class(resource)
        self._objects = {}
        inputs = self._inputs(arguments)
        return ResourceSchema(
            token=token, inputs=inputs, outputs=self._outputs(resource), objects=self._objects
        )

    def _inputs(self, cls: type) -> Fields:
        from pulumi._types import input_type_py_to_pulumi_names

        required_names = {
            name
            for name, parameter in inspect.signature(cls).parameters.items()
            if parameter.default is parameter.empty
        }
        hints = _getter_hints(cls)
        return {
            name: Field(shape=self._shape(hints[python]), required=python in required_names)
            for python, name in input_type_py_to_pulumi_names(cls).items()
        }

    def _outputs(self, cls: type) -> Fields:
        from pulumi._types import resource_py_to_pulumi_names

        hints = _getter_hints(cls)
        result = {}
        for python, name in resource_py_to_pulumi_names(cls).items():
            if python in ENGINE_PROPERTIES or python not in hints:
                continue
            hint = hints[python]
            if typing.get_origin(hint) is self._output:
                (hint,) = typing.get_args(hint)
            optional = NoneType in typing.get_args(hint)
            result[name] = Field(shape=self._shape(hint), required=not optional)
        return result

    def _shape(self, hint: Any) -> Shape:  # noqa: ANN401  type hints have no common class
        members = _members(hint)
        enums = [
            candidate
            for candidate in members
            if inspect.isclass(candidate) and issubclass(candidate, enum.Enum)
        ]
        if enums and str in members and (self._open_enums or _accept_other_values(enums)):
            return "string"
        if enums:
            return {"enum": [member.value for candidate in enums for member in candidate]}
        if len(members) != 1:
            return "any"
        (member,) = members
        origin, inner = typing.get_origin(member), typing.get_args(member)
        if member in PRIMITIVES:
            return PRIMITIVES[member]
        if origin is not None and issubclass(origin, Mapping):
            return {"map": self._shape(inner[1])}
        if origin is not None and issubclass(origin, Sequence):
            return {"list": self._shape(inner[0])}
        return self._named(member)

    def _named(self, member: Any) -> Shape:  # noqa: ANN401  type hints have no common class
        if not inspect.isclass(member):
            return "any"
        if member.__module__.startswith("pulumi.asset"):
            return "asset"
        if hasattr(member, "_pulumi_input_type"):
            reader = self._inputs
        elif hasattr(member, "_pulumi_output_type"):
            reader = self._outputs
        else:
            return "any"
        name = f"{member.__module__}.{member.__name__}"
        if name not in self._objects:
            self._objects[name] = {}  # set before the members are read: a type may contain itself
            self._objects[name] = reader(member)
        return {"object": name}


def _class_by_token(package: str) -> dict[str, tuple[str, str]]:
    """Return the module and class of each token, without importing the modules."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed in {sys.prefix}")
    text = Path(spec.origin).read_text()
    table = re.search(r'resource_modules="""(.*?)"""', text, re.DOTALL)
    if table is None:
        raise SystemExit(f"{package} has no readable table of resource_modules")
    return {
        token: (entry["fqn"], name)
        for entry in json.loads(table[1])
        for token, name in entry["classes"].items()
    }


def _arguments_class(resource: type) -> type:
    """Return the argument class of a resource: VpcArgs, but SubnetInitArgs in azure-native."""
    module = sys.modules[resource.__module__]
    arguments_class: type = getattr(module, module.__all__[0])
    return arguments_class


def _getter_hints(cls: type) -> dict[str, Any]:
    """Return the type hint of each property of a class."""
    import pulumi

    # pulumi.Input names these two as strings, which are resolved in pulumi's own module.
    names = {"Output": pulumi.Output, "T": Any}
    return {
        name: typing.get_type_hints(getter, localns=names).get("return", Any)
        for base in reversed(cls.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, property) and (getter := _function(member)) is not None
    }


def _function(member: property) -> Callable[..., Any] | None:
    getter = member.fget
    return inspect.unwrap(getter) if getter is not None else None


def _members(hint: Any) -> list[Any]:  # noqa: ANN401  type hints have no common class
    """Return the types in a union such as `Input[Optional[X]]`, without None, awaitables and outputs."""
    import pulumi

    if typing.get_origin(hint) not in (typing.Union, UnionType):
        return [hint]
    members = [
        member
        for member in typing.get_args(hint)
        if member is not NoneType and typing.get_origin(member) not in (Awaitable, pulumi.Output)
    ]
    return [
        inner
        for member in members
        for inner in (_members(member) if member is not hint else [member])
    ]


def extract(cloud: str, folder: Path, tokens: Iterable[str]) -> None:
    """Write one file per type into the folder, each atomically."""
    extractor = Extractor(cloud)
    for token in tokens:
        files.write(folder / file_name(token), json.dumps(to_json(extractor.read(token))))


if __name__ == "__main__":
    extract(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
