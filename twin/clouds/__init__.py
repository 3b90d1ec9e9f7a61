"""Stand-ins for AWS and Azure: Pulumi providers that know only the wire, and an account that acts.

A provider here checks every input against the SDK's own argument classes and the service's own
rules, gives ids and outputs of the right shape, keeps an account, refuses what the cloud would
refuse, and lets machines, volumes and identities be what was declared.

Pure: `model`, `wire.check`, `diff`, `rules`, `world`, the tables in `aws` and `azure`.
Shell: `account`, `faults`, `acting`, `operations`, `server`, `wire.store`.
"""

from twin.clouds.banner import BANNER
from twin.clouds.install import install

__all__ = ["BANNER", "install"]
