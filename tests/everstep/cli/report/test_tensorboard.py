"""Event files for TensorBoard: parsed here, and by TensorBoard where it is installed."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.scalars import Scalar, scalars
from everstep.cli.report.tensorboard import crc32c, event, event_file, record
from tests.everstep.cli.recorded_run import RecordedRun


def records(content: bytes) -> Iterator[bytes]:
    """Yield the messages of TFRecords, and check that nothing else is between them."""
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        message = content[12 : 12 + length]
        assert content[: 16 + length] == record(message)
        yield message
        content = content[16 + length :]


def varint(content: bytes) -> tuple[int, bytes]:
    """Return the varint at the beginning of bytes, and the remaining bytes."""
    end = next(i for i, byte in enumerate(content) if byte < 0x80) + 1
    return sum((byte & 0x7F) << 7 * i for i, byte in enumerate(content[:end])), content[end:]


def fields(message: bytes) -> dict[int, bytes]:
    """Return the fields of a protobuf message by number; a varint as an unsigned number of 64 bits."""
    values: dict[int, bytes] = {}
    while message:
        number, wire_type, message = message[0] >> 3, message[0] & 7, message[1:]
        if wire_type == 0:
            value, message = varint(message)
            values[number] = struct.pack("<Q", value)
            continue
        size = {1: 8, 5: 4}.get(wire_type)
        if size is None:
            size, message = varint(message)
        values[number], message = message[:size], message[size:]
    return values


def test_the_checksum_equals_the_published_examples() -> None:
    """RFC 3720, appendix B.4; the last one is the check value in catalogs of CRCs."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283


def test_a_message_has_the_bytes_of_protobuf() -> None:
    message = event(Scalar(at=1.0, step=300, tag="a", value=0.5))

    assert message.hex() == "09000000000000f03f10ac022a0a0a080a0161150000003f"


def test_a_record_has_its_length_and_masked_checksums() -> None:
    assert record(b"").hex() == "000000000000000029039807d8ea82a2"


def test_a_file_begins_with_its_version_and_an_empty_run_has_no_more() -> None:
    (head,) = records(event_file(RunRecord()))

    assert head.endswith(b"brain.Event:2")


@given(
    st.builds(
        Scalar,
        at=st.floats(0, 1e10),
        step=st.integers(0, 2**62),
        tag=st.text(max_size=200),
        value=st.floats(width=32),
    )
)
def test_an_event_has_the_values_of_its_scalar(scalar: Scalar) -> None:
    values = fields(event(scalar))

    assert values[1] == struct.pack("<d", scalar.at)
    assert values[2] == struct.pack("<Q", scalar.step)
    summary = fields(values[5])
    assert fields(summary[1]) == {1: scalar.tag.encode(), 2: struct.pack("<f", scalar.value)}


def test_every_scalar_of_a_run_is_a_record(drill_run: RecordedRun) -> None:
    _, *messages = records(event_file(drill_run.run()))

    assert messages == [event(scalar) for scalar in scalars(drill_run.run())]


def test_tensorboard_reads_the_file(tmp_path: Path, drill_run: RecordedRun) -> None:
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader",
        reason="`make test-trackers` installs tensorboard",
    )
    path = tmp_path / "events.out.tfevents.1.everstep"
    path.write_bytes(event_file(drill_run.run()))

    events = list(loader.LegacyEventFileLoader(str(path)).Load())

    values: list[tuple[object, ...]] = [
        (scalar.wall_time, scalar.step, value.tag, pytest.approx(value.simple_value))
        for scalar in events[1:]
        for value in scalar.summary.value
    ]
    assert events[0].file_version == "brain.Event:2"
    assert values == [
        (scalar.at, scalar.step, scalar.tag, scalar.value) for scalar in scalars(drill_run.run())
    ]
