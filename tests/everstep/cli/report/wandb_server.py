"""A stand-in for the server of Weights & Biases: one run, with the operations that an export of curves uses.

It responds to the GraphQL operations of the client by name, collects the rows of the run, and refuses everything else.
"""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

ENTITY, PROJECT = "team", "curves"
_PROJECT = {"id": "p", "name": PROJECT, "entity": {"id": "e", "name": ENTITY}}


@dataclass
class RunStore:
    """The state of the run on the server.

    Attributes:
        rows: rows of the history, in the order of their arrival.
        offsets: position in the history at which each batch of rows was written.
        name: id of the run; empty before it exists.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    name: str = ""

    def stream(self, files: dict[str, Any]) -> None:
        """Add rows of a file stream."""
        if history := files.get("wandb-history.jsonl"):
            self.offsets.append(history["offset"])
            self.rows += [json.loads(line) for line in history["content"]]

    def respond(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the data of a GraphQL operation."""
        if operation == "RunResumeStatus":
            return {"model": {**_PROJECT, "bucket": self._bucket()} if self.name else None}
        if operation == "UpsertBucket":
            inserted, self.name = not self.name, self.name or variables["name"]
            bucket = {**self._bucket(), "project": _PROJECT}
            return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}
        if operation == "CreateRunFiles":
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": []}}
        raise KeyError(operation)

    def _bucket(self) -> dict[str, Any]:
        last_row = json.dumps(self.rows[-1] if self.rows else {})
        return {
            "id": "r", "name": self.name, "displayName": self.name, "config": "{}", "tags": [],
            "summaryMetrics": last_row, "historyTail": json.dumps([last_row]), "eventsTail": "[]",
            "historyLineCount": len(self.rows), "eventsLineCount": 0, "logLineCount": 0,
            "wandbConfig": '{"t": 1}',
        }  # fmt: skip


@contextmanager
def serve(store: RunStore) -> Iterator[str]:
    """Serve a run on this machine; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            request = json.loads(content)
            if "file_stream" in self.path:
                store.stream(request.get("files") or {})
                return self._reply({})
            try:
                data = store.respond(request["operationName"], request["variables"])
            except KeyError as error:
                return self._reply({"errors": [{"message": f"unknown operation {error}"}]}, 400)
            return self._reply({"data": data})

        def _reply(self, value: dict[str, Any], status: int = 200) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - name of the base class
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
