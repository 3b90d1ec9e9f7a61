"""Which checkpoint a run goes on from, also where its data are not any more what they were.

A run whose data changed under it is another run, unless somebody says that it is meant so; and to say
so is to name these very data, so that the word left in a manifest accepts nothing else later.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from everstep.elastic import checkpoint
from everstep.elastic.checkpoint import Found, OtherRunError, Skipped
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

DATA = "data"  # the fingerprint's name for the data's identity


def choose(
    folder: Path,
    fingerprint: Mapping[str, Any],
    accepted: str,
    on_skip: Callable[[Skipped], None],
) -> Found | None:
    """The newest good checkpoint that this run may go on from.

    Args:
        folder: of the checkpoints.
        fingerprint: this run's.
        accepted: contents of the data with which a run of other data may go on, or "".
        on_skip: told of every checkpoint that could not be trusted.

    Raises:
        EverstepError: there are checkpoints, but of other settings or of data that are not accepted.
    """
    try:
        return checkpoint.newest(folder, fingerprint, on_skip)
    except OtherRunError as error:
        there = error.found.manifest.fingerprint
        if {**there, DATA: ""} != {**fingerprint, DATA: ""}:
            raise
        if accepted != contents(fingerprint[DATA]):
            raise _other_data(error.found, there[DATA], fingerprint[DATA]) from error
        return error.found


def contents(identity: str) -> str:
    """The word of a data set's identity that stands for its contents: the last."""
    return identity.rpartition(" ")[2]


def check_shapes(
    path: Path, state: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Refuse a checkpoint whose tensors this model cannot take.

    Raises:
        EverstepError: a shape differs; with the settings equal that can only be the number of classes.
    """
    for name, tensor in state.items():
        if name in tensors and tensor.shape != tensors[name].shape:
            raise EverstepError(
                f"{path} cannot be continued with these data: {name} is {list(tensor.shape)} there and "
                f"{list(tensors[name].shape)} here, since the number of classes is another",
                "Begin anew with --fresh=WORD; a last layer of another size has learnt nothing yet.",
            )


def read_chosen(path: Path) -> Found | None:
    """The checkpoint that rank 0 has chosen, or None where it cannot be read here."""
    try:
        return checkpoint.check(path)
    except ValueError as error:
        log.warning("%s, which rank 0 has chosen, cannot be read here: %s", path, error)
        return None


def _other_data(found: Found, there: str, here: str) -> EverstepError:
    return EverstepError(
        f"the data have changed since {found.path} was written: {there} then; {here} now",
        "Put the data back as they were. Or go on with these from that step: pass "
        f"--accept-data={contents(here)} (in a stack: job.acceptData). "
        "Or begin anew: pass --fresh=WORD with a word of your own.",
    )
