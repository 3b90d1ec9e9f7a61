"""Words and options of commands on pages and in notebooks."""

import shlex


def words_of(command: str, program: str) -> list[str]:
    """Return the arguments of a program's command; empty for another program."""
    words = shlex.split(command, comments=True)
    while words and "=" in words[0]:
        words.pop(0)
    return words[1:] if words[:1] == [program] else []


def options_of(words: list[str]) -> set[str]:
    """Return the names of a command's options."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}
