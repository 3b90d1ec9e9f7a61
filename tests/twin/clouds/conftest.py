"""A Pulumi project on the twin's clouds: the real engine, our providers, an account of the test's own."""

import json
import os
import signal
import subprocess
import textwrap
from pathlib import Path

import pytest

from everstep.progress import Lines
from twin.clouds import install
from twin.pulumi import install_plugins

COMMAND_SECONDS = 200


class Project:
    """One Pulumi project with one stack, and the account that it is about."""

    def __init__(self, folder: Path, pulumi: Path, environment: dict[str, str]) -> None:
        self.folder, self._pulumi, self.environment = folder, pulumi, environment
        (folder / "Pulumi.yaml").write_text("name: probe\nruntime: python\n")
        self.program("")
        self.pulumi("stack", "init", "test")

    @property
    def cloud(self) -> Path:
        """The folder of the account."""
        return Path(self.environment["EVERSTEP_STATE"], self.environment["EVERSTEP_TWIN"], "cloud")

    def account(self, cloud: str = "aws") -> list[dict]:
        path = self.cloud / f"account-{cloud}.json"
        return json.loads(path.read_text())["resources"] if path.exists() else []

    def faults(self, *faults: dict, **rest: object) -> None:
        self.cloud.mkdir(parents=True, exist_ok=True)
        (self.cloud / "faults-used.json").unlink(missing_ok=True)
        (self.cloud / "faults.json").write_text(json.dumps({"faults": faults, **rest}))

    def program(self, text: str) -> None:
        head = "import json\nimport pulumi\nfrom pulumi import ResourceOptions as Opts\n"
        (self.folder / "__main__.py").write_text(head + textwrap.dedent(text))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
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

    def destroy(self, *, fails: bool = False) -> str:
        return self.pulumi("destroy", "--yes", "--skip-preview", fails=fails)

    def preview(self) -> dict[str, str]:
        """What a preview would do to each resource, by name."""
        found: dict[str, str] = {}
        for step in json.loads(self.pulumi("preview", "--json"))["steps"]:
            found.setdefault(step["urn"].rpartition("::")[2], step["op"])
        return found

    def resources(self) -> dict[str, dict]:
        state = json.loads(self.pulumi("stack", "export"))
        return {
            each["urn"].rpartition("::")[2]: each
            for each in state["deployment"].get("resources", [])
        }


@pytest.fixture(scope="session")
def pulumi_program() -> Path:
    """The Pulumi engine; EVERSTEP_TEST_PULUMI names one that is built already."""
    if given := os.environ.get("EVERSTEP_TEST_PULUMI"):
        return Path(given)
    from twin.toolchain import ensure_tools

    return ensure_tools(["pulumi"], Lines())["pulumi"]


@pytest.fixture(scope="session")
def plugins(pulumi_program, tmp_path_factory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("pulumi-home")
    for cloud in ("aws", "azure-native"):
        install(home, cloud)
    return install_plugins(home, pulumi_program)


@pytest.fixture
def project(tmp_path, pulumi_program, plugins) -> Project:
    """A project whose clouds keep books only, in a folder of its own."""
    state, folder = tmp_path / "state", tmp_path / "project"
    state.mkdir()
    folder.mkdir()
    environment = {
        **plugins,
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_CONFIG_PASSPHRASE": "test",
        "EVERSTEP_STATE": str(tmp_path / "twin"),
        "EVERSTEP_TWIN": "default",
        "EVERSTEP_PAPER_CLOUD": "1",
    }
    return Project(folder, pulumi_program, environment)
