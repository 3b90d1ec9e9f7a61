"""Clients of the metadata services of both clouds.

A poll returns notices, or None if the response is not reliable. None must never count as the end of
a notice: the service tends to stall under load, when many machines are interrupted at the same time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from spot import aws, azure
from spot.http import HttpRequest, HttpResponse, UnavailableError, send
from spot.notice import Notice

LINK_LOCAL = "http://169.254.169.254"  # the same in both clouds
REQUEST_SECONDS = 2.0  # timeout; the service is on the machine's host and takes milliseconds
START_SECONDS = 5.0  # timeout of StartRequests, which involve the host's controller
UNAUTHORIZED, GATEWAY_TIMEOUT = 401, 504


class Metadata(Protocol):
    """The metadata service of a cloud."""

    def poll(self) -> tuple[Notice, ...] | None:
        """Return the notices for this machine; None if they are unknown."""

    def start(self, identifier: str) -> None:
        """Request that the cloud start an event now.

        Raises:
            UnavailableError: the cloud did not accept the request.
        """


@dataclass
class AwsMetadata:
    """The instance metadata service of EC2, version 2; Everstep's nodes disable version 1."""

    base_url: str = LINK_LOCAL
    _token: str = field(default="", repr=False)

    def poll(self) -> tuple[Notice, ...] | None:
        """Return the notices for this machine; None if they are unknown."""
        try:
            return aws.read(self._get(aws.ACTION_PATH), self._recommendation())
        except UnavailableError:
            return None

    def start(self, identifier: str) -> None:
        """Do nothing: EC2 does not start events early."""

    def _recommendation(self) -> HttpResponse:
        """Read the rebalance recommendation; if the service stalls, an interruption must count without it."""
        try:
            return self._get(aws.REBALANCE_PATH)
        except UnavailableError:
            return HttpResponse(GATEWAY_TIMEOUT)

    def _get(self, path: str) -> HttpResponse:
        """Read a path; renew the token if there is none or if it is refused."""
        response = self._send(path) if self._token else HttpResponse(UNAUTHORIZED)
        if response.status != UNAUTHORIZED:
            return response
        self._token = aws_token(self.base_url)
        return self._send(path)

    def _send(self, path: str) -> HttpResponse:
        request = HttpRequest(method="GET", path=path, headers={aws.TOKEN_HEADER: self._token})
        return send(self.base_url, request, REQUEST_SECONDS)


@dataclass
class AzureMetadata:
    """The Scheduled Events of Azure's instance metadata service.

    The first request activates the service and may take two minutes; a request that times out
    activates it, too.
    """

    base_url: str = LINK_LOCAL
    _machine: str | None = None

    def poll(self) -> tuple[Notice, ...] | None:
        """Return the notices for this machine; None if they are unknown."""
        try:
            events = self._get(azure.EVENTS_PATH)  # first, because it activates the service
            if self._machine is None:
                self._machine = azure.read_machine_name(self._get(azure.INSTANCE_PATH))
        except UnavailableError:
            return None
        return azure.read(events, self._machine) if self._machine is not None else None

    def start(self, identifier: str) -> None:
        """Request that Azure start an event now instead of at its deadline.

        Raises:
            UnavailableError: Azure did not respond, or refused the request.
        """
        headers: Mapping[str, str] = {**azure.HEADERS, "Content-Type": "application/json"}
        body = azure.start_request(identifier)
        request = HttpRequest(method="POST", path=azure.EVENTS_PATH, headers=headers, body=body)
        response = send(self.base_url, request, START_SECONDS)
        if response.status != 200:
            raise UnavailableError(f"StartRequests for {identifier}: HTTP {response.status}")

    def _get(self, path: str) -> HttpResponse:
        request = HttpRequest(method="GET", path=path, headers=azure.HEADERS)
        return send(self.base_url, request, REQUEST_SECONDS)


def aws_token(base_url: str) -> str:
    """Return a new session token of EC2's metadata service.

    Raises:
        UnavailableError: there is no response, or the response of another service, as on another cloud.
    """
    headers = {aws.TOKEN_TTL_HEADER: str(aws.TOKEN_TTL_SECONDS)}
    request = HttpRequest(method="PUT", path=aws.TOKEN_PATH, headers=headers)
    response = send(base_url, request, REQUEST_SECONDS)
    if response.status != 200:
        raise UnavailableError(f"the request for a session token failed: HTTP {response.status}")
    return response.body.decode("ascii", "replace").strip()


def detect(base_url: str = LINK_LOCAL) -> Metadata | None:
    """Return the metadata service that responds at `base_url`; None if none responds."""
    try:
        aws_token(base_url)
    except UnavailableError:
        pass
    else:
        return AwsMetadata(base_url)
    try:
        request = HttpRequest(method="GET", path=azure.INSTANCE_PATH, headers=azure.HEADERS)
        machine = azure.read_machine_name(send(base_url, request, REQUEST_SECONDS))
    except UnavailableError:
        return None
    return AzureMetadata(base_url, machine) if machine else None
