"""The examples of the elastic library, through evictions on this machine."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from components.config import from_mapping
from everstep.elastic.launch.launcher import DONE, NOTICE
from tests.everstep.elastic.launch.launched import WAIT_SECONDS, run_launcher
from tests.examples import script_page
from tests.examples.mnist import Journal, write_mnist
from tests.journals import completed_steps
from tests.trainer.elastic.nodes import running_etcd

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLAIN, ELASTIC = EXAMPLES / "mnist" / "plain.py", EXAMPLES / "mnist" / "elastic.py"
TRANSFORMER = EXAMPLES / "transformer" / "train.py"
SAMPLES, BATCH, EPOCHS = 2000, 100, 40
STEPS = SAMPLES // BATCH * EPOCHS

pytestmark = pytest.mark.timeout(4 * WAIT_SECONDS)


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """Return a data set of noisy copies of ten images in the format of MNIST."""
    return write_mnist(tmp_path / "data", SAMPLES)


def mnist_arguments(data: Path, run: Path) -> list[str]:
    return [
        *(str(ELASTIC), "--data", str(data), "--run", str(run)),
        *("--epochs", str(EPOCHS), "--global-batch", str(BATCH)),
    ]


def launch_options(endpoint: str, nnodes: str) -> list[str]:
    return ["--rendezvous-endpoint", endpoint, "--run-id", "example", "--nnodes", nnodes]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "etcd"
    folder.mkdir()
    with running_etcd(folder) as endpoint:
        yield endpoint


@pytest.mark.twin
def test_mnist_survives_the_crash_of_a_worker(tmp_path: Path, mnist: Path) -> None:
    run = tmp_path / "run"
    with run_launcher(tmp_path, "--nproc-per-node", "2", *mnist_arguments(mnist, run)) as launcher:
        reached_step = Journal(run).wait(launcher, workers=2)
        launcher.kill_worker()
        Journal(run).wait(launcher, workers=2, after=reached_step + 1)

        assert launcher.wait() == DONE, launcher.log

        assert "is gone" in launcher.log, "a worker was killed"
        assert f"epoch {EPOCHS}: accuracy 1.0000" in launcher.log
    steps = [step["step"] for step in Journal(run).steps()]
    assert sorted(set(steps)) == list(range(1, STEPS + 1)), "no step is lost"
    assert (run / "model.pt").exists()


@pytest.mark.twin
def test_a_group_of_fixed_size_waits_for_a_lost_node(
    tmp_path: Path, mnist: Path, etcd: str
) -> None:
    run = tmp_path / "run"
    arguments = [*launch_options(etcd, "2"), *mnist_arguments(mnist, run)]
    with contextlib.ExitStack() as stack:
        first_node, second_node = (
            stack.enter_context(run_launcher(tmp_path, *arguments, name=name))
            for name in ("n0", "n1")
        )
        reached_step = Journal(run).wait(first_node, workers=2)
        second_node.kill()
        first_node.wait_for("waiting for nodes: 1 of at least 2 ready; lost n1")
        restarted_node = stack.enter_context(run_launcher(tmp_path, *arguments, name="n1"))
        Journal(run).wait(first_node, workers=2, after=reached_step + 1)

        assert first_node.wait() == DONE, first_node.log
        assert restarted_node.wait() == DONE, restarted_node.log
    assert {step["world_size"] for step in Journal(run).steps()} == {2}, "never one node alone"


@pytest.mark.twin
def test_the_transformer_continues_when_a_node_is_drained(tmp_path: Path, etcd: str) -> None:
    pytest.importorskip("transformers", reason="`make test-examples` installs it")
    run = tmp_path / "run"
    arguments = [
        *launch_options(etcd, "1:2"),
        *("--preload", "transformers", str(TRANSFORMER), "--run", str(run), "--epochs", "3"),
        *("--samples", "4000", "--global-batch", "100", "--width", "32"),
    ]
    with contextlib.ExitStack() as stack:
        first_node, second_node = (
            stack.enter_context(run_launcher(tmp_path, *arguments, name=name))
            for name in ("n0", "n1")
        )
        reached_step = Journal(run).wait(first_node, workers=2)
        second_node.process.send_signal(signal.SIGTERM)

        assert second_node.wait() == NOTICE, second_node.log
        Journal(run).wait(first_node, workers=1, after=reached_step)
        assert first_node.wait() == DONE, first_node.log
        assert "epoch 3: " in first_node.log
    steps = completed_steps(Journal(run).steps())
    assert steps == list(range(1, 121)), "a drain costs no step"


def test_the_plain_script_trains(tmp_path: Path, mnist: Path) -> None:
    arguments = ["--data", str(mnist), "--run", str(tmp_path / "run"), "--epochs", "2"]

    result = subprocess.run(
        [sys.executable, PLAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )

    assert "epoch 2: accuracy 1.0000" in result.stdout
    assert (tmp_path / "run" / "model.pt").exists()


def test_the_page_shows_the_diff_of_the_scripts() -> None:
    content = script_page.PAGE.read_text(encoding="utf-8")

    assert content == script_page.page(), "run `make docs` and review the diff"


def test_the_stack_of_the_page_is_valid() -> None:
    text = script_page.PAGE.read_text(encoding="utf-8")
    stack = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])

    config = from_mapping({"job": stack["config"]["everstep:job"]})

    assert config.job.program == (
        "python3",
        "train.py",
        "--epochs",
        "90",
        "--run",
        "$(EVERSTEP_RUN)",
    )
