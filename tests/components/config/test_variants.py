"""Kinds of cluster and storage: selection of the variant, and defaults of each cloud."""

import contextlib
import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from components.config import (
    AksConfig,
    BlobConfig,
    EksConfig,
    ExistingClusterConfig,
    FsxConfig,
    HostPathConfig,
    as_kind,
    from_mapping,
)
from components.config.defaults import DEFAULTS, STORAGE_DEFAULTS, with_defaults
from components.config.faults import ConfigurationError
from components.config.rules import value_at
from components.config.schema import fields, leaves, models_in, variants
from components.config.stack import RULES, StackConfig
from tests.components.config.bad_stacks import AKS, EKS, LOCAL
from tests.effort import examples

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("base", "cluster", "storage"),
    [
        (LOCAL, ExistingClusterConfig, HostPathConfig),
        (EKS, EksConfig, FsxConfig),
        (AKS, AksConfig, BlobConfig),
    ],
)
def test_the_default_volume_belongs_to_the_cloud_of_the_cluster(
    base: dict[str, Any], cluster: type, storage: type
) -> None:
    config = from_mapping(base)

    assert (type(config.cluster), type(config.storage)) == (cluster, storage)


def test_user_values_override_defaults_of_the_cloud() -> None:
    config = from_mapping(EKS | {"etcd": {"persistence": "disk", "storageClass": "gp3"}})

    assert config.etcd.persistence == "disk"
    assert config.etcd.image == DEFAULTS["eks"]["etcd.image"], "the rest of the section stays"


def test_the_upstream_controller_does_not_get_the_maintained_image() -> None:
    with pytest.raises(ConfigurationError, match=r"controller\.image"):
        from_mapping(EKS | {"controller": {"kind": "upstream"}})
    assert from_mapping(EKS).controller.image == DEFAULTS["eks"]["controller.image"]


def test_gpu_services_are_enabled_on_clouds_but_not_on_existing_clusters() -> None:
    for base, enabled in ((LOCAL, False), (EKS, True), (AKS, True)):
        platform = from_mapping(base).platform
        parts = (platform.gpu_plugin, platform.metrics, platform.spot)
        assert {part.enabled for part in parts} == {enabled}


@pytest.mark.parametrize("kind", [*DEFAULTS, *STORAGE_DEFAULTS])
def test_every_default_of_a_kind_belongs_to_an_existing_key(kind: str) -> None:
    for path in (DEFAULTS | STORAGE_DEFAULTS)[kind]:
        value_at({}, StackConfig, path)  # raises KeyError for an unknown key


def test_every_rule_uses_existing_keys() -> None:
    storage_kinds = {"existing": "hostpath", "eks": "fsx", "aks": "blob"}
    for rule in RULES:
        for cluster in rule.only.get("cluster", storage_kinds):
            for storage in rule.only.get("storage", [storage_kinds[cluster]]):
                data = {"cluster": {"kind": cluster}, "storage": {"kind": storage}}
                for path in filter(None, (*rule.paths, rule.unless)):
                    value_at(data, StackConfig, path)  # raises KeyError for an unknown key


def test_filling_in_defaults_does_not_change_the_input() -> None:
    data: dict[str, Any] = {"cluster": {"kind": "eks"}, "platform": {"spot": {}}}

    with_defaults(data)

    assert data == {"cluster": {"kind": "eks"}, "platform": {"spot": {}}}


def test_filling_in_defaults_is_idempotent() -> None:
    complete = with_defaults(EKS)

    assert with_defaults(complete) == complete


def test_a_section_of_an_unexpected_kind_raises_a_type_error() -> None:
    with pytest.raises(TypeError, match="EksConfig where AksConfig was expected"):
        as_kind(from_mapping(EKS).cluster, AksConfig)


def test_gpu_nodes_are_in_the_first_zone_unless_the_pool_names_another() -> None:
    zones = ["us-east-1b", "us-east-1a"]
    first = from_mapping(EKS | {"cluster": {"kind": "eks", "zones": zones}})
    second = EKS | {"cluster": {"kind": "eks", "zones": zones, "gpuPool": {"zone": zones[1]}}}

    assert as_kind(first.cluster, EksConfig).file_system_zone == "us-east-1b"
    assert as_kind(from_mapping(second).cluster, EksConfig).file_system_zone == "us-east-1a"


