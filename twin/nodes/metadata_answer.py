"""A request to a machine's metadata service and its answer, whichever cloud's it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus


@dataclass(frozen=True)
class Request:
    """What was asked.

    Attributes:
        method: GET, PUT or POST.
        path: without the query.
        query: its parameters.
        headers: by names in lower case.
        body: what was sent.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """What is said.

    Attributes:
        status: of HTTP.
        body: text.
        kind: its content type.
        headers: more of them.
        acknowledged: the event that the asker has agreed to; empty for none.
    """

    status: HTTPStatus
    body: str
    kind: str
    headers: Mapping[str, str] = field(default_factory=dict)
    acknowledged: str = ""
