"""Capacity of spot markets over time: histories, policies that follow them, and a simulator that plans with both.

`everstep plan` and `benchmarks/capacity.py` call it. This package reads no cluster and changes nothing: the controller
imports `placement`, `lifetimes` and `on_demand` and acts on their decisions. docs/capacity.md describes the policies
and their assumptions.
"""
