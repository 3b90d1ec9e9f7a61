"""Capacity of spot markets over time: histories, the policy that follows them, and a simulator that plans with both.

`everstep plan` and `benchmarks/capacity.py` call it. It reads no cluster and changes nothing: the controller
imports `placement`, `lifetimes` and `on_demand` and acts on their decisions. docs/capacity.md describes the policies
and their assumptions.
"""
