"""`messages.txt`: the record of the configuration's error messages."""

from tests.components.config import messages


def test_the_record_of_messages_is_current() -> None:
    recorded = messages.RECORD.read_text(encoding="utf-8")

    assert recorded == messages.record(), "run `make docs` and review the difference"
