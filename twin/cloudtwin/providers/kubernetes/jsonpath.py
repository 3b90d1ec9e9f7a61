"""The part of JSONPath (RFC 9535) that `pulumi.com/waitFor` uses. Pure.

It supports names, indexes, wildcards, and filters with `==`, `!`, `&&`, `||`, parentheses and
existence tests. Slices, descendants, functions and other comparisons are refused.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Selector: TypeAlias = Callable[[Any, Any], Iterator[Any]]  # (document, node) -> selected nodes
Predicate: TypeAlias = Callable[[Any, Any], bool]  # (document, node) -> whether the filter holds
Operand: TypeAlias = Callable[
    [Any, Any], Sequence[Any]
]  # (document, node) -> selected nodes, or a literal

_NAME = re.compile(r"[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*")
_STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_LITERAL = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?|true|false|null")
_INDEX = re.compile(r"-?\d+")


@dataclass(frozen=True)
class JsonPath:
    """A compiled path.

    Attributes:
        selectors: functions that select nodes, applied one after the other to each selected node.
    """

    selectors: tuple[Selector, ...]

    def select(self, document: Any) -> list[Any]:  # noqa: ANN401  any JSON value
        """Return the nodes that the path selects from a document."""
        return self.select_from(document, document)

    def select_from(self, document: Any, start: Any) -> list[Any]:  # noqa: ANN401  any JSON value
        """Return the nodes that the path selects from a node of a document."""
        nodes = [start]
        for selector in self.selectors:
            nodes = [next_node for node in nodes for next_node in selector(document, node)]
        return nodes


def compile_path(text: str) -> JsonPath:
    """Compile a path such as `$.status.conditions[?@.type=="Ready"].status`.

    Raises:
        ValueError: the path is invalid or uses an unsupported feature; names the position.
    """
    parser = _Parser(text if text.startswith("$") else f"${text}")
    parser.expect("$")
    path = parser.path()
    if not parser.at_end:
        raise parser.error("'.', '[' or the end")
    return path


class _Parser:
    """A recursive-descent parser."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._text)

    def error(self, expected: str) -> ValueError:
        return ValueError(
            f"{self._text!r} at position {self._position}: expected {expected}; this stand-in for the provider "
            "supports names, indexes, wildcards, and filters with ==, !, && and ||"
        )

    def _unquote(self, text: str) -> str:
        """Return the string of a literal, which ends at the current position."""
        literal = text
        if text[0] == "'":
            literal = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        try:
            return str(json.loads(literal))
        except ValueError:
            self._position -= len(text)
            raise self.error("a string with valid escapes") from None

    def _accept(self, token: str) -> bool:
        if self._text.startswith(token, self._position):
            self._position += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self._accept(token):
            raise self.error(repr(token))

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._position)
        if match:
            self._position = match.end()
        return match[0] if match else None

    def _skip_space(self) -> None:
        while not self.at_end and self._text[self._position] in " \t\n\r":
            self._position += 1

    def path(self) -> JsonPath:
        selectors: list[Selector] = []
        while True:
            if self._accept("["):
                self._skip_space()
                selectors.append(self._bracket())
                self._skip_space()
                self.expect("]")
            elif self._accept("."):
                selectors.append(self._dotted())
            else:
                return JsonPath(tuple(selectors))

    def _dotted(self) -> Selector:
        if self._accept("*"):
            return _children
        if name := self._match(_NAME):
            return _member(name)
        raise self.error("a name or '*'")

    def _bracket(self) -> Selector:
        if self._accept("*"):
            return _children
        if self._accept("?"):
            return _filter(self._any_of())
        if text := self._match(_STRING):
            return _member(self._unquote(text))
        if number := self._match(_INDEX):
            return _element(int(number))
        raise self.error("an index, a quoted name, '*' or '?'")

    def _any_of(self) -> Predicate:
        options = [self._all_of()]
        while self._accept("||"):
            options.append(self._all_of())
        return lambda document, node: any(option(document, node) for option in options)

    def _all_of(self) -> Predicate:
        terms = [self._term()]
        while self._accept("&&"):
            terms.append(self._term())
        return lambda document, node: all(term(document, node) for term in terms)

    def _term(self) -> Predicate:
        self._skip_space()
        if self._accept("!"):
            negated = self._term()
            return lambda document, node: not negated(document, node)
        if self._accept("("):
            inner = self._any_of()
            self.expect(")")
            self._skip_space()
            return inner
        return self._test()

    def _test(self) -> Predicate:
        left, is_path = self._operand()
        if self._accept("=="):
            self._skip_space()
            right, _ = self._operand()
            return lambda document, node: _equal(left(document, node), right(document, node))
        if not is_path:
            raise self.error("'=='")
        return lambda document, node: bool(left(document, node))

    def _operand(self) -> tuple[Operand, bool]:
        """Return an operand, and whether it is a path."""
        start = self._text[self._position : self._position + 1]
        if start and start in "@$":
            self._position += 1
            path = self.path()
            self._skip_space()
            if start == "$":
                return (lambda document, _: path.select(document)), True
            return path.select_from, True
        if (text := self._match(_STRING)) is not None:
            value: Any = self._unquote(text)
        elif (text := self._match(_LITERAL)) is not None:
            value = json.loads(text)
        else:
            raise self.error("'@', '$', a string, a number, true, false or null")
        self._skip_space()
        return (lambda _document, _node: [value]), False


def _equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    if not left or not right:
        return not left and not right
    left_value, right_value = left[0], right[0]
    return isinstance(left_value, bool) == isinstance(right_value, bool) and bool(
        left_value == right_value
    )


def _member(name: str) -> Selector:
    def select(_document: Any, node: Any) -> Iterator[Any]:  # noqa: ANN401  any JSON value
        if isinstance(node, dict) and name in node:
            yield node[name]

    return select


def _element(index: int) -> Selector:
    def select(_document: Any, node: Any) -> Iterator[Any]:  # noqa: ANN401  any JSON value
        if isinstance(node, list) and -len(node) <= index < len(node):
            yield node[index]

    return select


def _children(_document: Any, node: Any) -> Iterator[Any]:  # noqa: ANN401  any JSON value
    if isinstance(node, dict):
        yield from node.values()
    elif isinstance(node, list):
        yield from node


def _filter(holds: Predicate) -> Selector:
    def select(document: Any, node: Any) -> Iterator[Any]:  # noqa: ANN401  any JSON value
        yield from (child for child in _children(document, node) if holds(document, child))

    return select
