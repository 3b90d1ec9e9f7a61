"""The types of `job.command` and `job.args`: the program that the workers of a job run."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from components.config.faults import refusal

EXAMPLE = "[python3, train.py]"
LAUNCHERS = ("everstep", "torchrun")
LAUNCHER_MODULES = (
    ("everstep.elastic.launch",),
    ("torch.distributed.run",),
    ("trainer.launch",),
)


def _is_list(words: object) -> object:
    """Check that a command is not a single string, which a shell would have to split."""
    if isinstance(words, str):
        raise refusal(
            "is a single string, which no shell splits", f"write a list, such as {EXAMPLE}"
        )
    return words


def _is_word(word: object) -> object:
    """Check that an element is a string or a number."""
    if isinstance(word, bool) or not isinstance(word, str | int | float):
        raise refusal("is not a command-line argument", 'write it as a string, such as "true"')
    return word


def _is_program(words: tuple[str, ...]) -> tuple[str, ...]:
    """Check that a command starts with a program that the launcher can start."""
    if not words:
        raise refusal("is empty", f"name a program, such as {EXAMPLE}, or remove the key")
    program = words[0]
    if not program.strip():
        raise refusal("starts with an empty word", f"name a program, such as {EXAMPLE}")
    if program.startswith("-"):
        raise refusal("starts with an option", f"name a program, such as {EXAMPLE}")
    if " " in program:
        raise refusal("has several words in its first element", f"write a list, such as {EXAMPLE}")
    if program in LAUNCHERS or (words[1:2] == ("-m",) and words[2:3] in LAUNCHER_MODULES):
        fix = f"name only the training program, such as {EXAMPLE}"
        raise refusal("names a launcher, which Everstep starts itself", fix)
    return words


Word = Annotated[str, BeforeValidator(_is_word)]
Command = Annotated[tuple[Word, ...], BeforeValidator(_is_list), AfterValidator(_is_program)]
Arguments = Annotated[tuple[Word, ...], BeforeValidator(_is_list)]
