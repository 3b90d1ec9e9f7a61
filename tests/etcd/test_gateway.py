"""The client of etcd's JSON gateway."""

import pytest

from etcd.gateway import EtcdMember, NoResponseError, Peers, call, read_members

CLOSED = "http://127.0.0.1:1"  # a port that nothing listens on


def test_a_member_without_a_name_has_not_started() -> None:
    body: dict[str, object] = {
        "members": [
            {"ID": "1", "name": "etcd-0", "peerURLs": ["http://etcd-0:2380"], "clientURLs": ["c"]},
            {"ID": "2", "peerURLs": ["http://etcd-1:2380"]},
        ]
    }

    assert read_members(body) == [
        EtcdMember(identifier="1", peer_url="http://etcd-0:2380", started=True),
        EtcdMember(identifier="2", peer_url="http://etcd-1:2380", started=False),
    ]
    assert read_members({}) == []


def test_an_unreachable_member_gives_no_response() -> None:
    with pytest.raises(NoResponseError, match=r"127\.0\.0\.1:1/v3/cluster/member/list"):
        call(CLOSED, "cluster/member/list", {})

    assert Peers(addresses=[CLOSED]).members() is None
