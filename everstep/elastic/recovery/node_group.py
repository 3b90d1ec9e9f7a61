"""torch's process group of a node's workers, over which FSDP2 shards a model.

torch binds a sharded model to one process group for the model's lifetime, but the connections end with each generation.
So this group passes each collective on to the node's group of the current generation.

A collective that fails does not raise: it runs in the middle of FSDP's passes, which could not be
repeated after an error. It returns zeros, and so do all later ones of the generation, so that the passes end soon.
The error is raised when the gradients, which are wrong then, would be summed (`raise_error`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed
from torch._C._distributed_c10d import AllgatherOptions, HashStore, ReduceScatterOptions, Work
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.futures import Future

from everstep.elastic.transport.abortable_group import AbortableGroup
from everstep.elastic.transport.group import PeerLostError

BACKEND = "everstep"


class Completed(Work):
    """A collective that has ended.

    Args:
        output: its result.
    """

    def __init__(self, output: torch.Tensor) -> None:
        super().__init__()
        self._future: Future[list[torch.Tensor]] = Future()
        self._future.set_result([output])

    def wait(self, timeout: object = None) -> bool:
        """Return True."""
        del timeout
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Return a future that is done."""
        return self._future


class NodeProcessGroup(distributed.ProcessGroup):
    """The workers of this node, as torch's process group.

    Args:
        rank: local rank.
        size: number of workers of the node.
        process_group: function that returns the node's group of the current generation; raises PeerLostError if
            there is none.
    """

    def __init__(self, rank: int, size: int, process_group: Callable[[], AbortableGroup]) -> None:
        super().__init__(rank, size)
        self._process_group = process_group
        self._error: PeerLostError | None = None

    @property
    def group_name(self) -> Any:  # noqa: ANN401 - torch's type
        """The name under which torch has registered this group."""
        return distributed.distributed_c10d._world.pg_names[self]

    def begin_generation(self) -> None:
        """Forget the error of the last generation."""
        self._error = None

    def raise_error(self) -> None:
        """Raise the PeerLostError of a collective since the generation began, if there was one."""
        if self._error:
            raise self._error

    def all_gather_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name
        opts: AllgatherOptions | None = None,
    ) -> Work:
        """Gather the values of all workers of the node."""
        options = opts or AllgatherOptions()
        return self._run(output, lambda backend: backend._allgather_base(output, input, options))

    def reduce_scatter_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,  # noqa: A002 - torch's name
        opts: ReduceScatterOptions | None = None,
    ) -> Work:
        """Sum the values of all workers of the node; each receives its part of the sum."""
        options = opts or ReduceScatterOptions()
        return self._run(
            output, lambda backend: backend._reduce_scatter_base(output, input, options)
        )

    def _run(self, output: torch.Tensor, begin: Callable[[Any], Any]) -> Work:
        process_group = self._process_group()
        if not self._error:
            try:
                process_group.run(begin)
            except PeerLostError as error:
                self._error = error
        if self._error:
            output.zero_()
        return Completed(output)


def node_mesh(group: NodeProcessGroup, device: torch.device) -> DeviceMesh:
    """Make `group` this process's default group in torch; return the mesh of its workers."""
    distributed.Backend.register_backend(BACKEND, lambda *_: group, devices=[device.type])
    distributed.init_process_group(
        BACKEND, store=HashStore(), rank=group.rank(), world_size=group.size()
    )
    return init_device_mesh(device.type, (group.size(),))
