"""Logins of registries, where `docker login`, `podman login` and `buildah login` store them."""

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everstep.errors import EverstepError

if TYPE_CHECKING:
    from cloudtwin.facade import Login

HELPER_SECONDS = 30
DOCKER_HUB = "https://index.docker.io/v1/"  # the key of docker.io in these files


def find_login(host: str, environment: Mapping[str, str] = os.environ) -> "Login | None":
    """Return the stored login of a registry, or None.

    Raises:
        EverstepError: a file of logins cannot be read.
    """
    for path in login_files(environment):
        stored = _read(path)
        login = _from_helper(stored, host, environment) or _from_file(stored, host)
        if login is not None:
            return login
    return None


def login_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files in which logins may be stored, in the order in which podman and docker read them."""
    home = Path(environment.get("HOME") or Path.home())
    runtime = environment.get("XDG_RUNTIME_DIR")
    docker = Path(environment.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    configured = environment.get("REGISTRY_AUTH_FILE")
    files = [Path(configured)] if configured else []
    files += [Path(runtime) / "containers" / "auth.json"] if runtime else []
    uid = os.getuid()
    return [*files, Path(f"/run/containers/{uid}/auth.json"),
            home / ".config" / "containers" / "auth.json", docker]  # fmt: skip


def _read(path: Path) -> Mapping[str, Any]:
    try:
        stored = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EverstepError(
            f"the login file {path} cannot be read: {error}",
            "Correct or remove it, then log in again: podman login REGISTRY",
        ) from None
    return stored if isinstance(stored, dict) else {}


def _from_file(stored: Mapping[str, Any], host: str) -> "Login | None":
    from cloudtwin.facade import Login

    entries = stored.get("auths") or {}
    for key in _keys(host):
        encoded = (entries.get(key) or {}).get("auth")
        if not encoded:
            continue
        try:
            user, _, password = base64.b64decode(encoded).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            continue
        return Login(user, password)
    return None


def _from_helper(
    stored: Mapping[str, Any], host: str, environment: Mapping[str, str]
) -> "Login | None":
    """Return the login that a credential helper has, such as docker-credential-ecr-login."""
    from cloudtwin.facade import Login

    helpers = stored.get("credHelpers") or {}
    for key in _keys(host):
        helper = helpers.get(key) or stored.get("credsStore")
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
            content = json.loads(result.stdout) if result.returncode == 0 else {}
        except (OSError, ValueError, subprocess.TimeoutExpired):
            continue
        if content.get("Username") and content.get("Secret"):
            return Login(content["Username"], content["Secret"])
    return None


def _keys(host: str) -> list[str]:
    return [DOCKER_HUB, host] if host == "docker.io" else [host, f"https://{host}"]
