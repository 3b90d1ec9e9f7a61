"""HTML elements that escape their text, so that no name from a journal can become markup.

A string is text and is escaped; only an `Html` is markup. Everything that the page shows is built from these
functions instead of a template, where one forgotten filter would be a vulnerability that no test finds.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

VOID = frozenset({"meta", "input", "br", "link"})
"""Elements that have no end tag."""

_CONTROL = dict.fromkeys({*range(0x20), *range(0x7F, 0xA0)} - {ord("\n"), ord("\t")})
"""Characters to remove, for `str.translate`."""


@dataclass(frozen=True)
class Html:
    """Markup that is safe to put into a page."""

    text: str


def element(
    name: str, /, *children: "Html | str | int | None", **attributes: str | float | bool | None
) -> Html:
    """Return an element with escaped text and attributes.

    Args:
        name: name of the element.
        children: markup, or text to escape; None is left out.
        attributes: attributes by name. Underscores stand for hyphens, a trailing one is removed; True is
            an attribute without a value, None and False are left out.
    """
    start_tag = f"<{name}{''.join(_attributes(attributes))}>"
    if name in VOID:
        return Html(start_tag)
    return Html(f"{start_tag}{join(children).text}</{name}>")


def join(children: Iterable["Html | str | int | None"]) -> Html:
    """Return the children one after the other."""
    return Html("".join(_text(child) for child in children if child is not None))


def _text(child: "Html | str | int") -> str:
    return child.text if isinstance(child, Html) else escape(_printable(str(child)))


def _attributes(attributes: Mapping[str, str | float | bool | None]) -> Iterable[str]:
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        if value is True:
            yield f" {name}"
        elif value is not None and value is not False:
            yield f' {name}="{escape(_printable(str(value)))}"'


def _printable(text: str) -> str:
    """Return text without control characters and lone surrogates, which HTML and UTF-8 exclude."""
    if text.isprintable():
        return text
    return text.translate(_CONTROL).encode(errors="replace").decode()


def data_block(identifier: str, values: object) -> Html:
    """Return values as JSON for the page's script, in an element that browsers do not execute."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    for char in "<>&":  # so that no text can end the element
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Html(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')
