"""Display of the engine's progress, from its event log.

The engine appends one JSON object per line while it works. Only the few kinds that users want to see are read;
others are skipped, so that a newer engine does not break the display.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from everstep.cli.console import messages
from everstep.progress import Step

CHANGES = {
    "create": "created",
    "update": "updated",
    "delete": "deleted",
    "create-replacement": "replaced",
    "delete-replaced": "old one deleted",
    "import": "imported",
}
"""Operations that are shown, and their past participles.

A replacement also has the operation `replace`, which only groups the other two: it would be counted twice.
"""

LONG_SECONDS = 15
"""Seconds after which a running resource is named if there is no terminal."""

_NUMBER = re.compile(r"\d+")
_COLOR_TAG = re.compile(r"<\{%.*?%\}>")


@dataclass(frozen=True)
class ResourceCounts:
    """Numbers of changed resources, by operation, and of unchanged resources."""

    changed: Mapping[str, int] = field(default_factory=dict)
    same: int = 0

    def describe(self) -> str:
        """Return the counts as text."""
        parts = [f"{count} {verb}" for verb, count in self.changed.items()]
        if self.same:
            parts.append(f"{self.same} unchanged")
        return ", ".join(parts) or "nothing to do"


@dataclass(frozen=True)
class EngineResource:
    """One resource in the log."""

    urn: str
    operation: str

    @property
    def name(self) -> str:
        """Name in the program."""
        return self.urn.rsplit("::", 1)[-1]

    @property
    def kind(self) -> str:
        """Last part of its type: `StatefulSet`, not `kubernetes:apps/v1:StatefulSet`."""
        parts = self.urn.split("::")
        return parts[-2].split("$")[-1].split(":")[-1] if len(parts) > 1 else ""

    @property
    def is_group(self) -> bool:
        """True for a component, or a resource of Pulumi's own, such as the stack or a provider."""
        kind = self.urn.split("::")[-2].split("$")[-1] if "::" in self.urn else ""
        return kind.startswith(("everstep:", "pulumi:"))


class EventLog:
    """Display of an event log: a line for each finished resource, a note for the running resources."""

    def __init__(self, path: Path, step: Step) -> None:
        self._path = path
        self._step = step
        self._offset = 0
        self._running: dict[str, tuple[EngineResource, float]] = {}
        self._completed: Counter[str] = Counter()
        self._same = 0
        self._messages: dict[str, str] = {}
        self._previous_note = ""
        self.errors: list[str] = []

    def counts(self) -> ResourceCounts:
        """Return the counts so far."""
        return ResourceCounts(dict(self._completed), self._same)

    def advance(self) -> None:
        """Show the events appended since the last call, except for an incomplete last line."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            self._handle(json.loads(line))
        self._note()

    def _handle(self, event: Mapping[str, Any]) -> None:
        if start := event.get("resourcePreEvent"):
            self._begin(_resource(start))
        elif outputs := event.get("resOutputsEvent"):
            self._end(_resource(outputs))
        elif failure := event.get("resOpFailedEvent"):
            self._fail(_resource(failure))
        elif diagnostic := event.get("diagnosticEvent"):
            self._diagnose(diagnostic)

    def _begin(self, resource: EngineResource) -> None:
        if resource.operation in CHANGES and not resource.is_group:
            self._running[resource.urn] = (resource, time.monotonic())

    def _end(self, resource: EngineResource) -> None:
        if resource.operation == "same" and not resource.is_group:
            self._same += 1
        running = self._running.pop(resource.urn, None)
        if running is None:
            return
        verb = CHANGES[running[0].operation]
        self._completed[verb] += 1
        self._print("✓", "green", running[0], verb, running[1])

    def _fail(self, resource: EngineResource) -> None:
        running = self._running.pop(resource.urn, (resource, time.monotonic()))
        self._print("✗", "red", running[0], "failed", running[1])

    def _diagnose(self, diagnostic: Mapping[str, Any]) -> None:
        message = _COLOR_TAG.sub("", str(diagnostic.get("message", ""))).strip()
        severity, urn = str(diagnostic.get("severity")), str(diagnostic.get("urn", ""))
        name = urn.rsplit("::", 1)[-1]
        if severity == "error" and message:
            self.errors.append(f"{name}: {message}" if name else message)
        elif severity.startswith("info") and urn in self._running:
            self._messages[urn] = " ".join(message.split())  # the end of a log has several lines
        elif severity == "warning" and message:
            messages.print(Text.assemble(("   warning: ", "yellow"), message))

    def _print(
        self, mark: str, color: str, resource: EngineResource, verb: str, started_at: float
    ) -> None:
        seconds = time.monotonic() - started_at
        messages.print(
            Text.assemble(
                (f"   {mark} ", color),
                f"{verb} ",
                (f"{resource.kind} ", "bright_black"),
                resource.name,
                (f"  {seconds:.1f} s" if seconds >= 1 else "", "bright_black"),
            )
        )

    def _note(self) -> None:
        """Name the running resources and what they wait for; without a terminal only slow ones."""
        now = time.monotonic()
        min_seconds = 0 if messages.is_terminal else LONG_SECONDS
        note = ", ".join(
            f"{resource.name} ({message})"
            if (message := self._messages.get(urn))
            else resource.name
            for urn, (resource, started_at) in self._running.items()
            if now - started_at >= min_seconds
        )
        # Without a terminal, a note that differs only in numbers, such as elapsed seconds, is not new.
        content = note if messages.is_terminal else _NUMBER.sub("", note)
        if content != self._previous_note:
            self._previous_note = content
            if note:
                self._step.note(note)


def _resource(event: Mapping[str, Any]) -> EngineResource:
    metadata = event.get("metadata") or {}
    return EngineResource(str(metadata.get("urn", "")), str(metadata.get("op", "")))
