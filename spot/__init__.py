"""Watcher of a spot node, which handles the interruptions that the cloud announces.

A DaemonSet runs `python3 -m spot` on every spot node. When the machine is about to be interrupted,
the watcher cordons the node, annotates it with the reason and the deadline, annotates the workers
on it with the deadline, and drains the node unless the cloud does. The well-known termination
handlers support one cloud each and need a webhook, a queue or a chart; here both clouds share one
pure, tested decision.

`aws` and `azure` parse the responses of the metadata services into notices, `drain` decides what to
do about them, and `watcher` acts. The package needs only the standard library and the constants of
`everstep.catalog`, so that the image is small and starts fast on a node with little time left.
"""
