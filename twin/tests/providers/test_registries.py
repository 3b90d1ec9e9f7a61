"""Rules of the twin's registry, and the credentials of its nodes."""

from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers import registries
from cloudtwin.providers.aws.s3 import REPOSITORY
from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.registries import PrivateRegistry

from twin.tests.providers.offline import Provider

REGISTRY = PrivateRegistry(id="a", user="u", nodes_may_pull=True, repositories=None)


def hosts(state: Path) -> set[str]:
    """Return the registries for which nodes have credentials."""
    content = files.read_json(state / "cloud" / "registry-credentials.json")
    return set(content["auth"]) if content else set()


def test_an_account_without_registries_has_no_files(tmp_path: Path) -> None:
    registries.write(tmp_path, "aws", {})

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("before", "after"), [((), ("r",)), (("r",), ())])
def test_the_credentials_are_written_after_a_kill_between_the_two_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    registries.write(tmp_path, "aws", dict.fromkeys(before, REGISTRY))
    with monkeypatch.context() as killed:
        killed.setattr(registries, "_write_credentials", lambda _state: None)
        registries.write(tmp_path, "aws", dict.fromkeys(after, REGISTRY))
    assert hosts(tmp_path) == set(before)

    registries.write(tmp_path, "aws", dict.fromkeys(after, REGISTRY))

    assert hosts(tmp_path) == set(after)


def put_image(state: Path, repository: str) -> Path:
    """Store an image in a repository of the twin's registry; return its file."""
    registry = state / "registry" / "images" / "docker" / "registry" / "v2" / "repositories"
    folder = registry / f"{AWS_ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com" / repository
    link = folder / "_manifests" / "revisions" / "sha256" / ("0" * 64) / "link"
    link.parent.mkdir(parents=True)
    link.write_text("sha256:" + "0" * 64)
    return link


def test_a_repository_with_images_is_not_deleted(tmp_path: Path, provider: Provider) -> None:
    identity = provider.create_resource(REPOSITORY, "images", name="everstep/trainer")
    image = put_image(tmp_path, "everstep/trainer")

    with pytest.raises(CloudError, match=r"RepositoryNotEmptyException.*set forceDelete"):
        provider.delete_resource(REPOSITORY, identity)
    assert image.exists()

    image.unlink()
    provider.delete_resource(REPOSITORY, identity)


def test_a_forced_deletion_of_a_repository_deletes_its_images_only(
    tmp_path: Path, provider: Provider
) -> None:
    identity = provider.create_resource(REPOSITORY, "images", name="everstep", forceDelete=True)
    image, nested_image = put_image(tmp_path, "everstep"), put_image(tmp_path, "everstep/trainer")

    provider.delete_resource(REPOSITORY, identity)

    assert not image.exists(), "a new repository of this name would have them"
    assert nested_image.exists()
