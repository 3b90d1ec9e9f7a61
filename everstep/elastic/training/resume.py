"""The checkpoint that a run continues from, even after its data have changed.

A run whose data changed is another run unless a user accepts the change. The option that accepts it
names exactly these data: if it stays in a Kubernetes manifest, it accepts no later change.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from everstep.elastic.checkpoint.restore import (
    NO_COMMIT,
    CommitRecord,
    LostCheckpointError,
    OtherRunError,
    SkippedCheckpoint,
    restore_point,
)
from everstep.elastic.checkpoint.store import CheckpointStore, StoredCheckpoint
from everstep.errors import EverstepError

MODEL_PREFIX = "model."  # prefix of the model's tensors in a checkpoint
DATA = "data"  # the fingerprint's name for the data's identity
TEST_DATA = (
    "test data"  # the same for the data of evaluations; absent if the program does not pass it
)
DATA_NAMES = (DATA, TEST_DATA)


def choose_checkpoint(
    store: CheckpointStore,
    fingerprint: Mapping[str, Any],
    accepted_data: str,
    on_skip: Callable[[SkippedCheckpoint], None],
    record: CommitRecord = NO_COMMIT,
    accept_lost_step: int = 0,
    on_lost: Callable[[LostCheckpointError], None] = lambda _: None,
) -> StoredCheckpoint | None:
    """Return the newest valid checkpoint that this run may continue from; None if it starts from the beginning.

    Args:
        store: store of the checkpoints.
        fingerprint: settings of this run.
        accepted_data: digest of the data with which a run of other data may continue, or ""; if training and test data
            have changed, the digest of the training data, followed by the digest of the test data.
        on_skip: called with every checkpoint that failed verification.
        record: record of the run's newest commit.
        accept_lost_step: step of a missing committed checkpoint without which the run may continue; 0 for none.
        on_lost: called with the error about that checkpoint if the run continues without it.

    Raises:
        EverstepError: the checkpoints belong to other settings or to data that are not accepted, or the
            committed checkpoint is damaged or missing, and the user has not accepted this.
    """

    def restore(expected: Mapping[str, Any]) -> StoredCheckpoint | None:
        return restore_point(
            store,
            expected,
            record,
            accept_lost_step=accept_lost_step,
            on_skip=on_skip,
            on_lost=on_lost,
        )

    try:
        return restore(fingerprint)
    except OtherRunError as error:
        recorded_fingerprint = error.newest.manifest.fingerprint
        if not _differs_only_in_data(recorded_fingerprint, fingerprint):
            raise
        changed_data = {
            name: (recorded_fingerprint[name], fingerprint[name])
            for name in DATA_NAMES
            if name in recorded_fingerprint and recorded_fingerprint[name] != fingerprint[name]
        }
        digest = "".join(contents_digest(str(current)) for _, current in changed_data.values())
        if changed_data and accepted_data != digest:
            raise _other_data(error.newest, changed_data, digest) from error
        return restore(recorded_fingerprint)


def _differs_only_in_data(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Return True if only data have changed; earlier versions did not record test data."""
    ignored = dict.fromkeys(DATA_NAMES, "")
    return {**recorded, **ignored} == {**current, **ignored} and (
        TEST_DATA in current or TEST_DATA not in recorded
    )


def contents_digest(identity: str) -> str:
    """Return the last word of a data set's identity, which identifies its contents; for `44 samples`, return `44`."""
    return identity.removesuffix(" samples").rpartition(" ")[2]


def check_shapes(
    location: str, state: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Refuse a checkpoint whose tensors do not fit this model.

    Raises:
        EverstepError: a shape differs, or a tensor of the model is only in one of the two.
    """
    for name in dict.fromkeys([*state, *tensors]):
        if name in state and name in tensors:
            if state[name].shape == tensors[name].shape:
                continue
            difference = (
                f"the shape of {name} is {list(state[name].shape)} there and "
                f"{list(tensors[name].shape)} here"
            )
        elif name.startswith(MODEL_PREFIX):  # other states may be added and removed
            difference = f"{name} is only {'there' if name in state else 'here'}"
        else:
            continue
        raise EverstepError(
            f"{location} does not fit this model: {difference}",
            "Restore the model of the checkpoint, or the data: another number of classes changes the last layer. "
            "Or start again: pass --fresh=WORD with a new word, or, without our trainer, another folder.",
        )


def check_unchanged_shapes(
    tensors: Mapping[str, torch.Tensor], shapes: Mapping[str, torch.Size]
) -> None:
    """Refuse a state that no joiner could receive and no later process could restore.

    Args:
        tensors: tensors of the state, by name.
        shapes: their shapes when the run was created.

    Raises:
        EverstepError: a shape has changed, or the model has another tensor.
    """
    for name, tensor in tensors.items():
        if name in shapes and tensor.shape != shapes[name]:
            change = f"the shape of {name} is {list(tensor.shape)}, and was {list(shapes[name])}"
        elif name not in shapes and name.startswith(MODEL_PREFIX):
            change = f"{name} was added"
        else:
            continue
        raise EverstepError(
            f"the tensors of the run have changed since Run was created: {change}; a checkpoint could not be restored",
            "Give each buffer, and each tensor of states, its final shape before Run is created. "
            "Register a buffer that is only a cache with persistent=False.",
        )


def _other_data(
    checkpoint: StoredCheckpoint, changed_data: Mapping[str, tuple[str, str]], digest: str
) -> EverstepError:
    """Return the error about changed data, given as recorded and current identity by name."""
    differences = {
        name: f"{recorded} then; {current} now"
        for name, (recorded, current) in changed_data.items()
    }
    text = "; ".join(
        f"{name}: {difference}" if len(differences) > 1 else difference
        for name, difference in differences.items()
    )
    return EverstepError(
        f"the {' and the '.join(differences)} have changed since {checkpoint.location} was written: {text}",
        "Restore the previous data. Or continue with the current data from that step: pass "
        f"--accept-data={digest} (in a stack: job.acceptData; without our trainer: "
        f"Run(accept_data={digest!r})). "
        "Or start again: pass --fresh=WORD with a new word, or, without our trainer, another folder.",
    )
