"""Record every change of a run's generation, commit and outcome in etcd, in etcd's order.

It watches etcd through the JSON gateway, without the library's client. When a member sends nothing for two seconds, it
continues at another member, from the last revision.
"""

import base64
import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any

from tests.chaos.etcd_members import CLIENT_PORT, EtcdMembers, encode_key
from tests.chaos.network import Network

KEYS = ("generation", "committed", "ended")
SILENT_SECONDS = 2.0
PAUSE_SECONDS = 0.1


class Recorder:
    """A thread that writes `etcd.jsonl` until it is closed; each line has a key, its revision and its value.

    Args:
        network: network with etcd's machines.
        etcd: the members that it watches.
        run: ID of the run.
        path: path of the file.
    """

    def __init__(self, network: Network, etcd: EtcdMembers, run: str, path: Path) -> None:
        self._network, self._names, self._path = network, etcd.names, path
        self._prefix = f"/everstep/{run}/"
        self.revision = 0  # newest recorded revision
        self._generations: list[tuple[int, int]] = []  # revision and number
        self._restored_revision: int | None = None  # revision to which etcd was restored
        self._closed = threading.Event()
        path.touch()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop recording."""
        self._closed.set()
        self._thread.join()

    def record_restore(self, revision: int) -> None:
        """Record that etcd's members have ended and will restart with at least the changes up to a revision."""
        self._restored_revision = revision

    @property
    def generation(self) -> int:
        """Number of the generation that etcd has; 0 if it has none."""
        return self._generations[-1][1] if self._generations else 0

    def wait_for(self, revision: int, seconds: float) -> bool:
        """Return whether all changes up to a revision were recorded in time; others may follow."""
        deadline = time.monotonic() + seconds
        while self.revision < revision and time.monotonic() < deadline:
            time.sleep(PAUSE_SECONDS)
        return self.revision >= revision

    def _run(self) -> None:
        self._network.switch.call(self._watch_all)

    def _watch_all(self) -> None:
        member_index = 0
        while not self._closed.is_set():
            if (restored := self._restored_revision) is not None:
                self._write({"key": "restored", "revision": restored, "value": None})
                self.revision, self._restored_revision = restored, None
                self._generations = [entry for entry in self._generations if entry[0] <= restored]
            try:
                self._watch(self._network.addresses[self._names[member_index % len(self._names)]])
            except (OSError, ValueError, http.client.HTTPException):
                # The connection to a stopped member is broken, as after a restore.
                member_index += 1
                self._closed.wait(PAUSE_SECONDS)

    def _watch(self, address: str) -> None:
        connection = http.client.HTTPConnection(address, CLIENT_PORT, timeout=SILENT_SECONDS)
        request = {
            "key": encode_key(self._prefix),
            "range_end": encode_key(self._prefix[:-1] + "0"),
            "start_revision": str(self.revision + 1),
            "progress_notify": True,
        }
        try:
            connection.request("POST", "/v3/watch", json.dumps({"create_request": request}))
            response = connection.getresponse()
            while not self._closed.is_set() and (line := response.readline()):
                self._record(json.loads(line).get("result", {}))
        finally:
            connection.close()

    def _record(self, result: dict[str, Any]) -> None:
        if result.get("canceled"):
            if "compact_revision" not in result:
                raise ValueError("the watch was canceled")
            # The nemesis compacts only recorded revisions, so the checker reports this line as a violation.
            self._write({"key": "gap", "revision": int(result["compact_revision"]), "value": None})
            self.revision = int(result["compact_revision"]) - 1
            raise ConnectionError("the history was compacted before it was recorded")
        for event in result.get("events", []):
            entry = event["kv"]
            name = base64.b64decode(entry["key"]).decode().removeprefix(self._prefix)
            if name in KEYS and event.get("type") != "DELETE":
                value = json.loads(base64.b64decode(entry["value"]))
                revision = int(entry["mod_revision"])
                self._write({"key": name, "revision": revision, "value": value})
                if name == "generation":
                    self._generations.append((revision, int(value["number"])))
        if result.get("events"):
            self.revision = max(int(event["kv"]["mod_revision"]) for event in result["events"])

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
