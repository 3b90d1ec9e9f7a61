"""Images of a stack: local ones that replace third-party ones, and errors for missing ones."""

import pytest
from cloudtwin.images.recipes import all_recipes

from components.config import StackConfig, from_mapping
from everstep.cli.engine import stand_ins
from everstep.cli.images import RECIPES
from everstep.errors import EverstepError

PRESENT_IMAGES = [
    stand_ins.local_reference(name)
    for name in ("trainer", "controller", "etcd", "etcd-rejoin", "spot", "gpu-plugin")
]


@pytest.fixture
def eks() -> StackConfig:
    return from_mapping(
        {
            "tags": {"owner": "me", "costCenter": "1", "environment": "dev"},
            "cluster": {"kind": "eks", "publicAccess": ["192.0.2.0/24"]},
            "controller": {"kind": "upstream", "image": "torchelastic/kubernetes:0.1.0"},
            "job": {"image": "registry.example/trainer:1"},
        }
    )


def test_third_party_images_of_a_cloud_stack_are_replaced_by_images_of_the_twin(
    eks: StackConfig,
) -> None:
    aliases = stand_ins.image_aliases(stand_ins.images_used(eks), PRESENT_IMAGES)

    assert aliases[eks.etcd.image] == "localhost/everstep/etcd:local"
    assert aliases[eks.platform.gpu_plugin.image] == "localhost/cloudtwin/gpu-plugin:local"
    assert aliases.keys() & {"registry.example/trainer:1", eks.platform.spot.image} == set(), (
        "Everstep's own images are pulled from the twin's registry"
    )


def test_images_of_everstep_are_pulled_and_marked_if_a_release_publishes_them(
    eks: StackConfig,
) -> None:
    pulled_images = stand_ins.images_to_pull(stand_ins.images_used(eks), PRESENT_IMAGES)

    assert {image.reference: image.is_released for image in pulled_images} == {
        "registry.example/trainer:1": False,
        "ghcr.io/everstep/etcd-rejoin:0.1.0": True,
        "ghcr.io/everstep/spot:0.1.0": True,
    }
    archive_images = [*PRESENT_IMAGES, "registry.example/trainer:1"]
    assert "registry.example/trainer:1" not in {
        image.reference
        for image in stand_ins.images_to_pull(stand_ins.images_used(eks), archive_images)
    }


def test_an_image_from_an_archive_is_not_replaced(eks: StackConfig) -> None:
    images = stand_ins.images_used(eks)

    for name in ("torchelastic/kubernetes:0.1.0", "docker.io/torchelastic/kubernetes:0.1.0"):
        present_images = [*PRESENT_IMAGES, name]
        assert "docker.io/torchelastic/kubernetes:0.1.0" not in stand_ins.image_aliases(
            images, present_images
        )
        assert stand_ins.config_overrides(eks, present_images) == {}, (
            f"{name} is the controller's image"
        )


def test_every_stand_in_is_an_image_that_the_twin_builds(eks: StackConfig) -> None:
    references = {recipe.reference for recipe in all_recipes(RECIPES).values()}

    assert {image.stand_in for image in stand_ins.images_used(eks)} <= references


def test_without_an_archive_the_upstream_controller_is_replaced_by_the_maintained_one(
    eks: StackConfig,
) -> None:
    assert stand_ins.config_overrides(eks, []) == {"controller": {"kind": "maintained"}}
    assert stand_ins.config_overrides(eks, ["torchelastic/kubernetes:0.1.0"]) == {}


def test_without_archives_no_image_is_provided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUDTWIN_IMAGES", raising=False)

    assert stand_ins.user_images() == frozenset()


def test_an_image_without_a_replacement_is_reported_with_its_key(eks: StackConfig) -> None:
    missing_keys = {
        image.key for image in stand_ins.missing_images(stand_ins.images_used(eks), PRESENT_IMAGES)
    }

    assert missing_keys == {"platform.metrics.image", "cluster.autoscaling.image"}


def test_the_local_stack_uses_only_local_images() -> None:
    images = stand_ins.images_used(
        from_mapping({"etcd": {"image": stand_ins.local_reference("etcd")}})
    )

    assert all(image.is_local for image in images)
    stand_ins.require_images(images, PRESENT_IMAGES)


@pytest.mark.parametrize(
    ("section", "image", "nearest"),
    [
        ("job", "localhost/everstep/trainr:local", "trainer:local"),
        ("controller", "localhost/everstep/contoller:local", "controller:local"),
    ],
)
def test_a_missing_image_is_reported_with_its_key_the_nearest_name_and_the_fix(
    section: str, image: str, nearest: str
) -> None:
    etcd = {"image": stand_ins.local_reference("etcd")}
    images = stand_ins.images_used(from_mapping({"etcd": etcd, section: {"image": image}}))

    with pytest.raises(EverstepError, match=f"{image} \\(everstep:{section}.image\\)") as error:
        stand_ins.require_images(images, PRESENT_IMAGES)
    assert f"Did you mean localhost/everstep/{nearest}" in error.value.fix
    assert "EVERSTEP_TWIN_IMAGES" in error.value.fix
