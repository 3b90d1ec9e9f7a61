"""Digests are written into a stack file, and nothing else in it changes."""

import shutil
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.config import from_mapping
from everstep.cli import stack_images
from everstep.errors import EverstepError

REPOSITORY = Path(__file__).parents[3]
REFERENCE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/everstep/trainer@sha256:" + "0a" * 32
STACKS = sorted((REPOSITORY / "stacks").glob("Pulumi.*.yaml"))
TEXTS = (
    "config:\n  everstep:job:\n    name: x  # why\n    image: a/b:1  # keep\n",
    "config:\n  everstep:etcd: {members: 3}\n",
    "config:\n  everstep:platform:\n  everstep:tags:\n    a: b\n",
    "config: {everstep:tags: {a: b}}\n",
    "config:\n",
    "config: {}\n",
    "{}\n",
    "# first\nconfig:\n    everstep:tags:\n        a: b\n",
)


@given(
    st.sampled_from(TEXTS),
    st.permutations([key.split(".") for key in stack_images.KEYS.values()]),
)
def test_a_value_is_set_in_an_existing_or_a_new_section(text: str, keys: list[list[str]]) -> None:
    initial_config = yaml.safe_load(text).get("config") or {}

    for section, *keys_below in keys:
        path = ["config", f"everstep:{section}", *keys_below]
        text = stack_images.set_value(text, path, REFERENCE)
        assert stack_images.set_value(text, path, REFERENCE) == text, (
            "a second write must not change the text"
        )

    config = yaml.safe_load(text)["config"]
    for section, *keys_below in keys:
        value = config[f"everstep:{section}"]
        for key in keys_below:
            value = value[key]
        assert value == REFERENCE
    assert initial_config.keys() <= config.keys()
    assert config.get("everstep:tags") == initial_config.get("everstep:tags")


@pytest.mark.parametrize("stack", STACKS, ids=lambda path: path.stem)
def test_comments_and_all_other_values_of_a_shipped_stack_are_kept(
    stack: Path, tmp_path: Path
) -> None:
    file = tmp_path / stack.name
    shutil.copy(stack, file)
    file.chmod(0o640)
    comments = [line.partition("#")[2] for line in stack.read_text().splitlines() if "#" in line]

    changed_keys = stack_images.write_images(file, {"trainer": REFERENCE, "spot": REFERENCE})

    assert changed_keys == ["job.image", "platform.spot.image"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    text = file.read_text()
    assert comments == [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    expected = yaml.safe_load(stack.read_text())
    expected["config"]["everstep:job"]["image"] = REFERENCE
    platform = expected["config"].setdefault("everstep:platform", {})
    platform.setdefault("spot", {})["image"] = REFERENCE
    assert yaml.safe_load(text) == expected
    assert stack_images.write_images(file, {"trainer": REFERENCE, "spot": REFERENCE}) == []


def test_a_stack_pushes_the_images_that_its_pods_use() -> None:
    tags = {"owner": "me", "costCenter": "1", "environment": "dev"}
    cluster = {"kind": "eks", "publicAccess": ["192.0.2.0/24"]}
    upstream = {"kind": "upstream", "image": "torchelastic/kubernetes:0.1.0"}
    etcd = {"members": 1}
    small_stack = from_mapping(
        {"tags": tags, "cluster": cluster, "controller": upstream, "etcd": etcd}
    )
    large_stack = from_mapping({"tags": tags, "cluster": cluster, "etcd": {"members": 3}})
    users = {"members": 1, "authentication": "users"}
    stack_with_users = from_mapping({"tags": tags, "cluster": cluster, "etcd": users})

    assert stack_images.images_of_stack(small_stack) == ["trainer", "spot"]
    assert stack_images.images_of_stack(large_stack) == [
        "trainer",
        "controller",
        "spot",
        "etcd-rejoin",
    ]
    assert "etcd-rejoin" in stack_images.images_of_stack(stack_with_users), "it sets up the users"


def test_a_file_that_is_not_a_stack_configuration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text("- a list\n")

    with pytest.raises(EverstepError, match="not a stack configuration"):
        stack_images.write_images(file, {"trainer": REFERENCE})
    assert file.read_text() == "- a list\n"


def test_two_pushes_do_not_overwrite_each_others_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "Pulumi.eks-dev.yaml"
    file.write_text("config: {}\n")
    second_push = threading.Thread(
        target=stack_images.write_images, args=(file, {"spot": REFERENCE})
    )
    set_value = stack_images.set_value

    def set_after_a_second_push_began(text: str, path: Sequence[str], value: str) -> str:
        if second_push.ident is None:
            second_push.start()
            second_push.join(timeout=0.3)
        return set_value(text, path, value)

    monkeypatch.setattr(stack_images, "set_value", set_after_a_second_push_began)

    stack_images.write_images(file, {"trainer": REFERENCE})
    second_push.join()

    config = yaml.safe_load(file.read_text())["config"]
    assert config["everstep:job"] == {"image": REFERENCE}
    assert config["everstep:platform"] == {"spot": {"image": REFERENCE}}
