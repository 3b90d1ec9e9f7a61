"""The processes of the data path: crashes and clean-up."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from everstep.progress import Silent
from tests.trainer.data.photographs import open_splits, write_photographs
from tests.trainer.elastic.nodes import REPOSITORY, Nodes, running_etcd
from tests.waiting import wait_until
from trainer import data
from trainer.data.convert import convert
from trainer.data.loader import Readers
from trainer.data.shard import Resizing

pytestmark = pytest.mark.twin
SIZE = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("photographs"), per_class=80)


def test_a_killed_reader_is_replaced_without_loss(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train, test = open_splits(folder, SIZE)
    readers = Readers(train, test, count=1, slots=40)
    try:
        keys = [(0, sample, sample) for sample in range(20)]
        readers.prefetch(0, keys)
        os.kill(readers.process_ids[0], signal.SIGKILL)

        images = readers.take(keys)

        for sample in range(20):
            output = np.empty((SIZE, SIZE, 3), np.uint8)
            train.render(sample, sample, output)
            assert np.array_equal(images[sample], output)
        assert "was killed by signal 9" in caplog.text
    finally:
        readers.close()


def test_readers_ignore_sigterm_and_end_with_their_worker_even_if_it_is_killed(
    folder: Path,
) -> None:
    script = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from tests.trainer.data.photographs import open_splits\n"
        "from trainer.data.loader import Readers\n"
        f"readers = Readers(*open_splits(Path(sys.argv[1]), {SIZE}), 1, 8)\n"
        "readers.take([(0, 0, 0)])\n"
        "(reader,) = readers.process_ids\n"
        "os.kill(reader, signal.SIGTERM)\n"
        "readers.take([(0, 1, 1)])\n"
        "print(reader, *readers.process_ids, flush=True)\n"
        "time.sleep(600)\n"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    try:
        with worker.stdout as output:
            reader, reader_after_sigterm = map(int, output.readline().split())
        assert reader_after_sigterm == reader, "a reader must not end while its worker trains"
        handle = os.pidfd_open(reader)
    finally:
        worker.kill()
        worker.wait()

    try:
        assert wait_for_end(handle, 100), "a reader without a worker must not keep running"
    finally:
        os.close(handle)


def wait_for_end(handle: int, seconds: float) -> bool:
    """Return True if the process of a pidfd ends in time."""
    return bool(select.select([handle], [], [], seconds)[0])


def test_shards_do_not_depend_on_the_number_of_processes(folder: Path, tmp_path: Path) -> None:
    identities = set()
    for processes in (1, 3):
        output = tmp_path / str(processes)
        convert(folder, output, Resizing(short_side=32), processes, Silent())
        identities.add(data.load("imagefolder", output, "train", SIZE).identity)

    assert len(identities) == 1


def test_an_interrupted_conversion_reports_it_and_can_be_resumed(
    folder: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "trainer.prepare", "--dataset=imagefolder", "--processes=2"]
    command += [f"--source={folder}", f"--output={tmp_path / 'shards'}", "--short-side=32"]
    # Tests that run in the background ignore SIGINT, and so do all their children.
    interruptible_command = ["env", "--default-signal=INT", *command]
    with subprocess.Popen(interruptible_command, stderr=subprocess.PIPE, text=True) as conversion:
        assert conversion.stderr is not None
        assert "Converting" in conversion.stderr.readline()
        conversion.send_signal(signal.SIGINT)
        output = conversion.stderr.read()

    assert conversion.returncode == 130
    assert "run it again to continue" in output
    assert "Traceback" not in output
    assert not (tmp_path / "shards").exists()
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.timeout(600)
def test_readers_survive_a_change_of_the_group_and_end_with_their_node(
    tmp_path: Path,
) -> None:
    data_folder = write_photographs(tmp_path / "photographs", per_class=40)
    options = ["--model", "resnet18", "--dataset", "imagefolder", "--data", str(data_folder)]
    options += ["--image-size=32", "--global-batch=8", "--epochs=1000", "--loader-workers=2"]
    with running_etcd(tmp_path) as etcd:
        nodes = Nodes(tmp_path, etcd, options, preloaded=True)
        try:
            for name in ("w0", "w1"):
                nodes.start(name)
            nodes.next_step(0, world_size=2, seconds=300)
            remaining_readers, leaving_readers = readers_of(nodes, "w0"), readers_of(nodes, "w1")

            drained_at = time.time()
            nodes.signal_agent("w1", signal.SIGTERM)
            assert nodes.exit_code("w1", 240) == 143, nodes.logs()
            step_after_drain = nodes.next_step(drained_at, world_size=1)

            assert step_after_drain["step"] == nodes.last_step_before(step_after_drain) + 1, (
                "an announced departure costs no step"
            )
            assert len(remaining_readers) == len(leaving_readers) == 2
            assert readers_of(nodes, "w0") == remaining_readers, (
                "the new group changes only the requested samples"
            )
            wait_until(
                lambda: not readers_of(nodes, "w1"), "the readers of the node that left end", 100
            )
        finally:
            nodes.close()


def readers_of(nodes: Nodes, name: str) -> set[int]:
    """Return the process ids of a node's readers."""
    pids = set()
    for process in nodes.processes(name):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            if b"trainer.data.reader" in Path(f"/proc/{process}/cmdline").read_bytes():
                pids.add(process)
    return pids
