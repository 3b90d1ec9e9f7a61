"""What a stack that came up on the twin's clouds proves, and what it does not."""

BANNER = """\
These clouds are the twin's: no account is used and nothing is billed.
  It proves: the program's names, types, enums and references; each service's own rules as far as
  the tables in twin/clouds know them; the order of creation and deletion; replacement and drift;
  labels, taints, volumes, identities and spot notices, on real Kubernetes nodes.
  It does not prove: that your account's quota, rights and regions allow it, that capacity is there,
  what it costs, or how long a cloud takes. A first `pulumi preview` with your own account tells."""
