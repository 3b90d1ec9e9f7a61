"""Validation of resource inputs against the argument classes of the SDKs, at any depth.

The wheels contain no schema, but the classes define one: property names, types, required
properties, enumeration values. Pulumi's mocks check none of it.
"""

import enum
import importlib
import inspect
import json
import types
import typing
from collections.abc import Awaitable, Iterator, Mapping
from functools import cache
from typing import Any

import pulumi
from pulumi import _types

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # Pulumi's marker of an unknown value
# Kubernetes defines a meaning of empty values under these keys.
MEANINGFUL_IF_EMPTY = {
    "podSelector", "namespaceSelector", "emptyDir", "nodeSelector", "selector", "status",
    "matchLabels", "labels", "annotations",
}  # fmt: skip
# An empty prefix of S3 matches all objects; an object without default tags overrides the provider.
EMPTY_IN_CLOUD_SDKS = (".prefix", ".overrideProvider.defaultTags.tags")
PACKAGES = {"aws": "pulumi_aws", "azure-native": "pulumi_azure_native"}


def schema_errors(token: str, inputs: Mapping[str, Any]) -> list[str]:
    """Return a message for each input that the SDK would refuse or that a cloud would misinterpret."""
    if token.startswith("pulumi:providers:"):
        return list(_provider_errors(token, inputs))
    arguments = arguments_class(token)
    strict = not token.startswith("kubernetes:")
    errors = [
        finding
        for key in inputs
        for finding in _empty_value_errors(inputs[key], f"{token}.{key}", strict=strict)
    ]
    if arguments is not None:
        errors += _object_errors(arguments, inputs, token)
    return errors


@cache
def arguments_class(token: str) -> type | None:
    """Return the SDK's class of a token's inputs; None for custom resources, whose schema is a CRD.

    Raises:
        AssertionError: the package is not supported, or its SDK has no such resource.
    """
    package, module, kind = token.split(":", 2)
    if package == "kubernetes":
        group, _, version = module.partition("/")
        if "." in group and not group.endswith(".k8s.io"):
            return None
        module_name = f"pulumi_kubernetes.{group.split('.')[0]}.{version}"
    elif package in PACKAGES:
        module_name = f"{PACKAGES[package]}.{module.split('/')[0]}".replace("-", "_")
        if module.startswith("index/"):
            module_name = PACKAGES[package]
    else:
        raise AssertionError(f"unknown package {package}: {token}")
    try:
        sdk_module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise AssertionError(f"the SDK has no module {module_name} for {token}") from error
    for name in (f"{kind}InitArgs", f"{kind}Args"):
        if hasattr(sdk_module, name):
            arguments: type = getattr(sdk_module, name)
            return arguments
    raise AssertionError(f"the SDK has no arguments of {token} in {module_name}")


