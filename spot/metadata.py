"""Asks the metadata service of either cloud what it announces.

A poll ends in notices or in None: nothing to rely on was said. None must never be taken for the end
of a notice, since a service that stalls under load does so just when many machines are taken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from spot import aws, azure
from spot.notice import Notice
from spot.wire import Answer, NoAnswer, Request, ask

LINK_LOCAL = "http://169.254.169.254"  # the same in both clouds
POLL_SECONDS = 2.0  # for each answer; a service on the machine's own host takes milliseconds
START_SECONDS = 5.0  # a StartRequests goes on to the host's controller
UNAUTHORIZED = 401


class Metadata(Protocol):
    """A cloud's metadata service."""

    def poll(self) -> tuple[Notice, ...] | None:
        """Say what is announced about this machine; None where that is not known."""

    def start(self, identifier: str) -> None:
        """Tell the cloud that it may go ahead.

        Raises:
            NoAnswer: it was not heard.
        """


@dataclass
class AwsMetadata:
    """The instance metadata service of EC2, version 2 only: version 1 is turned off on our nodes."""

    base: str = LINK_LOCAL
    _token: str = field(default="", repr=False)

    def poll(self) -> tuple[Notice, ...] | None:
        """Say what is announced about this machine; None where that is not known."""
        try:
            return aws.read(self._get(aws.ACTION_PATH), self._get(aws.REBALANCE_PATH))
        except NoAnswer:
            return None

    def start(self, identifier: str) -> None:
        """Do nothing: EC2 waits for nobody."""

    def _get(self, path: str) -> Answer:
        """Read a path; with a new token where the one at hand is refused, or there is none."""
        answer = self._ask(path) if self._token else Answer(UNAUTHORIZED)
        if answer.status != UNAUTHORIZED:
            return answer
        self._token = aws_token(self.base)
        return self._ask(path)

    def _ask(self, path: str) -> Answer:
        request = Request(method="GET", path=path, headers={aws.TOKEN_HEADER: self._token})
        return ask(self.base, request, POLL_SECONDS)


@dataclass
class AzureMetadata:
    """The Scheduled Events of Azure's instance metadata service.

    The first request arms the service and may take two minutes to be answered; it arms all the same
    when nobody waits for the answer.
    """

    base: str = LINK_LOCAL
    _machine: str | None = None

    def poll(self) -> tuple[Notice, ...] | None:
        """Say what is announced about this machine; None where that is not known."""
        try:
            events = self._get(azure.EVENTS_PATH)  # first, since this is what arms the service
            if self._machine is None:
                self._machine = azure.read_name(self._get(azure.INSTANCE_PATH))
        except NoAnswer:
            return None
        return azure.read(events, self._machine) if self._machine is not None else None

    def start(self, identifier: str) -> None:
        """Tell Azure that an event may start now rather than at its deadline.

        Raises:
            NoAnswer: it was not heard, or refused.
        """
        headers: Mapping[str, str] = {**azure.HEADERS, "Content-Type": "application/json"}
        body = azure.start_request(identifier)
        request = Request(method="POST", path=azure.EVENTS_PATH, headers=headers, body=body)
        answer = ask(self.base, request, START_SECONDS)
        if answer.status != 200:
            raise NoAnswer(f"StartRequests for {identifier} was answered with {answer.status}")

    def _get(self, path: str) -> Answer:
        return ask(self.base, Request(method="GET", path=path, headers=azure.HEADERS), POLL_SECONDS)


def aws_token(base: str) -> str:
    """Get a session token of EC2's metadata service.

    Raises:
        NoAnswer: nobody answered, or it was no token: another cloud's service, say.
    """
    headers = {aws.TOKEN_LIFE_HEADER: str(aws.TOKEN_LIFE_SECONDS)}
    answer = ask(base, Request(method="PUT", path=aws.TOKEN_PATH, headers=headers), POLL_SECONDS)
    if answer.status != 200:
        raise NoAnswer(f"a token was asked for and answered with {answer.status}")
    return answer.body.decode("ascii", "replace").strip()


def find(base: str = LINK_LOCAL) -> Metadata | None:
    """Say whose metadata service answers at `base`; None while that cannot be told."""
    try:
        aws_token(base)
    except NoAnswer:
        pass
    else:
        return AwsMetadata(base)
    try:
        request = Request(method="GET", path=azure.INSTANCE_PATH, headers=azure.HEADERS)
        named = azure.read_name(ask(base, request, POLL_SECONDS))
    except NoAnswer:
        return None
    return AzureMetadata(base, named) if named else None
