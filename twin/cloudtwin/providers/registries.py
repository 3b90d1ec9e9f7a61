"""Private registries of an account and the credentials of its nodes.

The twin's registry reads `<twin>/registry/rules/<cloud>.json`. The kubelet's credential provider on every machine
returns `<twin>/cloud/registry-credentials.json`, which has only registries from which nodes may pull.
"""

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cloudtwin import files


@dataclass(frozen=True, kw_only=True)
class PrivateRegistry:
    """A registry of an account.

    Attributes:
        id: id of the AWS account or name of the Azure registry, for messages.
        user: user name that clients log in with.
        nodes_may_pull: True if the nodes of the account's cluster may pull.
        repositories: its repositories, and whether their tags are immutable; None: a push creates a repository.
    """

    id: str
    user: str
    nodes_may_pull: bool
    repositories: Mapping[str, bool] | None


def write(
    state: Path,
    cloud: str,
    registries: Mapping[str, PrivateRegistry],
    *,
    caller_may_push: bool = True,
) -> None:
    """Write one cloud's registries by host, if they changed. The caller locks the account.

    Args:
        state: folder of the twin.
        cloud: aws or azure-native.
        registries: registries by host.
        caller_may_push: True if the identity that uses the account may push.
    """
    path = state / "registry" / "rules" / f"{cloud}.json"
    old_rules = (files.read_json(path) or {}).get("registries", {})
    rules = {
        host: {
            "id": registry.id,
            "push": {registry.user: _password(old_rules.get(host, {}).get("push", {}))}
            if caller_may_push
            else {},
            "pull": {f"{registry.user}-nodes": _password(old_rules.get(host, {}).get("pull", {}))}
            if registry.nodes_may_pull
            else {},
            "repositories": registry.repositories,
        }
        for host, registry in registries.items()
    }
    if rules != old_rules:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_json(path, {"registries": rules}, files.PRIVATE)
    # Even if the rules are unchanged: a process may have been killed between the two writes.
    _write_credentials(state)


def has_images(state: Path, address: str) -> bool:
    """Return True if a repository of the twin's registry, host and path, contains images."""
    return any(_folder(state, address).glob("_manifests/revisions/*/*/link"))


def delete_images(state: Path, address: str) -> None:
    """Delete the images of a repository of the twin's registry; repositories below it keep theirs."""
    for part in ("_manifests", "_layers", "_uploads"):
        shutil.rmtree(_folder(state, address) / part, ignore_errors=True)


def _folder(state: Path, address: str) -> Path:
    repositories = state / "registry" / "images" / "docker" / "registry" / "v2" / "repositories"
    return repositories / address.replace(":", "_")


def _write_credentials(state: Path) -> None:
    """Write the credentials that nodes may use, for the registries of both clouds, if they changed."""
    path = state / "cloud" / "registry-credentials.json"
    logins = {
        host: {"username": user, "password": password}
        for rules in sorted((state / "registry" / "rules").glob("*.json"))
        for host, registry in (files.read_json(rules) or {}).get("registries", {}).items()
        for user, password in registry["pull"].items()
    }
    response = {
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "cacheDuration": "0s",
        "auth": logins,
    }
    old_response = files.read_json(path)
    if response != old_response and (logins or old_response):
        files.write_json(path, response, files.PRIVATE)


def _password(passwords: Mapping[str, str]) -> str:
    return next(iter(passwords.values()), "") or secrets.token_urlsafe(16)
