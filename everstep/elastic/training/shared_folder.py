"""Check that all nodes of a group see the same folder of the run, not a folder of their own under the same path.

Checkpoints in a folder of one node are missing on the others, which would start from the beginning. Rank 0, which has
opened the folder, publishes the identity in its record; the others compare it with the record that they see. A network
file system may show a new file late, so a worker compares repeatedly, beside the training, before it gives up. Only
that the record is absent or another one is a difference: a folder that cannot be read proves nothing.
"""

import json
import threading
import time
from collections.abc import Callable

from torch._C._distributed_c10d import Store

from everstep.elastic.recovery.worker import Group
from everstep.elastic.recovery.worker_process import FAILED, end_process
from everstep.elastic.training.run_record import RUN_FILE
from everstep.elastic.training.run_storage import FolderStorage
from everstep.elastic.transport.group import RankAssignment, node_name
from everstep.errors import EverstepError

DIFFERENT_SECONDS = 300.0
"""Time for which the folders must differ; NFS caches names for 60 s by default, and blobfuse2 for 120 s."""
INTERVAL_SECONDS = 5.0  # interval between two comparisons
STORE_KEY = "run-folder"  # key of the group's store with rank 0's node and record


def check_folder(
    storage: FolderStorage, assignment: RankAssignment, group: Group, is_current: Callable[[], bool]
) -> None:
    """Start a thread that ends this worker and its node if its folder is not the one of rank 0.

    Args:
        storage: storage of the run.
        assignment: rank in the group.
        group: the group.
        is_current: function that returns False once this worker has left the generation of the assignment.
    """
    store = assignment.store
    if store is None or assignment.world_size == 1:
        return

    def check() -> None:
        if assignment.rank == 0:
            _publish(storage, store, is_current)
        elif difference := find_difference(storage, store, is_current):
            group.report_incompatibility(str(difference))
            end_process(difference.problem, FAILED)

    threading.Thread(target=check, name="everstep-folder", daemon=True).start()


def _publish(storage: FolderStorage, store: Store, is_current: Callable[[], bool]) -> None:
    """Publish the identity of the record, and again if another writer replaces the record."""
    published, deadline = None, time.monotonic() + DIFFERENT_SECONDS
    while is_current() and time.monotonic() < deadline:
        try:
            if (run := storage.run_id()) != published:
                store.set(STORE_KEY, json.dumps([node_name(), run]))
                published = run
        except OSError:
            pass
        except RuntimeError:  # the store is gone
            return
        time.sleep(INTERVAL_SECONDS)


def find_difference(
    storage: FolderStorage, store: Store, is_current: Callable[[], bool]
) -> EverstepError | None:
    """Return the error if this worker's folder and the one of rank 0 have differed until the end of the time.

    None as soon as they are equal, if rank 0 has published no identity, or if this worker leaves the generation.
    """
    deadline = time.monotonic() + DIFFERENT_SECONDS
    difference: EverstepError | None = None
    while is_current():
        try:
            # `get` waits for a key that is absent, and holds the store's lock meanwhile.
            node, run = json.loads(store.get(STORE_KEY)) if store.check([STORE_KEY]) else ("", "")
            own_run = storage.run_id()
        except OSError:
            difference = None
        except RuntimeError:  # the store is gone
            return None
        else:
            if run and run == own_run:  # until rank 0 has published, both may be empty
                return None
            difference = _difference(storage, node, run, own_run) if run else None
        if time.monotonic() >= deadline:
            return difference if is_current() else None
        time.sleep(INTERVAL_SECONDS)
    return None


def _difference(storage: FolderStorage, node: str, run: str, own_run: str) -> EverstepError:
    own_record = f"is of the run {own_run}" if own_run else "does not exist"
    return EverstepError(
        f"the nodes do not share the folder of the checkpoints, {storage.location}: its {RUN_FILE} is of the run {run} "
        f"on {node}, and {own_record} on {node_name()}, for at least {DIFFERENT_SECONDS:.0f} s",
        "Mount the same file system at this path on all nodes, or use a bucket (s3://BUCKET/PREFIX); "
        "then start the node again.",
    )
