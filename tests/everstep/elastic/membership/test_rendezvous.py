"""The options of the rendezvous, without an etcd; the rendezvous itself is tested with a real one."""

import time
from pathlib import Path

import pytest
from torch.distributed.elastic.rendezvous.api import RendezvousParameters

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.events import Leave
from everstep.elastic.membership.generations import GroupLimits
from everstep.elastic.membership.rendezvous import BACKEND, EtcdV3Handler, _limits, _options
from everstep.errors import EverstepError


def parameters(**conf: str) -> RendezvousParameters:
    """Return torchrun's parameters with these options of `--rdzv_conf`."""
    return RendezvousParameters(BACKEND, "127.0.0.1:1", "run", 1, 3, **conf)


def test_the_options_have_the_defaults_of_the_client_and_of_the_limits() -> None:
    assert _options(parameters()) == EtcdOptions(endpoints=("127.0.0.1:1",))
    assert _limits(parameters()) == GroupLimits(min_members=1, max_members=3)


def test_the_options_are_passed_on(tmp_path: Path) -> None:
    password_file = tmp_path / "password"
    password_file.touch()
    conf = {"user": "agent", "password_file": str(password_file), "retry_seconds": "1.5"}

    assert _options(parameters(**conf)) == EtcdOptions(
        endpoints=("127.0.0.1:1",),
        user="agent",
        password_file=str(password_file),
        retry_seconds=1.5,
    )
    assert _limits(parameters(join_window_seconds="2")).join_window_seconds == 2.0


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("join_window_seconds", "8s", "a number"),
        ("retry_seconds", "-1", "a number"),
        ("retry_seconds", "nan", "a number"),
        ("lease_seconds", "2.5", "a whole number"),
    ],
)
def test_an_invalid_number_of_seconds_is_an_error_with_its_option(
    name: str, value: str, kind: str
) -> None:
    """The launcher would retry endlessly after any other exception."""
    with pytest.raises(
        EverstepError, match=f"{name} in --rdzv_conf is {value}, which is not {kind} of seconds"
    ):
        EtcdV3Handler(parameters(**{name: value}))


def test_a_node_whose_agent_does_not_follow_etcd_yet_has_nothing_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its launcher may wait for etcd, which would use up the grace period."""
    monkeypatch.setenv(AGENT_VARIABLE, str(tmp_path / "agent.sock"))
    handler = EtcdV3Handler(parameters())
    started_at = time.monotonic()

    handler.leave()
    assert handler.wait_departed(60)

    assert time.monotonic() - started_at < 5
    assert list(handler._agent._more_events()) == [Leave()], (
        "it departs if it starts in spite of that"
    )
    handler.shutdown()


@pytest.mark.parametrize("name", ["cacert", "cert", "key", "password_file"])
def test_a_file_that_does_not_exist_is_an_error_with_its_option(name: str, tmp_path: Path) -> None:
    """The error of the TLS library has no path, and a missing password looks like an etcd that does not respond."""
    path = tmp_path / "nowhere"

    with pytest.raises(
        EverstepError, match=f"{name} in --rdzv_conf is {path}, but there is no such file"
    ):
        EtcdV3Handler(parameters(**{name: str(path)}))


@pytest.mark.parametrize("name", ["cacert", "cert"])
def test_a_file_that_is_not_pem_is_an_error_with_its_path(name: str, tmp_path: Path) -> None:
    """The launcher would retry endlessly after the error of the TLS library."""
    path = tmp_path / "ca.pem"
    path.write_text("hello")

    with pytest.raises(EverstepError, match=f"the TLS files for etcd cannot be used: {path}: "):
        EtcdV3Handler(parameters(**{name: str(path)}))


def test_a_password_that_is_not_text_is_an_error_with_its_path(tmp_path: Path) -> None:
    """Otherwise it would look like an etcd that does not respond."""
    path = tmp_path / "password"
    path.write_bytes(b"secret\xff")

    with pytest.raises(
        EverstepError, match=f"cannot be read from {path}: it is not UTF-8 text"
    ) as error:
        EtcdV3Handler(parameters(user="agent", password_file=str(path)))
    assert error.value.__cause__ is None, "the other error quotes a byte of the password"
