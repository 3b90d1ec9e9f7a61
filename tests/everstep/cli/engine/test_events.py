"""The event log of the engine, read while it is written."""

import json
from pathlib import Path

import pytest

from everstep.cli.engine import events
from everstep.cli.engine.events import EngineResource, EventLog
from everstep.progress import Silent

URN = "urn:pulumi:local::everstep::everstep:platform:Etcd$kubernetes:apps/v1:StatefulSet::etcd"
COMPONENT_URN = "urn:pulumi:local::everstep::everstep:platform:Etcd::training-etcd"


class Notes(Silent):
    """A display that keeps the notes of its steps."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, detail: str) -> None:
        self.notes.append(detail)


def event(kind: str, urn: str = URN, op: str = "create") -> str:
    return json.dumps({kind: {"metadata": {"urn": urn, "op": op}}}) + "\n"


def test_a_resource_is_shown_by_kind_and_name() -> None:
    assert (EngineResource(URN, "create").kind, EngineResource(URN, "create").name) == (
        "StatefulSet",
        "etcd",
    )


def test_finished_resources_are_counted_and_components_are_not(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        event("resourcePreEvent") + event("resourcePreEvent", COMPONENT_URN) + event("resOutputsEvent")
        + event("resOutputsEvent", COMPONENT_URN) + event("resOutputsEvent", URN + "2", "same")
    )  # fmt: skip
    log = EventLog(path, Silent())
    log.advance()

    assert log.counts().describe() == "1 created, 1 unchanged"


@pytest.mark.parametrize(
    "operations",
    [
        ("create-replacement", "replace", "delete-replaced"),
        ("delete-replaced", "replace", "create-replacement"),
    ],
)
def test_a_replaced_resource_is_counted_once(tmp_path: Path, operations: tuple[str, ...]) -> None:
    path = tmp_path / "log"
    path.write_text(
        "".join(
            event(kind, op=operation)
            for operation in operations
            for kind in ("resourcePreEvent", "resOutputsEvent")
        )
    )
    log = EventLog(path, Silent())
    log.advance()

    assert log.counts().changed == {"replaced": 1, "old one deleted": 1}


def test_an_incomplete_event_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path, text = tmp_path / "log", event("resourcePreEvent") + event("resOutputsEvent")
    log = EventLog(path, Silent())
    for end in [*range(0, len(text), 5), len(text)]:
        path.write_text(text[:end])
        log.advance()

    assert log.counts().describe() == "1 created"


def test_engine_errors_are_kept_in_full_without_color_codes(tmp_path: Path) -> None:
    message = (
        "<{%reset%}>the image of pod etcd-0 cannot be pulled\n  Back-off pulling image<{%reset%}>"
    )
    diagnostic = {"urn": URN, "severity": "error", "message": message}
    path = tmp_path / "log"
    path.write_text(json.dumps({"diagnosticEvent": diagnostic}) + "\n")
    log = EventLog(path, Silent())
    log.advance()

    assert log.errors == [
        "etcd: the image of pod etcd-0 cannot be pulled\n  Back-off pulling image"
    ]


def test_a_failed_resource_is_shown_and_no_longer_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(events, "LONG_SECONDS", 0)
    path, notes = tmp_path / "log", Notes()
    path.write_text(event("resourcePreEvent") + event("resOpFailedEvent"))
    log = EventLog(path, notes)
    log.advance()

    assert capfd.readouterr().err == "   ✗ failed StatefulSet etcd\n"
    assert log.counts().changed == {}
    assert notes.notes == []


def test_a_warning_of_the_engine_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    diagnostic = {"urn": URN, "severity": "warning", "message": "<{%reset%}>a new version\n"}
    path.write_text(json.dumps({"diagnosticEvent": diagnostic}) + "\n")
    EventLog(path, Silent()).advance()

    assert capfd.readouterr().err == "   warning: a new version\n"


def test_a_message_of_several_lines_is_one_line_next_to_its_resource(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LONG_SECONDS", 0)
    message = "0 of 1 completions; pod prepare exited with 1 (Error: line 1\nerror: forbidden)"
    diagnostic = {"urn": URN, "severity": "info#err", "message": message}
    path, notes = tmp_path / "log", Notes()
    path.write_text(event("resourcePreEvent") + json.dumps({"diagnosticEvent": diagnostic}) + "\n")
    EventLog(path, notes).advance()

    (note,) = notes.notes
    assert note.startswith("etcd (0 of 1 completions")
    assert "\n" not in note
