"""Membership of a run: agents, leases, generations and the etcd keys behind them."""
