"""Packages that only some commands need, and the commands that install them."""

import importlib.util
from dataclasses import dataclass

from everstep.errors import EverstepError
from everstep.resources import in_clone


@dataclass(frozen=True)
class OptionalPackages:
    """Packages that are imported only when a command needs them.

    Attributes:
        target: target of the Makefile that installs them in a clone.
        arguments: arguments of the `pip install` command that installs them elsewhere.
    """

    target: str
    arguments: str

    def require(self, module: str, problem: str) -> None:
        """Check that a module is installed, without importing it.

        Args:
            module: name of a top-level module.
            problem: feature and missing package, for the message.

        Raises:
            EverstepError: the module is not installed.
        """
        if importlib.util.find_spec(module) is None:
            raise self.missing_error(problem)

    def missing_error(self, problem: str) -> EverstepError:
        """Return the error for a package that is not installed.

        Args:
            problem: feature and missing package, for the message.
        """
        command = f"make {self.target}" if in_clone() else f"pip install {self.arguments}"
        return EverstepError(problem, f"`{command}` installs it.")


BOTO3 = OptionalPackages("aws", "--no-deps boto3 botocore jmespath s3transfer")
"""Installed without their dependencies, which conflict with dependencies of the Kubernetes client."""

AZURE_SDK = OptionalPackages("azure", "'everstep[local,azure]'")
AZURE_BLOB = OptionalPackages("azure", "azure-storage-blob azure-identity")
TORCH = OptionalPackages("development", "'everstep[trainer]'")
