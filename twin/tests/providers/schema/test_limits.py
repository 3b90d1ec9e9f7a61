"""The file with the limits of a cloud's types."""

from pathlib import Path

from cloudtwin.providers.schema.limits import Limits, is_current, limits_of, write_limits

LIMITS: dict[str, Limits] = {
    "m:b:B": {"name": {"api": "B API", "max": 5}},
    "m:a:A": {"size": {"api": "A API", "min": 1}, "tags.*": {"api": "A API", "pattern": "a+"}},
    "m:c:C": {},
}


def test_written_limits_are_read_by_type(tmp_path: Path) -> None:
    write_limits(tmp_path, LIMITS)

    assert {token: limits_of(tmp_path, token) for token in LIMITS} == LIMITS
    assert limits_of(tmp_path, "m:d:D") == {}


def test_a_file_is_current_until_a_limit_changes(tmp_path: Path) -> None:
    write_limits(tmp_path, LIMITS)
    other_limits = {**LIMITS, "m:b:B": {"name": {"api": "B API", "max": 6}}}

    assert is_current(tmp_path, dict(reversed(LIMITS.items())))
    assert not is_current(tmp_path, other_limits)
