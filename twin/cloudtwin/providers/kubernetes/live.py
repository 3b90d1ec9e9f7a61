"""Conversion between the program's inputs, the objects of the API server, and outputs. Pure."""

import base64
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

from cloudtwin.providers.protocol.values import (
    UNKNOWN,
    Object,
    Path,
    PropertyValue,
    parse_path,
    plain,
    secret_paths,
    with_secrets,
    without_nulls,
)

# Written by the API server; a program cannot set it.
SERVER_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
KNOWN_AFTER_CREATION = ("creationTimestamp", "generation", "resourceVersion", "uid")
# Fields that the cluster sets: a dry run returns another value, or none.
ALLOCATED_FIELDS: Mapping[str, tuple[Path, ...]] = {
    "Service": (("spec", "clusterIP"), ("spec", "clusterIPs"), ("spec", "healthCheckNodePort")),
    "PersistentVolumeClaim": (("spec", "volumeName"),),
}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Keys of the outputs, as the official provider writes them.
INPUTS, INITIAL_API_VERSION, FIELD_MANAGER = "__inputs", "__initialApiVersion", "__fieldManager"


@dataclass(frozen=True)
class ManagementData:
    """Management data of an object, which its outputs store.

    Attributes:
        field_manager: name under which its fields are applied.
        api_version: API version with which it was created.
    """

    field_manager: str
    api_version: str


def body(inputs: Mapping[str, PropertyValue]) -> Object:
    """Return the object to apply, from inputs without unknowns.

    A Secret's stringData is sent as data: the API server merges stringData into data, so that a key
    removed from stringData would stay.
    """
    result: Object = without_nulls(plain(inputs))
    result.pop("status", None)
    if (result.get("apiVersion"), result.get("kind")) == (
        "v1",
        "Secret",
    ) and "stringData" in result:
        encoded_data = {
            key: base64.b64encode(str(value).encode()).decode()
            for key, value in result.pop("stringData").items()
        }
        result["data"] = {**result.get("data", {}), **encoded_data}
    return result


def with_live_values(
    target: Object, live: Mapping[str, PropertyValue] | None, ignored: Sequence[str]
) -> Object:
    """Return an object to apply with the live values of the fields of `ignore_changes`.

    Such a field is owned by another manager, for example an autoscaler. Applying the live value
    is not a conflict; leaving the field out could remove it.

    Args:
        target: the object to apply; not modified.
        live: the object in the cluster; None if it does not exist.
        ignored: property paths.
    """
    result = deepcopy(target)
    for path in ignored:
        _copy(parse_path(path), live or {}, result)
    return result


def _copy(path: Path, source: PropertyValue, target: PropertyValue) -> None:
    step, remaining = path[0], path[1:]
    for key in _keys(target) if step == "*" else (step,):
        if key not in _keys(source) or key not in _keys(target):
            continue
        if remaining:
            _copy(remaining, source[key], target[key])
        else:
            target[key] = deepcopy(source[key])


def _keys(value: PropertyValue) -> Sequence[PropertyValue]:
    if isinstance(value, Mapping):
        return list(value)
    return range(len(value)) if isinstance(value, list) else ()


def outputs(
    live: Mapping[str, PropertyValue],
    inputs: Mapping[str, PropertyValue],
    management: ManagementData,
) -> Object:
    """Return the resource's outputs in the form of the official provider.

    They are the live object, with secrets where the inputs have them, and the data that a later update needs.
    """
    return {
        **_without_managed_fields(live, inputs),
        INPUTS: _with_secrets(dict(inputs), inputs),
        INITIAL_API_VERSION: management.api_version,
        FIELD_MANAGER: management.field_manager,
    }


def _without_managed_fields(
    live: Mapping[str, PropertyValue], inputs: Mapping[str, PropertyValue]
) -> Object:
    result = deepcopy(dict(live))
    result.setdefault("metadata", {}).pop("managedFields", None)
    return _with_secrets(result, inputs)


def preview_of_unknown(inputs: Mapping[str, PropertyValue]) -> Object:
    """Return a preview's outputs without the cluster: the inputs, and unknowns for fields that the cluster sets."""
    result = deepcopy(dict(inputs))
    declared_metadata = result.get("metadata")
    if isinstance(declared_metadata, dict):
        result["metadata"] = {**dict.fromkeys(KNOWN_AFTER_CREATION, UNKNOWN), **declared_metadata}
    result.setdefault("status", UNKNOWN)
    spec = result.get("spec")
    for path in ALLOCATED_FIELDS.get(str(inputs.get("kind")), ()):
        if isinstance(spec, dict):
            spec.setdefault(path[1], UNKNOWN)
    return _with_secrets(result, inputs)


def preview_of_dry_run(
    dry_run_object: Mapping[str, PropertyValue],
    inputs: Mapping[str, PropertyValue],
    old: Mapping[str, PropertyValue],
) -> Object:
    """Return a preview's outputs from a dry run; fields known only after the update are unknown.

    Args:
        dry_run_object: the API server's response to the dry run.
        inputs: the new inputs.
        old: the existing outputs; empty for a new object.
    """
    result = _without_managed_fields(dry_run_object, inputs)
    for field in ("resourceVersion", "generation") if old else KNOWN_AFTER_CREATION:
        result["metadata"][field] = UNKNOWN
    result["status"] = UNKNOWN
    declared_inputs = plain(inputs)
    if not old and isinstance(result.get("spec"), dict):
        for first, second in ALLOCATED_FIELDS.get(str(inputs.get("kind")), ()):
            if second not in declared_inputs.get(first, {}) and second in result["spec"]:
                result["spec"][second] = UNKNOWN
    return result


