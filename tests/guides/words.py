"""Words and options of commands on pages and in notebooks."""

import shlex
from functools import cache
from typing import Any

from typer.main import get_command

from everstep.cli.app import build_app


def words_of(command: str, program: str) -> list[str]:
    """Return the arguments of a program's command; empty for another program."""
    words = shlex.split(command, comments=True)
    while words and "=" in words[0]:
        words.pop(0)
    return words[1:] if words[:1] == [program] else []


def options_of(words: list[str]) -> set[str]:
    """Return the names of a command's options."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def unknown_words(text: str) -> set[str]:
    """Return the unknown subcommand, or the unknown options, of an `everstep` command; empty for other programs."""
    words = words_of(text, "everstep")
    command = _everstep()
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return {words[0]}
        command = command.commands[words.pop(0)]
    return options_of(words) - {
        name for param in command.params for name in (*param.opts, *param.secondary_opts)
    }


@cache
def _everstep() -> Any:
    """Return the root command of everstep."""
    return get_command(build_app())
