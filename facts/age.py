"""List every external fact with its source and its age: `python facts/age.py`, or `make facts-age`.

Prices, limits, quota codes and versions change without notice. Facts that are older than MAX_DAYS are
marked; compare them with their source and write the new date. The exit code is always 0: an old fact
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
        date: date of the last comparison with the source.
    """

    name: str
    file: str
    source: str
    date: datetime.date

    def days(self, today: datetime.date) -> int:
        """Return the age in days."""
        return (today - self.date).days


def table() -> list[dict[str, Any]]:
    """Return the entries of sources.toml."""
    entries: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["fact"]
    return entries


def facts() -> Iterator[Fact]:
    """Yield the facts of sources.toml and one for each dated data file."""
    for entry in table():
        yield Fact(entry["name"], entry["file"], entry["source"], entry["date"])
    for path in sorted(DATA.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        date = content.get("date") or content.get("asOf")
        if date:  # files without a date are from botocore, whose version is in the table
            source = content.get("source") or ", ".join(content["sources"].values())
            file = str(path.relative_to(ROOT))
            yield Fact(path.stem, file, source, datetime.date.fromisoformat(date))


def report(today: datetime.date) -> str:
    """Return the facts, the oldest first, and the number of facts that are too old."""
    facts_by_date = sorted(facts(), key=lambda fact: (fact.date, fact.name))
    lines = [
        f"{'!' if fact.days(today) > MAX_DAYS else ' '} {fact.days(today):4} days  {fact.date}  {fact.name}\n"
        f"{'':14}{fact.file}: {fact.source}"
        for fact in facts_by_date
    ]
    old_count = sum(fact.days(today) > MAX_DAYS for fact in facts_by_date)
    return "\n".join(
        [*lines, f"{old_count} of {len(facts_by_date)} are older than {MAX_DAYS} days."]
    )


if __name__ == "__main__":
    print(report(datetime.datetime.now(tz=datetime.UTC).date()))
