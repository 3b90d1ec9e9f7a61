"""A fence: one transaction that is conditional on the generation and the registrations, on an etcd in memory."""

import base64
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from everstep.elastic.membership.etcd_client import Etcd, KeyValue
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.generations import Generation, Member
from everstep.elastic.membership.key_values import generation_value, read_generation
from everstep.elastic.membership.run_keys import RunKeys

GENERATION = "/everstep/run/generation"


def decode(text: str) -> str:
    return base64.b64decode(text).decode()


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class TransactionalEtcd(Etcd):
    """An etcd in memory that executes transactions in the format of the gateway."""

    def __init__(self) -> None:
        super().__init__(EtcdOptions(endpoints=("127.0.0.1:1",)))
        self.revision = 1
        self.entries: dict[str, KeyValue] = {}
        self.revoked_leases: list[int] = []

    def put(self, key: str, value: str, lease: int = 0, **_: Any) -> int:
        self.revision += 1
        created = self.entries[key].create_revision if key in self.entries else self.revision
        self.entries[key] = KeyValue(key, value, created, self.revision, lease)
        return self.revision

    def revoke(self, lease: int, **_: Any) -> None:
        self.revoked_leases.append(lease)

    def call(self, path: str, body: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        assert path == "kv/txn"
        if not all(self._is_met(condition) for condition in body["compare"]):
            return {"succeeded": False}
        return {
            "succeeded": True,
            "responses": [self._execute(operation) for operation in body["success"]],
        }

    def _is_met(self, condition: Mapping[str, str]) -> bool:
        entry = self.entries.get(decode(condition["key"]))
        if condition["target"] == "CREATE":
            return (entry.create_revision if entry else 0) == int(condition["create_revision"])
        return (entry.mod_revision if entry else 0) == int(condition["mod_revision"])

    def _execute(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if put := request.get("request_put"):
            self.put(decode(put["key"]), decode(put["value"]), int(put.get("lease", 0)))
            return {"response_put": {}}
        deleted_entry = self.entries.pop(decode(request["request_delete_range"]["key"]), None)
        previous = (
            [
                {
                    "key": encode(deleted_entry.key),
                    "value": encode(deleted_entry.value),
                    "lease": str(deleted_entry.lease),
                }
            ]
            if deleted_entry
            else []
        )
        return {"response_delete_range": {"prev_kvs": previous}}


class Run:
    """Three members that train in generation 1."""

    def __init__(self) -> None:
        self.etcd, self.leases = TransactionalEtcd(), itertools.count(1)
        self.keys = RunKeys(self.etcd, "run")
        self.generation = Generation(1, ("a", "b", "c"), "127.0.0.1:1")
        self.members = {name: self.register(name) for name in "abc"}
        self.etcd.put(GENERATION, generation_value(self.generation))

    def register(self, name: str) -> Member:
        member = Member(name, f"node-{name}", "127.0.0.1")
        self.keys.put_member(member, next(self.leases))
        return replace(
            member, order=self.etcd.entries[f"/everstep/run/members/{name}"].create_revision
        )

    @property
    def revision(self) -> int:
        return self.etcd.entries[GENERATION].mod_revision

    def current_generation(self) -> Generation:
        return read_generation(self.etcd.entries[GENERATION])

    def fence(self, fencer: str, *suspects: str, revision: int | None = None) -> bool:
        return self.keys.fence(
            self.generation,
            self.revision if revision is None else revision,
            self.members[fencer],
            [self.members[name] for name in suspects],
        )

    def registered_names(self) -> set[str]:
        prefix = "/everstep/run/members/"
        return {key.removeprefix(prefix) for key in self.etcd.entries if key.startswith(prefix)}


def test_a_fence_removes_the_key_revokes_the_lease_and_is_recorded_in_the_generation() -> None:
    run = Run()

    assert run.fence("a", "b", "c")

    assert run.registered_names() == {"a"}
    assert run.etcd.revoked_leases == [2, 3], "under its lease a member could put its key again"
    assert run.current_generation() == replace(run.generation, fenced=("b", "c"))


def test_a_fence_fails_when_another_generation_is_current() -> None:
    run = Run()
    observed_revision = run.revision
    run.etcd.put(GENERATION, generation_value(Generation(2, ("a", "b"), "127.0.0.1:1")))

    assert not run.fence("a", "b", revision=observed_revision), (
        "b may have thawed, and trains in it"
    )
    assert run.registered_names() == {"a", "b", "c"}


def test_if_two_members_suspect_each_other_only_one_fences() -> None:
    run = Run()
    observed_revision = run.revision

    assert run.fence("a", "b")
    assert not run.fence("b", "a", revision=observed_revision)
    assert not run.fence("b", "a"), "it has no key"
    assert run.registered_names() == {"a", "c"}


def test_a_fence_fails_when_the_suspect_has_registered_again() -> None:
    run = Run()
    del run.etcd.entries["/everstep/run/members/b"]
    run.register("b")

    assert not run.fence("a", "b")
    assert run.registered_names() == {"a", "b", "c"}
