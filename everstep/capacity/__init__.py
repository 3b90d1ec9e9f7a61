"""Capacity of spot markets over time: histories, the policy that follows them, and a simulator that plans with both.

`everstep plan` and `benchmarks/capacity.py` call it. It reads no cluster and changes nothing: the controller
imports `placement` and acts on it. docs/capacity.md describes the policy and its assumptions.
"""
