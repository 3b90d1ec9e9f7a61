"""The manifests use the names of the catalog."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.catalog import names

ROOT = Path(__file__).parents[3]
MANIFESTS = sorted((ROOT / "manifests").rglob("*.yaml"))
PACKAGES = ("components", "controller", "everstep", "policy", "spot", "trainer")
KNOWN_NAMES = {
    value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
}


def documents(path: Path) -> list[dict[str, Any]]:
    return [
        document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document
    ]


def values_of(key: str, node: object) -> Iterator[Any]:
    """Yield every value under a key, at any depth."""
    if isinstance(node, dict):
        yield from ([node[key]] if key in node else [])
    for child in (
        node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    ):
        yield from values_of(key, child)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_namespaces_in_manifests_are_in_the_catalog(path: Path) -> None:
    namespaces = {
        namespace
        for namespace in values_of("namespace", documents(path))
        if isinstance(namespace, str)
    }

    assert namespaces <= {names.JOB_NAMESPACE, names.SYSTEM_NAMESPACE}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_labels_and_annotations_in_manifests_are_in_the_catalog(path: Path) -> None:
    used_names = set(re.findall(rf"\b{re.escape(names.DOMAIN)}/[a-z-]+", path.read_text()))

    assert used_names <= KNOWN_NAMES, "a name that no program uses would select nothing"


def test_service_accounts_in_manifests_are_in_the_catalog() -> None:
    accounts = {
        document["metadata"]["name"]
        for path in MANIFESTS
        for document in documents(path)
        if document.get("kind") == "ServiceAccount"
    }

    assert accounts == {
        names.CONTROLLER,
        names.MAINTAINED_CONTROLLER,
        names.SPOT_WATCHER,
        names.ETCD_CREDENTIALS,
    }


def test_the_custom_resource_has_the_names_of_the_catalog() -> None:
    (definition,) = documents(next(path for path in MANIFESTS if path.stem == "elasticjob-crd"))

    assert definition["spec"]["group"] == names.ELASTICJOB_GROUP
    assert definition["spec"]["names"]["kind"] == names.ELASTICJOB_KIND
    assert definition["metadata"]["name"] == f"{names.ELASTICJOB_PLURAL}.{names.ELASTICJOB_GROUP}"
    assert [version["name"] for version in definition["spec"]["versions"]] == [
        names.ELASTICJOB_VERSION
    ]


def test_the_example_uses_the_names_of_the_catalog() -> None:
    (job,) = documents(next(path for path in MANIFESTS if path.stem == "elasticjob"))
    pod = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]

    assert job["apiVersion"] == names.ELASTICJOB_API_VERSION
    assert pod["nodeSelector"] == {names.POOL_LABEL: names.GPU_POOL}
    assert pod["containers"][0]["name"] == names.WORKER_CONTAINER
    assert names.SPOT_TAINT_KEY in {toleration["key"] for toleration in pod["tolerations"]}
    address = f"{names.ETCD_CLIENT_SERVICE}.{names.JOB_NAMESPACE}.svc.cluster.local"
    assert job["spec"]["rdzvEndpoint"] == f"{address}:{names.ETCD_CLIENT_PORT}"
    variables = {variable["name"] for variable in pod["containers"][0]["env"]}
    assert variables <= KNOWN_NAMES


def uses_of_names(module: ast.Module) -> Iterator[str]:
    """Yield the names of the catalog that a module imports, or reads from the imported module `names`."""
    aliases = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module == names.__name__:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "everstep.catalog":
            aliases |= {alias.asname or alias.name for alias in node.names if alias.name == "names"}
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from [node.attr] if node.value.id in aliases else []


def test_uses_are_resolved_through_imports() -> None:
    module = ast.parse(
        "from everstep.catalog import names as n\n"
        "from everstep.catalog.names import ETCD as E\n"
        "GPU_POOL = 'a copy'\nn.DOMAIN\nother.MOUNT\n"
    )

    assert set(uses_of_names(module)) == {"ETCD", "DOMAIN"}


def test_every_name_of_the_catalog_is_used_by_a_program() -> None:
    catalog = ast.parse(Path(names.__file__).read_text(encoding="utf-8"))
    uses = {
        node.id
        for node in ast.walk(catalog)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        uses |= set(uses_of_names(ast.parse(path.read_text(encoding="utf-8"))))

    assert {name for name in vars(names) if name.isupper()} <= uses, (
        "a program has a copy of the value, or no program needs it"
    )
