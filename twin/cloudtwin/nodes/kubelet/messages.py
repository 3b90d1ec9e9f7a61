"""Protobuf message classes for the kubelet's plugin interfaces, created from a table of their fields.

This replaces a compiler and generated code: the plugins need few of the fields, and protobuf skips fields that
the table does not name.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

Field = tuple[str, int, int | str, bool]  # name, number, type or message name, repeated
STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
BOOL = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL


class Messages:
    """The messages of one package; they are created at run time and have no static type."""

    def __init__(self, package: str, table: Mapping[str, tuple[Field, ...]]) -> None:
        self._classes = _define(package, table)

    def __getitem__(self, name: str) -> type[Message]:
        """Return the class of this name."""
        return self._classes[name]

    def new(self, name: str, /, **fields: object) -> Message:
        """Return a new message; its fields are checked at run time only."""
        return cast("Callable[..., Message]", self._classes[name])(**fields)


def _define(package: str, table: Mapping[str, tuple[Field, ...]]) -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"cloudtwin/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            descriptor = message.field.add(name=field, number=number)
            label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
            descriptor.label = descriptor_pb2.FieldDescriptorProto.Label.Value(label)
            if isinstance(kind, str):
                descriptor.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                descriptor.type_name = f".{package}.{kind}"
            else:
                descriptor.type = descriptor_pb2.FieldDescriptorProto.Type.ValueType(kind)
    pool: Any = descriptor_pool.DescriptorPool()  # untyped in its stubs
    pool.AddSerializedFile(file.SerializeToString())
    descriptors = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in table}
    return {name: message_factory.GetMessageClass(descriptors[name]) for name in table}
