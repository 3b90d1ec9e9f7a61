"""Logins are found where docker, podman and buildah store them."""

import base64
import json
from pathlib import Path

import pytest

from everstep.cli.registry_logins import ACR_USER, HUB_ENDPOINT, find_login, registry_at
from everstep.errors import EverstepError

HOST = "111122223333.dkr.ecr.us-east-1.amazonaws.com"


def encode_login(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_the_file_that_the_environment_names_takes_precedence_over_dockers(tmp_path: Path) -> None:
    write_json(
        tmp_path / ".docker" / "config.json",
        {"auths": {HOST: {"auth": encode_login("AWS", "old")}}},
    )
    login_file = tmp_path / "auth.json"
    environment = {"HOME": str(tmp_path), "REGISTRY_AUTH_FILE": str(login_file)}

    docker_login = find_login(HOST, environment)
    write_json(login_file, {"auths": {HOST: {"auth": encode_login("AWS", "new:with:colons")}}})
    login = find_login(HOST, environment)

    assert docker_login is not None
    assert docker_login.password == "old"
    assert login is not None
    assert (login.user, login.password) == ("AWS", "new:with:colons")
    assert "new" not in repr(login), "a password must not appear in messages"


def test_a_credential_helper_is_called_with_its_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-ecr-login"
    helper.write_text(
        '#!/bin/sh\nread host\necho "{\\"Username\\": \\"AWS\\", \\"Secret\\": \\"$host\\"}"\n'
    )
    helper.chmod(0o755)
    write_json(tmp_path / ".docker" / "config.json", {"credHelpers": {HOST: "ecr-login"}})
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    monkeypatch.setenv("PATH", environment["PATH"])

    login = find_login(HOST, environment)

    assert login is not None
    assert login.password == HOST
    assert find_login("ghcr.io", environment) is None


def test_the_output_of_a_helper_that_is_not_a_login_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-store"
    helper.write_text("#!/bin/sh\necho '[1]'\n")
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    write_json(tmp_path / ".docker" / "config.json", {"credsStore": "store"})

    login = find_login(HOST, {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert login is None


@pytest.mark.parametrize("with_helper", [False, True], ids=["file", "helper"])
def test_a_login_of_docker_to_acr_has_its_token_as_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_helper: bool
) -> None:
    host = "everstepprod.azurecr.io"
    entry = {"auth": encode_login(ACR_USER, ""), "identitytoken": "a-token"}
    helper = tmp_path / "docker-credential-store"
    helper.write_text(
        '#!/bin/sh\necho "{\\"Username\\": \\"<token>\\", \\"Secret\\": \\"a-token\\"}"\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    content = {"credsStore": "store"} if with_helper else {"auths": {host: entry}}
    write_json(tmp_path / ".docker" / "config.json", content)

    login = find_login(host, {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"})

    assert login is not None
    assert (login.user, login.password) == (ACR_USER, "a-token")


def test_docker_hub_has_its_own_key(tmp_path: Path) -> None:
    auths = {"https://index.docker.io/v1/": {"auth": encode_login("me", "token")}}
    write_json(tmp_path / ".docker" / "config.json", {"auths": auths})

    login = find_login("docker.io", {"HOME": str(tmp_path)})

    assert login is not None
    assert login.user == "me"


@pytest.mark.parametrize(
    "content",
    ["{", '{"auths": ["x"]}', '{"auths": {"HOST": 1}}', '{"auths": {"HOST": {"auth": 1}}}'],
)
def test_a_damaged_login_file_is_reported_with_its_path(tmp_path: Path, content: str) -> None:
    file = tmp_path / ".docker" / "config.json"
    file.parent.mkdir()
    file.write_text(content.replace("HOST", HOST))

    with pytest.raises(EverstepError, match=str(file)):
        find_login(HOST, {"HOME": str(tmp_path)})


def test_docker_hub_is_reached_at_the_address_of_its_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert registry_at("docker.io").endpoint == HUB_ENDPOINT
    assert registry_at("quay.io").endpoint == "https://quay.io/v2"
