"""The annotation `pulumi.com/waitFor`, in which users define when an object is ready. Pure.

As in the official provider: `condition=TYPE[=STATUS]` or `jsonpath={PATH}[=VALUE]`, or a JSON list
of these; all must hold. It takes precedence over the rule of the object's kind.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cloudtwin.providers.kubernetes.jsonpath import JsonPath, compile_path
from cloudtwin.providers.protocol.errors import ProviderError


class Expectation(Protocol):
    """One expression of the annotation."""

    def unmet(self, live: Mapping[str, Any]) -> str:
        """Return the reason why an object does not meet it yet; empty if it does."""


@dataclass(frozen=True)
class ExpectedCondition:
    """`condition=TYPE[=STATUS]`, compared regardless of case.

    Attributes:
        type: the type of the condition.
        status: its status, "True" by default.
    """

    type: str
    status: str

    def unmet(self, live: Mapping[str, Any]) -> str:
        """Return the reason why an object does not meet it yet; empty if it does."""
        status = live.get("status") or {}
        for condition in status.get("conditions") or ():
            if str(condition.get("type")).lower() != self.type.lower():
                continue
            observed = condition.get("observedGeneration", status.get("observedGeneration"))
            generation = live.get("metadata", {}).get("generation")
            if observed is not None and generation is not None and observed < generation:
                return f"generation {generation} is not observed yet, only {observed}"
            if str(condition.get("status")).lower() == self.status.lower():
                return ""
            return f"condition {self.type} is {condition.get('status')}, not {self.status}"
        return f"there is no condition {self.type} yet"


@dataclass(frozen=True)
class ExpectedPath:
    """`jsonpath={PATH}[=VALUE]`.

    Attributes:
        text: the path in its braces.
        path: the compiled path.
        value: the expected text of the first selected node; empty if any node suffices.
    """

    text: str
    path: JsonPath
    value: str

    def unmet(self, live: Mapping[str, Any]) -> str:
        """Return the reason why an object does not meet it yet; empty if it does.

        Raises:
            ProviderError: a value is expected, and the path selects an object or a list.
        """
        values = self.path.select(live)
        if not values:
            return f"{self.text} selects nothing yet"
        if not self.value:
            return ""
        if isinstance(values[0], dict | list):
            raise ProviderError(f"{self.text} selects {values[0]!r}, which is not a single value")
        text = values[0] if isinstance(values[0], str) else json.dumps(values[0])
        return "" if text == self.value else f"{self.text} is {text}, not {self.value}"


def parse(annotation: str) -> Sequence[Expectation]:
    """Return the expressions of an annotation; none if it is empty.

    Raises:
        ProviderError: an expression is invalid.
    """
    if not annotation:
        return ()
    try:
        entries = json.loads(annotation)
    except ValueError:
        entries = None
    is_list = isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)
    if is_list and not entries:
        raise ProviderError("pulumi.com/waitFor: at least one condition is required")
    return [_expectation(entry) for entry in (entries if is_list else [annotation])]


def _expectation(text: str) -> Expectation:
    if text.startswith("condition="):
        type_, _, status = text.removeprefix("condition=").partition("=")
        return ExpectedCondition(type_, status or "True")
    if text.startswith("jsonpath="):
        return _expected_path(text.removeprefix("jsonpath="))
    raise ProviderError(
        f'pulumi.com/waitFor: expected the prefix "jsonpath=" or "condition=", got {text!r}'
    )


def _expected_path(text: str) -> ExpectedPath:
    end = _end_of_braces(text)
    if end < 0:
        raise ProviderError(
            f"pulumi.com/waitFor: the path must be in braces: {{.PATH}}; got {text!r}"
        )
    path, expression = text[: end + 1], text[end + 1 :]
    separator, value = expression[:1], expression[1:]
    if expression and (separator != "=" or not value or "=" in value or value.startswith("{")):
        raise ProviderError(
            f"pulumi.com/waitFor: expected {{.PATH}} or {{.PATH}}=VALUE with a literal value, got {text!r}"
        )
    try:
        return ExpectedPath(path, compile_path(path[1:-1].strip()), value)
    except ValueError as error:
        raise ProviderError(f"pulumi.com/waitFor: {error}") from None


def _end_of_braces(text: str) -> int:
    """Return the index of the brace that closes the first brace, outside quotes; -1 if there is none."""
    if not text.startswith("{"):
        return -1
    depth, quote, escaped = 0, "", False
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif quote:
            escaped, quote = character == "\\", "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += {"{": 1, "}": -1}.get(character, 0)
            if not depth:
                return index
    return -1
