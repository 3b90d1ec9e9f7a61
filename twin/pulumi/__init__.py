"""Pulumi where the official plugins are absent: a Python language host and a `kubernetes` provider.

The Pulumi engine talks to both over gRPC and cannot tell them from the official ones;
`install_plugins` puts them where it looks. Neither is a plugin for production: each says so in its
debug log.
"""

from twin.pulumi.install import install_plugins

__all__ = ["install_plugins"]
