"""Programs and Debian packages of the twin: found on the host, or built and installed once."""

from cloudtwin.toolchain.packages import ensure_packages
from cloudtwin.toolchain.tools import ensure_tools

__all__ = ["ensure_packages", "ensure_tools"]
