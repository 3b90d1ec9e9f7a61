"""The difference of the two MNIST scripts, as docs/elastic-script.md shows it.

`make docs` writes it: `python -m tests.examples.script_page`.
"""

import difflib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "elastic-script.md"
SCRIPTS = REPOSITORY / "examples" / "mnist"
BEGIN, END = "<!-- begin: difference -->\n", "<!-- end: difference -->\n"


def difference() -> str:
    """Return the difference in the unified format, without the numbers of lines."""
    plain, elastic = ((SCRIPTS / f"{name}.py").read_text() for name in ("plain", "elastic"))
    lines = difflib.unified_diff(
        plain.splitlines(), elastic.splitlines(), "plain.py", "elastic.py", lineterm="", n=1
    )
    return "\n".join("..." if line.startswith("@@") else line.rstrip() for line in lines)


def page() -> str:
    """Return the page with the current difference."""
    before, _, after_begin = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = after_begin.partition(END)[2]
    return f"{before}{BEGIN}\n```diff\n{difference()}\n```\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
