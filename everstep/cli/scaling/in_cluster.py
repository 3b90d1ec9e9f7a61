"""Measurement of the speed of a group on a stack's nodes, with an ElasticJob that is derived from the stack's job."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

from everstep.catalog import trainer_options
from everstep.catalog.names import (
    ELASTICJOB_API_VERSION,
    ELASTICJOB_KIND,
    ELASTICJOB_PLURAL,
    GPU_RESOURCE,
    JOB_NAME_LABEL,
    JOB_NAMESPACE,
    MOUNT,
    SCALING_ANNOTATION,
    SCALING_FIXED,
)
from everstep.cli.kubernetes_client import (
    ClusterUnreachableError,
    KubernetesClient,
    Response,
    retry_while_unreachable,
    true_conditions,
)
from everstep.cli.pod_affinity import relabel
from everstep.cli.report.final_record import final_record
from everstep.cli.report.readers import RunReader
from everstep.cli.scaling.local import TrainerSettings, note_steps
from everstep.cli.scaling.study import SizeResult, size_result
from everstep.errors import EverstepError
from everstep.progress import Progress, Step

JOBS = f"/apis/{ELASTICJOB_API_VERSION}/namespaces/{JOB_NAMESPACE}/{ELASTICJOB_PLURAL}"
PROGRAM = "trainer.train"
CONNECTION = "--rdzv_conf="  # torchrun's option that configures the connection to etcd
POLL_SECONDS = 1.0
MAX_SECONDS = 24 * 3600
"""Longest run of one size: a job that a killed study has left behind must not use billed nodes without end."""
CORE = f"/api/v1/namespaces/{JOB_NAMESPACE}"
Json = dict[str, Any]


class OpenReader(Protocol):
    """A function that opens the run of a job."""

    def __call__(self, job: str) -> RunReader:
        """Return a reader of the run, with all steps."""


@dataclass(frozen=True)
class ClusterStudy:
    """A study in a cluster.

    Attributes:
        client: client of the cluster.
        job: name of the stack's ElasticJob.
        settings: settings of the trainer.
        open_reader: function that opens the run of a job.
        wait_seconds: maximum number of seconds until a group completes its first step.
        sleep: function that waits between two polls.
        clock: a monotonic clock, seconds.
    """

    client: KubernetesClient
    job: str
    settings: TrainerSettings
    open_reader: OpenReader
    wait_seconds: int
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def check(self) -> None:
        """Check that the stack's job exists, uses the trainer, and leaves its nodes to the study.

        Raises:
            EverstepError: the job does not meet these conditions.
        """
        processes_per_replica(self._stack_job())
        kinds = {condition.type for condition in self.client.conditions(self.job)}
        if not kinds & {"Succeeded", "Failed", "Suspended"}:
            raise EverstepError(
                f"the training {self.job} uses the nodes of the stack",
                "Wait until it has finished: `everstep follow` shows it.",
            )

    def fingerprint(self, stack_settings: Mapping[str, Any]) -> str:
        """Return a hash of all that a measurement depends on and the study does not set.

        Args:
            stack_settings: the machines and the data of the stack, as plain values.

        Raises:
            EverstepError: the stack has no job, or its program is not the trainer.
        """
        job = derived_job(self._stack_job(), 1, self.settings, fresh="")
        return fingerprint(job, stack_settings)

    def measure(self, replicas: int, progress: Progress) -> SizeResult:
        """Train with this number of replicas and return their speed.

        Raises:
            EverstepError: the job fails, is deleted by others, completes no step in time, records too few steps or a
                group of another size, or cannot be deleted; or pods of an earlier job remain.
        """
        stack_job = self._stack_job()
        fresh = str(int(time.time()))
        study_job = derived_job(stack_job, replicas, self.settings, fresh)
        name = str(study_job["metadata"]["name"])
        reader = self.open_reader(name)
        self._delete(name)  # left by a killed study
        self._wait_until_gone(name)
        try:
            self.client.create(JOBS, study_job)
            with progress.step(f"Training with a group of {replicas}") as step:
                self._follow(name, reader, step)
            run = self._with_retries(
                lambda: final_record(reader, ended=True)
            )  # while the job exists
        finally:
            self._delete(name)
        return size_result(run, replicas, replicas * processes_per_replica(stack_job))

    def _delete(self, name: str) -> None:
        """Delete a job of a study; it may not exist.

        Raises:
            EverstepError: the API server has not responded for a minute.
        """
        try:
            self._with_retries(lambda: self.client.delete(f"{JOBS}/{name}"))
        except ClusterUnreachableError as error:
            raise EverstepError(
                f"the job {name} of the study could not be deleted: {error.problem}",
                f"Run the command again, or delete it: kubectl -n {JOB_NAMESPACE} delete "
                f"{ELASTICJOB_PLURAL} {name}",
            ) from error

    def _wait_until_gone(self, name: str) -> None:
        """Wait until no pod of an earlier job of this name is left."""
        deadline = self.clock() + self.wait_seconds
        path = f"{CORE}/pods?labelSelector={JOB_NAME_LABEL}%3D{name}"
        while self.client.get(path)["items"]:
            if self.clock() > deadline:
                raise EverstepError(
                    f"pods of an earlier job {name} still exist after {self.wait_seconds} s",
                    "Their nodes may be gone: `everstep status` shows them.",
                )
            self.sleep(POLL_SECONDS)

    def _stack_job(self) -> Mapping[str, Any]:
        job = self.client.get(f"{JOBS}/{self.job}", missing={})
        if not job:
            raise EverstepError(
                f"there is no ElasticJob {self.job} in the namespace {JOB_NAMESPACE}",
                "The study takes nodes, image and data from it: run `everstep up` first.",
            )
        return job

    def _follow(self, name: str, reader: RunReader, step: Step) -> None:
        deadline = self.clock() + self.wait_seconds
        while True:
            steps = len(self._with_retries(reader.read).steps)
            note_steps(step, steps)
            job = self._with_retries(lambda: self.client.get(f"{JOBS}/{name}", missing={}))
            if not job:
                raise EverstepError(
                    f"the job {name} was deleted during the study",
                    "Run the command again: it continues with this size.",
                )
            conditions = true_conditions(job.get("status") or {})
            messages = {condition.type: condition.message for condition in conditions}
            if "Failed" in messages:
                raise EverstepError(
                    f"the job {name} failed: {messages['Failed']}", "Read the log of its pods."
                )
            if "Succeeded" in messages:
                return
            if not steps and self.clock() > deadline:
                raise EverstepError(
                    f"the job {name} completed no step within {self.wait_seconds} s: {self._wait_reasons(name)}",
                    "For nodes that a cloud has yet to create, raise --wait.",
                )
            self.sleep(POLL_SECONDS)

    def _with_retries(self, request: Callable[[], Response]) -> Response:
        return retry_while_unreachable(request, self.sleep, self.clock)

    def _wait_reasons(self, name: str) -> str:
        pods = self.client.view(name).pods  # of all jobs
        own_pods = [pod for pod in pods if pod.labels.get(JOB_NAME_LABEL) == name]
        reasons = sorted({pod.unscheduled_reason for pod in own_pods if pod.unscheduled_reason})
        return "; ".join(reasons) or "`everstep status` shows its pods"


def derived_job(
    job: Mapping[str, Any], replicas: int, settings: TrainerSettings, fresh: str
) -> Json:
    """Return the ElasticJob of one size: the stack's job with other replicas and settings.

    Args:
        job: ElasticJob of the stack.
        replicas: number of replicas, which stays fixed.
        settings: settings of the trainer.
        fresh: value of the trainer's `--fresh`, which distinguishes this run from earlier runs of its name.

    Raises:
        EverstepError: the job's program is not the trainer.
    """
    processes = replicas * processes_per_replica(job)
    name = f"scale-{settings.model}-{replicas}".replace("_", "-")
    template = deepcopy(job["spec"]["replicaSpecs"]["Worker"]["template"])
    container = template["spec"]["containers"][0]
    values = settings.values(processes, f"{MOUNT}/runs/{name}", fresh)
    container["args"] = with_options(container["args"], values)
    container["args"] = _with_keys_below(container["args"], str(job["metadata"]["name"]))
    if affinity := template["spec"].get("affinity"):
        template["spec"]["affinity"] = relabel(affinity, name)
    return {
        "apiVersion": ELASTICJOB_API_VERSION,
        "kind": ELASTICJOB_KIND,
        "metadata": {
            "name": name,
            "namespace": JOB_NAMESPACE,
            "annotations": {SCALING_ANNOTATION: SCALING_FIXED},
        },
        "spec": {
            "rdzvEndpoint": job["spec"]["rdzvEndpoint"],
            "minReplicas": replicas,
            "maxReplicas": replicas,
            "RunPolicy": {"cleanPodPolicy": "None", "activeDeadlineSeconds": MAX_SECONDS},
            "replicaSpecs": {
                "Worker": {"replicas": replicas, "restartPolicy": "ExitCode", "template": template}
            },
        },
    }


def fingerprint(job: Mapping[str, Any], stack_settings: Mapping[str, Any]) -> str:
    """Return a hash of a job's pods, with image, nodes, devices and arguments, and of settings of its stack."""
    template = job["spec"]["replicaSpecs"]["Worker"]["template"]
    text = json.dumps([template, stack_settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def processes_per_replica(job: Mapping[str, Any]) -> int:
    """Return the number of processes of each replica: one for each GPU, at least one.

    Raises:
        EverstepError: the job's program is not the trainer.
    """
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    arguments = [str(argument) for argument in container.get("args") or ()]
    if PROGRAM not in arguments:
        raise EverstepError(
            f"the job {job['metadata']['name']} runs your own program, not the trainer",
            "`everstep scale` sets options of the trainer: use a stack without job.command.",
        )
    limits = (container.get("resources") or {}).get("limits") or {}
    return max(1, int(limits.get(GPU_RESOURCE, 0)))


def with_options(arguments: list[str], values: Mapping[str, trainer_options.Value]) -> list[str]:
    """Return a worker's arguments with other values for some options of the trainer."""
    start = arguments.index(PROGRAM) + 1
    existing_options = dict(zip(arguments[start::2], arguments[start + 1 :: 2], strict=False))
    requested_options = dict(_pairs(trainer_options.arguments(values)))
    replaced_flags = {trainer_options.TRAINER_OPTIONS[name].flag for name in values}
    unchanged_options = {
        flag: value for flag, value in existing_options.items() if flag not in replaced_flags
    }
    options = [word for pair in {**unchanged_options, **requested_options}.items() for word in pair]
    return [*arguments[:start], *options]


def _with_keys_below(arguments: list[str], run: str) -> list[str]:
    """Return a worker's arguments with an option that puts its run's etcd keys below another run's keys.

    The workers have the credentials of the stack's job. With `etcd.authentication: users`, these credentials give
    access only to the keys of the stack's run.
    """
    prefix = f"etcd_prefix={run}"
    if any(argument.startswith(CONNECTION) for argument in arguments):
        return [
            f"{argument},{prefix}" if argument.startswith(CONNECTION) else argument
            for argument in arguments
        ]
    return [f"{CONNECTION}{prefix}", *arguments]


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2], strict=True))
