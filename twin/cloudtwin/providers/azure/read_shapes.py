"""Write shapes.json: the limits that Azure's models put on the inputs of each type.

    python -P -m cloudtwin.providers.azure.read_shapes

`make catalog` runs it. It reads models.json; the provider reads only shapes.json. A class of Pulumi's SDK
corresponds to the model with the same name, and a property to the attribute with the same name, regardless of case
and underscores.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cloudtwin.providers.schema.limits import Limits, write_limits
from cloudtwin.providers.schema.model import Fields, ResourceSchema, Shape
from cloudtwin.providers.schema.store import SchemaStore

PACKAGE = Path(__file__).parent
MODELS = PACKAGE / "models.json"
# Type -> the model of its request, where the names differ.
RENAMED_MODELS: Mapping[str, str] = {
    "azure-native:storage:StorageAccount": "StorageAccountCreateParameters",
    "azure-native:authorization:RoleAssignment": "RoleAssignmentCreateParameters",
}
KEYS = {"minimum": "min", "maximum": "max", "min_length": "min", "max_length": "max",
        "min_items": "min", "max_items": "max", "pattern": "pattern"}  # fmt: skip
TRIVIAL_PATTERNS = (".+", "^.*$")


def read(tokens: Collection[str]) -> dict[str, Limits]:
    """Return the limits of types in models.json."""
    models = json.loads(MODELS.read_text())
    store = SchemaStore("azure-native", tokens)
    return {
        token: _LimitReader(store.load(token), models[module]).limits()
        for token in tokens
        if (module := token.split(":")[1]) in models
    }


class _LimitReader:
    """Reader of the limits of one type: matches its inputs with the attributes of its models."""

    def __init__(self, schema: ResourceSchema, module: Mapping[str, Any]) -> None:
        self._schema, self._models = schema, module["models"]
        self._names, self._source = module["names"], module["source"].replace("==", " ")
        self._limits: dict[str, dict[str, Any]] = {}

    def limits(self) -> dict[str, dict[str, Any]]:
        """Return the limits by input path."""
        title = self._schema.token.rpartition(":")[2]
        model = RENAMED_MODELS.get(self._schema.token, title)
        self._match_fields(
            self._schema.inputs, {**self._models.get(model, {}), **self._names}, model, "", ()
        )
        return dict(sorted(self._limits.items()))

    def _match_fields(
        self,
        fields: Fields,
        attributes: Mapping[str, Any],
        model: str,
        prefix: str,
        ancestors: tuple[str, ...],
    ) -> None:
        limits = {_normalize(name): limit for name, limit in attributes.items()}
        for name, field in fields.items():
            path = f"{prefix}.{name}" if prefix else name
            self._record(path, limits.get(_normalize(name), {}), model)
            self._match_value(field.shape, path, ancestors)

    def _match_value(self, shape: Shape, path: str, ancestors: tuple[str, ...]) -> None:
        if isinstance(shape, str):
            return
        ((kind, inner),) = shape.items()
        if kind in ("list", "map"):
            self._match_value(inner, f"{path}.*", ancestors)
        elif kind == "object" and inner not in ancestors:
            model = inner.rpartition(".")[2].removesuffix("Args")
            self._match_fields(
                self._schema.objects[inner],
                self._models.get(model, {}),
                model,
                path,
                (*ancestors, inner),
            )

    def _record(self, path: str, limit: Mapping[str, Any], model: str) -> None:
        limits = {KEYS[key]: value for key, value in limit.items() if key in KEYS}
        if limits.get("pattern") in TRIVIAL_PATTERNS:
            del limits["pattern"]
        if limits:
            self._limits[path] = {
                "api": f"{self._source}, {model}",
                **limits,
                **self._limits.get(path, {}),
            }


def _normalize(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def main() -> None:
    """Write shapes.json."""
    from cloudtwin.providers.azure import CLOUD

    write_limits(PACKAGE, read(CLOUD.types))


if __name__ == "__main__":
    main()
