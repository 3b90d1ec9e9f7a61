"""The addresses of peers, with a resolver that fails as DNS does."""

import queue
import socket
from collections.abc import Callable
from typing import Any

import pytest

from everstep.elastic.membership import peer_addresses
from everstep.elastic.membership.peer_addresses import PeerAddresses
from tests.waiting import wait_until

TIMEOUT_SECONDS = 60.0  # limit on a loaded machine


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[str]:
    """Record the names that are looked up; the first lookup of each fails, as before a DNS record exists."""
    names: queue.SimpleQueue[str] = queue.SimpleQueue()
    real: Callable[..., Any] = socket.getaddrinfo
    failed = set[str]()

    def getaddrinfo(host: str, *args: Any, flags: int = 0, **kwargs: Any) -> Any:
        if flags & socket.AI_NUMERICHOST:
            return real(host, *args, flags=flags, **kwargs)
        names.put(host)
        if host not in failed:
            failed.add(host)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real("127.0.0.9", *args, flags=flags, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


def test_a_name_that_did_not_resolve_is_resolved_again(
    lookups: queue.SimpleQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_addresses, "RESOLVE_INTERVAL_SECONDS", 0.0)
    addresses = PeerAddresses(socket.AF_INET)

    wait_until(
        lambda: addresses.find("peer:29") == ("127.0.0.9", 29),
        "the name has an address",
        TIMEOUT_SECONDS,
    )

    assert addresses.find("peer:29") == ("127.0.0.9", 29)
    assert lookups.qsize() == 2, "the second lookup has succeeded"


def test_a_failed_lookup_is_not_repeated_before_the_interval_is_over(
    lookups: queue.SimpleQueue[str],
) -> None:
    addresses = PeerAddresses(socket.AF_INET)

    assert addresses.find("peer:29") is None
    lookups.get(timeout=TIMEOUT_SECONDS)
    wait_until(
        lambda: addresses._resolve_at["peer:29"] < float("inf"),
        "the lookup has ended",
        TIMEOUT_SECONDS,
    )

    assert [addresses.find("peer:29") for _ in range(100)] == [None] * 100
    assert lookups.empty()


@pytest.mark.parametrize(
    ("family", "endpoint", "address"),
    [
        (socket.AF_INET, "10.0.0.7:29", ("10.0.0.7", 29)),
        (socket.AF_INET6, "2001:db8::7:29", ("2001:db8::7", 29, 0, 0)),
        (socket.AF_INET6, "10.0.0.7:29", ("::ffff:10.0.0.7", 29, 0, 0)),
        (socket.AF_INET, "", None),
    ],
)
def test_an_address_and_an_empty_endpoint_need_no_lookup(
    lookups: queue.SimpleQueue[str], family: int, endpoint: str, address: object
) -> None:
    assert PeerAddresses(family).find(endpoint) == address
    assert lookups.empty()
