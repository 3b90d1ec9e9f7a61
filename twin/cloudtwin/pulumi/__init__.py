"""Stand-ins for two Pulumi plugins: the Python language host and the `kubernetes` provider.

They implement the engine's gRPC protocol as the official plugins do; `install_plugins` puts them where
the engine looks. They are not for production: each writes a banner to its debug log.
"""

from cloudtwin.pulumi.backend import backend_url
from cloudtwin.pulumi.install import install_plugins

__all__ = ["backend_url", "install_plugins"]
