"""Images: which local one answers for which published one, and what is said of one that is nowhere."""

import pytest

from components.config import from_mapping
from everstep.cli import stand_ins
from everstep.errors import EverstepError
from twin.images.recipes import RECIPES

PRESENT = [
    stand_ins.local(name) for name in ("trainer", "controller", "etcd", "spot", "gpu-plugin")
]


@pytest.fixture
def eks():
    return from_mapping(
        {
            "tags": {"owner": "me", "costCenter": "1", "environment": "dev"},
            "cluster": {"kind": "eks", "publicAccess": ["192.0.2.0/24"]},
            "controller": {"kind": "upstream", "image": "torchelastic/kubernetes:0.1.0"},
            "job": {"image": "registry.example/trainer:1"},
        }
    )


def test_published_images_of_a_cloud_stack_are_answered_by_what_the_twin_builds(eks):
    aliases = stand_ins.aliases(stand_ins.named(eks), PRESENT)

    assert aliases["registry.example/trainer:1"] == "localhost/everstep/trainer:local"
    assert aliases["torchelastic/kubernetes:0.1.0"] == "localhost/everstep/controller:local"
    assert aliases[eks.etcd.image] == "localhost/everstep/etcd:local"
    assert aliases[eks.platform.gpu_plugin.image] == "localhost/everstep/gpu-plugin:local"


def test_an_image_that_was_given_as_an_archive_answers_for_itself(eks):
    given = [*PRESENT, "torchelastic/kubernetes:0.1.0"]

    assert "torchelastic/kubernetes:0.1.0" not in stand_ins.aliases(stand_ins.named(eks), given)


def test_every_stand_in_is_an_image_that_the_twin_builds(eks):
    references = {recipe.reference for recipe in RECIPES.values()}

    assert {one.stand_in for one in stand_ins.named(eks)} <= references


def test_where_the_published_controller_is_not_given_our_own_takes_its_place(eks):
    assert stand_ins.in_place_of(eks, []) == {"controller": {"kind": "maintained"}}
    assert stand_ins.in_place_of(eks, ["torchelastic/kubernetes:0.1.0"]) == {}


def test_without_archives_nothing_is_given(monkeypatch):
    monkeypatch.delenv("EVERSTEP_TWIN_IMAGES", raising=False)

    assert stand_ins.given() == frozenset()


def test_what_nothing_stands_in_for_is_known_by_the_key_that_names_it(eks):
    unanswered = {one.key for one in stand_ins.unanswered(stand_ins.named(eks), PRESENT)}

    assert unanswered == {"platform.metrics.image", "cluster.autoscaling.image"}


def test_the_local_stack_names_local_images_only():
    named = stand_ins.named(from_mapping({"etcd": {"image": stand_ins.local("etcd")}}))

    assert all(one.is_local for one in named)
    stand_ins.require(named, PRESENT)


@pytest.mark.parametrize(
    ("section", "image", "near"),
    [
        ("job", "localhost/everstep/trainr:local", "trainer:local"),
        ("controller", "localhost/everstep/contoller:local", "controller:local"),
    ],
)
def test_an_image_that_is_nowhere_is_named_with_its_key_the_nearest_and_the_way_to_bring_it(
    section, image, near
):
    etcd = {"image": stand_ins.local("etcd")}
    named = stand_ins.named(from_mapping({"etcd": etcd, section: {"image": image}}))

    with pytest.raises(EverstepError, match=f"{image} \\(everstep:{section}.image\\)") as caught:
        stand_ins.require(named, PRESENT)
    assert f"Did you mean localhost/everstep/{near}" in caught.value.remedy
    assert "EVERSTEP_TWIN_IMAGES" in caught.value.remedy
