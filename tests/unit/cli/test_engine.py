"""The engine's event log, its locks and its environment."""

import json
import os
import socket
import subprocess

import pytest

from everstep.cli import engine as engines
from everstep.cli.engine_events import EventLog, Resource
from everstep.cli.locks import only_one
from everstep.cli.workspace import Workspace
from everstep.errors import EverstepError
from everstep.progress import Silent

URN = "urn:pulumi:local::everstep::everstep:platform:Etcd$kubernetes:apps/v1:StatefulSet::etcd"
OURS = "urn:pulumi:local::everstep::everstep:platform:Etcd::training-etcd"


@pytest.fixture
def here(tmp_path):
    return Workspace(tmp_path, "local", "test", tmp_path / "state")


def event(kind: str, urn: str = URN, op: str = "create") -> str:
    return json.dumps({kind: {"metadata": {"urn": urn, "op": op}}}) + "\n"


def test_a_resource_is_shown_by_kind_and_name():
    assert (Resource(URN, "create").kind, Resource(URN, "create").name) == ("StatefulSet", "etcd")


def test_finished_resources_are_counted_and_components_are_not(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        event("resourcePreEvent") + event("resourcePreEvent", OURS) + event("resOutputsEvent")
        + event("resOutputsEvent", OURS) + event("resOutputsEvent", URN + "2", "same")
    )  # fmt: skip
    log = EventLog(path, Silent())
    log.advance()

    assert log.tally().sentence() == "1 created, 1 unchanged"


def test_a_half_written_event_waits_for_its_end(tmp_path):
    path, whole = tmp_path / "log", event("resourcePreEvent") + event("resOutputsEvent")
    log = EventLog(path, Silent())
    for end in range(0, len(whole) + 1, 5):
        path.write_text(whole[:end])
        log.advance()
    path.write_text(whole)
    log.advance()

    assert log.tally().sentence() == "1 created"


def test_the_engines_errors_are_kept_whole_and_without_its_colour_codes(tmp_path):
    said = "<{%reset%}>pod etcd-0 cannot be pulled\n  Back-off pulling image<{%reset%}>"
    diagnostic = {"urn": URN, "severity": "error", "message": said}
    path = tmp_path / "log"
    path.write_text(json.dumps({"diagnosticEvent": diagnostic}) + "\n")
    log = EventLog(path, Silent())
    log.advance()

    assert log.errors == ["etcd: pod etcd-0 cannot be pulled\n  Back-off pulling image"]


def lock(here: Workspace, pid: int, host: str = "") -> None:
    folder = here.engine / "state" / ".pulumi" / "locks" / "organization" / "everstep" / "local"
    folder.mkdir(parents=True)
    content = {"pid": pid, "hostname": host or socket.gethostname()}
    (folder / "a1b2.json").write_text(json.dumps(content))


def test_a_lock_whose_holder_lives_is_respected(here):
    lock(here, os.getpid())

    (found,) = engines.locks(here)
    assert found.holder_lives


def test_a_lock_whose_holder_was_killed_is_known_to_be_dead(here):
    gone = subprocess.Popen(["true"])
    gone.wait()
    lock(here, gone.pid)

    (found,) = engines.locks(here)
    assert not found.holder_lives


def test_a_lock_taken_on_another_host_is_never_broken(here):
    lock(here, 1, host="elsewhere")

    assert engines.locks(here)[0].holder_lives


def test_the_engine_works_on_state_of_its_own_and_the_passphrase_is_in_no_variable(
    here, monkeypatch
):
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    settings = engines.settings(here, None)

    assert settings["PULUMI_BACKEND_URL"] == f"file://{here.engine}/state"
    assert "PULUMI_CONFIG_PASSPHRASE" not in settings
    assert (here.engine / "passphrase").read_text() not in settings.values()


def test_a_passphrase_of_the_users_own_stays_in_force(here, monkeypatch):
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")

    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in engines.settings(here, None)


def test_of_two_at_once_the_second_is_told_who_the_first_is(tmp_path):
    path = tmp_path / "up.lock"
    again = only_one(path, "`everstep up`", "Wait for it.")
    with only_one(path, "`everstep up`", "Wait for it."):
        with pytest.raises(EverstepError, match=f"process {os.getpid()} since") as caught:
            again.__enter__()
        assert caught.value.remedy == "Wait for it."
    with only_one(path, "`everstep up`", "Wait for it."):
        pass  # a lock that was let go can be had again


def test_images_that_no_node_can_get_are_read_from_what_the_kubelet_said():
    said = (
        'Deployment a got stuck: ErrImagePull: failed to pull and unpack image "example/b:1": no\n'
        'pod c: ImagePullBackOff: Back-off pulling image \\"example/b:1\\"\n'
        'pod d: Successfully pulled image "example/d:1"'
    )

    assert engines.images_not_pulled(said) == ["example/b:1"]
