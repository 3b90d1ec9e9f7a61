"""Write models.json: the `_validation` of the models in Azure's SDK for Python.

    python -P -m cloudtwin.providers.azure.read_models FOLDER

FOLDER has the packages of PACKAGES, installed with `uv pip install --no-deps --target FOLDER ...`. They are not
dependencies: newer releases have no such limits, and the limits change only with the version of an API.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("models.json")
# Module of azure-native -> package, its release, and the folder of the API version.
PACKAGES = {
    "authorization": ("azure-mgmt-authorization==4.0.0", "authorization/v2022_04_01"),
    "consumption": ("azure-mgmt-consumption==10.0.0", "consumption"),
    "containerregistry": (
        "azure-mgmt-containerregistry==10.3.0",
        "containerregistry/v2019_06_01_preview",
    ),
    "containerservice": ("azure-mgmt-containerservice==35.0.0", "containerservice/v2025_02_01"),
    "managedidentity": ("azure-mgmt-msi==7.0.0", "msi/v2023_01_31"),
    "network": ("azure-mgmt-network==28.1.0", "network"),
    "resources": ("azure-mgmt-resource==23.2.0", "resource/resources/v2022_09_01"),
    "storage": ("azure-mgmt-storage==21.2.1", "storage/v2023_05_01"),
}
IGNORED_KEYS = ("readonly", "constant", "multiple", "unique")
NAME = re.compile(r'_SERIALIZER\.url\(\s*"(\w+)",\s*\w+,\s*"str"((?:,\s*\w+=(?:\d+|r?"[^"]*"))+)')
LIMIT = re.compile(r'(\w+)=(\d+|r?"[^"]*")')


def main(folder: Path) -> None:
    """Write models.json from the packages in a folder."""
    validations = {
        module: {
            "source": package,
            "names": _names(folder / "azure/mgmt" / version / "operations"),
            "models": dict(_models(folder / "azure/mgmt" / version / "models/_models_py3.py")),
        }
        for module, (package, version) in PACKAGES.items()
    }
    TARGET.write_text(_text(validations))


def _text(validations: dict[str, dict[str, Any]]) -> str:
    """Return JSON with one line for each model."""
    modules = (
        f' "{module}": {{\n  "source": {json.dumps(models["source"])},\n'
        + ",\n".join(_section(name, models[name]) for name in ("names", "models"))
        + "\n }"
        for module, models in validations.items()
    )
    return "{\n" + ",\n".join(modules) + "\n}\n"


def _section(name: str, entries: dict[str, Any]) -> str:
    lines = (f"   {json.dumps(key)}: {json.dumps(entry)}" for key, entry in sorted(entries.items()))
    return f'  "{name}": {{\n' + ",\n".join(lines) + "\n  }"


def _models(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the classes of a file with the limits of their attributes."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            limits = {name: limit for name, limit in _validation(node).items() if limit}
            if limits:
                yield node.name, limits


def _validation(model: ast.ClassDef) -> dict[str, dict[str, Any]]:
    for node in model.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if (
            isinstance(node, ast.Assign)
            and isinstance(target, ast.Name)
            and target.id == "_validation"
        ):
            validation: dict[str, dict[str, Any]] = ast.literal_eval(node.value)
            return {
                name: {key: value for key, value in limit.items() if key not in IGNORED_KEYS}
                for name, limit in validation.items()
                if "readonly" not in limit
            }
    return {}


def _names(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the limits of the path parameters of operations that are names of resources."""
    limits: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("*.py")):
        for name, text in NAME.findall(file.read_text()):
            if name.endswith("_name"):  # other parameters are not names of resources
                parsed_limits = {key: ast.literal_eval(value) for key, value in LIMIT.findall(text)}
                limits.setdefault(name, []).append(parsed_limits)
    return {name: _all_limits(limits_of_name) for name, limits_of_name in limits.items()}


def _all_limits(limits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the intersection of the limits that the operations state for a name."""
    result: dict[str, Any] = {}
    for key in dict.fromkeys(key for limit in limits for key in limit):
        first, *others = dict.fromkeys(limit[key] for limit in limits if key in limit)
        if key == "pattern":
            result[key] = "".join(f"(?={pattern})" for pattern in others) + first
        else:
            result[key] = (max if key.startswith("min") else min)([first, *others])
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]))
