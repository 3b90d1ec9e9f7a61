"""The commands of docs/scaling.md until the first training begins."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from typer.main import get_command

from components.config import StackConfig, from_mapping
from everstep.cli.app import build_app
from everstep.cli.commands import scale as command
from everstep.cli.kubernetes_client import KubernetesClient
from everstep.cli.scaling.in_cluster import JOBS, ClusterStudy, derived_job
from everstep.cli.scaling.local import LocalStudy
from everstep.cli.scaling.measure import Study
from tests.components.test_stacks_declared import graph_of
from tests.everstep.cli.projects import shipped_stack
from tests.everstep.cli.scaling.test_cluster_study import FakeCluster
from tests.everstep.cli.test_documented_commands import ROOT, commands

COMMANDS = [
    line
    for line in commands(ROOT / "docs/scaling.md", "everstep")
    if line.startswith("everstep scale -")
]
EVERSTEP: Any = get_command(build_app())


class DeclaredCluster(FakeCluster):
    """A cluster with the ElasticJob that a stack declares; its training has ended."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        super().__init__()
        self._job = dict(job)

    def get(self, path: str, missing: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._job if path == f"{JOBS}/fashion" else super().get(path, missing)


@dataclass(frozen=True)
class DeclaredStack:
    """The context of a running stack, with the resources that its file declares."""

    stack: str
    job: str = "fashion"
    target: str = "cloud"
    platform: None = None

    @property
    def config(self) -> StackConfig:
        content = shipped_stack(self.stack)["config"]
        return from_mapping({key.removeprefix("everstep:"): content[key] for key in content})

    @property
    def workspace(self) -> "DeclaredStack":
        return self

    def elastic_job(self) -> Mapping[str, Any]:
        (job,) = graph_of(self.stack).of_type("ElasticJob")
        return job.inputs

    def connect(self) -> KubernetesClient:
        return cast("KubernetesClient", DeclaredCluster(self.elastic_job()))


class TrainingBeginsError(Exception):
    """All checks have passed, and the first training would begin."""


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_passes_all_checks_before_the_first_training(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies: list[tuple[Study, list[int]]] = []

    def measure(study: Study, numbers: list[int], *_: object, **__: object) -> None:
        study.check()
        studies.append((study, numbers))
        raise TrainingBeginsError

    monkeypatch.chdir(tmp_path)  # a local study writes its images below it
    monkeypatch.setattr(command, "measure", measure)
    monkeypatch.setattr(command, "open_running_stack", lambda stack, twin: DeclaredStack(stack))

    with pytest.raises(TrainingBeginsError):
        EVERSTEP.main(shlex.split(line)[1:], standalone_mode=False)

    ((study, numbers),) = studies
    if "--local" in line:
        assert isinstance(study, LocalStudy)
        return
    assert isinstance(study, ClusterStudy)
    job = study.client.get(f"{JOBS}/{study.job}")
    assert numbers
    for replicas in numbers:
        assert replicas <= job["spec"]["maxReplicas"], "the stack has no machines for more"
        assert derived_job(job, replicas, study.settings, "word")["spec"]["minReplicas"] == replicas


def test_the_page_has_studies_of_a_stack_with_etcd_users_and_of_this_machine() -> None:
    assert any("--stack eks-prod" in line for line in COMMANDS)
    assert any("--local" in line for line in COMMANDS)
