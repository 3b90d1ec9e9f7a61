"""What the provider tells the user while it works.

Messages through the engine, beside the resource they are about.
"""

import logging
import threading

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

SEVERITIES = {
    logging.DEBUG: engine_pb2.DEBUG,
    logging.INFO: engine_pb2.INFO,
    logging.WARNING: engine_pb2.WARNING,
    logging.ERROR: engine_pb2.ERROR,
}


class Engine:
    """Sends messages to the engine.

    A message that cannot be sent is lost, the operation goes on.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._stub: engine_pb2_grpc.EngineStub | None = None

    def status(self, urn: str, message: str) -> None:
        """Show what an operation is at now; the next message takes its place."""
        self._log(logging.INFO, urn, message, ephemeral=True)

    def say(self, level: int, urn: str, message: str) -> None:
        """Show a message that stays. Levels are those of `logging`."""
        self._log(level, urn, message, ephemeral=False)

    def _log(self, level: int, urn: str, message: str, *, ephemeral: bool) -> None:
        if not self._address:
            return
        request = engine_pb2.LogRequest(
            severity=SEVERITIES[level], urn=urn, message=message, ephemeral=ephemeral
        )
        try:
            self._connected().Log(request, timeout=5)
        except grpc.RpcError:
            return

    def _connected(self) -> engine_pb2_grpc.EngineStub:
        with self._lock:
            if self._stub is None:
                self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._address))
            return self._stub
