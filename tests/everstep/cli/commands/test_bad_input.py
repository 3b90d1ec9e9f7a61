"""User errors with the real command: a clear message, exit code 1, no change."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.cli.engine.file_lock import exclusive_lock

REPOSITORY = Path(__file__).parents[4]
EVERSTEP = str(Path(sys.executable).parent / "everstep")

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: silent, cluster: {server: "https://127.0.0.1:PORT"}}]
users: [{name: me, user: {token: not-a-secret}}]
contexts: [{name: silent, context: {cluster: silent, user: me}}]
current-context: silent
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the project whose stack file and state a test may change."""
    home = tmp_path / "clone"
    (home / "stacks").mkdir(parents=True)
    for name in ("Pulumi.yaml", "stacks/Pulumi.local.yaml"):
        shutil.copy(REPOSITORY / name, home / name)
    for name in ("components", "__main__.py", "manifests"):
        (home / name).symlink_to(REPOSITORY / name)
    return home


def everstep(
    project: Path, *arguments: str, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        "EVERSTEP_STATE": str(project.parent / "state"),
        "EVERSTEP_TWIN": "bad-input",
    }
    return subprocess.run(
        [*prefix, EVERSTEP, *arguments],
        cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip


def check_failure(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert result.returncode == 1, result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr


def use_own_cluster(project: Path, kubeconfig: Path) -> None:
    file = project / "stacks" / "Pulumi.local.yaml"
    file.write_text(
        file.read_text().replace(
            "kind: existing", f"kind: existing\n    kubeconfig: {kubeconfig}", 1
        )
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can drop its privileges")
def test_up_without_root_is_refused_and_suggests_an_existing_cluster(project: Path) -> None:
    prefix = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")

    result = everstep(project, "up", prefix=prefix)

    check_failure(result, "root", "uid 65534", "kubeconfig")
    assert not (project.parent / "state").exists(), "a refused command must not create state"


def test_a_misspelled_key_is_found_before_anything_is_built(project: Path) -> None:
    file = project / "stacks" / "Pulumi.local.yaml"
    file.write_text(file.read_text().replace("minReplicas", "minReplcas"))

    result = everstep(project, "up")

    check_failure(result, "minReplcas", "minReplicas")
    assert not (project.parent / "state").exists(), "a refused command must not create state"


@pytest.mark.parametrize("command", ["preview", "up"])
def test_a_deadline_in_the_past_is_refused_before_anything_is_built(
    project: Path, command: str
) -> None:
    file = project / "stacks" / "Pulumi.local.yaml"
    limits = 'deadline: "2020-01-01T00:00:00Z"\n    onDemand: never'
    file.write_text(file.read_text().replace("everstep:job:", f"everstep:job:\n    {limits}", 1))

    result = everstep(project, command)

    check_failure(
        result, "everstep:job.deadline: 2020-01-01T00:00:00Z", "is in the past; set a later time"
    )
    assert not (project.parent / "state").exists(), "a refused command must not create state"


@pytest.mark.parametrize("command", ["status", "up --yes", "follow"])
def test_a_cluster_that_does_not_respond_is_named(
    project: Path, command: str, refusing_port: int
) -> None:
    path = project.parent / "kubeconfig"
    path.write_text(KUBECONFIG.replace("PORT", str(refusing_port)))
    use_own_cluster(project, path)

    result = everstep(project, *command.split())

    error = result.stderr[result.stderr.index("error:") :]  # without progress lines
    check_failure(
        subprocess.CompletedProcess(result.args, result.returncode, "", error),
        f"127.0.0.1:{refusing_port} does not respond",
    )


def test_a_drill_on_an_existing_cluster_is_refused_before_any_request(
    project: Path,
) -> None:
    use_own_cluster(project, project.parent / "kubeconfig")

    check_failure(everstep(project, "up", "--drill"), "--drill", "a cluster of your own")


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ("--drill --detach", "--drill"),
        ("--target registry --drill", "--drill"),
        ("--target registry --policy-pack policy", "--policy-pack"),
    ],
)
def test_an_option_that_another_option_would_disable_is_refused(
    project: Path, options: str, ignored: str
) -> None:
    # The stack does not exist, so that nothing starts even without the check.
    result = everstep(project, "up", "--stack", "nowhere", *options.split())

    check_failure(result, ignored, "Omit")
    assert not (project.parent / "state").exists(), "a refused command must not create state"


def test_a_missing_kubeconfig_is_reported_with_its_path(project: Path) -> None:
    use_own_cluster(project, project / "nowhere")

    check_failure(everstep(project, "status"), "nowhere")


@pytest.mark.parametrize("command", ["status", "follow", "drain gpu-1"])
def test_commands_that_need_a_local_cluster_suggest_up(project: Path, command: str) -> None:
    result = everstep(project, *command.split())

    check_failure(result, "there is no local cluster", "`everstep up` starts one")


def test_a_concurrent_command_is_refused_with_the_running_process(project: Path) -> None:
    lock = project.parent / "state" / "bad-input" / "up.lock"
    with exclusive_lock(lock, "`everstep up`", ""):
        result = everstep(project, "down")

    check_failure(result, "already running", f"process {os.getpid()}")
