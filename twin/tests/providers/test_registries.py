"""Rules of the twin's registry, and the credentials of its nodes."""

from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.providers import registries
from cloudtwin.providers.registries import PrivateRegistry

REGISTRY = PrivateRegistry(id="a", user="u", nodes_may_pull=True, repositories=None)


def hosts(state: Path) -> set[str]:
    """Return the registries of which nodes have credentials."""
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
