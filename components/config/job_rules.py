"""Rules across the keys of the job, etcd, the controller and the data."""

import re
from collections.abc import Mapping, Sequence

from pydantic.alias_generators import to_camel

from components.config.faults import ConfigFault
from components.config.pool_rules import duplicate_faults
from components.config.rules import ConfigRule
from components.config.section import is_object_name, quantity_value
from components.config.workload import DataConfig, JobConfig
from everstep.catalog.names import (
    NODE_NAME_VARIABLE,
    POD_IP_VARIABLE,
    POD_NAME_VARIABLE,
    PREPARATION_JOB,
)
from everstep.catalog.trainer_options import TRAINER_OPTIONS


def _replicas_in_range(minimum: int, replicas: int, maximum: int) -> list[ConfigFault]:
    """Check that minReplicas <= replicas <= maxReplicas."""
    faults = []
    if minimum > maximum:
        faults.append(
            ConfigFault(
                "job.minReplicas",
                minimum,
                f"is more than maxReplicas ({maximum})",
                f"lower minReplicas to {maximum} or raise maxReplicas to {minimum}",
            )
        )
    if minimum > replicas:
        faults.append(
            ConfigFault(
                "job.minReplicas",
                minimum,
                f"is more than replicas ({replicas}), so training would never start",
                f"lower minReplicas to {replicas} or raise replicas to {minimum}",
            )
        )
    if replicas > maximum:
        faults.append(
            ConfigFault(
                "job.replicas",
                replicas,
                f"is more than maxReplicas ({maximum})",
                f"lower replicas to {maximum} or raise maxReplicas to {replicas}",
            )
        )
    return faults


def _batch_covers_processes(
    batch: int, maximum: int, gpus: int, command: tuple[str, ...] | None
) -> list[ConfigFault]:
    """Check that every process of the largest group gets a sample in each step of the trainer."""
    processes = maximum * max(1, gpus)
    if command or batch >= processes:
        return []
    rule = f"is less than the {processes} processes of maxReplicas ({maximum}) workers"
    return [
        ConfigFault("job.globalBatch", batch, rule, f"raise globalBatch to {processes} or more")
    ]


def _members_odd(members: int) -> list[ConfigFault]:
    """Check that the number of members is odd: one more member tolerates no more failures."""
    if members % 2:
        return []
    rule = f"is even: {members} members survive no more losses than {members - 1}"
    return [ConfigFault("etcd.members", members, rule, f"use {members - 1} or {members + 1}")]


def _upstream_has_image(kind: str, image: str | None) -> list[ConfigFault]:
    """Check that an image is set for the upstream controller, which has no default image."""
    if kind != "upstream" or image:
        return []
    fix = "set one, such as torchelastic/kubernetes:0.1.0, or use kind: maintained"
    return [ConfigFault("controller.image", image, "is missing, but `upstream` needs one", fix)]


def controller_supports_scaling(scaling: str, kind: str) -> list[ConfigFault]:
    """Check that the controller supports scaling by capacity, which the upstream controller ignores."""
    if scaling == "fixed" or kind == "maintained":
        return []
    rule = f"is not supported by controller.kind {kind}, which runs exactly `replicas` workers"
    fix = "use controller.kind maintained, or scaling fixed"
    return [ConfigFault("job.scaling", scaling, rule, fix)]


def _exact_without_compression(mode: str, compress: str) -> list[ConfigFault]:
    """Check that mode exact does not compress gradients."""
    if mode != "exact" or compress == "none":
        return []
    rule = "rounds the sums that `mode: exact` keeps bit-identical"
    return [ConfigFault("job.compress", compress, rule, "use compress none, or mode live")]


def _job_name_unused(name: str, dataset: str) -> list[ConfigFault]:
    """Check that the job does not have the name of the data preparation."""
    if name != PREPARATION_JOB.format(dataset):
        return []
    return [
        ConfigFault("job.name", name, "is the name of the data preparation", "choose another name")
    ]


def _trainer_keys_without_command(job: JobConfig) -> list[ConfigFault]:
    """Check that keys of Everstep's trainer are not combined with another program."""
    if not job.command:
        return []
    rule = "is a key of Everstep's trainer, which job.command replaces"
    fix = "remove it, or pass the value to the program in job.args"
    return [
        ConfigFault(f"job.{to_camel(name)}", getattr(job, name), rule, fix)
        for name, option in TRAINER_OPTIONS.items()
        if option.in_job and name in job.model_fields_set
    ]


def _no_data_with_command(command: tuple[str, ...] | None, data: DataConfig) -> list[ConfigFault]:
    """Check that no data set of the trainer is configured for another program."""
    rule = "is for Everstep's trainer, which job.command replaces"
    fix = "remove it; the program reads its own data, for instance from the volume"
    return [
        ConfigFault(f"data.{to_camel(name)}", getattr(data, name), rule, fix)
        for name in sorted(data.model_fields_set if command else ())
    ]


