"""The stack files of the repository: complete, valid, protected in production, documented."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from components.config import AksConfig, EksConfig, EksPool, StackConfig, from_mapping
from components.config.schema import fields, models_in
from components.cost import estimate
from components.docs import stack_table

NAMES = stack_table.names()
CLOUD_STACKS = [name for name in NAMES if name != "local"]


def text_of(name: str) -> str:
    return (stack_table.STACKS / f"Pulumi.{name}.yaml").read_text(encoding="utf-8")


def test_there_is_a_stack_for_each_cloud_and_each_environment() -> None:
    assert NAMES == ["local", "aks-dev", "aks-prod", "eks-dev", "eks-prod"]


@pytest.mark.parametrize("name", CLOUD_STACKS)
def test_a_stack_matches_the_cloud_and_environment_in_its_name(name: str) -> None:
    cloud, environment = name.split("-")

    config = stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml")

    assert config.cluster.kind == cloud
    assert config.tags["environment"] == environment
    assert config.protect == (environment == "prod")


@pytest.mark.parametrize("name", CLOUD_STACKS)
def test_a_stack_file_for_a_cloud_contains_every_section(name: str) -> None:
    sections = set(yaml.safe_load(text_of(name))["config"])
    # Prices and a budget are optional; a stack that creates its cluster needs no platform stack.
    optional = {"everstep:cost", "everstep:platformStack"}

    missing = {f"everstep:{key}" for key, _ in fields(StackConfig)} - sections

    assert missing <= optional, "a new user edits the file without searching for missing sections"


def with_reversed_keys(value: Any) -> Any:
    """Return a value with the keys of its mappings in reverse order."""
    if isinstance(value, dict):
        return {key: with_reversed_keys(value[key]) for key in reversed(value)}
    return [with_reversed_keys(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_keys_has_no_effect_because_pulumi_does_not_keep_it(name: str) -> None:
    content = yaml.safe_load(text_of(name))["config"]
    sections = {key.removeprefix("everstep:"): section for key, section in content.items()}

    config, reversed_config = map(from_mapping, (sections, with_reversed_keys(sections)))

    assert config.model_dump_json() == reversed_config.model_dump_json()


@pytest.mark.parametrize("name", ["aks-dev", "aks-prod"])
def test_the_cheaper_vm_size_is_tried_first_even_if_pulumi_has_sorted_the_keys(name: str) -> None:
    content = yaml.safe_load(text_of(name))["config"]
    sorted_values = json.loads(json.dumps(content, sort_keys=True))

    cluster = from_mapping(
        {key: sorted_values[f"everstep:{key}"] for key in ("cluster", "tags", "protect")}
    ).cluster

    assert isinstance(cluster, AksConfig)
    first, second, *fallbacks = cluster.pools
    assert (first.name, second.name) == ("t4", "a100")
    assert {pool.vm_size for pool in fallbacks} <= {first.vm_size}, "a fallback has the first size"


@pytest.mark.parametrize("name", CLOUD_STACKS)
def test_dev_runs_the_upstream_controller_and_prod_the_maintained_controller(
    name: str,
) -> None:
    config = stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml")

    if name.endswith("-dev"):
        assert config.controller.kind == "upstream"
        assert (config.controller.image or "").startswith("torchelastic/kubernetes")
    else:
        assert config.controller.kind == "maintained"
        assert config.job.scaling == "capacity", "the reason for the maintained controller"


@pytest.mark.parametrize("name", CLOUD_STACKS)
def test_gpu_nodes_are_spot_and_scale_from_zero(name: str) -> None:
    cluster = stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml").cluster

    assert isinstance(cluster, EksConfig | AksConfig)
    pools = [pool.settings if isinstance(pool, EksPool) else pool for pool in cluster.pools]
    assert {pool.min_nodes for pool in pools} == {0}
    assert {pool.settings.capacity for pool in cluster.pools} == {"spot"}


@pytest.mark.parametrize("name", CLOUD_STACKS)
def test_placeholders_are_marked(name: str) -> None:
    marked_lines = [line for line in text_of(name).splitlines() if "# CHANGE" in line]

    placeholder = re.compile(
        r"123456789012|111122223333|203\.0\.113\.|11111111-2222|vision-team$|example\.org"
    )
    value_lines = [line for line in text_of(name).splitlines() if not line.lstrip().startswith("#")]
    unmarked_lines = [
        line for line in value_lines if placeholder.search(line) and line not in marked_lines
    ]
    assert unmarked_lines == [], "an unmarked placeholder would be deployed"


@pytest.mark.parametrize("cloud", ["eks", "aks"])
def test_production_costs_more_than_development(cloud: str) -> None:
    dev, prod = (
        estimate(stack_table.read(stack_table.STACKS / f"Pulumi.{cloud}-{environment}.yaml"))
        for environment in ("dev", "prod")
    )

    assert dev.total(spot=False).usd < prod.total(spot=False).usd


@pytest.mark.parametrize("name", NAMES)
def test_comments_name_only_existing_keys(name: str) -> None:
    valid_keys = set(all_keys(StackConfig))
    keys = re.findall(r"^ *#   *([a-z]\w+): ", text_of(name), flags=re.MULTILINE)

    assert [key for key in keys if key not in valid_keys] == []


def all_keys(model: type[BaseModel]) -> Iterator[str]:
    """Yield the names of all keys in a model and in the models that it contains."""
    for key, field in fields(model):
        yield key
        for inner in models_in(field.annotation):
            yield from all_keys(inner)


def test_the_page_of_stacks_is_current() -> None:
    assert stack_table.PAGE.read_text(encoding="utf-8") == stack_table.page(), "run `make docs`"