def test_unquoted_yaml_numbers_are_accepted_as_text() -> None:
    pool = {"zones": [1, 3]}
    cluster = AKS["cluster"] | {"kubernetesVersion": 1.36, "systemPool": pool}

    config = from_mapping(AKS | {"tags": AKS["tags"] | {"costCenter": 4711}, "cluster": cluster})

    assert as_kind(config.cluster, AksConfig).system_pool.zones == ("1", "3")
    assert as_kind(config.cluster, AksConfig).kubernetes_version == "1.36"
    assert config.tags["costCenter"] == "4711"


def test_tags_include_the_project_and_the_stack() -> None:
    tags = from_mapping(EKS).tags_for("eks-dev")

    assert tags == EKS["tags"] | {"managed-by": "everstep", "stack": "eks-dev"}


def test_the_dns_address_is_the_tenth_of_the_service_block() -> None:
    cluster = as_kind(from_mapping(AKS).cluster, AksConfig)

    assert cluster.network.dns_service_ip == "10.2.0.10"


def every_key(base: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the sections of a stack, and the paths of their keys outside lists and mappings."""
    keys: list[tuple[str, ...]] = []
    for key, field in fields(StackConfig):
        keys.append((key,))
        kind = with_defaults(base).get(key, {}).get("kind") if variants(field) else None
        models = [variants(field)[kind]] if kind else models_in(field.annotation)
        keys += [(key, *path.split(".")) for model in models for path, _ in leaves(model)]
    return [path for path in keys if not any("[" in part or "<" in part for part in path)]


KEYS = [(base, every_key(base)) for base in (EKS, AKS, LOCAL)]


def with_value(base: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a copy of a stack with another value at a path."""
    *sections, key = path
    stack = copy.deepcopy(base)
    target = stack
    for section in sections:
        target = target.setdefault(section, {})
    target[key] = value
    return stack


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data(), stack_keys=st.sampled_from(KEYS))
def test_a_key_with_a_missing_letter_is_corrected_within_its_kind(
    data: st.DataObject, stack_keys: tuple[dict[str, Any], list[tuple[str, ...]]]
) -> None:
    base, keys = stack_keys
    *sections, name = data.draw(st.sampled_from(keys))
    position = data.draw(st.integers(0, len(name) - 1))
    typo = name[:position] + name[position + 1 :]
    assume(typo and (*sections, typo) not in keys)  # job.mode is one letter from job.model

    with pytest.raises(ConfigurationError) as error:
        from_mapping(with_value(base, (*sections, typo), "x"))

    fault = next(f for f in error.value.faults if f.path == ".".join([*sections, typo]))
    assert name in fault.fix, "the right key must be among the suggestions"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), stack_keys=st.sampled_from(KEYS), junk=JUNK)
def test_any_value_of_a_key_yields_a_configuration_or_faults(
    data: st.DataObject, stack_keys: tuple[dict[str, Any], list[tuple[str, ...]]], junk: Any
) -> None:
    base, keys = stack_keys
    stack = with_value(base, data.draw(st.sampled_from(keys)), junk)

    with contextlib.suppress(ConfigurationError):
        assert from_mapping(stack).job.replicas


@pytest.mark.parametrize("kind", ["eks", "aks", "fsx", "blob", "nothing", 3, None, [], {}])
@pytest.mark.parametrize("section", ["cluster", "storage"])
def test_a_kind_of_any_type_yields_faults(section: str, kind: Any) -> None:
    with pytest.raises(ConfigurationError) as error:
        from_mapping({section: {"kind": kind, "zones": 3, "gpuPool": [1], "existing": "x"}})

    assert error.value.faults


def test_reading_a_configuration_imports_neither_pulumi_nor_a_cloud() -> None:
    code = (
        "import sys, components.config, components.cost; "
        "print([m for m in sys.modules if m.split('.')[0].startswith(('pulumi', 'kubernetes'))])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]", (
        "commands that only read the configuration must start quickly"
    )
