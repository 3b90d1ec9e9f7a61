"""The commands of a guide, in the order of its page.

A fenced block of docs/eks.md and docs/aks.md has one command per line. A comment below a command decides what the
tests run:

    COMMAND
    # twin: ANOTHER COMMAND          the other command, because the twin has no counterpart to this one
    # not on the twin: REASON        nothing
    # only: STACK                    the command for this stack only
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
GUIDES = {"eks": ROOT / "docs/eks.md", "aks": ROOT / "docs/aks.md"}
"""First word of a stack's name -> its guide."""

TESTED_SECTIONS = ("Steps", "Upgrade", "Teardown")
"""Sections whose commands the tests run, one after the other."""

OFFLINE_SECTION = "Try it without an account"
"""The section for the twin alone; tests/e2e/test_clouds.py checks the same steps."""

TWIN_PREFIX, SKIP_PREFIX, ONLY_PREFIX = "# twin: ", "# not on the twin: ", "# only: "
BLOCK = re.compile(r"^( *)```[a-z]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class GuideCommand:
    """A command of a guide.

    Attributes:
        section: second-level heading above it.
        text: the command of the page.
        twin_command: the command that the twin runs in its place; empty if it is the same.
        skip_reason: the reason why the twin runs nothing; empty if it runs something.
        only_stack: the stack that needs it; empty for all.
    """

    section: str
    text: str
    twin_command: str = ""
    skip_reason: str = ""
    only_stack: str = ""

    @property
    def text_on_twin(self) -> str:
        """The command that the twin runs; empty if it runs nothing."""
        return "" if self.skip_reason else self.twin_command or self.text


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Yield each fenced block of a page with the second-level heading above it."""
    for block in BLOCK.finditer(page):
        section = page[: block.start()].rpartition("\n## ")[2].partition("\n")[0]
        yield section, dedent(block[2])


def commands_of(section: str, block: str) -> list[GuideCommand]:
    """Return the commands of a block.

    Raises:
        ValueError: a comment of an unknown kind, or without a command above it.
    """
    commands: list[GuideCommand] = []
    for line in filter(None, map(str.strip, block.splitlines())):
        if not line.startswith("#"):
            commands.append(GuideCommand(section, line))
        elif commands and line.startswith(TWIN_PREFIX):
            commands[-1] = replace(commands[-1], twin_command=line.removeprefix(TWIN_PREFIX))
        elif commands and line.startswith(SKIP_PREFIX):
            commands[-1] = replace(commands[-1], skip_reason=line.removeprefix(SKIP_PREFIX))
        elif commands and line.startswith(ONLY_PREFIX):
            commands[-1] = replace(commands[-1], only_stack=line.removeprefix(ONLY_PREFIX))
        else:
            raise ValueError(
                f"{section}: unknown comment {line!r}; write `{TWIN_PREFIX}`, "
                f"`{SKIP_PREFIX}` or `{ONLY_PREFIX}` below a command"
            )
    return commands


def guide_commands(guide: str, stack: str) -> list[GuideCommand]:
    """Return the commands of a guide for one of its stacks, in the order of the page.

    Args:
        guide: `eks` or `aks`.
        stack: name of the stack, such as `eks-prod`.
    """
    kind = stack.partition("-")[2]
    commands = [
        command
        for section, block in blocks(GUIDES[guide].read_text())
        if section in TESTED_SECTIONS
        for command in commands_of(section, block)
        if command.only_stack in ("", stack)
    ]

    def for_stack(text: str) -> str:
        return text.replace(f"{guide}-dev", stack).replace("everstep-dev", f"everstep-{kind}")

    return [
        replace(command, text=for_stack(command.text), twin_command=for_stack(command.twin_command))
        for command in commands
    ]
