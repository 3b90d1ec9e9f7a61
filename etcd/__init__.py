"""Helper programs for the members of an etcd cluster.

`python3 -m etcd` is the init container of a member that keeps its data in memory: `rejoin` decides
how the member joins and changes the membership accordingly; `gateway` is the client of etcd's JSON
gateway. `python3 -m etcd.credentials` creates certificates and passwords before etcd starts, and
`python3 -m etcd.users` sets up the users next to each member. Only the standard library and `openssl`
are used, so that the image is small and starts fast.
"""
