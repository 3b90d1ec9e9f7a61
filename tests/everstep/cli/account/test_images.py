"""Images of a stack: all that its pods pull, each looked up in its registry."""

from typing import Any

import pytest

from components.config import StackConfig, from_mapping
from everstep.cli.account.checks import AccountCheck
from everstep.cli.account.images import check_published, images_of
from tests.everstep.cli.account.cases import failed_checks, only_failed_check
from tests.everstep.cli.account.conftest import PublicRegistries

TAGS = {"owner": "vision", "costCenter": "4711", "environment": "dev"}
EKS = {"kind": "eks", "gpuPool": {"maxNodes": 4}}
ECR = {"kind": "ecr", "name": "everstep"}


def stack(**sections: Any) -> StackConfig:
    return from_mapping({"tags": TAGS, "cluster": EKS, **sections})


def checks(config: StackConfig) -> list[AccountCheck]:
    return list(check_published(config, lambda _image: False))


@pytest.mark.parametrize(
    ("etcd", "expected"),
    [
        ({"members": 1, "persistence": "memory"}, False),
        ({"members": 3, "persistence": "memory"}, True),
        ({"persistence": "disk", "storageClass": "gp3", "authentication": "users"}, True),
        ({"persistence": "disk", "storageClass": "gp3"}, False),
    ],
    ids=["one in memory", "three in memory", "users on disks", "disks"],
)
def test_the_rejoin_image_of_etcd_is_looked_up_if_a_pod_uses_it(
    etcd: dict[str, object], expected: bool
) -> None:
    assert ("etcd.rejoinImage" in images_of(stack(etcd=etcd))) is expected


@pytest.mark.parametrize("enabled", [True, False])
def test_the_autoscaler_is_looked_up_if_the_stack_declares_it(enabled: bool) -> None:
    pool = {"maxNodes": 4, "nodes": 3}
    cluster = {**EKS, "gpuPool": pool, "autoscaling": {"enabled": enabled}}

    assert ("cluster.autoscaling.image" in images_of(stack(cluster=cluster))) is enabled


@pytest.mark.parametrize("enabled", [True, False])
def test_the_prometheus_agent_is_looked_up_if_the_stack_declares_it(enabled: bool) -> None:
    cluster = {**EKS, "monitoring": {"managedPrometheus": enabled}}

    assert ("cluster.monitoring.image" in images_of(stack(cluster=cluster))) is enabled


def test_images_that_exist_share_one_check(registries: PublicRegistries) -> None:
    config = stack()
    (check,) = checks(config)

    assert check.passed
    assert len(registries.requests) == len(images_of(config))


def test_an_unpublished_image_is_named(registries: PublicRegistries) -> None:
    registries.missing.add("ghcr.io/example/trainer:1.0")
    check = only_failed_check(checks(stack(job={"image": "ghcr.io/example/trainer:1.0"})))

    assert check.fatal
    assert check.field == "job.image"
    assert check.observed == "ghcr.io/example/trainer:1.0 does not exist"
    assert "everstep images push" in check.fix


def test_a_missing_image_that_the_next_push_replaces_is_a_warning(
    registries: PublicRegistries,
) -> None:
    registries.missing.add("ghcr.io/example/trainer:1.0")
    config = stack(job={"image": "ghcr.io/example/trainer:1.0"}, registry=ECR)

    assert not only_failed_check(checks(config)).fatal, "the guide checks before it pushes"


def test_a_missing_third_party_image_is_fatal_even_with_a_registry(
    registries: PublicRegistries,
) -> None:
    registries.missing.add("quay.io/coreos/etcd:v0.0.1")
    config = stack(etcd={"image": "quay.io/coreos/etcd:v0.0.1"}, registry=ECR)

    check = only_failed_check(checks(config))
    assert check.fatal
    assert "Correct the reference" in check.fix


@pytest.mark.parametrize("state", ["private", "silent"])
def test_a_registry_that_requires_a_login_or_does_not_respond_is_one_warning(
    registries: PublicRegistries, state: str
) -> None:
    getattr(registries, state).add("ghcr.io")
    config = stack(
        job={"image": "ghcr.io/example/trainer:1.0"},
        controller={"kind": "maintained", "image": "ghcr.io/example/controller:1.0"},
    )

    (check,) = failed_checks(checks(config))
    assert not check.fatal, "nodes may have a login, or another route"
    assert "was not checked" in check.observed
    assert "docker manifest inspect" in check.fix


def test_an_image_that_the_checks_of_the_account_cover_is_skipped(
    registries: PublicRegistries,
) -> None:
    assert list(check_published(stack(), lambda _image: True)) == []
    assert registries.requests == []
