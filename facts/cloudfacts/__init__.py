"""Facts about AWS, Azure and their Kubernetes versions: regions, machine types, prices, quotas, permissions.

The facts are in checked-in JSON files in `data` and in the modules, with their sources and dates. Reading them needs
no account and no network, so that a configuration can be checked in a test or in a pull request from a fork. Modules:
`aws`, `aws_actions`, `azure`, `azure_actions`, `kubernetes`, `prices` and `quotas`.
"""
