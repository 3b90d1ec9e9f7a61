"""What a user may get wrong, tried with the real command: a clear error, exit code 1, nothing lost."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everstep.cli.locks import only_one
from everstep.cli.machine import Check, require
from everstep.errors import EverstepError

REPOSITORY = Path(__file__).parents[3]
EVERSTEP = str(Path(sys.executable).parent / "everstep")

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: far, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: me, user: {token: not-a-secret}}]
contexts: [{name: far, context: {cluster: far, user: me}}]
current-context: far
"""


@pytest.fixture
def project(tmp_path):
    """A clone of its own: the real program, a stack file to spoil, state and home aside."""
    home = tmp_path / "clone"
    (home / "stacks").mkdir(parents=True)
    for name in ("Pulumi.yaml", "stacks/Pulumi.local.yaml"):
        shutil.copy(REPOSITORY / name, home / name)
    for name in ("components", "__main__.py", "manifests"):
        (home / name).symlink_to(REPOSITORY / name)
    return home


def everstep(project: Path, *arguments: str, prefix: tuple[str, ...] = ()):
    environment = {
        **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
        "EVERSTEP_STATE": str(project.parent / "state"),
        "EVERSTEP_TWIN": "bad-input",
    }
    return subprocess.run(
        [*prefix, EVERSTEP, *arguments],
        cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def fails(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def own_cluster(project: Path, kubeconfig: Path) -> None:
    file = project / "stacks" / "Pulumi.local.yaml"
    file.write_text(
        file.read_text().replace(
            "kind: existing", f"kind: existing\n    kubeconfig: {kubeconfig}", 1
        )
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try what it is not to be root")
def test_without_root_up_says_so_and_offers_a_cluster_of_the_users_own(project):
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--")

    done = everstep(project, "up", prefix=nobody)

    fails(done, "root", "uid 65534", "kubeconfig")
    assert not (project.parent / "state").exists(), "nothing was begun"


def test_a_stack_file_that_is_not_yaml_is_shown_where_it_breaks(project):
    file = project / "stacks" / "Pulumi.local.yaml"
    file.write_text("config:\n  everstep:job: {name: fashion\n  everstep:data: x}\n")

    fails(everstep(project, "up"), "is not YAML", "line 3")


def test_an_unknown_stack_is_answered_with_the_nearest(project):
    fails(
        everstep(project, "up", "--stack", "loca"), "no stack named 'loca'", "Did you mean local?"
    )


def test_a_misspelt_key_is_found_before_anything_is_built(project):
    file = project / "stacks" / "Pulumi.local.yaml"
    file.write_text(file.read_text().replace("minReplicas", "minReplcas"))

    done = everstep(project, "up")

    fails(done, "minReplcas", "minReplicas")
    assert not (project.parent / "state").exists(), "nothing was begun"


@pytest.mark.parametrize("command", ["status", "up", "follow"])
def test_a_cluster_that_does_not_answer_is_reported_within_ten_seconds(project, command):
    path = project.parent / "kubeconfig"
    path.write_text(KUBECONFIG)
    own_cluster(project, path)
    began = time.monotonic()

    done = everstep(project, command)

    fails(done.__class__(done.args, done.returncode, "", done.stderr[done.stderr.index("error:") :]),
          "192.0.2.1:6443 does not answer")  # fmt: skip
    assert time.monotonic() - began < 10 + 5, "five of them for Python itself on a busy machine"


def test_a_drill_on_a_cluster_of_ones_own_is_refused_before_anything_is_asked(project):
    own_cluster(project, project.parent / "kubeconfig")

    fails(everstep(project, "up", "--drill"), "--drill", "a cluster of your own")


def test_a_kubeconfig_that_is_not_there_is_named(project):
    own_cluster(project, project / "nowhere")

    fails(everstep(project, "status"), "nowhere")


def test_without_a_local_cluster_the_reading_commands_say_how_to_get_one(project):
    for command in (("status",), ("report",), ("follow",), ("drain", "gpu-1")):
        fails(everstep(project, *command), "up")


def test_the_second_of_two_ups_says_who_the_first_is_and_changes_nothing(project):
    lock = project.parent / "state" / "bad-input" / "up.lock"
    with only_one(lock, "`everstep up`", ""):
        done = everstep(project, "down")

    fails(done, "already running", f"process {os.getpid()}")


def test_everything_a_machine_lacks_is_named_at_once():
    bad = [
        Check("root", good=False, found="uid 1000", remedy="Use sudo."),
        Check("cgroups", good=False, found="none", remedy="Mount them."),
        Check("disk", good=False, found="1 GiB free", remedy="Free some.", fatal=False),
    ]

    with pytest.raises(EverstepError, match=r"root \(uid 1000\); cgroups \(none\)") as caught:
        require(bad)
    assert caught.value.remedy == "Use sudo.\nMount them."
    assert require(bad[2:]) == bad[2:], "little disk is a warning, not an end"
