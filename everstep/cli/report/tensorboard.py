"""Scalars of a run as an event file for TensorBoard.

An event file is a sequence of TFRecords with `Event` messages. Both formats are frozen, and a few lines of code can
write them; the packages that do so depend on protobuf or TensorFlow. The format of a record:

    record = length (8 bytes) | masked CRC32C of the length (4) | message | masked CRC32C of the message (4)
"""

import struct

from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.scalars import Scalar, scalars

FILE_VERSION = "brain.Event:2"
POLYNOMIAL = 0x82F63B78
"""Polynomial of CRC32C (Castagnoli), with its bits reversed."""

MASK_DELTA = 0xA282EAD8
_MAX_32 = 0xFFFFFFFF


def event_file(run: RunRecord) -> bytes:
    """Return the content of an event file with all scalars of a run."""
    start = run.entries[0].at if run.entries else 0.0
    head = _field(1, struct.pack("<d", start)) + _bytes_field(3, FILE_VERSION.encode())
    return b"".join(map(record, (head, *map(event, scalars(run)))))


# --- format -------------------------------------------------------------------------------------


def event(scalar: Scalar) -> bytes:
    """Return a scalar as an `Event` message."""
    tag = _bytes_field(1, scalar.tag.encode())
    value = tag + b"\x15" + struct.pack("<f", scalar.value)  # field 2: a float
    summary = _bytes_field(1, value)
    step = b"\x10" + _varint(scalar.step & 0xFFFFFFFFFFFFFFFF)  # field 2: an int64
    return _field(1, struct.pack("<d", scalar.at)) + step + _bytes_field(5, summary)


def _field(number: int, double: bytes) -> bytes:
    return bytes([number << 3 | 1]) + double


def _bytes_field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def record(message: bytes) -> bytes:
    """Return a message as a TFRecord."""
    length = struct.pack("<Q", len(message))
    return length + _checksum(length) + message + _checksum(message)


def _checksum(content: bytes) -> bytes:
    crc = crc32c(content)
    masked_crc = ((crc >> 15 | crc << 17) + MASK_DELTA) & _MAX_32
    return struct.pack("<I", masked_crc)


def crc32c(content: bytes) -> int:
    """Return the CRC32C of bytes."""
    crc = _MAX_32
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _MAX_32


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_table_entry, range(256)))
