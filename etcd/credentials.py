"""Credentials of etcd: `python3 -m etcd.credentials` creates them if they are missing.

It runs in the cluster, so that no key leaves it, and before etcd starts. There are two Secrets, since a
node can read the Secrets of its pods: `etcd-members` for the members, with the passwords of all users,
and `etcd-agent` for the workers. Each has a label with the ID of the run that issued it. If one is missing, or
if the IDs differ because an earlier run was interrupted, both are replaced: a rotation is the deletion of a
Secret and another run. The passwords stay the same then, because the data of etcd on a disk contains them.
"""

import argparse
import base64
import json
import os
import secrets
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from etcd.certificates import Certificate, issue

MEMBERS_SECRET, AGENT_SECRET = "etcd-members", "etcd-agent"
ISSUANCE_LABEL = "everstep.dev/issue"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REQUEST_SECONDS = 30.0
PASSWORDS = ("root-password", "agent-password")


@dataclass(frozen=True, kw_only=True)
class IssuedSecret:
    """A Secret as it was issued.

    Attributes:
        issuance_id: ID of the run that issued it; empty without a label.
        passwords: its passwords, by the name of the file.
    """

    issuance_id: str
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)


class Secrets(Protocol):
    """The Secrets of a namespace."""

    def read(self, name: str) -> IssuedSecret | None:
        """Return a Secret; None if there is no such Secret."""

    def put(self, name: str, issuance_id: str, content: Mapping[str, str]) -> None:
        """Create or replace a Secret, with the ID of the run that issues it."""


def ensure(store: Secrets, names: Sequence[str]) -> bool:
    """Create the credentials unless both Secrets were issued together; return True if they were created.

    Passwords that a Secret has are kept: etcd accepts no others once its data contains the users. The members'
    Secret has precedence, because it is written first and has all of them.

    Args:
        store: Secrets of the namespace.
        names: names of the members and of their services, see `Certificate`.

    Raises:
        SystemExit: another run created credentials at the same time, as after the loss of a node; run it again.
    """
    members, agent = store.read(MEMBERS_SECRET), store.read(AGENT_SECRET)
    if members and agent and members.issuance_id and members.issuance_id == agent.issuance_id:
        return False
    issuance_id = secrets.token_hex(8)
    existing = {**(agent.passwords if agent else {}), **(members.passwords if members else {})}
    for name, content in contents(names, existing).items():
        store.put(name, issuance_id, content)
    issued = (store.read(MEMBERS_SECRET), store.read(AGENT_SECRET))
    if [secret.issuance_id if secret else None for secret in issued] != [issuance_id, issuance_id]:
        raise SystemExit(
            "another run has replaced the credentials at the same time; run the Job again"
        )
    return True


def contents(
    names: Sequence[str], existing_passwords: Mapping[str, str] | None = None
) -> dict[str, dict[str, str]]:
    """Return new credentials, with the existing passwords: name of a Secret -> name of a file -> content."""
    client = issue("ca", [Certificate(name="server", names=names), Certificate(name="agent")])
    # A member compares the names in a peer's certificate with the address of the connection, which needs
    # reverse DNS. A certificate without names needs none; its CA issues certificates to members only.
    members = [Certificate(name="peer", names=names), Certificate(name="peer-client")]
    peer = issue("peer-ca", members)
    existing = existing_passwords or {}
    passwords = {name: existing.get(name) or secrets.token_hex(32) for name in PASSWORDS}
    agent_files = {"ca.crt", "agent.crt", "agent.key", "agent-password"}
    all_files = {**client, **peer, **passwords}
    return {
        MEMBERS_SECRET: {
            name: content
            for name, content in all_files.items()
            if name not in ("agent.crt", "agent.key")
        },
        AGENT_SECRET: {name: all_files[name] for name in sorted(agent_files)},
    }


@dataclass(frozen=True, kw_only=True)
class ClusterSecrets:
    """The Secrets of a namespace, over Kubernetes' API.

    Attributes:
        server: URL of the API.
        namespace: the namespace.
        token: token of the service account.
        context: TLS context with the API server's CA.
    """

    server: str
    namespace: str
    token: str
    context: ssl.SSLContext | None

    def read(self, name: str) -> IssuedSecret | None:
        """Return a Secret; None if there is no such Secret."""
        secret = self._request("GET", f"/{name}")
        if secret is None:
            return None
        labels, data = secret["metadata"].get("labels") or {}, secret.get("data") or {}
        return IssuedSecret(
            issuance_id=str(labels.get(ISSUANCE_LABEL, "")),
            passwords={
                file: base64.b64decode(data[file]).decode() for file in PASSWORDS if file in data
            },
        )

    def put(self, name: str, issuance_id: str, content: Mapping[str, str]) -> None:
        """Create or replace a Secret, with the ID of the run that issues it."""
        labels = {"app.kubernetes.io/name": "etcd", "app.kubernetes.io/part-of": "everstep"}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {**labels, ISSUANCE_LABEL: issuance_id}},
            "stringData": dict(content),
        }
        if self._request("PUT", f"/{name}", secret) is None:
            self._request("POST", "", secret)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Return the response; None if there is no such Secret."""
        request = urllib.request.Request(  # noqa: S310 - the API's own URL
            f"{self.server}/api/v1/namespaces/{self.namespace}/secrets{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(  # noqa: S310 - see above
                request, timeout=REQUEST_SECONDS, context=self.context
            ) as response:
                return dict(json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == HTTPStatus.NOT_FOUND and path:
                    return None
                raise SystemExit(f"{method} of the Secret{path}: {_refusal(error)}") from error
        except OSError as error:
            raise SystemExit(
                f"{method} of the Secret{path}: the API server does not respond: {error}; "
                "check the network policies of the namespace"
            ) from error


def _refusal(error: urllib.error.HTTPError) -> str:
    """Return the reason for a refusal: only the message of the response, which contains no secret."""
    try:
        message = str(json.load(error)["message"])
    except (ValueError, KeyError):
        message = str(error)
    if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"{message}; check the permissions of the service account"
    return message


def in_cluster(host: str, port: str) -> ClusterSecrets:
    """Return the Secrets of the pod's namespace, with the pod's service account."""
    return ClusterSecrets(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=(ACCOUNT / "namespace").read_text().strip(),
        token=(ACCOUNT / "token").read_text().strip(),
        context=ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt")),
    )


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Create the credentials if they are missing, and report which was the case."""
    parser = argparse.ArgumentParser(prog="python3 -m etcd.credentials", description=__doc__)
    parser.add_argument("names", nargs="+", help="names of the members and services, as DNS:NAME")
    names = parser.parse_args(arguments).names
    host, port = (environment[f"KUBERNETES_SERVICE_{key}"] for key in ("HOST", "PORT"))
    created = ensure(in_cluster(host, port), names)
    print("created new credentials" if created else "the credentials exist", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
