"""Elastic training for any PyTorch loop; independent of the model, the data and Kubernetes.

`__all__` lists the public names. Each is imported on first use: an agent imports parts of this
package but no training code.
"""

import importlib
from typing import TYPE_CHECKING

from everstep.errors import EverstepError

if TYPE_CHECKING:
    from everstep.elastic.training.batch import Batch
    from everstep.elastic.training.options import RunHooks, RunOptions
    from everstep.elastic.training.run import Run
    from everstep.elastic.training.worker import choose_device

__all__ = ["Batch", "EverstepError", "Run", "RunHooks", "RunOptions", "choose_device"]

_MODULES = {
    "Batch": "batch",
    "Run": "run",
    "RunHooks": "options",
    "RunOptions": "options",
    "choose_device": "worker",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"everstep.elastic.training.{_MODULES[name]}")
    return getattr(module, name)
