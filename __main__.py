"""The Pulumi program: configuration -> components -> outputs."""

import pulumi

from components import config
from components.cluster.existing import ExistingCluster, ExistingClusterArgs, read_kubeconfig
from components.faults import ConfigurationError
from components.stack import TrainingStack, TrainingStackArgs


def main() -> None:
    """Declare the stack that is selected."""
    try:
        said = config.load(pulumi.Config())
        kubeconfig = read_kubeconfig(said.cluster)
    except ConfigurationError as error:
        raise pulumi.RunError(str(error)) from None  # the user's to put right: no traceback
    cluster = ExistingCluster(
        "cluster", ExistingClusterArgs(config=said.cluster, kubeconfig=kubeconfig)
    ).cluster
    training = TrainingStack("training", TrainingStackArgs(config=said, cluster=cluster))
    for name, value in training.outputs.items():
        pulumi.export(name, value)


main()
