"""The download of the MNIST example by two workers of one machine, from a server on this machine."""

import gzip
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.examples.mnist import write_mnist

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "mnist" / "elastic.py"
TRAIN_IMAGES = "train-images-idx3-ubyte.gz"
OVERLAP_SECONDS = 3.0
"""Time for which the first download of the images waits for a second one."""

# Load the data as the script does, when the other process is ready to do so too, and end where the training begins.
PROGRAM = """
import json, pathlib, runpy, sys, time
from torchvision import datasets
from everstep import elastic
script, server, resources, folder, name, *arguments = sys.argv[1:]
datasets.MNIST.mirrors, datasets.MNIST.resources = [server], json.loads(resources)
elastic.Run = lambda *_, dataset, **__: sys.exit(0 if len(dataset) == 500 else 7)
pathlib.Path(folder, name).touch()
while len(list(pathlib.Path(folder).iterdir())) < 2:
    time.sleep(0.01)
sys.argv = [script, *arguments]
runpy.run_path(script, run_name="__main__")
"""


class SlowServer(ThreadingHTTPServer):
    """A server of files. The first download of the images ends while a second one is in progress, if there is one.

    Attributes:
        files: content by name.
        downloads: names of the files that were downloaded.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files, self.downloads = files, list[str]()
        self.second_began, self.first_ended = threading.Event(), threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: SlowServer

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if self.headers["Method"] == "HEAD":  # torchvision looks for redirects first
            self.send_response(200)
            self.end_headers()
            return
        is_second = name in self.server.downloads
        self.server.downloads.append(name)
        content = self.server.files[name]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        if name == TRAIN_IMAGES:
            self._wait_for_the_other(is_second=is_second)
        self.wfile.write(content[len(content) // 2 :])

    def _wait_for_the_other(self, *, is_second: bool) -> None:
        if is_second:
            self.server.second_began.set()
            self.server.first_ended.wait(2 * OVERLAP_SECONDS)
        elif self.server.second_began.wait(OVERLAP_SECONDS):
            time.sleep(0.5)  # the second process opens the file
            threading.Timer(0.5, self.server.first_ended.set).start()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SlowServer]:
    raw = write_mnist(tmp_path / "served", 500) / "MNIST" / "raw"
    files = {
        f"{path.name}.gz": gzip.compress(path.read_bytes(), 1, mtime=0) for path in raw.iterdir()
    }
    with SlowServer(files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_two_workers_that_start_together_download_the_data_once(
    tmp_path: Path, server: SlowServer
) -> None:
    digests = [
        (name, hashlib.md5(content, usedforsecurity=False).hexdigest())
        for name, content in server.files.items()
    ]
    names = ("train-images", "train-labels", "t10k-images", "t10k-labels")  # torchvision's order
    resources = [item for name in names for item in digests if item[0].startswith(name)]
    ready = tmp_path / "ready"
    ready.mkdir()
    address = f"http://127.0.0.1:{server.server_port}/"
    options = ["--data", str(tmp_path / "data"), "--run", str(tmp_path / "run")]
    workers = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", PROGRAM, str(SCRIPT), address, json.dumps(resources)),
                *(str(ready), name, *options),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in ("a", "b")
    ]
    logs = [worker.communicate(timeout=100)[0] for worker in workers]

    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(logs)
    assert sorted(server.downloads) == sorted(server.files)
