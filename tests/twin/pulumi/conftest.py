"""A Pulumi project on a cluster of its own: the real engine, our plugins, a real API server without machines."""

import json
import os
import signal
import subprocess
import textwrap
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config

from everstep.progress import Lines
from twin.pulumi import install_plugins

COMMAND_SECONDS = 110


class Project:
    """One Pulumi project with one stack and a state of its own."""

    def __init__(self, folder: Path, pulumi: Path, environment: dict[str, str]) -> None:
        self.folder, self._pulumi = folder, pulumi
        self.environment = environment
        (folder / "Pulumi.yaml").write_text("name: probe\nruntime: python\n")
        self.program("")
        self.pulumi("stack", "init", "test")

    def program(self, text: str) -> None:
        """Write the program; what every one of them needs is imported already."""
        head = """
import os
import pulumi
import pulumi_kubernetes as k8s
from pulumi import ResourceOptions as Opts
namespace = os.environ["NAMESPACE"]
"""
        (self.folder / "__main__.py").write_text(head + textwrap.dedent(text))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `pulumi`, in a process group of its own as a terminal would."""
        return subprocess.Popen(
            [self._pulumi, *arguments, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        """Run `pulumi`; return what it prints."""
        running = self.start(*arguments)
        try:
            output, _ = running.communicate(timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            raise
        assert (running.returncode != 0) == fails, f"pulumi {' '.join(arguments)}:\n{output}"
        return output

    def up(self, *arguments: str, fails: bool = False) -> str:
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, fails=fails)

    def preview(self) -> dict[str, str]:
        """Return what a preview would do to each resource, by name."""
        steps = json.loads(self.pulumi("preview", "--json"))["steps"]
        found: dict[str, str] = {}
        for step in steps:
            found.setdefault(step["urn"].rpartition("::")[2], step["op"])
        return found

    def resources(self) -> dict[str, dict]:
        """Return the resources of the state, by name."""
        state = json.loads(self.pulumi("stack", "export"))
        return {
            each["urn"].rpartition("::")[2]: each
            for each in state["deployment"].get("resources", [])
        }


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory) -> Iterator[Path]:
    """A real API server with its controllers; EVERSTEP_TEST_KUBECONFIG names one that stands already."""
    if given := os.environ.get("EVERSTEP_TEST_KUBECONFIG"):
        yield Path(given)
        return
    from twin.nodes import Twin

    twin = Twin.open(f"pulumi-test-{os.getpid()}")
    try:
        twin.up([], Lines())
        yield twin.kubeconfig
    finally:
        twin.down(Lines())


@pytest.fixture(scope="session")
def pulumi_program() -> Path:
    """The Pulumi engine; EVERSTEP_TEST_PULUMI names one that is built already."""
    if given := os.environ.get("EVERSTEP_TEST_PULUMI"):
        return Path(given)
    from twin.toolchain import ensure_tools

    return ensure_tools(["pulumi"], Lines())["pulumi"]


@pytest.fixture(scope="session")
def plugins(pulumi_program, tmp_path_factory) -> dict[str, str]:
    return install_plugins(tmp_path_factory.mktemp("pulumi-home"), pulumi_program)


@pytest.fixture
def project(tmp_path, pulumi_program, plugins, kubeconfig, namespace) -> Project:
    """A project whose default provider is the cluster, in the test's own namespace."""
    state = tmp_path / "state"
    state.mkdir()
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(
        folder,
        pulumi_program,
        {
            **plugins,
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "KUBECONFIG": str(kubeconfig),
            "NAMESPACE": namespace,
        },
    )


@pytest.fixture(scope="session")
def api(kubeconfig) -> client.CoreV1Api:
    """The cluster as somebody other than Pulumi sees it."""
    return client.CoreV1Api(config.new_client_from_config(str(kubeconfig)))


@pytest.fixture
def namespace(api) -> Iterator[str]:
    """A namespace for one test; its contents go with it, in the background."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    api.create_namespace({"metadata": {"name": name}})
    deadline = time.monotonic() + 10
    while not api.list_namespaced_config_map(name).items and time.monotonic() < deadline:
        time.sleep(
            0.05
        )  # until the controllers have filled it, or the first refresh would see them do so
    yield name
    api.delete_namespace(name)
