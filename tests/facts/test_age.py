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
    sources = content.get("sources", {}).values()
    assert content.get("date") or sources or content["source"].startswith("botocore ")
    assert all(set(source) == {"name", "date"} for source in sources), "a null date is undated"


def test_no_fact_is_dated_in_the_future() -> None:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    tomorrow = today + datetime.timedelta(
        days=1
    )  # the local date of an author whose time zone is ahead of UTC

    assert [fact.name for fact in age.facts() if fact.date and fact.date > tomorrow] == []


def marked(day: datetime.date) -> list[str]:
    """Return the marked lines of the report."""
    return [line for line in age.report(day).splitlines() if line.startswith("!")]


def test_facts_older_than_90_days_are_marked_and_counted() -> None:
    dates = [fact.date for fact in age.facts()]
    oldest = min(date for date in dates if date)
    day_91 = oldest + datetime.timedelta(days=91)
    old_count = dates.count(oldest) + dates.count(None)

    assert sum("  91 days" in line for line in marked(day_91)) == dates.count(oldest)
    assert f"{old_count} of {len(dates)} are undated or older than 90 days" in age.report(day_91)
    assert [line for line in marked(oldest + datetime.timedelta(days=90)) if "days" in line] == []


def test_prices_have_the_age_of_each_of_their_sources() -> None:
    lines = marked(datetime.date(2026, 11, 29))

    assert any("undated" in line and "prices, skypilot8" in line for line in lines)
    assert any("301 days  2026-02-01  prices, aws" in line for line in lines)
    assert not any("prices, cloudprice" in line for line in lines), "84 days are not too many"
