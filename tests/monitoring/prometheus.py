"""Prometheus and promtool from Debian's package, and a server that scrapes this machine.

The package is unpacked into the cache of built programs rather than installed: the installation would start a service.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cloudtwin.facade import cache_directory
from cloudtwin.images.confine import KILLED_WITH_PARENT

from tests.processes import free_port
from tests.waiting import wait_until

RULES = Path(__file__).parents[2] / "manifests" / "monitoring" / "rules.yaml"
START_SECONDS = 300  # timeout on a loaded machine
PACKAGE = "prometheus"
HOUR_SECONDS = 3600


@cache
def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; unpack the package if neither PATH nor the cache has it."""
    if path := shutil.which(name):
        return path
    folder = cache_directory() / "debian-prometheus"
    if not folder.exists():
        _unpack(folder)
    return str(folder / "usr" / "bin" / name)


def _unpack(folder: Path) -> None:
    """Download the package with apt and unpack it; the folder appears complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        result = _apt(work, "download", PACKAGE)
        if result.returncode:  # the package lists may be old or missing
            _apt(work, "update")
            result = _apt(work, "download", PACKAGE)
        assert result.returncode == 0, f"apt-get cannot download {PACKAGE}:\n{result.stderr}"
        (package,) = Path(work).glob(f"{PACKAGE}_*.deb")
        staging = Path(work) / "unpacked"
        subprocess.run(["dpkg-deb", "--extract", package, staging], check=True)
        try:
            staging.rename(folder)
        except OSError:  # another run was faster
            assert folder.exists()


def _apt(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def promtool(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool in a folder and return the result, whether it succeeds or fails."""
    return subprocess.run(
        [program("promtool"), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def backfill(folder: Path, series: str, value: float, hours: int) -> None:
    """Write samples of past full hours, the newest at least one hour old, into the data of a server not yet started.

    Args:
        folder: folder of the server.
        series: name of the series, which has no labels.
        value: value of every sample.
        hours: number of samples.
    """
    newest = int(time.time()) // HOUR_SECONDS * HOUR_SECONDS - HOUR_SECONDS
    times = range(newest - (hours - 1) * HOUR_SECONDS, newest + 1, HOUR_SECONDS)
    lines = [f"# TYPE {series} gauge", *(f"{series} {value} {at}" for at in times), "# EOF", ""]
    (folder / "history.txt").write_text("\n".join(lines))
    command = ("tsdb", "create-blocks-from", "openmetrics", "history.txt", "data")
    result = promtool(*command, folder=folder)
    assert result.returncode == 0, result.stdout + result.stderr


@dataclass(frozen=True)
class Prometheus:
    """A running server.

    Attributes:
        url: its address.
        log: file of its output.
    """

    url: str
    log: Path

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an API call.

        Raises:
            AssertionError: the server refuses it, for example because it cannot parse the query.
        """
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}") as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query."""
        result = self.get("query", query=expression)["result"]
        assert isinstance(result, list)
        return result

    def rules(self) -> list[dict[str, Any]]:
        """Return all rules with their health."""
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]


@contextmanager
def prometheus_server(
    folder: Path, targets: Mapping[str, int], *rules: Path
) -> Iterator[Prometheus]:
    """Yield a server that scrapes ports of this machine and evaluates the rules, both every half second.

    Args:
        folder: folder for its data.
        targets: ports by the name of the scrape job.
        rules: files with further rules.
    """
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(RULES), *map(str, rules)],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for name, port in targets.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port, log = free_port(), folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *KILLED_WITH_PARENT,
                program("prometheus"),
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=output,
            stderr=output,
            env={**os.environ, "GOMAXPROCS": "1"},
        )
    server = Prometheus(f"http://127.0.0.1:{port}", log)
    try:
        _wait_until_ready(server, process)
        yield server
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(server: Prometheus, process: subprocess.Popen[bytes]) -> None:
    def is_ready() -> bool:
        assert process.poll() is None, f"Prometheus has ended:\n{server.log.read_text()}"
        with suppress(OSError), urllib.request.urlopen(f"{server.url}/-/ready"):
            return True
        return False

    wait_until(is_ready, "Prometheus is ready", START_SECONDS, details=server.log.read_text)
