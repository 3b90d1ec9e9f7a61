"""The configuration of a stack: accepted values, defaults and error messages."""

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from components import config
from components.config import StackConfig, from_mapping
from components.config.faults import ConfigFault, ConfigurationError
from components.config.schema import fields, models_in
from components.docs import option_table
from tests.components.pulumi_config import pulumi_config

ROOT = Path(__file__).resolve().parents[3]
STACKS = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))


def stack_values(path: Path) -> dict[str, Any]:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))["config"]
    return {key.removeprefix("everstep:"): value for key, value in values.items()}


def error_message(data: dict[str, Any]) -> str:
    with pytest.raises(ConfigurationError) as error:
        from_mapping(data)
    return str(error.value)


def test_an_empty_stack_file_is_a_complete_configuration() -> None:
    stack = from_mapping({})

    assert stack.job.model == "resnet18"
    assert stack.etcd.members == 3
    assert stack.controller.kind == "maintained"


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.name)
def test_every_stack_file_in_the_repository_is_accepted(path: Path) -> None:
    from_mapping(stack_values(path))


def test_a_validated_configuration_is_immutable() -> None:
    stack = from_mapping({})

    with pytest.raises(ValidationError, match="frozen"):
        stack.job.replicas = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"jbo": {}}, ["everstep:jbo", "is not a known key", "did you mean job?"]),
        ({"job": {"modle": "x"}}, ["everstep:job.modle: x", "is not a known key", "model"]),
        ({"job": {"min_replicas": 1}}, ["everstep:job.min_replicas: 1", "mean minReplicas"]),
        (
            {"cluster": {"gpuPool": {"tolerations": [{"key": "a", "efect": "x"}]}}},
            ["everstep:cluster.gpuPool.tolerations[0].efect: x", "did you mean effect?"],
        ),
        (
            {"job": {"model": "resnet19"}},
            ["everstep:job.model: resnet19", "not a known model", "resnet18"],
        ),
        ({"job": {"model": "EfficientNet-B3"}}, ["everstep:job.model", "mean efficientnet_b3"]),
        ({"job": {"model": "llama"}}, ["not a known model", "use one of: resnet18, resnet34"]),
        (
            {"data": {"dataset": "fashionmnist"}},
            ["everstep:data.dataset: fashionmnist", "mean fashion-mnist?"],
        ),
        (
            {"job": {"replicas": 4}},
            ["everstep:job.replicas: 4", "more than maxReplicas (3)", "raise maxReplicas to 4"],
        ),
        (
            {"job": {"minReplicas": 4, "replicas": 4}},
            ["everstep:job.minReplicas: 4", "more than maxReplicas (3)", "raise maxReplicas to 4"],
        ),
        (
            {"job": {"globalBatch": 5, "gpusPerWorker": 2}},
            ["everstep:job.globalBatch: 5", "6 processes", "raise globalBatch to 6"],
        ),
        ({"etcd": {"members": 4}}, ["everstep:etcd.members: 4", "is even", "use 3 or 5"]),
        (
            {"job": {"name": "My Job"}},
            ["everstep:job.name: My Job", "not a name of a job", "fashion"],
        ),
        ({"job": {"name": "x" * 51}}, ["everstep:job.name", "51 characters", "shorten it to 50"]),
        ({"job": {"epochs": 0}}, ["everstep:job.epochs: 0", "must be greater than or equal to 1"]),
        ({"job": {"learningRate": "fast"}}, ["everstep:job.learningRate: fast", "number"]),
        (
            {"job": {"resources": {"memory": "2GB"}}},
            ["everstep:job.resources.memory: 2GB", "not a valid Kubernetes quantity", "10G"],
        ),
        ({"job": "fashion"}, ["everstep:job: fashion", "must be a mapping"]),
        (
            {"storage": {"path": "data"}},
            ["everstep:storage.path: data", "not an absolute path", "/mnt/everstep"],
        ),
        (
            {"cluster": {"systemPool": {"tolerations": [{}]}}},
            ["everstep:cluster.systemPool.tolerations[0].key", "is missing; add it"],
        ),
    ],
)
def test_a_fault_names_the_key_as_written_and_a_fix(
    data: dict[str, Any], expected: list[str]
) -> None:
    message = error_message(data)

    for part in expected:
        assert part in message, "the message must state the fault and its fix"
    assert "pydantic" not in message


