"""Groups of links in one process, one thread a worker: the sockets are real."""

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch
from torch._C._distributed_c10d import TCPStore

from everstep.elastic import copying
from everstep.elastic import link as link_module
from everstep.elastic.group import PeerLostError
from everstep.elastic.link import Link, Meeting
from everstep.elastic.live_worker import UnfitError, introduce
from everstep.elastic.recovery import Report, Standing, plan

CPU = torch.device("cpu")


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    wait = timedelta(seconds=20)
    store = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False, timeout=wait
    )
    yield store.port
    del store


def run(
    port: int,
    size: int,
    work: Callable[[Link], object],
    on_stall: Callable[[], None] = lambda: None,
) -> list[object]:
    """What each of `size` workers got, an error included, by rank."""
    results: list[object] = [None] * size

    def one(rank: int) -> None:
        link = Link(Meeting(os.getpid(), "127.0.0.1", port, rank, size), CPU, on_stall)
        try:
            link.meet()
            results[rank] = work(link)
        except PeerLostError as error:
            results[rank] = error
        finally:
            link.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_a_sum_is_over_all_workers(port):
    def work(link: Link) -> float:
        tensor = torch.full((3,), float(link.rank + 1))
        link.sum(tensor)
        return float(tensor[0])

    assert run(port, 3, work) == [6.0, 6.0, 6.0]


def test_an_abort_wakes_an_exchange_that_waits_for_a_silent_peer(port):
    released = threading.Event()

    def work(link: Link) -> float:
        if link.rank == 1:
            released.wait(20)  # frozen: its sockets stay open and it says nothing
            return 0.0
        threading.Timer(0.2, link.abort).start()
        began = time.monotonic()
        with pytest.raises(PeerLostError):
            link.sum(torch.ones(1000))
        released.set()
        return time.monotonic() - began

    waited = run(port, 2, work)[0]

    assert isinstance(waited, float)
    assert waited < 5, "without an abort it would wait for ten minutes"


class Stuck:
    """As gloo now and then when peers go while this process is frozen: what it began ends no more, nor does it."""

    ended = threading.Event()

    def __init__(self, *_: object) -> None: ...

    def allreduce(self, tensors: object) -> "Stuck":
        return self

    def wait(self) -> None:
        self.ended.wait(20)

    def __del__(self) -> None:
        self.ended.wait(20)


def test_an_exchange_that_never_ends_is_left_behind(port, monkeypatch):
    monkeypatch.setattr(link_module, "ProcessGroupGloo", Stuck)
    link = Link(Meeting(1, "127.0.0.1", port, 0, 2), CPU)
    link.meet()
    threading.Timer(0.2, link.abort).start()
    began = time.monotonic()

    with pytest.raises(PeerLostError, match="does not end"):
        link.sum(torch.ones(1000))
    link.close()

    assert time.monotonic() - began < 5, "neither it nor its backend's end are waited for"
    Stuck.ended.set()


def test_who_waits_for_longer_than_usual_says_so(port):
    words: list[float] = []

    def work(link: Link) -> list[int]:
        said = []
        for _ in range(2):
            if link.rank == 1:
                time.sleep(0.7)
            link.sum(torch.ones(1))
            said.append(len(words))
        return said

    def on_stall() -> None:
        words.append(time.monotonic())

    first, second = run(port, 2, work, on_stall)[0]

    assert first >= 3, "0.2 s are long, and then each tenth"
    assert second == first, "now as long is usual"


def test_an_abort_ends_a_meeting_whose_other_member_never_comes(port):
    link = Link(Meeting(1, "127.0.0.1", port, 0, 2), CPU)
    threading.Timer(0.2, link.abort).start()
    began = time.monotonic()

    with pytest.raises(PeerLostError, match="given up"):
        link.meet()

    assert time.monotonic() - began < 5, "the store is not waited for"


def test_a_group_that_was_given_up_takes_no_part_in_anything(port):
    link = Link(Meeting(2, "127.0.0.1", port, 0, 1), CPU)
    link.meet()
    link.abort()

    with pytest.raises(PeerLostError):
        link.sum(torch.ones(1))


def test_what_a_worker_lacks_is_copied_to_the_bit_and_nothing_else(port):
    def state(seed: int) -> list[torch.Tensor]:
        drawn = torch.Generator().manual_seed(seed)  # of its own: the workers here are threads
        kernel = torch.randn(4, 3, 3, 3, generator=drawn).to(memory_format=torch.channels_last)
        return [kernel, torch.randn(7, generator=drawn), torch.tensor(5), torch.ones(2)]

    expected = state(1)

    def work(link: Link) -> list[torch.Tensor]:
        parts = state(0 if link.rank == 2 else 1)
        ahead = Standing(4, 9 if link.rank == 2 else 10)
        computed = ((link.rank, link.rank + 1), (6 + link.rank, 9))
        reports = copying.compare(link, Report(ahead, kept=computed), parts)
        assert [report.kept for report in reports] == [((n, n + 1), (6 + n, 9)) for n in range(3)]
        chosen = plan(reports)
        assert chosen is not None
        assert chosen.holders == (0, 1)
        assert chosen.lacks == {2: (0, 1)}, "equal parts are not sent"
        copying.copy(link, chosen, parts)
        return parts

    for parts in run(port, 3, work):
        assert isinstance(parts, list), parts
        assert all(torch.equal(mine, due) for mine, due in zip(parts, expected, strict=True))


def test_a_newcomer_with_other_settings_finds_itself_unfit_and_the_others_do_not(port):
    def work(link: Link) -> object:
        try:
            return introduce(link, "resnet50" if link.rank == 2 else "resnet18")
        except UnfitError as error:
            return error

    first, second, newcomer = run(port, 3, work)

    assert (first, second) == (3, 3), "all three are on this machine"
    assert isinstance(newcomer, UnfitError)


def test_a_flipped_bit_changes_a_checksum():
    part = torch.ones(1001)
    before = copying.checksums([part])
    part.view(torch.int32)[1000] ^= 1

    assert copying.checksums([part]) != before
