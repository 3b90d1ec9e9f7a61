"""The cache of built programs: one build, staging folders, and versions that are removed."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.progress import Silent
from cloudtwin.toolchain import cache

KEY = "0123456789abcdef"


def builder(content: str) -> Callable[[Path], None]:
    """Return a function that builds a program with some content in a staging folder."""

    def build(staging: Path) -> None:
        (staging / "program").write_text(content)

    return build


def test_a_key_depends_on_the_boundaries_of_its_parts() -> None:
    assert cache.digest(["a", "b"]) != cache.digest(["ab"])
    assert cache.digest(["a", b"b"]) == cache.digest([b"a", "b"])
    assert len(cache.digest([])) == cache.KEY_LENGTH


def test_a_result_is_built_once(tmp_path: Path) -> None:
    first = cache.ensure(tmp_path, "tool", KEY, Silent(), builder("first"))
    second = cache.ensure(tmp_path, "tool", KEY, Silent(), builder("second"))

    assert first == second
    assert (second / "program").read_text() == "first"


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_a_build_that_fails_leaves_nothing_but_its_lock(
    tmp_path: Path, fault: type[BaseException]
) -> None:
    def fail(staging: Path) -> None:
        (staging / "half").write_text("half a program")
        raise fault

    with pytest.raises(fault):
        cache.ensure(tmp_path, "tool", KEY, Silent(), fail)

    assert [path.name for path in tmp_path.iterdir()] == ["tool.lock"]


def test_the_next_build_removes_the_staging_folder_of_a_killed_one(tmp_path: Path) -> None:
    abandoned_folder = tmp_path / f".staging-tool-{KEY}-dead"
    abandoned_folder.mkdir()
    other_build = tmp_path / f".staging-another-{KEY}-alive"
    other_build.mkdir()

    cache.ensure(tmp_path, "tool", KEY, Silent(), builder("whole"))

    assert not abandoned_folder.exists()
    assert other_build.exists(), "a build of another name may be running"


def test_a_build_keeps_the_staging_folder_of_another_name_that_begins_with_its_own(
    tmp_path: Path,
) -> None:
    running_build = tmp_path / f".staging-image-etcd-rejoin-{KEY}-alive"
    running_build.mkdir()

    cache.ensure(tmp_path, "image-etcd", KEY, Silent(), builder("etcd"))

    assert running_build.exists(), "another process is building that image"


def test_a_staging_folder_that_reappears_during_the_next_build_is_removed(
    tmp_path: Path,
) -> None:
    abandoned_folder = tmp_path / f".staging-tool-{KEY}-dead"
    abandoned_folder.mkdir()

    def build_during_a_concurrent_write(staging: Path) -> None:
        assert not abandoned_folder.exists()
        (abandoned_folder / "work").mkdir(parents=True)
        builder("whole")(staging)

    cache.ensure(tmp_path, "tool", KEY, Silent(), build_during_a_concurrent_write)

    assert not abandoned_folder.exists()


def test_concurrent_runs_share_one_build(tmp_path: Path) -> None:
    builds: list[Path] = []
    barrier = threading.Barrier(2)

    def run() -> None:
        barrier.wait()
        cache.ensure(tmp_path, "tool", KEY, Silent(), builds.append)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(builds) == 1


def test_the_last_used_versions_are_kept_and_older_ones_are_removed(tmp_path: Path) -> None:
    *old_keys, new_key = [f"{number:016x}" for number in range(cache.MAX_VERSIONS + 1)]
    for seconds, key in enumerate(old_keys):
        os.utime(cache.ensure(tmp_path, "tool", key, Silent(), builder(key)), (seconds, seconds))
    cache.ensure(tmp_path, "tool", old_keys[0], Silent(), builder("never"))  # used again

    cache.ensure(tmp_path, "tool", new_key, Silent(), builder(new_key))

    remaining = {path.name for path in cache.versions(tmp_path, "tool")}
    assert remaining == {f"tool-{key}" for key in (old_keys[0], *old_keys[2:], new_key)}


def test_the_error_for_a_full_disk_names_the_cause(tmp_path: Path) -> None:
    def fail_with_full_disk(staging: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(TwinError, match="disk filled up while building tool") as error:
        cache.ensure(tmp_path, "tool", KEY, Silent(), fail_with_full_disk)

    assert "CLOUDTWIN_CACHE" in error.value.fix
    assert [path.name for path in tmp_path.iterdir()] == ["tool.lock"]


def test_another_operating_system_error_is_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), cache.full_disk_explained(tmp_path, "looking"):
        raise PermissionError(errno.EACCES, "Permission denied")
