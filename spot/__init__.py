"""Watches the cloud's metadata service on one spot node and acts on what it announces.

A DaemonSet runs `python3 -m spot` on every spot node. Where the machine is about to be taken, the
watcher cordons the node, writes the reason and the deadline on it, and drains it if the cloud does
not. The well-known termination handlers do this for one cloud each and bring a web hook, a queue or
a chart along; here both clouds share one decision that is a pure function and tested as one.

`aws` and `azure` turn answers into notices, `decide` says what to do about them, `watcher` does it.
`rejoin` is for the other side of a loss: an etcd member whose node went, with its data, comes back.
Only Python's own library is used: the image is small, and starts at once on a node that may not
have long to live.
"""
