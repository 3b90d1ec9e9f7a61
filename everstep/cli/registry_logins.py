"""Clients of registries, with the logins that `docker login`, `podman login` and `buildah login` store."""

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everstep.catalog.image_reference import DEFAULT_DOMAIN, DEFAULT_DOMAIN_LOGIN
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from cloudtwin.facade import Login, Registry

HELPER_SECONDS = 30
HUB_ENDPOINT = "https://registry-1.docker.io/v2"  # docker.io itself is a web site

ACR_USER = "00000000-0000-0000-0000-000000000000"
"""User name of a login to ACR by token. Source: Azure Container Registry, "Authenticate with a container registry"."""

IDENTITY_USER = "<token>"
"""User name under which docker gives a credential helper the token of a login to ACR."""


def registry_at(domain: str) -> "Registry":
    """Return a client of a registry, with the login that docker or podman stored for it.

    Raises:
        EverstepError: a file of logins cannot be read.
    """
    from cloudtwin.facade import Registry

    endpoint = HUB_ENDPOINT if domain == DEFAULT_DOMAIN else ""
    return Registry(domain, find_login(domain), endpoint)


def find_login(host: str, environment: Mapping[str, str] = os.environ) -> "Login | None":
    """Return the stored login of a registry, or None.

    Raises:
        EverstepError: a file of logins cannot be read.
    """
    for path in login_files(environment):
        content = _read(path)
        try:
            login = _from_helper(content, host, environment) or _from_file(content, host)
        except (AttributeError, TypeError):
            raise EverstepError(
                f"the login file {path} has no logins in the format of docker",
                "Correct or remove it, then log in again: podman login REGISTRY",
            ) from None
        if login is not None:
            return login
    return None


def login_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files in which logins may be stored, in the order in which podman and docker read them."""
    home = Path(environment.get("HOME") or Path.home())
    runtime_folder = environment.get("XDG_RUNTIME_DIR")
    docker = Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    configured_path = environment.get("REGISTRY_AUTH_FILE")
    files = [Path(configured_path)] if configured_path else []
    files += [Path(runtime_folder) / "containers" / "auth.json"] if runtime_folder else []
    uid = os.getuid()
    return [*files, Path(f"/run/containers/{uid}/auth.json"),
            home / ".config" / "containers" / "auth.json", docker]  # fmt: skip


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EverstepError(
            f"the login file {path} cannot be read: {error}",
            "Correct or remove it, then log in again: podman login REGISTRY",
        ) from None
    return content if isinstance(content, dict) else {}


def _from_file(content: Mapping[str, Any], host: str) -> "Login | None":
    from cloudtwin.facade import Login

    entries = content.get("auths") or {}
    for key in _keys(host):
        entry = entries.get(key) or {}
        credentials = entry.get("auth")
        if not credentials:
            continue
        try:
            user, _, password = base64.b64decode(credentials).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            continue
        return Login(user, password or entry.get("identitytoken") or "")
    return None


def _from_helper(
    content: Mapping[str, Any], host: str, environment: Mapping[str, str]
) -> "Login | None":
    """Return the login that a credential helper has, such as docker-credential-ecr-login."""
    from cloudtwin.facade import Login

    helpers = content.get("credHelpers") or {}
    for key in _keys(host):
        helper = helpers.get(key) or content.get("credsStore")
        if not helper:
            continue
        try:
            result = subprocess.run(
                [f"docker-credential-{helper}", "get"],
                input=key,
                capture_output=True,
                text=True,
                timeout=HELPER_SECONDS,
                check=False,
                env=dict(environment),
            )
            login = json.loads(result.stdout) if result.returncode == 0 else {}
        except (OSError, ValueError, subprocess.TimeoutExpired):
            continue
        if not isinstance(login, dict):
            continue
        if login.get("Username") and login.get("Secret"):
            user = ACR_USER if login["Username"] == IDENTITY_USER else login["Username"]
            return Login(user, login["Secret"])
    return None


def _keys(host: str) -> list[str]:
    return [DEFAULT_DOMAIN_LOGIN, host] if host == DEFAULT_DOMAIN else [host, f"https://{host}"]
