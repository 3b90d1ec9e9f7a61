"""docs/cli.md, generated from the commands."""

from everstep.cli import command_page


def test_the_page_is_current() -> None:
    assert command_page.PAGE.read_text() == command_page.page(), "run `make docs`"


def test_the_page_has_every_command_once() -> None:
    text = command_page.page()
    headings = [line.lstrip("# ") for line in text.splitlines() if line.startswith("##")]

    for name, _ in command_page.commands():
        assert headings.count(name) == 1, name


def test_every_command_and_option_is_described() -> None:
    for name, command in command_page.commands():
        assert command.help, name
        for parameter in command.params:
            assert parameter.help, f"{name} {parameter.name}"


def test_a_placeholder_in_angle_brackets_is_shown() -> None:
    assert "Pulumi.&lt;name>.yaml" in command_page.page(), "Markdown would take it for a tag"
