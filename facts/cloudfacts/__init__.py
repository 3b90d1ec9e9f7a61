"""Regions, zones, machine types and prices of AWS and Azure.

The facts are checked-in JSON files in `data`, each with its source and date. Reading them needs no
account and no network, so that a configuration can be checked in a test or in a pull request from a
fork. Modules: `aws`, `azure` and `prices`.
"""
