"""Preparation of an etcd member before etcd itself starts.

`python3 -m etcd` is the init container of a member that keeps its data in memory. `rejoin` decides
how the member joins and changes the membership accordingly; `gateway` is the client of etcd's JSON
gateway. Only the standard library is used, so that the image is small and starts fast.
"""
