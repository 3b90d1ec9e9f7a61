"""The keys of a run, with an etcd in memory."""

import json
from collections.abc import Callable
from typing import Any

from everstep.elastic.membership.etcd_client import Etcd, KeyValue
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.generations import Generation
from everstep.elastic.membership.run_keys import RunKeys
from everstep.elastic.recovery.state_machine import StepProgress

COMMITTED_KEY = "/everstep/run/committed"


class MemoryEtcd(Etcd):
    """One member in memory, without leases.

    Attributes:
        before_put: called once, before the next conditional put.
    """

    def __init__(self) -> None:
        super().__init__(EtcdOptions(endpoints=("127.0.0.1:1",)))
        self.revision = 1
        self.entries: dict[str, KeyValue] = {}
        self.before_put: Callable[[], object] | None = None

    def get(self, prefix: str, **_: Any) -> tuple[list[KeyValue], int]:
        entries = [entry for key, entry in self.entries.items() if key.startswith(prefix)]
        return entries, self.revision

    def put_if_unchanged(self, key: str, value: str, mod_revision: int) -> bool:
        return self.put_while_unchanged(key, value, witness=key, mod_revision=mod_revision)

    def put_while_unchanged(
        self,
        key: str,
        value: str,
        *,
        witness: str,
        mod_revision: int,
        own_mod_revision: int | None = None,
        **_: Any,
    ) -> bool:
        if self.before_put:
            action, self.before_put = self.before_put, None
            action()
        own_revision = self._modified(key)
        if self._modified(witness) != mod_revision or own_mod_revision not in (None, own_revision):
            return False
        self.revision += 1
        self.entries[key] = KeyValue(key, value, self.revision, self.revision, 0)
        return True

    def _modified(self, key: str) -> int:
        return self.entries[key].mod_revision if key in self.entries else 0

    def committed_step(self) -> int:
        return int(json.loads(self.entries[COMMITTED_KEY].value)["step"])


def run_of_generation_1() -> tuple[MemoryEtcd, RunKeys]:
    etcd = MemoryEtcd()
    keys = RunKeys(etcd, "run")
    assert keys.propose(Generation(1, ("a",), "127.0.0.1:1"), 0)
    return etcd, keys


def test_a_slow_commit_of_an_earlier_step_does_not_replace_a_later_one() -> None:
    etcd, keys = run_of_generation_1()
    assert keys.commit(1, StepProgress(1, 108))

    assert not keys.commit(1, StepProgress(1, 100))

    assert etcd.committed_step() == 108, "a restart from 100 would repeat committed steps"


def test_a_commit_that_was_overtaken_between_its_two_requests_is_refused() -> None:
    etcd, keys = run_of_generation_1()
    etcd.before_put = lambda: keys.commit(1, StepProgress(1, 108))

    assert not keys.commit(1, StepProgress(1, 100))

    assert etcd.committed_step() == 108, "the transaction must compare the committed key, too"


def test_a_commit_of_a_later_generation_outranks_more_steps_of_an_earlier_one() -> None:
    etcd, keys = run_of_generation_1()
    assert keys.commit(1, StepProgress(1, 108))
    mod_revision = etcd.entries["/everstep/run/generation"].mod_revision
    assert keys.propose(Generation(2, ("a",), "127.0.0.1:1"), mod_revision)

    assert keys.commit(2, StepProgress(2, 104))
    assert etcd.committed_step() == 104


def test_the_same_commit_may_be_repeated_after_a_lost_response() -> None:
    etcd, keys = run_of_generation_1()

    assert keys.commit(1, StepProgress(1, 108))
    assert keys.commit(1, StepProgress(1, 108)), "its checkpoint must not count as refused"
    assert etcd.committed_step() == 108


def test_a_commit_whose_generation_ended_between_its_two_requests_is_refused() -> None:
    etcd, keys = run_of_generation_1()
    mod_revision = etcd.entries["/everstep/run/generation"].mod_revision
    etcd.before_put = lambda: keys.propose(Generation(2, ("b",), "127.0.0.1:1"), mod_revision)

    assert not keys.commit(1, StepProgress(1, 108))
    assert COMMITTED_KEY not in etcd.entries
