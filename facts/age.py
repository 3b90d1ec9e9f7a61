"""List every external fact with its source and its age: `python facts/age.py`, or `make facts-age`.

Prices, limits, quota codes and versions change without notice. Facts that are undated or older than MAX_DAYS
are marked; compare them with their source and write the new date. The exit code is always 0: an old fact
may still be correct.
"""

import datetime
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "facts" / "cloudfacts" / "data"
TABLE = ROOT / "facts" / "sources.toml"
MAX_DAYS = 90


@dataclass(frozen=True)
class Fact:
    """A fact from an external source.

    Attributes:
        name: short description.
        file: path in the repository.
        source: page or API that states it.
        date: date of the last comparison with the source; None if the source states no date.
    """

    name: str
    file: str
    source: str
    date: datetime.date | None

    def is_old(self, today: datetime.date) -> bool:
        """Return True if the fact is older than MAX_DAYS or undated."""
        return self.date is None or (today - self.date).days > MAX_DAYS

    def age(self, today: datetime.date) -> str:
        """Return the age in days, and the date."""
        if self.date is None:
            return f"{'undated':22}"
        return f"{(today - self.date).days:4} days  {self.date}"


def table() -> list[dict[str, Any]]:
    """Return the entries of sources.toml."""
    entries: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["fact"]
    return entries


def facts() -> Iterator[Fact]:
    """Yield the facts of sources.toml, and one for each dated data file or for each of its sources."""
    for entry in table():
        yield Fact(entry["name"], entry["file"], entry["source"], entry["date"])
    for path in sorted(DATA.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        file = str(path.relative_to(ROOT))
        for key, source in content.get("sources", {}).items():
            yield Fact(f"{path.stem}, {key}", file, source["name"], _date(source["date"]))
        if date := content.get(
            "date"
        ):  # files without a date are from botocore, whose version is in the table
            yield Fact(path.stem, file, content["source"], _date(date))


def _date(text: str | None) -> datetime.date | None:
    return None if text is None else datetime.date.fromisoformat(text)


def report(today: datetime.date) -> str:
    """Return the facts, undated ones first and then the oldest, and the number of facts that are too old."""
    facts_by_date = sorted(facts(), key=lambda fact: (fact.date or datetime.date.min, fact.name))
    lines = [
        f"{'!' if fact.is_old(today) else ' '} {fact.age(today)}  {fact.name}\n"
        f"{'':14}{fact.file}: {fact.source}"
        for fact in facts_by_date
    ]
    old_count = sum(fact.is_old(today) for fact in facts_by_date)
    return "\n".join(
        [*lines, f"{old_count} of {len(facts_by_date)} are undated or older than {MAX_DAYS} days."]
    )


if __name__ == "__main__":
    print(report(datetime.datetime.now(tz=datetime.UTC).date()))
