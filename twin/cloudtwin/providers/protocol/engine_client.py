"""Messages from a provider to the user, shown by the engine next to the resource they are about."""

import logging
import threading

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

SEND_SECONDS = 5
SEVERITIES = {
    logging.DEBUG: engine_pb2.DEBUG,
    logging.INFO: engine_pb2.INFO,
    logging.WARNING: engine_pb2.WARNING,
    logging.ERROR: engine_pb2.ERROR,
}


class EngineClient:
    """A client of the engine's log. A message that cannot be sent is dropped; the operation continues."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._stub: engine_pb2_grpc.EngineStub | None = None

    def status(self, urn: str, message: str) -> None:
        """Show the current state of an operation. The next message replaces it."""
        self._log(logging.INFO, urn, message, ephemeral=True)

    def log(self, level: int, urn: str, message: str) -> None:
        """Show a permanent message; `level` is a level of `logging`, such as `logging.INFO`."""
        self._log(level, urn, message, ephemeral=False)

    def _log(self, level: int, urn: str, message: str, *, ephemeral: bool) -> None:
        if not self._address:
            return
        request = engine_pb2.LogRequest(
            severity=SEVERITIES[level], urn=urn, message=message, ephemeral=ephemeral
        )
        try:
            self._connect().Log(request, timeout=SEND_SECONDS)
        except grpc.RpcError:
            return

    def _connect(self) -> engine_pb2_grpc.EngineStub:
        with self._lock:
            if self._stub is None:
                self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._address))
            return self._stub
