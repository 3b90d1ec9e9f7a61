"""Rules about a worker and its node: a worker fits on each machine type, and no paid GPU is idle."""

from collections.abc import Iterator, Mapping

from cloudfacts import aws, azure

from components.config import on_demand_nodes
from components.config.aks import AksConfig
from components.config.eks import EksConfig
from components.config.faults import ConfigFault
from components.config.rules import ConfigRule
from components.config.section import quantity_value
from components.config.workload import WorkerResources
from everstep.catalog.plurals import amount

Machine = aws.InstanceType | azure.VmSize


def idle_gpus_warning(cluster: EksConfig | AksConfig, gpus_per_worker: int) -> list[str]:
    """Return a warning if workers use fewer GPUs than their nodes have: workers do not share nodes."""
    idle = (machine for machine in _machines(cluster) if machine.gpus > gpus_per_worker)
    machine = next(idle, None)
    if machine is None:
        return []
    warning = (
        f"everstep:job.gpusPerWorker: a worker uses {amount(gpus_per_worker, 'GPU')} of the {machine.gpus} of its "
        f"node, {machine.name}; the others are billed and idle, since workers do not share nodes. Set it to "
        f"{machine.gpus}."
    )
    return [warning]


def _worker_fits(resources: WorkerResources, cluster: EksConfig | AksConfig) -> list[ConfigFault]:
    """Check that each machine type has the CPUs and the memory that a worker requests, and some for the system."""
    machines = list(_machines(cluster))
    if not machines:
        return []
    cores = min(machines, key=lambda machine: machine.vcpus)
    memory = min(machines, key=lambda machine: machine.memory_mib)
    faults, fix = [], "lower it, or choose larger machines"
    if quantity_value(resources.cpu) >= cores.vcpus:
        rule = f"does not fit on a node: {cores.name} has {amount(cores.vcpus, 'vCPU')}, not all of them for pods"
        faults.append(ConfigFault("job.resources.cpu", resources.cpu, rule, fix))
    gib = memory.memory_mib / 1024
    if quantity_value(resources.memory) >= memory.memory_mib * 2**20:
        rule = f"does not fit on a node: {memory.name} has {gib:g} GiB, not all of it for pods"
        faults.append(ConfigFault("job.resources.memory", resources.memory, rule, fix))
    return faults


def _machines(cluster: EksConfig | AksConfig) -> Iterator[Machine]:
    """Yield the machine types of the GPU pools that the table contains."""
    table: Mapping[str, Machine] = {**aws.INSTANCE_TYPES, **azure.VM_SIZES}
    for pool in cluster.pools:
        yield from (table[name] for name in on_demand_nodes.machines(pool) if name in table)


RULES = (ConfigRule(("job.resources", "cluster"), _worker_fits, {"cluster": ("eks", "aks")}),)
