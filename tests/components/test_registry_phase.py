"""The registry phase of the program is refused for a stack that has more than a registry."""

import pulumi
import pytest

from components import registry_phase
from components.registry_phase import VARIABLE, Part, declared_part, foreign_types


def test_the_registry_and_its_dependencies_belong_to_the_phase() -> None:
    types = [
        "pulumi:pulumi:Stack",
        "pulumi:providers:aws",
        "everstep:registry:Ecr",
        "aws:ecr/repository:Repository",
        "aws:ecr/lifecyclePolicy:LifecyclePolicy",
        "azure-native:network:VirtualNetwork",
        "azure-native:resources:ResourceGroup",
        "azure-native:containerregistry:Registry",
    ]

    assert foreign_types(types) == []


def test_all_other_types_are_foreign_to_the_phase() -> None:
    types = [
        "aws:s3/bucket:Bucket",
        "azure-native:containerservice:ManagedCluster",
        "aws:s3/bucket:Bucket",
    ]

    assert foreign_types(types) == sorted(set(types))


def test_the_phases_have_the_names_that_the_command_line_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from everstep.cli.engine import partial_update

    assert partial_update.VARIABLE == VARIABLE
    for part in partial_update.PARTS:
        monkeypatch.setenv(VARIABLE, part + partial_update.TARGETED_SUFFIX)
        assert declared_part() is Part.TARGETED_REGISTRY


def test_an_unknown_part_is_refused_before_it_deletes_the_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "registy")

    with pytest.raises(pulumi.RunError, match="EVERSTEP_PART=registy is not a part of a stack"):
        declared_part()


def test_without_pulumi_on_the_path_the_phase_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")

    with pytest.raises(pulumi.RunError, match="`pulumi` is not on PATH"):
        registry_phase._state_types("eks-dev")
