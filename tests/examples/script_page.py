"""The diff of the two MNIST scripts, as docs/elastic-script.md shows it.

`make docs` writes it with `python -m tests.examples.script_page`.
"""

import difflib
from pathlib import Path

from everstep.cli.marked_section import replace_section

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "elastic-script.md"
SCRIPTS = REPOSITORY / "examples" / "mnist"
BEGIN_MARK, END_MARK = "<!-- begin: difference -->\n", "<!-- end: difference -->\n"


def script_diff() -> str:
    """Return the unified diff of the scripts, without line numbers."""
    plain, elastic = ((SCRIPTS / f"{name}.py").read_text() for name in ("plain", "elastic"))
    lines = difflib.unified_diff(
        plain.splitlines(), elastic.splitlines(), "plain.py", "elastic.py", lineterm="", n=1
    )
    return "\n".join("..." if line.startswith("@@") else line.rstrip() for line in lines)


def page() -> str:
    """Return the page with the current diff."""
    text = PAGE.read_text(encoding="utf-8")
    return replace_section(text, BEGIN_MARK, END_MARK, f"\n```diff\n{script_diff()}\n```\n\n")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
