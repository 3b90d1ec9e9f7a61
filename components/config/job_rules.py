"""What must hold between the numbers of a job, and between etcd, controller and data."""

from components.faults import Fault
from components.rules import Rule


def _replicas_between(least: int, wanted: int, most: int) -> list[Fault]:
    """Check that min <= replicas <= max; the scheduler could otherwise never be satisfied."""
    faults = []
    if least > most:
        faults.append(
            Fault(
                "job.minReplicas",
                least,
                f"is more than maxReplicas ({most})",
                f"lower minReplicas to {most} or raise maxReplicas to {least}",
            )
        )
    if least > wanted:
        faults.append(
            Fault(
                "job.minReplicas",
                least,
                f"is more than replicas ({wanted}), so that training would wait for ever",
                f"lower minReplicas to {wanted} or raise replicas to {least}",
            )
        )
    if wanted > most:
        faults.append(
            Fault(
                "job.replicas",
                wanted,
                f"is more than maxReplicas ({most})",
                f"lower replicas to {most} or raise maxReplicas to {wanted}",
            )
        )
    return faults


def _batch_feeds_all(batch: int, most: int, gpus: int) -> list[Fault]:
    """Check that each process of the largest group gets a sample of each step."""
    processes = most * max(1, gpus)
    if batch >= processes:
        return []
    rule = f"is less than the {processes} processes of maxReplicas ({most}) workers"
    return [Fault("job.globalBatch", batch, rule, f"raise globalBatch to {processes} or more")]


def _members_odd(members: int) -> list[Fault]:
    """Check that no member is there that costs a quorum and adds no safety."""
    if members % 2:
        return []
    rule = f"is even: {members} members survive no more losses than {members - 1}"
    return [Fault("etcd.members", members, rule, f"use {members - 1} or {members + 1}")]


def _upstream_has_image(kind: str, image: str | None) -> list[Fault]:
    """Check that the user says which build of upstream to run: there is no maintained one."""
    if kind != "upstream" or image:
        return []
    cure = "name one, such as torchelastic/kubernetes:0.1.0, or use kind: maintained"
    return [Fault("controller.image", image, "is missing, and `upstream` needs one", cure)]


def _scaling_has_a_controller(scaling: str, kind: str) -> list[Fault]:
    """Check that the controller knows the annotation: the published one would pass it over."""
    if scaling == "fixed" or kind == "maintained":
        return []
    rule = f"is unknown to controller.kind {kind}, which keeps to replicas"
    cure = "use controller.kind maintained, or scaling fixed"
    return [Fault("job.scaling", scaling, rule, cure)]


def _exact_loses_nothing(mode: str, compress: str) -> list[Fault]:
    """Check that sums that must have the same bits everywhere keep all of them."""
    if mode != "exact" or compress == "none":
        return []
    rule = "rounds what `mode: exact` must not"
    return [Fault("job.compress", compress, rule, "use compress none, or mode live")]


def _job_name_free(name: str, dataset: str) -> list[Fault]:
    """Check that the job's pods cannot be taken for those of data preparation."""
    if name != f"prepare-{dataset}":
        return []
    return [Fault("job.name", name, "is the name of the data preparation", "choose another")]


_SUFFIXES = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SUFFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def _bytes(quantity: str) -> float:
    """Give a quantity of Kubernetes as a number."""
    number = quantity.rstrip("mkKMGTi")
    return float(number) * _SUFFIXES[quantity[len(number) :]]


def _shared_memory_fits(memory: str, shared: str) -> list[Fault]:
    """Check that /dev/shm leaves a worker some memory of its own: it counts towards the limit."""
    if _bytes(shared) < _bytes(memory):
        return []
    rule = f"takes all of the worker's memory ({memory})"
    return [Fault("job.resources.sharedMemory", shared, rule, f"use less than {memory}")]


RULES = (
    Rule(("job.minReplicas", "job.replicas", "job.maxReplicas"), _replicas_between),
    Rule(("job.globalBatch", "job.maxReplicas", "job.gpusPerWorker"), _batch_feeds_all),
    Rule(("job.resources.memory", "job.resources.sharedMemory"), _shared_memory_fits),
    Rule(("etcd.members",), _members_odd),
    Rule(("controller.kind", "controller.image"), _upstream_has_image),
    Rule(("job.scaling", "controller.kind"), _scaling_has_a_controller),
    Rule(("job.mode", "job.compress"), _exact_loses_nothing),
    Rule(("job.name", "data.dataset"), _job_name_free),
)
