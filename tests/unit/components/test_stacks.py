"""The stack files of the repository: whole, right, protected where it matters, and described."""

import re

import pytest
import yaml

from components import stack_table
from components.config import AksConfig, EksConfig
from components.cost import estimate
from components.schema import fields, models_in

NAMES = stack_table.names()
ON_CLOUDS = [name for name in NAMES if name != "local"]


def text_of(name: str) -> str:
    return (stack_table.STACKS / f"Pulumi.{name}.yaml").read_text(encoding="utf-8")


def test_there_is_a_stack_for_each_cloud_and_each_environment() -> None:
    assert NAMES == ["local", "aks-dev", "aks-prod", "eks-dev", "eks-prod"]


@pytest.mark.parametrize("name", ON_CLOUDS)
def test_a_stack_is_of_the_cloud_and_the_environment_that_its_name_says(name: str) -> None:
    cloud, environment = name.split("-")

    config = stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml")

    assert config.cluster.kind == cloud
    assert config.tags["environment"] == environment
    assert config.protect == (environment == "prod")


@pytest.mark.parametrize("name", ON_CLOUDS)
def test_a_stack_on_a_cloud_says_every_section_itself(name: str) -> None:
    said = set(yaml.safe_load(text_of(name))["config"])
    optional = {"everstep:cost"}  # prices and a budget are a choice

    missing = {f"everstep:{key}" for key, _ in fields(stack_table.StackConfig)} - said

    assert missing <= optional, "a newcomer changes what is there and does not look for the rest"


@pytest.mark.parametrize("name", ON_CLOUDS)
def test_a_stack_on_a_cloud_runs_the_published_controller_by_its_published_image(name: str) -> None:
    config = stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml")

    assert config.controller.kind == "upstream"
    assert config.controller.image == "torchelastic/kubernetes:0.1.0"


@pytest.mark.parametrize("name", ON_CLOUDS)
def test_gpu_nodes_are_spot_and_scale_from_nothing(name: str) -> None:
    cluster = stack_table.read(stack_table.STACKS / f"Pulumi.{name}.yaml").cluster

    assert isinstance(cluster, EksConfig | AksConfig)
    assert (cluster.gpu_pool.capacity, cluster.gpu_pool.min_nodes) == ("spot", 0)


@pytest.mark.parametrize("name", ON_CLOUDS)
def test_what_differs_for_every_user_is_marked(name: str) -> None:
    marked = [line for line in text_of(name).splitlines() if "# CHANGE" in line]

    placeholder = re.compile(r"123456789012|203\.0\.113\.|11111111-2222|vision-team$|example\.org")
    written = [line for line in text_of(name).splitlines() if not line.lstrip().startswith("#")]
    left = [line for line in written if placeholder.search(line) and line not in marked]
    assert left == [], "a placeholder that nobody is told of ends in somebody's cloud"


@pytest.mark.parametrize("cloud", ["eks", "aks"])
def test_production_costs_more_than_development(cloud: str) -> None:
    dev, prod = (
        estimate(stack_table.read(stack_table.STACKS / f"Pulumi.{cloud}-{environment}.yaml"))
        for environment in ("dev", "prod")
    )

    assert dev.total(spot=False).usd < prod.total(spot=False).usd


@pytest.mark.parametrize("name", NAMES)
def test_no_comment_names_a_key_that_is_not_there(name: str) -> None:
    known = set(all_keys(stack_table.StackConfig))
    told = re.findall(r"^ *#   *([a-z]\w+): ", text_of(name), flags=re.MULTILINE)

    assert [key for key in told if key not in known] == []


def all_keys(model: type) -> list[str]:
    found = []
    for key, field in fields(model):
        found += [key, *(inner for each in models_in(field.annotation) for inner in all_keys(each))]
    return found


def test_the_page_of_stacks_is_current() -> None:
    assert stack_table.PAGE.read_text(encoding="utf-8") == stack_table.page(), (
        "run `python -m components.stack_table`"
    )
