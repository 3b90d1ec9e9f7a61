"""Requests to a machine's metadata service and their responses, for all clouds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus


@dataclass(frozen=True)
class MetadataRequest:
    """A request to the metadata service.

    Attributes:
        method: GET, PUT or POST.
        path: path of the request, without the query.
        query: parameters of the query.
        headers: values by names in lower case.
        body: the request's body.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class MetadataResponse:
    """A response of the metadata service.

    Attributes:
        status: the HTTP status.
        body: text of the response.
        content_type: type of the body.
        headers: additional headers.
        acknowledged_event: id of the event that the client acknowledged; empty for none.
    """

    status: HTTPStatus
    body: str
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    acknowledged_event: str = ""
