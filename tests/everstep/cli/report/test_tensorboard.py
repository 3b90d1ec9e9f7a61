"""Event files for TensorBoard: read back by hand, and by TensorBoard where it is installed."""

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
    """Yield the messages of TFRecords; both checksums must be right."""
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        message = content[12 : 12 + length]
        assert content[: 16 + length] == record(message)
        yield message
        content = content[16 + length :]


def test_the_checksum_equals_the_standards_example() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(b"") == 0
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


@given(st.floats(0, 1e10), st.integers(0, 2**62), st.text(max_size=200), st.floats(width=32))
def test_every_scalar_is_a_record(at: float, step: int, tag: str, value: float) -> None:
    message = event(Scalar(at, step, tag.encode(errors="replace").decode(), value))

    assert list(records(record(message) * 2)) == [message, message]


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
