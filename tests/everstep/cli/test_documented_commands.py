"""Every command of `everstep` and `make` that a page names exists, with its options and their values."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from everstep.cli.app import build_app

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SCRIPTS = sorted((ROOT / "docs" / "images").glob("*.py"))
EVERSTEP: Any = get_command(build_app())
INLINE = re.compile(r"`([^`\n]+)`")


def commands(page: Path, program: str) -> Iterator[str]:
    """Yield the commands of a program in a page, without comments."""
    text = page.read_text()
    for snippet in [*INLINE.findall(text), *map(str.strip, text.splitlines())]:
        line = re.split(r" # |  #", snippet.removeprefix("$ "))[0]
        for part in re.split(r" && | \|\|? |;", line):
            if part.strip().startswith(f"{program} "):
                yield part.strip()


def fault_of(words: list[str]) -> str:
    """Return the unknown words and incomplete options of an `everstep` command line; empty if there are none."""
    command = EVERSTEP
    while hasattr(command, "commands"):
        if not words or not re.fullmatch(r"[a-z][a-z-]*", words[0]):
            return ""  # the group itself, an option of the program, or a placeholder
        if words[0] not in command.commands:
            return f"there is no command {words[0]}"
        command = command.commands[words.pop(0)]
    if command.context_settings.get("allow_extra_args"):
        return ""
    valid_options = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    used_options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    if unknown_options := sorted(used_options - valid_options - {"--help", "-h"}):
        return ", ".join(unknown_options)
    return incomplete_options(command, words)


def incomplete_options(command: Any, words: list[str]) -> str:
    """Return the options of a command line that need a value and have none; empty if there are none."""
    options_with_value = {
        name
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.is_flag
        for name in parameter.opts
    }
    return ", ".join(
        f"{word} without its value"
        for word, following in pairwise([*words, "--"])
        if word in options_with_value and following.startswith("-")
    )


@pytest.mark.parametrize("page", [*PAGES, *SCRIPTS], ids=lambda page: page.stem)
def test_every_command_and_option_of_everstep_in_a_page_exists(page: Path) -> None:
    faults = {
        line: fault
        for line in commands(page, "everstep")
        if (fault := fault_of(re.sub(r"[\[\]]", " ", line).split()[1:]))
    }

    assert faults == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_target_of_make_in_a_page_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    existing_targets = {name for names in targets for name in names.split()}
    targets_of_page = [shlex.split(line, comments=True)[1] for line in commands(page, "make")]

    assert [
        name
        for name in targets_of_page
        if re.fullmatch("[a-z-]+", name) and name not in existing_targets
    ] == []


def test_commands_are_found_inline_on_separate_lines_and_in_sequences(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Run `everstep up --yes` first.\n"
        "    $ everstep status  # a comment\n"
        "    make aws && everstep preview | cat; everstep down\n"
    )

    assert list(commands(page, "everstep")) == [
        "everstep up --yes",
        "everstep status",
        "everstep preview",
        "everstep down",
    ]
    assert list(commands(page, "make")) == ["make aws"]


def test_a_command_that_does_not_exist_is_detected() -> None:
    assert fault_of(["dain", "gpu-0"]) == "there is no command dain"
    assert fault_of(["node", "reclame", "gpu-0"]) == "there is no command reclame"
    assert fault_of(["node", "reclaim", "gpu-0", "--notise", "3"]) == "--notise"
    assert fault_of(["down", "--keep-run"]) == "--keep-run without its value"
    assert fault_of(["down", "--keep-run", "--yes"]) == "--keep-run without its value"
    assert fault_of(["up", "--no-drill", "-y", "--stack=local"]) == ""
    assert fault_of(["launch", "train.py", "--epochs", "3"]) == ""