def test_a_fault_shows_its_value_as_yaml() -> None:
    fault = ConfigFault("job.args", ["", 0.5, {"verbose": True, "seed": None}], "is wrong")

    assert str(fault).splitlines()[0] == (
        'everstep:job.args: ["", 0.5, {verbose: true, seed: null}]'
    )


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(ConfigurationError, match="has 6 faults") as error:
        from_mapping(
            {
                "jbo": {},
                "job": {"minReplicas": 4, "model": "resnet19"},
                "etcd": {"members": 2},
                "controller": {"kind": "upstream"},
            }
        )

    assert sorted(fault.path for fault in error.value.faults) == [
        "controller.image",
        "etcd.members",
        "jbo",
        "job.minReplicas",  # more than replicas
        "job.minReplicas",  # and more than maxReplicas
        "job.model",
    ]


def test_rules_ignore_values_that_are_individually_invalid() -> None:
    message = error_message({"job": {"replicas": "three", "minReplicas": 9}})

    assert "everstep:job.replicas: three" in message
    assert "minReplicas" not in message, "the stack file does not contain that number"


def test_numbers_are_accepted_as_text() -> None:
    stack = from_mapping({"job": {"replicas": "2", "minReplicas": "2"}, "etcd": {"members": "1"}})

    assert (stack.job.replicas, stack.etcd.members) == (2, 1)


@settings(deadline=None)
@given(
    min_replicas=st.integers(1, 64),
    replicas=st.integers(1, 64),
    max_replicas=st.integers(1, 64),
    batch=st.integers(1, 256),
)
def test_exactly_the_valid_combinations_of_replicas_and_batch_are_accepted(
    min_replicas: int, replicas: int, max_replicas: int, batch: int
) -> None:
    job = {
        "minReplicas": min_replicas,
        "replicas": replicas,
        "maxReplicas": max_replicas,
        "globalBatch": batch,
    }

    if min_replicas <= replicas <= max_replicas <= batch:
        assert from_mapping({"job": job}).job.replicas == replicas
        return
    with pytest.raises(ConfigurationError) as error:
        from_mapping({"job": job})
    assert all(fault.fix for fault in error.value.faults), "each of these faults has a fix"


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["job", "etcd", "replicas", "members", "cluster", "kind", "gpuPool", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_any_file_yields_a_configuration_or_faults(junk: Any) -> None:
    data = junk if isinstance(junk, dict) else {"job": junk}

    with contextlib.suppress(ConfigurationError):
        assert from_mapping(data).job.replicas


def test_validation_does_not_change_the_input() -> None:
    data = {"job": {"replicas": "2", "resources": {"cpu": 1}}}
    before = copy.deepcopy(data)

    from_mapping(data)

    assert data == before


def load(values: dict[str, str]) -> StackConfig:
    """Return the configuration that a program loads if Pulumi passes these values."""
    with pulumi_config(values):
        return config.load(pulumi.Config("everstep"))


def test_the_loader_reads_unknown_keys_too() -> None:
    with pytest.raises(ConfigurationError, match=r"everstep:storge.*\n.*did you mean storage\?"):
        load({"everstep:job": '{"replicas": 2}', "everstep:storge": "{}", "aws:region": "x"})


def test_the_loader_decodes_nested_values_from_json() -> None:
    stack_config = load({"everstep:job": '{"replicas": 2, "env": {"A": "1"}}'})

    assert stack_config.job.replicas == 2
    assert stack_config.job.env == {"A": "1"}


def test_a_deadline_in_the_past_is_refused_only_when_a_stack_is_deployed() -> None:
    job = {"deadline": "2020-01-01T00:00:00Z", "onDemand": "never"}

    with pytest.raises(
        ConfigurationError, match=r"job\.deadline: 2020.*\n.*in the past; set a later"
    ):
        load({"everstep:job": json.dumps(job)})
    assert from_mapping({"job": job}).job.deadline == "2020-01-01T00:00:00Z"


def descriptions(model: type[BaseModel]) -> Iterator[tuple[str, str | None]]:
    """Yield each key of a model and of the models in it, with its description."""
    for key, field in fields(model):
        yield f"{model.__name__}.{key}", field.description
        for inner in models_in(field.annotation):
            yield from descriptions(inner)


def test_every_key_is_described() -> None:
    assert [key for key, description in descriptions(StackConfig) if not description] == []


def test_the_page_of_options_is_current() -> None:
    assert option_table.PAGE.read_text(encoding="utf-8") == option_table.page(), "run `make docs`"


def test_a_recursive_yaml_alias_is_reported_as_a_fault() -> None:
    values: dict[str, object] = {}
    values["job"] = {"env": values}

    with pytest.raises(ConfigurationError, match="YAML alias"):
        from_mapping(values)
