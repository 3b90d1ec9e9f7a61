"""The credentials of etcd: created once, complete, and issued together."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from etcd.credentials import (
    AGENT_SECRET,
    MEMBERS_SECRET,
    PASSWORDS,
    ClusterSecrets,
    IssuedSecret,
    contents,
    ensure,
)
from tests.http_servers import serving
from tests.processes import free_port

NAMES = ["DNS:*.etcd.jobs.svc", "IP:127.0.0.1"]


@dataclass
class Store:
    """A store of Secrets in memory that fails after a number of writes."""

    writes_left: int = 2
    secrets: dict[str, tuple[str, Mapping[str, str]]] = field(default_factory=dict)

    def read(self, name: str) -> IssuedSecret | None:
        if name not in self.secrets:
            return None
        issuance_id, content = self.secrets[name]
        passwords = {file: content[file] for file in PASSWORDS if file in content}
        return IssuedSecret(issuance_id=issuance_id, passwords=passwords)

    def were_issued_together(self) -> bool:
        return self.secrets[MEMBERS_SECRET][0] == self.secrets[AGENT_SECRET][0]

    def put(self, name: str, issuance_id: str, content: Mapping[str, str]) -> None:
        if not self.writes_left:
            raise ConnectionError
        self.writes_left -= 1
        self.secrets[name] = (issuance_id, content)


def test_existing_credentials_stay() -> None:
    store = Store()
    assert ensure(store, NAMES)
    first_secrets = dict(store.secrets)

    assert not ensure(store, NAMES)

    assert store.secrets == first_secrets, "a second run would cut off the members and the workers"


@pytest.mark.parametrize("deleted_name", [MEMBERS_SECRET, AGENT_SECRET])
def test_a_deleted_secret_replaces_all_certificates(deleted_name: str) -> None:
    store = Store(writes_left=4)
    ensure(store, NAMES)
    first_secrets = dict(store.secrets)
    del store.secrets[deleted_name]

    assert ensure(store, NAMES)

    assert store.were_issued_together()
    for name, (_, first_files) in first_secrets.items():
        files = store.secrets[name][1]
        assert not [
            file for file in files if file not in PASSWORDS and files[file] == first_files[file]
        ]


@pytest.mark.parametrize(
    ("deleted_name", "kept_names"),
    [(AGENT_SECRET, PASSWORDS), (MEMBERS_SECRET, ("agent-password",))],
)
def test_passwords_that_a_secret_still_has_are_kept(
    deleted_name: str, kept_names: tuple[str, ...]
) -> None:
    """The data of etcd on a disk contains the passwords: with new ones, no member would become ready."""
    store = Store(writes_left=4)
    ensure(store, NAMES)
    first_files = store.secrets[MEMBERS_SECRET][1]
    del store.secrets[deleted_name]

    ensure(store, NAMES)

    members, agent = (store.secrets[name][1] for name in (MEMBERS_SECRET, AGENT_SECRET))
    assert tuple(file for file in PASSWORDS if members[file] == first_files[file]) == kept_names
    assert agent["agent-password"] == members["agent-password"]
    assert all(members[file] for file in PASSWORDS)


def test_two_concurrent_runs_leave_credentials_that_were_issued_together() -> None:
    class RacingStore(Store):
        """A store in which another run writes both Secrets between the first two writes."""

        def put(self, name: str, issuance_id: str, content: Mapping[str, str]) -> None:
            super().put(name, issuance_id, content)
            if self.writes_left == 5:
                self.secrets |= {MEMBERS_SECRET: ("other", {}), AGENT_SECRET: ("other", {})}

    store = RacingStore(writes_left=6)

    with pytest.raises(SystemExit, match="run the Job again"):
        ensure(store, NAMES)
    ensure(store, NAMES)

    assert store.were_issued_together()


@pytest.mark.parametrize("replaced", [False, True], ids=["new credentials", "a replacement"])
def test_an_interrupted_issuance_is_completed_by_the_next_run(replaced: bool) -> None:
    store = Store()
    if replaced:
        ensure(store, NAMES)
        del store.secrets[AGENT_SECRET]
    store.writes_left = 1
    with pytest.raises(ConnectionError):
        ensure(store, NAMES)
    store.writes_left = 2

    assert ensure(store, NAMES)

    members, agent = (store.secrets[name] for name in (MEMBERS_SECRET, AGENT_SECRET))
    assert members[0] == agent[0]
    for file in ("ca.crt", "agent-password"):
        assert members[1][file] == agent[1][file], "members would refuse the workers"


def certificate(files: Mapping[str, str], name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files[name].encode())


def test_workers_get_neither_a_servers_key_nor_the_root_password() -> None:
    secrets = contents(NAMES)

    assert set(secrets[AGENT_SECRET]) == {"ca.crt", "agent.crt", "agent.key", "agent-password"}
    purposes = certificate(secrets[AGENT_SECRET], "agent.crt").extensions.get_extension_for_class(
        x509.ExtendedKeyUsage
    )
    assert list(purposes.value) == [ExtendedKeyUsageOID.CLIENT_AUTH], "it could pose as a server"
    assert not [name for files in secrets.values() for name in files if name.endswith("ca.key")]


def test_certificates_of_members_and_clients_have_different_authorities() -> None:
    secrets = contents(NAMES)
    members = secrets[MEMBERS_SECRET]
    issuers = {name: certificate(members, name).issuer for name in ("server.crt", "peer.crt")}

    assert issuers["server.crt"] == certificate(members, "ca.crt").subject
    assert issuers["peer.crt"] == certificate(members, "peer-ca.crt").subject
    assert issuers["server.crt"] != issuers["peer.crt"]


def test_no_certificate_has_a_common_name() -> None:
    """The JSON gateway of etcd refuses clients with one."""
    subjects = {
        name: certificate(files, name).subject
        for files in contents(NAMES).values()
        for name in files
        if name.endswith(".crt")
    }

    assert {"agent.crt", "server.crt", "peer.crt"} <= subjects.keys()
    for name, subject in subjects.items():
        assert not subject.get_attributes_for_oid(NameOID.COMMON_NAME), name


@dataclass
class Api:
    """The state of a stand-in for the Kubernetes API.

    Attributes:
        refusal: status and message of every response; None to serve the requests.
    """

    url: str = ""
    secrets: dict[str, Any] = field(default_factory=dict)
    refusal: tuple[int, str] | None = None


@pytest.fixture
def api() -> Iterator[Api]:
    state = Api()
    prefix = "/api/v1/namespaces/jobs/secrets"

    class Handler(BaseHTTPRequestHandler):
        def respond(self, status: int, body: Mapping[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def handle_request(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            name = self.path.removeprefix(prefix).strip("/") or body["metadata"]["name"]
            if state.refusal:
                self.respond(state.refusal[0], {"message": state.refusal[1]})
            elif self.headers["Authorization"] != "Bearer t":
                self.respond(401, {"message": "Unauthorized"})
            elif self.command != "POST" and name not in state.secrets:
                self.respond(404, {"message": "not found"})
            else:
                if self.command != "GET":
                    strings = body.pop("stringData")  # the API server returns them in base64
                    data = {file: base64.b64encode(strings[file].encode()) for file in strings}
                    body["data"] = {file: content.decode() for file, content in data.items()}
                    state.secrets[name] = body
                self.respond(200, state.secrets[name])

        do_GET = do_PUT = do_POST = handle_request  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as port:
        state.url = f"http://127.0.0.1:{port}"
        yield state


def cluster(api: Api) -> ClusterSecrets:
    return ClusterSecrets(server=api.url, namespace="jobs", token="t", context=None)


def test_secrets_are_created_and_replaced_in_the_cluster(api: Api) -> None:
    assert ensure(cluster(api), NAMES)
    first_secrets = dict(api.secrets)
    assert not ensure(cluster(api), NAMES)
    assert api.secrets == first_secrets
    del api.secrets[AGENT_SECRET]

    assert ensure(cluster(api), NAMES)

    assert set(api.secrets) == {MEMBERS_SECRET, AGENT_SECRET}
    first_files, files = first_secrets[MEMBERS_SECRET]["data"], api.secrets[MEMBERS_SECRET]["data"]
    assert {file for file in files if files[file] == first_files[file]} == set(PASSWORDS)


def test_an_api_server_that_does_not_respond_is_reported_with_a_fix() -> None:
    secrets = ClusterSecrets(
        server=f"http://127.0.0.1:{free_port()}", namespace="jobs", token="t", context=None
    )

    with pytest.raises(SystemExit, match=r"does not respond: .*; check the network policies"):
        secrets.put(AGENT_SECRET, "1", {"agent-password": "swordfish"})


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        ((401, "Unauthorized"), "Unauthorized; check the permissions of the service account"),
        ((403, "forbidden"), "forbidden; check the permissions of the service account"),
        ((409, "already exists"), "already exists"),
        ((500, "etcdserver: timed out"), "etcdserver: timed out"),
    ],
)
def test_a_refusal_is_reported_without_the_content(
    refusal: tuple[int, str], text: str, api: Api
) -> None:
    """Only after a 401 or 403 does the message name the permissions as the cause."""
    api.refusal = refusal

    with pytest.raises(SystemExit) as error:
        cluster(api).put(AGENT_SECRET, "1", {"agent-password": "swordfish"})

    assert error.value.code == f"PUT of the Secret/etcd-agent: {text}"


def test_a_name_that_openssl_refuses_is_reported_with_its_reason() -> None:
    with pytest.raises(
        SystemExit, match=r"openssl cannot create server\.crt: (.|\n)*subjectAltName"
    ):
        contents(["NAME:etcd.jobs.svc"])
