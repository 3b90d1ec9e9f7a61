"""The commands of a guide, in the order of its page.

A fenced block of docs/eks.md and docs/aks.md has one command per line. A comment below a command decides what the
tests run:

    COMMAND
    # twin: ANOTHER COMMAND          the other command, because the twin has no counterpart of this one
    # not on the twin: REASON        nothing
    # only: STACK                    the command only in the walk of this stack
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
GUIDES = {"eks": ROOT / "docs/eks.md", "aks": ROOT / "docs/aks.md"}
"""Guide by the first word of its stacks' names."""

WALKED = ("Steps", "Upgrade", "Teardown")
"""Sections whose commands follow one another."""

WITHOUT_ACCOUNT = "Try it without an account"
"""The section for the twin alone; tests/e2e/test_clouds.py runs its commands."""

INSTEAD, SKIPPED, ONLY = "# twin: ", "# not on the twin: ", "# only: "
BLOCK = re.compile(r"^( *)```[a-z]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class GuideCommand:
    """A command of a guide.

    Attributes:
        section: heading of the second level above it.
        text: the command of the page.
        instead: the command that the twin runs in its place; empty for the same.
        skipped: the reason why the twin runs nothing; empty if it runs something.
        only: the stack that needs it; empty for all.
    """

    section: str
    text: str
    instead: str = ""
    skipped: str = ""
    only: str = ""

    @property
    def on_twin(self) -> str:
        """The command that the twin runs; empty for none."""
        return "" if self.skipped else self.instead or self.text


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yield each fenced block of a page with the heading of the second level above it."""
    for block in BLOCK.finditer(page):
        section = page[: block.start()].rpartition("\n## ")[2].partition("\n")[0]
        yield section, dedent(block[2])


def commands_of(section: str, block: str) -> list[GuideCommand]:
    """Return the commands of a block.

    Raises:
        ValueError: a comment of a kind that is not known, or one without a command above it.
    """
    commands: list[GuideCommand] = []
    for line in filter(None, map(str.strip, block.splitlines())):
        if not line.startswith("#"):
            commands.append(GuideCommand(section, line))
        elif commands and line.startswith(INSTEAD):
            commands[-1] = replace(commands[-1], instead=line.removeprefix(INSTEAD))
        elif commands and line.startswith(SKIPPED):
            commands[-1] = replace(commands[-1], skipped=line.removeprefix(SKIPPED))
        elif commands and line.startswith(ONLY):
            commands[-1] = replace(commands[-1], only=line.removeprefix(ONLY))
        else:
            raise ValueError(f"a comment that the walk does not know: {line}")
    return commands


def walk_of(guide: str, stack: str) -> list[GuideCommand]:
    """Return the commands of a guide for one of its stacks, in the order of the page.

    Args:
        guide: `eks` or `aks`.
        stack: name of the stack, such as `eks-prod`.
    """
    kind = stack.partition("-")[2]
    written = [
        command
        for section, block in blocks(GUIDES[guide].read_text())
        if section in WALKED
        for command in commands_of(section, block)
        if command.only in ("", stack)
    ]

    def named(text: str) -> str:
        return text.replace(f"{guide}-dev", stack).replace("everstep-dev", f"everstep-{kind}")

    return [
        replace(command, text=named(command.text), instead=named(command.instead))
        for command in written
    ]
