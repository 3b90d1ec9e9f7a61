"""Emulated AWS and Azure: Pulumi providers with their own accounts that create the twin's machines.

A provider checks every input against the SDK's argument classes, the services' own models and
rules, returns ids and outputs of the right shape, stores the account, refuses what the cloud would
refuse, and creates the machines, volumes and identities that were declared.

Pure: `model`, `evaluation`, `conditions`, `inventory`, `changes`, `outputs`, `schema.check`, the
tables in `aws` and `azure`.
"""

from cloudtwin.providers.install import install

BANNER = """\
These clouds are the twin's: no account is used and nothing is billed.
  A run proves: the program's names, types, enumerations and references; each service's own rules as far
  as the tables in twin/cloudtwin/providers cover them; the order of creation and deletion;
  replacement and drift; labels, taints, volumes, identities and spot notices, on real Kubernetes nodes.
  It does not prove: that your account's quota, permissions and regions allow it, that capacity is
  available, what it costs, or how long a cloud takes. Only a run with your own account shows that;
  begin with `pulumi preview`."""

__all__ = ["BANNER", "install"]
