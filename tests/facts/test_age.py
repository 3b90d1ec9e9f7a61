"""External facts have a source and a date, and their age is reported."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from facts import age


@pytest.mark.parametrize("entry", age.table(), ids=lambda entry: entry["name"])
def test_a_listed_fact_is_in_the_file_that_the_table_names(entry: dict[str, Any]) -> None:
    assert entry["contains"] in (age.ROOT / entry["file"]).read_text(encoding="utf-8"), (
        "after a change, compare it with its source and update the date"
    )
    assert entry["source"]


@pytest.mark.parametrize("path", sorted(age.DATA.glob("*.json")), ids=lambda path: path.stem)
def test_every_data_file_is_dated_or_of_a_dated_version_of_botocore(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    date = content.get("date") or content.get("asOf")
    assert date or content["source"].startswith("botocore ")


def test_no_fact_is_dated_in_the_future() -> None:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    tomorrow = today + datetime.timedelta(
        days=1
    )  # the local date of an author whose time zone is ahead of UTC

    assert [fact.name for fact in age.facts() if fact.date > tomorrow] == []


def test_facts_older_than_90_days_are_marked_and_counted() -> None:
    dates = [fact.date for fact in age.facts()]
    oldest = min(dates)
    day_91 = oldest + datetime.timedelta(days=91)

    assert age.report(day_91).startswith("!   91 days")
    assert f"{dates.count(oldest)} of {len(dates)} are older than 90 days" in age.report(day_91)
    assert "!" not in age.report(oldest + datetime.timedelta(days=90))
