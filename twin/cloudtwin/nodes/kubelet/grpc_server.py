"""gRPC servers on Unix sockets, for plugins of the kubelet."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

Methods = Mapping[str, tuple[Callable[..., Any], type[Message]]]  # handler, request type
MAX_RPC_THREADS = 4


def handler(
    service: str, methods: Methods, streams: Methods | None = None
) -> "grpc.GenericRpcHandler[Message, Message]":  # generic in its stubs only
    """Return the handler of a service.

    Args:
        service: its full name.
        methods: handlers that return one message.
        streams: handlers that yield messages.
    """

    def serialize(response: Message) -> bytes:
        return bytes(response.SerializeToString())

    rpcs = {
        name: grpc.unary_unary_rpc_method_handler(method, request.FromString, serialize)
        for name, (method, request) in methods.items()
    } | {
        name: grpc.unary_stream_rpc_method_handler(method, request.FromString, serialize)
        for name, (method, request) in (streams or {}).items()
    }
    return grpc.method_handlers_generic_handler(service, rpcs)


@contextlib.contextmanager
def listening(
    handlers: "Sequence[grpc.GenericRpcHandler[Message, Message]]", socket: Path
) -> Iterator[None]:
    """Serve on a socket while the block runs, and remove the socket afterwards."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=MAX_RPC_THREADS))
    server.add_generic_rpc_handlers(tuple(handlers))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(grace=None).wait()
        socket.unlink(missing_ok=True)  # tells the kubelet that the plugin is gone
