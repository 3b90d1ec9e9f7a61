"""Record the messages for all mistakes in `bad_stacks`, so that a review shows every change.

`make docs` runs it; the record is messages.txt.
"""

from pathlib import Path

from components.config import from_mapping
from components.config.faults import ConfigurationError
from tests.components.config.bad_stacks import CASES, Case, with_changes

RECORD = Path(__file__).with_name("messages.txt")


def message(case: Case) -> str:
    """Return the message for a mistake."""
    try:
        from_mapping(with_changes(case.base, case.change))
    except ConfigurationError as error:
        return str(error)
    return "ACCEPTED"


def record() -> str:
    """Return the messages, one block for each mistake."""
    return "\n".join(f"## {case.name}\n{message(case)}" for case in CASES) + "\n"


if __name__ == "__main__":
    RECORD.write_text(record(), encoding="utf-8")
