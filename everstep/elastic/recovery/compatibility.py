"""Comparison of a new group's workers: program, model, data and settings must be equal."""

import contextlib
import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import torch

from everstep.elastic.transport.abortable_group import AbortableGroup
from everstep.errors import EverstepError

MAX_VALUE_CHARACTERS = 80  # the message has the digest of a longer value
MAX_DIFFERENCES = 6  # differences named in one message
REFERENCE_SECONDS = 5.0
"""Longest wait for the values of rank 0, which never come if it runs a version that does not publish them."""
REFERENCE_KEY = "identity"  # key of the group's store with the values of rank 0
ABSENT = "absent"


class IncompatibleWorkerError(EverstepError):
    """This worker's program, model, data set or settings differ from its group's."""


def check_group(process_group: AbortableGroup, identity: Mapping[str, str]) -> int:
    """Check that this worker is compatible with rank 0; return how many workers share this machine.

    Containers on the same kernel have the same boot ID. The survivors of a group have the lowest ranks, so an
    incompatible joiner itself fails. Workers compare a digest of the whole identity; only if one differs, rank 0
    publishes its values for the error message.

    Args:
        process_group: the group.
        identity: texts that must be equal on all workers, by name.

    Raises:
        IncompatibleWorkerError: rank 0's identity differs.
    """
    if process_group.world_size == 1:
        return 1
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = str(process_group.rank)
    digest = _hash_number(json.dumps(identity, sort_keys=True))
    own_record = torch.tensor([_hash_number(boot), digest], dtype=torch.int64)
    boots, identities = zip(
        *(record.tolist() for record in process_group.all_gather(own_record)), strict=True
    )
    if process_group.rank == 0 and len(set(identities)) > 1:
        _publish(process_group, identity)
    if identities[0] != identities[process_group.rank]:
        raise IncompatibleWorkerError(
            f"the worker of rank {process_group.rank} is incompatible with the others of its run: "
            + (
                describe_differences(_shortened(identity), _published(process_group))
                or "its program, model, data set or settings differ"
            ),
            "Run all workers with the same image and command line, and with the same data.",
        )
    return boots.count(boots[process_group.rank])


def describe_differences(own: Mapping[str, str], reference: Mapping[str, str]) -> str:
    """Return the values that differ between a worker and rank 0; empty if rank 0's are unknown."""
    if not reference:
        return ""
    names = [name for name in {**reference, **own} if own.get(name) != reference.get(name)]
    differences = [
        f"{name} is {own.get(name, ABSENT)} here and {reference.get(name, ABSENT)} on rank 0"
        for name in names[:MAX_DIFFERENCES]
    ]
    if remaining := len(names) - len(differences):
        differences.append(f"and {remaining} more")
    return "; ".join(differences)


def _publish(process_group: AbortableGroup, identity: Mapping[str, str]) -> None:
    with contextlib.suppress(RuntimeError):  # the store is gone, and with it the group
        if process_group.store:
            process_group.store.set(REFERENCE_KEY, json.dumps(_shortened(identity)))


def _published(process_group: AbortableGroup) -> dict[str, str]:
    """Return the values of rank 0; empty if they do not arrive."""
    with contextlib.suppress(RuntimeError, ValueError):
        if process_group.store:
            process_group.store.wait([REFERENCE_KEY], timedelta(seconds=REFERENCE_SECONDS))
            return dict(json.loads(process_group.store.get(REFERENCE_KEY)))
    return {}


def _shortened(identity: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        if len(value) <= MAX_VALUE_CHARACTERS
        else f"a string of {len(value)} characters with digest {_hash_number(value):014x}"
        for name, value in identity.items()
    }


def _hash_number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