def _args_have_command(command: tuple[str, ...] | None, args: tuple[str, ...]) -> list[ConfigFault]:
    """Check that arguments have a program; Everstep's trainer has keys instead."""
    if command or not args:
        return []
    rule = "are arguments of job.command, which is missing"
    fix = "add it, such as [python3, train.py]; the trainer has keys, such as job.epochs"
    return [ConfigFault("job.args", None, rule, fix)]


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_VARIABLES = (POD_NAME_VARIABLE, POD_IP_VARIABLE, NODE_NAME_VARIABLE)
_RESERVED_PREFIX = "EVERSTEP_"
_ETCD_WITHOUT_V2 = re.compile(r"v?3\.([6-9]|\d\d+)\.")


def _variables_valid(env: Mapping[str, str]) -> list[ConfigFault]:
    """Check the names and values of environment variables, and that none is reserved for Everstep."""
    faults = []
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            rule, fix = "is not a name of an environment variable", "use letters, digits and _"
            faults.append(ConfigFault(f"job.env.{name}", value, rule, fix))
        elif name in _RESERVED_VARIABLES or name.startswith(_RESERVED_PREFIX):
            rule = "is reserved for Everstep, which sets variables that a worker needs"
            faults.append(ConfigFault(f"job.env.{name}", value, rule, "remove it"))
        elif any(ord(letter) < ord(" ") and letter not in "\t\n" for letter in value):
            rule, fix = "contains a control character", "remove the character"
            faults.append(ConfigFault(f"job.env.{name}", None, rule, fix))
    return faults


def _object_names_valid(
    priority: str | None,
    secrets: Sequence[str],
    storage_class: str | None,
    cache_class: str | None,
) -> list[ConfigFault]:
    """Check the names of Kubernetes objects, and that no Secret is listed twice."""
    names = {
        "job.priorityClass": priority,
        "etcd.storageClass": storage_class,
        "data.cache.storageClass": cache_class,
    }
    names |= {f"job.envFromSecrets[{index}]": name for index, name in enumerate(secrets)}
    rule = "is not a name of a Kubernetes object"
    fix = "use lower-case letters, digits, dashes and dots"
    faults = [
        ConfigFault(path, name, rule, fix)
        for path, name in names.items()
        if name is not None and not is_object_name(name)
    ]
    return faults + duplicate_faults("job.envFromSecrets", secrets)


def _fresh_is_not_an_option(fresh: str) -> list[ConfigFault]:
    """Check that job.fresh does not look like an option of the trainer's command line."""
    if not fresh.startswith("-"):
        return []
    rule = "begins with a dash, which the trainer reads as an option"
    return [ConfigFault("job.fresh", fresh, rule, "begin it with a letter or a digit")]


def _etcd_has_v2(image: str) -> list[ConfigFault]:
    """Check that etcd is not one of the versions without the v2 API of the rendezvous."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    if not _ETCD_WITHOUT_V2.match(tag):
        return []
    rule = "has no v2 API, which etcd 3.6 removed and the upstream rendezvous uses"
    return [ConfigFault("etcd.image", image, rule, "use version 3.5, such as v3.5.35")]


def _shared_memory_fits(memory: str, shared: str) -> list[ConfigFault]:
    """Check that /dev/shm, which counts towards the memory limit, leaves memory for the worker."""
    if quantity_value(shared) < quantity_value(memory):
        return []
    rule = f"takes all of the worker's memory ({memory})"
    return [ConfigFault("job.resources.sharedMemory", shared, rule, f"use less than {memory}")]


RULES = (
    ConfigRule(("job.minReplicas", "job.replicas", "job.maxReplicas"), _replicas_in_range),
    ConfigRule(
        ("job.globalBatch", "job.maxReplicas", "job.gpusPerWorker", "job.command"),
        _batch_covers_processes,
    ),
    ConfigRule(("job.resources.memory", "job.resources.sharedMemory"), _shared_memory_fits),
    ConfigRule(("etcd.members",), _members_odd),
    ConfigRule(("etcd.image",), _etcd_has_v2),
    ConfigRule(("job.env",), _variables_valid),
    ConfigRule(
        (
            "job.priorityClass",
            "job.envFromSecrets",
            "etcd.storageClass",
            "data.cache.storageClass",
        ),
        _object_names_valid,
    ),
    ConfigRule(("job.fresh",), _fresh_is_not_an_option),
    ConfigRule(("controller.kind", "controller.image"), _upstream_has_image),
    ConfigRule(("job.scaling", "controller.kind"), controller_supports_scaling),
    ConfigRule(("job.mode", "job.compress"), _exact_without_compression),
    ConfigRule(("job.name", "data.dataset"), _job_name_unused),
    ConfigRule(("job",), _trainer_keys_without_command),
    ConfigRule(("job.command", "data"), _no_data_with_command),
    ConfigRule(("job.command", "job.args"), _args_have_command),
)