def type_errors(token: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names, types and values that the SDK refuses, and missing properties."""
    arguments = arguments_class(token)
    if arguments is not None:
        yield from _object_errors(arguments, inputs, token)


def classes_at(annotation: Any) -> list[type]:
    """Return the classes of objects that an annotation allows, including elements of lists and maps."""
    result: list[type] = []
    for alternative in alternatives(annotation):
        if typing.get_origin(alternative) not in {None, typing.Literal}:
            result += classes_at(typing.get_args(alternative)[-1])
        elif isinstance(alternative, type) and _types.is_input_type(alternative):
            result.append(alternative)
    return result


def _provider_errors(token: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield errors in a provider's arguments; the SDK sends all but strings as JSON."""
    package = token.rsplit(":", 1)[-1]
    if package == "kubernetes":
        import pulumi_kubernetes as module
    else:
        module = importlib.import_module(PACKAGES[package])
    property_types = input_types(module.ProviderArgs)
    arguments = {}
    for key, value in inputs.items():
        if key != "version" and key not in property_types:
            yield f"{token}.{key} is not known"
        elif key != "version":
            is_text = str in alternatives(property_types[key])
            arguments[key] = value if is_text or not isinstance(value, str) else json.loads(value)
    yield from _object_errors(module.ProviderArgs, arguments, token)


def _empty_value_errors(value: Any, path: str, *, strict: bool) -> Iterator[str]:
    """Yield unknown values, and empty values that result from a missing output."""
    if isinstance(value, str) and UNKNOWN in value:
        yield f"{path} is unknown"
    elif value is None or (isinstance(value, dict | list | str) and not value):
        key = path.rsplit(".", 1)[-1].partition("[")[0]
        is_intended = (
            path.endswith(EMPTY_IN_CLOUD_SDKS) if strict else not _is_meaningless(key, value)
        )
        if not is_intended:
            yield f"{path} is empty"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _empty_value_errors(inner, f"{path}.{key}", strict=strict)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _empty_value_errors(inner, f"{path}[{index}]", strict=strict)


def _is_meaningless(key: str, value: Any) -> bool:
    """Return True if an empty value has no meaning in a Kubernetes object."""
    return key not in MEANINGFUL_IF_EMPTY and not isinstance(value, str | list)


@cache
def input_types(arguments: type) -> dict[str, Any]:
    """Return the types of the properties by name."""
    return dict(_types.input_type_types(arguments))


@cache
def required_properties(arguments: type) -> frozenset[str]:
    """Return the names of the required properties."""
    names = _types.input_type_py_to_pulumi_names(arguments)
    parameters = list(inspect.signature(arguments.__init__).parameters.values())[1:]  # type: ignore[misc]  # a class of the SDK
    return frozenset(
        names[parameter.name] for parameter in parameters if parameter.default is parameter.empty
    )


def _object_errors(arguments: type, value: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield errors in an object of a class."""
    property_types = input_types(arguments)
    for key in required_properties(arguments) - set(value):
        yield f"{path}.{key} is missing"
    for key, inner in value.items():
        if key.startswith("x-kubernetes-") or key == "__defaults":
            continue  # the SDK spells it differently; the engine accepts this spelling
        if key not in property_types:
            yield f"{path}.{key} is not known"
        else:
            yield from _value_errors(property_types[key], inner, f"{path}.{key}")


def alternatives(annotation: Any) -> list[Any]:
    """Return the plain types that an annotation allows: no Optional, Awaitable, Output, TypedDict."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return [
            alternative
            for part in typing.get_args(annotation)
            for alternative in alternatives(part)
        ]
    origin = typing.get_origin(annotation) or annotation
    if origin in {type(None), Awaitable, pulumi.Output} or typing.is_typeddict(origin):
        return []
    return [annotation]


def _value_errors(annotation: Any, value: Any, path: str) -> Iterator[str]:
    """Yield errors in a value of a type."""
    if value is None:
        return
    allowed = alternatives(annotation)
    if not allowed or any(alternative in {Any, typing.Any, object} for alternative in allowed):
        return
    findings = [
        list(_alternative_errors(alternative, value, path))
        for alternative in _enumerations_or_all(allowed)
    ]
    if all(findings):
        yield from min(findings, key=len)


def _enumerations_or_all(allowed: list[Any]) -> list[Any]:
    """Return the enumerations of a union, since the service accepts no other string; without one, the whole union.

    Azure's SDK names an enumeration `Known...` if the service accepts other values too.
    """
    enumerations = [
        alternative
        for alternative in allowed
        if isinstance(alternative, type)
        and issubclass(alternative, enum.Enum)
        and not alternative.__name__.startswith("Known")
    ]
    return enumerations or allowed


def _alternative_errors(kind: Any, value: Any, path: str) -> Iterator[str]:
    """Yield errors in a value of one alternative."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        if value not in arguments:
            yield f"{path} is not one of {list(arguments)}: {value!r}"
    elif origin is not None:
        yield from _container_errors(issubclass(origin, Mapping), arguments[-1], value, path)
    elif not _types.is_input_type(kind):
        yield from _scalar_errors(kind, value, path)
    elif isinstance(value, dict):
        yield from _object_errors(kind, value, path)
    else:
        yield f"{path} must be an object: {value!r}"


def _container_errors(is_mapping: bool, kind: Any, value: Any, path: str) -> Iterator[str]:
    """Yield errors in the elements of a mapping or a list."""
    if is_mapping != isinstance(value, dict) or is_mapping == isinstance(value, list):
        yield f"{path} must be a {'mapping' if is_mapping else 'list'}: {value!r}"
        return
    elements = value.items() if is_mapping else enumerate(value)
    for key, inner in elements:
        yield from _value_errors(kind, inner, f"{path}.{key}" if is_mapping else f"{path}[{key}]")


def _scalar_errors(kind: Any, value: Any, path: str) -> Iterator[str]:
    """Yield errors in plain values; the SDK checks assets and archives."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if value not in [member.value for member in kind]:
            yield f"{path} is not one of {[member.value for member in kind]}: {value!r}"
    elif kind in {str, int, float, bool}:
        accepted_types = {str: str, bool: bool, int: int, float: int | float}[kind]
        if not isinstance(value, accepted_types) or (isinstance(value, bool) and kind is not bool):
            yield f"{path} must be {kind.__name__}: {value!r}"