def _with_secrets(result: Object, inputs: Mapping[str, PropertyValue]) -> Object:
    paths = secret_paths(dict(inputs))
    if (result.get("apiVersion"), result.get("kind")) == ("v1", "Secret"):
        paths |= {(field,) for field in ("data", "stringData") if result.get(field)}
        # kubectl stores the whole object, including data, in an annotation
        paths |= {("metadata", "annotations", LAST_APPLIED)}
    result_with_secrets: Object = with_secrets(result, paths)
    return result_with_secrets


def with_drift(
    inputs: PropertyValue, previous: PropertyValue, live: PropertyValue
) -> PropertyValue:
    """Return the last inputs with the live values of fields that changed since the last update.

    An unchanged field keeps the program's spelling ("1" for "1000m"). Fields that the program does
    not set are not drift; items that were added to its lists are.

    Args:
        inputs: the last inputs, without secret marks.
        previous: the live object after the last update.
        live: the live object.
    """
    if isinstance(inputs, Mapping) and isinstance(live, Mapping):
        previous_object = previous if isinstance(previous, Mapping) else {}
        result: Object = {}
        for key, value in inputs.items():
            if key in live:
                result[key] = with_drift(value, previous_object.get(key), live[key])
            elif key not in previous_object:
                result[key] = value  # not returned by the API server, such as stringData, or null
        return result
    if isinstance(inputs, list) and isinstance(live, list):
        return _list_with_drift(inputs, previous if isinstance(previous, list) else [], live)
    return inputs if live in (previous, inputs) else deepcopy(live)


def _list_with_drift(
    inputs: list[PropertyValue], previous: list[PropertyValue], live: list[PropertyValue]
) -> list[PropertyValue]:
    if live == previous:
        return inputs
    if _have_names(inputs) and _have_names(live):
        previous_items, live_items = (
            {item["name"]: item for item in items if "name" in item} for items in (previous, live)
        )
        remaining = [
            with_drift(item, previous_items.get(item["name"]), live_items[item["name"]])
            for item in inputs
            if item["name"] in live_items
        ]
        known_names = {item["name"] for item in inputs} | previous_items.keys()
        return remaining + [deepcopy(item) for item in live if item["name"] not in known_names]
    if len(inputs) == len(previous) == len(live):
        return [with_drift(*values) for values in zip(inputs, previous, live, strict=True)]
    return deepcopy(live)


def _have_names(items: list[PropertyValue]) -> bool:
    return all(isinstance(item, Mapping) and "name" in item for item in items)


def refreshed_inputs(
    inputs: Mapping[str, PropertyValue],
    old: Mapping[str, PropertyValue],
    live: Mapping[str, PropertyValue],
) -> Object:
    """Return the inputs after a refresh: drift applied, the rest and the secret marks unchanged."""
    inputs_with_drift: Object = with_drift(plain(inputs), plain(old), plain(live))
    inputs_with_drift = _data_of_secret(inputs_with_drift, plain(old), live)
    inputs_with_secrets: Object = with_secrets(inputs_with_drift, secret_paths(dict(inputs)))
    return inputs_with_secrets


def _data_of_secret(
    inputs: Object, old: Mapping[str, PropertyValue], live: Mapping[str, PropertyValue]
) -> Object:
    """Apply drift of a Secret's data to the program's stringData."""
    if (live.get("apiVersion"), live.get("kind")) != ("v1", "Secret") or "stringData" not in inputs:
        return inputs
    previous_data, live_data = old.get("data") or {}, live.get("data") or {}
    texts = {
        key: value if live_data.get(key) == previous_data.get(key) else _text(live_data[key])
        for key, value in inputs["stringData"].items()
        if key in live_data
    }
    return {**inputs, "stringData": texts}


def _text(data: str) -> str:
    return base64.b64decode(data).decode(errors="replace")


def imported_inputs(live: Mapping[str, PropertyValue]) -> Object:
    """Return probable inputs of an object that Pulumi did not create.

    The API server records applied fields with their managers; only these are returned, without server defaults. For an
    object that was never applied, the whole content is returned.
    """
    managed_fields = [
        managed_field
        for managed_field in live.get("metadata", {}).get("managedFields") or ()
        if not managed_field.get("subresource")
    ]
    applied_fields = [
        managed_field.get("fieldsV1", {})
        for managed_field in managed_fields
        if managed_field.get("operation") == "Apply"
    ]
    source = deepcopy(dict(live))
    source.pop("status", None)
    for field in SERVER_METADATA:
        source.get("metadata", {}).pop(field, None)
    if applied_fields:
        content: Object = {}
        for fields in applied_fields:
            content = _merge(content, _owned_fields(source, fields))
        identity = {
            key: source["metadata"][key]
            for key in ("name", "namespace")
            if key in source["metadata"]
        }
        content["metadata"] = {**content.get("metadata", {}), **identity}
        source = {"apiVersion": live["apiVersion"], "kind": live["kind"], **content}
    source.get("metadata", {}).get("annotations", {}).pop(LAST_APPLIED, None)
    return _with_secrets(source, {})


def _owned_fields(value: PropertyValue, fields: Mapping[str, PropertyValue]) -> PropertyValue:
    """Return the owned fields of a value. A list is kept whole to preserve its order."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: _owned_fields(value[name], inner) if inner else value[name]
        for key, inner in fields.items()
        if (name := key.removeprefix("f:")) != key and name in value
    }


def _merge(base: PropertyValue, other: PropertyValue) -> PropertyValue:
    if isinstance(base, Mapping) and isinstance(other, Mapping):
        return {
            **base,
            **{
                key: _merge(base[key], value) if key in base else value
                for key, value in other.items()
            },
        }
    return other
