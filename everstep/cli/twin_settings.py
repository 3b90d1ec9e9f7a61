"""Settings that Everstep passes to the twin: variables, the shared mount, labels and taints of machines."""

import os
import shlex
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from everstep.catalog import names

if TYPE_CHECKING:
    from cloudtwin.facade import MachineSpec

SHARED_MOUNT = Path("/mnt/everstep")
FOLDER = "everstep"


def configure_twin(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the twin's variables: its state, name and image archives from Everstep's variables, and its build cache."""
    home = Path(environment.get("HOME") or Path.home())
    state = Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state") / FOLDER
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / FOLDER
    environment.setdefault("CLOUDTWIN_CACHE", str(cache))
    environment.setdefault("CLOUDTWIN_STATE", str(state))
    for variable, twin_variable in {
        "EVERSTEP_STATE": "CLOUDTWIN_STATE",
        "EVERSTEP_TWIN": "CLOUDTWIN_NAME",
        "EVERSTEP_TWIN_IMAGES": "CLOUDTWIN_IMAGES",
    }.items():
        if value := environment.get(variable):
            environment[twin_variable] = value


def system_machine(name: str) -> "MachineSpec":
    """Return a machine of the system pool."""
    from cloudtwin.facade import MachineSpec, Role

    return MachineSpec(name, Role.SYSTEM, labels={names.POOL_LABEL: names.SYSTEM_POOL})


def gpu_machine(name: str, gpus: int = 1) -> "MachineSpec":
    """Return a machine of the GPU pool, with the taint of spot capacity."""
    from cloudtwin.facade import MachineSpec, Role, Taint

    labels = {names.POOL_LABEL: names.GPU_POOL}
    return MachineSpec(
        name,
        Role.GPU,
        gpus,
        labels=labels,
        taints=(Taint(names.SPOT_TAINT_KEY, names.SPOT_TAINT_VALUE),),
    )


def down_command(state: Path) -> str:
    """Return the command that takes down the twin of a state folder."""
    root, name = shlex.quote(str(state.parent)), shlex.quote(state.name)
    return f"EVERSTEP_STATE={root} EVERSTEP_TWIN={name} everstep down"
