"""Comparison of a new group's workers: program, model, data and settings must be equal."""

import hashlib
from pathlib import Path

import torch

from everstep.elastic.transport.link import Link
from everstep.errors import EverstepError


class IncompatibleWorkerError(EverstepError):
    """This worker's program, model, data set or settings differ from its group's."""


def check_group(link: Link, identity: str) -> int:
    """Check that this worker is compatible with rank 0; return how many workers share this machine.

    Containers of one kernel have one boot ID. The survivors of a group have the lowest ranks, so an
    incompatible joiner itself fails.

    Raises:
        IncompatibleWorkerError: rank 0's identity differs.
    """
    if link.world_size == 1:
        return 1
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = str(link.rank)
    own_record = torch.tensor([_hash_number(boot), _hash_number(identity)], dtype=torch.int64)
    boots, identities = zip(
        *(record.tolist() for record in link.all_gather(own_record)), strict=True
    )
    if identities[0] != identities[link.rank]:
        raise IncompatibleWorkerError(
            f"the worker of rank {link.rank} is not like the others of its run: its program, model, data set or "
            "settings differ",
            "Run all workers with the same image and command line, and with the same data.",
        )
    return boots.count(boots[link.rank])


def _hash_number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
