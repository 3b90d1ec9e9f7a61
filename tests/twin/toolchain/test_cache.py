import errno
import threading

import pytest

from everstep.errors import EverstepError
from everstep.progress import Silent
from twin.toolchain import cache

KEY = "0123456789abcdef"


def make(content):
    return lambda staging: (staging / "program").write_text(content)


def test_a_key_keeps_its_parts_apart():
    assert cache.digest(["a", "b"]) != cache.digest(["ab"])
    assert cache.digest(["a", b"b"]) == cache.digest([b"a", "b"])
    assert len(cache.digest([])) == cache.KEY_LENGTH


def test_a_thing_is_made_once(tmp_path):
    first = cache.ensure(tmp_path, "tool", KEY, Silent(), make("first"))
    second = cache.ensure(tmp_path, "tool", KEY, Silent(), make("second"))

    assert first == second
    assert (second / "program").read_text() == "first"


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_a_build_that_fails_leaves_nothing_but_its_lock(tmp_path, fault):
    def broken(staging):
        (staging / "half").write_text("half a program")
        raise fault

    with pytest.raises(fault):
        cache.ensure(tmp_path, "tool", KEY, Silent(), broken)

    assert [path.name for path in tmp_path.iterdir()] == ["tool.lock"]


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path):
    wreck = tmp_path / f".staging-tool-{KEY}-dead"
    wreck.mkdir()
    other = tmp_path / f".staging-another-{KEY}-alive"
    other.mkdir()

    cache.ensure(tmp_path, "tool", KEY, Silent(), make("whole"))

    assert not wreck.exists()
    assert other.exists(), "another thing's build may be running"


def test_what_outlives_a_killed_build_for_a_moment_brings_its_wreck_back_in_vain(tmp_path):
    wreck = tmp_path / f".staging-tool-{KEY}-dead"
    wreck.mkdir()

    def make_while_the_other_still_writes(staging):
        assert not wreck.exists()
        (wreck / "work").mkdir(parents=True)
        make("whole")(staging)

    cache.ensure(tmp_path, "tool", KEY, Silent(), make_while_the_other_still_writes)

    assert not wreck.exists()


def test_two_at_once_share_one_build(tmp_path):
    built = []
    barrier = threading.Barrier(2)

    def run():
        barrier.wait()
        cache.ensure(tmp_path, "tool", KEY, Silent(), built.append)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(built) == 1


def test_the_versions_used_last_are_kept_and_older_ones_go(tmp_path):
    keys = [f"{number:016x}" for number in range(cache.KEPT_VERSIONS + 2)]
    for key in keys:
        cache.ensure(tmp_path, "tool", key, Silent(), make(key))
        cache.ensure(tmp_path, "tool", keys[0], Silent(), make("never"))  # in use all the time

    left = {path.name for path in cache.versions(tmp_path, "tool")}
    assert len(left) == cache.KEPT_VERSIONS
    assert {f"tool-{keys[0]}", f"tool-{keys[-1]}"} <= left


def test_a_full_disk_is_said_to_be_one(tmp_path):
    def full(staging):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(EverstepError, match="disk ran full while making tool") as caught:
        cache.ensure(tmp_path, "tool", KEY, Silent(), full)

    assert "XDG_CACHE_HOME" in caught.value.remedy
    assert [path.name for path in tmp_path.iterdir()] == ["tool.lock"]


def test_another_fault_of_the_system_is_not_called_a_full_disk(tmp_path):
    with pytest.raises(PermissionError), cache.full_disk_explained(tmp_path, "looking"):
        raise PermissionError(errno.EACCES, "Permission denied")
